#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# museum.sh BUILD_DIR [TABLE]: known defects and what finds each. A mutant of tests/mutants stands for it and
# is killed by tests, or TABLE (museum.tsv) names tests, which must exist, or says why there is none. Prints a
# summary by class. Exit status 1 if a defect has nothing, or a mutant stands for one that is not there.
# museum.sh --table [TABLE]: a line for each on standard output, for symmem-report: id, defect, status, tests,
# mutants, reason, with tabs.
set -u
export LC_ALL=C
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd) || exit 1
build=${1:?usage: museum.sh BUILD_DIR|--table [TABLE]}
table=${2:-$root/coverage/museum.tsv}
work=$(mktemp -d) || exit 1
trap 'rm -rf -- "$work"' EXIT

# Of each mutant: name, ids, the tests that kill it. Its line has fields between bars; what it changes stands on
# lines that begin with a blank.
mutants() {
    sed -nE '/^[a-z]/ s/[[:space:]]*\|[[:space:]]*/\t/gp' "$root"/tests/mutants/tables/*.txt | cut -f 1,3,4
}

# Cases of the suite, and tests of ctest.
tests() {
    "$build/bin/symmem-conformance" --list | cut -f 1
    ctest --test-dir "$build" -N | sed -n 's/^ *Test *#[0-9]*: //p'
}

mutants >"$work/mutants"
if [ "$build" = --table ]; then
    out=table
    : >"$work/tests"
else
    out=summary
    tests >"$work/tests"
fi
awk -F'\t' -v OFS='\t' -v out="$out" '
    function problem(text) { print "museum: " text; bad++ }
    function add(list, word) { return index(" " list " ", " " word " ") ? list : list (list == "" ? "" : " ") word }
    FILENAME == tests_file { is_test[$1] = 1; next }
    FILENAME == mutants_file {
        n = split($2, ids, /[ ,]+/)
        k = split($3, killers, /[ ,]+/)
        for (i = 1; i <= n; i++) {
            mutants_of[ids[i]] = add(mutants_of[ids[i]], $1)
            for (j = 1; j <= k; j++) tests_of[ids[i]] = add(tests_of[ids[i]], killers[j])
        }
        next
    }
    /^#/ { next }
    {
        class = $1
        sub(/-.*/, "", class)
        if (!(class in entries)) order[++classes] = class
        entries[class]++
        if ($1 in seen) problem($1 " is there twice")
        seen[$1] = 1
        reason = $3 ~ /^not expressible: ./ ? substr($3, 18) : ""
        if ($3 ~ /^tests: /) {
            n = split(substr($3, 8), words, / /)
            for (i = 1; i <= n; i++) {
                tests_of[$1] = add(tests_of[$1], words[i])
                if (out == "summary" && !(words[i] in is_test)) problem($1 ": no test " words[i])
            }
        }
        status = tests_of[$1] != "" ? "covered" : reason != "" ? "not-expressible" : "open"
        number[class, status]++
        if (status == "open") problem($1 " has neither a mutant nor a test nor a reason")
        if (out == "table") print $1, $2, status, tests_of[$1], mutants_of[$1], reason
    }
    END {
        for (id in mutants_of)
            if (id != "-" && !(id in seen))
                problem("mutant " mutants_of[id] " stands for " id ", which is not in the table")
        if (out == "table") exit 0
        print "class entries covered not-expressible"
        for (i = 1; i <= classes; i++)
            printf "%-6s %6d %7d %15d\n", order[i], entries[order[i]],
                number[order[i], "covered"], number[order[i], "not-expressible"]
        exit bad > 0 || classes == 0
    }' tests_file="$work/tests" mutants_file="$work/mutants" \
    "$work/tests" "$work/mutants" "$table"
