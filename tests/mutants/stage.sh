# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154
# The stages of test.sh that run mutants: all of them, or those that the first tier has time for. Sourced by
# tests/stages.sh.

make_mutants() { tests/mutants/run.sh --prepare; }

stage_mutants() {
    tree_is_made mutants >/dev/null # if not, what follows says so
    run_mutants
    check "what the driver says of bad mutants" tests/mutants/selfcheck.sh
}

# What this change did not make: the commit at which it left main; or on main itself, to which work comes in
# series of commits, the newest one that is four hours older than the last.
commit_before_change() {
    local base head
    head=$(git rev-parse HEAD 2>/dev/null) || return
    base=$(git merge-base HEAD origin/main 2>/dev/null)
    if [ -z "$base" ] || [ "$base" = "$head" ]; then
        base=$(git rev-list -1 --before="$(($(git show -s --format=%ct HEAD) - 4 * 3600))" HEAD)
    fi
    echo "$base"
}

# Another sample each day, but one for the whole run.
mutants_seed=$(($(date +%s) / 86400))
chosen_mutants() {
    chosen=(--sample 5 --seed "$mutants_seed" --most 100)
    local base
    base=$(commit_before_change)
    [ -z "$base" ] || chosen+=(--changed "$base")
}

make_changed() {
    local chosen
    chosen_mutants
    tests/mutants/run.sh --prepare "${chosen[@]}"
}

stage_changed() {
    tree_is_made changed >/dev/null
    local chosen
    chosen_mutants
    run_mutants "${chosen[@]}"
    grep ' left out: not chosen' "$logs/$stage.run.log" | sed 's/ left out:/ mutants,/' >"$logs/$stage.left-out"
}

run_mutants() { # OPTIONS of run.sh
    local log=$logs/$stage.run.log status counts
    take_turn
    # Hundreds of runs: on a busy machine they have taken longer than a suite may.
    timeout -k 15 "$((2 * run_limit))" tests/mutants/run.sh --output "$logs/mutants.json" "$@" >"$log" 2>&1
    status=$?
    counts=$(tail -n 1 "$log")
    if [ "$status" -eq 77 ]; then
        skip "$stage" "$(grep 'cannot be contained' "$log")"
    elif [[ $counts =~ ^([0-9]+)\ killed,\ ([0-9]+)\ survived,\ ([0-9]+)\ errors$ ]]; then
        stage_passed=$((stage_passed + BASH_REMATCH[1]))
        stage_failed=$((stage_failed + BASH_REMATCH[2] + BASH_REMATCH[3]))
        verdict "$([ "$status" -eq 0 ] && echo ok || echo FAILED)" "mutants: $counts"
        grep -E '^(survived|error) |; not before run [23]$' "$log" | sed 's/^/    | /'
        ! grep -q ' left out: no ' "$log" || skip "mutants of the CUDA backend" "$(grep ' left out: no ' "$log")"
    else
        verdict FAILED "mutants: exit status $status"
        tail -n 30 "$log" | sed 's/^/    | /'
        stage_failed=$((stage_failed + 1))
    fi
}

# Generated mutants measure the tests: their figures are told, and a whole run is the check.
stage_generated() {
    take_turn
    check "generated mutants" timeout -k 15 "$((2 * run_limit))" tests/mutants/generate/run.sh --sample 40 \
        --seed "$mutants_seed" && sed 's/^/    /' "$logs/$stage.generated_mutants.log"
}
