#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# test.sh [all | stage...]: the tests of every change, which CI runs; with "all", every test there is;
# or only the stages named. Installs what is missing. Builds go to build-<tree>/, logs to build-logs/.
# A failed stage does not stop the others. Before the end it says what this run left out. The last line is
# "N passed, N failed, N skipped": conformance cases, unit tests and checks together.
# Exit status: 0 if nothing failed, 1 otherwise, 2 for a wrong argument.
set -u
# shellcheck source=tests/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
cd "$root" || exit 1
# shellcheck source=tests/stages.sh
. tests/stages.sh

# The first tier has ten minutes on two processors. It holds the stages that have caught most, see
# coverage/landings.md. Stages begin in the order of their list, once what they need is compiled.
first_tier=(style unit suite clang races changed)
all_stages=(style unit suite clang worlds withheld inputs builds faults plugin launchers pytorch bad-backends gpu-backends asan tsan msan coverage fuzz
    mutants multicast generated)
known_stages=("${first_tier[@]}" "${all_stages[@]:4}")
case $* in
'') stages=("${first_tier[@]}") ;;
all) stages=("${all_stages[@]}") ;;
*) stages=("$@") ;;
esac
for stage in "${stages[@]}"; do
    if [[ " ${known_stages[*]} " != *" $stage "* ]]; then
        say "usage: tests/test.sh [all | stage...]   stages: ${known_stages[*]}"
        exit 2
    fi
done

# The caller's variables of a job are not for the tests, except the time scale of a slow machine.
time_scale=${SYMMEM_TIMEOUT_SCALE:-1}
unset RANK WORLD_SIZE LOCAL_RANK "${!SYMMEM_@}" "${!TORCH_SYMM_MEM_@}"
export LC_ALL=C.UTF-8 SYMMEM_TIMEOUT_SCALE=$time_scale

need_build_tools
need_command clang clang
need_command g++ g++
need_command lcov lcov
need_command xmllint libxml2-utils
need_command jq jq
need_command xz xz-utils
need_command ip iproute2
need_header cjson/cJSON.h libcjson-dev
need_clang_format
[[ " ${stages[*]} " != *" builds "* ]] || need_command musl-gcc musl-tools
if [[ " ${stages[*]} " == *" launchers "* ]]; then
    need_command mpirun openmpi-bin
    need_command srun munge slurmctld slurmd slurm-client
fi
if [[ " ${stages[*]} " == *" generated "* ]]; then
    need_libclang
    need_command ld.lld lld
fi
if ! install_missing || ! install_clang_runtime; then
    printf '0 passed, 1 failed, 0 skipped\n'
    exit 1
fi
logs=$root/build-logs
mkdir -p "$logs" || exit 1

# Of all that a shell has started and that has ended. How long a stage takes depends on what else the machine
# does, this hardly.
processor_seconds() { # PROCESS
    awk -v hertz="$(getconf CLK_TCK)" '{ sub(/.*\) /, ""); printf "%.0f", ($14 + $15) / hertz }' "/proc/$1/stat"
}

# One stage in a shell of its own, so that its settings and processes end with it. Leaves its output, and its
# seconds and counts in a file.
run_stage() ( # STAGE
    stage=$1
    stage_passed=0 stage_failed=0 stage_skipped=0
    begin=$SECONDS turn='' shell=$BASHPID
    export TMPDIR=$temporary/$stage
    mkdir "$TMPDIR" || exit 1
    {
        printf '\n== %s\n' "$stage"
        "stage_${stage//-/_}"
    } >"$logs/$stage.log" 2>&1
    [ -z "$turn" ] || rmdir -- "$turn"
    echo "$((SECONDS - begin)) $stage_passed $stage_failed $stage_skipped $(processor_seconds "$shell")" >"$logs/$stage.counts"
    cat "$logs/$stage.log"
)

