#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The language of comments and documents, by folder: private words, British spellings, "Of ...:" openings, two
# colons in a sentence, lines of more than 110 characters outside tables, per 1,000 words. In Markdown also
# requirements of more than 60 words.
#
#     tests/check_words.sh [--list] [FOLDER|FILE...]   fails if one has more than LIMIT; --list shows all
#     tests/check_words.sh --self-test
#
# Without folders all are counted and only those of `strict` can fail.
set -u
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." || exit 1
limit=1
strict=(core README.md CONTRIBUTING.md coverage/README.md
    kernels backend_shm_emul backend_nccl backend_cuda
    tests/bad_backends tests/bench tests/fakes tests/faults tests/fuzz tests/launchers tests/mutants
    tests/on_fakes tests/on_gpus tests/plugin_example tests/plugins tests/pytorch tests/report
    tests/unit tests/conformance
    tests/{example,inputs,inputs_kept}.c tests/{flat_backend,quiet_host,strange_floats}.h
    tests/{builds,deps,check_floors,check_profiles,check_readme,conformance,gpu,gpu_sanitize,inputs,lib,stages,test}.sh)
counted=(core tests)

# Prints `folder words findings`, and with list=1 each finding.
# shellcheck disable=SC2016 # the program is awk's
count() { # LIST FOLDER
    find "$2" -type f \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.cpp' -o -name '*.md' \
        -o -name '*.sh' -o -name '*.cmake' -o -name '*.py' -o -name CMakeLists.txt \) ! -path '*/build*' -print0 |
        sort -z | xargs -0 --no-run-if-empty awk -v list="$1" -v folder="$2" '
        function found(what, text) {
            findings++
            if (list) printf "%s:%d: %s: %s\n", file, start, what, substr(text, 1, 100)
        }
        function sentence(text,    rest) {
            if (text ~ /^ *Of [^.]*:/) found("opening", text)
            rest = text
            if (gsub(/[[:alnum:]`)]: /, "", rest) > 1) found("colons", text)
        }
        function judge(    text, rest, i) { # the comment or paragraph collected so far
            text = comment
            comment = ""
            i = split(text, parts, /[^[:alnum:]_]+/)
            words += i
            if (text ~ /^ - \*\*SM-/ && (i = split(text, parts, " ") - 2) > 60)
                found("requirement of " i " words", text)
            rest = tolower(text) " "
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
        function says(text,    rest) { # a string of the program
            if (text !~ / [a-z]+ /) return
            rest = " " tolower(text) " "
            file = FILENAME
            start = FNR
            while (match(rest, private)) {
                found("word", substr(rest, RSTART, RLENGTH) ": " text)
                rest = substr(rest, RSTART + RLENGTH - 1)
            }
        }
        function add(text) {
            if (text ~ /SPDX-License-Identifier/) return
            if (comment == "") { start = FNR; file = FILENAME }
            if (length($0) > 110) found("long line", $0)
            comment = comment " " text
        }
        function c_line(line,    at, ends, text, quoted) {
            gsub(/\\./, "", line)
            while (match(line, /"[^"]*"/)) {
                quoted = substr(line, RSTART + 1, RLENGTH - 2)
                line = substr(line, 1, RSTART - 1) substr(line, RSTART + RLENGTH)
                if (!inside && comment == "") says(quoted)
            }
            if (inside) {
                ends = index(line, "*/")
                text = ends ? substr(line, 1, ends - 1) : line
                sub(/^ *\* ?/, "", text)
                add(text)
                if (ends) { inside = 0; judge() }
                return
            }
            if (match(line, /^ *\/\//)) { add(substr(line, RLENGTH + 1)); return }
            if (comment != "") judge()
            while ((at = index(line, "/*")) > 0) {
                line = substr(line, at + 2)
                ends = index(line, "*/")
                add(ends ? substr(line, 1, ends - 1) : line)
                line = ends ? substr(line, ends + 2) : ""
                if (ends) judge()
                else inside = 1
            }
            if ((at = index(line, "//")) > 0) {
                add(substr(line, at + 2))
                judge()
            }
        }
        function hash_line(line) { # of a script: whole lines of comment
            if (line ~ /^ *#( |$)/) { sub(/^ *# ?/, "", line); add(line); return }
            if (comment != "") judge()
            if (match(line, /^[^#"\047]* # /)) { add(substr(line, RLENGTH + 1)); judge() }
        }
        function python_line(line) { # a docstring stands in lines of its own
            if (!inside && line ~ /^ *"""/) {
                sub(/^ *"""/, "", line)
                inside = 1
            }
            if (!inside) { hash_line(line); return }
            if (index(line, "\"\"\"")) inside = 0
            sub(/""".*/, "", line)
            if (line ~ /^ *$/) judge()
            else add(line)
            if (!inside && comment != "") judge()
        }
        function prose_line(line) { # of Markdown
            if (line ~ /^ *```/) { inside = !inside; line = "" }
            if (inside || line ~ /^    / || line ~ /^ *<!--/) line = ""
            gsub(/`[^`]*`/, "`", line)
            gsub(/\]\([^)]*\)/, "]", line)
            gsub(/\(withdrawn\)/, "", line)
            if (comment != "" && (line ~ /^ *$/ || line ~ /^ *([-*]|[0-9]+\.) / || line ~ /^[|#]/)) judge()
            if (line ~ /^ *$/) return
            if (line ~ /^\|/) { start = FNR; file = FILENAME; comment = "|   " line; judge(); return }
            add(line)
            if (line ~ /^#/) judge()
        }
        BEGIN {
            word = "in vain|by turns|turns?|whoever|nobody|everybody|somebody|the own|withdrawn|adopted|trays?|boards?"
            word = word "|meets?|meetings?|museum|asker|judges?|judged|spoils?|test points?|as usual|affair|likewise"
            word = word "|that is to|comes? to be|came to be|of old|come what may|[a-z]*(initial|organ|synchron|recogn|serial"
            word = word "|optim|minim|maxim|normal|util|summar|general)is(e|er|ers|es|ed|ing|ation)|behaviour(s|al)?|colour(s|ed)?"
            word = word "|neighbours?|neighbouring|favours?|honours?|centres?|(cancel|label|travel|signal|model)l(ed|ing)|whilst"
            word = word "|catalogues?|licences?|defences?|analysed?|fulfils?|metres?"
            private = "[^a-z_]((" word ")[^a-z_])"
        }
        FNR == 1 {
            if (comment != "") judge()
            inside = 0
        }
        FILENAME ~ /\.md$/ { prose_line($0); next }
        FILENAME ~ /\.py$/ { python_line($0); next }
        FILENAME ~ /\.(sh|cmake|txt)$/ { hash_line($0); next }
        { c_line($0) }
        END {
            if (comment != "") judge()
            print folder, words + 0, findings + 0
        }'
}

check() { # MAY_FAIL LIST FOLDER...: the status says whether all are within the limit
    local may_fail=$1 list=$2 failures=0 folder name words findings
    shift 2
    for folder; do
        [ -e "$folder" ] || { echo "check_words.sh: no $folder" && failures=1 && continue; }
        while read -r name words findings; do
            if [ "$name" != "$folder" ]; then
                echo "$name $words $findings"
                continue
            fi
            [ "$may_fail$list" = 10 ] && [ "$findings" = 0 ] && continue
            printf '%-18s %6d words %5d findings, %s per 1,000\n' "$name" "$words" "$findings" \
                "$((words ? findings * 10000 / words / 10 : 0)).$((words ? findings * 10000 / words % 10 : 0))"
            [ "$((findings * 1000))" -le "$((limit * words))" ] && continue
            failures=1
            [ "$may_fail$list" != 10 ] || count 1 "$folder" | grep ': '
        done < <(count "$list" "$folder")
    done
    [ "$failures" = 0 ] || [ "$may_fail" = 0 ]
}

refuses() { # FILE TEXT: fails if the text passes in that file
    printf '%s\n' "$2" >"$1"
    ! check 1 0 "${1%/*}" >"$1.said" || { echo "not found: $2" && return 1; }
    rm -- "$1"
}

self_test() {
    local folder text long status=0
    folder=$(mktemp -d) || return 1
    mkdir "$folder/good" "$folder/bad"
    long=$(printf 'word %.0s' {1..30})
    printf '/* Frees an entry whose work was never enqueued. */\nint a; // NULL is a no-op.\n' >"$folder/good/a.c"
    printf '# Heading\n\nProse with `nobody` as code.\n\n    nobody reads this: code: here\n\n| a | %s |\n' "$long" >"$folder/good/a.md"
    printf '%s\n' '- **SM-A-01** (withdrawn) Nothing.' >>"$folder/good/a.md"
    printf 'nobody=1 # code\n# A comment of a script.\n' >"$folder/good/a.sh"
    check 1 0 "$folder/good" || status=1
    for text in 'Nobody waits.' 'Of work that failed: nothing.' 'One: two: three.' 'It is initialised here.' "$long"; do
        refuses "$folder/bad/a.c" "char *s = \"// nobody\"; /* $text */" || status=1
        refuses "$folder/bad/a.c" "int a; /* one */ int b; /* $text */" || status=1
        refuses "$folder/bad/a.py" "$(printf '"""%s"""' "$text")" || status=1
        refuses "$folder/bad/b.sh" "a=1 # $text" || status=1
        refuses "$folder/bad/a.md" "$text" || status=1
        refuses "$folder/bad/a.sh" "# $text" || status=1
    done
    refuses "$folder/bad/a.md" '| a cell | nobody |' || status=1
    refuses "$folder/bad/a.c" 'char *s = "This is for nobody here";' || status=1
    ! check 1 0 "$folder/none" >/dev/null || status=1
    refuses "$folder/bad/a.md" "- **SM-A-01** It MUST be$(printf '\n  a word or two%.0s' {1..16})." || status=1
    rm -r -- "$folder"
    return "$status"
}

list=0
case ${1:-} in
--self-test) self_test && exit 0 || exit 1 ;;
--list) list=1 && shift ;;
-*) echo "usage: tests/check_words.sh [--list] [FOLDER|FILE...] | --self-test" >&2 && exit 2 ;;
esac
if [ $# -gt 0 ]; then
    check 1 "$list" "$@"
    exit
fi
check 0 "$list" "${counted[@]}"
check 1 "$list" "${strict[@]}"
