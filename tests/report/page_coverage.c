/* SPDX-License-Identifier: BSD-3-Clause */
/* What lcov measured, by folder and by file. */
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
