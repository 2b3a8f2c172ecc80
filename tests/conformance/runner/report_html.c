/* SPDX-License-Identifier: BSD-3-Clause */
/* The page of symmem-report, of this one run. */
#include "runner.h"

#include <stdarg.h>
#include <stdlib.h>

#include "../../report/page.h"

static const enum page_status status_of[VERDICT_COUNT] = {
    [VERDICT_PASSED] = PAGE_PASSED,         [VERDICT_SKIPPED] = PAGE_SKIPPED,
    [VERDICT_UNRESOLVED] = PAGE_UNRESOLVED, [VERDICT_FAILED] = PAGE_FAILED,
    [VERDICT_ERROR] = PAGE_ERROR,
};

/* What `format` prints, kept by the page. */
static const char *kept(struct page *page, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static const char *kept(struct page *page, const char *format, ...) {
    char *text = NULL;
    va_list args;

    va_start(args, format);
    if (vasprintf(&text, format, args) < 0)
        text = NULL;
    va_end(args);
    text = page_keep(page, text);
    return text == NULL ? "" : text;
}

static const char *detail_of(struct page *page, const struct runner *runner,
                             const struct runner_result *result) {
    char *text = NULL;
    size_t length = 0;
    FILE *memory;

    if (runner_verdict_is_good(result->verdict))
        return "";
    memory = open_memstream(&text, &length);
    if (memory == NULL)
        return "";
    report_findings(runner, result, false, memory);
    fclose(memory);
    text = page_keep(page, text);
    return text == NULL ? "" : text;
}

static const char *claim_of(struct page *page, const struct runner *runner) {
    char *text = NULL;
    size_t length = 0;
    FILE *memory = open_memstream(&text, &length);

    if (memory == NULL)
        return "";
    runner_print_claim(runner, memory);
    fclose(memory);
    text = page_keep(page, text);
    return text == NULL ? "" : text;
}

static void add_results(struct page *page, struct page_run *run, const struct runner *runner) {
    struct page_result *added;

    for (int i = 0; i < runner->result_count; i++) {
        const struct runner_result *result = &runner->results[i];

        added = PAGE_ADD(page, run->results, run->result_count);
        if (added == NULL)
            return;
        *added = (struct page_result){.test = result->entry->test->name,
                                      .reason = result->reason == NULL ? "" : result->reason,
                                      .detail = detail_of(page, runner, result),
                                      .requirements = result->entry->test->requirements,
                                      .status = status_of[result->verdict],
                                      .seconds = result->seconds,
                                      .ranks = result->entry->ranks};
    }
    for (int i = 0; i < runner->unplanned_count; i++) {
        added = PAGE_ADD(page, run->results, run->result_count);
        if (added == NULL)
            return;
        *added = (struct page_result){.test = runner->unplanned[i].test->name,
                                      .reason = runner->unplanned[i].reason,
                                      .detail = "",
                                      .requirements = runner->unplanned[i].test->requirements,
                                      .status = PAGE_NOT_PLANNED};
    }
}

static void add_run(struct page *page, const struct runner *runner,
                    const struct report_machine *machine) {
    struct page_run *run = PAGE_ADD(page, page->runs, page->run_count);
    const struct runner_options *options = &runner->options;
    char capabilities[256], started[32] = "";
    struct tm parts;

    if (run == NULL)
        return;
    runner_capability_names(runner->arena->probe.capabilities, capabilities, sizeof(capabilities));
    if (gmtime_r(&runner->started, &parts) != NULL)
        strftime(started, sizeof(started), "%Y-%m-%dT%H:%M:%SZ", &parts);
    *run = (struct page_run){
        .backend = runner->arena->probe.name,
        .description = runner->arena->probe.description,
        .runs_on = runner->arena->probe.runs_on,
        .rank_mode = runner_mode_name(options->mode),
        .arch = machine->arch,
        .commit = runner_commit(),
        .build = runner_build(),
        .started = kept(page, "%s", started),
        .profile = options->profile == NULL ? "" : options->profile,
        .claim = claim_of(page, runner),
        .system = machine->system,
        .processor = machine->processor,
        .accelerators = machine->accelerators,
        .driver = machine->driver,
        .capabilities = kept(page, "%s", capabilities),
        .filter = options->filter == NULL ? "*" : options->filter,
        .seed = kept(page, "%llu", (unsigned long long)options->seed),
        .part = options->parts == 0
                    ? ""
                    : kept(page, "part %d/%d of a run", options->part, options->parts),
        .source = "",
        .timeout_scale = options->timeout_scale,
        .ranks = options->ranks,
        .processors = (int)machine->processors,
        .missing = runner->planned_count - runner->result_count,
        .seconds = runner->seconds,
    };
    add_results(page, run, runner);
}

void report_html(const struct runner *runner, FILE *out) {
    struct page page = {.title = "symmem conformance", .made = runner->started};
    struct report_machine machine;

    report_machine_read(&machine);
    for (int i = 0; i < spec_requirement_count; i++) {
        struct page_requirement *requirement =
            PAGE_ADD(&page, page.requirements, page.requirement_count);

        if (requirement == NULL)
            break;
        *requirement = (struct page_requirement){.id = spec_requirements[i].id,
                                                 .text = spec_requirements[i].text,
                                                 .digest = spec_requirements[i].digest,
                                                 .chapter = "",
                                                 .withdrawn = spec_requirements[i].withdrawn};
    }
    add_run(&page, runner, &machine);
    if (page_index(&page))
        page_write(&page, out);
    else
        fputs("<!DOCTYPE html><title>symmem conformance</title><p>No memory for the page.\n", out);
    page_free(&page);
}
