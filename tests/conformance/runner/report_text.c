/* SPDX-License-Identifier: BSD-3-Clause */
/* For people: a line a case as it ends (on a terminal only of those that went wrong), at the end
 * what failed in full, what was left out and why, and the run by chapters. */
#include "runner.h"

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
    fprintf(runner->progress, "symmem conformance: backend %s, %d rank%s (%s), seed %llu",
            runner->arena->probe.name, options->ranks, plural(options->ranks),
            runner_mode_name(options->mode), (unsigned long long)options->seed);
    report_limits(runner, runner->progress);
    if (options->parts > 0)
        fprintf(runner->progress, ", part %d/%d", options->part, options->parts);
    if (runner->jobs > 1)
        fprintf(runner->progress, ", %d at a time", runner->jobs);
    fputc('\n', runner->progress);
    fprintf(runner->progress, "%d case%s planned", runner->planned_count,
            plural(runner->planned_count));
    if (runner->unplanned_count > 0)
        fprintf(runner->progress, ", %d not planned", runner->unplanned_count);
    fputc('\n', runner->progress);
    fflush(runner->progress);
}

void report_text_case(struct runner *runner, const struct runner_result *result) {
    const char *on = runner->color ? color_of(result->verdict) : "";
    const char *off = runner->color ? "\033[0m" : "";
    bool quiet = runner->live.on && !runner->options.verbose;
    FILE *out = runner->progress;
    if (quiet && runner_verdict_is_good(result->verdict))
        return;
    report_live_clear(runner);
    fprintf(out, "[%*d/%d] %s%-10s%s %s (%.2f s)", runner->planned_count > 99 ? 3 : 2,
            runner->result_count, runner->planned_count, on, runner_verdict_name(result->verdict),
            off, result->entry->test->name, result->seconds);
    if (result->reason != NULL) {
        fputs(": ", out);
        report_escape_plain(out, result->reason);
    }
    if (runner->options.verbose)
        fprintf(out, " [%s]", result->entry->test->requirements);
    fputc('\n', out);
    fflush(out);
}

/* With some backends there are many whose reason is the rank mode, and the same in each run. */
static int of_other_mode(const struct runner *runner) {
    int count = 0;
    for (int i = 0; i < runner->unplanned_count; i++)
        count += runner_is_of_other_mode(&runner->options, runner->unplanned[i].test);
    return count;
}

static void list_unplanned(const struct runner *runner) {
    int many = of_other_mode(runner);
    bool in_one = !runner->options.verbose && many > 8;
    for (int i = 0; i < runner->unplanned_count; i++) {
        const char *reason = runner->unplanned[i].reason;
        if (!in_one || !runner_is_of_other_mode(&runner->options, runner->unplanned[i].test))
            fprintf(runner->progress, "not planned: %s (%s)\n", runner->unplanned[i].test->name,
                    reason);
    }
    if (in_one)
        fprintf(runner->progress, "not planned: %d cases (needs ranks as %s), named by --verbose\n",
                many, runner->options.mode == TK_MODE_THREAD ? "processes" : "threads");
}

/* Why number `i` of the results, and behind them of what was not planned, did not run; NULL: it
 * did. */
static const char *reason_left_out(const struct runner *runner, int i) {
    if (i >= runner->result_count)
        return runner->unplanned[i - runner->result_count].reason;
    return runner->results[i].verdict == VERDICT_SKIPPED ? runner->results[i].reason : NULL;
}

/* How many were skipped or not planned for each reason; the names are for --verbose. */
static void count_left_out(const struct runner *runner) {
    int first[2] = {0, runner->result_count};
    int end[2] = {runner->result_count, runner->result_count + runner->unplanned_count};
    for (int part = 0; part < 2; part++)
        for (int i = first[part]; i < end[part]; i++) {
            const char *reason = reason_left_out(runner, i);
            int same = 0, before = 0;
            for (int j = first[part]; reason != NULL && j < end[part]; j++) {
                const char *other = reason_left_out(runner, j);
                bool is_same = other != NULL && strcmp(other, reason) == 0;
                same += is_same;
                before += is_same && j < i;
            }
            if (same > 0 && before == 0)
                fprintf(runner->progress, "  %4d %s: %s\n", same,
                        part == 0 ? "skipped" : "not planned", reason);
        }
}

