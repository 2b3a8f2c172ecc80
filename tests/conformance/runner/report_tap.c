/* SPDX-License-Identifier: BSD-3-Clause */
/* TAP 14. It has no "not applicable": a missing capability is the reason of a SKIP. */
#include "runner.h"

/* A description must not end the line or start a directive. */
static void plain(FILE *out, const char *text) {
    for (; text != NULL && *text != '\0'; text++) {
        if (*text == '#' || *text == '\\')
            fputc('\\', out);
        fputc(*text == '\n' || *text == '\r' ? ' ' : *text, out);
    }
}

static void diagnostics(const struct runner_result *result, FILE *out) {
    fputs("  ---\n  verdict: ", out);
    fputs(runner_verdict_name(result->verdict), out);
    fputs("\n  message: ", out);
    report_escape_json(out, result->reason);
    fputs("\n  requirements: ", out);
    report_escape_json(out, result->entry->test->requirements);
    fprintf(out, "\n  ranks: %d\n  seed: \"%llu\"\n  duration_ms: %.3f\n", result->entry->ranks,
            (unsigned long long)result->seed, result->seconds * 1000.0);
    if (result->detail != NULL) {
        fputs("  detail: ", out);
        report_escape_json(out, result->detail);
        fputc('\n', out);
    }
    fputs("  ...\n", out);
}

void report_tap(const struct runner *runner, FILE *out) {
    fprintf(out, "TAP version 14\n1..%d\n", runner->planned_count);
    fprintf(out, "# backend %s, ranks %d, rank mode %s, seed %llu\n", runner->arena->probe.name,
            runner->options.ranks, runner_mode_name(runner->options.mode),
            (unsigned long long)runner->options.seed);
    for (int i = 0; i < runner->result_count; i++) {
        const struct runner_result *result = &runner->results[i];
        bool good = result->verdict == VERDICT_PASSED || result->verdict == VERDICT_SKIPPED;

        fprintf(out, "%s %d - ", good ? "ok" : "not ok", i + 1);
        plain(out, result->entry->test->name);
        if (result->verdict == VERDICT_SKIPPED) {
            fputs(" # SKIP ", out);
            plain(out, result->reason);
        }
        fputc('\n', out);
        if (!good)
            diagnostics(result, out);
    }
    for (int i = 0; i < runner->unplanned_count; i++)
        fprintf(out, "# not planned: %s (%s)\n", runner->unplanned[i].test->name,
                runner->unplanned[i].reason);
    if (runner->interrupted != 0)
        fputs("Bail out! interrupted\n", out);
}
