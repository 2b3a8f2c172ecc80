#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# check.sh BUILD_DIR: gathers what the programs of a coverage build have run, writes the report to
# coverage/report/, prints a table by room, and fails if a room is below its line in `rooms`.
set -u
# Room, and the least of its lines and branches that tests must reach, in percent.
rooms='core 95 85
backend_shm_emul 95 85'
build=$(cd -- "${1:?usage: coverage/check.sh BUILD_DIR}" && pwd) || exit 1
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd) || exit 1
report=$root/coverage/report
rm -rf -- "$report"
mkdir -p "$report" || exit 1

# lcov 2 has an option for what was a setting, and stops at things that 1.16 passes over. (Of the two
# names of the setting, 2.0 takes one and later versions the other.)
if lcov --version | grep -q 'version 1\.'; then
    options=(--rc lcov_branch_coverage=1)
else
    options=(--branch-coverage --ignore-errors "mismatch,inconsistent,negative,unused,empty")
fi

patterns=()
while read -r room _; do
    patterns+=("$root/$room/*")
done <<<"$rooms"

if ! { lcov -q "${options[@]}" -c -d "$build" -o "$report/all.info" &&
    lcov -q "${options[@]}" -e "$report/all.info" "${patterns[@]}" -o "$report/rooms.info"; } \
    >"$report/lcov.log" 2>&1; then
    cat "$report/lcov.log"
    exit 1
fi
[ "${options[0]}" = --branch-coverage ] || options=(--branch-coverage)
genhtml -q "${options[@]}" -p "$root" -o "$report" "$report/rooms.info" \
    >"$report/genhtml.log" 2>&1 || cat "$report/genhtml.log"

# In an .info file: SF file, LF and LH lines found and hit, BRF and BRH branches found and hit.
measure() { # ROOM -> four numbers
    awk -F: -v room="$root/$1/" '
        $1 == "SF" { inside = index(substr($0, 4), room) == 1 }
        inside && ($1 == "LF" || $1 == "LH" || $1 == "BRF" || $1 == "BRH") { sum[$1] += $2 }
        END { print sum["LH"] + 0, sum["LF"] + 0, sum["BRH"] + 0, sum["BRF"] + 0 }
    ' "$report/rooms.info"
}

result=0
printf '%-18s %23s %23s\n' room lines branches
while read -r room need_lines need_branches; do
    read -r lines_hit lines branches_hit branches <<<"$(measure "$room")"
    awk -v room="$room" -v lh="$lines_hit" -v l="$lines" -v bh="$branches_hit" -v b="$branches" \
        -v nl="$need_lines" -v nb="$need_branches" '
        function percent(hit, all) { return all ? 100 * hit / all : 0 }
        BEGIN {
            low = percent(lh, l) < nl || percent(bh, b) < nb
            printf "%-18s %6.2f%% of %5d (>=%d) %6.2f%% of %5d (>=%d)%s\n", room, percent(lh, l), l,
                nl, percent(bh, b), b, nb, low ? "  TOO LOW" : ""
            exit low
        }' || result=1
done <<<"$rooms"
if [ "$result" -ne 0 ]; then
    printf '\nfiles with lines that never ran:\n'
    awk -F: -v root="$root/" '
        $1 == "SF" { file = substr($0, 4 + length(root)); missed = "" }
        $1 == "DA" { split($2, part, ","); if (part[2] == 0) missed = missed " " part[1] }
        $1 == "end_of_record" && missed != "" { print "  " substr(file ":" missed, 1, 180) }
    ' "$report/rooms.info"
fi
printf 'report: coverage/report/index.html\n'
exit "$result"
