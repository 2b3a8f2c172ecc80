#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# check_report.sh SYMMEM_REPORT RUNNER_SELFCHECK: pages made from runs that pass, fail and skip, and
# from files that are broken in every way. Properties of the page are checked, not its bytes.
set -u
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd) || exit 1
report=${1:?usage: check_report.sh SYMMEM_REPORT RUNNER_SELFCHECK}
runner=${2:?usage: check_report.sh SYMMEM_REPORT RUNNER_SELFCHECK}
# shellcheck source=tests/report/checks.sh
. "$here/checks.sh"
unset SYMMEM_TIMEOUT_SCALE
spec=$here/../conformance/selfcheck/SPEC.md
page=$work/page.html
cd "$work" || exit 1

make_run() { # NAME RUNNER_OPTIONS...
    local name=$1
    shift
    timeout -k 5 60 "$runner" --backend fake --format json --output "$work/$name.json" "$@" \
        >/dev/null 2>&1 </dev/null
}
make_run good --filter 'good.passes,kit.try*'
make_run skipping --filter 'good.skipped'
make_run failing --filter 'good.passes,bad.fails,bad.any_bytes'
make_run error --filter 'bad.is_killed'
make_run unresolved --filter 'good.passes,bad.lacks_memory'
make_run unplanned --filter 'good.many_ranks'
make_run part --filter 'good.passes,good.many_ranks,good.skipped'

# The states of a requirement's row, one a run: "passed skipped".
states() { # ID
    grep "^<tbody class=\"req\"[^>]* id=\"$1\">.*</tr>$" "$page" |
        grep -oE '<td class="s [a-z ]+"' | sed 's/<td class="s //; s/"//' | paste -sd ,
}
# The same of its cells in the columns of backends, as words: "held|not run".
sums() { # ID
    grep "^<tbody class=\"req\"[^>]* id=\"$1\">.*</tr>$" "$page" |
        grep -oE '<td class="sum [^>]*>([^<]|<a[^>]*>|</a>|<small[^>]*>|</small>)*' | sed 's/<[^>]*>//g' | paste -sd '|'
}
make_page() { # STATUS FILE...
    local wanted=$1
    shift
    rm -f "$page"
    expect_status "$wanted" "$report" --spec "$spec" --output "$page" "$@"
    is_html "$page"
}

# --- a run in another format is what the runner itself writes -----------------------------------------
for part in '' '--part 2/3'; do
    # shellcheck disable=SC2086 # two words or none
    make_run all $part --report "tap=$work/all.tap" --report "junit=$work/all.junit" \
        --filter 'good.*,kit.try*,bad.fails*,bad.any_bytes,bad.crashes,bad.lacks_memory' --seed 3
    for format in json tap junit; do
        expect_status 0 "$report" --spec "$spec" --format "$format" --output "$work/again" all.json
        cmp "all.$format" again || fail "another $format is made of all.json, with '$part'"
    done
done
expect_status 2 "$report" --spec "$spec" --format tap good.json failing.json
has err 'tap is of one run, not of 2'
expect_status 2 "$report" --spec "$spec" --format text good.json
has err 'no format text'

# --- what the runs said -----------------------------------------------------------------------------
make_page 0 good.json skipping.json failing.json error.json unresolved.json unplanned.json part.json
is "SM-SELF-01" "$(states SM-SELF-01)" \
    'passed part,skipped,passed part,norun,passed part,planned,passed part'
# Its tests were skipped in one run: that must not look like a pass.
is "SM-SELF-02" "$(states SM-SELF-02)" 'norun,skipped,failed,error,unresolved,norun,skipped'
is "SM-SELF-04" "$(states SM-SELF-04)" 'passed,norun,norun,norun,norun,norun,norun'
has_not "$page" SM-SELF-03 # withdrawn
has "$page" 'A good case MUST pass, whatever &lt;characters&gt; &amp; &quot;signs&quot;'
has "$page" '<b>2 of 3</b><span>requirements held wherever'
has "$page" '<b>1</b><span>requirements violated'
has "$page" 'a message with &lt;&amp;&quot;'
has "$page" 'needs capability MULTICAST'
has "$page" 'needs 1024 ranks'
is "failures told" "$(grep -c '<article class="bad"' "$page")" 4
is "runs" "$(grep -c '<tr id="run-' "$page")" 7
for state in passed failed error unresolved skipped 'not planned' 'not run'; do
    grep -qE "<td class=\"s [a-z ]+\">$state" "$page" || fail "no cell says '$state' in words"
done

# As many cells as columns.
columns() { grep -oE "$1" | wc -l; }
is "columns of the runs" \
    "$(sed -n '/class="runs" /,/<\/thead>/p' "$page" | columns '<th (rowspan="2" )?scope="col"')" \
    "$(grep '^<tr id="run-A">' "$page" | columns '<t[dh][ >]')"
