/* SPDX-License-Identifier: BSD-3-Clause */
/* Uses what the compiler may use on every machine, which is SSE2 on x86-64 and NEON on aarch64. */
#include "reduce_loops.h"

symmem_cpu_reduce_fn symmem_cpu_reduce_portable(symmem_dtype dtype, symmem_reduce_op op) {
    return loops[dtype][op];
}
