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

# Those of which a test named for them lies in a file that changed: it may have been weakened.
tests_changed_since() { # REVISION
    local file
    git -C "$root" diff --name-only "$1" -- 'tests/conformance/test_*.c' 'tests/unit/**test_*.c' | while IFS= read -r file; do
        case $file in
        tests/unit/*) printf 'unit.%s\n' "$(basename "$file" .c)" ;;
        *) sed -nE '/^TEST_WITH_AND_WITHOUT_STREAM/{h; s/^\w+\((\w+), (\w+),.*/\1.\2_on_stream/p; g}
            s/^[A-Z_]+\((\w+), (\w+),.*/\1.\2\n\1/p; s/^[A-Z_]+\((\w+),? *$/\1/p
            s/^ *TK_CASE\("([^"]+)".*/\1/p' "$root/$file" 2>/dev/null ;;
        esac
    done | awk -F'\t' '
        NR == FNR { changed[$1]; next }
        {
            n = split($7, globs, ",")
            for (i = 1; i <= n; i++) {
                sub(/@.*/, "", globs[i])
                name = globs[i]
                sub(/^[^.]*\./, "", name) # of a macro that knows the area
                if (name in changed) { print $1; next }
                prefix = globs[i] ~ /[*?]/ ? substr(globs[i], 1, match(globs[i], /[*?]/) - 1) : ""
                for (test in changed)
                    if (test == globs[i] || (prefix != "" && index(test, prefix) == 1)) { print $1; next }
            }
        }' - "$TABLE"
}

each_row() { # TABLE...: a line for each row
    cat "$@" 2>/dev/null | awk '
        /^@/ { file = $2 }
        /^[@#]/ { next }
        /^[a-z]/ { printf "\n%s\t%s ", $1, file }
        { gsub(/[[:space:]]+/, " "); printf "%s", $0 }'
}

# Each mutant's number, drawn by lot and always the same one, and its name.
drawn() {
    awk -F'\t' '
        BEGIN { for (i = 1; i < 128; i++) code[sprintf("%c", i)] = i }
        {
            hash = 7
            text = $2 == "tsan" ? $2 : $1 # few, but they need a tree of their own: all in one group
            for (i = 1; i <= length(text); i++) hash = (hash * 131 + code[substr(text, i, 1)]) % 1000003
            print hash "\t" $1
        }' "$TABLE"
}

# One of 100 / PERCENT groups: as many seeds in a row have all mutants.
sampled() { # PERCENT SEED
    drawn | awk -F'\t' -v groups=$(($1 > 0 ? (100 + $1 - 1) / $1 : 1000000)) -v seed="$2" \
        '$1 % groups == seed % groups { print $2 }'
}

# So many of the names on standard input, others with another seed.
at_most() { # COUNT SEED
    awk -F'\t' -v seed="$2" 'NR == FNR { wanted[$1]; next }
        $2 in wanted { print ($1 * 31 + seed * 7919) % 1000003 "\t" $2 }' - <(drawn) | sort -n | head -n "$1" | cut -f 2
}

choose() {
    local all=${#selected[@]} by="" since=""
    local -A wanted=()
    local names
    if [ -n "$changed" ]; then
        since=$(set -o pipefail && changed_since "$changed" && tests_changed_since "$changed") ||
            { echo "run.sh: no revision $changed" >&2; return 2; }
        by=" --changed $changed"
    fi
    [ -z "$sample" ] || by+=" --sample $sample --seed $seed"
    names=$(printf '%s\n' $since ${sample:+$(sampled "$sample" "$seed")} | sort -u)
    if [ -n "$most" ] && [ "$(wc -l <<<"$names")" -gt "$most" ]; then
        names=$(at_most "$most" "$seed" <<<"$names")
        by+=" --most $most"
    fi
    for name in $names; do
        wanted[$name]=1
    done
    local kept=()
    for name in "${selected[@]}"; do
        [ -z "${wanted[$name]:-}" ] || kept+=("$name")
    done
    selected=("${kept[@]}")
    echo "$((all - ${#kept[@]})) of $all left out: not chosen by${by}" >&2
    [ "${#kept[@]}" -gt 0 ] || no_mutant "none is chosen"
}
