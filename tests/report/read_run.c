/* SPDX-License-Identifier: BSD-3-Clause */
/* JSON of the runner and of the mutants. */
#include "read.h"

static bool find_status(const char *name, enum page_status *status_p) {
    for (int i = PAGE_PASSED; i <= PAGE_ERROR; i++)
        if (strcmp(name, page_status_name((enum page_status)i)) == 0) {
            *status_p = (enum page_status)i;
            return true;
        }
    return false;
}

/* --- one result ---------------------------------------------------------------------- */

/* Zeroed room for what the array has; *count_p is 0 without memory, too. */
static void *room_for(struct reader *reader, const cJSON *array, size_t size, int *count_p) {
    int count = cJSON_IsArray(array) ? cJSON_GetArraySize(array) : 0;
    void *room = count == 0 ? NULL : page_keep(reader->page, calloc((size_t)count, size));
    *count_p = room == NULL ? 0 : count;
    return room;
}

static const int *read_ranks(struct reader *reader, const cJSON *object, int *count_p) {
    const cJSON *array = cJSON_GetObjectItemCaseSensitive(object, "ranks"), *item;
    int *ranks = room_for(reader, array, sizeof(*ranks), count_p), *at = ranks;
    if (ranks != NULL)
        cJSON_ArrayForEach(item, array) *at++ = item->valueint;
    return ranks;
}

static void read_findings(struct reader *reader, struct page_result *result, const cJSON *array) {
    struct page_finding *at = room_for(reader, array, sizeof(*at), &result->finding_count);
    const cJSON *item;
    result->findings = at;
    if (at == NULL)
        return;
    cJSON_ArrayForEach(item, array) {
        *at = (struct page_finding){.status = PAGE_ERROR,
                                    .message = json_text(item, "message"),
                                    .expected = json_text(item, "expected"),
                                    .got = json_text(item, "got"),
                                    .file = json_text(item, "file"),
                                    .requirement = json_text(item, "requirement"),
                                    .next = json_text(item, "next"),
                                    .line = json_count(item, "line", 0),
                                    .more = (unsigned)json_count(item, "more", 0)};
        (void)find_status(json_text(item, "verdict"), &at->status);
        at->ranks = read_ranks(reader, item, &at->rank_count);
        at++;
    }
}

static void read_places(struct reader *reader, struct page_result *result, const cJSON *array) {
    struct page_place *at = room_for(reader, array, sizeof(*at), &result->place_count);
    const cJSON *item;
    result->places = at;
    if (at == NULL)
        return;
    cJSON_ArrayForEach(item, array) {
        *at = (struct page_place){.state = json_text(item, "state"),
                                  .checkpoint = json_text(item, "checkpoint"),
                                  .line = json_text(item, "line"),
                                  .point = json_text(item, "point")};
        at->ranks = read_ranks(reader, item, &at->rank_count);
        at++;
    }
}

/* The part of the test's name before the point, unless the result says otherwise. */
static const char *suite_of(struct reader *reader, const cJSON *item) {
    const char *test = json_text(item, "test"), *suite = json_text(item, "suite");
    return suite[0] != '\0' ? suite
                            : page_print(reader->page, "%.*s", (int)strcspn(test, "."), test);
}

static struct page_result case_of(struct reader *reader, const cJSON *item) {
    return (struct page_result){
        .test = json_text(item, "test"),
        .suite = suite_of(reader, item),
        .reason = json_text(item, "reason"),
        .detail = json_text(item, "detail"),
        .replay = json_text(item, "replay"),
        .requirements = json_list(reader, item, "requirements"),
        .seed = json_text(item, "seed"),
        .repeat = json_count(item, "repeat", 0),
        .output = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(item, "output"))};
}

