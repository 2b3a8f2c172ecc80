/* SPDX-License-Identifier: BSD-3-Clause */
/* What the formats share: counts, names, escaping, where the report goes. */
#include "runner.h"

#include <sys/file.h>
#include <sys/stat.h>

const char *runner_verdict_name(enum runner_verdict verdict) {
    static const char *const names[VERDICT_COUNT] = {
        "passed", "skipped", "unresolved", "failed", "error",
    };
    return (unsigned)verdict < VERDICT_COUNT ? names[verdict] : "unknown";
}

bool runner_verdict_is_good(enum runner_verdict verdict) {
    return verdict == VERDICT_PASSED || verdict == VERDICT_SKIPPED;
}

static void count(struct runner_summary *summary, enum runner_verdict verdict, int by) {
    summary->passed += by * (verdict == VERDICT_PASSED);
    summary->skipped += by * (verdict == VERDICT_SKIPPED);
    summary->unresolved += by * (verdict == VERDICT_UNRESOLVED);
    summary->failed += by * (verdict == VERDICT_FAILED);
    summary->errors += by * (verdict == VERDICT_ERROR);
}

void report_blame_last(struct runner *runner, const char *message) {
    struct runner_result *last = &runner->results[runner->result_count - 1];
    if (runner->result_count == 0 || !runner_verdict_is_good(last->verdict))
        return;
    count(&runner->summary, last->verdict, -1);
    last->verdict = VERDICT_ERROR;
    count(&runner->summary, last->verdict, 1);
    free(last->reason);
    last->reason = strdup(message);
    last->findings = calloc(1, sizeof(*last->findings));
    if (last->findings == NULL)
        return;
    last->finding_count = 1;
    snprintf(last->findings[0].message, sizeof(last->findings[0].message), "%s", message);
}

/* An interactive terminal that understands more than lines. */
static bool is_live(const struct runner *runner) {
    const char *term = getenv("TERM"), *ci = getenv("CI");
    return isatty(fileno(runner->progress)) == 1 && term != NULL && strcmp(term, "dumb") != 0 &&
           (ci == NULL || ci[0] == '\0' || strcmp(ci, "false") == 0);
}

static bool wants_color(const struct runner *runner) {
    const char *term = getenv("TERM"), *no_color = getenv("NO_COLOR");
    return !runner->options.no_color && (no_color == NULL || no_color[0] == '\0') && term != NULL &&
           strcmp(term, "dumb") != 0 && isatty(fileno(runner->progress)) == 1;
}

void report_limits(const struct runner *runner, FILE *out) {
    if (claim_has_other_limits(runner->options.timeout_scale))
        fprintf(out, ", limits x %g", runner->options.timeout_scale);
}

/* One run writes a file at a time, or two would mix. Not where many may write, as to a terminal. */
static bool take_file(int fd) {
    struct stat info;
    if (fstat(fd, &info) != 0)
        return false;
    return !S_ISREG(info.st_mode) || (flock(fd, LOCK_EX | LOCK_NB) == 0 && ftruncate(fd, 0) == 0);
}

static bool open_file(const char *path, FILE **file_p) {
    const int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd >= 0 && take_file(fd))
        *file_p = fdopen(fd, "w");
    if (*file_p != NULL)
        return true;
    fprintf(stderr, "symmem-conformance: %s: %s\n", path,
            fd >= 0 && errno == EWOULDBLOCK ? "another run writes there" : strerror(errno));
    if (fd >= 0)
        close(fd);
    return false;
}

bool report_open(struct runner *runner) {
    const struct runner_options *options = &runner->options;
    for (int i = 0; i < options->report_count; i++)
        if (!open_file(options->reports[i].path, &runner->files[i]))
            return false;
    return options->output == NULL || open_file(options->output, &runner->output_file);
}

static void forget(FILE *file) {
    if (file != NULL && fileno(file) > STDERR_FILENO)
        close(fileno(file));
}

void report_forget(const struct runner *runner) {
    for (int i = 0; i < RUNNER_MAX_REPORTS; i++)
        forget(runner->files[i]);
    forget(runner->output_file);
}

void report_close(struct runner *runner) {
    for (int i = 0; i < RUNNER_MAX_REPORTS; i++)
        if (runner->files[i] != NULL)
            fclose(runner->files[i]);
    if (runner->output_file != NULL)
        fclose(runner->output_file);
}

