# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154,SC2034
# Which mutants a short run makes, of those in selected. To be sourced by run.sh.

# The mutants of definitions that are not what they were in a revision, and those whose rows are not.
changed_since() { # REVISION
    local before folders
    before=$(mktemp -d "$WORK/before.XXXXXX") || return 1
    mapfile -t folders < <(cd "$root" && git ls-tree -d -r --name-only "$1" 2>/dev/null |
        grep -xE 'core|backend_[a-z_]*|kernels|tests/(conformance|mutants)')
    if ! git -C "$root" archive "$1" "${folders[@]}" 2>/dev/null | tar -x -C "$before" 2>/dev/null; then
        rm -rf "$before"
        return 1
    fi
    "$tool" changed "$before" "$root" "${tables[@]}"
    [ ! -d "$before/tests/mutants/tables" ] || comm -13 <(each_row "$before"/tests/mutants/tables/*.txt | sort) \
        <(each_row "${tables[@]}" | sort) | cut -f 1
    rm -rf "$before"
}

each_row() { # TABLE...: a line for each row
    cat "$@" 2>/dev/null | awk '/^[a-z]/ { printf "\n%s\t", $1 } { gsub(/[[:space:]]+/, " "); printf "%s", $0 }'
}

# One of 100 / PERCENT groups that are drawn by lot, always the same ones: as many seeds in a row have all mutants.
sampled() { # PERCENT SEED
    awk -F'\t' -v groups=$(($1 > 0 ? (100 + $1 - 1) / $1 : 1000000)) -v seed="$2" '
        BEGIN { for (i = 1; i < 128; i++) code[sprintf("%c", i)] = i }
        {
            hash = 7
            for (i = 1; i <= length($1); i++) hash = (hash * 131 + code[substr($1, i, 1)]) % 1000003
            if (hash % groups == seed % groups) print $1
        }' "$TABLE"
}

choose() {
    local all=${#selected[@]} by="" since=""
    local -A wanted=()
    if [ -n "$changed" ]; then
        since=$(set -o pipefail && changed_since "$changed") || { echo "run.sh: no revision $changed" >&2; return 2; }
        by=" --changed $changed"
    fi
    [ -z "$sample" ] || by+=" --sample $sample --seed $seed"
    for name in $since ${sample:+$(sampled "$sample" "$seed")}; do
        wanted[$name]=1
    done
    local kept=()
    for name in "${selected[@]}"; do
        [ -z "${wanted[$name]:-}" ] || kept+=("$name")
    done
    selected=("${kept[@]}")
    echo "$((all - ${#kept[@]})) of $all left out: not chosen by${by}" >&2
    [ "${#kept[@]}" -gt 0 ] || { echo "0 killed, 0 survived, 0 errors"; exit 0; }
}
