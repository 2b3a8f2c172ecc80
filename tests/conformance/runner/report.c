/* SPDX-License-Identifier: BSD-3-Clause */
/* What the formats share: counts, names, escaping, where the report goes. */
#include "runner.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *runner_verdict_name(enum runner_verdict verdict) {
    static const char *const names[VERDICT_COUNT] = {
        "passed", "skipped", "unresolved", "failed", "error",
    };

    return (unsigned)verdict < VERDICT_COUNT ? names[verdict] : "unknown";
}

void runner_count(const struct runner *runner, struct runner_summary *summary) {
    *summary = (struct runner_summary){0};
    for (int i = 0; i < runner->result_count; i++) {
        enum runner_verdict verdict = runner->results[i].verdict;

        summary->passed += verdict == VERDICT_PASSED;
        summary->skipped += verdict == VERDICT_SKIPPED;
        summary->unresolved += verdict == VERDICT_UNRESOLVED;
        summary->failed += verdict == VERDICT_FAILED;
        summary->errors += verdict == VERDICT_ERROR;
    }
    /* What was planned and not run counts as an error, or a cut-short run would look better. */
    summary->errors += runner->planned_count - runner->result_count;
}

/* Bytes of the well-formed UTF-8 sequence at `text`, 0 if it is none. */
static size_t utf8_length(const unsigned char *text) {
    size_t length = text[0] < 0x80                       ? 1
                    : text[0] >= 0xc2 && text[0] <= 0xdf ? 2
                    : text[0] >= 0xe0 && text[0] <= 0xef ? 3
                    : text[0] >= 0xf0 && text[0] <= 0xf4 ? 4
                                                         : 0;

    for (size_t i = 1; i < length; i++)
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    if (length == 3 &&
        ((text[0] == 0xe0 && text[1] < 0xa0) || (text[0] == 0xed && text[1] > 0x9f) ||
         (text[0] == 0xef && text[1] == 0xbf && text[2] >= 0xbe)))
        return 0; /* too long a form, a surrogate, or no character of XML */
    if (length == 4 && ((text[0] == 0xf0 && text[1] < 0x90) || (text[0] == 0xf4 && text[1] > 0x8f)))
        return 0;
    return length;
}

void report_escape_xml(FILE *out, const char *text) {
    const unsigned char *at = (const unsigned char *)(text == NULL ? "" : text);

    while (*at != '\0') {
        size_t length = utf8_length(at);

        if (*at == '<')
            fputs("&lt;", out);
        else if (*at == '>')
            fputs("&gt;", out);
        else if (*at == '&')
            fputs("&amp;", out);
        else if (*at == '"')
            fputs("&quot;", out);
        else if (*at == '\n' || *at == '\t')
            fprintf(out, "&#%d;", *at); /* a plain one in an attribute would become a blank */
        else if (length == 0 || *at < 0x20 || *at == 0x7f)
            fputc('?', out);
        else
            fwrite(at, 1, length, out);
        at += length == 0 ? 1 : length;
    }
}

void report_escape_json(FILE *out, const char *text) {
    const unsigned char *at = (const unsigned char *)(text == NULL ? "" : text);

    fputc('"', out);
    while (*at != '\0') {
        size_t length = utf8_length(at);

        if (*at == '"' || *at == '\\')
            fprintf(out, "\\%c", *at);
        else if (*at == '\n')
            fputs("\\n", out);
        else if (length == 0)
            fputc('?', out);
        else if (*at < 0x20 || *at == 0x7f)
            fprintf(out, "\\u%04x", *at);
        else
            fwrite(at, 1, length, out);
        at += length == 0 ? 1 : length;
    }
    fputc('"', out);
}

void report_begin(struct runner *runner) {
    const struct runner_options *options = &runner->options;

    runner->progress = options->format == FORMAT_TEXT ? stdout : stderr;
    if (options->format == FORMAT_TEXT && options->output != NULL) {
        runner->progress = fopen(options->output, "we");
        if (runner->progress == NULL) {
            fprintf(stderr, "symmem-conformance: %s: %s\n", options->output, strerror(errno));
            runner->progress = stdout;
        }
    }
    runner->color =
        !options->no_color && getenv("NO_COLOR") == NULL && isatty(fileno(runner->progress)) == 1;
    report_text_begin(runner);
}

void report_case(struct runner *runner, const struct runner_result *result) {
    report_text_case(runner, result);
}

/* The line that scripts look for: on standard output unless that carries another format. */
static void closing_line(const struct runner *runner, const struct runner_summary *summary) {
    const struct runner_options *options = &runner->options;
    bool report_is_here = options->format != FORMAT_TEXT && options->output == NULL;
    int failed = summary->failed + summary->errors + summary->unresolved;

    fprintf(report_is_here ? stderr : stdout, "%d passed, %d failed, %d skipped\n", summary->passed,
            failed, summary->skipped);
}

/* True if it was written to the end. */
static bool write_report(const struct runner *runner) {
    static void (*const writers[])(const struct runner *, FILE *) = {
        [FORMAT_TAP] = report_tap,
        [FORMAT_JUNIT] = report_junit,
        [FORMAT_JSON] = report_json,
        [FORMAT_HTML] = report_html,
    };
    const char *path = runner->options.output;
    FILE *out = path == NULL ? stdout : fopen(path, "we");
    bool good;

    if (out == NULL) {
        fprintf(stderr, "symmem-conformance: %s: %s\n", path, strerror(errno));
        return false;
    }
    writers[runner->options.format](runner, out);
    good = ferror(out) == 0 && fflush(out) == 0;
    if (path != NULL)
        good = fclose(out) == 0 && good;
    if (!good)
        fprintf(stderr, "symmem-conformance: the report could not be written\n");
    return good;
}

enum runner_exit report_end(struct runner *runner) {
    const struct runner_options *options = &runner->options;
    struct runner_summary summary;
    bool written = true;

    runner_count(runner, &summary);
    report_text_end(runner);
    if (options->format != FORMAT_TEXT)
        written = write_report(runner);
    else if (runner->progress != stdout)
        written = fclose(runner->progress) == 0;
    else if (options->output != NULL)
        written = false; /* report_begin could not open it */
    closing_line(runner, &summary);
    fflush(stdout);
    if (summary.failed + summary.errors > 0 || !written)
        return RUNNER_FAILED;
    return summary.unresolved > 0 ? RUNNER_UNRESOLVED : RUNNER_PASSED;
}
