# SPDX-License-Identifier: BSD-3-Clause
# Makes a manual page: of a public header, from its comments and declarations, or of a program, from its
# --help.
#
#     awk -v name=symmem_group -v header=symmem/group.h -f man.awk group.h >symmem_group.3
#     awk -v name=symmem-bench -v section=1 -f man.awk help.txt >symmem-bench.1
function escape(text) {
    gsub(/\\/, "\\e", text)
    gsub(/-/, "\\-", text)
    sub(/^[.']/, "\\\\\\&&", text)
    return text
}
function verbatim(text,    lines, count, i) {
    print ".nf"
    count = split(text, lines, "\n")
    for (i = 1; i <= count; i++) if (i < count || lines[i] != "") print escape(lines[i])
    print ".fi"
}
function paragraph(text) { # with a table, or lines that belong together, as it stands
    print ".PP"
    if (text ~ /(^|\n)  /) verbatim(text)
    else print escape_lines(text)
}
function escape_lines(text,    lines, count, i, result) {
    count = split(text, lines, "\n")
    for (i = 1; i <= count; i++) result = result (i > 1 ? "\n" : "") escape(lines[i])
    return result
}
function prose(text,    parts, count, i) {
    count = split(text, parts, "\n\n+")
    for (i = 1; i <= count; i++) if (parts[i] ~ /[^ \n]/) paragraph(parts[i])
}
function names_in(text,    names, rest, found) {
    rest = text
    while (match(rest, /symmem_[a-z0-9_]+\(/)) {
        found = substr(rest, RSTART, RLENGTH - 1)
        names = names (names == "" ? "" : ", ") found "()"
        rest = substr(rest, RSTART + RLENGTH)
        sub(/^[^;]*;/, "", rest)
    }
    if (names == "" && match(text, /(typedef|#define)[^\n]*/)) {
        names = substr(text, RSTART, RLENGTH)
        if (match(text, /\} symmem_[a-z0-9_]+;/)) names = substr(text, RSTART + 2, RLENGTH - 3)
        else if (match(names, /(symmem|SYMMEM)_[A-Za-z0-9_]+/)) names = substr(names, RSTART, RLENGTH)
    }
    return names
}
function flush_block() { # a comment and what it describes
    if (code == "" && text != "") prose(text)
    if (code != "") {
        print ".SS \"" escape(names_in(code)) "\""
        verbatim(code)
        prose(text)
    }
    code = text = ""
}
function comment_done(    first) {
    sub(/^\n+/, "", comment)
    if (comment ~ /^ *SPDX/) { comment = ""; return }
    if (!described) { # the first one is about the header
        described = 1
        first = comment
        sub(/\n\n.*/, "", first)
        gsub(/\n/, " ", first)
        sub(/\. .*|\.$/, "", first)
        print escape(name) " \\- " escape(first)
        print ".SH SYNOPSIS\n.nf\n#include <" header ">\n.fi\n.SH DESCRIPTION"
        prose(comment)
        print ".SH CALLS AND TYPES"
    } else {
        flush_block()
        if (comment ~ /^--- /) {
            sub(/^--- */, "", comment)
            sub(/ *---+\n?/, "\n\n", comment)
            first = comment
            sub(/\n.*/, "", first)
            sub(/^[^\n]*\n*/, "", comment)
            print ".SH " toupper(escape(first))
        }
        text = comment
    }
    comment = ""
}
BEGIN {
    if (section == "") section = 3
    print ".\\\" Made by core/man.awk.\n.TH " toupper(escape(name)) " " section " \"\" symmem\n.SH NAME"
}
section == 1 { # the first line is "name: what it does"
    if (NR == 1) print escape(name) " \\- " escape(sub(/^[^:]*: */, "") ? $0 : "a program of symmem") "\n.SH DESCRIPTION\n.nf"
    else print escape($0)
    next
}
inside { # a comment
    line = $0
    ends = sub(/ *\*\/ *$/, "", line)
    sub(/^ ?\* ?/, "", line)
    comment = comment "\n" line
    if (ends) { inside = 0; comment_done() }
    next
}
/^\/\*/ && !declaring {
    line = $0
    sub(/^\/\* ?/, "", line)
    if (sub(/ *\*\/ *$/, "", line)) { comment = line; comment_done() }
    else { comment = line; inside = 1 }
    next
}
/^#define (SYMMEM_[A-Z0-9_]+_H|SYMMEM_(API|CHECKED))/ || /^#(if|ifdef|ifndef|elif|else|endif|include|undef)/ { skipping = /\\$/; next }
skipping { skipping = /\\$/; next }
/^(extern "C" \{|\})$/ || /^$/ { # an empty line ends what a comment is about
    if (declaring) code = code $0 "\n"
    else if (code != "") flush_block()
    next
}
{
    line = $0
    sub(/^SYMMEM_API (SYMMEM_CHECKED )?/, "", line)
    if (match(line, /^ +/) && RLENGTH > 20) line = "        " substr(line, RLENGTH + 1)
    code = code line "\n"
    declaring = !(/;( *\/\*.*\*\/)?$/ && (/^\}/ || !braces)) && !/^#define/
    if (/\{/) braces = 1
    if (/^\}/) { braces = 0; declaring = 0 }
}
END {
    if (section != 1) flush_block()
    else print ".fi"
    if (section == 3) print ".SH SEE ALSO\nThe specification, SPEC.md, says what must be true of each call."
}
