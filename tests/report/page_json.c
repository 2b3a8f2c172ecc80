/* SPDX-License-Identifier: BSD-3-Clause */
/* A run as JSON: the format that all others can be made from. Its keys are fixed; new ones may be
 * added. */
#include "page.h"

#include <string.h>

static const char *const lines = ",\n  "; /* between keys of the run, each on a line of its own */
static const char *const words = ", ";    /* of all else */

static void key(FILE *out, const char *separator, const char *name) {
    fprintf(out, "%s\"%s\": ", separator, name);
}

static void text(FILE *out, const char *separator, const char *name, const char *value) {
    key(out, separator, name);
    report_escape_json(out, value);
}

/* What is not there is left out. */
static void text_if_any(FILE *out, const char *name, const char *value) {
    if (value[0] != '\0')
        text(out, words, name, value);
}

static void number(FILE *out, const char *separator, const char *name, long long value) {
    key(out, separator, name);
    fprintf(out, "%lld", value);
}

static void word_array(FILE *out, const char *list) {
    char word[128];

    fputc('[', out);
    for (const char *separator = ""; page_next(&list, word, sizeof(word)); separator = words) {
        fputs(separator, out);
        report_escape_json(out, word);
    }
    fputc(']', out);
}

static void rank_array(FILE *out, const char *separator, const int *ranks, int count) {
    key(out, separator, "ranks");
    fputc('[', out);
    for (int i = 0; i < count; i++)
        fprintf(out, "%s%d", i == 0 ? "" : words, ranks[i]);
    fputc(']', out);
}

/* --- results ------------------------------------------------------------------------- */

static void one_finding(const struct page_finding *finding, FILE *out) {
    text(out, "{", "verdict", page_status_name(finding->status));
    rank_array(out, words, finding->ranks, finding->rank_count);
    text(out, words, "message", finding->message);
    if (finding->expected[0] != '\0') {
        text(out, words, "expected", finding->expected);
        text(out, words, "got", finding->got);
    }
    if (finding->line != 0) {
        text(out, words, "file", finding->file);
        number(out, words, "line", finding->line);
    }
    text_if_any(out, "requirement", finding->requirement);
    if (finding->more > 0)
        number(out, words, "more", finding->more);
    text_if_any(out, "next", finding->next);
    fputc('}', out);
}

static void findings(const struct page_result *result, FILE *out) {
    key(out, ",\n     ", "findings");
    fputc('[', out);
    for (int i = 0; i < result->finding_count; i++) {
        fputs(i == 0 ? "" : words, out);
        one_finding(&result->findings[i], out);
    }
    key(out, "],\n     ", "last_seen");
    fputc('[', out);
    for (int i = 0; i < result->place_count; i++) {
        const struct page_place *place = &result->places[i];

        rank_array(out, i == 0 ? "{" : ", {", place->ranks, place->rank_count);
        text(out, words, "state", place->state);
        text(out, words, "checkpoint", place->checkpoint);
        text(out, words, "line", place->line);
        text(out, words, "point", place->point);
        fputc('}', out);
    }
    fputc(']', out);
}

/* Most names begin with their suite's; to name it again would say nothing. */
static bool names_its_suite(const struct page_result *result) {
    size_t length = strcspn(result->test, ".");

    return strlen(result->suite) == length && strncmp(result->test, result->suite, length) == 0;
}

static void case_head(const struct page_result *result, FILE *out) {
    text(out, "    {", "test", result->test);
    if (!names_its_suite(result))
        text_if_any(out, "suite", result->suite);
    key(out, words, "requirements");
    word_array(out, result->requirements);
}

static void one_result(const struct page_result *result, FILE *out) {
    case_head(result, out);
    text(out, words, "status", page_status_name(result->status));
    text(out, words, "reason", result->reason);
    fprintf(out, ", \"seconds\": %.6f", result->seconds);
    number(out, words, "ranks", result->ranks);
    number(out, words, "repeat", result->repeat);
    text(out, words, "seed", result->seed);
    if (page_is_bad(result->status)) {
        findings(result, out);
        text(out, words, "detail", result->detail);
        text(out, words, "replay", result->replay);
    }
    if (result->output != NULL)
        text(out, words, "output", result->output);
    fputc('}', out);
}

static void results(const struct page_run *run, FILE *out) {
    const char *separator = "\n";

    key(out, lines, "results");
    fputc('[', out);
    for (int i = 0; i < run->result_count; i++) {
        if (run->results[i].status == PAGE_NOT_PLANNED)
            continue;
        fputs(separator, out);
        one_result(&run->results[i], out);
        separator = ",\n";
    }
    fputs("\n  ]", out);
}

