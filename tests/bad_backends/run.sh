#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# run.sh [BUILD [KIND...]]: runs the suite on every backend of list.txt, each contained, and checks
# what the runner says, its exit status, that it is there in time, and that no process is left. The
# last line is "N passed, N failed, N skipped". Exit status: 0, 1, or 77 where nothing can be
# contained.
set -u
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd) || exit 1
# shellcheck source=tests/lib.sh
. "$here/../lib.sh"
# shellcheck source=tests/mutants/namespace.sh
. "$here/../mutants/namespace.sh"

build=$(cd -- "${1:-$root/build}" && pwd) || exit 1
shift
limit_s=20 # for a case of 3 s: the runner asks, waits, kills, and says what it saw
workers=4  # they sleep more than they work
first_lane=40

if ! reason=$(containment_works "$build"); then
    say "cannot be contained: $reason"
    exit 77
fi
work=$(mktemp -d) || exit 1
trap 'rm -rf -- "$work"' EXIT

# --- one kind --------------------------------------------------------------------------------------

complain() { printf '%s\n' "$*" >>"$complaints"; }

judge() { # KIND STATUS TEXT LOG SECONDS
    local kind=$1 wanted=$2 text=$3 log=$4 seconds=$5 status last
    status=$(sed -n 's/^@status //p' "$log")
    [ "$status" = "$wanted" ] || complain "exit status ${status:-none}, not $wanted"
    grep -qE -- "$text" "$log" || complain "no report of: $text"
    [ "$seconds" -le "$limit_s" ] || complain "$seconds s, more than $limit_s"
    ! grep '^@left' "$log" >>"$complaints" || complain "processes are left"
    last=$(sed '/^@/d' "$log" | tail -n 1)
    if [ "$wanted" -eq 1 ]; then
        [[ $last =~ $closing_pattern ]] || complain "no closing line, but: $last"
        [[ $last =~ ' 0 failed' ]] && complain "closes with: $last"
        grep -q '^claim: none' "$log" || complain "it may claim something"
    fi
    return 0
}

run_kind() { # LANE KIND STATUS FILTER TEXT
    local lane=$1 kind=$2 wanted=$3 filter=$4 text=$5 name=${2//[:\/]/_}
    local log=$work/$name.log complaints=$work/$name.complaints
    SECONDS=0
    contained 60 use "$build" "$lane" bash -c "$(<"$here/one.sh")" one.sh "$kind" "$filter" \
        >"$log" 2>&1
    judge "$kind" "$wanted" "$text" "$log" "$SECONDS"
    if [ -s "$complaints" ]; then
        printf 'FAILED  %s\n' "$kind"
        { cat "$complaints"; tail -n 25 "$log"; } | cut -c 1-200 | sed 's/^/    | /'
    else
        printf 'ok      %-30s %2d s  %s\n' "$kind" "$SECONDS" \
            "$(grep -oE -m 1 -- "$text" "$log" | cut -c 1-90)"
    fi
}

# --- all of them, every worker in a lane of its own ------------------------------------------------

read_list() {
    sed '/^#/d;/^ *$/d' "$here/list.txt" | while IFS='|' read -r kind status filter text; do
        read -r kind <<<"$kind"
        read -r status <<<"$status"
        read -r filter <<<"$filter"
        text=${text# }
        [ "$#" -eq 0 ] || [[ " $* " == *" $kind "* ]] || continue
        printf '%s\t%s\t%s\t%s\n' "$kind" "$status" "$filter" "$text"
    done
}

worker() { # NUMBER
    awk -v n="$1" -v of="$workers" 'NR % of == n' "$work/list" |
        while IFS=$'\t' read -r kind status filter text; do
            run_kind "$((first_lane + $1))" "$kind" "$status" "$filter" "$text" >"$work/$1.out"
            cat "$work/$1.out" # in one piece
        done
}

read_list "$@" >"$work/list"
# Appended: else cat copies in the kernel, where two at once write to one place.
for ((number = 0; number < workers; number++)); do
    worker "$number" &
done >>"$work/results"
wait
cat "$work/results"
count=$(wc -l <"$work/list")
good=$(grep -c '^ok ' "$work/results")
printf '%d passed, %d failed, 0 skipped\n' "$good" "$((count - good))"
[ "$count" -gt 0 ] && [ "$good" -eq "$count" ]
