/* SPDX-License-Identifier: BSD-3-Clause */
/* JUnit XML: one testsuite an area. Unresolved is an <error> of its own type. */
#include "runner.h"

static void outcome(const struct runner_result *result, FILE *out) {
    static const char *const elements[VERDICT_COUNT] = {"", "skipped", "error", "failure", "error"};
    const char *element = elements[result->verdict];

    if (result->verdict == VERDICT_PASSED)
        return;
    fprintf(out, "      <%s", element);
    if (result->verdict != VERDICT_SKIPPED)
        fprintf(out, " type=\"%s\"", runner_verdict_name(result->verdict));
    fputs(" message=\"", out);
    report_escape_xml(out, result->reason);
    fputs("\">", out);
    report_escape_xml(out, result->detail);
    fprintf(out, "</%s>\n", element);
}

static void testcase(const struct runner_result *result, FILE *out) {
    fputs("    <testcase classname=\"", out);
    report_escape_xml(out, result->entry->suite->name);
    fputs("\" name=\"", out);
    report_escape_xml(out, result->entry->test->name);
    fprintf(out, "\" time=\"%.6f\">\n      <properties>\n", result->seconds);
    fputs("        <property name=\"requirements\" value=\"", out);
    report_escape_xml(out, result->entry->test->requirements);
    fprintf(out, "\"/>\n        <property name=\"verdict\" value=\"%s\"/>\n",
            runner_verdict_name(result->verdict));
    fprintf(out, "        <property name=\"seed\" value=\"%llu\"/>\n",
            (unsigned long long)result->seed);
    fputs("      </properties>\n", out);
    outcome(result, out);
    fputs("    </testcase>\n", out);
}

/* Results of one area; with out NULL only counts them. */
static void count_area(const struct runner *runner, const struct tk_suite *area,
                       struct runner_summary *summary, double *seconds_p) {
    *summary = (struct runner_summary){0};
    *seconds_p = 0;
    for (int i = 0; i < runner->result_count; i++) {
        const struct runner_result *result = &runner->results[i];

        if (area != NULL && result->entry->suite != area)
            continue;
        summary->passed++; /* here: all of them */
        summary->skipped += result->verdict == VERDICT_SKIPPED;
        summary->failed += result->verdict == VERDICT_FAILED;
        summary->errors +=
            result->verdict >= VERDICT_ERROR || result->verdict == VERDICT_UNRESOLVED;
        *seconds_p += result->seconds;
    }
}

static void counts(const struct runner *runner, const struct tk_suite *area, FILE *out) {
    struct runner_summary summary;
    double seconds;
    int shortfall = area == NULL ? runner->planned_count - runner->result_count : 0;

    count_area(runner, area, &summary, &seconds);
    fprintf(out, " tests=\"%d\" failures=\"%d\" errors=\"%d\" skipped=\"%d\" time=\"%.6f\"",
            summary.passed + shortfall, summary.failed, summary.errors + shortfall, summary.skipped,
            seconds);
}

static bool has_results(const struct runner *runner, const struct tk_suite *area) {
    for (int i = 0; i < runner->result_count; i++)
        if (runner->results[i].entry->suite == area)
            return true;
    return false;
}

void report_junit(const struct runner *runner, FILE *out) {
    fputs("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"symmem-conformance\"",
          out);
    counts(runner, NULL, out);
    fputs(">\n", out);
    for (int s = 0; s < runner_suite_count; s++) {
        const struct tk_suite *area = runner_suites[s];

        if (!has_results(runner, area))
            continue;
        fputs("  <testsuite name=\"", out);
        report_escape_xml(out, area->name);
        fputc('"', out);
        if (area->count > 0)
            counts(runner, area, out);
        fputs(">\n", out);
        for (int i = 0; i < runner->result_count; i++)
            if (runner->results[i].entry->suite == area)
                testcase(&runner->results[i], out);
        fputs("  </testsuite>\n", out);
    }
    fputs("</testsuites>\n", out);
}
