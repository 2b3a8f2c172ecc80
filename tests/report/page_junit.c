/* SPDX-License-Identifier: BSD-3-Clause */
/* A run as JUnit XML with the elements and attributes that Jenkins and GitLab read: one testsuite
 * an area. Unresolved is an <error> of its own type. */
#include "page.h"

#include <string.h>

static void attribute(FILE *out, const char *name, const char *value) {
    fprintf(out, " %s=\"", name);
    report_escape_xml(out, value);
    fputc('"', out);
}

static void outcome(const struct page_result *result, FILE *out) {
    static const char *const elements[PAGE_STATUS_COUNT] = {
        [PAGE_SKIPPED] = "skipped",
        [PAGE_UNRESOLVED] = "error",
        [PAGE_FAILED] = "failure",
        [PAGE_ERROR] = "error",
    };
    const char *element = elements[result->status];

    if (element == NULL)
        return;
    fprintf(out, "      <%s", element);
    if (result->status != PAGE_SKIPPED)
        attribute(out, "type", page_status_name(result->status));
    attribute(out, "message", result->reason);
    if (result->status == PAGE_SKIPPED) {
        fputs("/>\n", out);
        return;
    }
    fputc('>', out);
    report_escape_xml(out, result->detail);
    fprintf(out, "</%s>\n", element);
}

static void testcase(const struct page_result *result, FILE *out) {
    fputs("    <testcase", out);
    attribute(out, "classname", result->suite);
    fputs(" name=\"", out);
    report_escape_xml(out, result->test);
    if (result->repeat > 0) /* two cases of one name would be taken for one */
        fprintf(out, " (round %d)", result->repeat + 1);
    fputc('"', out);
    if (result->finding_count > 0 && result->findings[0].line != 0) {
        attribute(out, "file", result->findings[0].file);
        fprintf(out, " line=\"%d\"", result->findings[0].line);
    }
    fprintf(out, " time=\"%.6f\">\n", result->seconds);
    outcome(result, out);
    fputs("      <system-out>requirements: ", out);
    report_escape_xml(out, result->requirements);
    fprintf(out, "; ranks: %d; verdict: %s; seed: ", result->ranks,
            page_status_name(result->status));
    report_escape_xml(out, result->seed);
    fputs("</system-out>\n    </testcase>\n", out);
}

struct counts {
    int tests, failures, errors, skipped;
    double seconds;
};

static bool is_of(const struct page_result *result, const char *area) {
    return result->status != PAGE_NOT_PLANNED && (area == NULL || strcmp(result->suite, area) == 0);
}

/* Of one area; NULL: of all. */
static struct counts count(const struct page_run *run, const char *area) {
    struct counts counts = {0};

    for (int i = 0; i < run->result_count; i++) {
        const struct page_result *result = &run->results[i];

        if (!is_of(result, area))
            continue;
        counts.tests++;
        counts.skipped += result->status == PAGE_SKIPPED;
        counts.failures += result->status == PAGE_FAILED;
        counts.errors += result->status == PAGE_ERROR || result->status == PAGE_UNRESOLVED;
        counts.seconds += result->seconds;
    }
    return counts;
}

static void count_attributes(const struct counts *counts, FILE *out) {
    fprintf(out, " tests=\"%d\" failures=\"%d\" errors=\"%d\" skipped=\"%d\" time=\"%.6f\"",
            counts->tests, counts->failures, counts->errors, counts->skipped, counts->seconds);
}

static void property(FILE *out, const char *name, const char *value) {
    fputs("      <property", out);
    attribute(out, "name", name);
    attribute(out, "value", value);
    fputs("/>\n", out);
}

static void properties(const struct page_run *run, FILE *out) {
    char number[32];

    fputs("    <properties>\n", out);
    property(out, "backend", run->backend);
    property(out, "rank_mode", run->rank_mode);
    snprintf(number, sizeof(number), "%d", run->ranks);
    property(out, "ranks", number);
    property(out, "seed", run->seed);
    snprintf(number, sizeof(number), "%g", run->timeout_scale);
    property(out, "timeout_scale", number);
    fputs("    </properties>\n", out);
}

static void testsuite(const struct page_run *run, const char *area, FILE *out) {
    struct counts counts = count(run, area);
    char timestamp[32];

    fputs("  <testsuite", out);
    attribute(out, "name", area);
    count_attributes(&counts, out);
    /* Of "2026-01-31T12:00:00Z" without the zone, as the schemas want it. */
    snprintf(timestamp, sizeof(timestamp), "%.*s", (int)strcspn(run->started, "Z"), run->started);
    attribute(out, "timestamp", timestamp);
    fputs(">\n", out);
    properties(run, out);
    for (int i = 0; i < run->result_count; i++)
        if (is_of(&run->results[i], area))
            testcase(&run->results[i], out);
    fputs("  </testsuite>\n", out);
}

static bool is_first_of_its_area(const struct page_run *run, int number) {
    for (int i = 0; i < number; i++)
        if (is_of(&run->results[i], run->results[number].suite))
            return false;
    return run->results[number].status != PAGE_NOT_PLANNED;
}

/* Cases that a cut-short run did not come to must not look as if nobody had wanted them. */
static void shortfall_suite(int shortfall, FILE *out) {
    fputs("  <testsuite name=\"run\" tests=\"1\" failures=\"0\" errors=\"1\" skipped=\"0\" "
          "time=\"0\">\n    <testcase classname=\"run\" name=\"run.is_complete\" time=\"0\">\n",
          out);
    fprintf(out,
            "      <error type=\"shortfall\" message=\"%d planned cases did not run\"/>\n"
            "    </testcase>\n  </testsuite>\n",
            shortfall);
}

void page_write_junit(const struct page_run *run, FILE *out) {
    struct counts counts = count(run, NULL);

    counts.tests += run->missing > 0;
    counts.errors += run->missing > 0;
    fputs("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites", out);
    attribute(out, "name", "symmem-conformance");
    count_attributes(&counts, out);
    fputs(">\n", out);
    for (int i = 0; i < run->result_count; i++)
        if (is_first_of_its_area(run, i))
            testsuite(run, run->results[i].suite, out);
    if (run->missing > 0)
        shortfall_suite(run->missing, out);
    fputs("</testsuites>\n", out);
}
