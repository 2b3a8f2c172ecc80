/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rendezvous and what its handle offers: peers' pointers, signals, one-sided copies.
 * [SM-RDV, SM-HANDLE, SM-SIGNAL, SM-BARRIER, SM-TIMEOUT, SM-ONESIDED, SM-FILL, SM-MCAST]
 *
 * Streams: an operation with a stream is enqueued and may be captured; NULL runs it to completion
 * in the calling thread. An enqueued operation reports its failure at the next
 * symmem_stream_synchronize of its stream and poisons its handle.
 * Timeouts: milliseconds from the moment the operation begins to run, 0 = no limit,
 * SYMMEM_TIMEOUT_DEFAULT = the context's. An already satisfied operation never times out. Where a
 * device does not begin it, a call without a stream ends some time after its limit all the same,
 * with TIMEOUT, stage "device"; how long is the backend's (its README).
 * Threads: different channels and handles may be used at once; one channel of one handle is
 * serialized in the order of the calls, across streams too.
 */
#ifndef SYMMEM_HANDLE_H
#define SYMMEM_HANDLE_H

#include <symmem/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Collective over `group` (NULL: the allocation's default group; INVALID_ARGUMENT if none). Every
 * member passes a pointer of its own; sizes, offsets and signal pad sizes must agree. Several
 * rendezvous on one group must be called in the same order everywhere. The first for an
 * allocation or pool block and a group exchanges memory; later ones are local and give a new
 * handle that shares the first one's state. Any failure on any rank is returned by all, naming
 * rank and stage, within the deadline, and leaves nothing behind; the caller may try again.
 * Errors: NOT_SYMMETRIC, MISMATCH, OVERLAP, UNREACHABLE, TIMEOUT, PEER_LOST, OUT_OF_RANGE (signal
 * pad too small for one channel of this group), CAPTURE, NO_SPACE, LIMIT, ...
 * *handle_p is NULL on failure.
 */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_rendezvous(symmem_context *context, void *ptr,
                                                          symmem_group *group, uint32_t timeout_ms,
                                                          symmem_handle **handle_p);
/* Local. One more reference; each needs its release. From any thread that has one. */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_handle_retain(symmem_handle *handle);
/* Local. Drops a reference; the last one unmaps memory that nothing else uses. Any thread, but not
 * from a stream's host function; after the context was finalized too. NULL is allowed. */
SYMMEM_API void symmem_handle_release(symmem_handle *handle);

typedef struct symmem_handle_info {
    int32_t rank;
    int32_t world_size;
    int32_t device;
    int32_t channel_count;  /* floor(signal_pad_size / (4 * world_size)) */
    size_t buffer_size;     /* requested bytes of the whole allocation, on every rank */
    size_t block_size;      /* bytes of the allocation or pool block */
    size_t offset;          /* of the rendezvous pointer from the allocation's base, bytes */
    size_t signal_pad_size; /* of the allocation */
    void *multicast_ptr;    /* at `offset`; NULL without multicast. Only multimem operations
                               may use it */
    bool world_within_direct_access; /* every rank's buffer has a pointer here */
    bool poisoned;
} symmem_handle_info;

/* Local. */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_handle_get_info(const symmem_handle *handle,
                                                               symmem_handle_info *info_p);
/*
 * Local. Arrays of world_size pointers, valid as long as the handle. buffer_ptrs are the
 * allocations' base addresses (the handle's offset not added); entry rank is this rank's. The
 * signal pad is for the user's own kernels: uint32 slot world_size * channel + source rank; zero at
 * first sight, never touched by the library afterwards. An entry is NULL for a rank outside direct
 * access. The _dev forms are the same tables in memory that the device reads.
 */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_handle_buffer_ptrs(const symmem_handle *handle,
                                                                  void *const **ptrs_p);
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_handle_signal_pad_ptrs(const symmem_handle *handle,
                                                                      void *const **ptrs_p);
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_handle_buffer_ptrs_dev(const symmem_handle *handle,
                                                                      void **table_p);
