/* SPDX-License-Identifier: BSD-3-Clause */
/* Symmem_all_reduce: which of the forms it takes. */
#ifndef SYMMEM_CORE_OPS_ALL_REDUCE_H
#define SYMMEM_CORE_OPS_ALL_REDUCE_H

#include "ops/reduce.h"

/* What a table says. */
symmem_all_reduce_algorithm sm_all_reduce_look_up(const symmem_all_reduce_entry *entries,
                                                  int32_t count, bool symmetric, int32_t world_size,
                                                  uint64_t bytes);
/* Copies entries that have been checked; NULL: the built-in ones. OUT_OF_MEMORY under `name`. */
symmem_status sm_all_reduce_set(symmem_context *context, const char *name,
                                const symmem_all_reduce_entry *entries, int32_t count);

#endif
