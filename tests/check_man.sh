#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# check_man.sh BUILD: every public call is on the manual page of its header, and the pages are sound.
set -u
build=$(cd -- "${1:?usage: check_man.sh BUILD}" && pwd) || exit 1
headers=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../core/include/symmem" && pwd) || exit 1
failures=0
complain() { echo "$*" && failures=1; }
calls=0
for header in "$headers"/*.h; do
    page=$build/man/man3/symmem_$(basename "$header" .h).3
    for call in $(tr '\n' ' ' <"$header" | grep -oE 'SYMMEM_API[^;(]*\(' | grep -oE 'symmem_[a-z0-9_]+\($' | tr -d '('); do
        calls=$((calls + 1))
        grep -q "^\.SS .*${call//_/_}()" "$page" || complain "$page: no $call"
        [ -s "$build/man/man3/$call.3" ] || complain "no page $call"
    done
done
[ "$calls" -gt 100 ] || complain "only $calls calls found"
if command -v groff >/dev/null; then
    for page in "$build"/man/man?/symmem[_-]*; do
        [ "$(head -c 4 "$page")" != ".so " ] || continue
        said=$(groff -man -Tutf8 -ww -z "$page" 2>&1)
        [ -z "$said" ] || complain "$said"
    done
fi
exit "$failures"
