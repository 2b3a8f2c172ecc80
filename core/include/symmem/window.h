/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Windows: one-sided data with counted signals, in the manner of c10d::Window and of NCCL's host
 * calls ncclPutSignal, ncclSignal and ncclWaitSignal. A handle is the window. [SM-COUNT]
 *
 *   there                       here
 *   put without a signal        symmem_put
 *   ncclPutSignal               symmem_window_put_signal
 *   ncclSignal, Window.signal   symmem_window_signal
 *   ncclWaitSignal              symmem_window_wait_signal
 *   Window.map_remote_tensor    symmem_get_remote_tensor (view.h)
 *
 * Each rank counts the signals that it has of each rank on each index, apart from the signals of
 * handle.h. A signal adds to a count and never waits for the peer. A wait takes what it has waited
 * for, and leaves the rest to later waits; so a count never needs to be set back. A collective
 * symmem_handle_reset sets all of them to 0. At most INT32_MAX signals of one rank on one index may
 * be there that no wait has taken; a wait that finds more is CORRUPT.
 *
 * All are stream operations: what handle.h says of streams, limits and failures of signals holds
 * here. `index` is in [0, channel_count) of the handle. Operations on one index, and those on the
 * channel of that number, run in the order of the calls. UNSUPPORTED without SYMMEM_CAP_WINDOW.
 */
#ifndef SYMMEM_WINDOW_H
#define SYMMEM_WINDOW_H

#include <symmem/handle.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How many ranks one wait may name. */
#define SYMMEM_WINDOW_PEERS 32

/* One rank of a wait, as in ncclWaitSignalDesc_t. */
typedef struct symmem_window_wait {
    int32_t rank;
    uint32_t count; /* of its signals, 1 to INT32_MAX */
} symmem_window_wait;

/* One-sided. Adds `count` signals of this rank's at dst_rank, release. This rank is allowed.
 * Errors: OUT_OF_RANGE (rank, index, count outside 1 to INT32_MAX), UNREACHABLE, POISONED. */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_window_signal(symmem_handle *handle,
                                                             int32_t dst_rank, int32_t index,
                                                             uint32_t count, uint32_t timeout_ms,
                                                             symmem_stream *stream);
/* One-sided. Writes `bytes` bytes as symmem_put does, and then adds one signal: who has waited for
 * it sees the bytes, and where they cannot be written there is no signal. Errors: as of both. */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_window_put_signal(
    symmem_handle *handle, int32_t dst_rank, size_t dst_offset, const void *src, size_t bytes,
    int32_t index, uint32_t timeout_ms, symmem_stream *stream);
/*
 * Local. Waits until each of the ranks has given as many signals on `index` as its entry says,
 * acquire, and takes them: all of them, or none if it fails. Errors: OUT_OF_RANGE (index, rank,
 * count, wait_count outside 1 to SYMMEM_WINDOW_PEERS), INVALID_ARGUMENT (waits is NULL, a rank
 * twice), UNREACHABLE; of a signal's TIMEOUT, PEER_LOST and POISONED, with exactly the ranks that
 * lack signals as the missing ones; CORRUPT. `waits` is needed for the call only.
 */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_window_wait_signal(
    symmem_handle *handle, int32_t wait_count, const symmem_window_wait *waits, int32_t index,
    uint32_t timeout_ms, symmem_stream *stream);

#ifdef __cplusplus
}
#endif
#endif
