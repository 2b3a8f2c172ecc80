/* SPDX-License-Identifier: BSD-3-Clause */
/* The run by chapters of the specification: which requirements held, which cases said so. */
#include "runner.h"

#define MAX_CHAPTERS 64

struct chapter {
    char name[32];
    int requirements, held, violated;
    struct runner_summary cases;
    int case_count;
    double seconds;
};

static struct chapter *chapter_of(struct chapter *chapters, int *count_p, const char *id) {
    char name[32];
    int at = 0;
    page_area(id, name, sizeof(name));
    while (at < *count_p && strcmp(chapters[at].name, name) != 0)
        at++;
    if (at == MAX_CHAPTERS)
        return &chapters[MAX_CHAPTERS - 1];
    if (at == *count_p) {
        memcpy(chapters[at].name, name, sizeof(name));
        (*count_p)++;
    }
    return &chapters[at];
}

static void judge_requirement(const struct page *page, int requirement, struct chapter *chapter) {
    struct page_verdict verdict = page_judge(page, requirement, 0);
    chapter->requirements++;
    chapter->held += page_is_held(&verdict);
    chapter->violated += page_is_bad(verdict.status);
}

/* A case counts where its first requirement stands. */
static void count_case(const struct runner_result *result, struct chapter *chapter) {
    chapter->cases.passed += result->verdict == VERDICT_PASSED;
    chapter->cases.skipped += result->verdict == VERDICT_SKIPPED;
    chapter->cases.failed += !runner_verdict_is_good(result->verdict);
    chapter->case_count++;
    chapter->seconds += result->seconds;
}

static int collect(const struct runner *runner, const struct page *page, struct chapter *chapters) {
    int count = 0;
    char id[64];
    for (int i = 0; i < page->requirement_count; i++)
        if (!page->requirements[i].withdrawn)
            judge_requirement(page, i, chapter_of(chapters, &count, page->requirements[i].id));
    for (int i = 0; i < runner->result_count; i++) {
        const char *list = runner->results[i].entry->test->requirements;
        if (runner_next_id(&list, id, sizeof(id)))
            count_case(&runner->results[i], chapter_of(chapters, &count, id));
    }
    return count;
}

/* A zero is nothing to look at. */
static void cell(FILE *out, int width, const char *color, int number) {
    if (number == 0)
        fprintf(out, "%*s", width, "-");
    else
        fprintf(out, "%s%*d%s", color, width, number, color[0] == '\0' ? "" : "\033[0m");
}

static void row(const struct runner *runner, const struct chapter *chapter) {
    const char *bad = runner->color ? "\033[1;31m" : "", *good = runner->color ? "\033[32m" : "";
    FILE *out = runner->progress;
    int untested = chapter->requirements - chapter->held - chapter->violated;
    fprintf(out, "  %-12s", chapter->name);
    cell(out, 7, good, chapter->held);
    cell(out, 10, bad, chapter->violated);
    cell(out, 10, "", untested);
    cell(out, 10, good, chapter->cases.passed);
    cell(out, 8, bad, chapter->cases.failed);
    cell(out, 9, "", chapter->cases.skipped);
    fprintf(out, "%8.1f s\n", chapter->seconds);
}

static void add_to(struct chapter *sum, const struct chapter *chapter) {
    sum->requirements += chapter->requirements;
    sum->held += chapter->held;
    sum->violated += chapter->violated;
    sum->cases.passed += chapter->cases.passed;
    sum->cases.failed += chapter->cases.failed;
    sum->cases.skipped += chapter->cases.skipped;
    sum->seconds += chapter->seconds;
}

void report_chapters(const struct runner *runner, const struct page *page) {
    struct chapter *chapters = calloc(MAX_CHAPTERS, sizeof(*chapters));
    struct chapter sum = {.name = "all"};
    int count = chapters == NULL ? 0 : collect(runner, page, chapters);
    if (runner->result_count == 0) {
        free(chapters);
        return;
    }
    fputs("\n                    requirements                 cases\n"
          "  chapter        held  violated  untested    passed  failed  skipped      time\n",
          runner->progress);
    for (int i = 0; i < count; i++) {
        if (chapters[i].case_count > 0)
            row(runner, &chapters[i]);
        add_to(&sum, &chapters[i]);
    }
    if (count > 1)
        row(runner, &sum);
    free(chapters);
}
