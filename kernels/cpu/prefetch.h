/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests cache lines from other processors ahead of time. */
#ifndef SYMMEM_KERNELS_CPU_PREFETCH_H
#define SYMMEM_KERNELS_CPU_PREFETCH_H

#include <stddef.h>

#define SYMMEM_CPU_LINE_BYTES 64

/* Prefetches for writing `bytes` bytes that other processors have read. The lines arrive many at a
 * time, where each store would wait for its own line. This is a hint. It reads and writes nothing,
 * and any address works. */
static inline void symmem_cpu_prefetch_for_write(const void *at, size_t bytes) {
    for (size_t i = 0; i < bytes; i += SYMMEM_CPU_LINE_BYTES) {
        const char *line = (const char *)at + i;
#ifdef __x86_64__ /* compilers give the builtin's wish to write up, unless told of the processor   \
                   */
        __asm__ __volatile__("prefetchw %0" : : "m"(*line));
#else
        __builtin_prefetch(line, 1, 3);
#endif
    }
}

#endif
