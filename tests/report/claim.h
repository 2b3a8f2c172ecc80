/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a run's counts say about a backend: where each profile stands (SPEC.md, Profiles), and what
 * may be claimed. From a run that has just ended, or from the sums of its parts.
 */
#ifndef SYMMEM_REPORT_CLAIM_H
#define SYMMEM_REPORT_CLAIM_H

#include <stdbool.h>
#include <stdio.h>

/* What became of one profile's cases. */
struct claim_profile {
    const char *name;
    bool declared;                 /* the backend has all that it takes */
    int passed, failed, undecided; /* repeats count; failed includes errors */
    int leaked;                    /* of the failed, those with no other fault than SM-LIFE-01 */
    int left_out;                  /* by the filter, the number of ranks, --no-large or --part */
    int other_parts;               /* of these, what other parts of the run have */
};

struct claim {
    const char *backend, *arch, *build;
    const char *capabilities; /* declared ones, separated by any of "+, " */
    double timeout_scale;     /* 0: unknown */
    int ranks;
    bool threads;
    const struct claim_profile
        *profiles; /* the first is the one without which nothing is claimed */
    int profile_count;
};

/* "in full", "in part", "but for SM-LIFE-01", "failed", "not decided" and so on. */
const char *claim_standing(const struct claim_profile *profile);
/* Whether the run shows that the backend conforms to profile number `index`. */
bool claim_has(const struct claim *claim, int index);
/* Whether limits, and what the specification promises within a time, were not what they say: a
 * factor that is not 1 and is known. */
bool claim_has_other_limits(double timeout_scale);
/* In words, line by line. */
void claim_write(const struct claim *claim, FILE *out);

#endif
