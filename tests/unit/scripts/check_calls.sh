#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# check_calls.sh: every public function begins with SM_PUBLIC_CALL, and every deleter of a tensor with
# SM_POINTED_CALL, so that none of them is a cancellation point or changes errno. Functions that only read a
# table or the calling thread's record are exempt.
set -u
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../../.." && pwd) || exit 1
plain=(symmem_status_name symmem_status_text symmem_dtype_name symmem_dtype_size symmem_reduce_supported
    symmem_last_error symmem_clear_error symmem_error_is_missing symmem_context_options_init
    symmem_alloc_options_init symmem_backend_entry)

mapfile -t headers < <(find "$root/core/include" -name '*.h')
mapfile -t sources < <(find "$root/core" -name '*.c')
[ "${#headers[@]}" -gt 10 ] && [ "${#sources[@]}" -gt 50 ] || exit 1

# "public NAME" and "pointed NAME" of each function and deleter; "begins NAME STATEMENT" of each definition.
declared() {
    cat -- "${headers[@]}" | tr '\n' ' ' | grep -oE 'SYMMEM_API [^;(]*\(' |
        sed -E 's/.*[ *](symmem_[a-z0-9_]+)\($/public \1/'
    grep -hoE 'deleter = [a-z_]+;' -- "${sources[@]}" | sed -E 's/deleter = ([a-z_]+);/pointed \1/'
}
defined() {
    awk '/^[a-z]/ { head = "" }
        /^[a-z].*[(]/ || head != "" { head = head " " $0 }
        head != "" && /[{]$/ {
            name = head; sub(/[(].*/, "", name); sub(/.*[ *]/, "", name)
            if ((getline next_line) > 0) { sub(/^ +/, "", next_line); print "begins", name, next_line }
            head = ""
        }
        /^symmem_[a-z_]+$/ { head = $0 }' "${sources[@]}"
}

{ defined; declared | sort -u; } | awk -v plain=" ${plain[*]} " '
    $1 == "begins" { first[$2] = $3; next }
    $1 == "public" && index(plain, " " $2 " ") == 0 { expected = "SM_PUBLIC_CALL;" }
    $1 == "public" && index(plain, " " $2 " ") > 0 { next }
    $1 == "pointed" { expected = "SM_POINTED_CALL;" }
    { count[$1]++ }
    first[$2] != expected { print $2 " begins with: " first[$2] ", not " expected; bad = 1 }
    END {
        print count["public"] + 0 " calls, " count["pointed"] + 0 " deleters"
        exit bad || count["public"] < 100 || count["pointed"] < 3
    }'
