/* SPDX-License-Identifier: BSD-3-Clause */
/* The run that has just ended as what tests/report/ writes in every format. */
#include "runner.h"

static const enum page_status status_of[VERDICT_COUNT] = {
    [VERDICT_PASSED] = PAGE_PASSED,         [VERDICT_SKIPPED] = PAGE_SKIPPED,
    [VERDICT_UNRESOLVED] = PAGE_UNRESOLVED, [VERDICT_FAILED] = PAGE_FAILED,
    [VERDICT_ERROR] = PAGE_ERROR,
};

static void *room(struct page *page, int count, size_t size) {
    return count == 0 ? NULL : page_keep(page, calloc((size_t)count, size));
}

/* What `write` prints about the result. */
static const char *
printed(struct page *page, const struct runner *runner, const struct runner_result *result,
        void (*write)(const struct runner *, const struct runner_result *, FILE *)) {
    char *text = NULL;
    size_t length = 0;
    FILE *memory = open_memstream(&text, &length);
    if (memory != NULL) {
        write(runner, result, memory);
        fclose(memory);
    }
    text = page_keep(page, text);
    return text == NULL ? "" : text;
}

static void write_detail(const struct runner *runner, const struct runner_result *result,
                         FILE *out) {
    report_findings(runner, result, false, out);
}

static void write_claim(const struct runner *runner, const struct runner_result *result,
                        FILE *out) {
    (void)result;
    runner_print_claim(runner, out);
}

static const int *ranks_of(struct page *page, const struct runner_ranks *ranks, int *count_p) {
    int *list = room(page, runner_count_ranks(ranks), sizeof(*list));
    *count_p = 0;
    for (int rank = 0; list != NULL && rank < ARENA_MAX_RANKS; rank++)
        if (runner_has_rank(ranks, rank))
            list[(*count_p)++] = rank;
    return list;
}

static void add_findings(struct page *page, struct page_result *added,
                         const struct runner_result *result) {
    struct page_finding *findings = room(page, result->finding_count, sizeof(*findings));
    for (int i = 0; findings != NULL && i < result->finding_count; i++) {
        const struct runner_finding *from = &result->findings[i];
        findings[i] = (struct page_finding){
            .status = status_of[from->verdict],
            .message = from->message,
            .expected = from->expected,
            .got = from->got,
            .file = from->file,
            .requirement = from->requirement,
            .next = from->next,
            .line = from->line,
            .more = from->more,
        };
        findings[i].ranks = ranks_of(page, &from->ranks, &findings[i].rank_count);
    }
    added->findings = findings;
    added->finding_count = findings == NULL ? 0 : result->finding_count;
}

static void add_places(struct page *page, struct page_result *added,
                       const struct runner_result *result) {
    struct page_place *places = room(page, result->place_count, sizeof(*places));
    for (int i = 0; places != NULL && i < result->place_count; i++) {
        const struct runner_place *from = &result->places[i];
        places[i] = (struct page_place){.state = from->state,
                                        .checkpoint = from->checkpoint,
                                        .line = from->line,
                                        .point = from->point};
        places[i].ranks = ranks_of(page, &from->ranks, &places[i].rank_count);
    }
    added->places = places;
    added->place_count = places == NULL ? 0 : result->place_count;
}

/* As many places as JSON has, so that what is made of either has the same sums. */
static double to_microseconds(double seconds) {
    return (double)(long long)(seconds * 1e6 + 0.5) / 1e6;
}

static void fill_result(struct page *page, struct page_result *added, const struct runner *runner,
                        const struct runner_result *result) {
    bool good = runner_verdict_is_good(result->verdict);
    *added = (struct page_result){
        .test = result->entry->test->name,
        .suite = result->entry->area,
        .reason = result->reason == NULL ? "" : result->reason,
        .requirements = result->entry->test->requirements,
        .detail = good ? "" : printed(page, runner, result, write_detail),
        .replay = good ? "" : printed(page, runner, result, report_replay),
        .output = result->output,
        .seed = page_print(page, "%llu", (unsigned long long)result->seed),
        .status = status_of[result->verdict],
        .seconds = to_microseconds(result->seconds),
        .ranks = result->entry->ranks,
        .repeat = result->repeat,
    };
    add_findings(page, added, result);
    add_places(page, added, result);
}

