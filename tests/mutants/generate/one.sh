#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# one.sh PLAN: makes one mutant and runs the tests that execute its line, until one fails. Runs inside, in
# /mnt/tree; build/plans/PLAN has "mutant" (a line of the generator's) and, by the kind of run, the tests in
# the order in which they are to be run, each behind the seconds that it took without a mutant. The last line
# is "@ VERDICT BY RUN TEST REMARK", separated by tabs.
set -u
export SYMMEM_PRIVATE_SHM=own # a runner without rights could not make one
slower=${SYMMEM_MUTANT_SLOWER:-6} program_limit=60 log=/tmp/log report=/tmp/report.json

verdict() { # VERDICT BY RUN TEST REMARK
    printf '@\t%s\t%s\t%s\t%s\t%s\n' "$@"
    exit 0
}

# Objects whose source has the file: their names in the build.
objects() {
    if [[ $file == *.c ]]; then
        (cd build && ls -d CMakeFiles/symmem_{core,shm_objects}.dir/"$file.o" 2>/dev/null)
    else
        ninja -C build -t deps 2>/dev/null | awk -v name="/src/$file" '/^[^ ].*: #deps/ { object = $1; sub(/:$/, "", object) }
            $1 ~ /^\// && substr($1, length($1) - length(name) + 1) == name { print object }' |
            grep -E '^CMakeFiles/symmem_(core|shm_objects)[.]dir/' | sort -u
    fi
}

# With -O2: the same machine code is the same program.
compile() { # OBJECT OUTPUT
    local command
    command=$(ninja -C build -t commands "$1" 2>/dev/null | tail -n 1 | sed -E 's/ -MD -MT [^ ]+ -MF [^ ]+//')
    [[ $command == *" -o $1 "* ]] || return 1
    command=${command//"-o $1"/-o "$2"}
    (cd build && eval "$command -O2 -g0 -w") >"$log" 2>&1
}

if [ "$1" = --reference ]; then # the unmutated objects, to compare with
    file=$2
    for object in $(objects); do
        mkdir -p "build/ref/${object%/*}" && compile "$object" "$PWD/build/ref/$object" || exit 1
    done
    exit 0
fi

# Up to the first case that fails. What a program leaves behind may keep its output open for longer than it
# has time.
run_program() { # PROGRAM
    local line program failed=''
    exec 7< <(exec timeout -k 2 "$program_limit" stdbuf -oL "build/bin/$1" 2>&1)
    program=$!
    failed_case=$1
    while IFS= read -r -t "$((program_limit + 5))" -u 7 line; do
        if [[ $line == *...FAILED* || $line == *' had failures:' ]]; then # CUnit's verbose and normal mode
            failed=1
            failed_case=$1@$(sed -E 's/^ *Test: //; s/ *[.]{3}FAILED.*//' <<<"$line")
            kill "$program"
            break
        fi
    done
    exec 7<&-
    wait "$program" && [ -z "$failed" ]
}

# Runtimes of common compilers do not start where addresses are randomised more than they expect.
prefix=()
[ -z "${UNLIMITED_ADDRESSES:-}" ] || ! setarch -R true 2>/dev/null || prefix=(setarch -R)
cases_run=0

# False: failed_case does not pass, or the runner itself gives up.
run_cases() { # RUN CASES, separated by commas, SECONDS for each
    local status
    rm -f "$report"
    "${prefix[@]}" build/bin/symmem-conformance --backend shm --ranks "${1%-*}" --rank-mode "${1#*-}" --filter "$2" \
        --timeout "$3" --stop-after 1 --jobs 2 --seed 1 --no-large --format json --output "$report" >"$log" 2>&1
    status=$?
    failed_case=$(sed -nE 's/^    \{"test": "([^"]*)", .*"status": "(failed|error)".*/\1/p' "$report" 2>/dev/null | head -n 1)
    [ -z "$failed_case" ] || return 1
    failed_case="(runner: exit status $status)"
    [ "$status" -ne 3 ] && grep -qs '"summary"' "$report"
}

if [ "$1" = --passes ]; then # RUN TEST SECONDS: without a mutant
    program_limit=$4
    case $2 in
    unit) run_program "$3" || run_program "$3" || exit 1 ;;
    *) run_cases "$2" "$3" "$4" || run_cases "$2" "$3" "$4" || exit 1 ;;
    esac
    exit 0
