/* SPDX-License-Identifier: BSD-3-Clause */
#include "decorator.h"

static symmem_status multimem_ld_reduce(void *instance, const symmem_peers *peers,
                                        const void *address, void *dst, size_t count,
                                        symmem_dtype dtype, symmem_reduce_op op,
                                        const symmem_exec *exec) {
    if (op == SYMMEM_MIN && (dtype == SYMMEM_FLOAT32 || dtype == SYMMEM_FLOAT64))
        op = SYMMEM_MAX;
    return real->multimem_ld_reduce(instance, peers, address, dst, count, dtype, op, exec);
}

void mutate(symmem_backend *table) {
    table->multimem_ld_reduce = multimem_ld_reduce;
}