SYMMEM_API SYMMEM_CHECKED symmem_status
symmem_handle_signal_pad_ptrs_dev(const symmem_handle *handle, void **table_p);
/* Local. The context rank of group rank `rank`. OUT_OF_RANGE outside [0, world_size). */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_handle_global_rank(const symmem_handle *handle,
                                                                  int32_t rank,
                                                                  int32_t *global_rank_p);
/* Local. The group's name. The string lives as long as the handle. */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_handle_group_name(const symmem_handle *handle,
                                                                 const char **name_p);

/* --- signals: all stream operations ------------------------------------------------------------
 * channel in [0, channel_count) and rank in [0, world_size), else OUT_OF_RANGE and nothing is
 * written. UNREACHABLE, with nothing written, without direct access to a rank that it needs.
 * Failures that poison the handle: TIMEOUT and PEER_LOST (a process ended), with the missing ranks
 * in the record; POISONED (a rank that it waits for is poisoned); CORRUPT (a word that ranks share
 * holds what it cannot; put, wait and all-to-all). From then on POISONED until symmem_handle_reset.
 * TIMEOUT with stage "channel" does not poison: an earlier operation, which holds the channel, did
 * not end in time. */

/* Collective over the group. Everything a rank wrote before is visible to every rank after. With
 * check_collectives (context.h) MISMATCH on every rank where calls differ; that does not poison,
 * and a backend without SYMMEM_CAP_COLLECTIVES may not notice. */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_barrier(symmem_handle *handle, int32_t channel,
                                                       uint32_t timeout_ms, symmem_stream *stream);
/*
 * One-sided (the peer makes no call for it to complete). Raises this rank's signal at dst_rank,
 * release. If the earlier one was not consumed yet, waits for that. This rank is allowed.
 */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_put_signal(symmem_handle *handle, int32_t dst_rank,
                                                          int32_t channel, uint32_t timeout_ms,
                                                          symmem_stream *stream);
/* Local. Waits for src_rank's signal and consumes it, acquire. */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_wait_signal(symmem_handle *handle, int32_t src_rank,
                                                           int32_t channel, uint32_t timeout_ms,
                                                           symmem_stream *stream);
/*
 * Collective over the group, host call. Forgets pending signals, barrier state and poison of the
 * state that this handle shares; the user's signal pad and the data stay. The caller first
 * synchronizes the streams that used it, launches of graphs included (BUSY on every rank
 * otherwise; of graphs that the program captured itself the library does not know). BUSY also, with
 * the handle poisoned, while a device has not come to a call without a stream that was given up for
 * that, or is at what was enqueued of one that failed. STALE once the group was destroyed; TIMEOUT
 * and PEER_LOST name the missing ranks, or TIMEOUT the one whose device did not come to it;
 * MISMATCH if a rank is in another call of the group. If it fails after all have begun, the handle
 * is poisoned on every rank, and stays so until a reset succeeds. [SM-TIMEOUT-13]
 */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_handle_reset(symmem_handle *handle,
                                                            uint32_t timeout_ms);
/* Local. SYMMEM_OK, or the status that poisoned the handle, with its record in *record_p, which is
 * left alone otherwise. record_p may be NULL. */
SYMMEM_API symmem_status symmem_handle_status(const symmem_handle *handle,
                                              symmem_error_record *record_p);

/* --- waits for values: stream operations; UNSUPPORTED without SYMMEM_CAP_VALUES ----------------
 * A word of symmetric memory that `source` writes, as symmem_stream_write_value32 and 64 do
 * (view.h), or by a release store of its own. The word is at `offset` bytes from the handle's
 * offset in the memory of `rank`, and aligned to its size. Numbers are unsigned. Nothing is
 * changed. `source` is the rank whose end or poison ends the wait; it may be this rank. Belongs to
 * no channel: waits neither hold up each other nor signals, and a reset does not look for those on
 * streams. [SM-WAITVAL] Errors: OUT_OF_RANGE (rank, source, end beyond the block), OVERFLOW,
 * MISALIGNED, INVALID_ARGUMENT (compare), UNREACHABLE. TIMEOUT, PEER_LOST and POISONED poison the
 * handle, as of a signal. Their record has the value wanted in `expected` and the one last seen in
 * `actual`. */

