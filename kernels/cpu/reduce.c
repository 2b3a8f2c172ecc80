/* SPDX-License-Identifier: BSD-3-Clause */
/* Selects the loops that this machine can run. */
#if defined(__x86_64__) && defined(__clang__)
#include <cpuid.h>
#endif

#include "reduce_table.h"

#ifdef __x86_64__
static bool has_f16c(void) {
#ifdef __clang__ /* old clang versions of __builtin_cpu_supports do not know this feature */
    unsigned a, b, c = 0, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
#else
    return __builtin_cpu_supports("f16c");
#endif
}

static bool has_isa(symmem_cpu_isa isa) {
    switch (isa) {
    case SYMMEM_CPU_PORTABLE:
        return true;
    case SYMMEM_CPU_AVX2:
        return __builtin_cpu_supports("avx2") && has_f16c();
    case SYMMEM_CPU_AVX512:
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    default:
        return false;
    }
}
#else
static bool has_isa(symmem_cpu_isa isa) {
    return isa == SYMMEM_CPU_PORTABLE;
}
#endif

const char *symmem_cpu_isa_name(symmem_cpu_isa isa) {
    switch (isa) {
    case SYMMEM_CPU_PORTABLE:
        return "portable";
    case SYMMEM_CPU_AVX2:
        return "avx2";
    case SYMMEM_CPU_AVX512:
        return "avx512";
    default:
        return "unknown";
    }
}

symmem_cpu_reduce_fn symmem_cpu_reduce_find(symmem_cpu_isa isa, symmem_dtype dtype,
                                            symmem_reduce_op op) {
    if (isa == SYMMEM_CPU_BEST)
        isa = symmem_cpu_isa_best();
    bool known = (unsigned)dtype < SYMMEM_DTYPE_COUNT && (unsigned)op < SYMMEM_REDUCE_OP_COUNT;
    if (!known || !has_isa(isa))
        return NULL;
    switch (isa) {
    case SYMMEM_CPU_AVX512:
        return symmem_cpu_reduce_avx512(dtype, op);
    case SYMMEM_CPU_AVX2:
        return symmem_cpu_reduce_avx2(dtype, op);
    default:
        return symmem_cpu_reduce_portable(dtype, op);
    }
}

symmem_cpu_isa symmem_cpu_isa_best(void) {
    symmem_cpu_isa isa = SYMMEM_CPU_ISA_COUNT - 1;
    while (isa > SYMMEM_CPU_PORTABLE && !symmem_cpu_reduce_find(isa, SYMMEM_UINT8, SYMMEM_SUM))
        isa--;
    return isa;
}

void symmem_cpu_reduce_copy(const symmem_cpu_reduce_args *args, size_t element_bytes) {
    for (int32_t k = 0; k < args->dst_count; k++) {
        if (args->dsts[k] != args->srcs[0])
            symmem_cpu_copy(args->dsts[k], args->srcs[0], args->count * element_bytes,
                            args->streaming && k >= args->cached_count);
    }
}
