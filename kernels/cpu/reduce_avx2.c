/* SPDX-License-Identifier: BSD-3-Clause */
/* Compiled for AVX2 and F16C, see CMakeLists.txt. Called only on machines that have them. */
#if defined(__AVX2__) && defined(__F16C__)
#include "reduce_loops.h"

symmem_cpu_reduce_fn symmem_cpu_reduce_avx2(symmem_dtype dtype, symmem_reduce_op op) {
    return loops[dtype][op];
}

#else
#include "reduce_table.h"

symmem_cpu_reduce_fn symmem_cpu_reduce_avx2(symmem_dtype dtype, symmem_reduce_op op) {
    (void)dtype, (void)op;
    return NULL;
}

#endif