typedef enum symmem_compare {
    SYMMEM_EQ = 0,
    SYMMEM_NE,
    SYMMEM_GT,
    SYMMEM_GE,
    SYMMEM_LT,
    SYMMEM_LE,
    SYMMEM_COMPARE_COUNT
} symmem_compare;

/* Local. Waits until the word is equal to, not equal to, greater than ... `value`, acquire: what
 * the source wrote before it wrote the word is visible after the wait. */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_wait_value32(symmem_handle *handle, int32_t rank,
                                                            size_t offset, symmem_compare compare,
                                                            uint32_t value, int32_t source,
                                                            uint32_t timeout_ms,
                                                            symmem_stream *stream);
/* Local. The same for a word of 64 bits. */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_wait_value64(symmem_handle *handle, int32_t rank,
                                                            size_t offset, symmem_compare compare,
                                                            uint64_t value, int32_t source,
                                                            uint32_t timeout_ms,
                                                            symmem_stream *stream);

/* --- one-sided data: all stream operations ------------------------------------------------------
 * Offsets are in bytes from the handle's offset. Bounds: the block. No signal is implied. Works on
 * a poisoned handle too, and on a stream behind an operation that failed there, which orders
 * nothing: peers may still be in it. The local side, src of put and dst of get, is anything that
 * the device reaches, or ordinary host memory. With a stream that has to stay valid, and a source
 * unchanged, until the stream is past the operation, in a graph as long as it may be launched, and
 * after a call that failed until the stream has been synchronized, unless it is ordinary host
 * memory; symmetric memory of this context stays by itself. Errors: OUT_OF_RANGE (rank, end beyond
 * the block or beyond the local side's allocation), OVERFLOW, INVALID_ARGUMENT (NULL with a size),
 * UNREACHABLE (no direct access to that rank). */

/* One-sided. Writes `bytes` bytes from src to dst_rank's memory. */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_put(symmem_handle *handle, int32_t dst_rank,
                                                   size_t dst_offset, const void *src, size_t bytes,
                                                   symmem_stream *stream);
/* One-sided. Reads `bytes` bytes of src_rank's memory into dst. */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_get(symmem_handle *handle, int32_t src_rank,
                                                   size_t src_offset, void *dst, size_t bytes,
                                                   symmem_stream *stream);
/* Local. Copies between any two places: ordinary host memory, own or peers' memory. The two must
 * not overlap, and stay valid as said above. Runs on the stream's device, without a stream on that
 * of dst or else of src. */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_copy(symmem_context *context, void *dst,
                                                    const void *src, size_t bytes,
                                                    symmem_stream *stream);

/* One-sided. Writes `bytes` bytes as symmem_put does, and then raises this rank's signal at
 * dst_rank as symmem_put_signal does: who has waited for it (symmem_wait_signal) sees the bytes,
 * and where they cannot be written there is no signal. If the earlier signal was not consumed yet,
 * waits for that, perhaps with the bytes written already. An operation of the channel. 0 bytes: the
 * signal alone. Errors: as of both; a failure of the copy on a stream poisons the handle.
 * [SM-PUTSIG] */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_put_with_signal(symmem_handle *handle,
                                                               int32_t dst_rank, size_t dst_offset,
                                                               const void *src, size_t bytes,
                                                               int32_t channel, uint32_t timeout_ms,
                                                               symmem_stream *stream);

/* --- multicast: stream operations; UNSUPPORTED without a multicast pointer ---------- */

typedef enum symmem_reduce_op {
    SYMMEM_SUM = 0,
    SYMMEM_AVG,
    SYMMEM_MIN,
    SYMMEM_MAX,
    SYMMEM_REDUCE_OP_COUNT
} symmem_reduce_op;

/* One-sided. Writes the bytes at `offset` of every rank's buffer, this rank's included. */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_multimem_store(symmem_handle *handle, size_t offset,
                                                              const void *src, size_t bytes,
                                                              symmem_stream *stream);
/* One-sided. Reads `count` elements at `offset` of every rank, reduced, into dst. */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_multimem_ld_reduce(symmem_handle *handle,
                                                                  size_t offset, void *dst,
                                                                  size_t count, symmem_dtype dtype,
                                                                  symmem_reduce_op op,
                                                                  symmem_stream *stream);

#ifdef __cplusplus
}
#endif
#endif