is "columns of the requirements" \
    "$(sed -n '/class="matrix" /,/<\/thead>/p' "$page" | columns '<th scope="col"')" \
    "$(grep ' id="SM-SELF-01">' "$page" | columns '<t[dh][ >]')"

# A run's line and its column tell from which file it is, below the root, and of which commit.
mkdir -p below/logs
cp good.json below/logs/fresh.json
sed 's/"commit": "[^"]*"/"commit": "0123456789abcdef"/' good.json >below/recorded.json
make_page 0 --root "$work/below" "$work/below/recorded.json" "$work/below/logs/fresh.json"
grep -q '^<tr id="run-A">.*<small>recorded.json</small>' "$page" || fail "run A does not name its file"
grep -q '^<tr id="run-B">.*<small>logs/fresh.json</small>' "$page" || fail "run B does not name its file"
has "$page" '<th scope="col" class="run" title="recorded.json">'
has "$page" 'processes<br>0123456</small></th>'
has_not "$page" "$work"

# A run that was cut short says so.
has_not "$page" 'cut short'
sed 's/"planned": [0-9]*/"planned": 9/' failing.json >short.json
make_page 0 short.json
has "$page" 'cut short: 6 planned cases did not run'

# A run with other limits says so, and one that did not record them is named.
make_page 0 good.json
has_not "$page" 'limits x'
has_not "$page" 'did not record'
sed 's/"timeout_scale": 1,/"timeout_scale": 3,/' good.json >slow.json
sed '/"timeout_scale"/d' good.json >silent.json
make_page 0 good.json slow.json silent.json
row_of() { # LETTER
    grep "^<tr id=\"run-$1\">" "$page"
}
is "runs with other limits" "$(grep -c '^<tr id="run-.*limits x ' "$page")" 1
row_of B >row
has row '<b class="limits">limits x 3</b>'
is "columns with other limits" "$(grep -o '<th [^>]*class="run"' "$page" | wc -l) $(
    grep -o 'class="limits">limits x 3</b></th>' "$page" | wc -l)" '3 1'
has "$page" 'Run C did not record whether its time limits were stretched'

# What it ran on, where the backend said so.
sed 's/"description": ""/"description": "built with 1", "runs_on": "libx 2.1 \& more"/' good.json >knows.json
make_page 0 knows.json
has "$page" '<small>built with 1</small><br><small>on libx 2.1 &amp; more</small>'

# Nothing was run: nothing looks passed.
make_page 0
is "SM-SELF-01 without runs" "$(states SM-SELF-01)" ''
has "$page" '<b>0 of 3</b>'
make_page 0 skipping.json
has "$page" '<b>0 of 3</b>'
is "SM-SELF-02 of a run that skipped" "$(states SM-SELF-02)" skipped
has "$page" 'None: no case failed'

# The same file twice is one run; a run of another wording says so.
make_page 0 good.json "$work/good.json"
is "runs" "$(grep -c '<tr id="run-' "$page")" 1
has_not "$page" '<small class="stale">'
sed 's/\("SM-SELF-04": "\)[0-9a-f]*/\10123456789abcdef/' good.json >reworded.json
make_page 0 reworded.json
is "cells of another wording" "$(grep -c '<small class="stale">other wording' "$page")" 1
# It is counted apart, of the run, of its chapter and of the page.
counts() { # LETTER: held, other wording, violated, untested
    row_of "$1" | grep -oE '<td class="n[a-z ]*">[0-9]+' | sed 's/.*>//' | head -n 4 | paste -sd ' '
}
is "counts of another wording" "$(counts A)" '1 1 0 1'
has "$page" '<td class="s">1 of 3 <small class="stale">1 in other wording</small></td>'
has "$page" '<b>1 of 3</b><span>requirements held wherever'
has "$page" '<b>1</b><span>requirements held in another wording only'
grep -q '<tbody class="req" data-kind="reworded" id="SM-SELF-04">' "$page" || fail "SM-SELF-04 is not reworded"
make_page 0 reworded.json good.json
has_not "$page" 'held in another wording only</span>'
is "counts of another wording" "$(counts A)" '1 1 0 1'
is "counts of this wording" "$(counts B)" '2 0 0 1'
grep -q '<tbody class="req" data-kind="held" id="SM-SELF-04">' "$page" || fail "SM-SELF-04 is not held"

# --- a column for each backend ------------------------------------------------------------------------
make_page 0 good.json
has_not "$page" '<td class="sum' # one run says it all
as() { # BACKEND NAME: the run as if it were of that backend
    sed "s/\"backend\": \"fake\"/\"backend\": \"$1\"/" "$2.json" >"$1-$2.json"
}
as delta unresolved
as gamma unplanned
as beta reworded
as beta skipping
as alpha reworded
as alpha good
as alpha failing
as alpha skipping
make_page 0 delta-unresolved.json gamma-unplanned.json beta-reworded.json beta-skipping.json \
    alpha-reworded.json alpha-good.json alpha-failing.json alpha-skipping.json
