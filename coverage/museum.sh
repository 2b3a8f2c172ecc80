#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# museum.sh [--update] BUILD_DIR [TABLE]: checks the table of known defects against what is there.
# Each class has the entries that the table's head counts, each entry's tests are cases of the suite
# or tests of ctest (a star stands for any), its mutants are rows of tests/mutants/tables/*.txt and say so
# there. Prints a summary by class. Exit status 0 if all of that holds and no entry is open, 1 otherwise.
# --update writes the mutants of those rows into the table first.
set -u
export LC_ALL=C
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd) || exit 1
update=
if [ "${1:-}" = --update ]; then
    update=1
    shift
fi
build=$(cd -- "${1:?usage: coverage/museum.sh [--update] BUILD_DIR [TABLE]}" && pwd) || exit 1
table=${2:-$root/coverage/museum.tsv}
work=$(mktemp -d) || exit 1
trap 'rm -rf -- "$work"' EXIT

# What there is: the suite's cases, ctest's tests (a unit test as unit:NAME), and each mutant with
# the entries that it stands for.
"$build/bin/symmem-conformance" --list | cut -f 1 >"$work/tests" || exit 1
ctest --test-dir "$build" -N | sed -n 's/^ *Test *#[0-9]*: //p' | sed 's/^unit\./unit:/' \
    >>"$work/tests"
for rows in "$root"/tests/mutants/tables/*.txt; do # without their edits
    [ ! -f "$rows" ] || sed -nE '/^[a-z]/ s/[[:space:]]*\|[[:space:]]*/\t/gp' "$rows"
done | awk -F'\t' '{ count = split($3, ids, /[ ,]+/)
        for (i = 1; i <= count; i++) print $1 "\t" ids[i] }' >"$work/mutants"

if [ -n "$update" ]; then
    awk -F'\t' -v OFS='\t' '
        NR == FNR { of[$2] = of[$2] (of[$2] == "" ? "" : " ") $1; next }
        /^#/ { print; next }
        { $5 = of[$1] == "" ? "-" : of[$1]; print }' "$work/mutants" "$table" >"$work/table" &&
        cp -- "$work/table" "$table" || exit 1
fi

awk -F'\t' '
    function problem(text) { print "museum: " text; bad++ }
    function field(text, words) { return text == "-" ? 0 : split(text, words, / /) }
    # A name, or a pattern with stars that fits some test.
    function exists(word,    name) {
        if (word !~ /\*/) return word in is_test
        gsub(/\./, "[.]", word)
        gsub(/\*/, ".*", word)
        for (name in is_test) if (name ~ "^" word "$") return 1
        return 0
    }
    FILENAME == tests_file { is_test[$1] = 1; next }
    FILENAME == mutants_file { is_mutant[$1] = 1; stands_for[$1, $2] = 1; next }
    /^# classes:/ {
        count = split($0, pairs, / /)
        for (i = 3; i <= count; i++) {
            split(pairs[i], pair, /=/)
            expected[pair[1]] = pair[2]
            order[++classes] = pair[1]
        }
        next
    }
    /^#/ { next }
    {
        id = $1
        if (NF != 6) problem(id ": " NF " fields, not 6")
        if (id in seen) problem(id " is there twice")
        seen[id] = 1
        split(id, part, /-/)
        class = part[1]
        if (!(class in expected)) problem(id " is of no class of the head")
        found[class]++
        number[class, $3]++
        if ($3 != "covered" && $3 != "not-expressible" && $3 != "open")
            problem(id ": no status " $3)
        if ($3 == "open") problem(id " is open: " $2)
        if ($2 == "") problem(id ": no defect")
        if ($3 == "covered" && $4 == "-") problem(id " is covered by no test")
        if ($3 == "not-expressible" && ($6 == "" || $6 == "-"))
            problem(id ": no reason why it is not expressible")
        count = field($4, words)
        for (i = 1; i <= count; i++) {
            if (!exists(words[i])) problem(id ": no test " words[i])
            else if (!((class, "t", words[i]) in named)) tests[class]++
            named[class, "t", words[i]] = 1
        }
        count = field($5, words)
        for (i = 1; i <= count; i++) {
            if (!(words[i] in is_mutant)) problem(id ": no mutant " words[i])
            else if (!((words[i], id) in stands_for))
                problem(id ": mutant " words[i] " does not stand for it")
            else if (!((class, "m", words[i]) in named)) mutants[class]++
            named[class, "m", words[i]] = 1
        }
    }
    END {
        for (key in stands_for) {
            split(key, part, SUBSEP)
            if (part[2] != "-" && !(part[2] in seen))
                problem("mutant " part[1] " stands for " part[2] ", which is not in the table")
        }
        format = "%-6s %8s %8s %16s %6s %6s %8s\n"
        printf format, "class", "entries", "covered", "not-expressible", "open", "tests", "mutants"
        for (i = 1; i <= classes; i++) {
            class = order[i]
            printf format, class, found[class] + 0, number[class, "covered"] + 0,
                number[class, "not-expressible"] + 0, number[class, "open"] + 0,
                tests[class] + 0, mutants[class] + 0
            all += found[class]; covered += number[class, "covered"]
            beyond += number[class, "not-expressible"]; open += number[class, "open"]
            if (found[class] + 0 != expected[class])
                problem("class " class " has " found[class] + 0 " entries, not " expected[class])
            if (number[class, "covered"] && !(tests[class] && mutants[class]))
                problem("class " class " lacks a test or a mutant")
        }
        printf format, "all", all + 0, covered + 0, beyond + 0, open + 0, "", ""
        exit bad > 0
    }' tests_file="$work/tests" mutants_file="$work/mutants" \
    "$work/tests" "$work/mutants" "$table"
