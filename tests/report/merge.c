/* SPDX-License-Identifier: BSD-3-Clause */
/* Which file is which part, and whether the parts are of one run, and all of it. What is not known
 * to be a part's own must be equal. */
#include "merge.h"

const struct page_run *merge_run(const struct merge *merge, int part) {
    return &merge->reader->page->runs[merge->parts[part].run];
}

/* The first file says how many parts there are. */
static bool make_room(struct merge *merge, int parts) {
    merge->count = parts;
    merge->parts = page_keep(merge->reader->page, calloc((size_t)parts, sizeof(merge->parts[0])));
    return merge->parts != NULL;
}

static bool take_file(struct merge *merge, const char *path) {
    struct reader *reader = merge->reader;
    int runs = reader->page->run_count, part = 0, parts = 0;
    const cJSON *tree;
    char rest;
    if (!read_any(reader, path))
        return false;
    if (reader->page->run_count == runs)
        return read_problem(reader, path, "not the results of a run");
    tree = reader->trees[reader->tree_count - 1];
    if (sscanf(json_text(tree, "part"), "%4d/%4d%c", &part, &parts, &rest) != 2 || part < 1 ||
        part > parts)
        return read_problem(reader, path, "no part of a run: it was made without --part");
    if (merge->parts == NULL && !make_room(merge, parts))
        return read_problem(reader, path, "no memory");
    if (parts != merge->count)
        return read_problem(reader, path, "part %d/%d, where others are of %d parts", part, parts,
                            merge->count);
    if (merge->parts[part - 1].tree != NULL)
        return read_problem(reader, path, "part %d/%d, as %s is", part, parts,
                            merge->parts[part - 1].path);
    merge->parts[part - 1] = (struct merge_part){path, tree, runs};
    return true;
}

static bool take_files(struct merge *merge, char *const files[], int count) {
    bool good = true;
    for (int i = 0; i < count; i++)
        good = take_file(merge, files[i]) && good;
    for (int i = 0; good && i < merge->count; i++)
        if (merge->parts[i].tree == NULL)
            good = read_problem(merge->reader, files[0], "part %d/%d is missing beside it", i + 1,
                                merge->count);
    return good;
}

static bool write_whole(const struct merge *merge, const struct page_run *whole,
                        const char *output) {
    FILE *out = fopen(output, "we");
    bool good;
    if (out == NULL)
        return read_problem(merge->reader, output, "%s", strerror(errno));
    page_write_json(whole, out);
    good = ferror(out) == 0;
    good = fclose(out) == 0 && good;
    return good || read_problem(merge->reader, output, "could not be written");
}

/* --- of one run ------------------------------------------------------------------------- */

/* What a part has under these keys is its own, not the run's. */
static bool is_own(const char *key) {
    static const char *const keys[] = {"part",     "started", "seconds", "claim",
                                       "profiles", "planned", "results", "summary"};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (strcmp(key, keys[i]) == 0)
            return true;
    return false;
}

/* Names both values if they are short. */
static bool differs(const struct merge *merge, const struct merge_part *part, const char *key,
                    const cJSON *mine, const cJSON *others) {
    char *one = mine == NULL ? strdup("absent") : cJSON_PrintUnformatted(mine);
    char *other = cJSON_PrintUnformatted(others);
    if (one == NULL || other == NULL || strlen(one) > 80 || strlen(other) > 80)
        read_problem(merge->reader, part->path, "another %s than in %s", key, merge->parts[0].path);
    else
        read_problem(merge->reader, part->path, "%s is %s, but %s in %s", key, one, other,
                     merge->parts[0].path);
    free(one);
    free(other);
    return false;
}

static bool is_like_the_first(const struct merge *merge, const struct merge_part *part) {
    const cJSON *first = merge->parts[0].tree, *item;
    cJSON_ArrayForEach(item, first) {
        const cJSON *mine = cJSON_GetObjectItemCaseSensitive(part->tree, item->string);
        if (!is_own(item->string) && !cJSON_Compare(mine, item, true))
            return differs(merge, part, item->string, mine, item);
    }
    return cJSON_GetArraySize(first) == cJSON_GetArraySize(part->tree) ||
           read_problem(merge->reader, part->path, "other keys than in %s", merge->parts[0].path);
}

