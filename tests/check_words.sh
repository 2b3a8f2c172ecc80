#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The language of comments: private words, "Of ...:" openings, two colons in a sentence, lines of more than
# 110 characters and British spellings, per 1,000 words of comments, by folder.
#
#     tests/check_words.sh [--list] [FOLDER...]    fails if a folder has more than LIMIT; --list shows each one
#     tests/check_words.sh --self-test
#
# Without folders all are counted and only those of `strict` can fail.
set -u
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." || exit 1
limit=1
strict=(kernels backend_shm_emul backend_nccl backend_cuda tests/bench)
counted=(core tests)

# Prints `folder words findings`, and with list=1 each finding.
# shellcheck disable=SC2016 # the program is awk's
count() { # LIST FOLDER
    find "$2" -type f \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.cpp' \) ! -path '*/build*' -print0 |
        sort -z | xargs -0 --no-run-if-empty awk -v list="$1" -v folder="$2" '
        function found(what, text) {
            findings++
            if (list) printf "%s:%d: %s: %s\n", FILENAME, start, what, substr(text, 1, 100)
        }
        function sentence(text,    rest) {
            if (text ~ /^ *Of [^.]*:/) found("opening", text)
            rest = text
            if (gsub(/[[:alnum:]`)]: /, "", rest) > 1) found("colons", text)
        }
        function judge(    text, rest) { # the comment collected so far
            text = comment
            comment = ""
            words += split(text, parts, /[^[:alnum:]_]+/)
            rest = tolower(text)
            while (match(rest, private)) {
                found("word", substr(rest, RSTART, RLENGTH) ": " text)
                rest = substr(rest, RSTART + RLENGTH - 1)
            }
            if (text ~ /   [^ ]/) return # a table
            while (match(text, /[.;?!)] /)) {
                sentence(substr(text, 1, RSTART))
                text = substr(text, RSTART + 2)
            }
            sentence(text)
        }
        function add(text) {
            if (text ~ /SPDX-License-Identifier/) return
            if (comment == "") start = FNR
            if (length($0) > 110) found("long line", $0)
            comment = comment " " text
        }
        BEGIN {
            word = "in vain|by turns|turns?|whoever|nobody|everybody|somebody|the own|withdrawn|adopted|trays?|boards?"
            word = word "|meets?|meetings?|museum|asker|judges?|judged|spoils?|test points?|as usual|affair|likewise"
            word = word "|that is to|comes? to be|came to be|of old|come what may|[a-z]*(initial|organ|synchron|recogn|serial"
            word = word "|optim|minim|maxim|normal|util|summar|general)is(e|es|ed|ing|ation)|behaviours?|colours?"
            word = word "|neighbours?|neighbouring|favours?|honours?|centres?|cancelled|labelled|travelled|signalled|whilst"
            private = "[^a-z_]((" word ")[^a-z_])"
        }
        FNR == 1 && comment != "" { judge() }
        {
            line = $0
            gsub(/\\./, "", line)
            gsub(/"[^"]*"/, "", line)
            if (inside) {
                ends = index(line, "*/")
                text = ends ? substr(line, 1, ends - 1) : line
                sub(/^ *\* ?/, "", text)
                add(text)
                if (ends) { inside = 0; judge() }
                next
            }
            if (match(line, /^ *\/\//)) { add(substr(line, RLENGTH + 1)); next }
            if (comment != "") judge()
            if ((at = index(line, "/*")) > 0) {
                text = substr(line, at + 2)
                ends = index(text, "*/")
                add(ends ? substr(text, 1, ends - 1) : text)
                if (ends) judge()
                else inside = 1
            } else if ((at = index(line, "//")) > 0) {
                add(substr(line, at + 2))
                judge()
            }
        }
        END {
            if (comment != "") judge()
            print folder, words + 0, findings + 0
        }'
}

check() { # MAY_FAIL LIST FOLDER...: the status says whether all are within the limit
    local may_fail=$1 list=$2 failures=0 folder name words findings
    shift 2
    for folder; do
        while read -r name words findings; do
            if [ "$name" != "$folder" ]; then
                echo "$name $words $findings"
                continue
            fi
            printf '%-18s %6d words %5d findings, %s per 1,000\n' "$name" "$words" "$findings" \
                "$((words ? findings * 10000 / words / 10 : 0)).$((words ? findings * 10000 / words % 10 : 0))"
            [ "$((findings * 1000))" -le "$((limit * words))" ] || failures=1
        done < <(count "$list" "$folder")
    done
    [ "$failures" = 0 ] || [ "$may_fail" = 0 ]
}

self_test() {
    local folder status=0
    folder=$(mktemp -d) || return 1
    mkdir "$folder/good" "$folder/bad"
    printf '/* Frees an entry whose work was never enqueued. */\nint a; // NULL is a no-op.\n' >"$folder/good/a.c"
    check 1 0 "$folder/good" || status=1
    for text in 'Nobody waits.' 'Of work that failed: nothing.' 'One: two: three.' 'It is initialised here.' \
        "$(printf 'word %.0s' {1..30})"; do
        printf 'char *s = "// nobody";\n/* %s */\n' "$text" >"$folder/bad/a.c"
        ! check 1 0 "$folder/bad" || { echo "not found: $text" && status=1; }
    done
    rm -r -- "$folder"
    return "$status"
}

list=0
case ${1:-} in
--self-test) self_test && exit 0 || exit 1 ;;
--list) list=1 && shift ;;
esac
if [ $# -gt 0 ]; then
    check 1 "$list" "$@"
    exit
fi
check 0 "$list" "${counted[@]}"
check 1 "$list" "${strict[@]}"
