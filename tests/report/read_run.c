/* SPDX-License-Identifier: BSD-3-Clause */
/* JSON of the runner and of the mutants. */
#include "read.h"

#include <stdlib.h>
#include <string.h>

/* The runner's FORMAT_VERSION, which grows when a key changes its meaning. The first results had
 * none. */
#define FORMAT_KNOWN 1

static bool find_status(const char *name, enum page_status *status_p) {
    for (int i = PAGE_PASSED; i <= PAGE_ERROR; i++)
        if (strcmp(name, page_status_name((enum page_status)i)) == 0) {
            *status_p = (enum page_status)i;
            return true;
        }
    return false;
}

static bool add_result(struct reader *reader, const char *path, struct page_run *run,
                       const cJSON *item) {
    struct page_result *result = PAGE_ADD(reader->page, run->results, run->result_count);
    int number = run->result_count;

    if (result == NULL)
        return read_problem(reader, path, "no memory");
    *result = (struct page_result){.test = json_text(item, "test"),
                                   .reason = json_text(item, "reason"),
                                   .detail = json_text(item, "detail"),
                                   .requirements = json_list(reader, item, "requirements"),
                                   .seconds = json_number(item, "seconds", 0.0),
                                   .ranks = json_count(item, "ranks", run->ranks)};
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
    *result = (struct page_result){.test = json_text(item, "test"),
                                   .reason = json_text(item, "reason"),
                                   .detail = "",
                                   .requirements = json_list(reader, item, "requirements"),
                                   .status = PAGE_NOT_PLANNED};
    return true;
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

/* What the page says of a run in parts. */
static const char *part_of(struct reader *reader, const cJSON *tree) {
    const char *part = json_text(tree, "part");
    int parts = json_count(tree, "parts", 0);
    char *text = NULL;

    if (part[0] == '\0' && parts == 0)
        return "";
    if (part[0] != '\0' ? asprintf(&text, "part %s of a run", part) < 0
                        : asprintf(&text, "in %d part%s", parts, parts == 1 ? "" : "s") < 0)
        text = NULL;
    text = page_keep(reader->page, text);
    return text == NULL ? "" : text;
}

static void describe(struct reader *reader, struct page_run *run, const cJSON *tree) {
    const cJSON *machine = cJSON_GetObjectItemCaseSensitive(tree, "machine");
    const cJSON *seed = cJSON_GetObjectItemCaseSensitive(tree, "seed");
    char *text = NULL;

    run->backend = json_text(tree, "backend");
    run->description = json_text(tree, "description");
    run->runs_on = json_text(tree, "runs_on");
    run->rank_mode = json_text(tree, "rank_mode");
    run->arch = json_text(tree, "arch");
    run->commit = json_text(tree, "commit");
    run->build = json_text(tree, "build");
    run->started = json_text(tree, "started");
    run->profile = json_text(tree, "profile");
    run->claim = json_text(tree, "claim");
    run->filter = json_text(tree, "filter");
    run->part = part_of(reader, tree);
    run->parts = json_count(tree, "parts", 0);
    run->capabilities = json_list(reader, tree, "capabilities");
    run->system = json_text(machine, "system");
    run->processor = json_text(machine, "processor");
    run->accelerators = json_text(machine, "accelerators");
    run->driver = json_text(machine, "driver");
    run->processors = json_count(machine, "processors", 0);
    run->ranks = json_count(tree, "ranks", 0);
    run->seconds = json_number(tree, "seconds", 0.0);
    run->timeout_scale = json_number(tree, "timeout_scale", 0.0);
    run->seed = json_text(tree, "seed");
    if (cJSON_IsNumber(seed) && asprintf(&text, "%.0f", seed->valuedouble) >= 0)
        run->seed = page_keep(reader->page, text);
    if (run->seed == NULL)
        run->seed = "";
}

static bool fill_run(struct reader *reader, const char *path, struct page_run *run,
                     const cJSON *tree) {
    const cJSON *results = cJSON_GetObjectItemCaseSensitive(tree, "results"), *item;

    run->source = read_below_root(reader, path);
    if (json_count(tree, "format", FORMAT_KNOWN) != FORMAT_KNOWN)
        return read_problem(reader, path, "results in format %d, where this program knows %d",
                            json_count(tree, "format", 0), FORMAT_KNOWN);
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
