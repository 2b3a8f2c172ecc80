/* SPDX-License-Identifier: BSD-3-Clause */
/* Mutants: backends broken on purpose, and which tests noticed. */
#include "page.h"

/* "a, b, c" as words that may break between lines. */
static void list_cell(FILE *out, const char *list) {
    char word[200];
    const char *separator = "";
    fputs("<td>", out);
    while (page_next(&list, word, sizeof(word))) {
        report_xml(out, "%s<code>%s</code>", separator, word);
        separator = " ";
    }
    fputs("</td>", out);
}

static const char *class_of(const struct page_mutant *mutant) {
    if (strcmp(mutant->status, "killed") == 0)
        return "passed";
    return strcmp(mutant->status, "survived") == 0 ? "failed" : "error";
}

static void mutant_row(const struct page_mutant *mutant, FILE *out) {
    report_xml(out, "<tr><th scope=\"row\"><code>%s</code>", mutant->name);
    if (mutant->description[0] != '\0')
        report_xml(out, "<p>%s</p>", mutant->description);
    report_xml(out, "</th><td class=\"s %s\">%s</td>", class_of(mutant), mutant->status);
    list_cell(out, mutant->museum);
    report_xml(out, "<td>%s</td><td>%d %s</td>", mutant->kind, mutant->ranks, mutant->mode);
    list_cell(out, mutant->expected);
    list_cell(out, mutant->killed_by);
    fprintf(out, "<td class=\"n\">%.1f s</td></tr>\n", mutant->seconds);
}

static void rows_with(const struct page *page, bool killed, FILE *out) {
    for (int i = 0; i < page->mutant_count; i++)
        if ((strcmp(page->mutants[i].status, "killed") == 0) == killed)
            mutant_row(&page->mutants[i], out);
}

void page_write_mutants(const struct page *page, FILE *out) {
    int killed = page_killed(page);
    if (page->mutant_count == 0)
        return;
    fputs(
        "<section id=\"mutants\"><h2>Mutants</h2>\n<p>Backends broken on purpose, one defect each. "
        "A mutant counts as killed only by a test that fails for its own reason.</p>\n"
        "<table class=\"facts\" aria-label=\"Mutation score\"><tbody><tr><th "
        "scope=\"row\">mutation score</th>",
        out);
    html_share(out, killed, page->mutant_count);
    fputs("</tr>", out);
    if (page->mutants_commit != NULL && page->mutants_commit[0] != '\0')
        report_xml(out, "<tr><th scope=\"row\">commit</th><td>%s</td></tr>", page->mutants_commit);
    fprintf(out, "</tbody></table>\n<details%s><summary>all %d mutants</summary>\n",
            killed == page->mutant_count ? "" : " open", page->mutant_count);
    fputs("<div class=\"scroll\"><table class=\"mutants\" aria-label=\"Mutants\"><thead><tr>", out);
    html_heads(out, "mutant|result|defects|kind|ranks|expected to notice|noticed|time");
    fputs("</tr></thead>\n<tbody>\n", out);
    rows_with(page, false, out);
    rows_with(page, true, out);
    fputs("</tbody></table></div></details>\n</section>\n", out);
}
