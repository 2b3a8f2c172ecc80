/* SPDX-License-Identifier: BSD-3-Clause */
/* A column for each backend in front of those of its runs: the most that its runs say for it. */
#include "page.h"

static bool is_violated(const struct page_verdict *verdict) {
    return verdict->status == PAGE_FAILED || verdict->status == PAGE_ERROR;
}

static bool is_in_full(const struct page_verdict *verdict) {
    return page_is_held(verdict) && verdict->passed == verdict->tests;
}

static bool is_run_of(const struct page *page, int run, const char *backend) {
    return strcmp(page->runs[run].backend, backend) == 0;
}

/* "7 of 9" requirements of an area, in a cell's or a head's words. */
struct tally {
    int held, all;
    bool violated;
};

static struct tally tally_of(const struct page *page, const char *backend, const char *area) {
    struct tally tally = {0};
    for (int i = 0; i < page->requirement_count; i++) {
        struct page_verdict verdict;
        if (!page_is_in_area(page, i, area))
            continue;
        verdict = page_judge_backend(page, i, backend);
        tally.all++;
        tally.held += is_in_full(&verdict);
        tally.violated = tally.violated || is_violated(&verdict);
    }
    return tally;
}

static void head(const struct page *page, const char *backend, FILE *out) {
    struct tally tally = tally_of(page, backend, NULL);
    char letter[8];
    report_xml(out,
               "\n<th scope=\"col\" class=\"sum\"><b>%s</b><br><small>%d of %d</small><br><small>",
               backend, tally.held, tally.all);
    for (int run = 0; run < page->run_count; run++)
        if (is_run_of(page, run, backend)) {
            page_run_letter(run, letter, sizeof(letter));
            fprintf(out, "<a href=\"#run-%s\">%s</a> ", letter, letter);
        }
    fputs("</small></th>", out);
}

void page_backend_heads(const struct page *page, FILE *out) {
    for (int i = 0; i < page->backend_count; i++)
        head(page, page->backends[i], out);
}

void page_backend_chapter_cells(const struct page *page, const char *area, FILE *out) {
    for (int i = 0; i < page->backend_count; i++) {
        struct tally tally = tally_of(page, page->backends[i], area);
        fprintf(out, "<td class=\"sum s%s\">%d of %d</td>", tally.violated ? " failed" : "",
                tally.held, tally.all);
    }
}

/* --- a requirement's cell ------------------------------------------------------------ */

/* What each run of the backend said: "A: passed; B: passed 2 of 3, other wording". */
static void title(const struct page *page, int requirement, const char *backend, FILE *out) {
    const char *separator = "";
    char letter[8];
    fputs(" title=\"", out);
    for (int run = 0; run < page->run_count; run++) {
        struct page_verdict verdict;
        if (!is_run_of(page, run, backend))
            continue;
        verdict = page_judge(page, requirement, run);
        page_run_letter(run, letter, sizeof(letter));
        fprintf(out, "%s%s: %s", separator, letter, page_status_name(verdict.status));
        if (verdict.status == PAGE_PASSED && verdict.passed < verdict.tests)
            fprintf(out, " %d of %d", verdict.passed, verdict.tests);
        fputs(verdict.stale ? ", other wording" : "", out);
        separator = "; ";
    }
    fputc('"', out);
}

static void say(const struct page_verdict *verdict, FILE *out) {
    bool passed = verdict->status == PAGE_PASSED;
    if (is_violated(verdict))
        fputs("<a href=\"#failures\">violated</a>", out);
    else if (is_in_full(verdict))
        fputs("held", out);
    else if (passed)
        fputs(verdict->stale ? "other wording" : "in part", out);
    else
        fputs(page_status_name(verdict->status), out);
    if (passed && verdict->passed < verdict->tests)
        fprintf(out, " <small>%d of %d</small>", verdict->passed, verdict->tests);
}

void page_backend_cells(const struct page *page, int requirement, FILE *out) {
    for (int i = 0; i < page->backend_count; i++) {
        struct page_verdict verdict = page_judge_backend(page, requirement, page->backends[i]);
        bool less = verdict.status == PAGE_PASSED && !is_in_full(&verdict);
        fprintf(out, "<td class=\"sum s %s%s\"", html_class(verdict.status), less ? " part" : "");
        title(page, requirement, page->backends[i], out);
        fputc('>', out);
        say(&verdict, out);
        fputs("</td>", out);
    }
}

/* --- a test's cell ------------------------------------------------------------------- */

/* Wrong if it went wrong in one of the runs, else the best. */
static enum page_status status_of(const struct page *page, const struct page_test *test,
                                  const char *backend) {
    enum page_status best = PAGE_NOT_RUN;
    for (int run = 0; run < page->run_count; run++) {
        enum page_status one;
        if (!is_run_of(page, run, backend) || test->results[run] == NULL)
            continue;
        one = test->results[run]->status;
        if (one == PAGE_FAILED || one == PAGE_ERROR)
            return one;
        best = one < best ? one : best;
    }
    return best;
}

void page_backend_test_cells(const struct page *page, const struct page_test *test, FILE *out) {
    for (int i = 0; i < page->backend_count; i++) {
        enum page_status status = status_of(page, test, page->backends[i]);
        fprintf(out, "<td class=\"sum s %s\">%s</td>", html_class(status),
                page_status_name(status));
    }
}

/* --- what the words mean ------------------------------------------------------------- */

void page_backend_legend(FILE *out) {
    static const char *const words[][3] = {
        {"passed", "held",
         "a run passed all its tests, with the present wording, and none went "
         "wrong in any run"},
        {"passed part", "in part",
         "no run passed all of them, one as many as it says; the others may need "
         "what the backend does not declare"},
        {"passed part", "other wording",
         "it passed only in runs that tested another wording of "
         "the sentence"},
        {"failed", "violated", "a test of it failed, crashed or hung in one of the runs"},
    };
    fputs("<p>In the columns of backends, which stand for all runs of each, and in their heads "
          "and chapters, which count what is held:</p><dl>",
          out);
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        fprintf(out, "<dt><span class=\"s %s\">%s</span></dt><dd>%s</dd>", words[i][0], words[i][1],
                words[i][2]);
    fputs("</dl>", out);
}
