#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# check_formats.sh RUNNER_SELFCHECK checks the runner's formats with their readers: JUnit XML against a
# schema, TAP with a TAP parser, all of them with messages of any bytes, the terminal's line in a terminal.
set -u
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd) || exit 1
runner=${1:?usage: check_formats.sh RUNNER_SELFCHECK}
# shellcheck source=tests/report/checks.sh
. "$here/checks.sh"
unset SYMMEM_TIMEOUT_SCALE NO_COLOR CI
export TMPDIR=$work

some='good.passes,good.skipped,bad.fails,bad.fails_status,bad.lacks_memory,bad.any_bytes,bad.crashes'
reports=()
for format in tap junit json html; do
    reports+=(--report "$format=$work/$format")
done
expect_status 1 "$runner" --backend fake --filter "$some" --seed 3 "${reports[@]}"
cp "$work/out" "$work/text"
for file in text tap junit json html; do
    is_utf8 "$work/$file"
done

# --- text: one line is one line, and nothing in a message moves the cursor ------------------------
! LC_ALL=C grep -q $'[\001-\010\013-\037\177]' "$work/text" || fail "control characters in the text"
has "$work/text" '      expected  TIMEOUT'
has "$work/text" "      got       OUT_OF_RANGE: the record's message"
has "$work/text" 'SM-SELF-02: A bad case MUST NOT pass.'
has "$work/text" 'last seen: ranks 0-3: done, checkpoint "before the check"'
has "$work/text" 'and 4 more failed checks, next: test_bad.c:'
has "$work/json" '"more": 4, "next": "test_bad.c:'
is "replay lines" "$(grep -c '^    replay: ' "$work/text")" 5

# The command that the report names does the same again.
command=$(sed -n 's/^    replay: //p' "$work/text" | grep 'bad.fails_status$')
expect_status 1 bash -c "$command"
has "$work/out" 'expected TIMEOUT, got OUT_OF_RANGE'
is "replayed cases" "$(tail -n 1 "$work/out")" '0 passed, 1 failed, 0 skipped'
# A round of a repeated run is replayed by its own seed.
expect_status 1 "$runner" --backend fake --filter bad.fails --seed 5 --repeat 2 --report "json=$work/two"
mapfile -t seeds < <(grep -o '"seed": "[0-9]*"' "$work/two")
command=$(sed -n 's/^    replay: //p' "$work/out" | tail -n 1)
expect_status 1 bash -c "$command --report json=$work/again"
is "seed of the replayed round" "$(grep -o '"seed": "[0-9]*"' "$work/again")" "${seeds[1]}"

# --- what the ranks print ---------------------------------------------------------------------------
expect_status 0 "$runner" --backend fake --filter good.prints --report "json=$work/prints"
has_not "$work/err" 'printed by a rank'
has "$work/prints" 'printed by a rank'
expect_status 0 "$runner" --backend fake --filter good.prints --verbose
has "$work/err" 'printed by a rank'
expect_status 1 "$runner" --backend fake --filter bad.prints_much --report "json=$work/much"
has "$work/out" '| the last words'
has "$work/out" '| a line of which there are too many'
has "$work/out" 'lines left out'
has "$work/much" 'bytes left out'
[ "$(wc -c <"$work/out")" -lt 20000 ] || fail "a flood of output was passed on"
[ "$(wc -c <"$work/much")" -lt 60000 ] || fail "a flood of output was kept"

# --- JUnit --------------------------------------------------------------------------------------------
if have xmllint; then
    expect_status 0 xmllint --noout --schema "$here/junit.xsd" "$work/junit"
    count() { xmllint --xpath "string(count($1))" "$work/junit"; }
    attribute() { xmllint --xpath "string(/testsuites/@$1)" "$work/junit"; }
    is "JUnit tests" "$(attribute tests)" "$(count //testcase)"
    is "JUnit failures" "$(attribute failures)" "$(count //failure)"
    is "JUnit errors" "$(attribute errors)" "$(count //error)"
    is "JUnit skipped" "$(attribute skipped)" "$(count //skipped)"
    is "JUnit failures" "$(attribute failures)" 3
    is "JUnit errors" "$(attribute errors)" 2
else
    echo "no xmllint: JUnit and HTML are not checked for form"
fi
is_html "$work/html"

# --- TAP ------------------------------------------------------------------------------------------------
is "TAP's version" "$(head -n 1 "$work/tap")" 'TAP version 14'
is "TAP's plan" "$(sed -n 2p "$work/tap")" '1..7'
is "YAML blocks" "$(grep -c '^  ---$' "$work/tap") $(grep -c '^  \.\.\.$' "$work/tap")" '5 5'
! grep -vqE '^(TAP version 14|1\.\.[0-9]+|(not )?ok [0-9]+ - .*|#.*|  .*|Bail out!.*)$' "$work/tap" ||
    fail "TAP has other lines: $(grep -vE '^(TAP|1\.\.|(not )?ok|#|  |Bail)' "$work/tap" | head -n 3)"
