/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Symmetric allocations, persistent allocations and the pool. [SM-ALLOC, SM-PERSIST, SM-POOL]
 *
 * All calls here are local: no other rank is contacted. Thread-safe.
 *
 * Costs. An allocation and its first rendezvous on a group keep, on the CPU emulation, two
 * descriptors (with multicast, three on the group's first rank) whatever the number of ranks, and
 * four mappings for each rank of the group and a few more [SM-LIFE-19]; during a rendezvous a rank
 * takes two more descriptors for each rank. So there may be about RLIMIT_NOFILE / 2 tensors, and of
 * n ranks vm.max_map_count / (4 * n). Blocks of a pool share those of their segment: many small
 * tensors belong there. With other backends it is what their drivers take.
 */
#ifndef SYMMEM_MEMORY_H
#define SYMMEM_MEMORY_H

#include <symmem/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Every pointer that alloc returns is aligned to at least this many bytes. */
#define SYMMEM_ALIGNMENT 256
/* The signal pad size a context starts with: 32 channels x 72 ranks x 4 bytes. */
#define SYMMEM_DEFAULT_SIGNAL_PAD_SIZE 9216

typedef struct symmem_alloc_options {
    size_t size;                 /* set by symmem_alloc_options_init */
    symmem_group *default_group; /* for rendezvous with group NULL; NULL: none. Not kept alive: once
                                    it is destroyed such a rendezvous is STALE */
    uint64_t alloc_id;           /* not 0: persistent allocation of that id */
} symmem_alloc_options;

/* Local. No default group, not persistent. */
SYMMEM_API void symmem_alloc_options_init(symmem_alloc_options *options);

/*
 * Local. Allocates `bytes` of symmetric memory on `device`, zeroed, really backed by memory.
 * `device` -1 means local_rank modulo device count. Size 0 is INVALID_ARGUMENT, a size that
 * overflows when rounded is OVERFLOW, a device that is not there OUT_OF_RANGE, too little memory
 * NO_SPACE with the size asked for in `expected` and the free space, if known, in `actual`. Too
 * little is what the machine, /dev/shm, RLIMIT_FSIZE or a memory control group leaves: the record
 * says which. [SM-ALLOC-19, SM-LIFE-17]
 * While a stream of the context captures: CAPTURE. Waits for the device where that has to zero the
 * memory, at most the context's default timeout or a second, whichever is more: TIMEOUT with
 * nothing allocated, so call again. [SM-ALLOC-16] Persistent (alloc_id != 0): the first call
 * allocates; after symmem_free the next call with the same id returns the same pointer with its
 * rendezvous results and what it holds, the default group being that of this call; while it is
 * active BUSY; another size or device is MISMATCH. The memory is given back when the context is
 * finalized.
 */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_alloc(symmem_context *context, size_t bytes,
                                                     int32_t device,
                                                     const symmem_alloc_options *options,
                                                     void **ptr_p);
/*
 * Local. Frees an allocation by its exact base pointer (interior pointers: INVALID_ARGUMENT;
 * anything else: NOT_SYMMETRIC). Waits for work already enqueued on the context's streams of that
 * device, at most the context's default timeout: TIMEOUT with the memory as it was, so call again.
 * [SM-ALLOC-14] Live handles and captured graphs keep the memory itself; peers keep their mappings.
 * NULL is OK.
 */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_free(symmem_context *context, void *ptr);

typedef struct symmem_alloc_info {
    void *base;   /* of the allocation or pool block that covers the pointer */
    size_t bytes; /* requested size of that */
    int32_t device;
    int32_t is_pool_block;
    uint64_t alloc_id;      /* 0 if not persistent */
    uint64_t ordinal;       /* 1 for the context's first allocation, and so on */
    size_t signal_pad_size; /* in force when it was allocated */
} symmem_alloc_info;

/* Local. By any interior pointer. NOT_SYMMETRIC for foreign and freed memory. */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_alloc_query(symmem_context *context, const void *ptr,
                                                           symmem_alloc_info *info_p);
/* Local. The requested size of the allocation that covers ptr. */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_alloc_size(symmem_context *context, const void *ptr,
                                                          size_t *bytes_p);
/* Local. True for base and interior pointers of live symmetric memory of this context. */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_is_symmetric(symmem_context *context,
                                                            const void *ptr, bool *symmetric_p);

/*
 * Local. The signal pad size in bytes that later allocations get. Must be a multiple of 4
 * (MISALIGNED) and at most 1 GiB (OUT_OF_RANGE); 0 restores the default. Existing allocations and
 * handles keep theirs.
 */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_set_signal_pad_size(symmem_context *context,
                                                                   size_t bytes);
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_get_signal_pad_size(symmem_context *context,
                                                                   size_t *bytes_p);

/*
 * A pool sub-allocates blocks from symmetric segments of at least segment_bytes each. A block is a
 * symmetric allocation of its own: it has its own signal pad and channels, is rendezvoused by its
 * pointer, and reports its place in the segment as the handle's offset. Blocks are handed out
 * first-fit and merged when freed, so ranks that make the same calls get the same offsets; a freed
 * block is not zeroed. A block has no default group. Larger requests get a segment of their own.
 * All pool calls are local.
 */
/* Local. `device` as in symmem_alloc. UNSUPPORTED without SYMMEM_CAP_POOL. */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_pool_create(symmem_context *context, int32_t device,
                                                           size_t segment_bytes,
                                                           symmem_pool **pool_p);
/* Local. Frees the segments, without waiting for a stream. BUSY while blocks are handed out. NULL
 * is allowed. */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_pool_destroy(symmem_pool *pool);
/* Errors: as symmem_alloc; CAPTURE, NO_SPACE and TIMEOUT only where it takes a new segment. */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_pool_alloc(symmem_pool *pool, size_t bytes,
                                                          void **ptr_p);
/*
 * By the block's exact pointer (inside a block: INVALID_ARGUMENT; else NOT_SYMMETRIC). NULL is OK.
 * Waits for no stream, and the next symmem_pool_alloc may hand out the same bytes: synchronize with
 * all work on the block first, peers' too, or use those bytes only in the order of the one stream
 * that the work is on.
 */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_pool_free(symmem_pool *pool, void *ptr);

typedef struct symmem_pool_stats {
    size_t segment_count;
    size_t segment_bytes; /* all segments together */
    size_t used_bytes;    /* in blocks handed out, rounding included */
    size_t block_count;
} symmem_pool_stats;
/* Local. As it is at this moment. */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_pool_get_stats(symmem_pool *pool,
                                                              symmem_pool_stats *stats_p);

/*
 * The pair that pluggable allocators expect. They carry no pool argument, so the calling thread
 * names its pool first with symmem_pool_bind (NULL unbinds); this is the only state the library
 * keeps per thread beside the error record. `size` of mfree and `stream` are ignored, with every
 * backend: what symmem_pool_free says of reuse holds here, too. Unbound thread, other device, or no
 * memory: NULL and an error record.
 * Destroying the pool or finalizing its context unbinds the calling thread; other threads must
 * unbind it themselves before the pool is destroyed or the context freed.
 */
SYMMEM_API void symmem_pool_bind(symmem_pool *pool);
SYMMEM_API void *symmem_pool_malloc(size_t size, int device, void *stream);
SYMMEM_API void symmem_pool_mfree(void *ptr, size_t size, int device, void *stream);

#ifdef __cplusplus
}
#endif
#endif