static void not_planned(const struct page_run *run, FILE *out) {
    const char *separator = "\n";

    key(out, lines, "not_planned");
    fputc('[', out);
    for (int i = 0; i < run->result_count; i++) {
        if (run->results[i].status != PAGE_NOT_PLANNED)
            continue;
        fputs(separator, out);
        case_head(&run->results[i], out);
        text(out, words, "reason", run->results[i].reason);
        fputc('}', out);
        separator = ",\n";
    }
    fputc(']', out);
}

/* --- the run ------------------------------------------------------------------------- */

static void machine(const struct page_run *run, FILE *out) {
    key(out, lines, "machine");
    text(out, "{", "system", run->system);
    text(out, words, "processor", run->processor);
    number(out, words, "processors", run->processors);
    number(out, words, "memory_bytes", (long long)run->memory_bytes);
    text(out, words, "accelerators", run->accelerators);
    text(out, words, "driver", run->driver);
    fputc('}', out);
}

static void profiles(const struct page_run *run, FILE *out) {
    struct claim claim = page_claim(run);

    key(out, lines, "profiles");
    fputc('[', out);
    for (int i = 0; i < run->profile_count; i++) {
        const struct claim_profile *profile = &run->profiles[i];

        text(out, i == 0 ? "\n    {" : ",\n    {", "name", profile->name);
        text(out, words, "standing", claim_standing(profile));
        number(out, words, "passed", profile->passed);
        number(out, words, "failed", profile->failed);
        number(out, words, "undecided", profile->undecided);
        number(out, words, "left_out", profile->left_out);
        if (run->part[0] != '\0')
            number(out, words, "other_parts", profile->other_parts);
        fprintf(out, ", \"claimed\": %s}", claim_has(&claim, i) ? "true" : "false");
    }
    fputc(']', out);
}

static void backend(const struct page_run *run, FILE *out) {
    text(out, "{\n  ", "backend", run->backend);
    number(out, lines, "ranks", run->ranks);
    text(out, lines, "rank_mode", run->rank_mode);
    text(out, lines, "arch", run->arch);
    text(out, lines, "commit", run->commit);
    number(out, lines, "format", PAGE_FORMAT);
    text(out, lines, "version", run->version);
    text(out, lines, "build", run->build);
    text(out, lines, "description", run->description);
    text(out, lines, "runs_on", run->runs_on);
    number(out, lines, "device_count", run->device_count);
    number(out, lines, "device_type", run->device_type);
    key(out, lines, "capabilities");
    word_array(out, run->capabilities);
    machine(run, out);
}

static bool is_number(const char *digits) {
    return digits[0] != '\0' && digits[strspn(digits, "0123456789")] == '\0';
}

static void circumstances(const struct page_run *run, FILE *out) {
    text(out, lines, "started", run->started);
    fprintf(out, ",\n  \"seconds\": %.3f", run->seconds);
    fprintf(out, ",\n  \"seed\": %s", is_number(run->seed) ? run->seed : "0");
    number(out, lines, "repeat", run->repeat);
    if (run->timeout_scale > 0.0)
        fprintf(out, ",\n  \"timeout_scale\": %g", run->timeout_scale);
    text(out, lines, "filter", run->filter);
    text(out, lines, "profile", run->profile);
    if (run->part[0] != '\0')
        text(out, lines, "part", run->part);
    if (run->parts > 0)
        number(out, lines, "parts", run->parts);
    text(out, lines, "claim", run->claim);
    profiles(run, out);
}

/* Of which texts the results speak: a sentence may have changed since. */
static void specification(const struct page_run *run, FILE *out) {
    key(out, lines, "specification");
    fputc('{', out);
    for (int i = 0; i < run->digest_count; i++) {
        fputs(i == 0 ? "\n    " : ",\n    ", out);
        report_escape_json(out, run->digests[i].id);
        fputs(": ", out);
        report_escape_json(out, run->digests[i].digest);
    }
    fputc('}', out);
}

void page_write_json(const struct page_run *run, FILE *out) {
    struct page_counts counts = page_count(run);

    backend(run, out);
    circumstances(run, out);
    number(out, lines, "planned", counts.planned);
    results(run, out);
    not_planned(run, out);
    specification(run, out);
    key(out, lines, "summary");
    number(out, "{", "passed", counts.passed);
    number(out, words, "failed", counts.failed);
    number(out, words, "skipped", counts.skipped);
    number(out, words, "errors", counts.errors);
    number(out, words, "unresolved", counts.unresolved);
    fputs("}\n}\n", out);
}
