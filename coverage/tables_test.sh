#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# tables_test.sh BUILD_DIR: museum.sh and arguments.sh must find each kind of fault in their tables.
set -u
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd) || exit 1
build=${1:?usage: tables_test.sh BUILD_DIR}
work=$(mktemp -d) || exit 1
trap 'rm -rf -- "$work"' EXIT
failures=0

# The table changed by a sed command must be refused with a line that has the words.
expect() { # TABLE SED WORDS
    sed -E "$2" "$here/$1.tsv" >"$work/table"
    if cmp -s "$here/$1.tsv" "$work/table"; then
        echo "no change: $2"
    elif "$here/$1.sh" "$build" "$work/table" >"$work/out"; then
        echo "accepted: $2"
    elif ! grep -qF "$3" "$work/out"; then
        echo "refused, but not with \"$3\": $2"
    else
        return
    fi
    failures=$((failures + 1))
}

expect museum '/^SP-8\t/d' 'class SP has'
expect museum 's/^SP-8\t/SP-9\t/' 'SP-9 is there twice'
expect museum 's/^SP-8\t/ZZ-8\t/' 'ZZ-8 is of no class'
expect museum '/^SP-8\t/s/\tcovered\t/\topen\t/' 'SP-8 is open'
expect museum '/^SP-8\t/s/\tcovered\t/\tdone\t/' 'SP-8: no status done'
expect museum '/^SP-8\t/s/barrier\.holds_for_each_rank/barrier.holds_for_no_rank/' \
    'no test barrier.holds_for_no_rank'
expect museum '/^SP-8\t/s/barrier\.holds_for_each_rank/barrier.no*_rank/' 'no test barrier.no*_rank'
expect museum '/^TO-8\t/s/unit:test_shm_signals/unit:test_shm_no_signals/' 'no test unit:test_shm_no_signals'
expect museum '/^SP-8\t/s/^(([^\t]*\t){3})[^\t]*/\1-/' 'SP-8 is covered by no test'
expect museum '/^SP-8\t/s/^(([^\t]*\t){4})[^\t]*/\1no_such_mutant/' 'no mutant no_such_mutant'
expect museum '/^SP-8\t/s/^(([^\t]*\t){4})[^\t]*/\1put_relaxed/' 'mutant put_relaxed does not stand for it'
expect museum '/^MO-15\t/s/[^\t]*$/-/' 'MO-15: no reason'
expect museum '/^UX-[0-9]+\t/s/^(([^\t]*\t){4})[^\t]*/\1-/' 'class UX lacks a test or a mutant'

row='^symmem_put_signal\tchannel\t'
expect arguments "/$row/d" 'symmem_put_signal(channel) has no row'
expect arguments "/$row/p" 'symmem_put_signal(channel) is there twice'
expect arguments "/$row/s/channel/chanel/" 'symmem_put_signal(chanel) is declared in no header'
expect arguments "/$row/s/put_signal/put_sign/" 'symmem_put_sign(channel) is declared in no header'
expect arguments "/$row/s/\t-$//" 'symmem_put_signal(channel): 5 fields, not 6'
expect arguments "/$row/s/limits\.signals/limits.signal/" 'symmem_put_signal(channel): no case limits.signal'
expect arguments "/$row/s/limits\.signals/limits.streams/" \
    'symmem_put_signal(channel): limits.streams calls no symmem_put_signal'
expect arguments "/$row/s/limits\.signals/-/" 'symmem_put_signal(channel) is checked by no case'
expect arguments "/^symmem_put_signal\ttimeout_ms\t/s/[^\t]*$/-/" \
    'symmem_put_signal(timeout_ms): no reason why every value is valid'
exit "$failures"
