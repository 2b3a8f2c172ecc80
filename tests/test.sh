#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# test.sh [stage...]: every test that CI runs, or only the stages named. Installs what is missing.
# Builds go to build-<stage>/, logs to build-logs/. A failed stage does not stop the others. The
# last line is "N passed, N failed, N skipped": conformance cases, unit tests and checks together.
# Exit status: 0 if nothing failed, 1 otherwise, 2 for a wrong argument.
set -u
# shellcheck source=tests/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"
cd "$root" || exit 1
# shellcheck source=tests/stages.sh
. tests/stages.sh

# In this order, as far as they wait for each other.
all_stages=(gcc withheld clang asan tsan coverage fuzz mutants small-shm plugin bad-backends style
    skeletons multicast)
stages=("$@")
[ "$#" -gt 0 ] || stages=("${all_stages[@]}")
for stage in "${stages[@]}"; do
    if [[ " ${all_stages[*]} " != *" $stage "* ]]; then
        say "usage: tests/test.sh [stage...]   stages: ${all_stages[*]}"
        exit 2
    fi
done

# The job's variables of whoever started this are not the tests' own, but for the time scale of a
# slow machine.
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
need_header cjson/cJSON.h libcjson-dev
need_clang_format
if ! install_missing || ! install_clang_runtime; then
    printf '0 passed, 1 failed, 0 skipped\n'
    exit 1
fi
logs=$root/build-logs
mkdir -p "$logs" || exit 1

# One stage in a shell of its own: what it sets and starts is its own affair. Leaves its seconds and
# counts in a file.
run_stage() ( # STAGE
    stage=$1
    stage_passed=0 stage_failed=0 stage_skipped=0
    printf '\n== %s\n' "$stage"
    local begin=$SECONDS
    "stage_${stage//-/_}"
    echo "$((SECONDS - begin)) $stage_passed $stage_failed $stage_skipped" >"$logs/$stage.counts"
)

# Some stages mostly wait, or are short, and need the plain build only: they go one after the other
# beside those that need one of their own. But first what has the machine's hands full. The stage "coverage"
# waits half of its time, while "fuzz" only computes.
first=() beside=() others=() trees=() with_coverage=
for stage in "${all_stages[@]}"; do
    [[ " ${stages[*]} " == *" $stage "* ]] || continue
    rm -f "$logs/$stage.counts" "$logs/$stage.conformance"
    case $stage in
    gcc | withheld) first+=("$stage") ;;
    style | small-shm | skeletons | multicast | plugin | bad-backends) beside+=("$stage") ;;
    fuzz) [[ " ${others[*]} " == *" coverage "* ]] && with_coverage=fuzz || others+=(fuzz) ;;
    *) others+=("$stage") ;;
    esac
    for tree in $(trees_of "$stage"); do
        rm -f "$logs/$tree.tree"
        [[ " ${trees[*]} " == *" $tree "* ]] || trees+=("$tree")
    done
done

# All that is compiled, one tree after the other, so that what tests do not use of the machine while
# they wait is used. Of lower priority than they, which have limits to keep.
make_trees() {
    local tree begin status
    renice -n 15 "$BASHPID" >/dev/null 2>&1
    for tree in "${trees[@]}"; do
        kill -0 "$$" 2>/dev/null || return # interrupted
        begin=$SECONDS
        "make_$tree" >"$logs/$tree.tree.log" 2>&1
        status=$?
        echo "made in $((SECONDS - begin)) s" >>"$logs/$tree.tree.log"
        echo "$status" >"$logs/$tree.tree.part" && mv -- "$logs/$tree.tree.part" "$logs/$tree.tree"
    done
}
make_trees &
builder=$!

for stage in "${first[@]}"; do
    run_stage "$stage"
done
# With a folder for temporary files of their own, lest a unit test that counts names sees theirs.
temporary=$(mktemp -d /tmp/beside.XXXXXX) || exit 1
trap 'rm -rf -- "$temporary"' EXIT
for stage in "${beside[@]}"; do
    TMPDIR=$temporary run_stage "$stage"
done >"$logs/beside.log" 2>&1 &
# Beside "coverage", whose tests mostly wait, go "fuzz" and the suite's run of "tsan". The unit tests of "tsan" are
# over by then: some count names in places that all share.
stage_beside() { # STAGE, from now on
    mkdir "$temporary/$1"
    TMPDIR=$temporary/$1 run_stage "$1" >"$logs/$1.log" 2>&1 &
    waiting_for+=("$1" "$!")
}
end_of_those_beside() {
    set -- "${waiting_for[@]}"
    waiting_for=()
    for (( ; $# > 0; )); do
        wait "$2"
        cat "$logs/$1.log"
        shift 2
    done
}
waiting_for=()
for stage in "${others[@]}"; do
    if [ "$stage" = tsan ] && [[ " ${others[*]} " == *" coverage "* ]]; then
        stage_beside tsan
        while kill -0 "$!" 2>/dev/null && [ ! -e "$logs/tsan.conformance" ]; do
            sleep 0.2
        done
    elif [ "$stage" = coverage ]; then
        [ -z "$with_coverage" ] || stage_beside "$with_coverage"
        run_stage coverage
        end_of_those_beside
    else
        run_stage "$stage"
    fi
done
wait
cat "$logs/beside.log"

passed=0 failed=0 skipped=0 table=()
for stage in "${stages[@]}"; do
    seconds=0 stage_passed=0 stage_failed=1 stage_skipped=0 # if it left nothing
    read -r seconds stage_passed stage_failed stage_skipped <"$logs/$stage.counts"
    if [ "$stage_failed" -gt 0 ]; then
        result=FAILED
    elif [ "$stage_passed" -gt 0 ]; then
        result=passed
    else
        result=skipped
    fi
    table+=("$(printf '%-12s %-8s %5d s %8d %8d %8d' "$stage" "$result" "$seconds" \
        "$stage_passed" "$stage_failed" "$stage_skipped")")
    passed=$((passed + stage_passed))
    failed=$((failed + stage_failed))
    skipped=$((skipped + stage_skipped))
done

# Once more, now from what all stages left.
if [ -x build-gcc/bin/symmem-report ] || [ -x build-coverage/bin/symmem-report ]; then
    printf '\n'
    coverage/build.sh 2>&1
fi

printf '\n%-12s %-8s %7s %8s %8s %8s\n' stage result time passed failed skipped
printf '%s\n' "${table[@]}"
printf 'all in %d s\n' "$SECONDS"
printf '\n%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
[ "$failed" -eq 0 ]
