#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# museum_test.sh BUILD_DIR: museum.sh must find each kind of fault in a table.
set -u
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd) || exit 1
build=${1:?usage: museum_test.sh BUILD_DIR}
work=$(mktemp -d) || exit 1
trap 'rm -rf -- "$work"' EXIT
failures=0

# The table changed by a sed command must be refused with a line that has the words.
expect() { # SED WORDS
    sed -E "$1" "$here/museum.tsv" >"$work/table"
    if cmp -s "$here/museum.tsv" "$work/table"; then
        echo "no change: $1"
    elif "$here/museum.sh" "$build" "$work/table" >"$work/out"; then
        echo "accepted: $1"
    elif ! grep -qF "$2" "$work/out"; then
        echo "refused, but not with \"$2\": $1"
    else
        return
    fi
    failures=$((failures + 1))
}

expect '/^SP-8\t/d' 'class SP has'
expect 's/^SP-8\t/SP-9\t/' 'SP-9 is there twice'
expect 's/^SP-8\t/ZZ-8\t/' 'ZZ-8 is of no class'
expect '/^SP-8\t/s/\tcovered\t/\topen\t/' 'SP-8 is open'
expect '/^SP-8\t/s/\tcovered\t/\tdone\t/' 'SP-8: no status done'
expect '/^SP-8\t/s/barrier\.holds_for_each_rank/barrier.holds_for_no_rank/' \
    'no test barrier.holds_for_no_rank'
expect '/^SP-8\t/s/barrier\.holds_for_each_rank/barrier.no*_rank/' 'no test barrier.no*_rank'
expect '/^TO-8\t/s/unit:test_shm_signals/unit:test_shm_no_signals/' 'no test unit:test_shm_no_signals'
expect '/^SP-8\t/s/^(([^\t]*\t){3})[^\t]*/\1-/' 'SP-8 is covered by no test'
expect '/^SP-8\t/s/^(([^\t]*\t){4})[^\t]*/\1no_such_mutant/' 'no mutant no_such_mutant'
expect '/^SP-8\t/s/^(([^\t]*\t){4})[^\t]*/\1put_relaxed/' 'mutant put_relaxed does not stand for it'
expect '/^MO-15\t/s/[^\t]*$/-/' 'MO-15: no reason'
expect '/^UX-[0-9]+\t/s/^(([^\t]*\t){4})[^\t]*/\1-/' 'class UX lacks a test or a mutant'
exit "$failures"
