/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of one instruction set each offer to symmem_cpu_reduce_find. */
#ifndef SYMMEM_KERNELS_CPU_REDUCE_TABLE_H
#define SYMMEM_KERNELS_CPU_REDUCE_TABLE_H

#include "reduce.h"

/* dtype and op lie within their enums. NULL: the pair is unsupported, or the build lacks the set.
 */
symmem_cpu_reduce_fn symmem_cpu_reduce_portable(symmem_dtype dtype, symmem_reduce_op op);
symmem_cpu_reduce_fn symmem_cpu_reduce_avx2(symmem_dtype dtype, symmem_reduce_op op);
symmem_cpu_reduce_fn symmem_cpu_reduce_avx512(symmem_dtype dtype, symmem_reduce_op op);

/* One source: its bytes go to every destination that is not it. */
void symmem_cpu_reduce_copy(const symmem_cpu_reduce_args *args, size_t element_bytes);

#endif
