/* SPDX-License-Identifier: BSD-3-Clause */
/* All-to-alls with splits in memory, of all ranks at once: what kernels/all_to_all_v.h says, by
 * plain loops. */
#ifndef SYMMEM_KERNELS_REFERENCE_SPLITS_H
#define SYMMEM_KERNELS_REFERENCE_SPLITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../all_to_all_v.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What is the same on all ranks. */
typedef struct symmem_reference_splits {
    size_t ranks, experts, row_bytes;
    size_t align; /* 0: none */
    bool by_experts;
} symmem_reference_splits;

/* What a rank brings. in_offsets NULL: the parts follow each other. */
typedef struct symmem_reference_rank {
    const void *in;
    size_t in_rows, out_rows;
    const int64_t *in_splits, *in_offsets;
} symmem_reference_rank;

/* What is wrong, at the first rank with wrong splits. */
typedef struct symmem_reference_fault {
    symmem_split_fault fault;
    size_t rank;
    uint64_t allowed, found;
} symmem_reference_fault;

/* Checks the splits of all ranks. A rank whose own splits are wrong counts as sending nothing. */
symmem_reference_fault symmem_reference_check_splits(const symmem_reference_splits *shape,
                                                     const symmem_reference_rank *ranks);

/* Fills what rank `own` gets: its out, and the two rows of out_splits_offsets. The splits are
 * right. */
void symmem_reference_all_to_all_v(const symmem_reference_splits *shape,
                                   const symmem_reference_rank *ranks, size_t own, void *out,
                                   int64_t *out_splits_offsets);

#ifdef __cplusplus
}
#endif
#endif
