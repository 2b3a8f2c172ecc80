#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# torch_allocators.sh [RANKS [ALLOCATOR...]] [-- OPTIONS]: the suite on the allocators of the torch that
# python3 has (or $PYTHON), by RANKS ranks (2), a GPU for each. The allocators are CUDA, NCCL and NVSHMEM
# unless others are named. All run at once, each as SYMMEM_GPU_PARTS runs (1), and all is over after
# SYMMEM_GPU_LIMIT_S seconds (3600), building included: cases about memory and signals come first, the others
# fill the time that is left. OPTIONS go to the runner; with a --filter only its cases run. Results:
# build/gpu-torch/*.json, *.txt and *.tap, and findings.md, the table for tests/plugins/FINDINGS.md, where
# there is jq. Printed is each case that some allocator did not pass. Exit status: 4 without a GPU or torch,
# or if nothing was built or no case ran; otherwise 0, for what the allocators do is the result.
set -u
# shellcheck source=tests/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/../lib.sh"
cd "$root" || exit 4
ranks=2
if [[ ${1:-} =~ ^[1-9][0-9]*$ ]]; then
    ranks=$1
    shift
fi
allocators=()
while [ "$#" -gt 0 ] && [ "$1" != -- ]; do
    allocators+=("$1")
    shift
done
[ "$#" -eq 0 ] || shift
[ "${#allocators[@]}" -gt 0 ] || allocators=(CUDA NCCL NVSHMEM)
results=build/gpu-torch plugin=build/plugin-torch runner=build/bin/symmem-conformance
parts=${SYMMEM_GPU_PARTS:-1} limit_s=${SYMMEM_GPU_LIMIT_S:-3600}
python=${PYTHON:-python3}
stop_s=20 # what a runner may take to end once it is told to
find_gpus || exit 4
torch=$("$python" -c 'import importlib.util as u; print(*u.find_spec("torch").submodule_search_locations)') || exit 4
never_multicast
nccl_on_one_host
export NVSHMEM_REMOTE_TRANSPORT=none NVSHMEM_DISABLE_LOCAL_ONLY_PROXY=1 # one host, and no thread that spins
# Groups begin with a communicator, which takes up to a second, and many processes share a GPU.
export SYMMEM_TIMEOUT_SCALE=${SYMMEM_TIMEOUT_SCALE:-3}

left_s() { echo $((limit_s - SECONDS - stop_s)); }

# The runner and the plug-in at the same time: neither needs the other.
build_plugin() {
    local cuda=ON
    "$python" -c 'import sys, torch; sys.exit(torch.version.cuda is None)' || cuda=OFF
    cmake -S tests/plugins/pytorch -B "$plugin" -DSYMMEM_TORCH="$torch" -DSYMMEM_TORCH_CUDA="$cuda" &&
        cmake --build "$plugin" --parallel "$(getconf _NPROCESSORS_ONLN)"
}
build_both() {
    local pid
    build_plugin >"$results/build.log" 2>&1 </dev/null &
    pid=$!
    build_target=suite build_in build || exit 4
    wait "$pid" && return
    grep -n -m 10 'error' "$results/build.log" >&2
    tail -n 20 "$results/build.log" >&2
    exit 4
}

# A run is of some allocator's cases, one part of them. The engine starts once in a process, and a trap ends
# the device's context: so no ranks are kept. A case that hangs has a limit of its own, and the run has one.
run_part() { # NAME ALLOCATOR PART LIMIT_S RUNNER_OPTIONS...
    local name=$1 allocator=$2 part=$3 limit=$4 options=()
    shift 4
    [ "$parts" -eq 1 ] || options=(--part "$part/$parts")
    SYMMEM_TORCH_ALLOCATOR=$allocator timeout -k "$stop_s" "$limit" "$runner" \
        --backend "$plugin/libsymmem_backend_torch.so" --ranks "$ranks" --seed 1 --no-large --no-color --format text \
        --jobs 1 "${options[@]}" --output "$results/$name.$part.txt" --report "json=$results/$name.$part.json" \
        --report "tap=$results/$name.$part.tap" "$@" >"$results/$name.$part.log" 2>&1 </dev/null
}
run_round() { # ROUND RUNNER_OPTIONS...
    local round=$1 limit allocator part
    shift
    limit=$(left_s)
    [ "$limit" -gt 0 ] || return
    for allocator in "${allocators[@]}"; do
        for ((part = 1; part <= parts; part++)); do
            run_part "${allocator%%@*}.$round" "$allocator" "$part" "$limit" "$@" &
        done
    done
    wait
}

