# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# What conformance.sh, test.sh and the scripts for GPUs share. To be sourced; needs bash, nothing else.

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd) || exit 1
closing_pattern='^([0-9]+) passed, ([0-9]+) failed, ([0-9]+) skipped(, part [0-9]+/[0-9]+)?$'

say() { printf '%s\n' "$*" >&2; }
have_command() { command -v "$1" >/dev/null 2>&1; }

# --- what is missing ------------------------------------------------------------------------------

# Packages that deps.sh unpacked count as installed. Programs find their libraries there.
if [ -n "${SYMMEM_DEPS:-}" ]; then
    SYMMEM_DEPS=$(cd -- "$SYMMEM_DEPS" && pwd) || exit 1
    export SYMMEM_DEPS PATH=$PATH:$SYMMEM_DEPS/usr/bin
    for folder in "$SYMMEM_DEPS"/usr/lib "$SYMMEM_DEPS"/usr/lib/*-linux-gnu*; do
        LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder
    done
    export LD_LIBRARY_PATH
fi

missing_packages=()

need_command() { # COMMAND PACKAGE
    have_command "$1" || missing_packages+=("$2")
}

# A header counts as there if the compiler finds it. Without a compiler that is unknown, and the
# package is asked for, which does no harm if it is installed.
need_header() { # HEADER PACKAGE
    local compiler=${CC:-cc}
    have_command "$compiler" || compiler=gcc
    printf '#include <%s>\n' "$1" | "$compiler" ${SYMMEM_DEPS:+-I "$SYMMEM_DEPS/usr/include"} -E -x c - >/dev/null 2>&1 ||
        missing_packages+=("$2")
}

need_build_tools() {
    # A C library's headers do not always come with a compiler, so stdio.h is asked for as well.
    if ! { have_command cc || have_command gcc; } ||
        ! printf '#include <stdio.h>\n' | "${CC:-cc}" -E -x c - >/dev/null 2>&1; then
        missing_packages+=(build-essential)
    fi
    need_command cmake cmake
    have_command ninja || have_command make || missing_packages+=(ninja-build)
    need_command pkg-config pkg-config
    need_header CUnit/CUnit.h libcunit1-dev
    need_header dlpack/dlpack.h libdlpack-dev
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif [ -t 0 ] && [ "${CI:-}" != true ]; then
        sudo "$@" # may ask for a password
    else
        sudo -n "$@"
    fi
}

# Installs missing_packages. With nothing missing it touches neither network nor package manager.
install_missing() {
    [ "${#missing_packages[@]}" -eq 0 ] && return 0
    say "missing here: ${missing_packages[*]}"
    if ! have_command apt-get; then
        say "This script installs with apt-get (Debian, Ubuntu), which this machine does not have."
        say "Please install what the packages named above contain, then run it again."
        return 1
    fi
    if [ "$(id -u)" -ne 0 ] && ! have_command sudo; then
        say "Installing needs root, and there is no sudo. Please run, as root:"
        say "  apt-get update && apt-get install -y ${missing_packages[*]}"
        say "or, without root, tests/deps.sh FOLDER, and then this script with SYMMEM_DEPS=FOLDER"
        return 1
    fi
    say "installing ..."
    local log
    log=$(mktemp) || return 1
    if ! {
        as_root apt-get -q update &&
            as_root env DEBIAN_FRONTEND=noninteractive \
                apt-get -q install -y --no-install-recommends "${missing_packages[@]}"
    } >"$log" 2>&1 </dev/null; then
        tail -n 20 "$log" >&2
        rm -f "$log"
        say "Installation failed. By hand: apt-get install -y ${missing_packages[*]}"
        return 1
    fi
    rm -f "$log"
    missing_packages=()
}

# --- build ----------------------------------------------------------------------------------------

build_options=() # for every build, besides its own
[ -z "${SYMMEM_DEPS:-}" ] || build_options=("-DSYMMEM_DEPS=$SYMMEM_DEPS")

# Configures and builds in $root/NAME, quietly; on failure the end of the log is shown. All of it, or
# only the targets that $build_target names.
build_in() { # NAME CMAKE_OPTIONS...
    local name=$1
    shift
    local directory=$root/$name
    local cache=$directory/CMakeCache.txt generator=()
    # A folder that was configured for another place (a moved or copied checkout) is of no use. By what
    # links this one is reached makes no difference.
    if [ -f "$cache" ] &&
        ! [ "$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "$cache")" -ef "$root" ]; then
        rm -rf -- "$directory"
    fi
    if [ ! -f "$cache" ]; then
        if have_command ninja; then
            generator=(-G Ninja)
        else
            generator=(-G "Unix Makefiles")
        fi
    fi
    mkdir -p -- "$directory" || return 1
    local log=$directory/build.log targets=()
    [ -z "${build_target:-}" ] || read -ra targets <<<"--target $build_target"
    if ! {
        cmake -S "$root" -B "$directory" "${generator[@]}" "${build_options[@]}" "$@" &&
            cmake --build "$directory" --parallel "$(getconf _NPROCESSORS_ONLN)" \
            "${targets[@]}"
    } >"$log" 2>&1 </dev/null; then
        say "The build in $name/ failed. The end of $name/build.log:"
        grep -nE 'error|CMake Error|FAILED' "$log" | head -n 10 >&2
        tail -n 30 "$log" >&2
        return 1
    fi
}

# --- GPUs -----------------------------------------------------------------------------------------

# Sets gpus to their number; fails where there is none. Only lines of GPUs count: nvidia-smi prints
# there as well what ails the driver, and what a GPU is divided into.
find_gpus() {
    gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU ')
    [ -z "${CUDA_VISIBLE_DEVICES+set}" ] || gpus=$(visible_gpus "$gpus")
    [ "$gpus" -eq 0 ] || return 0
    say "no GPU here: nvidia-smi -L names none, or CUDA_VISIBLE_DEVICES hides them, or there is no nvidia-smi"
    return 1
}

# On shared hosts multicast can put GPUs out of service.
never_multicast() {
    export SYMMEM_MULTICAST=0 NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1
}

# No other network than the host's own, no service threads, and what NCCL warns of.
nccl_on_one_host() {
    export NCCL_SOCKET_IFNAME=${NCCL_SOCKET_IFNAME:-lo} NCCL_RAS_ENABLE=0 NCCL_DEBUG=${NCCL_DEBUG:-WARN}
}

# What a result was made on and by.
about_gpus() { # TOOL RANKS
    nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
    "$1" --version | grep -i '\(release\|^version\)'
    printf 'ranks %s, commit %s\n' "$2" "$(git rev-parse HEAD 2>/dev/null || echo unknown)"
}

# Sets launched to this process's rank, 0 without a launcher, and world to the job's number of ranks, if
# a launcher says one. Slurm's number counts only above one: a batch script, and
# what it starts without srun, has one task, whatever was allocated.
find_job() {
    launched=${RANK:-${PMIX_RANK:-${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-${SLURM_PROCID:-0}}}}}
    world=${SLURM_NTASKS:-}
    [ "$world" != 1 ] || world=
    world=${WORLD_SIZE:-${OMPI_COMM_WORLD_SIZE:-${PMI_SIZE:-$world}}}
}

# The driver takes what stands before the first number that no device has, or what is no name.
visible_gpus() { # COUNT
    local count=0 entry IFS=,
    for entry in $CUDA_VISIBLE_DEVICES; do
        if [[ $entry =~ ^[0-9]+$ ]]; then
            [ "$entry" -lt "$1" ] || break
        elif [[ $entry != GPU-* && $entry != MIG-* ]]; then
            break
        fi
        count=$((count + 1))
    done
    # No more than there are, but of parts of one.
    [[ $CUDA_VISIBLE_DEVICES == *MIG-* ]] || [ "$count" -le "$1" ] || count=$1
    echo "$count"
}

# --- running the suite ------------------------------------------------------------------------------

exit_meaning() { # STATUS
    case $1 in
    0) echo "all that was planned passed, or was skipped for a capability the backend lacks" ;;
    1) echo "something failed" ;;
    2) echo "something could not be decided on this machine (ranks, devices or memory)" ;;
    3) echo "the backend could not be loaded" ;;
    124 | 137) echo "the run was ended because it took too long" ;;
    *) echo "the runner ended unexpectedly, status $1" ;;
    esac
}
