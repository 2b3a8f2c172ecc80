/* SPDX-License-Identifier: BSD-3-Clause */
/* JSON: the format that other reports are made from. Its keys are fixed; new ones may be added. */
#include "runner.h"

#include <sys/utsname.h>

#ifndef SYMMEM_COMMIT
#define SYMMEM_COMMIT "unknown"
#endif
#ifndef SYMMEM_VERSION
#define SYMMEM_VERSION "unknown"
#endif

static void key_text(FILE *out, const char *key, const char *value) {
    fprintf(out, "\"%s\": ", key);
    report_escape_json(out, value);
}

static void requirements(FILE *out, const char *list) {
    char id[64];
    int count = 0;

    fputc('[', out);
    for (; runner_next_id(&list, id, sizeof(id)); count++) {
        if (count > 0)
            fputs(", ", out);
        report_escape_json(out, id);
    }
    fputc(']', out);
}

static void one_result(const struct runner_result *result, FILE *out) {
    fputs("    {", out);
    key_text(out, "test", result->entry->test->name);
    fputs(", \"requirements\": ", out);
    requirements(out, result->entry->test->requirements);
    fputs(", ", out);
    key_text(out, "status", runner_verdict_name(result->verdict));
    fputs(", ", out);
    key_text(out, "reason", result->reason);
    fprintf(out, ", \"seconds\": %.6f, \"ranks\": %d, \"repeat\": %d, \"seed\": \"%llu\"",
            result->seconds, result->entry->ranks, result->repeat,
            (unsigned long long)result->seed);
    if (result->detail != NULL) {
        fputs(", ", out);
        key_text(out, "detail", result->detail);
    }
    fputc('}', out);
}

static void header(const struct runner *runner, FILE *out) {
    struct utsname machine = {.machine = "unknown"};

    uname(&machine);
    fputs("{\n  ", out);
    key_text(out, "backend", runner->arena->probe.name);
    fprintf(out, ",\n  \"ranks\": %d,\n  ", runner->options.ranks);
    key_text(out, "rank_mode", runner_mode_name(runner->options.mode));
    fputs(",\n  ", out);
    key_text(out, "arch", machine.machine);
    fputs(",\n  ", out);
    key_text(out, "commit", SYMMEM_COMMIT);
    fputs(",\n  ", out);
    key_text(out, "version", SYMMEM_VERSION);
    fprintf(out, ",\n  \"seed\": %llu,\n  \"repeat\": %d,\n  \"planned\": %d,\n",
            (unsigned long long)runner->options.seed, runner->options.repeat,
            runner->planned_count);
}

static void unplanned(const struct runner *runner, FILE *out) {
    fputs("  \"not_planned\": [", out);
    for (int i = 0; i < runner->unplanned_count; i++) {
        fputs(i == 0 ? "\n    {" : ",\n    {", out);
        key_text(out, "test", runner->unplanned[i].test->name);
        fputs(", ", out);
        key_text(out, "reason", runner->unplanned[i].reason);
        fputc('}', out);
    }
    fputs("],\n", out);
}

void report_json(const struct runner *runner, FILE *out) {
    struct runner_summary summary;

    runner_count(runner, &summary);
    header(runner, out);
    fputs("  \"results\": [\n", out);
    for (int i = 0; i < runner->result_count; i++) {
        one_result(&runner->results[i], out);
        fputs(i + 1 < runner->result_count ? ",\n" : "\n", out);
    }
    fputs("  ],\n", out);
    unplanned(runner, out);
    fprintf(out,
            "  \"summary\": {\"passed\": %d, \"failed\": %d, \"skipped\": %d, \"errors\": %d, "
            "\"unresolved\": %d}\n}\n",
            summary.passed, summary.failed, summary.skipped, summary.errors, summary.unresolved);
}
