/* SPDX-License-Identifier: BSD-3-Clause */
/* Requirements by tests by runs. */
#include "page.h"

static void run_heads(const struct page *page, FILE *out) {
    char letter[8];
    for (int i = 0; i < page->run_count; i++) {
        const struct page_run *run = &page->runs[i];
        page_run_letter(i, letter, sizeof(letter));
        /* The commit as short as git has it. */
        report_xml(out,
                   "<th scope=\"col\" class=\"run\" title=\"%s\"><a href=\"#run-%s\">%s</a><br>"
                   "<small>%s<br>%d %s%s<br>%.7s</small>",
                   run->source, letter, letter, run->backend, run->ranks, run->rank_mode,
                   page_plural(run), run->commit);
        page_limits(run, out);
        fputs("</th>", out);
    }
}

/* --- the tests of one requirement ---------------------------------------------------- */

static void test_cell(const struct page_result *result, FILE *out) {
    enum page_status status = result == NULL ? PAGE_NOT_RUN : result->status;
    fprintf(out, "<td class=\"s %s\">", html_class(status));
    if (page_is_bad(status))
        fprintf(out, "<a href=\"#failures\">%s</a>", page_status_name(status));
    else
        fputs(page_status_name(status), out);
    if (result != NULL && !page_is_bad(status) && result->reason[0] != '\0')
        report_xml(out, "<small>%s</small>", result->reason);
    fputs("</td>", out);
}

/* Rows of their own under the same columns, shown when the box of the requirement is ticked. */
static void test_rows(const struct page *page, const struct page_requirement *requirement,
                      FILE *out) {
    for (int i = 0; i < requirement->test_count; i++) {
        const struct page_test *test = &page->tests[requirement->tests[i]];
        report_xml(out, "<tr class=\"test\"><td></td><th scope=\"row\">%s</th>", test->name);
        page_backend_test_cells(page, test, out);
        for (int run = 0; run < page->run_count; run++)
            test_cell(test->results[run], out);
        fputs("</tr>\n", out);
    }
}

static void tests_box(const struct page *page, const struct page_requirement *requirement,
                      FILE *out) {
    if (requirement->test_count == 0)
        fputs(page->run_count == 0 ? "" : "<small>no test of it is in these runs</small>", out);
    else
        fprintf(out, "<label><input type=\"checkbox\"> %d test%s</label>", requirement->test_count,
                requirement->test_count == 1 ? "" : "s");
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
static const char *kind_of(const struct page_verdict *all) {
    if (page_is_bad(all->status))
        return "bad";
    return page_is_held(all) ? "held" : all->status == PAGE_PASSED ? "reworded" : "untested";
}

static void requirement_row(const struct page *page, int number, FILE *out) {
    const struct page_requirement *requirement = &page->requirements[number];
    struct page_verdict all = page_judge_all(page, number);
    report_xml(out,
               "<tbody class=\"req\" data-kind=\"%s\" id=\"%s\"><tr><th scope=\"row\">"
               "<a href=\"#%s\">%s</a></th><td class=\"text\">",
               kind_of(&all), requirement->id, requirement->id, requirement->id);
    html_prose(out, "p", requirement->text);
    tests_box(page, requirement, out);
    fputs("</td>", out);
    page_backend_cells(page, number, out);
    for (int run = 0; run < page->run_count; run++) {
        struct page_verdict verdict = page_judge(page, number, run);
        verdict_cell(&verdict, out);
    }
    fputs("</tr>\n", out);
    test_rows(page, requirement, out);
    fputs("</tbody>\n", out);
}

bool page_is_in_area(const struct page *page, int requirement, const char *area) {
    char own[32];
    page_area(page->requirements[requirement].id, own, sizeof(own));
    return !page->requirements[requirement].withdrawn && (area == NULL || strcmp(own, area) == 0);
}

/* How much of a chapter a run held. */
static void chapter_cell(const struct page *page, const char *area, int run, FILE *out) {
    int held = 0, reworded = 0, all = 0;
    bool bad = false;
    for (int i = 0; i < page->requirement_count; i++) {
        struct page_verdict verdict;
        if (!page_is_in_area(page, i, area))
            continue;
        verdict = page_judge(page, i, run);
        all++;
        held += page_is_held(&verdict);
        reworded += verdict.status == PAGE_PASSED && verdict.stale;
        bad = bad || page_is_bad(verdict.status);
    }
    fprintf(out, "<td class=\"s%s\">%d of %d", bad ? " failed" : "", held, all);
    if (reworded > 0)
        fprintf(out, " <small class=\"stale\">%d in other wording</small>", reworded);
    fputs("</td>", out);
}

static void chapter_row(const struct page *page, const struct page_requirement *first,
                        const char *area, FILE *out) {
    report_xml(out, "<tbody class=\"chapter\"><tr><th scope=\"rowgroup\" colspan=\"2\">%s</th>",
               first->chapter[0] == '\0' ? area : first->chapter);
    page_backend_chapter_cells(page, area, out);
    for (int run = 0; run < page->run_count; run++)
        chapter_cell(page, area, run, out);
    fputs("</tr></tbody>\n", out);
}

static void legend(const struct page *page, FILE *out) {
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
    for (int i = 0; i < PAGE_STATUS_COUNT; i++)
        fprintf(out, "<dt><span class=\"s %s\">%s</span></dt><dd>%s</dd>",
                html_class((enum page_status)i), page_status_name((enum page_status)i), means[i]);
    fputs("</dl>", out);
    if (page->backend_count > 0)
        page_backend_legend(out);
    fputs("</details>\n", out);
}

void page_write_matrix(const struct page *page, FILE *out) {
    char area[32], last[32] = "";
    fputs("<section id=\"requirements\"><h2>Requirements</h2>\n", out);
    legend(page, out);
    /* Room for the sentences however many runs there are. */
    fprintf(out,
            "<div id=\"filter\"></div>\n<table class=\"matrix%s\" aria-label=\"Requirements by "
            "runs\" style=\"min-width:%drem\">\n"
            "<thead><tr><th scope=\"col\" class=\"id\">id</th><th scope=\"col\">requirement</th>",
            page->run_count > 8 ? " dense" : "",
            38 + 7 * page->backend_count + (page->run_count > 8 ? 5 : 7) * page->run_count);
    page_backend_heads(page, out);
    run_heads(page, out);
    fputs("</tr></thead>\n", out);
    for (int i = 0; i < page->requirement_count; i++) {
        if (page->requirements[i].withdrawn)
            continue;
        page_area(page->requirements[i].id, area, sizeof(area));
        if (strcmp(area, last) != 0)
            chapter_row(page, &page->requirements[i], area, out);
        memcpy(last, area, sizeof(last));
        requirement_row(page, i, out);
    }
    fputs("</table>\n</section>\n", out);
}
