/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What may be claimed from all parts together. What passed, failed or stayed undecided adds up;
 * what the run left out is what a part left out and no other part has, which each part must say
 * alike.
 */
#include "merge.h"

#include <stdlib.h>
#include <string.h>

/* --- counts of results ------------------------------------------------------------------- */

static struct merge_counts count_part(const struct merge_part *part) {
    struct merge_counts counts = {.planned = json_count(part->tree, "planned", 0)};
    const cJSON *item;

    counts.errors = counts.planned - cJSON_GetArraySize(merge_results(part));
    cJSON_ArrayForEach(item, merge_results(part)) {
        const char *status = json_text(item, "status");

        counts.passed += strcmp(status, "passed") == 0;
        counts.failed += strcmp(status, "failed") == 0;
        counts.skipped += strcmp(status, "skipped") == 0;
        counts.errors += strcmp(status, "error") == 0;
        counts.unresolved += strcmp(status, "unresolved") == 0;
    }
    return counts;
}

static void add_counts(struct merge_counts *sum, const struct merge_counts *counts) {
    sum->planned += counts->planned;
    sum->passed += counts->passed;
    sum->failed += counts->failed;
    sum->skipped += counts->skipped;
    sum->errors += counts->errors;
    sum->unresolved += counts->unresolved;
}

/* --- profiles ----------------------------------------------------------------------------- */

static long in_profiles(const struct merge_part *part, const char *key) {
    const cJSON *profile;
    long sum = 0;

    cJSON_ArrayForEach(profile, cJSON_GetObjectItemCaseSensitive(part->tree, "profiles")) sum +=
        json_count(profile, key, 0);
    return sum;
}

/* A claim speaks of the results that are there and of no others. */
static bool is_of_its_results(const struct merge *merge, const struct merge_part *part,
                              const struct merge_counts *counts) {
    return (in_profiles(part, "passed") == counts->passed &&
            in_profiles(part, "failed") + in_profiles(part, "undecided") ==
                counts->failed + counts->errors + counts->unresolved) ||
           read_problem(merge->reader, part->path, "its profiles count other results than it has");
}

static bool add_profile(const struct merge *merge, const struct merge_part *part,
                        const cJSON *profile, int index) {
    struct claim_profile *sum = &merge->claim.profiles[index];
    int left_out = json_count(profile, "left_out", 0) - json_count(profile, "other_parts", 0);

    if (part == &merge->parts[0])
        *sum = (struct claim_profile){
            .name = json_text(profile, "name"),
            .declared = strcmp(json_text(profile, "standing"), "not declared") != 0,
            .left_out = left_out,
        };
    if (strcmp(sum->name, json_text(profile, "name")) != 0 || left_out != sum->left_out)
        return read_problem(merge->reader, part->path,
                            "of profile %s it leaves out %d cases that are in no part, %s %d",
                            json_text(profile, "name"), left_out, merge->parts[0].path,
                            sum->left_out);
    sum->passed += json_count(profile, "passed", 0);
    sum->failed += json_count(profile, "failed", 0);
    sum->undecided += json_count(profile, "undecided", 0);
    return true;
}

static bool add_profiles(const struct merge *merge, const struct merge_part *part) {
    const cJSON *profiles = cJSON_GetObjectItemCaseSensitive(part->tree, "profiles"), *profile;
    int index = 0;

    if (cJSON_GetArraySize(profiles) != merge->claim.profile_count ||
        merge->claim.profile_count == 0)
        return read_problem(merge->reader, part->path, "not the profiles of a run");
    cJSON_ArrayForEach(profile,
                       profiles) if (!add_profile(merge, part, profile, index++)) return false;
    return true;
}

bool merge_claim(struct merge *merge) {
    const cJSON *tree = merge->parts[0].tree;
    int count = cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(tree, "profiles"));

    merge->claim = (struct claim){
        .backend = json_text(tree, "backend"),
        .arch = json_text(tree, "arch"),
        .build = json_text(tree, "build"),
        .capabilities = json_list(merge->reader, tree, "capabilities"),
        .timeout_scale = json_number(tree, "timeout_scale", 0.0),
        .ranks = json_count(tree, "ranks", 0),
        .threads = strcmp(json_text(tree, "rank_mode"), "thread") == 0,
        .profiles =
            page_keep(merge->reader->page, calloc((size_t)count + 1, sizeof(struct claim_profile))),
        .profile_count = count,
    };
    if (merge->claim.profiles == NULL)
        return read_problem(merge->reader, merge->parts[0].path, "no memory");
    for (int i = 0; i < merge->count; i++) {
        struct merge_counts counts = count_part(&merge->parts[i]);

        if (!is_of_its_results(merge, &merge->parts[i], &counts) ||
            !add_profiles(merge, &merge->parts[i]))
            return false;
        add_counts(&merge->counts, &counts);
    }
    return true;
}
