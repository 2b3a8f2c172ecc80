#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# lane.sh NUMBER: the mutant of that line of open.tsv from outside: runs it contained, adds a line to
# results.jsonl and prints one. For run.sh, which exports WORK and LANE.
set -u
# shellcheck source=tests/mutants/namespace.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/../namespace.sh"
IFS=$'\t' read -r id operator file _ line _ _ old new < <(sed -n "$1p" "$WORK/open.tsv")
base=$WORK/plain limit=1500 log=$WORK/logs/$1.log
if [ "$operator" = order ]; then
    base=$WORK/tsan
    export UNLIMITED_ADDRESSES=1 SYMMEM_TIMEOUT_SCALE=3 SYMMEM_MUTANT_SLOWER=30
    export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1
fi
start=${EPOCHREALTIME/[.,]/}
# shellcheck disable=SC2153 # exported by run.sh's xargs
contained "$limit" copy "$base" "$LANE" bash build/one.sh "$1" >"$log" 2>&1
status=$?
IFS=$'\t' read -r _ verdict by run test remark < <(grep -P '^@\t' "$log" | tail -n 1)
[ -n "${verdict:-}" ] || { verdict=error by=- run=- test=- remark="exit status $status, no verdict"; }
seconds=$(awk -v us=$((${EPOCHREALTIME/[.,]/} - start)) 'BEGIN { printf "%.1f", us / 1e6 }')
quote() {
    local text=${1//\\/\\\\}
    printf '%s' "${text//\"/\\\"}"
}
printf '{"id": "%s", "operator": "%s", "file": "%s", "line": %d, "old": "%s", "new": "%s", "verdict": "%s", "by": "%s", "run": "%s", "test": "%s", "remark": "%s", "seconds": %s}\n' \
    "$id" "$operator" "$file" "$line" "$(quote "$old")" "$(quote "$new")" "$verdict" "$by" "$run" "$(quote "$test")" \
    "$(quote "$remark")" "$seconds" >>"$WORK/results.jsonl"
printf '%-12s %6s s  %s (line %s): %s -> %s%s\n' "$verdict" "$seconds" "$id" "$line" "$old" "$new" \
    "$([ "$verdict" != killed ] || echo "; by $test, $run")"
