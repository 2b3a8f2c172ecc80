/* SPDX-License-Identifier: BSD-3-Clause */
/* One self-contained page: what each requirement's tests said, then each case. */
#include "runner.h"

#include <string.h>

static const char style[] =
    "body{font:14px/1.4 system-ui,sans-serif;margin:2em;color:#222}"
    "table{border-collapse:collapse;margin:1em 0}"
    "td,th{border:1px solid #ccc;padding:3px 8px;text-align:left;vertical-align:top}"
    "th{background:#f3f3f3}pre{margin:4px 0;white-space:pre-wrap}code{white-space:nowrap}"
    ".passed{background:#cfeecf}.skipped{background:#e4e4e4}.unresolved{background:#ffe2a8}"
    ".failed{background:#f6bdbd}.error{background:#e59a9a}.none{background:#fff}"
    "span.test{display:inline-block;padding:0 6px;margin:1px 3px 1px 0;border-radius:3px}";

static void cell_text(FILE *out, const char *text) {
    fputs("<td>", out);
    report_escape_xml(out, text);
    fputs("</td>", out);
}

static bool result_cites(const struct runner_result *result, const char *id) {
    const char *list = result->entry->test->requirements;
    char cited[64];

    while (runner_next_id(&list, cited, sizeof(cited)))
        if (strcmp(cited, id) == 0)
            return true;
    return false;
}

static void head(const struct runner *runner, const struct runner_summary *summary, FILE *out) {
    fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
          "<title>symmem conformance</title><style>",
          out);
    fputs(style, out);
    fputs("</style></head><body>\n<h1>symmem conformance: ", out);
    report_escape_xml(out, runner->arena->probe.name);
    fprintf(out, "</h1>\n<p>%d ranks (%s), seed %llu</p>\n", runner->options.ranks,
            runner_mode_name(runner->options.mode), (unsigned long long)runner->options.seed);
    fputs("<table><tr><th>passed</th><th>failed</th><th>errors</th><th>unresolved</th>"
          "<th>skipped</th></tr>",
          out);
    fprintf(out,
            "<tr><td class=\"passed\">%d</td><td class=\"failed\">%d</td><td class=\"error\">%d"
            "</td><td class=\"unresolved\">%d</td><td class=\"skipped\">%d</td></tr></table>\n",
            summary->passed, summary->failed, summary->errors, summary->unresolved,
            summary->skipped);
}

static void requirement_row(const struct runner *runner, const struct spec_requirement *requirement,
                            FILE *out) {
    enum runner_verdict worst = VERDICT_PASSED;
    int ran = 0;

    for (int i = 0; i < runner->result_count; i++)
        if (result_cites(&runner->results[i], requirement->id)) {
            ran++;
            if (runner->results[i].verdict > worst)
                worst = runner->results[i].verdict;
        }
    fprintf(out, "<tr><td class=\"%s\"><code>", ran == 0 ? "none" : runner_verdict_name(worst));
    report_escape_xml(out, requirement->id);
    fputs("</code></td>", out);
    cell_text(out, requirement->text);
    fputs("<td>", out);
    for (int i = 0; i < runner->result_count; i++)
        if (result_cites(&runner->results[i], requirement->id)) {
            fprintf(out, "<span class=\"test %s\">",
                    runner_verdict_name(runner->results[i].verdict));
            report_escape_xml(out, runner->results[i].entry->test->name);
            fputs("</span>", out);
        }
    fputs(ran == 0 ? "not run</td></tr>\n" : "</td></tr>\n", out);
}

static void result_row(const struct runner_result *result, FILE *out) {
    const char *name = runner_verdict_name(result->verdict);

    fprintf(out, "<tr><td class=\"%s\">%s</td>", name, name);
    cell_text(out, result->entry->test->name);
    cell_text(out, result->entry->test->requirements);
    fprintf(out, "<td>%d</td><td>%.3f</td><td>", result->entry->ranks, result->seconds);
    report_escape_xml(out, result->reason);
    if (result->finding_count > 0) {
        fputs("<pre>", out);
        report_escape_xml(out, result->reason);
        fputs("</pre>", out);
    }
    fputs("</td></tr>\n", out);
}

void report_html(const struct runner *runner, FILE *out) {
    struct runner_summary summary;

    summary = runner->summary;
    head(runner, &summary, out);
    fputs("<h2>Requirements</h2>\n<table><tr><th>id</th><th>requirement</th><th>tests</th></tr>\n",
          out);
    for (int i = 0; i < spec_requirement_count; i++)
        if (!spec_requirements[i].withdrawn)
            requirement_row(runner, &spec_requirements[i], out);
    fputs("</table>\n<h2>Cases</h2>\n<table><tr><th>verdict</th><th>test</th><th>requirements</th>"
          "<th>ranks</th><th>seconds</th><th>reason</th></tr>\n",
          out);
    for (int i = 0; i < runner->result_count; i++)
        result_row(&runner->results[i], out);
    fputs("</table>\n", out);
    for (int i = 0; i < runner->unplanned_count; i++) {
        fputs("<p>not planned: ", out);
        report_escape_xml(out, runner->unplanned[i].test->name);
        fprintf(out, " (%s)</p>\n", runner->unplanned[i].reason);
    }
    fputs("</body></html>\n", out);
}
