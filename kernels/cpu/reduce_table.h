/* SPDX-License-Identifier: BSD-3-Clause */
/* The lookup functions that the file of each instruction set exports for symmem_cpu_reduce_find. */
#ifndef SYMMEM_KERNELS_CPU_REDUCE_TABLE_H
#define SYMMEM_KERNELS_CPU_REDUCE_TABLE_H

#include "reduce.h"

/* dtype and op are valid enumerators. NULL means that the pair is unsupported or the build lacks
 * the set. */
symmem_cpu_reduce_fn symmem_cpu_reduce_portable(symmem_dtype dtype, symmem_reduce_op op);
symmem_cpu_reduce_fn symmem_cpu_reduce_avx2(symmem_dtype dtype, symmem_reduce_op op);
symmem_cpu_reduce_fn symmem_cpu_reduce_avx512(symmem_dtype dtype, symmem_reduce_op op);

/* Copies one source's bytes to every other destination. */
void symmem_cpu_reduce_copy(const symmem_cpu_reduce_args *args, size_t element_bytes);

#endif