if perl -MTAP::Parser -e 1 2>/dev/null; then
    # Older parsers know version 13, of which this is a part.
    sed 's/^TAP version 14$/TAP version 13/' "$work/tap" >"$work/tap13"
    # shellcheck disable=SC2016
    got=$(perl -MTAP::Parser -e '
        my $parser = TAP::Parser->new({ tap => do { local $/; <STDIN> } });
        $parser->run;
        printf "planned %d run %d failed %d skipped %d errors %s", $parser->tests_planned,
            $parser->tests_run, scalar($parser->failed), scalar($parser->skipped),
            join("; ", $parser->parse_errors);' <"$work/tap13" 2>&1)
    is "what a TAP parser reads" "$got" "planned 7 run 7 failed 5 skipped 1 errors "
else
    echo "no TAP::Parser: TAP is checked only by its lines"
fi

# --- stretched limits: every format says so --------------------------------------------------------
# What "in a second" in the specification means depends on it.
has "$work/json" '"timeout_scale": 1,'
for file in text tap html; do
    has_not "$work/$file" 'limits x'
done
SYMMEM_TIMEOUT_SCALE=2.5 timeout -k 5 60 "$runner" --backend fake --filter 'good.*,kit.*' \
    "${reports[@]}" >"$work/slow" 2>&1 </dev/null
has "$work/json" '"timeout_scale": 2.5,'
has "$work/junit" '<property name="timeout_scale" value="2.5"/>'
for file in slow tap html; do
    has "$work/$file" 'limits x 2.5'
done

# --- an interrupted run says so in every format -----------------------------------------------------
timeout -k 5 60 "$runner" --backend fake --filter 'good.passes,bad.hangs,bad.any_bytes' \
    --timeout 50 "${reports[@]}" >"$work/interrupted" 2>&1 </dev/null &
interrupted=$!
# TERM once the first case is over and ranks of the second run: children of the runner, which is
# timeout's child.
children() { cat "/proc/$1/task/$1/children" 2>/dev/null; }
for ((tick = 0; tick < 300; tick++)); do
    read -r pid _ < <(children "$interrupted")
    grep -q good.passes "$work/interrupted" && [ -n "$(children "$pid")" ] && break
    sleep 0.1
done
kill -TERM "$interrupted"
wait "$interrupted"
has "$work/tap" 'Bail out!'
has "$work/junit" '1 planned cases did not run'
has "$work/json" '"errors": 2'

# --- the terminal's line -----------------------------------------------------------------------------
in_terminal() { # COMMAND: its bytes on an 80-column terminal
    TERM=${terminal:-xterm} script -qec "stty cols 80; $*" /dev/null </dev/null 2>&1
}
live=$'\r\033[K'
if have script; then
    printf -v quoted %q "$runner" # it may lie in a folder with any name
    list="$quoted --backend fake --filter good.passes,good.skipped,bad.hangs --timeout 1"
    got=$(in_terminal "$list")
    grep -qF "$live" <<<"$got" || fail "no status line on a terminal"
    grep -qF '66%' <<<"$got" || fail "no percent in the status line"
    grep -qF $'\033[31m' <<<"$got" || fail "no colors on a terminal"
    ! grep -qF 'passed     good.passes' <<<"$got" || fail "a line for a passed case on a terminal"
    list="$quoted --backend fake --filter good.passes,bad.fails"
    got=$(in_terminal "$list --verbose")
    grep -qF 'good.passes (' <<<"$got" || fail "--verbose shows no line for a passed case"
    got=$(NO_COLOR=1 in_terminal "$list")
    ! grep -qF $'\033[3' <<<"$got" || fail "colors in spite of NO_COLOR"
    grep -qF "$live" <<<"$got" || fail "NO_COLOR takes the status line away"
    got=$(terminal=dumb in_terminal "$list")
    ! grep -qF $'\033' <<<"$got" || fail "escapes on a dumb terminal"
    got=$(CI=true in_terminal "$list")
    ! grep -qF "$live" <<<"$got" || fail "a status line in CI"
    # No drawn line is wider than the terminal, or it would leave traces.
    got=$(NO_COLOR=1 in_terminal "stty cols 40; $list" | tr '\r' '\n' | sed -n 's/^\x1b\[K//p' |
        grep '%' | awk 'length > 39' | head -n 1)
    is "a status line wider than the terminal" "$got" ''
else
    echo "no script(1): nothing is checked on a terminal"
fi
conclude
