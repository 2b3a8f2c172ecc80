/* SPDX-License-Identifier: BSD-3-Clause */
/* For people: a line a case as it ends, what failed in full, and what was not planned. */
#include "runner.h"

#include <string.h>

static const char *color_of(enum runner_verdict verdict) {
    switch (verdict) {
    case VERDICT_PASSED:
        return "\033[32m";
    case VERDICT_SKIPPED:
        return "\033[36m";
    case VERDICT_UNRESOLVED:
        return "\033[33m";
    default:
        return "\033[31m";
    }
}

static const char *plural(int count) {
    return count == 1 ? "" : "s";
}

void report_text_begin(struct runner *runner) {
    const struct runner_options *options = &runner->options;

    fprintf(runner->progress, "symmem conformance: backend %s, %d rank%s (%s), seed %llu\n",
            runner->arena->probe.name, options->ranks, plural(options->ranks),
            runner_mode_name(options->mode), (unsigned long long)options->seed);
    fprintf(runner->progress, "%d case%s planned", runner->planned_count,
            plural(runner->planned_count));
    if (runner->unplanned_count > 0)
        fprintf(runner->progress, ", %d not planned", runner->unplanned_count);
    fputc('\n', runner->progress);
    fflush(runner->progress);
}

static void print_indented(FILE *out, const char *text) {
    while (*text != '\0') {
        size_t length = strcspn(text, "\n");

        fprintf(out, "      %.*s\n", (int)length, text);
        text += length + (text[length] == '\n');
    }
}

void report_text_case(struct runner *runner, const struct runner_result *result) {
    const char *on = runner->color ? color_of(result->verdict) : "";
    const char *off = runner->color ? "\033[0m" : "";
    FILE *out = runner->progress;

    fprintf(out, "[%*d/%d] %s%-10s%s %s (%.2f s)", runner->planned_count > 99 ? 3 : 2,
            runner->result_count, runner->planned_count, on, runner_verdict_name(result->verdict),
            off, result->entry->test->name, result->seconds);
    if (result->reason != NULL && result->detail == NULL)
        fprintf(out, ": %s", result->reason);
    if (runner->options.verbose)
        fprintf(out, " [%s]", result->entry->test->requirements);
    fputc('\n', out);
    if (result->detail != NULL)
        print_indented(out, result->detail);
    fflush(out);
}

static void list_unplanned(const struct runner *runner) {
    for (int i = 0; i < runner->unplanned_count; i++)
        fprintf(runner->progress, "not planned: %s (%s)\n", runner->unplanned[i].test->name,
                runner->unplanned[i].reason);
}

static void list_bad(const struct runner *runner) {
    for (int i = 0; i < runner->result_count; i++) {
        const struct runner_result *result = &runner->results[i];

        if (result->verdict != VERDICT_PASSED && result->verdict != VERDICT_SKIPPED)
            fprintf(runner->progress, "%s: %s: %s\n", runner_verdict_name(result->verdict),
                    result->entry->test->name, result->reason == NULL ? "" : result->reason);
    }
}

void report_text_end(struct runner *runner) {
    struct runner_summary summary;

    runner_count(runner, &summary);
    list_unplanned(runner);
    list_bad(runner);
    if (runner->result_count < runner->planned_count)
        fprintf(runner->progress, "error: %d of %d planned cases did not run\n",
                runner->planned_count - runner->result_count, runner->planned_count);
    if (summary.errors + summary.unresolved > 0)
        fprintf(runner->progress, "of the failed, %d ended in error and %d stayed unresolved\n",
                summary.errors, summary.unresolved);
    if (summary.failed + summary.errors > 0)
        fprintf(runner->progress, "to replay: --seed %llu\n",
                (unsigned long long)runner->options.seed);
    runner_print_claim(runner, runner->progress);
    fflush(runner->progress);
}
