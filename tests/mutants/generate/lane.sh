#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# lane.sh NUMBER [races]: the mutant of that line of open.tsv from outside: runs it contained, with
# ThreadSanitizer if it is asked for, adds a line to results.jsonl and prints one. For run.sh, which exports
# WORK and LANE.
set -u
# shellcheck source=tests/mutants/namespace.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/../namespace.sh"
number=$1
IFS=$'\t' read -r id operator file _ line _ _ old new < <(sed -n "$1p" "$WORK/open.tsv")
base=$WORK/plain limit=1500 log=$WORK/logs/$1.log
if [ "${2:-}" = races ]; then
    base=$WORK/tsan
    export ONLY_RACES=1 UNLIMITED_ADDRESSES=1 SYMMEM_TIMEOUT_SCALE=3 SYMMEM_MUTANT_SLOWER=30
    export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1
fi

# shellcheck disable=SC2153 # exported by run.sh's xargs
inside() { # SECONDS LOG ARGUMENTS...
    local seconds=$1 output=$2
    shift 2
    contained "$seconds" copy "$base" "$LANE" bash build/one.sh "$@" >"$output" 2>&1
}

# A test that fails without a mutant kills none. Each that killed is tried once.
passes_without() { # RUN TEST
    local key=$1$'\t'$2
    [ "$base" = "$WORK/plain" ] || key=tsan-$key
    [[ $2 != '('* ]] || return 0
    ! grep -qxF "$key" "$WORK/passes.tsv" || return 0
    if ! grep -qxF "$key" "$WORK/failing.tsv" && inside 600 "$log.passes" --passes "$1" "$2" 120; then
        echo "$key" >>"$WORK/passes.tsv"
        return 0
    fi
    echo "fails without a mutant, so it is left out: $key"
    echo "$key" >>"$WORK/failing.tsv"
    sed -i "/\t$2\$/d" "$base/build/plans/$number/$1"
    return 1
}

start=${EPOCHREALTIME/[.,]/}
while :; do
    inside "$limit" "$log" "$number"
    status=$?
    IFS=$'\t' read -r _ verdict by run test remark < <(grep -P '^@\t' "$log" | tail -n 1)
    [ -n "${verdict:-}" ] || verdict=error by=- run=- test=- remark="exit status $status, no verdict"
    [ "$verdict" = killed ] || break
    ! passes_without "$run" "${test%%@*}" || break
done
seconds=$(awk -v us=$((${EPOCHREALTIME/[.,]/} - start)) 'BEGIN { printf "%.1f", us / 1e6 }')
times >"$log.times" # the second line is of what was waited for
cpu=$(tail -n 1 "$log.times" | tr 'ms' '  ' | awk '{ printf "%.1f", $1 * 60 + $2 + $3 * 60 + $4 }')
quote() {
    local text=${1//\\/\\\\}
    printf '%s' "${text//\"/\\\"}"
}
printf '{"id": "%s", "operator": "%s", "file": "%s", "line": %d, "old": "%s", "new": "%s", "verdict": "%s", "by": "%s", "run": "%s", "test": "%s", "remark": "%s", "seconds": %s, "cpu": %s}\n' \
    "$id" "$operator" "$file" "$line" "$(quote "$old")" "$(quote "$new")" "$verdict" "$by" "$run" "$(quote "$test")" \
    "$(quote "$remark")" "$seconds" "$cpu" >>"$WORK/results.jsonl"
printf '%-12s %6s s of %6s s  %s (line %s): %s -> %s%s\n' "$verdict" "$cpu" "$seconds" "$id" "$line" "$old" "$new" \
    "$([ "$verdict" != killed ] || echo "; by $test, $run")"
