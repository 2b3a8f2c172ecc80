#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# no_multicast.sh PLUGIN BUILD: whether the CUDA backend's plug-in is free of multicast. Says what
# it found and fails if there is anything: names of the driver's entry points or of kernels in the
# plug-in, or the instructions in any source that its kernels are compiled from. Those lie compressed
# in the plug-in, so it is their sources that are looked at, from the build's own commands on.
set -eu
plugin=$1 build=$2
kernels=$(cd -- "$(dirname -- "$0")/../../kernels" && pwd)
found=0

# "symmem_multicast_ops" is a type of backend.h.
for word in cuMulticast multimem\\.st multimem\\.ld multimem\\.red 'symmem_multicast_([^o]|o[^p])'; do
    if LC_ALL=C grep -aqE -- "$word" "$plugin"; then
        echo "$plugin: holds $word"
        found=1
    fi
done

# Sources given to nvcc for images of the backend, and all that they take in of ours. Ninja's rules or
# make's: in a build of another kind they are unknown.
rules=("$build"/build.ninja)
[ -e "${rules[0]}" ] || rules=("$build"/backend_cuda/CMakeFiles/*/build.make)
if [ ! -e "${rules[0]}" ]; then
    echo "$build: no rules of ninja or make"
    found=1
fi
commands=$(grep -hoE -- '-fatbin .*-o [^ ]*backend_cuda/[^ ]*' "${rules[@]}" 2>/dev/null |
    grep -v device_example || true)
mapfile -t sources < <(grep -oE '[^ ]+\.cu( |$)' <<<"$commands" | tr -d ' ' | sort -u)
[ "${#sources[@]}" -gt 0 ] || echo "no kernels are compiled in this build"
for ((i = 0; i < ${#sources[@]}; i++)); do
    if grep -qE 'multimem\.(st|ld_reduce|red)' "${sources[i]}"; then
        echo "${sources[i]}: has instructions for multicast"
        found=1
    fi
    while read -r name; do
        case " ${sources[*]} " in
        *" $kernels/$name "*) ;;
        *) [ ! -e "$kernels/$name" ] || sources+=("$kernels/$name") ;;
        esac
    done < <(sed -n 's/^ *# *include "\(.*\)".*/\1/p' "${sources[i]}")
done
echo "${#sources[@]} sources of kernels looked at"
[ "$found" -eq 0 ]