fi

plan=build/plans/$1
IFS=$'\t' read -r _ _ file _ _ start end _ replacement <"$plan/mutant"
# What is removed leaves its line breaks, so that no other line gets another number.
breaks=$(head -c "$end" "src/$file" | tail -c +$((start + 1)) | tr -cd '\n' | wc -l)
added=$(printf '%b' "$replacement" | tr -cd '\n' | wc -l)
{
    head -c "$start" "src/$file"
    printf '%b' "$replacement"
    for ((i = added; i < breaks; i++)); do echo; done
    tail -c +$((end + 1)) "src/$file"
} >/tmp/mutated
cat /tmp/mutated >"src/$file" || verdict error - - - "the file cannot be changed"

is_same() {
    local object
    for object in $(objects); do
        compile "$object" /tmp/object.o || return 1
        cmp -s /tmp/object.o "build/ref/$object" || return 1
    done
}
# An order that this machine's code does not show is an order all the same.
[ -n "${ONLY_RACES:-}" ] || ! is_same || verdict equivalent proof - - "the same machine code"
ninja -C build symmem symmem_backend_shm >"$log" 2>&1 || verdict uncompilable - - - -

# --- the suite --------------------------------------------------------------------------------------

# A case that failed must fail once more: a machine that is late may fail it without any mutant.
confirm() { # RUN CASE SECONDS
    local try
    [ -z "${ONLY_RACES:-}" ] || grep -qs 'WARNING: ThreadSanitizer' "$log" "$report" || return 1
    for try in 1 2 3; do
        run_cases "$1" "$2" "$3" || { remark=$([ "$try" -eq 1 ] || echo "not each time"); return 0; }
    done
    return 1
}

run_suite() { # RUN
    local run=$1 at=0 size=8 count list killer limit
    local -a cases
    [ -s "$plan/$run" ] || return 0
    mapfile -t cases < <(cut -f 2 "$plan/$run")
    while [ "$at" -lt "${#cases[@]}" ]; do
        list=$(IFS=,; echo "${cases[*]:at:size}")
        count=$((${#cases[@]} - at < size ? ${#cases[@]} - at : size))
        cases_run=$((cases_run + count))
        limit=$(sed -n "$((at + 1)),$((at + count))s/[.].*//p" "$plan/$run" | sort -n | tail -n 1)
        limit=$((8 + slower * (limit + 1)))
        if ! run_cases "$run" "$list" "$limit"; then
            killer=$failed_case
            [[ $killer == '('* ]] || list=$killer
            ! confirm "$run" "$list" "$limit" || verdict killed suite "$run" "$killer" "${remark:--}"
            # By chance, so it is left out and the same others begin again.
            if [[ $killer != '('* ]]; then
                mapfile -t cases < <(printf '%s\n' "${cases[@]}" | grep -vxF "$killer")
                continue
            fi
        fi
        at=$((at + size)) size=$((size * 5))
    done
}

# What so many cases with processes let live is hardly killed by the same cases with threads.
many=40
for run in 4-process 2-thread 2-process 3-process 5-process; do
    if [ "$run" = 2-thread ]; then
        [ -n "${ONLY_RACES:-}" ] || [ "$cases_run" -le "$many" ] || continue
    elif [ -n "${ONLY_RACES:-}" ]; then
        continue
    fi
    run_suite "$run"
done

# --- unit tests -------------------------------------------------------------------------------------

programs=0
if [ -z "${ONLY_RACES:-}" ] && [ -s "$plan/unit" ]; then
    while read -r seconds program; do
        program_limit=$((30 + slower * ${seconds%.*}))
        programs=$((programs + 1))
        # What the mutant left of the product has been built, so this one should be, too.
        ninja -C build "$program" >"$log" 2>&1 ||
            verdict error - unit "$program" "the unit test does not build: $(grep -m 1 -iE 'error|unknown' "$log" | tr '\t' ' ')"
        run_program "$program" || run_program "$program" || verdict killed unit unit "$failed_case" -
    done <"$plan/unit"
fi
verdict survived - - - "$cases_run case runs, $programs unit programs"