static bool add_result(struct reader *reader, const char *path, struct page_run *run,
                       const cJSON *item) {
    struct page_result *result = PAGE_ADD(reader->page, run->results, run->result_count);
    int number = run->result_count;
    if (result == NULL)
        return read_problem(reader, path, "no memory");
    *result = case_of(reader, item);
    result->seconds = json_number(item, "seconds", 0.0);
    result->ranks = json_count(item, "ranks", run->ranks);
    read_findings(reader, result, cJSON_GetObjectItemCaseSensitive(item, "findings"));
    read_places(reader, result, cJSON_GetObjectItemCaseSensitive(item, "last_seen"));
    if (result->test[0] == '\0')
        return read_problem(reader, path, "result %d has no test", number);
    if (!find_status(json_text(item, "status"), &result->status))
        return read_problem(reader, path, "result %d (%s) has the unknown status '%s'", number,
                            result->test, json_text(item, "status"));
    return true;
}

static bool add_not_planned(struct reader *reader, const char *path, struct page_run *run,
                            const cJSON *item) {
    struct page_result *result;
    if (json_text(item, "test")[0] == '\0')
        return read_problem(reader, path, "a case that was not planned has no name");
    result = PAGE_ADD(reader->page, run->results, run->result_count);
    if (result == NULL)
        return read_problem(reader, path, "no memory");
    *result = case_of(reader, item);
    result->status = PAGE_NOT_PLANNED;
    return true;
}

/* --- the run ------------------------------------------------------------------------- */

static void read_profiles(struct reader *reader, struct page_run *run, const cJSON *array) {
    struct claim_profile *at = room_for(reader, array, sizeof(*at), &run->profile_count);
    const cJSON *item;
    run->profiles = at;
    if (at == NULL)
        return;
    cJSON_ArrayForEach(item, array) *at++ = (struct claim_profile){
        .name = json_text(item, "name"),
        .declared = strcmp(json_text(item, "standing"), "not declared") != 0,
        .passed = json_count(item, "passed", 0),
        .failed = json_count(item, "failed", 0),
        .undecided = json_count(item, "undecided", 0),
        .leaked = json_count(item, "leaked", 0),
        .left_out = json_count(item, "left_out", 0),
        .other_parts = json_count(item, "other_parts", 0),
    };
}

static void add_digests(struct reader *reader, struct page_run *run, const cJSON *texts) {
    const cJSON *item;
    cJSON_ArrayForEach(item, texts) {
        struct page_digest *digest;
        if (!cJSON_IsString(item) || item->string == NULL)
            continue;
        digest = PAGE_ADD(reader->page, run->digests, run->digest_count);
        if (digest != NULL)
            *digest = (struct page_digest){item->string, item->valuestring};
    }
}

static const char *seed_of(struct reader *reader, const cJSON *tree) {
    const cJSON *seed = cJSON_GetObjectItemCaseSensitive(tree, "seed");
    return cJSON_IsNumber(seed) ? page_print(reader->page, "%.0f", seed->valuedouble)
                                : json_text(tree, "seed");
}

static void describe(struct reader *reader, struct page_run *run, const cJSON *tree) {
    const cJSON *machine = cJSON_GetObjectItemCaseSensitive(tree, "machine");
    double bytes = json_number(machine, "memory_bytes", 0.0);
    run->backend = json_text(tree, "backend");
    run->description = json_text(tree, "description");
    run->runs_on = json_text(tree, "runs_on");
    run->rank_mode = json_text(tree, "rank_mode");
    run->arch = json_text(tree, "arch");
    run->commit = json_text(tree, "commit");
    run->version = json_text(tree, "version");
    run->build = json_text(tree, "build");
    run->started = json_text(tree, "started");
    run->profile = json_text(tree, "profile");
    run->claim = json_text(tree, "claim");
    run->filter = json_text(tree, "filter");
    run->part = json_text(tree, "part");
    run->parts = json_count(tree, "parts", 0);
    run->capabilities = json_list(reader, tree, "capabilities");
    run->device_count = json_count(tree, "device_count", 0);
    run->device_type = json_count(tree, "device_type", 0);
    run->repeat = json_count(tree, "repeat", 1);
    run->system = json_text(machine, "system");
    run->processor = json_text(machine, "processor");
    run->accelerators = json_text(machine, "accelerators");
    run->driver = json_text(machine, "driver");
    run->processors = json_count(machine, "processors", 0);
    run->memory_bytes = bytes > 0.0 && bytes < 9e15 ? (uint64_t)bytes : 0;
    run->ranks = json_count(tree, "ranks", 0);
    run->seconds = json_number(tree, "seconds", 0.0);
    run->timeout_scale = json_number(tree, "timeout_scale", 0.0);
    run->seed = seed_of(reader, tree);
    read_profiles(reader, run, cJSON_GetObjectItemCaseSensitive(tree, "profiles"));
}

