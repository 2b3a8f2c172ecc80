/* SPDX-License-Identifier: BSD-3-Clause */
/* TAP 14. It has no "not applicable": a missing capability is the reason of a SKIP. */
#include "runner.h"

#include <stdlib.h>

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

static void requirements(const char *list, FILE *out) {
    char id[64];

    fputs("  requirements:\n", out);
    while (runner_next_id(&list, id, sizeof(id))) {
        const struct spec_requirement *requirement = runner_find_requirement(id);

        text(out, "    ", id, requirement == NULL ? "" : requirement->text);
    }
}

static void findings(const struct runner_result *result, FILE *out) {
    char line[160];

    fputs(result->finding_count == 0 ? "" : "  findings:\n", out);
    for (int i = 0; i < result->finding_count; i++) {
        const struct runner_finding *finding = &result->findings[i];

        runner_rank_list(&finding->ranks, line, sizeof(line));
        text(out, "    - ", "ranks", line);
        text(out, "      ", "message", finding->message);
        if (finding->expected[0] != '\0') {
            text(out, "      ", "expected", finding->expected);
            text(out, "      ", "got", finding->got);
        }
        if (finding->requirement[0] != '\0')
            text(out, "      ", "requirement", finding->requirement);
        if (finding->line != 0) {
            snprintf(line, sizeof(line), "%s:%d", finding->file, finding->line);
            text(out, "      ", "at", line);
        }
    }
    fputs(result->place_count == 0 ? "" : "  last_seen:\n", out);
    for (int i = 0; i < result->place_count; i++) {
        runner_rank_list(&result->places[i].ranks, line, sizeof(line));
        text(out, "    - ", "ranks", line);
        text(out, "      ", "state", result->places[i].state);
        text(out, "      ", "checkpoint", result->places[i].checkpoint);
        text(out, "      ", "line", result->places[i].line);
        text(out, "      ", "point", result->places[i].point);
    }
}

static void diagnostics(const struct runner *runner, const struct runner_result *result,
                        FILE *out) {
    char *command = NULL;
    size_t length = 0;
    FILE *memory = open_memstream(&command, &length);

    fprintf(out, "  ---\n  verdict: %s\n", runner_verdict_name(result->verdict));
    text(out, "  ", "message", result->reason);
    requirements(result->entry->test->requirements, out);
    findings(result, out);
    fprintf(out, "  ranks: %d\n  duration_ms: %.3f\n", result->entry->ranks,
            result->seconds * 1000.0);
    if (memory != NULL) {
        report_replay(runner, result, memory);
        fclose(memory);
        text(out, "  ", "replay", command);
        free(command);
    }
    fputs("  ...\n", out);
}

void report_tap(const struct runner *runner, FILE *out) {
    fprintf(out, "TAP version 14\n1..%d\n", runner->planned_count);
    fprintf(out, "# backend %s, ranks %d, rank mode %s, seed %llu", runner->arena->probe.name,
            runner->options.ranks, runner_mode_name(runner->options.mode),
            (unsigned long long)runner->options.seed);
    report_limits(runner, out);
    fputc('\n', out);
    for (int i = 0; i < runner->result_count; i++) {
        const struct runner_result *result = &runner->results[i];
        bool good = runner_verdict_is_good(result->verdict);

        fprintf(out, "%s %d - ", good ? "ok" : "not ok", i + 1);
        description(out, result->entry->test->name);
        if (result->verdict == VERDICT_SKIPPED) {
            fputs(" # SKIP ", out);
            description(out, result->reason);
        }
        fputc('\n', out);
        if (!good)
            diagnostics(runner, result, out);
    }
    for (int i = 0; i < runner->unplanned_count; i++)
        fprintf(out, "# not planned: %s (%s)\n", runner->unplanned[i].test->name,
                runner->unplanned[i].reason);
    if (runner->interrupted != 0)
        fputs("Bail out! interrupted\n", out);
}