/* A double holds no more, and the runner's own seeds are small. */
static bool seed_is_exact(const struct merge *merge) {
    return json_number(merge->parts[0].tree, "seed", 0.0) < 4503599627370496.0 ||
           read_problem(merge->reader, merge->parts[0].path, "a seed of more than 52 bits");
}

/* --- all of it -------------------------------------------------------------------------- */

static long planned_in_all(const struct merge *merge) {
    long sum = 0;
    for (int i = 0; i < merge->count; i++)
        sum += page_count(merge_run(merge, i)).planned;
    return sum;
}

/* Each part knows how many cases it left to the others: with its own they are the whole. */
static bool is_of_the_whole(const struct merge *merge, int part) {
    const struct page_run *run = merge_run(merge, part);
    long own = page_count(run).planned, others = 0, whole = planned_in_all(merge);
    for (int i = 0; i < run->profile_count; i++)
        others += run->profiles[i].other_parts;
    others *= run->repeat;
    if (own + others != whole)
        return read_problem(merge->reader, merge->parts[part].path,
                            "a part of %ld planned cases, where the parts together have %ld",
                            own + others, whole);
    return run->missing >= 0 ||
           read_problem(merge->reader, merge->parts[part].path, "more results than it planned");
}

static int compare_results(const void *one, const void *other) {
    const struct page_result *a = *(const struct page_result *const *)one;
    const struct page_result *b = *(const struct page_result *const *)other;
    int order = strcmp(a->test, b->test);
    return order != 0 ? order : a->repeat - b->repeat;
}

static bool has_none_twice(const struct merge *merge) {
    size_t count = 0, most = (size_t)planned_in_all(merge); /* no part has more than it planned */
    const struct page_result **all = calloc(most + 1, sizeof(const struct page_result *));
    bool good = all != NULL;
    if (all == NULL)
        return read_problem(merge->reader, merge->parts[0].path, "no memory");
    for (int part = 0; part < merge->count; part++) {
        const struct page_run *run = merge_run(merge, part);
        for (int i = 0; i < run->result_count; i++)
            if (run->results[i].status != PAGE_NOT_PLANNED)
                all[count++] = &run->results[i];
    }
    qsort(all, count, sizeof(all[0]), compare_results);
    for (size_t i = 1; good && i < count; i++)
        if (compare_results(&all[i - 1], &all[i]) == 0)
            good = read_problem(merge->reader, merge->parts[0].path,
                                "in it and the other parts %s is there twice", all[i]->test);
    free(all);
    return good;
}

static bool merge_check(const struct merge *merge) {
    for (int i = 1; i < merge->count; i++)
        if (!is_like_the_first(merge, &merge->parts[i]))
            return false;
    for (int i = 0; i < merge->count; i++)
        if (!is_of_the_whole(merge, i))
            return false;
    return seed_is_exact(merge) && has_none_twice(merge);
}

/* --- all of it -------------------------------------------------------------------------- */

/* What the parts came to together, for people. */
static void merge_tell(const struct page_run *whole, FILE *out) {
    struct page_counts counts = page_count(whole);
    struct claim claim = page_claim(whole);
    for (int i = 0; i < whole->result_count; i++) {
        const struct page_result *result = &whole->results[i];
        if (page_is_bad(result->status))
            report_plain(out, "%s: %s: %s\n", page_status_name(result->status), result->test,
                         result->reason);
    }
    claim_write(&claim, out);
    fprintf(out, "%d passed, %d failed, %d skipped\n", counts.passed,
            counts.failed + counts.errors + counts.unresolved, counts.skipped);
}

bool merge_files(struct reader *reader, char *const files[], int count, const char *output) {
    struct merge merge = {.reader = reader};
    const struct page_run *whole;
    if (!take_files(&merge, files, count) || !merge_check(&merge))
        return false;
    whole = merge_whole(&merge);
    if (whole == NULL || !write_whole(&merge, whole, output))
        return false;
    merge_tell(whole, stdout);
    return fflush(stdout) == 0 || read_problem(reader, output, "no standard output");
}
