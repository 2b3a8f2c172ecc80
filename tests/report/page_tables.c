/* SPDX-License-Identifier: BSD-3-Clause */
/* What the page shows beside the runs: coverage, mutants, known defects of the field. */
#include "page.h"

static size_t folder_length(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash == NULL ? 0 : (size_t)(slash - path);
}

static bool same_folder(const char *one, const char *other) {
    size_t length = folder_length(one);
    return length == folder_length(other) && strncmp(one, other, length) == 0;
}

static void figures(const struct page_coverage *figures, FILE *out) {
    html_share(out, figures->lines_hit, figures->lines);
    html_share(out, figures->functions_hit, figures->functions);
    html_share(out, figures->branches_hit, figures->branches);
    fputs("</tr>\n", out);
}

static void row(const char *path, const struct page_coverage *covered, FILE *out) {
    report_xml(out, "<tr><th scope=\"row\"><code>%s</code></th>", path);
    figures(covered, out);
}

static void folder_row(const struct page *page, int first, FILE *out) {
    struct page_coverage sum = {.path = ""};
    const char *path = page->coverage[first].path;
    int length = (int)folder_length(path);
    char folder[1024];
    for (int i = first; i < page->coverage_count; i++)
        if (same_folder(path, page->coverage[i].path))
            page_add_coverage(&sum, &page->coverage[i]);
    snprintf(folder, sizeof(folder), "%.*s/", length == 0 ? 1 : length, length == 0 ? "." : path);
    row(folder, &sum, out);
}

static bool is_first_of_folder(const struct page *page, int number) {
    for (int i = 0; i < number; i++)
        if (same_folder(page->coverage[i].path, page->coverage[number].path))
            return false;
    return true;
}

static void head(const char *what, FILE *out) {
    fputs("<thead><tr>", out);
    html_heads(out, what);
    html_heads(out, "lines|functions|branches");
    fputs("</tr></thead>\n<tbody>\n", out);
}

void page_write_coverage(const struct page *page, FILE *out) {
    struct page_coverage sum;
    if (page->coverage_count == 0)
        return;
    fputs("<section id=\"coverage\"><h2>Coverage</h2>\n<p>What the tests ran of the product, "
          "measured "
          "by lcov.</p>\n<table class=\"facts\" aria-label=\"Coverage by folder\">",
          out);
    head("folder", out);
    for (int i = 0; i < page->coverage_count; i++)
        if (is_first_of_folder(page, i))
            folder_row(page, i, out);
    fputs("</tbody><tfoot><tr><th scope=\"row\">all</th>", out);
    page_sum_coverage(page, &sum);
    figures(&sum, out);
    fprintf(out,
            "</tfoot></table>\n<details><summary>all %d files</summary><table class=\"facts\" "
            "aria-label=\"Coverage by file\">",
            page->coverage_count);
    head("file", out);
    for (int i = 0; i < page->coverage_count; i++)
        row(page->coverage[i].path, &page->coverage[i], out);
    fputs("</tbody></table></details>\n</section>\n", out);
}

/* --- mutants ----------------------------------------------------------------------------- */

/* Mutants: backends broken on purpose, and which tests noticed. */

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

/* --- defects of the field ---------------------------------------------------------------- */

/* Known defects of the field, by class, and what covers each. */

/* The letters that an entry's id begins with: "A" of "A7". */
static void letters_of(const char *id, char *name, size_t capacity) {
    size_t length = 0;
    while (isalpha((unsigned char)id[length]))
        length++;
    snprintf(name, capacity, "%.*s", length > 0 ? (int)length : 1, id);
}

static int count(const struct page *page, const char *class_name, const char *status) {
    int found = 0;
    char name[32];
    for (int i = 0; i < page->defect_count; i++) {
        letters_of(page->defects[i].id, name, sizeof(name));
        found += strcmp(name, class_name) == 0 &&
                 (status == NULL || strcmp(page->defects[i].status, status) == 0);
    }
    return found;
}

static bool is_first_of_class(const struct page *page, int number, char *name, size_t capacity) {
    char earlier[32];
    letters_of(page->defects[number].id, name, capacity);
    for (int i = 0; i < number; i++) {
        letters_of(page->defects[i].id, earlier, sizeof(earlier));
        if (strcmp(earlier, name) == 0)
            return false;
    }
    return true;
}

static void class_rows(const struct page *page, FILE *out) {
    char name[32];
    for (int i = 0; i < page->defect_count; i++) {
        int open;
        if (!is_first_of_class(page, i, name, sizeof(name)))
            continue;
        open = count(page, name, "open");
        report_xml(out, "<tr><th scope=\"row\">%s</th>", name);
        html_share(out, count(page, name, "covered"), count(page, name, NULL));
        fprintf(out, "<td class=\"n\">%d</td><td class=\"n%s\">%d</td></tr>\n",
                count(page, name, "not-expressible"), open > 0 ? " failed" : "", open);
    }
}

static const char *class_of_status(const char *status) {
    if (strcmp(status, "covered") == 0)
        return "passed";
    return strcmp(status, "not-expressible") == 0 ? "planned" : "failed";
}

static void defect_row(const struct page_defect *defect, FILE *out) {
    report_xml(out,
               "<tr><th scope=\"row\">%s</th><td>%s</td><td class=\"s %s\">%s</td><td>%s</td>"
               "<td>%s</td><td>%s</td></tr>\n",
               defect->id, defect->text, class_of_status(defect->status), defect->status,
               defect->tests, defect->mutants, defect->reason);
}

void page_write_defects(const struct page *page, FILE *out) {
    if (page->defect_count == 0)
        return;
    fputs(
        "<section id=\"museum\"><h2>Museum</h2>\n<p>Defects that real libraries of this kind have "
        "had, by class, and what in this suite would notice them.</p>\n<table class=\"facts\" "
        "aria-label=\"Defects by class\"><thead><tr>",
        out);
    html_heads(out, "class|covered|not expressible|open");
    fputs("</tr></thead>\n<tbody>\n", out);
    class_rows(page, out);
    fputs("</tbody><tfoot><tr><th scope=\"row\">all</th>", out);
    html_share(out, page_defects_with(page, "covered"), page->defect_count);
    fprintf(out, "<td class=\"n\">%d</td><td class=\"n%s\">%d</td></tr></tfoot></table>\n",
            page_defects_with(page, "not-expressible"),
            page_defects_with(page, "open") > 0 ? " failed" : "", page_defects_with(page, "open"));
    fprintf(out,
            "<details><summary>all %d entries</summary>\n<div class=\"scroll\"><table "
            "class=\"mutants\" aria-label=\"Defects\"><thead><tr>",
            page->defect_count);
    html_heads(out, "entry|defect|status|tests|mutants|reason");
    fputs("</tr></thead>\n<tbody>\n", out);
    for (int i = 0; i < page->defect_count; i++)
        defect_row(&page->defects[i], out);
    fputs("</tbody></table></div></details>\n</section>\n", out);
}
