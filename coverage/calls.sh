#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# calls.sh [HEADERS [CASES]]: the calls of the public headers in the folder HEADERS. Who takes part must be said
# of each: the comment above it, the line that opens its section or the header's first comment has the word
# local, collective or one-sided. And each that answers a status is seen to refuse something by the suite,
# whose files are in the folder CASES: one of its statements that expect a status has the call, or the table
# of operations has it. (That each single check of an argument is seen to work is for the mutants.)
set -u
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd) || exit 1
headers=${1:-$root/core/include/symmem}
cases=${2:-$root/tests/conformance}

marked() { # HEADER...
    awk '
        FNR == 1 { head = section = comment = ""; in_head = 1; below = 0 }
        { text = tolower($0) }
        /^\/\*/ { if (below) comment = ""; below = 0 }
        /^\/\* ---/ { section = text; comment = "" }
        in_comment || /^\/\*/ {
            comment = comment " " text
            if (in_head) head = head " " text
            in_comment = !/\*\//
        }
        /^#include/ { in_head = 0 }
        /^$/ { if (!in_comment) comment = "" }
        /^SYMMEM_API/ {
            below = 1
            if (comment " " section " " head !~ /local|collective|one-sided/) {
                print FILENAME ":" FNR ": nothing says who takes part: " $0
                bad++
            }
            calls++
        }
        END {
            print calls + 0 " calls"
            exit bad > 0 || calls < 50
        }' "$@"
}

names() { grep -oE 'symmem_[a-z0-9_]+ ?\(' | sed -E 's/ ?\($//' | sort -u; }

answering() { # HEADER...: the calls that return a status
    sed -E 's@//.*@@' "$@" | tr '\n' ' ' | sed -E 's@/\*([^*]|\*+[^*/])*\*+/@ @g' |
        grep -oE 'SYMMEM_API (SYMMEM_CHECKED )?symmem_status +symmem_[a-z0-9_]+\(' | names
}

refused() {
    {
        cat "$cases"/*.[ch] | tr '\n' ' ' | grep -oE '\b(REFUSED|TK_STATUS|TK_FAILS|[A-Z]+_STATUS)\([^;]*;'
        # Rows of the table and forms of a call, each of which is refused wrong arguments.
        sed -nE 's/^ROW(_MADE)?\(\w+, (\w+),.*/symmem_\2(/p; /return symmem_/p' "$cases"/ops_table_help.h \
            "$cases"/ops_calls.h "$cases"/split_help.h
    } | names
}

files=()
for header in "$headers"/*.h; do
    # What backends fill in and get is another contract.
    [ "${header##*/}" = backend.h ] || ! grep -q '^SYMMEM_API' "$header" || files+=("$header")
done
result=0
marked "${files[@]}" || result=1
for name in $(comm -23 <(answering "${files[@]}") <(refused)); do
    echo "$name: no case sees it refuse anything"
    result=1
done
exit "$result"
