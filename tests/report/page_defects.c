/* SPDX-License-Identifier: BSD-3-Clause */
/* Known defects of the field, by class, and what covers each. */
#include "page.h"

/* The letters that an entry's id begins with: "A" of "A7". */
static void class_of(const char *id, char *name, size_t capacity) {
    size_t length = 0;
    while (isalpha((unsigned char)id[length]))
        length++;
    snprintf(name, capacity, "%.*s", length > 0 ? (int)length : 1, id);
}

static int count(const struct page *page, const char *class_name, const char *status) {
    int found = 0;
    char name[32];
    for (int i = 0; i < page->defect_count; i++) {
        class_of(page->defects[i].id, name, sizeof(name));
        found += strcmp(name, class_name) == 0 &&
                 (status == NULL || strcmp(page->defects[i].status, status) == 0);
    }
    return found;
}

static bool is_first_of_class(const struct page *page, int number, char *name, size_t capacity) {
    char earlier[32];
    class_of(page->defects[number].id, name, capacity);
    for (int i = 0; i < number; i++) {
        class_of(page->defects[i].id, earlier, sizeof(earlier));
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
