#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# selfcheck.sh checks what run.sh reports of faulty mutants: one that no test can kill, a row that does not
# fit, one that does not build, one that is killed by the wrong test, a plug-in without a row, one of a
# product that fails by itself; and whether it chooses as it is told. In a copy of what the last run of run.sh
# built.
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

add_plugin() { # NAME: another barrier that does nothing
    sed -i "s/^    {\"barrier_does_nothing\"\(.*\)/&\n    {\"$1\"\1/" decorator/signals.c
}
add_plugin check_elsewhere
one='barrier.group_of_one' all='barrier.holds_for_each_rank'
cat >tables/check.txt <<ROWS
@ core/rendezvous/handle.c
check_harmless | patch | - | $one | nothing is wrong
  -: #include <stdlib.h> => ...
    #include <stdlib.h>
check_broken | patch | - | $one | does not build
  -: #include <stdlib.h> => #include <no_such_header.h>
check_stale | patch | - | $one | does not fit
  -: no text of that file =>
check_elsewhere | decorator 4 | - | signal.* in $all | killed by another test
ROWS

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
expect "a row that does not fit" '^error .* check_stale .*does not fit: .*does not have the text: no text of that file' "$output"
expect "a kill by another test" "^error .* check_elsewhere .*not expected: $all" "$output"
expect "the counts" '^0 killed, 1 survived, 3 errors$' "$output"
echo 'fails_without | patch | - | no.such_test | made from a product that fails' >>tables/check.txt
output=$(./run.sh --only 'fails_without' 2>&1)
expect "the exit status where the product itself fails" '^4$' "$?"
expect "such a product" '^the unmutated product fails' "$output"
add_plugin check_forgotten
output=$(./run.sh --only 'check_*' 2>&1)
expect "a plug-in without a row" 'without.*check_forgotten' "$output"
sed -i '/"check_/d' decorator/signals.c
rm tables/check.txt

chosen() { ./run.sh "$@" --list 2>/dev/null | sort | paste -sd ' '; }
git=(git -C "$copy" -c user.name=check -c user.email=check@localhost)
"${git[@]}" init -q && "${git[@]}" add -A && "${git[@]}" commit -qm before || exit 1
sed -i '/^symmem_status symmem_handle_retain/,/^}/s/memory_order_relaxed/memory_order_acquire/; 1a/* A comment. */' \
    "$copy/core/rendezvous/handle.c"
sed -i '/^barrier_does_nothing/s/SP-10/SP-11/' tables/decorators.txt
expect "mutants of what changed" '^barrier_does_nothing reference_not_counted$' "$(chosen --changed HEAD)"
output=$(./run.sh --changed HEAD --list 2>&1 >/dev/null)
expect "what is left out" '^[0-9]+ of [0-9]+ left out: not chosen by --changed HEAD$' "$output"
output=$(./run.sh --changed no_such_revision --list 2>&1)
expect "the exit status where there is no such revision" '^2$' "$?"
# As many samples as it takes have each mutant once.
output=$(for seed in 7 8 9 10; do ./run.sh --sample 25 --seed "$seed" --list 2>/dev/null; done | sort | paste -sd ' ')
[ "$output" = "$(chosen)" ]
expect "all mutants within a few samples" '^0$' "$?"
[ "$failures" -eq 0 ]
