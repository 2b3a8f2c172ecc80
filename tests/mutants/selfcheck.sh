#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# selfcheck.sh: whether run.sh says what it must of mutants that are no good: one that nobody can
# kill, a stale patch, one that does not build, one that is killed by the wrong test, one that no
# list has, one of a product that fails by itself. In a copy of what the last run of run.sh built.
set -u
mutants=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd) || exit 1
base=$mutants/../../build-mutants/plain
[ -d "$base/build" ] || { echo "selfcheck.sh: run.sh has built nothing yet" >&2; exit 2; }
copy=$(mktemp -d) || exit 1
trap 'rm -rf "$copy"' EXIT
chmod 755 "$copy"
mkdir -p "$copy/build-mutants/plain" && cp -a "$base/src/." "$copy" &&
    cp -a "$base/build" "$base/src" "$copy/build-mutants/plain/" || exit 1
cd "$copy/tests/mutants" || exit 1

change() { # NAME OLD NEW: a patch of one line
    local file=core/handle.c
    sed "s|$2|$3|" "$copy/$file" | diff -u --label "a/$file" --label "b/$file" "$copy/$file" - \
        >"patches/$1.patch"
}
change check_harmless 'Handles: references' 'Handles, references'
change check_broken '#include <stdlib.h>' '#include <no_such_header.h>'
change check_stale '#include <stdlib.h>' '#include <stddef.h>'
sed -i 's/^-.*/-no line of that file/' patches/check_stale.patch
cp decorator/barrier_does_nothing.c decorator/check_elsewhere.c
one='barrier.group_of_one' all='barrier.holds_for_each_rank'
cat >>list.txt <<LIST
check_harmless | patch | - | 2 | process | $one | $one | nothing is wrong
check_broken | patch | - | 2 | process | $one | $one | does not build
check_stale | patch | - | 2 | process | $one | $one | does not apply
check_elsewhere | decorator | - | 4 | process | $all | signal.* | killed by another test
LIST

failures=0
expect() { # WHAT PATTERN TEXT
    if grep -qE "$2" <<<"$3"; then
        echo "ok: $1"
    else
        printf 'FAILED: %s\n%s\n' "$1" "$3"
        failures=$((failures + 1))
    fi
}
output=$(./run.sh --only 'check_*' 2>&1)
expect "its exit status" '^1$' "$?"
expect "a survivor" '^survived .* check_harmless ' "$output"
expect "a mutant that does not build" '^error .* check_broken .*does not build' "$output"
expect "a stale patch" '^error .* check_stale .*does not apply' "$output"
expect "a kill by another test" "^error .* check_elsewhere .*not expected: $all" "$output"
expect "the counts" '^0 killed, 1 survived, 3 errors$' "$output"
echo 'fails_without | patch | - | 2 | process | no.such_test | no.such_test | made from a product that fails' >>list.txt
output=$(./run.sh --only 'fails_without' 2>&1)
expect "the exit status where the product itself fails" '^4$' "$?"
expect "such a product" '^the unmutated product fails' "$output"
touch patches/check_forgotten.patch
output=$(./run.sh --only 'check_*' 2>&1)
expect "a mutant in no list" 'in no list.*check_forgotten' "$output"
[ "$failures" -eq 0 ]
