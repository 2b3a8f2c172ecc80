#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# check_profiles.sh RUNNER: the profiles that the runner knows must be those of core/SPEC.md, in name,
# order and capabilities, and none may be without cases.
set -u
runner=${1:?usage: check_profiles.sh RUNNER}
tests=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd) || exit 1

sorted() { # capabilities, whatever their order and separator
    tr '+, ' '\n' | sed '/^$/d' | sort | paste -sd+
}

from_spec() {
    sed -n '/^## Profiles/,$p' "$tests/../core/SPEC.md" |
        awk -F ' *[|] *' '/^\| [a-z]/ && $2 != "profile" { print $2 "\t" $3 }'
}

from_runner() {
    "$runner" --list-profiles | cut -f 1,2
}

each_sorted() {
    while IFS=$'\t' read -r name capabilities; do
        printf '%s %s\n' "$name" "$(sorted <<<"$capabilities")"
    done
}

diff -u <(from_spec | each_sorted) <(from_runner | each_sorted) || exit 1
empty=$("$runner" --list-profiles | awk -F '\t' '$3 == 0 { print $1 }')
[ -n "$("$runner" --list-profiles)" ] && [ -z "$empty" ] && exit 0
printf 'profiles without a case: %s\n' "$empty"
exit 1