void report_begin(struct runner *runner) {
    const struct runner_options *options = &runner->options;
    runner->progress = options->format != FORMAT_TEXT ? stderr
                       : options->output != NULL      ? runner->output_file
                                                      : stdout;
    runner->start_ns = arena_now_ns();
    runner->started = time(NULL);
    runner->color = wants_color(runner);
    runner->live.on = is_live(runner);
    report_text_begin(runner);
}

void report_start(struct runner *runner, const struct runner_entry *entry) {
    runner->live.entry = entry;
    runner->live.entry_start_ns = arena_now_ns();
    report_live_draw(runner, false);
}

void report_tick(struct runner *runner) {
    report_live_draw(runner, false);
}

void report_case(struct runner *runner, const struct runner_result *result) {
    count(&runner->summary, result->verdict, 1);
    runner->live.entry = NULL;
    report_text_case(runner, result);
}

int report_failed(const struct runner *runner) {
    const struct runner_summary *summary = &runner->summary;
    return summary->failed + summary->errors + summary->unresolved + (runner->whole_count == 0);
}

/* The line that scripts look for: on standard output unless that carries another format. */
static void closing_line(const struct runner *runner) {
    const struct runner_options *options = &runner->options;
    const struct runner_summary *summary = &runner->summary;
    bool report_is_here = options->format != FORMAT_TEXT && options->output == NULL;
    FILE *out = report_is_here ? stderr : stdout;
    fprintf(out, "%d passed, %d failed, %d skipped", summary->passed, report_failed(runner),
            summary->skipped);
    if (options->parts > 0)
        fprintf(out, ", part %d/%d", options->part, options->parts);
    fputc('\n', out);
}

static bool unwritten(const char *path) {
    fprintf(stderr, "symmem-conformance: the report could not be written%s%s\n",
            path == NULL ? "" : ": ", path == NULL ? "" : path);
    return false;
}

/* To the end, and closes the file; *file_p is NULL for standard output. True if all was written. */
static bool finish(FILE **file_p, const char *path) {
    FILE *out = *file_p == NULL ? stdout : *file_p;
    bool good = ferror(out) == 0 && fflush(out) == 0;
    if (*file_p != NULL)
        good = fclose(out) == 0 && good;
    *file_p = NULL;
    return good || unwritten(path);
}

static bool write_report(const struct page *page, enum runner_format format, FILE **file_p,
                         const char *path) {
    FILE *out = *file_p == NULL ? stdout : *file_p;
    switch (format) {
    case FORMAT_TEXT: /* what went wrong then is remembered by the stream */
        break;
    case FORMAT_TAP:
        page_write_tap(page, &page->runs[0], out);
        break;
    case FORMAT_JUNIT:
        page_write_junit(&page->runs[0], out);
        break;
    case FORMAT_JSON:
        page_write_json(&page->runs[0], out);
        break;
    case FORMAT_HTML:
        page_write(page, out);
        break;
    }
    return finish(file_p, path);
}

static bool write_reports(struct runner *runner, const struct page *page) {
    const struct runner_options *options = &runner->options;
    bool written = true;
    for (int i = 0; i < options->report_count; i++)
        written = write_report(page, options->reports[i].format, &runner->files[i],
                               options->reports[i].path) &&
                  written;
    return write_report(page, options->format, &runner->output_file, options->output) && written;
}

static bool write_all(struct runner *runner) {
    struct page page = {.title = ""};
    bool written = report_model(runner, &page);
    if (written) {
        report_text_end(runner, &page);
        written = write_reports(runner, &page);
    } else {
        unwritten("no memory");
    }
    page_free(&page);
    return written;
}

enum runner_exit report_end(struct runner *runner) {
    struct runner_summary *summary = &runner->summary;
    /* What was planned and not run counts as an error, or a cut-short run would look better. */
    summary->errors += runner->planned_count - runner->result_count;
    runner->seconds = (double)(arena_now_ns() - runner->start_ns) / 1e9;
    bool written = write_all(runner);
    closing_line(runner);
    if (fflush(stdout) != 0 || ferror(stdout) != 0)
        written = false;
    if (summary->failed + summary->errors > 0 || runner->whole_count == 0 || !written)
        return RUNNER_FAILED;
    return summary->unresolved > 0 ? RUNNER_UNRESOLVED : RUNNER_PASSED;
}
