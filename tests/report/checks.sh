# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# What the checks of reports share. To be sourced.

failures=0
work=$(mktemp -d) || exit 1
trap 'rm -rf -- "$work"' EXIT

have() { command -v "$1" >/dev/null 2>&1; }

fail() {
    printf 'FAILED: %s\n' "$*"
    failures=$((failures + 1))
}

expect_status() { # STATUS COMMAND...
    local wanted=$1 got=0
    shift
    timeout -k 5 60 "$@" >"$work/out" 2>"$work/err" </dev/null || got=$?
    [ "$got" -eq "$wanted" ] || {
        fail "exit status $got, not $wanted: $*"
        sed 's/^/    | /' "$work/out" "$work/err" | head -n 20
    }
}

has() { # FILE TEXT
    grep -qF -- "$2" "$1" || fail "${1##*/} has not: $2"
}

has_not() { # FILE TEXT
    ! grep -qF -- "$2" "$1" || fail "${1##*/} has: $2"
}

is() { # WHAT GOT WANTED
    [ "$2" = "$3" ] || fail "$1 is '$2', not '$3'"
}

is_utf8() { # FILE
    iconv -f UTF-8 -t UTF-8 "$1" >/dev/null 2>&1 || fail "${1##*/} is not UTF-8"
}

# Well-formed: every element closed where it should be, every & an entity. libxml2 knows no HTML 5,
# so its complaints about names are left out.
is_html() { # FILE
    local wrong
    if have xmllint; then
        wrong=$(xmllint --html --noout "$1" 2>&1 | grep -E 'error ?:' | grep -vE 'Tag [a-z]+ invalid')
        [ -z "$wrong" ] || fail "${1##*/} is not well-formed: $(head -n 3 <<<"$wrong")"
    fi
    is "${1##*/}: first line" "$(head -n 1 "$1")" '<!DOCTYPE html>'
    is "${1##*/}: last line" "$(tail -n 1 "$1")" '</html>'
    is_utf8 "$1"
    # Self-contained: it fetches nothing.
    local outside
    for outside in 'src=' '<link' '@import' 'url(' 'http://' 'https://' 'fetch(' XMLHttpRequest; do
        has_not "$1" "$outside"
    done
}

conclude() {
    [ "$failures" -eq 0 ] || printf '%d failed\n' "$failures"
    [ "$failures" -eq 0 ]
    exit
}
