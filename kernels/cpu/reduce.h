/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fast reductions and copies for the CPU. kernels/reference/reduce.h defines the result. These
 * functions give the same bits for each element, whatever its index, its neighbors and the
 * addresses are. So all ranks get the same result.
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
 * Reduces `count` elements of each source and stores each result in every destination. A
 * destination is one of the sources (the same address) or overlaps none. All addresses are aligned
 * to the element's size, not more. src_count and dst_count are at least 1.
 *
 * streaming: the result bypasses the cache, except for the first cached_count destinations. The
 * caller decides, because only it knows how much is reduced in all, however few bytes one call has.
 * A release store does not order streaming stores. So the function ends with a fence, and a release
 * store (a signal, a barrier) after it publishes the results.
 *
 * read_ahead: other processors have just written the sources, so each cache line takes long to
 * arrive. The function prefetches them. (A fifth less time for 512 KiB, and more if everything goes
 * to memory.)
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
 * The size of the result from which streaming is faster. It pays as soon as the second-level cache
 * cannot hold the result. If the result is read next, it pays once sources and result together
 * exceed the last-level cache. In place it never pays, because the lines are read anyway. (Measured
 * with levels of 1 MiB and 32 MiB: the first breaks even at 512 KiB to 1 MiB, the second at 8 to 16
 * MiB.)
 */
#define SYMMEM_CPU_STREAMING_BYTES ((size_t)1 << 20)
#define SYMMEM_CPU_STREAMING_REUSED_BYTES ((size_t)12 << 20)

/* Selects an instruction set. The same loops are compiled for each. */
typedef enum symmem_cpu_isa {
    SYMMEM_CPU_BEST = 0, /* the best one of this machine and build */
    SYMMEM_CPU_PORTABLE, /* what the compiler may use on every machine */
    SYMMEM_CPU_AVX2,     /* with F16C */
    SYMMEM_CPU_AVX512,   /* F, BW, DQ and VL */
    SYMMEM_CPU_ISA_COUNT
} symmem_cpu_isa;

/* Returns the name, "portable" and so on. */
const char *symmem_cpu_isa_name(symmem_cpu_isa isa);
/* Returns the best set that both machine and build support. */
symmem_cpu_isa symmem_cpu_isa_best(void);
/* Returns the loop. NULL means that the pair of dtype and op is unsupported, or that the machine or
 * build lacks the instruction set. Look it up once and call it for block after block. A call costs
 * some nanoseconds beyond its elements. */
symmem_cpu_reduce_fn symmem_cpu_reduce_find(symmem_cpu_isa isa, symmem_dtype dtype,
                                            symmem_reduce_op op);

/*
 * Copies between two ranges that do not overlap, at any address. `streaming` is as above. Use it
 * only for sizes for which the fence costs less than streaming saves.
 */
void symmem_cpu_copy(void *dst, const void *src, size_t bytes, bool streaming);
/* Copies, within the cache, to memory that other processors have read and will read. */
void symmem_cpu_copy_to_readers(void *dst, const void *src, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
