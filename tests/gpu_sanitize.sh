#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# gpu_sanitize.sh [TOOL...]: the suite's cases that run kernels, and the example of symmem/device.cuh, with
# two ranks on one GPU, under compute-sanitizer: memcheck, racecheck and synccheck unless tools are named.
# The ranks are processes: in one process the tools let one rank's kernel wait for another's to end. Needs a
# driver, nvcc and compute-sanitizer, and libcjson for putting parts together; about ten minutes. Results in
# build/gpu-sanitize/: TOOL.txt with what the tool says, TOOL.json of the suite, about.txt. Exit status:
# 0 nothing found and all passed, 1 not, 4 no GPU or nothing built. --cases prints the cases' patterns.
# SYMMEM_SANITIZE_CASES: other cases, as patterns for the suite's --filter.
# SYMMEM_SANITIZE_PARTS, SYMMEM_SANITIZE_AT_ONCE: in how many parts, each of which may be tried again if
# the tool dies (6), and how many of those at once (1).
set -u
# shellcheck source=tests/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
cd "$root" || exit 4
results=build/gpu-sanitize
# Every kernel, but none that waits for another one of its own rank: the tools run a process's kernels
# one after the other (barrier.channels_are_independent waits for ever).
cases=${SYMMEM_SANITIZE_CASES:-$(printf '%s,' 'all_reduce.*' 'barrier.ho*' 'barrier.hal*' \
    'barrier.[apw]*' 'barrier.never*' 'barrier.barriers*' 'barrier.group_of_one' 'signal.consumed*' \
    'signal.all_pairs*' 'signal.every_*' 'signal.signal_to*' 'signal.place*' \
    'onesided.[pgrc]*' 'onesided.data*' 'fill.*' 'reduce.every*' 'reduce.odd*' \
    'reduce.random*' 'reduce.on_streams' 'reduce_plain.*' 'reduce_scatter.[elo]*' \
    'reduce_small.by_turns' 'reduce_small.ranks_disagree' 'test_*_shot_all_reduce' 'test_*reduce_scatter' 'test_low_*_gather' \
    'move.all_gather*' 'move.broadcast*' 'move.all_to_all_[eaps]*' 'all_to_all_v.[renw]*' 'move.low_contention_on*' \
    'ops.back_to_back' 'ops.all_on_streams' 'ops.captured' 'composed.copy*' 'test_fused*' 'fused.*' \
    'fused_scatter.*')}
if [ "${1:-}" = --cases ]; then
    echo "${cases%,}"
    exit 0
fi
never_multicast
export CUDA_DEVICE_MAX_CONNECTIONS=${CUDA_DEVICE_MAX_CONNECTIONS:-32}
# Memcheck counts a call that the driver refuses as an error: fabric handles are not tried.
export SYMMEM_CUDA_FABRIC=0
# Under these tools all takes several times as long.
export SYMMEM_TIMEOUT_SCALE=${SYMMEM_TIMEOUT_SCALE:-4}

find_gpus || exit 4
if ! have_command compute-sanitizer; then
    say "compute-sanitizer is not there: it comes with the CUDA toolkit"
    exit 4
fi
parts=${SYMMEM_SANITIZE_PARTS:-6} at_once=${SYMMEM_SANITIZE_AT_ONCE:-1}
if ! [[ "$parts $at_once" =~ ^[1-9][0-9]*\ [1-9][0-9]*$ ]]; then
    say "gpu_sanitize.sh: SYMMEM_SANITIZE_PARTS and SYMMEM_SANITIZE_AT_ONCE are numbers"
    exit 4
fi
seed=$((RANDOM << 15 | RANDOM)) # the parts of a run have one

build_target="suite symmem-report symmem_backend_cuda" build_in build || exit 4
mkdir -p "$results" && mv build/build.log "$results/build.log" || exit 4
about_gpus compute-sanitizer 2 | tee "$results/about.txt"

