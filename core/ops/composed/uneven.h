/* SPDX-License-Identifier: BSD-3-Clause */
/* What the operations with a count for each rank share. */
#ifndef SYMMEM_CORE_OPS_UNEVEN_H
#define SYMMEM_CORE_OPS_UNEVEN_H

#include "ops/collective.h"

/* The counts of one call, in elements. */
typedef struct sm_counts {
    const size_t *all; /* the caller's, of each rank */
    size_t own, before, sum, most;
    uint64_t hash;
    bool even; /* all are equal */
} sm_counts;

/* Answers INVALID_ARGUMENT or OVERFLOW. `whole` is the tensor that holds all parts. */
symmem_status sm_counts_read(const sm_collective_op *op, const size_t *counts,
                             const sm_tensor *whole, sm_counts *counts_p);
/* Whether the backend's collective for equal parts may do it. Where calls are compared this one is
 * of a kind of its own, which a backend does not know. */
bool sm_counts_are_even(const sm_collective_op *op, const sm_counts *counts);

#endif