is "the backends' order" "$(grep -oE '<th scope="col" class="sum"><b>[a-z]+' "$page" | sed 's/.*>//' | paste -sd ' ')" \
    'alpha beta delta gamma'
grep -q '^<th scope="col" class="sum"><b>alpha</b>.*<small>1 of 3</small>.*<a href="#run-E">E</a>' "$page" ||
    fail "the head of alpha does not say how much it held, in which runs"
is "sums of SM-SELF-01" "$(sums SM-SELF-01)" 'in part 1 of 3|in part 1 of 3|in part 1 of 3|not planned'
is "sums of SM-SELF-02" "$(sums SM-SELF-02)" 'violated|skipped|unresolved|not run'
is "sums of SM-SELF-04" "$(sums SM-SELF-04)" 'held|other wording|not run|not run'
grep ' id="SM-SELF-02">' "$page" >row
has row '<a href="#failures">violated</a>'
has row 'title="E: not run; F: not run; G: failed; H: skipped"'
grep ' id="SM-SELF-04">' "$page" >row
has row 'title="E: passed, other wording; F: passed; G: not run; H: not run"'
is "columns with backends" \
    "$(sed -n '/class="matrix" /,/<\/thead>/p' "$page" | columns '<th scope="col"')" \
    "$(grep ' id="SM-SELF-01">' "$page" | columns '<t[dh][ >]')"
is "columns of a test" \
    "$(sed -n '/class="matrix" /,/<\/thead>/p' "$page" | columns '<th scope="col"')" \
    "$(grep -m 1 '^<tr class="test">' "$page" | columns '<t[dh][ >]')"

# --- tests that are no more ---------------------------------------------------------------------------
# A whole run does not lack what only older runs know: it was taken away or has another name. A run of some
# cases, one that was cut short and an older one may just not have run it.
run_at() { # YEAR FILTER PLANNED NAME OF: a run as if it were of that year
    sed -E "s/\"started\": \"[0-9]*/\"started\": \"$1/; s/\"filter\": \"[^\"]*/\"filter\": \"$2/
        s/\"planned\": [0-9]*/\"planned\": $3/" "$5.json" >"$4.json"
}
run_at 2001 '*' 2 early part
planned=$(sed -n 's/.*"planned": \([0-9]*\).*/\1/p' good.json)
run_at 2002 '*' "$planned" whole good
run_at 2002 'good*' "$planned" some good
run_at 2002 '*' 99 stopped good
run_at 2000 '*' "$planned" before good
make_page 0 early.json whole.json some.json stopped.json before.json
is "SM-SELF-01 with tests of old" "$(states SM-SELF-01)" \
    'passed part,passed,passed part,passed part,passed part'
is "sums with tests of old" "$(sums SM-SELF-01)" held

# --- mutants, defects, lines --------------------------------------------------------------------------
cat >mutants.json <<'JSON'
{"commit": "abc", "mutants": [
 {"name": "one", "kind": "vtable", "museum": ["A1", "B2"], "ranks": 4, "mode": "process",
  "expected": ["good.passes"], "killed_by": ["good.passes"], "status": "killed", "seconds": 1.5,
  "description": "Breaks <this>."},
 {"name": "two", "kind": "patch", "museum": [], "ranks": 2, "mode": "thread", "expected": [],
  "killed_by": [], "status": "survived", "seconds": 2, "description": ""},
 {"name": "three", "kind": "patch", "museum": [], "ranks": 2, "mode": "thread", "expected": [],
  "killed_by": [], "status": "error", "seconds": 2, "description": ""}], "summary": {}}
JSON
printf '# id\tdefect\tstatus\ttests\tmutants\treason\nA1\ta <wait>\tcovered\tt\tone\t\n' >museum.tsv
printf 'A2\tb\tnot-expressible\t\t\tneeds a GPU\nB1\tc\topen\t\t\t\n' >>museum.tsv
cat >lines.info <<INFO
TN:
SF:$work/core/a.c
FNF:2
FNH:1
BRF:10
BRH:5
DA:1,1
LF:100
LH:90
end_of_record
SF:$work/core/b.c
LF:100
LH:100
end_of_record
INFO
make_page 0 good.json mutants.json museum.tsv lines.info
has "$page" '33.3% <small>1 of 3</small>'
has "$page" 'Breaks &lt;this&gt;.'
has "$page" '<td class="s failed">survived</td>'
has "$page" 'a &lt;wait&gt;'
has "$page" '<td class="s planned">not-expressible</td>'
has "$page" '<td class="s failed">open</td>'
has "$page" '<code>core/</code>'
has "$page" '<code>core/a.c</code>'
has "$page" '95.0% <small>190 of 200</small>'

