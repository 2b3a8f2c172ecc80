#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# conformance.sh [runner options]: installs what is missing, builds, and runs the conformance suite
# on the CPU emulation with 4 ranks, or as the options say (the last of a repeated option counts).
# The last line is "N passed, N failed, N skipped"; the exit status is the runner's: 0 passed,
# 1 failed, 2 unresolved, 3 backend not loaded; 4 if there was nothing to run because the
# installation or the build failed.
set -u
# shellcheck source=tests/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

case " $* " in
*' --help '*)
    sed -n '/^#!/d; /^# SPDX/d; s/^# //p; /^set /q' "$0"
    [ ! -x "$root/build/bin/symmem-conformance" ] || "$root/build/bin/symmem-conformance" --help
    exit
    ;;
esac

need_build_tools
install_missing || exit 4
say "building in build/ ..."
build_in build || exit 4
runner=$root/build/bin/symmem-conformance
if [ ! -x "$runner" ]; then
    say "The build made no build/bin/symmem-conformance."
    exit 4
fi

# A machine's format or a list, if asked for, is the only text on standard output.
plain=1 format=text output=
previous=
for argument in "$@"; do
    case $previous in
    --format) format=$argument ;;
    --output) output=$argument ;;
    esac
    case $argument in
    --format=*) format=${argument#*=} ;;
    --output=*) output=${argument#*=} ;;
    --list | --list-profiles | --trace | --check-trace | --help) plain= ;;
    esac
    previous=$argument
done
[ "$format" = text ] || [ -n "$output" ] || plain=

options=(--backend shm --ranks 4 "$@")
say "running symmem-conformance ${options[*]}"
say
if [ -z "$plain" ]; then
    exec "$runner" "${options[@]}" </dev/null
fi

# On a terminal the runner shows how far it is and sums up by itself.
if [ -t 1 ]; then
    "$runner" "${options[@]}" </dev/null
    status=$?
    if [ "$status" -gt 3 ]; then
        say "$(exit_meaning "$status")"
        printf '0 passed, 1 failed, 0 skipped\n'
        status=1
    fi
    exit "$status"
fi

# Its report and, on the last line, its exit status. Who ends this ends the runner.
run_runner() {
    local pid=
    trap '[ -z "$pid" ] || kill "$pid" 2>/dev/null' TERM
    "$runner" "${options[@]}" </dev/null &
    pid=$!
    wait "$pid"
    status=$?
    while [ -n "$(jobs -pr)" ]; do # it was the signal that ended the wait
        wait "$pid"
        status=$?
    done
    printf '@status %d\n' "$status"
}

SECONDS=0
exec {report}< <(run_runner)
running=$!
trap 'kill "$running" 2>/dev/null' HUP INT TERM
status=1 closing=
while IFS= read -r -u "$report" line; do
    if [[ $line =~ ^(.*)@status\ ([0-9]+)$ ]]; then
        status=${BASH_REMATCH[2]}
        line=${BASH_REMATCH[1]} # what was left without a newline
        [ -z "$line" ] || printf '%s\n' "$line"
    elif [[ $line =~ $closing_pattern ]]; then
        closing=$line
    else
        printf '%s\n' "$line"
    fi
done
exec {report}<&-

printf '\nSummary\n'
printf '  machine   %s, %s processors\n' "$(uname -sm)" "$(getconf _NPROCESSORS_ONLN)"
printf '  options   %s\n' "${options[*]}"
printf '  time      %d s\n' "$SECONDS"
printf '  exit      %d: %s\n' "$status" "$(exit_meaning "$status")"
if [ "$status" -eq 1 ]; then
    printf '  one test  tests/conformance.sh --filter NAME\n'
fi
if [ -z "$closing" ]; then
    printf '  The runner ended without its closing line.\n'
    [ "$status" -ne 0 ] || status=1
    closing="0 passed, 1 failed, 0 skipped"
fi
printf '\n%s\n' "$closing"
exit "$status"
