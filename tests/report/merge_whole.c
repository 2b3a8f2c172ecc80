/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The whole: what the parts have alike, and of what is each part's own that of all. What passed,
 * failed or stayed undecided adds up; what the run left out is what a part left out and no other
 * part has, which each part must say alike.
 */
#include "merge.h"

/* --- what may be claimed ----------------------------------------------------------------- */

/* A claim speaks of the results that are there and of no others. */
static bool is_of_its_results(const struct merge *merge, int part) {
    const struct page_run *run = merge_run(merge, part);
    struct page_counts counts = page_count(run);
    int passed = 0, bad = 0;
    for (int i = 0; i < run->profile_count; i++) {
        passed += run->profiles[i].passed;
        bad += run->profiles[i].failed + run->profiles[i].undecided;
    }
    return (passed == counts.passed && bad == counts.failed + counts.errors + counts.unresolved) ||
           read_problem(merge->reader, merge->parts[part].path,
                        "its profiles count other results than it has");
}

static bool add_profile(const struct merge *merge, int part, const struct claim_profile *profile,
                        struct claim_profile *sum) {
    int left_out = profile->left_out - profile->other_parts;
    if (part == 0)
        *sum = (struct claim_profile){
            .name = profile->name, .declared = profile->declared, .left_out = left_out};
    if (strcmp(sum->name, profile->name) != 0 || left_out != sum->left_out)
        return read_problem(merge->reader, merge->parts[part].path,
                            "of profile %s it leaves out %d cases that are in no part, %s %d",
                            profile->name, left_out, merge->parts[0].path, sum->left_out);
    sum->passed += profile->passed;
    sum->failed += profile->failed;
    sum->undecided += profile->undecided;
    sum->leaked += profile->leaked;
    return true;
}

static bool add_profiles(const struct merge *merge, struct claim_profile *sums, int count) {
    for (int part = 0; part < merge->count; part++) {
        const struct page_run *run = merge_run(merge, part);
        if (!is_of_its_results(merge, part))
            return false;
        if (run->profile_count != count || count == 0)
            return read_problem(merge->reader, merge->parts[part].path,
                                "not the profiles of a run");
        for (int i = 0; i < count; i++)
            if (!add_profile(merge, part, &run->profiles[i], &sums[i]))
                return false;
    }
    return true;
}

static const char *claim_of(struct page *page, const struct page_run *whole) {
    struct claim claim = page_claim(whole);
    char *text = NULL;
    size_t length = 0;
    FILE *memory = open_memstream(&text, &length);
    if (memory != NULL) {
        claim_write(&claim, memory);
        fclose(memory);
    }
    text = page_keep(page, text);
    return text == NULL ? "" : text;
}

/* --- results ------------------------------------------------------------------------------ */

static bool is_of_round(const struct page_result *result, int round) {
    return result->status != PAGE_NOT_PLANNED && result->repeat == round;
}

/* In a round the plan dealt its cases to the parts one by one, and they are collected in the same
 * order. */
static void collect_round(const struct merge *merge, struct page_run *whole, int next[],
                          int round) {
    for (bool found = true; found;) {
        found = false;
        for (int part = 0; part < merge->count; part++) {
            const struct page_run *run = merge_run(merge, part);
            struct page_result *added;
            if (next[part] == run->result_count || !is_of_round(&run->results[next[part]], round))
                continue;
            added = PAGE_ADD(merge->reader->page, whole->results, whole->result_count);
            if (added != NULL)
                *added = run->results[next[part]];
            next[part]++;
            found = true;
        }
    }
}

static void collect_results(const struct merge *merge, struct page_run *whole) {
    struct page *page = merge->reader->page;
    int *next = page_keep(page, calloc((size_t)merge->count, sizeof(*next)));
    const struct page_run *first = merge_run(merge, 0);
    for (int round = 0; next != NULL && round < first->repeat; round++)
        collect_round(merge, whole, next, round);
    for (int i = 0; i < first->result_count; i++) {
        struct page_result *added = first->results[i].status != PAGE_NOT_PLANNED
                                        ? NULL
                                        : PAGE_ADD(page, whole->results, whole->result_count);
        if (added != NULL)
            *added = first->results[i];
    }
}

static void copy_digests(const struct page_run *from, struct page *page, struct page_run *whole) {
    for (int i = 0; i < from->digest_count; i++) {
        struct page_digest *digest = PAGE_ADD(page, whole->digests, whole->digest_count);
        if (digest != NULL)
            *digest = from->digests[i];
    }
}

/* The run began with the first part and took as long as the longest. */
static void add_part(const struct page_run *part, struct page_run *whole) {
    whole->missing += part->missing;
    if (part->seconds > whole->seconds)
        whole->seconds = part->seconds;
    if (strcmp(part->started, whole->started) < 0) /* the text says so by its order */
        whole->started = part->started;
}

const struct page_run *merge_whole(const struct merge *merge) {
    struct page *page = merge->reader->page;
    struct page_run *whole = PAGE_ADD(page, page->runs, page->run_count);
    struct claim_profile *profiles;
    if (whole == NULL)
        return NULL;
    *whole = *merge_run(merge, 0);
    whole->results = NULL;
    whole->digests = NULL;
    whole->result_count = whole->digest_count = 0;
    whole->part = "";
    whole->parts = merge->count;
    for (int i = 1; i < merge->count; i++)
        add_part(merge_run(merge, i), whole);
    profiles = page_keep(page, calloc((size_t)whole->profile_count + 1, sizeof(*profiles)));
    if (profiles == NULL || !add_profiles(merge, profiles, whole->profile_count))
        return NULL;
    whole->profiles = profiles;
    collect_results(merge, whole);
    copy_digests(merge_run(merge, 0), page, whole);
    whole->claim = claim_of(page, whole);
    return page->no_memory ? NULL : whole;
}
