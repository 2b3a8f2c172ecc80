# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154
# The stage of test.sh: every mutant is killed. Sourced by tests/stages.sh.

make_mutants() { tests/mutants/run.sh --prepare; }

stage_mutants() {
    tree_is_made mutants >/dev/null # if not, what follows says so
    local log=$logs/mutants.log status counts
    # Hundreds of runs: on a busy machine they have taken longer than a suite may.
    timeout -k 15 "$((2 * run_limit))" tests/mutants/run.sh --output "$logs/mutants.json" >"$log" 2>&1
    status=$?
    counts=$(tail -n 1 "$log")
    if [ "$status" -eq 77 ]; then
        skip mutants "$(grep 'cannot be contained' "$log")"
    elif [[ $counts =~ ^([0-9]+)\ killed,\ ([0-9]+)\ survived,\ ([0-9]+)\ errors$ ]]; then
        stage_passed=$((stage_passed + BASH_REMATCH[1]))
        stage_failed=$((stage_failed + BASH_REMATCH[2] + BASH_REMATCH[3]))
        verdict "$([ "$status" -eq 0 ] && echo ok || echo FAILED)" "mutants: $counts"
        grep -E '^(survived|error) |; not before run [23]$' "$log" | sed 's/^/    | /'
        ! grep -q ' left out: no ' "$log" || skip "mutants of the CUDA backend" "$(grep ' left out: no ' "$log")"
        check "what the driver says of bad mutants" tests/mutants/selfcheck.sh
    else
        verdict FAILED "mutants: exit status $status"
        tail -n 30 "$log" | sed 's/^/    | /'
        stage_failed=$((stage_failed + 1))
    fi
}