static bool fill_run(struct reader *reader, const char *path, struct page_run *run,
                     const cJSON *tree) {
    const cJSON *results = cJSON_GetObjectItemCaseSensitive(tree, "results"), *item;
    run->source = read_below_root(reader, path);
    if (json_count(tree, "format", PAGE_FORMAT) != PAGE_FORMAT)
        return read_problem(reader, path, "results in format %d, where this program knows %d",
                            json_count(tree, "format", 0), PAGE_FORMAT);
    describe(reader, run, tree);
    if (run->backend[0] == '\0' || run->ranks == 0 || run->rank_mode[0] == '\0')
        return read_problem(reader, path, "a run without backend, ranks or rank_mode");
    if (!cJSON_IsArray(results))
        return read_problem(reader, path, "'results' is no array");
    cJSON_ArrayForEach(item, results) if (!add_result(reader, path, run, item)) return false;
    run->missing = json_count(tree, "planned", run->result_count) - run->result_count;
    cJSON_ArrayForEach(
        item, cJSON_GetObjectItemCaseSensitive(
                  tree, "not_planned")) if (!add_not_planned(reader, path, run, item)) return false;
    add_digests(reader, run, cJSON_GetObjectItemCaseSensitive(tree, "specification"));
    return true;
}

bool read_run(struct reader *reader, const char *path, const cJSON *tree) {
    struct page *page = reader->page;
    struct page_run *run = PAGE_ADD(page, page->runs, page->run_count);
    if (run == NULL)
        return read_problem(reader, path, "no memory");
    if (fill_run(reader, path, run, tree))
        return true;
    free(run->results);
    free(run->digests);
    page->run_count--;
    return false;
}

/* --- mutants ------------------------------------------------------------------------- */

static bool add_mutant(struct reader *reader, const char *path, const cJSON *item) {
    struct page *page = reader->page;
    struct page_mutant *mutant = PAGE_ADD(page, page->mutants, page->mutant_count);
    if (mutant == NULL)
        return read_problem(reader, path, "no memory");
    *mutant = (struct page_mutant){.name = json_text(item, "name"),
                                   .kind = json_text(item, "kind"),
                                   .museum = json_list(reader, item, "museum"),
                                   .mode = json_text(item, "mode"),
                                   .expected = json_list(reader, item, "expected"),
                                   .killed_by = json_list(reader, item, "killed_by"),
                                   .status = json_text(item, "status"),
                                   .description = json_text(item, "description"),
                                   .ranks = json_count(item, "ranks", 0),
                                   .seconds = json_number(item, "seconds", 0.0)};
    if (mutant->name[0] == '\0')
        return read_problem(reader, path, "a mutant without a name");
    if (strcmp(mutant->status, "killed") != 0 && strcmp(mutant->status, "survived") != 0 &&
        strcmp(mutant->status, "error") != 0)
        return read_problem(reader, path, "mutant %s has the unknown status '%s'", mutant->name,
                            mutant->status);
    return true;
}

bool read_mutation(struct reader *reader, const char *path, const cJSON *tree) {
    const cJSON *mutants = cJSON_GetObjectItemCaseSensitive(tree, "mutants"), *item;
    int before = reader->page->mutant_count;
    if (!cJSON_IsArray(mutants))
        return read_problem(reader, path, "'mutants' is no array");
    cJSON_ArrayForEach(item, mutants) if (!add_mutant(reader, path, item)) {
        reader->page->mutant_count = before;
        return false;
    }
    reader->page->mutants_commit = json_text(tree, "commit");
    return true;
}