static int compare_seconds(const void *one, const void *other) {
    double a = (*(const struct runner_result *const *)one)->seconds;
    double b = (*(const struct runner_result *const *)other)->seconds;
    return a < b ? 1 : a > b ? -1 : 0;
}

static void list_slowest(const struct runner *runner) {
    size_t count = (size_t)runner->result_count;
    const struct runner_result **order = calloc(count + 1, sizeof(*order));
    if (order == NULL || runner->options.slowest == 0) {
        free(order);
        return;
    }
    for (size_t i = 0; i < count; i++)
        order[i] = &runner->results[i];
    qsort(order, count, sizeof(*order), compare_seconds);
    fputs("\nslowest\n", runner->progress);
    for (size_t i = 0; i < count && i < (size_t)runner->options.slowest; i++)
        fprintf(runner->progress, "%9.2f s  %s\n", order[i]->seconds, order[i]->entry->test->name);
    free(order);
}

/* Each case that went wrong, in full; of a great many only the first. */
static void show_bad(const struct runner *runner) {
    const int most = 25;
    FILE *out = runner->progress;
    int shown = 0;
    for (int i = 0; i < runner->result_count && shown < most; i++) {
        const struct runner_result *result = &runner->results[i];
        if (runner_verdict_is_good(result->verdict))
            continue;
        shown++;
        fprintf(out, "\n%s%s: %s%s", runner->color ? color_of(result->verdict) : "",
                runner_verdict_name(result->verdict), result->entry->test->name,
                runner->color ? "\033[0m" : "");
        fprintf(out, " (%d rank%s, %.2f s)\n", result->entry->ranks, plural(result->entry->ranks),
                result->seconds);
        report_findings(runner, result, runner->color, out);
    }
}

/* All of them once more, a line each. */
static void list_bad(const struct runner *runner) {
    for (int i = 0; i < runner->result_count; i++) {
        const struct runner_result *result = &runner->results[i];
        if (runner_verdict_is_good(result->verdict))
            continue;
        fprintf(runner->progress, "%s: %s: ", runner_verdict_name(result->verdict),
                result->entry->test->name);
        report_escape_plain(runner->progress, result->reason);
        fputc('\n', runner->progress);
    }
}

static void show_outcome(const struct runner *runner) {
    const struct runner_summary *summary = &runner->summary;
    int bad = report_failed(runner);
    unsigned tenths = (unsigned)(runner->seconds * 10.0);
    FILE *out = runner->progress;
    if (runner->whole_count == 0)
        fputs("error: of the cases asked for none can be run so\n", out);
    if (runner->result_count < runner->planned_count)
        fprintf(out, "error: %d of %d planned cases did not run%s\n",
                runner->planned_count - runner->result_count, runner->planned_count,
                runner->interrupted != 0         ? ", because the run was interrupted"
                : runner->options.stop_after > 0 ? ", because of --stop-after"
                                                 : "");
    if (summary->errors + summary->unresolved > 0)
        fprintf(out, "of the failed, %d ended in error and %d stayed unresolved\n", summary->errors,
                summary->unresolved);
    fprintf(out, "%s%s%s in %u:%02u.%u, seed %llu\n",
            !runner->color ? ""
            : bad > 0      ? "\033[1;31m"
                           : "\033[1;32m",
            bad > 0 ? "NOT PASSED" : "PASSED", runner->color ? "\033[0m" : "", tenths / 600,
            tenths / 10 % 60, tenths % 10, (unsigned long long)runner->options.seed);
}

void report_text_end(struct runner *runner, const struct page *page) {
    report_live_clear(runner);
    if (!runner->live.on || runner->options.verbose)
        list_unplanned(runner);
    show_bad(runner);
    list_slowest(runner);
    report_chapters(runner, page);
    if (runner->live.on)
        count_left_out(runner);
    list_bad(runner);
    runner_print_claim(runner, runner->progress);
    show_outcome(runner);
    fflush(runner->progress);
}
