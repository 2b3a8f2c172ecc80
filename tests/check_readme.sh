#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The C program that the README shows must be tests/example.c, letter for letter, and the operation that
# it shows next must compile in that program's place of the write.
set -u
tests=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd) || exit 1
# Block N of the README's.
program() { # N
    awk -v wanted="$1" '/^```c$/ { inside = ++count == wanted; next } /^```$/ { inside = 0 } inside' \
        "$tests/../README.md"
}
diff -u "$tests/example.c" <(program 1) || exit 1
awk '/int32_t right = / { while ((getline line < "/dev/stdin") > 0) print line; skip = 1 }
    /symmem_handle_release/ { skip = 0 } !skip' "$tests/example.c" < <(program 2 | sed '/^#include/d') |
    "${CC:-cc}" -std=gnu11 -fsyntax-only -Wall -Wextra -Werror -I "$tests/../core/include" \
        -include symmem/ops.h -x c -
