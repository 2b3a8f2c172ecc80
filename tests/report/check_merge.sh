#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# check_merge.sh SYMMEM_REPORT RUNNER_SELFCHECK: parts of a run put together are that run; what is not all
# of one run is refused, with the reason, and nothing is written.
set -u
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd) || exit 1
report=${1:?usage: check_merge.sh SYMMEM_REPORT RUNNER_SELFCHECK}
runner=${2:?usage: check_merge.sh SYMMEM_REPORT RUNNER_SELFCHECK}
# shellcheck source=tests/report/checks.sh
. "$here/checks.sh"
unset SYMMEM_TIMEOUT_SCALE
spec=$here/../conformance/selfcheck/SPEC.md
page=$work/page.html
cd "$work" || exit 1

some='good.*,kit.*,bad.fails,bad.is_killed,bad.lacks_memory'
make_run() { # FILE RUNNER_OPTIONS...
    local file=$1
    shift
    timeout -k 5 60 "$runner" --backend fake --format json --output "$file" --seed 3 "$@" \
        >/dev/null 2>&1 </dev/null
}
make_parts() { # NAME N RUNNER_OPTIONS...: NAME1.json and so on, at once
    local name=$1 parts=$2 part
    shift 2
    for ((part = 1; part <= parts; part++)); do
        make_run "$name$part.json" --part "$part/$parts" "$@" &
    done
    wait
}
merge() { # FILE...
    rm -f merged.json
    expect_status 0 "$report" --merge merged.json "$@"
}
# What does not depend on time: each result without its seconds and what follows, and all else but the
# run's time.
timeless() { # FILE
    sed -E 's/, *"findings": .*//; s/, "seconds": [0-9.]+,/,/; /^ *"(started|seconds|parts)":/d
        /^ *"(findings|last_seen)":/d; s/\],?$//; s/,$//; /^ *$/d' "$1"
}
like() { # WHOLE: merged.json says what it says
    has "$1" '"status": "passed"'
    diff <(timeless "$1") <(timeless merged.json) >differences || {
        fail "the parts of ${1##*/} came to something else"
        head -n 10 differences
    }
}

# --- parts are the whole, in any order ------------------------------------------------------------
make_run whole.json --filter "$some"
make_parts p 3 --filter "$some"
merge p2.json p3.json p1.json
like whole.json
is "the last line" "$(tail -n 1 out)" '15 passed, 3 failed, 1 skipped'
has out 'error: bad.is_killed: rank 3: killed by signal 9'
has out 'claim: none, because profile core failed'
has merged.json '"parts": 3,'
has_not merged.json '"part":'
has_not merged.json other_parts
# Text of any bytes and long numbers stay what they are.
is "a reason" "$(grep -o '"message": "a message[^,]*' merged.json)" \
    "$(grep -o '"message": "a message[^,]*' whole.json)"
is "memory" "$(grep -o '"memory_bytes": [0-9]*,' merged.json)" \
    "$(grep -o '"memory_bytes": [0-9]*,' whole.json)"

make_run whole.json --filter 'good.*' --repeat 2 --rank-mode thread
make_parts r 4 --filter 'good.*' --repeat 2 --rank-mode thread
merge r?.json
like whole.json
# More parts than cases, and a part alone.
make_run whole.json --filter 'good.passes,good.skipped'
make_parts f 3 --filter 'good.passes,good.skipped'
merge f?.json
like whole.json
make_parts a 1 --filter 'good.passes,good.skipped'
merge a1.json
like whole.json

# The run began with the first part and took as long as the longest.
sed 's/"started": "[^"]*"/"started": "2001-02-03T04:05:06Z"/; s/^  "seconds": .*/  "seconds": 77.5,/' \
    p2.json >first.json
merge p1.json first.json p3.json
has merged.json '"started": "2001-02-03T04:05:06Z"'
has merged.json '"seconds": 77.500,'

# A part that was cut short is missed, and the rest is in order.
make_run whole.json --filter 'good.passes,bad.fails,bad.lacks_memory,kit.*'
make_parts s 2 --filter 'good.passes,bad.fails,bad.lacks_memory,kit.*' --stop-after 1
merge s1.json s2.json
left=$((12 - $(grep -c '"status"' s1.json) - $(grep -c '"status"' s2.json)))
[ "$left" -gt 5 ] || fail "--stop-after left out only $left"
has merged.json "\"errors\": $left,"
has merged.json '"planned": 12,'
has out 'profiles failed: core (1 of '

