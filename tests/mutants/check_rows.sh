#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# check_rows.sh TOOL: whether the tool that makes mutants of rows finds text in functions that are hard to
# find, changes nothing else, and says precisely what is wrong with a row that does not fit.
set -u
tool=$(realpath -- "${1:?usage: check_rows.sh TOOL}") || exit 1
work=$(mktemp -d) || exit 1
trap 'rm -rf -- "$work"' EXIT
cd "$work" && mkdir -p core kernels/cuda old || exit 1

cat >core/hard.c <<'SOURCE'
#include <stddef.h>
#define TWICE(x)                                                                                   \
    do {                                                                                           \
        (x) = (x) * 2; /* } */                                                                     \
    } while (0)
#ifdef __cplusplus
extern "C" {
#endif
struct pair {
    int first, second;
};
typedef struct {
    int third;
} triple;
static const char *const names[] = {"one{", "two", [2] = "three"};
enum { LIMIT = 10 };
int early(int a);
static inline int early_too(void) { return early(LIMIT); }
int early(int a) {
    const char brace = '{', quote = '"';
    const char *text = "} /* \" */ {"; // } not its end
    if (a > LIMIT)
        return brace - quote; /* return 1; */
    return text != NULL && (a   ==
                            1);
}
int choice(int a) {
#if defined(ONE)
    if (a) {
        a = 1;
#else
    if (!a) {
        a = 2;
#endif
    }
    return a;
}
int old_style(a, b)
int a;
int b;
{
    return a - b;
}
int later(void) { int a = 1; a = 1; a = 1; TWICE(a); return early(a); }
#ifdef __cplusplus
}
#endif
SOURCE
cat >kernels/cuda/hard.cuh <<'SOURCE'
template <int N> __device__ __launch_bounds__(N) static void copy(float *to, const float *from) {
    for (int i = 0; i < N; i++)
        to[i] = from[i];
}
SOURCE
cp -r core kernels old/

failures=0
fail() {
    printf 'FAILED: %s\n' "$*"
    failures=$((failures + 1))
}
row() { printf '@ core/hard.c\nm | patch | - | a.test | wrong\n%b\n' "$1" >row.txt; } # EDIT
text_of() { tr -d '[:space:]' <"$1"; }

becomes() { # FILE EDIT OLD NEW: the file with that one text changed, but for blanks
    local before old=${3// /} new=${4// /}
    rm -rf tree && mkdir tree && cp -r core kernels tree/ && row "  $2"
    "$tool" apply m tree row.txt || fail "not applied: $2"
    before=$(text_of "$1")
    [ "${before/"$old"/"$new"}" = "$(text_of "tree/$1")" ] || fail "$2: $(cat "tree/$1")"
}
becomes core/hard.c '#define TWICE: *2 => * 3' '(x) * 2' '(x) * 3'
becomes core/hard.c 'struct pair: first, =>' 'first, second' 'second'
becomes core/hard.c 'triple: int => long' 'int third' 'long third'
becomes core/hard.c 'names: "two" => "2"' '"two"' '"2"'
becomes core/hard.c '-: LIMIT=10 => LIMIT=11' 'LIMIT = 10' 'LIMIT = 11'
becomes core/hard.c 'early_too: early(LIMIT) => 0' 'early(LIMIT)' '0'
becomes core/hard.c 'early: a==1 => a != 1' 'a == 1' 'a != 1'
becomes core/hard.c 'early: "} /* \\" */ {" => 0' '"} /* \" */ {"' '0'
becomes core/hard.c 'choice: return a; => return 3;' 'a = 2; #endif } return a;' 'a = 2; #endif } return 3;'
becomes core/hard.c 'old_style: a - b => b - a' 'a - b' 'b - a'
becomes core/hard.c 'old_style: a - b => 1 + ... * 2' 'a - b' '1 + a - b * 2'
becomes core/hard.c 'later #2: a = 1; => a = 2;' 'int a = 1; a = 1;' 'int a = 1; a = 2;'
becomes core/hard.c 'later: a = 1; TWICE(a);\n    return early(a); => return\n    5;' \
    'a = 1; TWICE(a); return early(a);' 'return 5;'
becomes kernels/cuda/hard.cuh 'kernels/cuda/hard.cuh copy: i < N => i < N - 1' 'i < N' 'i < N - 1'

says() { # EDIT PATTERN
    local said
    row "$1"
    said=$("$tool" check . row.txt 2>&1) && fail "taken: $1"
    grep -qE "$2" <<<"$said" || fail "not said: $2, but: $said"
}
says '  core/gone.c early: LIMIT => 0' 'row.txt:2: m: no file core/gone.c; it is now in core/hard.c$'
says '  core/gone.c nobody: LIMIT => 0' 'no file core/gone.c$'
says '  kernels/cuda/hard.cuh early: LIMIT => 0' 'no definition of early in .*hard.cuh; it is now in core/hard.c$'
says '  core/hard.c nobody: LIMIT => 0' 'no definition of nobody in core/hard.c$'
says '  early: return 1; => return 0;' 'early in core/hard.c does not have the text: return 1;'
says '  later: a = 1; => a = 0;' 'later in core/hard.c has the text 3 times, say which by #N: a = 1;'
says '  later #4: a = 1; => a = 0;' 'has the text 3 times: a = 1;'
says '  core/hard.c: a => b' 'no name behind the file'
says '  a => b' 'not PLACE: OLD => NEW'
says '  later: a' 'not PLACE: OLD => NEW'
says '    later: a => b' 'no edit that it belongs to'
says '  later: a = 1 => a  =  1' 'changes nothing'
says '  later: => b' 'without an old text'
sed -i 1d row.txt
"$tool" list row.txt 2>&1 | grep -q 'no @ FILE before it' || fail "an edit of no file"
says 'm | patch | - | a | twice' 'is there twice'
says 'n | patch | a' 'a row has five fields'
row '' && sed -i 's/patch/potch/' row.txt
"$tool" list row.txt 2>&1 | grep -q 'not KIND' || fail "a kind that is none"

# What changed: not by layout, comments or neighbors.
printf '%s\n' '@ core/hard.c' 'a | patch | - | t | w' '  early: a == 1 => 0' \
    'b | patch | - | t | w' '  later: TWICE(a); =>' >row.txt
sed -i 's/a   ==/a == \/* new *\//; s/a = 1; TWICE/a = 2; TWICE/' core/hard.c
[ "$("$tool" changed old . row.txt)" = b ] || fail "changed: $("$tool" changed old . row.txt)"
mkdir core/deep && mv core/hard.c core/deep/ && sed -i 's|core/hard|core/deep/hard|' row.txt
[ "$("$tool" changed old . row.txt)" = b ] || fail "changed by a move: $("$tool" changed old . row.txt)"
[ "$failures" -eq 0 ] && echo "the tool for rows: all well"