trees=()
for stage in "${stages[@]}"; do
    rm -f "$logs/$stage.counts" "$logs/$stage.left-out"
    for tree in $(trees_of "$stage"); do
        rm -f "$logs/$tree.tree"
        [[ " ${trees[*]} " == *" $tree "* ]] || trees+=("$tree")
    done
done

# All that is compiled, so that what tests do not use of the machine while they wait is used. Of lower
# priority than they, which have limits to keep. The first tree ends with the kernels' image, which only one
# processor compiles: what is left of the other one is for the next trees, one after the other.
make_tree() { # TREE
    local begin=$SECONDS shell=$BASHPID before status
    before=$(processor_seconds "$shell")
    kill -0 "$$" 2>/dev/null || return # interrupted
    "make_$1" >"$logs/$1.tree.log" 2>&1
    status=$?
    echo "made in $((SECONDS - begin)) s, processors $(($(processor_seconds "$shell") - before)) s" >>"$logs/$1.tree.log"
    echo "$status" >"$logs/$1.tree.part" && mv -- "$logs/$1.tree.part" "$logs/$1.tree"
}

make_trees() {
    local tree
    [ "${#trees[@]}" -gt 0 ] || return 0
    renice -n 15 "$BASHPID" >/dev/null 2>&1
    (
        renice -n 19 "$BASHPID" >/dev/null 2>&1
        for tree in "${trees[@]:1}"; do
            make_tree "$tree"
        done
    ) &
    make_tree "${trees[0]}"
    wait
}
: >"$logs/begin"
make_trees &
builder=$!

# As many stages at a time as there are processors: the suite and the mutants use what they wait for by
# themselves. A few more only wait for what they need. Each has names of its own in /dev/shm and in TMPDIR,
# for some tests count them; where that is not permitted the stages run one at a time. A subshell, so that it
# waits for stages only.
turns=$(getconf _NPROCESSORS_ONLN)
[ "${#own_shm[@]}" -gt 0 ] || turns=1
temporary=$(mktemp -d /tmp/test.XXXXXX) || exit 1
trap 'rm -rf -- "$temporary"' EXIT
(in_lanes "$((turns + 4))" run_stage "${stages[@]}")
wait

passed=0 failed=0 skipped=0 table=()
for stage in "${stages[@]}"; do
    seconds=0 stage_passed=0 stage_failed=1 stage_skipped=0 busy=0 # if it left nothing
    read -r seconds stage_passed stage_failed stage_skipped busy <"$logs/$stage.counts"
    if [ "$stage_failed" -gt 0 ]; then
        result=FAILED
    elif [ "$stage_passed" -gt 0 ]; then
        result=passed
    else
        result=skipped
    fi
    table+=("$(printf '%-12s %-8s %5d s %8d s %8d %8d %8d' "$stage" "$result" "$seconds" "$busy" \
        "$stage_passed" "$stage_failed" "$stage_skipped")")
    passed=$((passed + stage_passed))
    failed=$((failed + stage_failed))
    skipped=$((skipped + stage_skipped))
done

if [ -x build-gcc/bin/symmem-report ]; then
    printf '\n'
    coverage/build.sh 2>&1
fi

printf '\n%-12s %-8s %7s %10s %8s %8s %8s\n' stage result time processors passed failed skipped
printf '%s\n' "${table[@]}"
for tree in "${trees[@]}"; do
    printf 'tree %-12s %s\n' "$tree" "$(tail -n 1 "$logs/$tree.tree.log")"
done
printf 'all in %d s, processors %d s\n\n' "$SECONDS" "$(processor_seconds "$$")"
for stage in "${stages[@]}"; do
    [ ! -f "$logs/$stage.left-out" ] || sed "s/^/left out: /" "$logs/$stage.left-out"
done
for stage in "${all_stages[@]}"; do
    [[ " ${stages[*]} " == *" $stage "* ]] || printf 'left out: %s (%s)\n' "$stage" "$(about "$stage")"
done
printf '\n%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
[ "$failed" -eq 0 ]
