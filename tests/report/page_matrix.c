/* SPDX-License-Identifier: BSD-3-Clause */
/* Requirements by tests by runs. */
#include "page.h"

#include <string.h>

/* "SIGNAL" of "SM-SIGNAL-03". */
static void area_of(const char *id, char *area, size_t capacity) {
    const char *start = strchr(id, '-'), *end = strrchr(id, '-');

    if (start == NULL || end <= start)
        snprintf(area, capacity, "%s", id);
    else
        snprintf(area, capacity, "%.*s", (int)(end - start - 1), start + 1);
}

static void run_heads(const struct page *page, FILE *out) {
    char letter[8];

    for (int run = 0; run < page->run_count; run++) {
        page_run_letter(run, letter, sizeof(letter));
        fprintf(out, "<th scope=\"col\" class=\"run\"><a href=\"#run-%s\">%s</a><br><small>",
                letter, letter);
        report_escape_xml(out, page->runs[run].backend);
        fprintf(out, " %d ", page->runs[run].ranks);
        report_escape_xml(out, page->runs[run].rank_mode);
        fputs("</small></th>", out);
    }
}

/* --- the tests of one requirement ---------------------------------------------------- */

static void test_cell(const struct page_result *result, FILE *out) {
    enum page_status status = result == NULL ? PAGE_NOT_RUN : result->status;

    if (result == NULL || result->reason[0] == '\0') {
        html_status(out, "td", status);
        return;
    }
    fputs("<td class=\"why\">", out);
    html_status(out, "span", status);
    fputc(' ', out);
    html_element(out, "small", "", result->reason);
    fputs("</td>", out);
}

static void tests_of(const struct page *page, const struct page_requirement *requirement,
                     FILE *out) {
    char letter[8];

    if (requirement->test_count == 0) {
        fputs(page->run_count == 0 ? "" : "<small>no test of it is in these runs</small>", out);
        return;
    }
    fprintf(out,
            "<details><summary>%d test%s</summary><table class=\"tests\"><thead><tr>"
            "<th scope=\"col\">test</th>",
            requirement->test_count, requirement->test_count == 1 ? "" : "s");
    for (int run = 0; run < page->run_count; run++) {
        page_run_letter(run, letter, sizeof(letter));
        fprintf(out, "<th scope=\"col\">%s</th>", letter);
    }
    fputs("</tr></thead><tbody>", out);
    for (int i = 0; i < requirement->test_count; i++) {
        const struct page_test *test = &page->tests[requirement->tests[i]];

        fputs("<tr>", out);
        html_element(out, "th", "scope=\"row\"", test->name);
        for (int run = 0; run < page->run_count; run++)
            test_cell(test->results[run], out);
        fputs("</tr>\n", out);
    }
    fputs("</tbody></table></details>", out);
}

/* --- the rows ------------------------------------------------------------------------ */

static void verdict_cell(const struct page_verdict *verdict, FILE *out) {
    bool part = verdict->status == PAGE_PASSED && verdict->passed < verdict->tests;

    fprintf(out, "<td class=\"s %s%s\">%s", html_class(verdict->status), part ? " part" : "",
            page_status_name(verdict->status));
    if (verdict->tests > 0 && (part || page_is_bad(verdict->status)))
        fprintf(out, " <small>%d of %d</small>", verdict->passed, verdict->tests);
    if (verdict->stale)
        fputs(" <small class=\"stale\">other wording</small>", out);
    fputs("</td>", out);
}

/* What a filter may ask for. */
static const char *kind_of(enum page_status status) {
    return page_is_bad(status) ? "bad" : status == PAGE_PASSED ? "held" : "untested";
}

static void requirement_row(const struct page *page, int number, FILE *out) {
    const struct page_requirement *requirement = &page->requirements[number];

    fprintf(out, "<tr class=\"req\" data-kind=\"%s\" id=\"", kind_of(page_judge_all(page, number)));
    report_escape_xml(out, requirement->id);
    fputs("\"><th scope=\"row\"><a href=\"#", out);
    report_escape_xml(out, requirement->id);
    fputs("\">", out);
    report_escape_xml(out, requirement->id);
    fputs("</a></th><td class=\"text\">", out);
    html_element(out, "p", "", requirement->text);
    tests_of(page, requirement, out);
    fputs("</td>", out);
    for (int run = 0; run < page->run_count; run++) {
        struct page_verdict verdict = page_judge(page, number, run);

        verdict_cell(&verdict, out);
    }
    fputs("</tr>\n", out);
}

static void chapter_row(const struct page *page, const struct page_requirement *first,
                        const char *area, FILE *out) {
    fprintf(out, "<tr class=\"chapter\"><th scope=\"rowgroup\" colspan=\"%d\">",
            page->run_count + 2);
    report_escape_xml(out, first->chapter[0] == '\0' ? area : first->chapter);
    fputs("</th></tr>\n", out);
}

static void legend(FILE *out) {
    static const char *const means[PAGE_STATUS_COUNT] = {
        "a test of it passed and none went wrong; with numbers: only so many of its tests ran",
        "the backend does not declare the capability that its tests need: nothing was shown",
        "the machine lacked ranks, devices or memory",
        "a check did not hold",
        "a rank crashed or hung",
        "its tests need more ranks, or the other kind of ranks, or were left out as large",
        "its tests were not part of the run",
    };

    fputs("<details class=\"legend\"><summary>What the words mean</summary><dl>", out);
    for (int i = 0; i < PAGE_STATUS_COUNT; i++) {
        fputs("<dt>", out);
        html_status(out, "span", (enum page_status)i);
        fprintf(out, "</dt><dd>%s</dd>", means[i]);
    }
    fputs("</dl></details>\n", out);
}

void page_write_matrix(const struct page *page, FILE *out) {
    char area[32], last[32] = "";
    bool open = false;

    fputs("<section id=\"requirements\"><h2>Requirements</h2>\n", out);
    legend(out);
    fputs(
        "<div id=\"filter\"></div>\n<table class=\"matrix\">\n<thead><tr><th scope=\"col\">id</th>"
        "<th scope=\"col\">requirement</th>",
        out);
    run_heads(page, out);
    fputs("</tr></thead>\n", out);
    for (int i = 0; i < page->requirement_count; i++) {
        if (page->requirements[i].withdrawn)
            continue;
        area_of(page->requirements[i].id, area, sizeof(area));
        if (!open || strcmp(area, last) != 0) {
            fputs(open ? "</tbody>\n<tbody>\n" : "<tbody>\n", out);
            chapter_row(page, &page->requirements[i], area, out);
            memcpy(last, area, sizeof(last));
            open = true;
        }
        requirement_row(page, i, out);
    }
    fputs(open ? "</tbody>\n</table>\n</section>\n" : "</table>\n</section>\n", out);
}
