#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# bad_input.sh CHECK PLUGIN LAUNCHER...: what must fail on every rank, within its limit and with nothing left.
# That is an engine that is missing, a world that is not the launcher's, and heaps that do not fit. %n in
# LAUNCHER stands for the number of ranks.
set -u
[ "$#" -ge 3 ] || { echo "usage: bad_input.sh CHECK PLUGIN LAUNCHER..." >&2; exit 1; }
check=$1 plugin=$2 bad=0
shift 2
launcher=("$@")
work=$(mktemp -d) || exit 1
trap 'rm -rf -- "$work"' EXIT

expect() { # NAME RANKS STATUS PLUGIN SCRIPT, which may ask for $r, the rank by the launcher
    local log=$work/log words=("${launcher[@]//%n/$2}")
    export SYMMEM_STORE="file:$work/${1// /_}"
    # shellcheck disable=SC2016
    if timeout -k 5 90 "${words[@]}" sh -c 'r=${PMI_RANK:-$OMPI_COMM_WORLD_RANK}; '"$5"'; exec "$@"' sh \
        "$check" "$4" "$3" >"$log" 2>&1 && [ "$(grep -c "^rank [0-9]*: $3: ." "$log")" = "$2" ]; then
        printf 'ok: %s: %s\n' "$1" "$(grep -m 1 "^rank 0: " "$log")"
    else
        printf 'FAILED: %s is not %s on %s ranks\n' "$1" "$3" "$2"
        cat "$log"
        bad=1
    fi
}

# The names of shared memory that engines have made meanwhile. What a process still has is of another job.
names() {
    local name
    find /dev/shm /tmp -maxdepth 1 -newer "$work/begin" \( -name 'vader*' -o -name 'sm_segment*' -o -name 'osc_*' \
        -o -name 'ucx_*' -o -name 'mpich*' -o -name 'sshmem*' \) | while IFS= read -r name; do
        grep -qsF -- "$name" /proc/[0-9]*/maps || [ ! -e "$name" ] || printf '%s\n' "$name"
    done
}

touch "$work/begin"
sed 's/liboshmem\.so/liboshmeX.so/g; s/libmpi\.so/libmpX.so/g; s/libmpich\.so/libmpicX.so/g' "$plugin" \
    >"$work/missing.so"
expect "the engine is missing" 2 LOAD "$work/missing.so" :
# shellcheck disable=SC2016
expect "two worlds of two in a launch of four" 4 BACKEND "$plugin" \
    'export RANK=$((r % 2)) WORLD_SIZE=2 LOCAL_RANK=$((r % 2)) SYMMEM_LAUNCHER=env SYMMEM_STORE=$SYMMEM_STORE.$((r / 2))'
case $plugin in
*openshmem*)
    expect "a heap that is too small" 2 NO_SPACE "$plugin" 'export SHMEM_SYMMETRIC_SIZE=16M'
    # shellcheck disable=SC2016
    expect "a heap that is too small on one rank" 2 NO_SPACE "$plugin" \
        '[ "$r" = 0 ] || export SHMEM_SYMMETRIC_SIZE=16M'
    expect "a heap whose size is none" 2 BACKEND "$plugin" 'export SHMEM_SYMMETRIC_SIZE=16Q'
    ;;
esac
left=$(names)
[ -z "$left" ] || { printf 'FAILED: left behind: %s\n' "$left"; bad=1; }
exit "$bad"
