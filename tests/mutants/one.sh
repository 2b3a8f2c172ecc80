#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# one.sh KIND NAME RANKS MODE FILTER: makes one mutant and runs the tests on it. Runs inside, in
# /mnt/tree. For the driver it prints lines that begin with @: "@build" and "@stale" for a mutant
# that cannot be made, else "@report", the report, "@end".
set -u
export SYMMEM_PRIVATE_SHM=own # a runner without rights could not make one
kind=$1 name=$2 ranks=$3 mode=$4 filter=$5
limit=${SYMMEM_MUTANT_CASE_LIMIT:-5} program_limit=40
case $kind in
contained) limit=2 ;;            # a fork bomb need not run long
baseline*) limit=$((limit * 6)) program_limit=$((program_limit * 3)) ;; # here slow is not wrong
esac

stop() { # WORD LOG
    echo "@$1"
    tail -n 30 "$2"
    exit 0
}

backend=shm targets=(symmem symmem_backend_shm)
case $kind in
decorator | contained) backend=/mnt/tree/build/lib/mutants/$name.so ;;
patch | tsan | unit | gpu_unit | fake)
    build/rows apply "$name" src src/tests/mutants/tables/*.txt >/tmp/log 2>&1 ||
        stop stale /tmp/log
    ;;
esac
IFS=, read -ra tests <<<"$filter"
[[ $kind != *unit ]] || targets=("${tests[@]#unit.}") targets=("${targets[@]%%@*}")
[[ $kind != *fake ]] || targets=(symmem_backend_cuda)
[[ $kind != *fake || $filter != *nccl* ]] || targets=(symmem_backend_nccl)
case $kind in
patch | tsan | *unit | fake)
    make=(make -C build)
    [ ! -f build/build.ninja ] || make=(ninja -C build)
    "${make[@]}" "${targets[@]}" >/tmp/log 2>&1 || stop build /tmp/log
    ;;
esac

# Runtimes of common compilers do not start where addresses are randomised more than they expect.
prefix=()
[[ $kind != *tsan ]] || ! setarch -R true 2>/dev/null || prefix=(setarch -R)

report=/tmp/report.json
# Those cases that are named behind an @, or all, up to the first one that fails: what comes after that, often
# waiting for limits, would say nothing new. What a program leaves behind may keep its output open for longer
# than the program has time.
run_program() { # PROGRAM[@CASE...]
    local line program failed=''
    [[ $1 != *@* ]] || export LD_PRELOAD=$PWD/build/lib/only_cases.so UNIT_CASES=${1#*@}
    exec 7< <(exec timeout -k 2 "$program_limit" stdbuf -oL "build/bin/${1%%@*}" 2>&1)
    unset LD_PRELOAD UNIT_CASES
    program=$!
    while IFS= read -r -t "$((program_limit + 5))" -u 7 line; do
        printf '%s\n' "$line"
        if [[ $line == *...FAILED* || $line == *' had failures:' ]]; then # CUnit's verbose and normal mode
            failed=1
            kill "$program"
            break
        fi
    done
    exec 7<&-
    wait "$program" && [ -z "$failed" ]
}

run_test() { # TEST, of ctest's, which is no conformance test
    if [[ $kind == *unit ]]; then
        run_program "${1#unit.}"
    else # which knows each one's environment
        ctest --test-dir build -R "^${1//./[.]}\$" --no-tests=error --timeout "$program_limit" --output-on-failure
    fi
}

if [[ $kind == *unit || $kind == *fake ]]; then
    # As the runner's report has it: a line for each test.
    for test in "${tests[@]}"; do
        run_test "$test" >>/tmp/log 2>&1 && status=passed || status=failed
        printf '    {"test": "%s", "requirements": [], "status": "%s", "reason": ""}\n' \
            "${test%%@*}" "$status" >>"$report"
    done
    echo '  "summary": {}' >>"$report"
else
    "${prefix[@]}" build/bin/symmem-conformance --backend "$backend" --ranks "$ranks" --rank-mode "$mode" \
        --filter "$filter" --timeout "$limit" --seed 1 --no-large --format json \
        --output "$report" >/tmp/log 2>&1
fi
echo "@exit $?"
grep -qs 'WARNING: ThreadSanitizer' /tmp/log "$report" && echo "@race"
echo "@report"
cat "$report"
echo "@end"
tail -c 20000 /tmp/log
