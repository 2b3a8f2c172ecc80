/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SYMMEM_KERNELS_CPU_REDUCE_H
#define SYMMEM_KERNELS_CPU_REDUCE_H

#include <symmem/handle.h>

typedef struct symmem_cpu_reduce_args {
    void *const *dsts;
    int32_t dst_count;
    const void *const *srcs;
    int32_t src_count;
    size_t count;
    bool streaming;
} symmem_cpu_reduce_args;

typedef void (*symmem_cpu_reduce_fn)(const symmem_cpu_reduce_args *args);

symmem_cpu_reduce_fn symmem_cpu_reduce_find(symmem_dtype dtype, symmem_reduce_op op);

#endif
