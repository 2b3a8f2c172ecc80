/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SYMMEM_REPORT_RANKS_H
#define SYMMEM_REPORT_RANKS_H

#include <stddef.h>

/* Ascending numbers as "rank 3" or "ranks 0-2,5"; empty for none. */
void report_rank_list(const int *ranks, int count, char *text, size_t capacity);

#endif
