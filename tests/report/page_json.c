/* SPDX-License-Identifier: BSD-3-Clause */
/* A run as JSON: the format that all others can be made from. Its keys are fixed; new ones may be
 * added. */
#include "page.h"

static void word_array(FILE *out, const char *list) {
    char word[128];
    fputc('[', out);
    for (const char *separator = ""; page_next(&list, word, sizeof(word)); separator = ", ") {
        fputs(separator, out);
        report_escape_json(out, word);
    }
    fputc(']', out);
}

static void rank_array(FILE *out, const char *before, const int *ranks, int count) {
    fprintf(out, "%s\"ranks\": [", before);
    for (int i = 0; i < count; i++)
        fprintf(out, "%s%d", i == 0 ? "" : ", ", ranks[i]);
    fputc(']', out);
}

/* --- results ------------------------------------------------------------------------- */

static void one_finding(const struct page_finding *finding, FILE *out) {
    report_json(out, "{\"verdict\": %s", page_status_name(finding->status));
    rank_array(out, ", ", finding->ranks, finding->rank_count);
    report_json(out, ", \"message\": %s", finding->message);
    if (finding->expected[0] != '\0')
        report_json(out, ", \"expected\": %s, \"got\": %s", finding->expected, finding->got);
    if (finding->line != 0)
        report_json(out, ", \"file\": %s, \"line\": %d", finding->file, finding->line);
    if (finding->requirement[0] != '\0')
        report_json(out, ", \"requirement\": %s", finding->requirement);
    if (finding->more > 0)
        report_json(out, ", \"more\": %d", (int)finding->more);
    if (finding->next[0] != '\0')
        report_json(out, ", \"next\": %s", finding->next);
    fputc('}', out);
}

static void findings(const struct page_result *result, FILE *out) {
    fputs(",\n     \"findings\": [", out);
    for (int i = 0; i < result->finding_count; i++) {
        fputs(i == 0 ? "" : ", ", out);
        one_finding(&result->findings[i], out);
    }
    fputs("],\n     \"last_seen\": [", out);
    for (int i = 0; i < result->place_count; i++) {
        const struct page_place *place = &result->places[i];
        rank_array(out, i == 0 ? "{" : ", {", place->ranks, place->rank_count);
        report_json(out, ", \"state\": %s, \"checkpoint\": %s, \"line\": %s, \"point\": %s}",
                    place->state, place->checkpoint, place->line, place->point);
    }
    fputc(']', out);
}

/* Most names begin with their suite's; to name it again would say nothing. */
static bool names_its_suite(const struct page_result *result) {
    size_t length = strcspn(result->test, ".");
    return strlen(result->suite) == length && strncmp(result->test, result->suite, length) == 0;
}

static void case_head(const struct page_result *result, FILE *out) {
    report_json(out, "    {\"test\": %s", result->test);
    if (!names_its_suite(result) && result->suite[0] != '\0')
        report_json(out, ", \"suite\": %s", result->suite);
    fputs(", \"requirements\": ", out);
    word_array(out, result->requirements);
}

static void one_result(const struct page_result *result, FILE *out) {
    case_head(result, out);
    report_json(out,
                ", \"status\": %s, \"reason\": %s, \"seconds\": %.6f, \"ranks\": %d, "
                "\"repeat\": %d, \"seed\": %s",
                page_status_name(result->status), result->reason, result->seconds, result->ranks,
                result->repeat, result->seed);
    if (page_is_bad(result->status)) {
        findings(result, out);
        report_json(out, ", \"detail\": %s, \"replay\": %s", result->detail, result->replay);
    }
    if (result->output != NULL)
        report_json(out, ", \"output\": %s", result->output);
    fputc('}', out);
}

static void results(const struct page_run *run, FILE *out) {
    const char *separator = "\n";
    fputs(",\n  \"results\": [", out);
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
    fputs(",\n  \"not_planned\": [", out);
    for (int i = 0; i < run->result_count; i++) {
        if (run->results[i].status != PAGE_NOT_PLANNED)
            continue;
        fputs(separator, out);
        case_head(&run->results[i], out);
        report_json(out, ", \"reason\": %s}", run->results[i].reason);
        separator = ",\n";
    }
    fputc(']', out);
}

