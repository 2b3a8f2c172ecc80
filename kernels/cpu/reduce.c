/* SPDX-License-Identifier: BSD-3-Clause */
#include "cpu/reduce.h"

static void sum_float32(const symmem_cpu_reduce_args *args) {
    for (size_t i = 0; i < args->count; i++) {
        float sum = ((const float *)args->srcs[0])[i];
        for (int32_t s = 1; s < args->src_count; s++)
            sum += ((const float *)args->srcs[s])[i];
        for (int32_t d = 0; d < args->dst_count; d++)
            ((float *)args->dsts[d])[i] = sum;
    }
}

symmem_cpu_reduce_fn symmem_cpu_reduce_find(symmem_dtype dtype, symmem_reduce_op op) {
    return dtype == SYMMEM_FLOAT32 && op == SYMMEM_SUM ? sum_float32 : NULL;
}
