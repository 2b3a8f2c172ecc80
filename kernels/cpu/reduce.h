/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reductions and copies for the CPU, as fast as the machine's vector units and memory allow. What
 * is computed is said in kernels/reference/reduce.h; the result has those bits, each element's
 * whatever its place, its neighbors and the addresses: so all ranks hold the same.
 */
#ifndef SYMMEM_KERNELS_CPU_REDUCE_H
#define SYMMEM_KERNELS_CPU_REDUCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <symmem/handle.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * `count` elements of each source are reduced, and each result is stored in every destination. A
 * destination may be one of the sources (the same address); else they do not overlap. All addresses
 * are aligned to the element's size, to no more. src_count and dst_count are at least 1.
 *
 * streaming: the result goes past the cache to memory, but for the first cached_count destinations;
 * the caller says so, as it alone knows how much is reduced in all, how many bytes at a time it
 * ever does it. Stores of this kind are not ordered by a release store; so the function ends with a
 * fence of its own, and a release store (a signal, a barrier) after it publishes the results as
 * usual.
 *
 * read_ahead: other processors have just written sources, so that each line takes long to come;
 * they are asked for some way ahead. (A fifth less time for 512 KiB; more where all goes to
 * memory.)
 */
typedef struct symmem_cpu_reduce_args {
    void *const *dsts;
    int32_t dst_count;
    const void *const *srcs;
    int32_t src_count;
    size_t count;
    bool streaming, read_ahead;
    int32_t cached_count;
} symmem_cpu_reduce_args;

typedef void (*symmem_cpu_reduce_fn)(const symmem_cpu_reduce_args *args);

/*
 * From how many bytes of result on streaming pays off: as soon as the second level of the cache
 * cannot hold it; or, if it is read next, once sources and result together go beyond the last
 * level. In place it never does, as the lines were read anyway. (Measured with levels of 1 MiB and
 * 32 MiB: the one breaks even at 512 KiB to 1 MiB, the other at 8 to 16 MiB.)
 */
#define SYMMEM_CPU_STREAMING_BYTES ((size_t)1 << 20)
#define SYMMEM_CPU_STREAMING_REUSED_BYTES ((size_t)12 << 20)

/* The same loops, compiled for more and less capable machines. */
typedef enum symmem_cpu_isa {
    SYMMEM_CPU_BEST = 0, /* that machine and build have */
    SYMMEM_CPU_PORTABLE, /* whatever the compiler may use everywhere */
    SYMMEM_CPU_AVX2,     /* with F16C */
    SYMMEM_CPU_AVX512,   /* F, BW, DQ and VL */
    SYMMEM_CPU_ISA_COUNT
} symmem_cpu_isa;

/* "portable" and so on. */
const char *symmem_cpu_isa_name(symmem_cpu_isa isa);
/* The best that both machine and build have. */
symmem_cpu_isa symmem_cpu_isa_best(void);
/* The loop, NULL if op cannot be done with dtype or machine or build lacks the instruction set. To
 * be looked up once and called for block after block: a call costs some nanoseconds more than its
 * elements. */
symmem_cpu_reduce_fn symmem_cpu_reduce_find(symmem_cpu_isa isa, symmem_dtype dtype,
                                            symmem_reduce_op op);

/*
 * Copies between two places that do not overlap, at any address. streaming as above, of more than
 * the few bytes for which the fence would cost more than it gains.
 */
void symmem_cpu_copy(void *dst, const void *src, size_t bytes, bool streaming);
/* The same, to where other processors read, and have read before: within the cache. */
void symmem_cpu_copy_to_readers(void *dst, const void *src, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
