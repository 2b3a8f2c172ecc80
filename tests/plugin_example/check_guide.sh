#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# check_guide.sh RUNNER checks that GUIDE.md is up to date: the tests and requirements that it names exist,
# its first program is refused as it says, and its other programs compile.
set -u
runner=${1:?usage: check_guide.sh RUNNER}
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd) || exit 1
repository=$here/../..
guide=$here/GUIDE.md
work=$(mktemp -d) || exit 1
trap 'rm -rf -- "$work"' EXIT
bad=0
complain() { printf '%s\n' "$*"; bad=1; }

"$runner" --list | cut -f 1 >"$work/tests"
[ -s "$work/tests" ] || complain "the runner lists no tests"
# In code marks: names of tests, patterns of them, and file names.
grep -oE '`[a-z_]+\.[a-z_*]+`' "$guide" | tr -d '`' | sort -u | while read -r name; do
    case $name in
    *.c | *.h | *.so | *.a | *.sh | *.md) continue ;;
    esac
    # shellcheck disable=SC2053 # the guide's pattern is one
    while read -r test; do [[ $test == $name ]] && continue 2; done <"$work/tests"
    printf 'the guide names the test %s, which is not there\n' "$name"
done >"$work/names"
# What follows --filter in its commands.
grep -oE -- "--filter '[^']+'" "$guide" | sed "s/--filter '//;s/'//" | while read -r filter; do
    [ -n "$("$runner" --list --filter "$filter")" ] ||
        printf 'nothing matches --filter %s\n' "$filter"
done >>"$work/names"
grep -oE 'SM-[A-Z]+-[0-9]+' "$guide" | sort -u | while read -r id; do
    grep -q "\*\*$id\*\*" "$repository/core/SPEC.md" || printf 'no requirement %s\n' "$id"
done >>"$work/names"
[ ! -s "$work/names" ] || complain "$(cat "$work/names")"

# The first program, and the words with which it is refused.
sed -n '/^```c$/,/^```$/{/^```$/q;/^```c$/d;p}' "$guide" >"$work/mine.c"
refusal=$(grep -m 1 -oE 'cannot be loaded: ABI: .*' "$guide")
if ! "${CC:-cc}" -std=gnu11 -shared -fPIC -I "$repository/core/include" "$work/mine.c" \
    -o "$work/mine.so"; then
    complain "the guide's first program does not compile"
elif ! "$runner" --backend "$work/mine.so" 2>&1 | tr -s 0-9 N | # the table's size grows
    grep -qF -- "$(tr -s 0-9 N <<<"$refusal")"; then
    complain "the guide's first program is not refused with: $refusal"
fi

# The second case of step 3 is what the guide shows. Numbers of cases grow with the suite: none is compared.
if ! "${CC:-cc}" -std=gnu11 -shared -fPIC -fvisibility=hidden -I "$repository/core/include" \
    "$here/backend.c" -o "$work/example.so"; then
    complain "the example does not compile"
else
    line=$("$runner" --backend "$work/example.so" --ranks 1 --no-large --filter 'alloc.*' 2>&1 |
        grep -E '^\[ 2/' | sed 's/ (.*//; s/^\[[^]]*\]//')
    grep -qF -- "$line" "$guide" || complain "step 3 does not show: $line"
fi

# What it adds for collectives is a program still. The headers as they will be installed.
mkdir -p "$work/include/symmem" && ln -s "$repository"/core/include/symmem/* "$work/include/symmem/" &&
    ln -s "$(cd -- "$repository/kernels" && pwd)" "$work/include/symmem/kernels"
if ! "$here/add_collectives.sh" "$guide" "$here/backend.c" >"$work/coll.c" ||
    ! "${CC:-cc}" -std=gnu11 -fsyntax-only -Wall -Wextra -Wshadow -Wconversion -Wno-unused-parameter -Werror \
        -I "$work/include" "$work/coll.c"; then
    complain "the guide's collectives do not compile"
fi

exit "$bad"
