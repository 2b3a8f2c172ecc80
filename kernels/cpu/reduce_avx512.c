/* SPDX-License-Identifier: BSD-3-Clause */
/* Compiled for AVX-512, see CMakeLists.txt. Called only on machines that have it. */
#if defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#include "reduce_loops.h"

symmem_cpu_reduce_fn symmem_cpu_reduce_avx512(symmem_dtype dtype, symmem_reduce_op op) {
    return loops[dtype][op];
}

#else
#include "reduce_table.h"

symmem_cpu_reduce_fn symmem_cpu_reduce_avx512(symmem_dtype dtype, symmem_reduce_op op) {
    (void)dtype, (void)op;
    return NULL;
}

#endif