# The names of the cases that match WANTED and not FILTER. Both are lists of patterns.
matches() { # NAME PATTERNS
    local pattern patterns
    IFS=, read -ra patterns <<<"$2"
    for pattern in "${patterns[@]}"; do
        # shellcheck disable=SC2053 # a pattern
        [[ $1 != $pattern ]] || return 0
    done
    return 1
}
names_besides() { # FILTER WANTED
    local name
    while IFS=$'\t' read -r name _; do
        matches "$name" "$1" || ! matches "$name" "$2" || echo "$name"
    done < <("$runner" --list) | paste -sd,
}

# "passed", "failed" or "skipped" and the case's name, of an allocator's runs. Cases that were cut off are
# left out.
outcomes() { # ALLOCATOR
    cat "$results/${1%%@*}".*.tap 2>/dev/null | awk '
        function tell() { if (name != "" && !cut) print state, name; name = "" }
        /^(not )?ok [0-9]+ - / {
            tell(); state = /# SKIP/ ? "skipped" : /^ok/ ? "passed" : "failed"
            cut = 0; sub(/^(not )?ok [0-9]+ - /, ""); name = $1
        }
        /the run was interrupted/ { cut = 1 }
        END { tell() }'
}
print_cases() {
    local allocator
    for allocator in "${allocators[@]}"; do
        outcomes "$allocator" | sed "s/^/${allocator%%@*} /"
    done | awk '
        !($1 in column) { column[$1] = ++columns; title[columns] = $1 }
        { said[$3, $1] = $2; count[$1, $2]++; if ($2 == "failed") bad[$3] = 1 }
        END {
            for (i = 1; i <= columns; i++) {
                one = title[i]
                printf "%s: %d passed, %d failed, %d skipped\n", one, count[one, "passed"], count[one, "failed"],
                    count[one, "skipped"]
            }
            for (name in bad) {
                line = sprintf("%-52s", name)
                for (i = 1; i <= columns; i++) {
                    cell = said[name, title[i]]
                    line = line sprintf(" %s=%s", title[i], cell == "" ? "not-run" : cell)
                }
                print line | "sort"
            }
        }'
}

mkdir -p "$results" && rm -f "$results"/* || exit 4
build_both
{
    about_gpus nvcc "$ranks"
    "$python" -c 'import torch; print("torch", torch.__version__, *(torch.version.cuda and ["NCCL", torch.cuda.nccl.version()] or []))'
    printf 'built after %d s of %d, %d runs for each allocator\n' "$SECONDS" "$limit_s" "$parts"
} | tee "$results/about.txt"

# Cases about memory and signals are short, so one that hangs there is ended early.
rounds=('alloc.memory_is_zero,barrier.*,signal.*,rendezvous.*mismatch*,timeout.*'
    'alloc.*,rendezvous.*,handle*,group*,order.*,stream.*,litmus.*')
if [[ " $* " == *' --filter '* ]]; then
    run_round given "$@"
else
    done_with=${rounds[0]}
    run_round 1 --filter "${rounds[0]}" --timeout 10 "$@"
    printf 'the first cases were over after %d s\n' "$SECONDS" | tee -a "$results/about.txt"
    run_round 2 --filter "$(names_besides "$done_with" "${rounds[1]}")" --timeout 10 "$@"
    run_round 3 --filter "$(names_besides "$done_with,${rounds[1]}" '*')" "$@"
fi
{
    print_cases
    for allocator in "${allocators[@]}"; do
        [ -n "$(outcomes "$allocator")" ] || printf '%s: nothing ran: %s\n' "${allocator%%@*}" \
            "$(tail -qn 1 "$results/${allocator%%@*}".*.log 2>/dev/null | sort -u | head -n 3)"
    done
} | tee "$results/cases.txt"
files=()
for file in "$results"/*.json; do
    [ ! -s "$file" ] || files+=("$file")
done
if [ "${#files[@]}" -eq 0 ]; then
    tail -n 5 "$results"/*.log >&2
    exit 4
fi
if have_command jq; then
    tests/plugins/findings.sh "${files[@]}" >"$results/findings.md"
else
    say "no jq here: tests/plugins/findings.sh $results/*.json makes the table for FINDINGS.md"
fi
