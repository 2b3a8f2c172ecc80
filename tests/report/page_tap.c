/* SPDX-License-Identifier: BSD-3-Clause */
/* A run as TAP 14. It has no "not applicable": a missing capability is the reason of a SKIP. */
#include "page.h"

#include <stdlib.h>
#include <string.h>

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

/* A line of a YAML block: a JSON string is one of YAML's. */
static void text(FILE *out, const char *indent, const char *key, const char *value) {
    fprintf(out, "%s%s: ", indent, key);
    report_escape_json(out, value);
    fputc('\n', out);
}

static void ranks_line(const int *ranks, int count, FILE *out) {
    char line[160];

    report_rank_list(ranks, count, line, sizeof(line));
    text(out, "    - ", "ranks", line);
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
    while (page_next(&list, id, sizeof(id)))
        text(out, "    ", id, sentence(page, id));
}

static void one_finding(const struct page_finding *finding, FILE *out) {
    char at[160];

    ranks_line(finding->ranks, finding->rank_count, out);
    text(out, "      ", "message", finding->message);
    if (finding->expected[0] != '\0') {
        text(out, "      ", "expected", finding->expected);
        text(out, "      ", "got", finding->got);
    }
    if (finding->requirement[0] != '\0')
        text(out, "      ", "requirement", finding->requirement);
    if (finding->line != 0) {
        snprintf(at, sizeof(at), "%s:%d", finding->file, finding->line);
        text(out, "      ", "at", at);
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
        text(out, "      ", "state", place->state);
        text(out, "      ", "checkpoint", place->checkpoint);
        text(out, "      ", "line", place->line);
        text(out, "      ", "point", place->point);
    }
}

static void diagnostics(const struct page *page, const struct page_result *result, FILE *out) {
    fprintf(out, "  ---\n  verdict: %s\n", page_status_name(result->status));
    text(out, "  ", "message", result->reason);
    requirements(page, result->requirements, out);
    findings(result, out);
    fprintf(out, "  ranks: %d\n  duration_ms: %.3f\n", result->ranks, result->seconds * 1000.0);
    text(out, "  ", "replay", result->replay);
    fputs("  ...\n", out);
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

    fprintf(out, "TAP version 14\n1..%d\n# backend ", page_count(run).planned);
    report_escape_plain(out, run->backend);
    fprintf(out, ", ranks %d, rank mode ", run->ranks);
    report_escape_plain(out, run->rank_mode);
    fputs(", seed ", out);
    report_escape_plain(out, run->seed);
    if (claim_has_other_limits(run->timeout_scale))
        fprintf(out, ", limits x %g", run->timeout_scale);
    fputc('\n', out);
    for (int i = 0; i < run->result_count; i++)
        if (run->results[i].status != PAGE_NOT_PLANNED)
            one_result(page, &run->results[i], ++number, out);
    for (int i = 0; i < run->result_count; i++)
        if (run->results[i].status == PAGE_NOT_PLANNED) {
            fputs("# not planned: ", out);
            report_escape_plain(out, run->results[i].test);
            fputs(" (", out);
            report_escape_plain(out, run->results[i].reason);
            fputs(")\n", out);
        }
    if (run->interrupted)
        fputs("Bail out! interrupted\n", out);
}
