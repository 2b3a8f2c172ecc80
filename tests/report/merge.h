/* SPDX-License-Identifier: BSD-3-Clause */
/* The parts of one run (symmem-conformance --part K/N) put together into the results of a whole. */
#ifndef SYMMEM_REPORT_MERGE_H
#define SYMMEM_REPORT_MERGE_H

#include "read.h"

struct merge_part {
    const char *path;
    const cJSON *tree;
    int run; /* its number among the page's */
};

struct merge {
    struct reader *reader;
    struct merge_part *parts; /* in the order of their numbers */
    int count;
};

/* Reads the files, writes `output`, and tells on standard output what the whole came to. False if
 * the parts make no whole or it could not be written: then a problem is noted. */
bool merge_files(struct reader *reader, char *const files[], int count, const char *output);

/* Adds the whole to the page's runs, of parts that fit. NULL: a problem is noted (merge_whole.c).
 */
const struct page_run *merge_whole(const struct merge *merge);

const struct page_run *merge_run(const struct merge *merge, int part);

#endif
