#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# deps.sh FOLDER [PACKAGE...]: unpacks what symmem needs from packages of Debian or Ubuntu into a folder,
# without root, for a machine where nothing can be installed. Then
#
#     cmake -B build -DSYMMEM_DEPS=FOLDER              # a build by hand
#     SYMMEM_DEPS=FOLDER tests/conformance.sh          # the scripts here, those for GPUs among them
#
# Without packages it takes those that the build needs and the optional ones that are small. Needs apt-get
# with its lists, and dpkg-deb; a compiler, CMake and CUDA have to be there. What is in the folder stays.
set -u
if [ $# -lt 1 ] || [ "${1:0:1}" = - ]; then
    echo "usage: deps.sh FOLDER [PACKAGE...]" >&2
    exit 2
fi
mkdir -p -- "$1" && folder=$(cd -- "$1" && pwd) || exit 1
shift
[ $# -gt 0 ] || set -- libdlpack-dev libcunit1-dev libcunit1 libcjson-dev libcjson1 libpmix-dev libblas3 ninja-build
download=$(mktemp -d) || exit 1
trap 'rm -rf -- "$download"' EXIT
missing=()
for package; do
    if ! (cd "$download" && apt-get download -q "$package" >"$package.log" 2>&1); then
        missing+=("$package")
        continue
    fi
    dpkg-deb -x "$download/$package"_*.deb "$folder" && echo "$package" || exit 1
done
[ "${#missing[@]}" -eq 0 ] || echo "deps.sh: not to be had here: ${missing[*]}" >&2
for header in dlpack/dlpack.h CUnit/CUnit.h; do
    [ -n "$(find "$folder/usr/include" -path "*/$header" 2>/dev/null)" ] || {
        echo "deps.sh: $folder has no $header" >&2
        exit 1
    }
done
