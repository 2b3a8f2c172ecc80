#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# build.sh [FILE...]: one page, coverage/index.html, from the results of any number of runs: JSON of
# symmem-conformance, mutants of tests/mutants/run.sh, lcov's .info files, the table of defects. Without
# files: the recorded runs, what tests/test.sh left in build-logs/, coverage/report/rooms.info and what
# coverage/museum.sh says of known defects. PAGE names another page to write.
# Exit status: 0 the page was written, 1 it was, but a file could not be used, 2 it was not.
set -u
# shellcheck source=tests/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/../tests/lib.sh"
page=${PAGE:-$root/coverage/index.html}

# The newest one that was built; if there is none, build/ makes it.
find_program() {
    local newest='' program
    for program in "$root"/build*/bin/symmem-report; do
        if [ -x "$program" ] && [[ -z $newest || $program -nt $newest ]]; then
            newest=$program
        fi
    done
    printf '%s\n' "$newest"
}

program=$(find_program)
if [ -z "$program" ]; then
    need_build_tools
    need_header cjson/cJSON.h libcjson-dev
    install_missing || exit 2
    say "building in build/ ..."
    build_in build || exit 2
    program=$(find_program)
fi
if [ -z "$program" ]; then
    say "The build made no symmem-report."
    exit 2
fi

files=("$@")
if [ "$#" -eq 0 ]; then
    recorded=$(mktemp -d) || exit 2
    trap 'rm -rf -- "$recorded"' EXIT
    need_command xz xz-utils
    install_missing && "$root/coverage/record.sh" --unpack "$recorded/recorded" || exit 2
    "$root/coverage/museum.sh" --table >"$recorded/museum.tsv" || exit 2
    # Whose names on the page are recorded/runs/...
    page=$(realpath -m -- "$page")
    cd "$recorded" || exit 2
    for file in recorded/runs/*.json "$root"/build-logs/*.json \
        "$root/coverage/report/rooms.info" museum.tsv; do
        [ ! -f "$file" ] || files+=("$file")
    done
fi
"$program" --spec "$root/core/SPEC.md" --root "$root" --output "$page" "${files[@]}"
status=$?
[ "$status" -eq 2 ] || printf 'page: %s, from %d files\n' "${page#"$root"/}" "${#files[@]}"
exit "$status"
