#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# checks_test.sh BUILD_DIR: museum.sh and calls.sh must find each kind of fault.
set -u
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd) || exit 1
build=${1:?usage: checks_test.sh BUILD_DIR}
work=$(mktemp -d) || exit 1
trap 'rm -rf -- "$work"' EXIT
failures=0

refused() { # WORDS COMMAND...
    local words=$1
    shift
    if "$@" >"$work/out" 2>&1; then
        echo "accepted, where it should be refused with: $words"
    elif ! grep -qF -- "$words" "$work/out"; then
        echo "refused, but not with: $words"
        head -n 5 "$work/out"
    else
        return
    fi
    failures=$((failures + 1))
}

# The table of defects changed by a sed command.
museum() { # SED WORDS
    sed -E "$1" "$here/museum.tsv" >"$work/table"
    refused "$2" "$here/museum.sh" "$build" "$work/table"
}
museum '/^SP-8\t/d' 'stands for SP-8, which is not in the table'
museum 's/^SP-8\t/SP-9\t/' 'SP-9 is there twice'
museum '/^SP-8\t/{p;s/^SP-8/SP-88/}' 'SP-88 has neither a mutant nor a test nor a reason'
museum '/^MO-15\t/s/\tnot.*//' 'MO-15 has neither a mutant nor a test nor a reason'
museum '/^AL-14\t/s/example_runs/example_walks/' 'AL-14: no test readme.example_walks'

# A header more, with one call.
calls() { # COMMENT WORDS
    rm -rf "$work/headers" && cp -r "$here/../core/include/symmem" "$work/headers" || exit 1
    printf '/* %s */\nSYMMEM_API symmem_status symmem_new_call(int number);\n' "$1" >"$work/headers/new.h"
    refused "$2" "$here/calls.sh" "$work/headers"
}
calls 'A call.' 'new.h:2: nothing says who takes part: SYMMEM_API symmem_status symmem_new_call'
calls 'Local.' 'symmem_new_call: no case sees it refuse anything'
exit "$failures"