/* --- the run ------------------------------------------------------------------------- */

static void profiles(const struct page_run *run, FILE *out) {
    struct claim claim = page_claim(run);
    fputs(",\n  \"profiles\": [", out);
    for (int i = 0; i < run->profile_count; i++) {
        const struct claim_profile *profile = &run->profiles[i];
        fputs(i == 0 ? "" : ",", out);
        report_json(out,
                    "\n    {\"name\": %s, \"standing\": %s, \"passed\": %d, \"failed\": %d, "
                    "\"undecided\": %d, \"left_out\": %d",
                    profile->name, claim_standing(profile), profile->passed, profile->failed,
                    profile->undecided, profile->left_out);
        if (run->part[0] != '\0')
            report_json(out, ", \"other_parts\": %d", profile->other_parts);
        if (profile->leaked > 0)
            report_json(out, ", \"leaked\": %d", profile->leaked);
        fprintf(out, ", \"claimed\": %s}", claim_has(&claim, i) ? "true" : "false");
    }
    fputc(']', out);
}

static void backend(const struct page_run *run, FILE *out) {
    report_json(out,
                "{\n  \"backend\": %s,\n  \"ranks\": %d,\n  \"rank_mode\": %s,\n  \"arch\": %s,\n"
                "  \"commit\": %s,\n  \"format\": %d,\n  \"version\": %s,\n  \"build\": %s,\n"
                "  \"description\": %s,\n  \"runs_on\": %s,\n  \"device_count\": %d,\n"
                "  \"device_type\": %d,\n  \"capabilities\": ",
                run->backend, run->ranks, run->rank_mode, run->arch, run->commit, PAGE_FORMAT,
                run->version, run->build, run->description, run->runs_on, run->device_count,
                run->device_type);
    word_array(out, run->capabilities);
    report_json(out,
                ",\n  \"machine\": {\"system\": %s, \"processor\": %s, \"processors\": %d, "
                "\"memory_bytes\": %lld, \"accelerators\": %s, \"driver\": %s}",
                run->system, run->processor, run->processors, (long long)run->memory_bytes,
                run->accelerators, run->driver);
}

static bool is_number(const char *digits) {
    return digits[0] != '\0' && digits[strspn(digits, "0123456789")] == '\0';
}

static void circumstances(const struct page_run *run, FILE *out) {
    report_json(out, ",\n  \"started\": %s,\n  \"seconds\": %.3f", run->started, run->seconds);
    fprintf(out, ",\n  \"seed\": %s", is_number(run->seed) ? run->seed : "0");
    report_json(out, ",\n  \"repeat\": %d", run->repeat);
    if (run->timeout_scale > 0.0)
        report_json(out, ",\n  \"timeout_scale\": %g", run->timeout_scale);
    report_json(out, ",\n  \"filter\": %s,\n  \"profile\": %s", run->filter, run->profile);
    if (run->part[0] != '\0')
        report_json(out, ",\n  \"part\": %s", run->part);
    if (run->parts > 0)
        report_json(out, ",\n  \"parts\": %d", run->parts);
    report_json(out, ",\n  \"claim\": %s", run->claim);
    profiles(run, out);
}

/* The texts that the results speak of: a sentence may have changed since. */
static void specification(const struct page_run *run, FILE *out) {
    fputs(",\n  \"specification\": {", out);
    for (int i = 0; i < run->digest_count; i++) {
        fputs(i == 0 ? "\n    " : ",\n    ", out);
        report_json(out, "%s: %s", run->digests[i].id, run->digests[i].digest);
    }
    fputc('}', out);
}

void page_write_json(const struct page_run *run, FILE *out) {
    struct page_counts counts = page_count(run);
    backend(run, out);
    circumstances(run, out);
    report_json(out, ",\n  \"planned\": %d", counts.planned);
    results(run, out);
    not_planned(run, out);
    specification(run, out);
    report_json(out,
                ",\n  \"summary\": {\"passed\": %d, \"failed\": %d, \"skipped\": %d, "
                "\"errors\": %d, \"unresolved\": %d}\n}\n",
                counts.passed, counts.failed, counts.skipped, counts.errors, counts.unresolved);
}