static void add_results(struct page *page, struct page_run *run, const struct runner *runner) {
    struct page_result *added;
    for (int i = 0; i < runner->result_count; i++) {
        added = PAGE_ADD(page, run->results, run->result_count);
        if (added == NULL)
            return;
        fill_result(page, added, runner, &runner->results[i]);
    }
    for (int i = 0; i < runner->unplanned_count; i++) {
        added = PAGE_ADD(page, run->results, run->result_count);
        if (added == NULL)
            return;
        *added = (struct page_result){.test = runner->unplanned[i].test->name,
                                      .suite = "",
                                      .reason = runner->unplanned[i].reason,
                                      .requirements = runner->unplanned[i].test->requirements,
                                      .detail = "",
                                      .replay = "",
                                      .seed = "",
                                      .status = PAGE_NOT_PLANNED};
    }
}

static void add_profiles(struct page *page, struct page_run *run, const struct runner *runner) {
    struct claim_profile *profiles;
    int count = 0;
    while (runner_profile_result(runner, count, &(struct runner_profile_result){0}))
        count++;
    profiles = room(page, count, sizeof(*profiles));
    for (int i = 0; profiles != NULL && i < count; i++) {
        struct runner_profile_result result;
        runner_profile_result(runner, i, &result);
        profiles[i] = result.counts;
    }
    run->profiles = profiles;
    run->profile_count = profiles == NULL ? 0 : count;
}

static void add_specification(struct page *page, struct page_run *run) {
    for (int i = 0; i < spec_requirement_count; i++) {
        const struct spec_requirement *from = &spec_requirements[i];
        struct page_requirement *requirement =
            PAGE_ADD(page, page->requirements, page->requirement_count);
        struct page_digest *digest =
            from->withdrawn ? NULL : PAGE_ADD(page, run->digests, run->digest_count);
        if (requirement != NULL)
            *requirement = (struct page_requirement){.id = from->id,
                                                     .text = from->text,
                                                     .digest = from->digest,
                                                     .chapter = "",
                                                     .withdrawn = from->withdrawn};
        if (digest != NULL)
            *digest = (struct page_digest){from->id, from->digest};
    }
}

static const char *capabilities_of(struct page *page, const struct runner *runner) {
    char names[512];
    runner_capability_names(runner->arena->probe.capabilities, names, sizeof(names));
    for (char *at = names; *at != '\0'; at++)
        *at = *at == '+' ? ',' : *at;
    return names[0] == '-' ? "" : page_print(page, "%s", names);
}

static void fill_machine(struct page *page, struct page_run *run) {
    struct report_machine machine;
    report_machine_read(&machine);
    run->arch = page_print(page, "%s", machine.arch);
    run->system = page_print(page, "%s", machine.system);
    run->processor = page_print(page, "%s", machine.processor);
    run->accelerators = page_print(page, "%s", machine.accelerators);
    run->driver = page_print(page, "%s", machine.driver);
    run->processors = (int)machine.processors;
    run->memory_bytes = machine.memory_bytes;
}

/* "2026-01-31T12:00:00Z" */
static const char *started_of(struct page *page, const struct runner *runner) {
    char text[32] = "";
    struct tm parts;
    if (gmtime_r(&runner->started, &parts) != NULL)
        strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
    return page_print(page, "%s", text);
}

static void fill_run(struct page *page, struct page_run *run, const struct runner *runner) {
    const struct runner_options *options = &runner->options;
    const struct arena_probe *probe = &runner->arena->probe;
    *run = (struct page_run){
        .backend = probe->name,
        .description = probe->description,
        .runs_on = probe->runs_on,
        .rank_mode = runner_mode_name(options->mode),
        .commit = runner_commit(),
        .version = runner_version(),
        .build = runner_build(),
        .started = started_of(page, runner),
        .profile = options->profile == NULL ? "" : options->profile,
        .claim = printed(page, runner, NULL, write_claim),
        .capabilities = capabilities_of(page, runner),
        .filter = options->filter == NULL ? "*" : options->filter,
        .seed = page_print(page, "%llu", (unsigned long long)options->seed),
        .part = options->parts == 0 ? "" : page_print(page, "%d/%d", options->part, options->parts),
        .source = "",
        .timeout_scale = options->timeout_scale,
        .ranks = options->ranks,
        .device_count = probe->device_count,
        .device_type = probe->device_type,
        .repeat = options->repeat,
        .missing = runner->planned_count - runner->result_count,
        .interrupted = runner->interrupted != 0,
        .seconds = runner->seconds,
    };
    fill_machine(page, run);
    add_profiles(page, run, runner);
}

bool report_model(const struct runner *runner, struct page *page) {
    struct page_run *run = PAGE_ADD(page, page->runs, page->run_count);
    page->title = "symmem conformance";
    page->made = runner->started;
    if (run == NULL)
        return false;
    fill_run(page, run, runner);
    add_results(page, run, runner);
    add_specification(page, run);
    return page_index(page) && !page->no_memory;
}
