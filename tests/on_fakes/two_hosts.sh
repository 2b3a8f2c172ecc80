#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# two_hosts.sh PROGRAM: two ranks on the fake driver (which is to be found first), each on what symmem
# takes for a host of its own, with and without a common NVLink fabric. Exit status 77 where the system
# does not let a process have its own mounts.
set -u
# One user namespace for both: a rank of another one could not open what the fake driver's handles name.
if [ -z "${SYMMEM_IN_NAMESPACE:-}" ]; then
    unshare -Ur true 2>/dev/null || exit 77
    SYMMEM_IN_NAMESPACE=1 exec unshare -Ur "$0" "$@"
fi
program=$1
ranks=$(cd -- "$(dirname -- "$0")/../.." && pwd)/core/symmem-run.sh
work=$(mktemp -d "${TMPDIR:-/tmp}/symmem-hosts.XXXXXX") || exit 1
trap 'rm -rf -- "$work"' EXIT
export work program
bad=0

# What tells hosts apart, as each rank sees it: a boot id, and that no socket leads to the other.
for rank in 0 1; do
    printf '0000000%s-1111-2222-3333-444444444444\n' "$rank" >"$work/boot_id.$rank"
done
# shellcheck disable=SC2016,SC2089,SC2090 # for the ranks' shells
host='mount --bind "$work/boot_id.$RANK" /proc/sys/kernel/random/boot_id'
if ! RANK=0 unshare -mn sh -c "$host" 2>/dev/null; then
    echo "no mounts and networks of one's own here"
    exit 77
fi

# run HOSTS FABRIC0 FABRIC1 [HAD0 [HAD1]]: ranks' lines to $work/said.RANK. HADx: the program's argument.
run() {
    export hosts=$1 fabric0=$2 fabric1=$3 had0=${4:-} had1=${5:-} host
    rm -f "$work"/said.*
    # shellcheck disable=SC2016 # for the ranks' shells
    SYMMEM_BACKEND=cuda timeout 60 "$ranks" 2 bash -c '
        fabric=fabric$RANK
        had=had$RANK
        export had=${!had}
        [ -z "${!fabric}" ] || export FAKE_CUDA_FABRIC=${!fabric}
        [ "$hosts" = 1 ] || exec unshare -mn sh -c "$host && exec \"\$program\" \$had" >"$work/said.$RANK" 2>&1
        exec "$program" $had >"$work/said.$RANK"'
}

# expect NAME TEXT0 TEXT1
expect() {
    local rank=0 text
    for text in "$2" "$3"; do
        if grep -qF -- "$text" "$work/said.$rank"; then
            printf 'good: %s, rank %s\n' "$1" "$rank"
        else
            printf 'BAD: %s, rank %s: "%s" is not in: %s\n' "$1" "$rank" "$text" \
                "$(cat "$work/said.$rank")"
            bad=1
        fi
        rank=$((rank + 1))
    done
}

run 1 '' ''
expect "one host" "holds 42" "holds 41"
run 1 a a
expect "one host with a fabric" "holds 42" "holds 41"
run 1 a b
expect "one host with two fabrics" "holds 42" "holds 41"
for FAKE_CUDA_REFUSAL in value granularity; do
    export FAKE_CUDA_REFUSAL
    run 1 '' ''
    expect "one host, refused otherwise: $FAKE_CUDA_REFUSAL" "holds 42" "holds 41"
done
unset FAKE_CUDA_REFUSAL
run 2 a a
expect "two hosts, one fabric" "holds 42" "holds 41"
text="the end of 1 of its ranks cannot be seen from rank"
expect "two hosts, and that neither would see the other end" "$text 0" "$text 1"
run 2 a a lack
expect "two hosts, and rank 0 had no descriptors once" "holds 42" "holds 41"
if grep -q "without descriptors" "$work/said.0"; then
    printf 'BAD: %s\n' "$(cat "$work/said.0")"
    bad=1
fi
for FAKE_CUDA_REFUSAL in passing "passing granularity"; do
    export FAKE_CUDA_REFUSAL
    run 2 a a
    text="memory cannot be shared between hosts"
    expect "two hosts, and a handle was refused: $FAKE_CUDA_REFUSAL" "$text" "$text"
    for memory in small large; do
        run 2 a a $memory $memory
        expect "two hosts, and one was refused for $memory memory before: $FAKE_CUDA_REFUSAL" \
            "holds 42" "holds 41"
    done
done
unset FAKE_CUDA_REFUSAL
for rank in 0 1; do
    if [ "$rank" = 0 ]; then run 2 '' a; else run 2 a ''; fi
    text="UNREACHABLE: ranks 0 and 1 are on different hosts"
    expect "rank $rank has no fabric" "$text" "$text"
    text="rank $rank's memory cannot be shared between hosts"
    expect "rank $rank has no fabric, and it is named" "$text" "$text"
done
run 2 a b
text="UNREACHABLE: rank 0 cannot map the memory of rank 1: no common NVLink fabric"
expect "two fabrics" "$text" "$text"
export SYMMEM_CUDA_FABRIC=0
run 2 a a
expect "a fabric that is not to be used" "cannot be shared between hosts" \
    "cannot be shared between hosts"
exit "$bad"
