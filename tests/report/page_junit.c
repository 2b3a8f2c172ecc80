/* SPDX-License-Identifier: BSD-3-Clause */
/* A run as JUnit XML with the elements and attributes that Jenkins and GitLab read: one testsuite
 * an area. Unresolved is an <error> of its own type. */
#include "page.h"

static void outcome(const struct page_result *result, FILE *out) {
    const char *element = result->status == PAGE_FAILED ? "failure" : "error";
    if (result->status == PAGE_SKIPPED)
        report_xml(out, "      <skipped message=\"%s\"/>\n", result->reason);
    else if (page_is_bad(result->status))
        report_xml(out, "      <%s type=\"%s\" message=\"%s\">%s</%s>\n", element,
                   page_status_name(result->status), result->reason, result->detail, element);
}

static void testcase(const struct page_result *result, FILE *out) {
    report_xml(out, "    <testcase classname=\"%s\" name=\"%s", result->suite, result->test);
    if (result->repeat > 0) /* two cases of one name would be taken for one */
        report_xml(out, " (round %d)", result->repeat + 1);
    fputc('"', out);
    if (result->finding_count > 0 && result->findings[0].line != 0)
        report_xml(out, " file=\"%s\" line=\"%d\"", result->findings[0].file,
                   result->findings[0].line);
    report_xml(out, " time=\"%.6f\">\n", result->seconds);
    outcome(result, out);
    report_xml(out,
               "      <system-out>requirements: %s; ranks: %d; verdict: %s; seed: %s</system-out>\n"
               "    </testcase>\n",
               result->requirements, result->ranks, page_status_name(result->status), result->seed);
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

/* The beginning of an element that has counts. */
static void begin(const char *element, const char *name, struct counts counts, FILE *out) {
    report_xml(out,
               "<%s name=\"%s\" tests=\"%d\" failures=\"%d\" errors=\"%d\" skipped=\"%d\" "
               "time=\"%.6f\"",
               element, name, counts.tests, counts.failures, counts.errors, counts.skipped,
               counts.seconds);
}

static void testsuite(const struct page_run *run, const char *area, FILE *out) {
    fputs("  ", out);
    begin("testsuite", area, count(run, area), out);
    /* Of "2026-01-31T12:00:00Z" without the zone, as the schemas want it. */
    fprintf(out, " timestamp=\"%.*s\">\n", (int)strcspn(run->started, "Z"), run->started);
    report_xml(out,
               "    <properties>\n      <property name=\"backend\" value=\"%s\"/>\n"
               "      <property name=\"rank_mode\" value=\"%s\"/>\n"
               "      <property name=\"ranks\" value=\"%d\"/>\n"
               "      <property name=\"seed\" value=\"%s\"/>\n"
               "      <property name=\"timeout_scale\" value=\"%g\"/>\n    </properties>\n",
               run->backend, run->rank_mode, run->ranks, run->seed, run->timeout_scale);
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

/* Cases that a cut-short run did not reach must not look as if they had not been asked for. */
static void shortfall_suite(int shortfall, FILE *out) {
    fprintf(out,
            "  <testsuite name=\"run\" tests=\"1\" failures=\"0\" errors=\"1\" skipped=\"0\" "
            "time=\"0\">\n"
            "    <testcase classname=\"run\" name=\"run.is_complete\" time=\"0\">\n"
            "      <error type=\"shortfall\" message=\"%d planned cases did not run\"/>\n"
            "    </testcase>\n  </testsuite>\n",
            shortfall);
}

void page_write_junit(const struct page_run *run, FILE *out) {
    struct counts counts = count(run, NULL);
    counts.tests += run->missing > 0;
    counts.errors += run->missing > 0;
    fputs("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n", out);
    begin("testsuites", "symmem-conformance", counts, out);
    fputs(">\n", out);
    for (int i = 0; i < run->result_count; i++)
        if (is_first_of_its_area(run, i))
            testsuite(run, run->results[i].suite, out);
    if (run->missing > 0)
        shortfall_suite(run->missing, out);
    fputs("</testsuites>\n", out);
}
