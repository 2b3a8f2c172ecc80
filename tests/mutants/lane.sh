#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# lane.sh NAME: runs one mutant contained, from outside, and checks the report. For
# run.sh, which exports WORK (bases and results), TABLE (the rows' fields) and LANE. Writes
# WORK/results/NAME: status, seconds, tests that killed it, remark; and one row of the table.
set -u
# shellcheck source=tests/mutants/namespace.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/namespace.sh"

[ ! -e "$WORK/baseline-failed" ] || exit 0 # then a kill would mean nothing
IFS=$'\t' read -r name kind museum ranks mode filter expected _ \
    < <(awk -F'\t' -v name="$1" '$1 == name' "$TABLE")
log=$WORK/logs/$name.log
# What hangs is a kill when its program's limit is over, so this one has room for that and for compiling.
limit=${SYMMEM_MUTANT_LIMIT:-120}
how=copy base=$WORK/plain
[[ $kind != baseline* ]] || limit=$((limit * 2)) # here slow is not wrong
case $kind in
decorator | baseline) how=use ;;
contained)
    how=use
    limit=${SYMMEM_MUTANT_LIMIT:-60}
    export PROCESSES=100
    ;;
tsan | baseline-tsan)
    base=$WORK/tsan
    export UNLIMITED_ADDRESSES=1 SYMMEM_TIMEOUT_SCALE=3
    export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1
    [ "$kind" = tsan ] || how=use
    ;;
fake | baseline-fake | gpu_unit | baseline-gpu_unit) base=$WORK/fake ;; # ctest writes there, too
esac

matches() { # TEST GLOBS
    local pattern patterns
    IFS=, read -ra patterns <<<"$2"
    for pattern in "${patterns[@]}"; do
        # shellcheck disable=SC2053
        [[ $1 != $pattern ]] || return 0
    done
    return 1
}

# The tests of the report with one of the statuses that a pattern names.
tests_with() { # PATTERN
    sed -nE 's/^    \{"test": "([^"]*)", .*"status": "('"$1"')".*/\1/p' "$log.report"
}

# Sets status, killed_by and remark.
judge() {
    local test killers=() others=()
    status=error killed_by="" remark=""
    sed -n '/^@report$/,/^@end$/p' "$log" >"$log.report"
    if grep -qx '@stale' "$log"; then
        remark="its edit does not fit: $(grep -m 1 -A 1 -x '@stale' "$log" | tail -n 1)"
    elif grep -qx '@build' "$log"; then
        remark="does not build"
    elif grep -qx '@exit 3' "$log"; then
        remark="the backend cannot be loaded"
    elif [ "${seconds%.*}" -ge "$limit" ]; then
        remark="the run was ended after $limit s"
    elif ! grep -qx '@end' "$log.report" || ! grep -q '"summary"' "$log.report"; then
        remark="no complete report: the runner crashed or was killed"
    elif [ -z "$(tests_with '[a-z]*')" ]; then
        remark="no test matches the filter"
    else
        for test in $(tests_with 'failed|error'); do
            if matches "$test" "$expected"; then
                killers+=("$test")
            else
                others+=("$test")
            fi
        done
        killed_by=${killers[*]}
        if [ "${#killers[@]}" -gt 0 ]; then
            status=killed
        elif [ "${#others[@]}" -gt 0 ]; then
            remark="killed only by what was not expected: ${others[*]}"
        elif [ -z "$(tests_with passed)" ]; then
            status=skipped remark="the backend lacks what its tests need"
        else
            status=survived
        fi
        if [ "$status" = killed ] && [ "$kind" = tsan ] && ! grep -qx '@race' "$log"; then
            status=error remark="failed without a report of ThreadSanitizer's"
        fi
    fi
}

