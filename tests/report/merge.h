/* SPDX-License-Identifier: BSD-3-Clause */
/* The parts of one run (symmem-conformance --part K/N) put together into the results of a whole. */
#ifndef SYMMEM_REPORT_MERGE_H
#define SYMMEM_REPORT_MERGE_H

#include "claim.h"
#include "read.h"

struct merge_part {
    const char *path;
    const cJSON *tree;
};

/* Of results; what was planned and did not run counts as an error, as in each part. */
struct merge_counts {
    long planned, passed, failed, skipped, errors, unresolved;
};

struct merge {
    struct reader *reader;
    struct merge_part *parts; /* in the order of their numbers */
    int count;
    struct merge_counts counts; /* of the whole, as the claim */
    struct claim claim;
};

/* Reads the files, writes `output`, and tells on standard output what the whole came to. False if
 * the parts make no whole or it could not be written: then a problem is noted. */
bool merge_files(struct reader *reader, char *const files[], int count, const char *output);

/* Whether the parts are of one run, and all of it; notes what speaks against it (merge_check.c). */
bool merge_check(const struct merge *merge);
/* merge->counts and merge->claim, from what the parts count; after merge_check (merge_claim.c). */
bool merge_claim(struct merge *merge);
const cJSON *merge_results(const struct merge_part *part);

/* --- writing (merge_write.c) ---------------------------------------------------------- */

/* What a part's results have under the key is the part's own, not the run's. */
bool merge_is_own(const char *key);
void merge_write(const struct merge *merge, FILE *out);
/* For people: what went wrong, the claim, and the closing line (merge_tell.c). */
void merge_tell(const struct merge *merge, FILE *out);

#endif
