/* SPDX-License-Identifier: BSD-3-Clause */
/* JUnit XML with the elements and attributes that Jenkins and GitLab read: one testsuite an area.
 * Unresolved is an <error> of its own type. */
#include "runner.h"

#include <stdlib.h>

static void attribute(FILE *out, const char *name, const char *value) {
    fprintf(out, " %s=\"", name);
    report_escape_xml(out, value);
    fputc('"', out);
}

static void outcome(const struct runner *runner, const struct runner_result *result, FILE *out) {
    static const char *const elements[VERDICT_COUNT] = {"", "skipped", "error", "failure", "error"};
    const char *element = elements[result->verdict];
    char *detail = NULL;
    size_t length = 0;
    FILE *memory;

    if (result->verdict == VERDICT_PASSED)
        return;
    fprintf(out, "      <%s", element);
    if (result->verdict != VERDICT_SKIPPED)
        attribute(out, "type", runner_verdict_name(result->verdict));
    attribute(out, "message", result->reason);
    memory = result->verdict == VERDICT_SKIPPED ? NULL : open_memstream(&detail, &length);
    if (memory == NULL) {
        fputs("/>\n", out);
        return;
    }
    report_findings(runner, result, false, memory);
    fclose(memory);
    fputc('>', out);
    report_escape_xml(out, detail);
    fprintf(out, "</%s>\n", element);
    free(detail);
}

static void testcase(const struct runner *runner, const struct runner_result *result, FILE *out) {
    char name[300];

    /* Two cases of one name would be taken for one. */
    snprintf(name, sizeof(name), result->repeat == 0 ? "%s" : "%s (round %d)",
             result->entry->test->name, result->repeat + 1);
    fputs("    <testcase", out);
    attribute(out, "classname", result->entry->suite->name);
    attribute(out, "name", name);
    if (result->finding_count > 0 && result->findings[0].line != 0) {
        attribute(out, "file", result->findings[0].file);
        fprintf(out, " line=\"%d\"", result->findings[0].line);
    }
    fprintf(out, " time=\"%.6f\">\n", result->seconds);
    outcome(runner, result, out);
    fputs("      <system-out>requirements: ", out);
    report_escape_xml(out, result->entry->test->requirements);
    fprintf(out, "; ranks: %d; verdict: %s; seed: %llu</system-out>\n", result->entry->ranks,
            runner_verdict_name(result->verdict), (unsigned long long)result->seed);
    fputs("    </testcase>\n", out);
}

struct counts {
    int tests, failures, errors, skipped;
    double seconds;
};

/* Of one area; NULL: of all. */
static struct counts count(const struct runner *runner, const struct tk_suite *area) {
    struct counts counts = {0};

    for (int i = 0; i < runner->result_count; i++) {
        const struct runner_result *result = &runner->results[i];

        if (area != NULL && result->entry->suite != area)
            continue;
        counts.tests++;
        counts.skipped += result->verdict == VERDICT_SKIPPED;
        counts.failures += result->verdict == VERDICT_FAILED;
        counts.errors += result->verdict == VERDICT_ERROR || result->verdict == VERDICT_UNRESOLVED;
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

static void properties(const struct runner *runner, FILE *out) {
    char number[32];

    fputs("    <properties>\n", out);
    property(out, "backend", runner->arena->probe.name);
    property(out, "rank_mode", runner_mode_name(runner->options.mode));
    snprintf(number, sizeof(number), "%d", runner->options.ranks);
    property(out, "ranks", number);
    snprintf(number, sizeof(number), "%llu", (unsigned long long)runner->options.seed);
    property(out, "seed", number);
    snprintf(number, sizeof(number), "%g", runner->options.timeout_scale);
    property(out, "timeout_scale", number);
    fputs("    </properties>\n", out);
}

static void testsuite(const struct runner *runner, const struct tk_suite *area,
                      const char *timestamp, FILE *out) {
    struct counts counts = count(runner, area);

    if (counts.tests == 0)
        return;
    fputs("  <testsuite", out);
    attribute(out, "name", area->name);
    count_attributes(&counts, out);
    attribute(out, "timestamp", timestamp);
    fputs(">\n", out);
    properties(runner, out);
    for (int i = 0; i < runner->result_count; i++)
        if (runner->results[i].entry->suite == area)
            testcase(runner, &runner->results[i], out);
    fputs("  </testsuite>\n", out);
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

void report_junit(const struct runner *runner, FILE *out) {
    struct counts counts = count(runner, NULL);
    int shortfall = runner->planned_count - runner->result_count;
    char timestamp[32] = "";
    struct tm parts;

    if (gmtime_r(&runner->started, &parts) != NULL)
        strftime(timestamp, sizeof(timestamp), "%Y-%m-%dT%H:%M:%S", &parts);
    counts.tests += shortfall > 0;
    counts.errors += shortfall > 0;
    fputs("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites", out);
    attribute(out, "name", "symmem-conformance");
    count_attributes(&counts, out);
    fputs(">\n", out);
    for (int s = 0; s < runner_suite_count; s++)
        testsuite(runner, runner_suites[s], timestamp, out);
    if (shortfall > 0)
        shortfall_suite(shortfall, out);
    fputs("</testsuites>\n", out);
}
