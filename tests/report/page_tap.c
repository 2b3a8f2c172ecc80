/* SPDX-License-Identifier: BSD-3-Clause */
/* A run as TAP 14. It has no "not applicable": a missing capability is the reason of a SKIP. A
 * line of a YAML block has a JSON string, which is one of YAML's. */
#include "page.h"

/* A description must not end the line or start a directive. */
static void description(FILE *out, const char *text) {
    char *line = NULL;
    size_t length = 0;
    FILE *memory = open_memstream(&line, &length);
    if (memory == NULL)
        return;
    report_escape_plain(memory, text);
    fclose(memory);
    for (const char *at = line; *at != '\0'; at++) {
        if (*at == '#' || *at == '\\')
            fputc('\\', out);
        fputc(*at, out);
    }
    free(line);
}

static void ranks_line(const int *ranks, int count, FILE *out) {
    char line[160];
    report_rank_list(ranks, count, line, sizeof(line));
    report_json(out, "    - ranks: %s\n", line);
}

static const char *sentence(const struct page *page, const char *id) {
    for (int i = 0; i < page->requirement_count; i++)
        if (strcmp(page->requirements[i].id, id) == 0)
            return page->requirements[i].text;
    return "";
}

static void requirements(const struct page *page, const char *list, FILE *out) {
    char id[64];
    fputs("  requirements:\n", out);
    while (page_next(&list, id, sizeof(id))) {
        fprintf(out, "    %s: ", id);
        report_json(out, "%s\n", sentence(page, id));
    }
}

static void one_finding(const struct page_finding *finding, FILE *out) {
    char at[160];
    ranks_line(finding->ranks, finding->rank_count, out);
    report_json(out, "      message: %s\n", finding->message);
    if (finding->expected[0] != '\0')
        report_json(out, "      expected: %s\n      got: %s\n", finding->expected, finding->got);
    if (finding->requirement[0] != '\0')
        report_json(out, "      requirement: %s\n", finding->requirement);
    if (finding->line != 0) {
        snprintf(at, sizeof(at), "%s:%d", finding->file, finding->line);
        report_json(out, "      at: %s\n", at);
    }
}

static void findings(const struct page_result *result, FILE *out) {
    fputs(result->finding_count == 0 ? "" : "  findings:\n", out);
    for (int i = 0; i < result->finding_count; i++)
        one_finding(&result->findings[i], out);
    fputs(result->place_count == 0 ? "" : "  last_seen:\n", out);
    for (int i = 0; i < result->place_count; i++) {
        const struct page_place *place = &result->places[i];
        ranks_line(place->ranks, place->rank_count, out);
        report_json(out, "      state: %s\n      checkpoint: %s\n      line: %s\n      point: %s\n",
                    place->state, place->checkpoint, place->line, place->point);
    }
}

static void diagnostics(const struct page *page, const struct page_result *result, FILE *out) {
    fprintf(out, "  ---\n  verdict: %s\n", page_status_name(result->status));
    report_json(out, "  message: %s\n", result->reason);
    requirements(page, result->requirements, out);
    findings(result, out);
    report_json(out, "  ranks: %d\n  duration_ms: %.3f\n  replay: %s\n  ...\n", result->ranks,
                result->seconds * 1000.0, result->replay);
}

static void one_result(const struct page *page, const struct page_result *result, int number,
                       FILE *out) {
    bool bad = page_is_bad(result->status);
    fprintf(out, "%s %d - ", bad ? "not ok" : "ok", number);
    description(out, result->test);
    if (result->status == PAGE_SKIPPED) {
        fputs(" # SKIP ", out);
        description(out, result->reason);
    }
    fputc('\n', out);
    if (bad)
        diagnostics(page, result, out);
}

void page_write_tap(const struct page *page, const struct page_run *run, FILE *out) {
    int number = 0;
    report_plain(out, "TAP version 14\n1..%d\n# backend %s, ranks %d, rank mode %s, seed %s",
                 page_count(run).planned, run->backend, run->ranks, run->rank_mode, run->seed);
    if (claim_has_other_limits(run->timeout_scale))
        fprintf(out, ", limits x %g", run->timeout_scale);
    fputc('\n', out);
    for (int i = 0; i < run->result_count; i++)
        if (run->results[i].status != PAGE_NOT_PLANNED)
            one_result(page, &run->results[i], ++number, out);
    for (int i = 0; i < run->result_count; i++)
        if (run->results[i].status == PAGE_NOT_PLANNED)
            report_plain(out, "# not planned: %s (%s)\n", run->results[i].test,
                         run->results[i].reason);
    if (run->interrupted)
        fputs("Bail out! interrupted\n", out);
}
