# SPDX-License-Identifier: BSD-3-Clause
# Draws core/architecture.svg from core/architecture.txt:
#
#     awk -f core/architecture.awk core/architecture.txt >core/architecture.svg
#
# A line is a floor from the top down: its boxes, separated by bars. A box is `name: what it does`; a floor that
# begins with `=` is drawn over the whole width in another color.
function escape(text) { gsub(/&/, "\\&amp;", text); gsub(/</, "\\&lt;", text); return text }
function box(x, width, text, fill,    name, rest, at) {
    at = index(text, ": ")
    name = at ? substr(text, 1, at - 1) : text
    rest = at ? substr(text, at + 2) : ""
    printf "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"44\" rx=\"4\" fill=\"%s\" stroke=\"#456\"/>\n", x, y, width, fill
    printf "<text x=\"%d\" y=\"%d\" font-weight=\"bold\">%s</text>\n", x + 10, y + 18, escape(name)
    printf "<text x=\"%d\" y=\"%d\" font-size=\"11\">%s</text>\n", x + 10, y + 35, escape(rest)
}
/^#/ || NF == 0 { next }
{ floors[++count] = $0 }
END {
    width = 880
    printf "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" font-size=\"13\">\n", width + 20, count * 56 + 16
    print "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>"
    for (i = 1; i <= count; i++) {
        y = (i - 1) * 56 + 10
        fill = "#e8f0f8"
        line = floors[i]
        if (sub(/^= */, "", line)) fill = "#f8ecd8"
        boxes = split(line, parts, / *\| */)
        each = (width - 10 * (boxes - 1)) / boxes
        for (b = 1; b <= boxes; b++) box(10 + (b - 1) * (each + 10), each, parts[b], fill)
        if (i < count) printf "<text x=\"%d\" y=\"%d\" font-size=\"11\" text-anchor=\"middle\">&#9660;</text>\n", width / 2 + 10, y + 54
    }
    print "</svg>"
}