# --- the claim is of all parts ------------------------------------------------------------------------
# As if the suite had no other cases: each part alone claims nothing.
make_parts c 2 --filter 'good.*,kit.*'
sed -i -E '/"name": "core"/s/"left_out": [0-9]+, "other_parts": ([0-9]+)/"left_out": \1, "other_parts": \1/' \
    c1.json c2.json
has c1.json 'claim: none, because profile core was run in part only'
merge c1.json c2.json
has out 'profiles passed in full: core (15)'
has out 'claim: backend fake conforms to core with 4 ranks as processes on '
has merged.json '"standing": "in full", "passed": 15, "failed": 0, "undecided": 0, "left_out": 0, "claimed": true'
sed -i '/"name": "core"/s/"left_out": \([0-9]*\)/"left_out": 1\1/' c1.json c2.json
merge c1.json c2.json
has out 'claim: none, because profile core was run in part only'

# Every part had its limits stretched, and so has the whole; a claim says so.
export SYMMEM_TIMEOUT_SCALE=2.5
make_parts t 2 --filter 'good.*,kit.*'
unset SYMMEM_TIMEOUT_SCALE
sed -i -E '/"name": "core"/s/"left_out": [0-9]+, "other_parts": ([0-9]+)/"left_out": \1, "other_parts": \1/' \
    t1.json t2.json
merge t1.json t2.json
has merged.json '"timeout_scale": 2.5'
has out ', with limits x 2.5'

# --- the page -------------------------------------------------------------------------------------------
merge p1.json p2.json p3.json
expect_status 0 "$report" --spec "$spec" --output "$page" merged.json
is_html "$page"
has "$page" '<small>in 3 parts</small>' # whether at once or in turns is not known
has "$page" '<td class="n"><small>the longest took</small><br>'
expect_status 0 "$report" --spec "$spec" --output "$page" p2.json
has "$page" '<small>part 2/3 of a run</small>'
has_not "$page" 'the longest took'

# --- what is refused -------------------------------------------------------------------------------------
refuses() { # TEXT FILE...
    local text=$1
    shift
    rm -f merged.json
    expect_status 2 "$report" --merge merged.json "$@"
    grep -qF -- "$text" err || {
        fail "not said: $text"
        sed 's/^/    | /' err
    }
    [ ! -e merged.json ] || fail "written in spite of: $text"
}
changed() { # SED_EXPRESSION: odd.json, which is part 2 with that change
    sed -E "$1" p2.json >odd.json
    ! cmp -s p2.json odd.json || fail "nothing was changed by $1"
}
refuses_change() { # TEXT SED_EXPRESSION
    changed "$2"
    refuses "$1" p1.json odd.json p3.json
}
refuses 'p1.json: part 2/3 is missing' p1.json p3.json
refuses 'p2.json: part 2/3, as p2.json is' p1.json p2.json p2.json p3.json
refuses 'r1.json: part 1/4, where others are of 3 parts' p2.json r1.json
refuses 'whole.json: no part of a run' p1.json whole.json
refuses_change 'odd.json: no part of a run' 's,"part": "2/3","part": "4/3",'
refuses_change 'odd.json: no part of a run' 's,"part": "2/3","part": "2/3 ",'

