#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# arguments.sh BUILD_DIR [TABLE]: checks the table of arguments against the public headers and the
# suite. Each argument of each function has a row and no row is of anything else; each names cases that
# exist and whose file, or a header that it includes, calls the function; where there is no invalid
# value the remark says why. Exit status 0 if all of that holds, 1 otherwise.
set -u
export LC_ALL=C
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd) || exit 1
build=$(cd -- "${1:?usage: coverage/arguments.sh BUILD_DIR [TABLE]}" && pwd) || exit 1
table=${2:-$root/coverage/arguments.tsv}
work=$(mktemp -d) || exit 1
trap 'rm -rf -- "$work"' EXIT

# --- what the headers declare: function, tab, argument (- if there is none) --------------------------

# A declaration begins with SYMMEM_API in the first column and ends with a semicolon. Function pointers
# apart, whose name stands in parentheses, an argument's name is its last word.
declarations() { # HEADER...
    sed -E 's@//.*@@' "$@" | tr '\n' ' ' | sed -E 's@/\*([^*]|\*+[^*/])*\*+/@ @g' |
        grep -oE 'SYMMEM_API [^;{}]*;' | awk '{
            sub(/^SYMMEM_API +(SYMMEM_CHECKED +)?/, "")
            start = index($0, "(")
            head = substr($0, 1, start - 1)
            list = substr($0, start + 1)
            sub(/\) *; *$/, "", list)
            count = split(head, words, /[ *]+/)
            name = words[count] == "" ? words[count - 1] : words[count]
            # Commas inside parentheses part no arguments.
            depth = 0; argument = ""; number = 0
            for (i = 1; i <= length(list) + 1; i++) {
                letter = i > length(list) ? "," : substr(list, i, 1)
                if (letter == "(") depth++
                if (letter == ")") depth--
                if (letter == "," && depth == 0) { arguments[++number] = argument; argument = ""; continue }
                argument = argument letter
            }
            for (i = 1; i <= number; i++) {
                argument = arguments[i]
                if (match(argument, /\(\*[a-z_0-9]+\)/))
                    argument = substr(argument, RSTART + 2, RLENGTH - 3)
                gsub(/\[[^]]*\]/, "", argument)
                gsub(/^.*[ *]|[ ]+$/, "", argument)
                if (number == 1 && argument == "void") argument = "-"
                print name "\t" argument
            }
        }'
}
headers=()
for header in "$root"/core/include/symmem/*.h; do
    [ "${header##*/}" = backend.h ] || headers+=("$header")
done
declarations "${headers[@]}" >"$work/declared"

# --- what there is to check them ---------------------------------------------------------------------

"$build/bin/symmem-conformance" --list | cut -f 1 >"$work/cases" || exit 1
ctest --test-dir "$build" -N | sed -n 's/^ *Test *#[0-9]*: unit\.//p' >"$work/units"

# What the files of tests call, what they include from beside them, and the names that they quote: among
# them those of their cases, whole or after the point.
(cd "$root/tests" && {
    grep -oHE '\bsymmem_[a-z0-9_]+[(,]' conformance/*_help.h conformance/test_*.c |
        sed -E 's/[(,]$//; s/:/\tcalls\t/'
    grep -roHE --include='test_*.c' '\bsymmem_[a-z0-9_]+[(,]' unit |
        sed -E 's/[(,]$//; s/:/\tcalls\t/; s|^unit/.*/|unit/|'
    grep -oHE '^#include "[a-z_]+_help\.h"' conformance/test_*.c |
        sed -E 's/:#include "/\tincludes\tconformance\//; s/"$//'
    grep -oHE '"[a-z_0-9.]+"' conformance/test_*.c | sed -E 's/:"/\tquotes\t/; s/"$//'
}) | sort -u >"$work/files"

awk -F'\t' '
    function problem(text) { print "arguments: " text; bad++ }
    # Whether a file in which the case may be calls the function, or a header that it includes.
    function tested(test, name,    last, places, place, count, i, k) {
        last = test
        sub(/^[^.]*[.]/, "", last)
        place = test ~ /^unit:/ ? "unit/" substr(test, 6) ".c" : files[test] " " files[last]
        count = split(place, places, / +/)
        for (i = 1; i <= count; i++) {
            if ((places[i], name) in calls) return 1
            for (k = 1; k <= includes[places[i]]; k++)
                if ((include[places[i], k], name) in calls) return 1
        }
        return 0
    }
    FILENAME == declared_file { declared[$1, $2] = 1; functions[$1] = 1; next }
    FILENAME == cases_file { is_case[$1] = 1; next }
    FILENAME == units_file { is_case["unit:" $1] = 1; next }
    FILENAME == files_file {
        if ($2 == "calls") calls[$1, $3] = 1
        if ($2 == "includes") { include[$1, ++includes[$1]] = $3 }
        if ($2 == "quotes") files[$3] = files[$3] " " $1
        next
    }
    /^#/ { next }
    {
        at = $1 "(" $2 ")"
        if (NF != 6) problem(at ": " NF " fields, not 6")
        if (($1, $2) in seen) problem(at " is there twice")
        seen[$1, $2] = 1
        if (!(($1, $2) in declared)) problem(at " is declared in no header")
        rows++
        if ($3 == "open" || $4 == "open") { open++; next }
        if ($3 == "" || $4 == "") problem(at ": an empty field, not -")
        if ($3 == "-" && $4 == "-") {
            if ($6 == "" || $6 == "-") problem(at ": no reason why every value is valid")
        } else {
            sides += ($3 != "-") + ($4 != "-")
            if ($5 == "-") problem(at " is checked by no case")
        }
        count = $5 == "-" ? 0 : split($5, words, / /)
        for (i = 1; i <= count; i++) {
            if (!(words[i] in is_case)) problem(at ": no case " words[i])
            else if (!tested(words[i], $1)) problem(at ": " words[i] " calls no " $1)
        }
    }
    END {
        for (key in declared)
            if (!(key in seen)) {
                split(key, part, SUBSEP)
                problem(part[1] "(" part[2] ") has no row")
            }
        for (name in functions) number++
        printf "%d functions, %d rows, %d invalid values on either side, %d open\n",
            number, rows, sides, open
        exit bad > 0 || number < 100
    }' declared_file="$work/declared" cases_file="$work/cases" units_file="$work/units" \
    files_file="$work/files" "$work/declared" "$work/cases" "$work/units" "$work/files" "$table"
