#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# calls_marked.sh: who takes part in a call of the public headers must be said: the comment above it,
# the line that opens its section or the header's first comment has the word local, collective,
# one-sided, or names the calls as queries or stream operations of a part so marked.
set -u
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd) || exit 1
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
        all = comment " " section " " head
        if (all !~ /local|collective|one-sided/) {
            print FILENAME ":" FNR ": nothing says who takes part: " $0
            bad++
        }
        calls++
    }
    END {
        print calls + 0 " calls"
        exit bad > 0 || calls < 50
    }' "$root"/core/include/symmem/{context,group,handle,memory,store,stream,view,status}.h \
    "$root"/core/include/symmem/ops{,_matmul,_move,_multimem,_reduce}.h
