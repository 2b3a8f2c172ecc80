#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The corpora: corpus/TARGET.txt has a line for each input: its name, a tab, its bytes as printf's %b
# takes them. The build unpacks them.
#   corpus.sh unpack TARGET FOLDER         a file for each input; what FOLDER had before is gone
#   corpus.sh pack TARGET FOLDER           the target's corpus is what FOLDER has
#   corpus.sh add TARGET NAME FILE         one input more, found-NAME
set -euo pipefail
export LC_ALL=C
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)

usage() {
    sed -n '/^#   /s/^# *//p' "${BASH_SOURCE[0]}" >&2
    exit 2
}

# Bytes that are no printable ones as \xHH, newlines and tabs as \n and \t.
write_line() { # NAME FILE
    printf '%s\t' "$1"
    od -An -v -tu1 -- "$2" | awk '{
        for (i = 1; i <= NF; i++)
            printf("%s", $i == 10 ? "\\n" : $i == 9 ? "\\t" : \
                $i > 32 && $i < 127 && $i != 92 ? sprintf("%c", $i) : sprintf("\\x%02x", $i))
    }'
    echo
}

unpack() { # TARGET FOLDER
    local name bytes
    rm -rf -- "$2"
    mkdir -p -- "$2"
    while IFS=$'\t' read -r name bytes; do
        printf '%b' "$bytes" >"$2/$name"
    done <"$here/corpus/$1.txt"
}

pack() { # TARGET FOLDER
    local file name
    for file in "$2"/*; do
        name=${file##*/}
        # libFuzzer's names are whole digests.
        [[ ! $name =~ ^[0-9a-f]{40}$ ]] || name=${name:0:10}
        write_line "$name" "$file"
    done | sort >"$here/corpus/$1.new"
    mv -- "$here/corpus/$1.new" "$here/corpus/$1.txt"
}

add() { # TARGET NAME FILE
    local corpus=$here/corpus/$1.txt
    if grep -q "^found-$2"$'\t' "$corpus"; then
        echo "corpus.sh: $1 has found-$2" >&2
        exit 1
    fi
    write_line "found-$2" "$3" >>"$corpus"
    sort -o "$corpus" "$corpus"
}

case "${1:-}/$#" in
unpack/3 | pack/3 | add/4) "$@" ;;
*) usage ;;
esac
