#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The documents. The program in README.md is tests/example.c, letter for letter. The operation in
# core/doc/operations.md compiles in its place. Links, titles of sections and names lead to what
# exists. Every variable that the code reads has a row in core/doc/environment.md.
set -u
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd) || exit 1
cd "$root" || exit 1
failures=0
complain() {
    echo "$*"
    failures=1
}

program() { # FILE
    awk '/^```c$/ { inside = 1; next } /^```$/ { inside = 0 } inside' "$1"
}
diff -u tests/example.c <(program README.md) || complain "README.md does not show tests/example.c"
awk '/int32_t right = / { while ((getline line < "/dev/stdin") > 0) print line; skip = 1 }
    /symmem_handle_release/ { skip = 0 } !skip' tests/example.c \
    < <(program core/doc/operations.md | sed '/^#include/d') |
    "${CC:-cc}" -std=gnu11 -fsyntax-only -Wall -Wextra -Werror -I core/include -include symmem/ops.h -x c - ||
    complain "the operation of core/doc/operations.md does not compile in the program"

for page in README.md CONTRIBUTING.md core/README.md core/doc/*.md; do
    while read -r link; do
        [ -e "$(dirname -- "$page")/$link" ] || complain "$page: no $link"
    done < <(grep -oE '\]\([^)#:]+\)' "$page" | sed 's/^](//; s/)$//')
done
# Names of functions and of files in backquotes: the code moves, and these pages have to follow.
for page in CONTRIBUTING.md core/README.md; do
    while read -r name; do
        grep -rqw -- "$name" core backend_* kernels tests --include='*.[ch]' || complain "$page: no $name in the code"
    done < <(grep -oE '`(sm|symmem|shm|cuda|nccl)_[a-z_]+' "$page" | tr -d '`' | sort -u)
    while read -r file; do
        [ -e "$file" ] || [ -e "core/$file" ] || complain "$page: no file $file"
    done < <(grep -oE '`[a-z_]+/[a-z_/]+\.[a-z]+`' "$page" | tr -d '`' | sort -u)
done
# Sections by their titles, in brackets and quotes.
for page in README.md CONTRIBUTING.md core/README.md core/doc/*.md backend_*/README.md tests/plugin_example/GUIDE.md; do
    while read -r title; do
        grep -rqE "^(#+ |- \*\*|\*\*|[0-9]+\. \*\*)$title\.?( |\*|\$)" --include='*.md' core backend_* tests ./*.md ||
            complain "$page: no section \"$title\""
    done < <(tr -s '\n ' '  ' <"$page" | grep -oE '\("[A-Z][^"()]+"(, "[A-Z][^"()]+")*\)' |
        grep -oE '"[^"]+"' | tr -d '"' | sort -u)
done
[ "$(wc -l <README.md)" -le 150 ] || complain "README.md has more than 150 lines"

while read -r variable; do
    grep -qF "\`$variable" core/doc/environment.md || complain "core/doc/environment.md: no $variable"
done < <(grep -rhoE '(getenv|env)[a-z_]*\(([^"()]*, )?"SYMMEM_[A-Z_]+"' core backend_* kernels --include='*.[ch]' |
    grep -oE 'SYMMEM_[A-Z_]+' | sort -u)
exit "$failures"
