#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# check.sh BUILD_DIR: gathers what the programs of a coverage build have run, writes the report to
# coverage/report/, prints a table by room, and fails if a room is below its line in `rooms`.
set -u
# Room, and the least that tests must reach, in percent: of its lines, of its branches as gcov counts them (one for
# each jump of the machine), of its branches as clang counts them (each condition true and false), and of its MC/DC
# (each condition of a decision has been seen to decide it alone), which clang has.
rooms='core 95 85 95 90
backend_shm_emul 95 85 95 90'
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

folders=()
while read -r room _; do
    folders+=("$root/$room")
done <<<"$rooms"

by_gcov() {
    lcov -q "${options[@]}" -c -d "$build" -o "$report/all.info" &&
        lcov -q "${options[@]}" -e "$report/all.info" "${folders[@]/%//*}" -o "$report/rooms.info"
}

# Every program has the same functions as the two libraries. A process that was killed while it wrote leaves
# counts that cannot be read: they are told and passed over. The pages show each decision with its conditions.
by_clang() { # COMPILER
    local cov objects=("$build/lib/libsymmem.so" -object "$build/lib/libsymmem_backend_shm.so")
    objects+=(-instr-profile "$build/counts/all.profdata" "${folders[@]}")
    cov=$("$1" -print-prog-name=llvm-cov)
    "$("$1" -print-prog-name=llvm-profdata)" merge -sparse -failure-mode=all "$build"/counts/*.profraw \
        -o "$build/counts/all.profdata" &&
        "$cov" export -format=lcov "${objects[@]}" >"$report/rooms.info" &&
        "$cov" export -skip-functions -skip-expansions "${objects[@]}" >"$report/rooms.json" &&
        "$cov" show -format=html -show-mcdc -show-branches=count -output-dir "$report/conditions" "${objects[@]}"
}

compiler=$(sed -n 's/^CMAKE_C_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")
case $compiler in
*clang*) with=by_clang ;;
*) with=by_gcov ;;
esac
if ! "$with" "$compiler" >"$report/lcov.log" 2>&1; then
    cat "$report/lcov.log"
    exit 1
fi
[ "${options[0]}" = --branch-coverage ] || options=(--branch-coverage)
genhtml -q "${options[@]}" -p "$root" -o "$report" "$report/rooms.info" \
    >"$report/genhtml.log" 2>&1 || cat "$report/genhtml.log"

# In an .info file: SF file, LF and LH lines found and hit, BRF and BRH branches found and hit.
measure() { # ROOM -> four numbers, and two of MC/DC
    awk -F: -v room="$root/$1/" '
        $1 == "SF" { inside = index(substr($0, 4), room) == 1 }
        inside && ($1 == "LF" || $1 == "LH" || $1 == "BRF" || $1 == "BRH") { sum[$1] += $2 }
        END { print sum["LH"] + 0, sum["LF"] + 0, sum["BRH"] + 0, sum["BRF"] + 0 }
    ' "$report/rooms.info" | tr '\n' ' '
    if [ "$with" = by_clang ]; then
        jq -r --arg room "$root/$1/" '[.data[].files[] | select(.filename | startswith($room)) | .summary.mcdc]
            | "\(map(.covered) | add) \(map(.count) | add)"' "$report/rooms.json"
    fi
}

result=0
printf '%-18s %23s %23s %23s\n' room lines branches MC/DC
while read -r room need_lines by_jump by_condition need_mcdc; do
    read -r -a found <<<"$(measure "$room")"
    [ "$with" = by_clang ] || need_mcdc=-
    [ "$with" = by_clang ] && need_branches=$by_condition || need_branches=$by_jump
    awk -v room="$room" -v found="${found[*]}" -v least="$need_lines $need_branches $need_mcdc" '
        BEGIN {
            split(found, n, " ")
            split(least, need, " ")
            printf "%-18s", room
            for (i = 1; need[i] != "-" && i <= 3; i++) {
                reached = n[2 * i] ? 100 * n[2 * i - 1] / n[2 * i] : 0
                low = low || reached < need[i]
                printf " %6.2f%% of %5d (>=%d)", reached, n[2 * i], need[i]
            }
            print low ? "  TOO LOW" : ""
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
if [ "$result" -ne 0 ] && [ "$with" = by_clang ]; then
    printf '\ndecisions, by their lines, with conditions that were never seen to decide alone:\n'
    jq -r --arg root "$root/" '.data[].files[] | (.filename | ltrimstr($root)) as $file
        | [.mcdc_records[]? | select(.[-1] | all | not) | .[0]] | unique | select(length > 0)
        | "  \($file): \(map(tostring) | join(" "))"' "$report/rooms.json" | cut -c 1-180
fi
printf 'report: coverage/report/index.html%s\n' "$([ "$with" = by_gcov ] || echo ', each condition: coverage/report/conditions/index.html')"
exit "$result"