refuses_change 'odd.json: backend is "other", but "fake" in p1.json' 's/"backend": "fake"/"backend": "other"/'
refuses_change 'odd.json: commit is "abc", but "' 's/"commit": "[^"]*"/"commit": "abc"/'
refuses_change 'odd.json: build is "abc", but "' 's/"build": "[^"]*"/"build": "abc"/'
refuses_change 'odd.json: another machine than in p1.json' 's/"processors": /"processors": 1/'
refuses_change 'odd.json: another specification than in p1.json' 's/("SM-SELF-04": ")./\1x/'
refuses_change 'odd.json: another capabilities than in p1.json' 's/"POOL"/"SWIM"/'
refuses_change 'odd.json: version is absent, but "' '/"version"/d'
refuses_change 'odd.json: timeout_scale is 3, but 1 in p1.json' 's/"timeout_scale": 1,/"timeout_scale": 3,/'
refuses_change 'odd.json: timeout_scale is absent, but 1 in p1.json' '/"timeout_scale"/d'
refuses_change 'odd.json: other keys than in p1.json' 's/^  "version"/  "more": 1,\n&/'
odd_run() { # TEXT RUNNER_OPTIONS...
    local text=$1
    shift
    make_run odd.json --part 2/3 "$@"
    refuses "$text" p1.json odd.json p3.json
}
odd_run 'odd.json: seed is 4, but 3 in p1.json' --filter "$some" --seed 4
odd_run 'odd.json: ranks is 2, but 4 in p1.json' --filter "$some" --ranks 2
odd_run 'odd.json: rank_mode is "thread", but "process" in p1.json' --filter "$some" --rank-mode thread
odd_run 'odd.json: filter is "kit.*", but "' --filter 'kit.*'
odd_run 'odd.json: profile is "core", but "" in p1.json' --filter "$some" --profile core
odd_run 'odd.json: repeat is 2, but 1 in p1.json' --filter "$some" --repeat 2
odd_run 'odd.json: another not_planned than in p1.json' --filter "$some" --no-large
make_parts large 2 --filter good.passes,good.prints --seed 9007199254740993
refuses 'large1.json: a seed of more than 52 bits' large1.json large2.json

refuses_change 'odd.json: a part of 20 planned cases, where the parts together have 19' \
    '/"name": "multicast"/s/"other_parts": 1/"other_parts": 2/'
refuses_change 'p1.json: a part of 19 planned cases, where the parts together have 18' \
    's/"planned": 6/"planned": 5/'
refuses_change 'there twice' 's/"test": "good.one_rank_checks"/"test": "good.passes"/'
sed '/"name": "core"/s/"other_parts": 11/"other_parts": 12/; s/"planned": 7/"planned": 6/' p1.json >few.json
sed '/"name": "core"/s/"other_parts": 12/"other_parts": 11/; s/"planned": 6/"planned": 7/' p2.json >many.json
refuses 'few.json: more results than it planned' few.json many.json p3.json
refuses_change 'odd.json: its profiles count other results than it has' \
    '/"name": "core"/s/"passed": /"passed": 1/'
refuses_change 'odd.json: its profiles count other results than it has' \
    '/"name": "core"/s/"failed": [0-9]+/"failed": 9/'
refuses_change 'odd.json: of profile core it leaves out ' \
    '/"name": "core"/s/"left_out": /"left_out": 1/'
refuses_change 'odd.json: of profile cores it leaves out' 's/"name": "core"/"name": "cores"/'
refuses_change 'odd.json: not the profiles of a run' '/"name": "pool"/d'

echo '{"mutants": []}' >mutants.json
refuses 'mutants.json: not the results of a run' p1.json mutants.json
refuses 'nowhere.json: No such file' p1.json nowhere.json
head -c 1000 p2.json >cut.json
refuses 'cut.json: not valid JSON' p1.json cut.json p3.json
expect_status 2 "$report" --merge merged.json
has err 'usage: symmem-report'
expect_status 2 "$report" --merge /nowhere/merged.json p1.json p2.json p3.json
has err '/nowhere/merged.json: No such file'
cp p1.json kept.json
expect_status 2 "$report" --merge kept.json kept.json p2.json p3.json
cmp -s p1.json kept.json || fail "a part was written over"
expect_status 2 "$report" --merge /dev/full p1.json p2.json p3.json
has err '/dev/full: could not be written'

# Damaged anywhere: an answer, never a crash.
size=$(wc -c <p2.json)
for ((at = 1; at < size; at += size / 60)); do
    { head -c "$at" p2.json; printf 7; tail -c +$((at + 2)) p2.json; } >damaged.json
    "$report" --merge merged.json p1.json damaged.json p3.json >/dev/null 2>&1
    status=$?
    [ "$status" = 0 ] || [ "$status" = 2 ] || fail "exit status $status with a byte changed at $at"
done
conclude
