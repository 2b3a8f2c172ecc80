/* SPDX-License-Identifier: BSD-3-Clause */
/* JSON: the format that other reports are made from. Its keys are fixed; new ones may be added. */
#include "runner.h"

#include <stdlib.h>

/* The layout of what is beside the fixed keys; grows when one changes its meaning. */
#define FORMAT_VERSION 1

static void key_text(FILE *out, const char *key, const char *value) {
    fprintf(out, "\"%s\": ", key);
    report_escape_json(out, value);
}

static void rank_array(FILE *out, const struct runner_ranks *ranks) {
    const char *separator = "";

    fputs("\"ranks\": [", out);
    for (int rank = 0; rank < ARENA_MAX_RANKS; rank++)
        if (runner_has_rank(ranks, rank)) {
            fprintf(out, "%s%d", separator, rank);
            separator = ", ";
        }
    fputc(']', out);
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

static void one_finding(const struct runner_finding *finding, FILE *out) {
    fprintf(out, "{\"verdict\": \"%s\", ", runner_verdict_name(finding->verdict));
    rank_array(out, &finding->ranks);
    fputs(", ", out);
    key_text(out, "message", finding->message);
    if (finding->expected[0] != '\0') {
        fputs(", ", out);
        key_text(out, "expected", finding->expected);
        fputs(", ", out);
        key_text(out, "got", finding->got);
    }
    if (finding->line != 0) {
        fputs(", ", out);
        key_text(out, "file", finding->file);
        fprintf(out, ", \"line\": %d", finding->line);
    }
    if (finding->requirement[0] != '\0') {
        fputs(", ", out);
        key_text(out, "requirement", finding->requirement);
    }
    if (finding->more > 0)
        fprintf(out, ", \"more\": %u", finding->more);
    if (finding->next[0] != '\0') {
        fputs(", ", out);
        key_text(out, "next", finding->next);
    }
    fputc('}', out);
}

static void findings(const struct runner_result *result, FILE *out) {
    fputs(",\n     \"findings\": [", out);
    for (int i = 0; i < result->finding_count; i++) {
        fputs(i == 0 ? "" : ", ", out);
        one_finding(&result->findings[i], out);
    }
    fputs("],\n     \"last_seen\": [", out);
    for (int i = 0; i < result->place_count; i++) {
        fputs(i == 0 ? "{" : ", {", out);
        rank_array(out, &result->places[i].ranks);
        fputs(", ", out);
        key_text(out, "state", result->places[i].state);
        fputs(", ", out);
        key_text(out, "checkpoint", result->places[i].checkpoint);
        fputs(", ", out);
        key_text(out, "line", result->places[i].line);
        fputs(", ", out);
        key_text(out, "point", result->places[i].point);
        fputc('}', out);
    }
    fputc(']', out);
}

/* What `write` prints about the result, as one string. */
static void key_printed(const struct runner *runner, const struct runner_result *result,
                        const char *key,
                        void (*write)(const struct runner *, const struct runner_result *, FILE *),
                        FILE *out) {
    char *text = NULL;
    size_t length = 0;
    FILE *memory = open_memstream(&text, &length);

    if (memory == NULL)
        return;
    write(runner, result, memory);
    fclose(memory);
    fputs(", ", out);
    key_text(out, key, text);
    free(text);
}

static void write_detail(const struct runner *runner, const struct runner_result *result,
                         FILE *out) {
    report_findings(runner, result, false, out);
}

static void one_result(const struct runner *runner, const struct runner_result *result, FILE *out) {
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
    if (!runner_verdict_is_good(result->verdict)) {
        findings(result, out);
        key_printed(runner, result, "detail", write_detail, out);
        key_printed(runner, result, "replay", report_replay, out);
    }
    if (result->output != NULL) {
        fputs(", ", out);
        key_text(out, "output", result->output);
    }
    fputc('}', out);
}

/* "2026-01-31T12:00:00Z" */
static void key_time(FILE *out, const char *key, time_t when) {
    char text[32] = "";
    struct tm parts;

    if (gmtime_r(&when, &parts) != NULL)
        strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
    key_text(out, key, text);
}

static void capabilities(const struct runner *runner, FILE *out) {
    uint64_t bits = runner->arena->probe.capabilities;
    const char *separator = "";
    char name[64];

    fputs("  \"capabilities\": [", out);
    for (int bit = 0; bit < 64; bit++) {
        runner_capability_names(bits & (uint64_t)1 << bit, name, sizeof(name));
        if (name[0] == '-')
            continue; /* not set, or a newer one than this runner knows */
        fprintf(out, "%s\"%s\"", separator, name);
        separator = ", ";
    }
    fputs("],\n", out);
}

/* Of which texts the results speak: a sentence may have changed since. */
static void specification(FILE *out) {
    const char *separator = "";

    fputs("  \"specification\": {", out);
    for (int i = 0; i < spec_requirement_count; i++) {
        if (spec_requirements[i].withdrawn)
            continue;
        fprintf(out, "%s\n    ", separator);
        key_text(out, spec_requirements[i].id, spec_requirements[i].digest);
        separator = ",";
    }
    fputs("},\n", out);
}

static void machine(const struct report_machine *facts, FILE *out) {
    fputs("  \"machine\": {", out);
    key_text(out, "system", facts->system);
    fputs(", ", out);
    key_text(out, "processor", facts->processor);
    fprintf(out, ", \"processors\": %ld, \"memory_bytes\": %llu, ", facts->processors,
            (unsigned long long)facts->memory_bytes);
    key_text(out, "accelerators", facts->accelerators);
    fputs(", ", out);
    key_text(out, "driver", facts->driver);
    fputs("},\n", out);
}

/* Which profiles the run shows the backend to have, in words. */
static void claim(const struct runner *runner, FILE *out) {
    char *text = NULL;
    size_t length = 0;
    FILE *memory = open_memstream(&text, &length);

    if (memory != NULL) {
        runner_print_claim(runner, memory);
        fclose(memory);
    }
    key_text(out, "claim", text == NULL ? "" : text);
    free(text);
}

/* The same for a program to read. */
static void profile_results(const struct runner *runner, FILE *out) {
    struct runner_profile_result result;

    fputs("  \"profiles\": [", out);
    for (int i = 0; runner_profile_result(runner, i, &result); i++) {
        fputs(i == 0 ? "\n    {" : ",\n    {", out);
        key_text(out, "name", result.counts.name);
        fputs(", ", out);
        key_text(out, "standing", result.standing);
        fprintf(out, ", \"passed\": %d, \"failed\": %d, \"undecided\": %d, \"left_out\": %d, ",
                result.counts.passed, result.counts.failed, result.counts.undecided,
                result.counts.left_out);
        if (runner->options.parts > 0)
            fprintf(out, "\"other_parts\": %d, ", result.counts.other_parts);
        fprintf(out, "\"claimed\": %s}", result.claimed ? "true" : "false");
    }
    fputs("],\n", out);
}

static void header(const struct runner *runner, FILE *out) {
    const struct runner_options *options = &runner->options;
    const struct arena_probe *probe = &runner->arena->probe;
    struct report_machine facts;

    report_machine_read(&facts);
    fputs("{\n  ", out);
    key_text(out, "backend", probe->name);
    fprintf(out, ",\n  \"ranks\": %d,\n  ", options->ranks);
    key_text(out, "rank_mode", runner_mode_name(options->mode));
    fputs(",\n  ", out);
    key_text(out, "arch", facts.arch);
    fputs(",\n  ", out);
    key_text(out, "commit", runner_commit());
    fprintf(out, ",\n  \"format\": %d,\n  ", FORMAT_VERSION);
    key_text(out, "version", runner_version());
    fputs(",\n  ", out);
    key_text(out, "build", runner_build());
    fputs(",\n  ", out);
    key_text(out, "description", probe->description);
    fputs(",\n  ", out);
    key_text(out, "runs_on", probe->runs_on);
    fprintf(out, ",\n  \"device_count\": %d,\n  \"device_type\": %d,\n", probe->device_count,
            probe->device_type);
    capabilities(runner, out);
    machine(&facts, out);
    fputs("  ", out);
    key_time(out, "started", runner->started);
    fprintf(out, ",\n  \"seconds\": %.3f,\n", runner->seconds);
    fprintf(out, "  \"seed\": %llu,\n  \"repeat\": %d,\n  \"timeout_scale\": %g,\n  ",
            (unsigned long long)options->seed, options->repeat, options->timeout_scale);
    key_text(out, "filter", options->filter == NULL ? "*" : options->filter);
    fputs(",\n  ", out);
    key_text(out, "profile", options->profile == NULL ? "" : options->profile);
    fputs(",\n  ", out);
    if (options->parts > 0)
        fprintf(out, "\"part\": \"%d/%d\",\n  ", options->part, options->parts);
    claim(runner, out);
    fputs(",\n", out);
    profile_results(runner, out);
    fprintf(out, "  \"planned\": %d,\n", runner->planned_count);
}

static void unplanned(const struct runner *runner, FILE *out) {
    fputs("  \"not_planned\": [", out);
    for (int i = 0; i < runner->unplanned_count; i++) {
        fputs(i == 0 ? "\n    {" : ",\n    {", out);
        key_text(out, "test", runner->unplanned[i].test->name);
        fputs(", \"requirements\": ", out);
        requirements(out, runner->unplanned[i].test->requirements);
        fputs(", ", out);
        key_text(out, "reason", runner->unplanned[i].reason);
        fputc('}', out);
    }
    fputs("],\n", out);
}

void report_json(const struct runner *runner, FILE *out) {
    const struct runner_summary *summary = &runner->summary;

    header(runner, out);
    fputs("  \"results\": [\n", out);
    for (int i = 0; i < runner->result_count; i++) {
        one_result(runner, &runner->results[i], out);
        fputs(i + 1 < runner->result_count ? ",\n" : "\n", out);
    }
    fputs("  ],\n", out);
    unplanned(runner, out);
    specification(out);
    fprintf(out,
            "  \"summary\": {\"passed\": %d, \"failed\": %d, \"skipped\": %d, \"errors\": %d, "
            "\"unresolved\": %d}\n}\n",
            summary->passed, summary->failed, summary->skipped, summary->errors,
            summary->unresolved);
}
