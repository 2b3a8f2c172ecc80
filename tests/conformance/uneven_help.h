/* SPDX-License-Identifier: BSD-3-Clause */
/* Counts that differ from rank to rank, for the tests of uneven operations. */
#ifndef SYMMEM_CONFORMANCE_UNEVEN_HELP_H
#define SYMMEM_CONFORMANCE_UNEVEN_HELP_H

#include "gathers.h"

#define MAX_RANKS 8
/* No collectives needed. */
#define REACH SYMMEM_CAP_DIRECT_ACCESS

/* The same on all ranks. */
struct counts {
    size_t all[MAX_RANKS];
    size_t sum;
};

static inline void counts_set(struct counts *counts, int32_t ranks, size_t (*of)(int32_t rank)) {
    counts->sum = 0;
    for (int32_t r = 0; r < ranks; r++) {
        counts->all[r] = of(r);
        counts->sum += counts->all[r];
    }
}

/* In [0, below), of which a third are 0. */
static inline void counts_draw(struct counts *counts, int32_t ranks, uint64_t *state,
                               uint32_t below) {
    counts->sum = 0;
    for (int32_t r = 0; r < ranks; r++) {
        counts->all[r] = draw(state, 3) == 0 ? 0 : draw(state, below);
        counts->sum += counts->all[r];
    }
}

static inline void counts_even(struct counts *counts, int32_t ranks, size_t each) {
    for (int32_t r = 0; r < ranks; r++)
        counts->all[r] = each;
    counts->sum = each * (size_t)ranks;
}

/* Elements of the ranks before. */
static inline size_t counts_before(const struct counts *counts, int32_t rank) {
    size_t sum = 0;
    for (int32_t r = 0; r < rank; r++)
        sum += counts->all[r];
    return sum;
}

#endif