# --- files that cannot be used: said, named on the page, and the rest is there ------------------------
refuses() { # TEXT FILE
    make_page 1 good.json "$2"
    has "$work/err" "$1"
    grep -qF 'Left out: ' "$page" || fail "the page does not name $2"
    is "runs beside $2" "$(grep -c '<tr id="run-' "$page")" 1
    is "mutants beside $2" "$(grep -c 'id="mutants"' "$page")" 0
}
head -c 1000 failing.json >cut.json
refuses 'cut.json: not valid JSON from line ' cut.json
: >empty.json
refuses 'empty.json: empty' empty.json
refuses 'nowhere.json: No such file' nowhere.json
mkdir folder
refuses 'folder: a folder' folder
echo '{"something": 1}' >other.json
refuses 'neither a run' other.json
echo '[1, 2]' >list.json
refuses 'neither a run' list.json
echo 'hello' >text.txt
refuses 'neither JSON' text.txt
sed 's/"status": "passed"/"status": "fine"/' good.json >status.json
refuses "unknown status 'fine'" status.json
echo '{"results": 7, "backend": "b", "ranks": 1, "rank_mode": "process"}' >number.json
refuses "no array" number.json
echo '{"results": []}' >anonymous.json
refuses 'without backend' anonymous.json
echo '{"backend": "b", "ranks": 1, "rank_mode": "process", "results": [{"status": "passed"}]}' >noname.json
refuses 'result 1 has no test' noname.json
sed 's/"format": 1,/"format": 2,/' good.json >later.json
refuses 'results in format 2, where this program knows 1' later.json
{ cat good.json; echo '}'; } >behind.json
refuses 'not valid JSON' behind.json
printf '{"results": \0}' >zero.json
refuses 'byte 13 is 0' zero.json
{ head -c 100000 /dev/zero | tr '\0' '['; } >deep.json
refuses 'not valid JSON' deep.json
echo '{"mutants": [{"name": "m", "status": "killed"}, {"name": "n", "status": "dead"}]}' >mutant.json
refuses "unknown status 'dead'" mutant.json
printf 'SF:a.c\nLF:many\nend_of_record\n' >many.info
refuses 'no count' many.info
printf 'SF:a.c\nLF:1\nLH:2\nend_of_record\n' >more.info
refuses 'without sense' more.info
printf 'SF:a.c\nLF:1\n' >cut.info
refuses 'cut short' cut.info
printf '# id\nA1\td\tperhaps\n' >perhaps.tsv
refuses 'status that is known' perhaps.tsv

# Cut and damaged anywhere: an answer, never a crash.
size=$(wc -c <failing.json)
for ((at = 1; at < size; at += size / 40)); do
    { head -c "$at" failing.json; printf '\377'; tail -c +$((at + 2)) failing.json; } >damaged.json
    head -c "$at" failing.json >cut.json
    "$report" --spec "$spec" --output "$page" damaged.json cut.json 2>/dev/null
    status=$?
    [ "$status" -le 1 ] || fail "exit status $status with a file damaged at byte $at"
done

# --- text from outside is text --------------------------------------------------------------------------
sed 's/"backend": "fake"/"backend": "<script>alert(1)<\/script>\&\\"\\u0001"/' good.json >script.json
make_page 0 script.json
has_not "$page" '<script>alert'
has "$page" '&lt;script&gt;alert(1)&lt;/script&gt;&amp;&quot;?'

# --- the command line -------------------------------------------------------------------------------------
expect_status 2 "$report" good.json
expect_status 2 "$report" --frobnicate
# Installed, it finds the specification that was installed with it.
mkdir -p "$work/installed/bin" "$work/installed/share/doc/symmem"
cp "$report" "$work/installed/bin/" && cp "$spec" "$work/installed/share/doc/symmem/"
expect_status 0 "$work/installed/bin/$(basename -- "$report")" good.json
has "$work/out" 'SM-SELF-02'
expect_status 2 "$report" --spec "$spec" --output /nowhere/page good.json
expect_status 0 "$report" --help
# What is read is not written over.
cp good.json kept.json
expect_status 2 "$report" --spec "$spec" --output kept.json good.json ./kept.json
has "$work/err" 'kept.json: is read, and would be written over'
cmp -s good.json kept.json || fail "results were written over"
expect_status 1 "$report" --spec /nowhere/SPEC.md --output "$page" good.json
echo 'no requirement' >SPEC.md
expect_status 1 "$report" --spec SPEC.md --output "$page" good.json
has "$work/err" 'no requirement in it'
expect_status 0 "$report" --spec "$spec" --title 'a <title>' good.json
has "$work/out" '<h1>a &lt;title&gt;</h1>'
conclude