# The other way round: all must pass.
judge_baseline() {
    local wrong bad='failed|error|unresolved'
    [ "$status" != skipped ] || status=survived remark=""
    [ "$status" = error ] && [ -z "$(tests_with 'failed|error')" ] && return # no report
    # A foreign backend may lack what a test needs; ours lacks nothing.
    [ -n "${SYMMEM_MUTANTS_OF:-}" ] || bad+='|skipped'
    wrong=$(tests_with "$bad" | tr '\n' ' ')
    status=passed killed_by="" remark=""
    [ -z "$wrong" ] || { status=error remark="fails without a mutant: $wrong"; }
}

# Inside it may do what it likes, and must have done something; outside, nothing.
judge_contained() {
    local left='' harmed=''
    canary_unharmed || harmed=1
    # A lane's own user has nothing left. The canary's child ends soon; until process 1 asks for it,
    # which may take it seconds, it is a zombie, and those are no more.
    for _ in {1..20}; do
        [ -z "$lanes_have_users" ] ||
            left=$(ps -o stat=,comm= -U "$(lane_user "$LANE")" | grep -v '^Z' | head -n 3 | paste -sd ',')
        [ -n "$left" ] || break
        sleep 0.1
    done
    if [ -n "$harmed" ]; then
        status=error killed_by="" remark="IT DID HARM OUTSIDE: a process there was killed"
    elif [ -n "$left" ]; then
        status=error killed_by="" remark="it left processes outside: $left"
    elif [ "$status" = survived ]; then
        remark="did nothing"
    else
        status=killed killed_by=containment
    fi
}

# There are more lanes than the machine has room for, since most wait: one begins when no more runs than
# there are processors, or the limits of those that run would fail. After six seconds it begins all the same:
# in a container the count may be that of the whole host.
processors=$(getconf _NPROCESSORS_ONLN)
count_running() { # without a process, or the looks alone would take a tenth of a processor
    local key value
    running=0
    while read -r key value; do
        [ "$key" != procs_running ] || running=$((value - 1)) # this look itself runs, too
    done 2>/dev/null </proc/stat
}
exec 8<> <(:) # never has anything to read
for ((tries = 0; tries < 40; tries++)); do
    count_running
    [ "$running" -gt "$processors" ] || break
    read -r -t "0.1$((RANDOM % 10))" -u 8
done
exec 8<&-

run_once() {
    local start=${EPOCHREALTIME/[.,]/}
    contained "$limit" "$how" "$base" "$LANE" \
        bash src/tests/mutants/one.sh "$kind" "$name" "$ranks" "$mode" "$filter" >"$log" 2>&1
    seconds=$(awk -v us=$((${EPOCHREALTIME/[.,]/} - start)) 'BEGIN { printf "%.2f", us / 1e6 }')
    judge
}

# Checks a run, except what a contained one did outside.
try_it() {
    run_once
    [[ $kind != baseline* ]] || judge_baseline
    [[ $status == killed || $status == passed ]]
}

[ "$kind" != contained ] || start_canary "$LANE"
# Where ranks race, what tears the product may not show each time, and a busy machine may be what fails.
# The table tells whom that saved.
certain='^(its edit|does not build|the backend|no test)'
before=
for ((try = 1; try <= 3; try++)); do
    ! try_it || break
    [[ $kind != contained && ! $remark =~ $certain ]] || break
    before=$remark
done
[[ $try -eq 1 || ! $status =~ ^(killed|passed)$ ]] || remark="${before:+first $before; }not before run $try"
[ "$kind" != contained ] || judge_contained
[[ $kind != baseline* || $status == passed ]] || : >"$WORK/baseline-failed"
printf '%s\t%s\t%s\t%s\n' "$status" "$seconds" "$killed_by" "$remark" >"$WORK/results/$name"
[[ $kind == baseline* && $status == passed && -z $remark ]] ||
    printf '%-8s %6s s  %-32s %-14s expected %s%s%s\n' "$status" "$seconds" "$name" "$museum" \
        "$expected" "${killed_by:+; killed by $killed_by}" "${remark:+; $remark}"