# symmem/device.cuh in a user's kernels.
cmake --build build --target symmem-cuda-check >>"$results/build.log" 2>&1 || exit 4

# What follows is of one tool, whose results are "$results/$tool.PART.*" first.

# In a group of its own, so that nothing stays behind a tool that has died.
limited() { # COMMAND...
    local pid status
    timeout -k 10 "${SYMMEM_GPU_LIMIT_S:-1200}" "$@" &
    pid=$!
    wait "$pid"
    status=$?
    kill -KILL -- "-$pid" 2>/dev/null
    return "$status"
}

run_part() { # TOOL PART
    local to=$results/$1.$2 status tries
    for tries in 1 2 3; do
        limited compute-sanitizer --tool "$1" --target-processes all --log-file "$to.txt" \
            build/bin/symmem-conformance --backend cuda --ranks 2 --keep-ranks --no-large --no-color \
            --filter "${cases%,}" --part "$2/$parts" --seed "$seed" --format text \
            --output "$to.suite.txt" --report "json=$to.json" >/dev/null 2>"$to.log"
        status=$?
        # 139: the tool itself has died, as 2025.3.1 does now and then when it begins or between cases.
        [ "$status" -eq 139 ] || break
        say "$1, part $2: the tool has died, try $tries"
    done
    return "$status"
}

# Both ranks' tools have told, unless one has died.
run_header() { # TOOL
    local status tries
    for tries in 1 2 3; do
        rm -f "$results/$1".header.*
        limited core/symmem-run.sh 2 compute-sanitizer --tool "$1" \
            --log-file "$results/$1.header.%p.txt" build/bin/symmem-cuda-check header \
            >"$results/$1.header.log" 2>&1
        status=$?
        [ "$(cat "$results/$1".header.*.txt 2>/dev/null | grep -c SUMMARY)" -ne 2 ] || return "$status"
        say "$1, the header's example: a tool has died, try $tries"
    done
    return 1
}

# All parts, so many at once; the worst status.
run_parts() { # TOOL
    local part worst=0 pids=() pid
    for ((part = 1; part <= parts; part++)); do
        run_part "$1" "$part" &
        pids+=($!)
        if [ "${#pids[@]}" -eq "$at_once" ] || [ "$part" -eq "$parts" ]; then
            for pid in "${pids[@]}"; do
                wait "$pid" || worst=$?
            done
            pids=()
        fi
    done
    return "$worst"
}

[ $# -gt 0 ] || set -- memcheck racecheck synccheck
worst=0
for tool in "$@"; do
    rm -f "$results/$tool".*
    run_parts "$tool"
    status=$?
    files=()
    for ((part = 1; part <= parts; part++)); do
        files+=("$results/$tool.$part.json")
    done
    build/bin/symmem-report --merge "$results/$tool.json" "${files[@]}" >"$results/$tool.suite.txt" 2>&1 ||
        [ "$status" -ne 0 ] || status=1
    [ "$status" -ne 0 ] || run_header "$tool" || status=$?
    cat "$results/$tool".[0-9]*.txt "$results/$tool".header.*.txt 2>/dev/null |
        grep '^=' >"$results/$tool.txt"
    # One summary for each process that the tool saw; a warning of a race counts as well.
    found=$(grep -h SUMMARY "$results/$tool.txt" | grep -vc ' 0 errors\| 0 hazards')
    printf '%s: %s, suite: exit status %s, %s\n' "$tool" \
        "$(grep -h SUMMARY "$results/$tool.txt" | sort | uniq -c | sed 's/ *\(.*\)/\1/' | paste -sd ';')" \
        "$status" "$(tail -n 1 "$results/$tool.suite.txt" 2>/dev/null)"
    if [ "$status" -ne 0 ] || [ "$found" -ne 0 ] || ! grep -q SUMMARY "$results/$tool.txt"; then
        worst=1
    fi
done
exit "$worst"
