#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# one.sh KIND NAME RANKS MODE FILTER: makes one mutant and runs the tests on it. Runs inside, in
# /mnt/tree. For the driver it prints lines that begin with @: "@build" and "@stale" for a mutant
# that cannot be made, else "@report", the report, "@end".
set -u
kind=$1 name=$2 ranks=$3 mode=$4 filter=$5
tests=${filter//,/|} # for ctest
limit=${SYMMEM_MUTANT_CASE_LIMIT:-5}
[ "$kind" != contained ] || limit=2 # a fork bomb need not run long

stop() { # WORD LOG
    echo "@$1"
    tail -n 30 "$2"
    exit 0
}

backend=shm targets=(symmem symmem_backend_shm)
case $kind in
decorator | contained) backend=/mnt/tree/build/lib/mutants/$name.so ;;
patch | tsan | unit)
    patch -s -p1 --fuzz=0 --batch -d src <"src/tests/mutants/patches/$name.patch" >/tmp/log 2>&1 ||
        stop stale /tmp/log
    ;;
esac
[[ $kind != *unit ]] || read -ra targets <<<"${filter//[,.]/ }"
case $kind in
patch | tsan | *unit)
    cmake --build build --target "${targets[@]/#unit/symmem}" >/tmp/log 2>&1 || stop build /tmp/log
    ;;
esac

report=/tmp/report.json
if [[ $kind == *unit ]]; then
    ctest --test-dir build -R "^(${tests//./\\.})$" --no-tests=error --timeout 60 \
        --output-junit /tmp/report.xml >/tmp/log 2>&1
    # As the runner's report has it: a line for each test.
    sed -n 's/.*<testcase name="\([^"]*\)".*status="\([a-z]*\)".*/\1 \2/p' /tmp/report.xml |
        while read -r test status; do
            [ "$status" = run ] && status=passed || status=failed
            printf '    {"test": "%s", "requirements": [], "status": "%s", "reason": ""}\n' \
                "$test" "$status"
        done >"$report"
    [ ! -s "$report" ] || echo '  "summary": {}' >>"$report"
else
    build/bin/symmem-conformance --backend "$backend" --ranks "$ranks" --rank-mode "$mode" \
        --filter "$filter" --timeout "$limit" --seed 1 --no-large --format json \
        --output "$report" >/tmp/log 2>&1
fi
echo "@exit $?"
grep -q 'WARNING: ThreadSanitizer' /tmp/log && echo "@race"
echo "@report"
cat "$report"
echo "@end"
tail -c 20000 /tmp/log
