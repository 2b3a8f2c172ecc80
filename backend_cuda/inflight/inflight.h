/* SPDX-License-Identifier: BSD-3-Clause */
/* Work in flight, its references and failures. */
#ifndef SYMMEM_BACKEND_CUDA_INFLIGHT_H
#define SYMMEM_BACKEND_CUDA_INFLIGHT_H

#include "cuda_internal.h"

/* Allocates the in-flight entry before enqueueing. If allocation failed afterwards, the only safe
 * choice would be to block until the work is done. The context is current in all of these. */
symmem_status cuda_pending_make(cuda_stream *stream, const char *operation,
                                cuda_pending **pending_p);
/* Frees an entry whose work was never enqueued. NULL is a no-op. */
void cuda_pending_drop(cuda_instance *instance, cuda_pending *pending);
/* After enqueueing: keeps references, watches the signal operation, and takes over what the work
 * needs. It takes them over on failure too, which means that the driver recorded no event. */
symmem_status cuda_pending_add(cuda_pending *pending, const symmem_exec *exec,
                               const cuda_needs *needs, const char *operation);
/* For work that failed after a part of it was enqueued. Waits for that part, as long as calls
 * without a deadline of their own do. Returns false if the entry keeps what the part needs, or if
 * its end is unknown. */
bool cuda_pending_rest(cuda_pending *pending, const symmem_exec *exec, const cuda_needs *needs,
                       const char *operation);
/* Allocates an entry for an orphan, in case it is needed. NULL: no memory. */
cuda_pending *cuda_orphan_make(cuda_instance *instance, int32_t device);
void cuda_orphan_drop(cuda_pending *orphan);
/* Makes a stream's remaining work an orphan of the instance, like that of a destroyed stream, with
 * what it needs. Without an entry nothing is kept. */
void cuda_orphan(cuda_pending *orphan, CUstream native, const symmem_exec *exec,
                 const cuda_needs *needs, const char *operation);
/* Collects all work that is over: reports failures, releases references. */
void cuda_collect(cuda_instance *instance);
/* Collects work of one stream once many entries have gathered there, by a single query, which takes
 * the host as long as much of a launch. */
void cuda_trim(cuda_stream *stream);
/* Makes the next check of that handle look for failures, as a kernel does that fails. */
void cuda_note_failure(const symmem_peers *peers);
/* Whether work in flight with those peers has failed, and that is not reported yet. */
bool cuda_has_failed_work(cuda_instance *instance, const symmem_peers *peers);
/* True while this thread runs cuda_collect. Release functions must not block then, because other
 * threads wait for the collecting lock. */
bool cuda_is_collecting(void);
/* Tells the device what the host knows about the peers. */
void cuda_watch_peers(const cuda_signal_op *signal);
/* Only about lost peers. A reset zeroes the device's words before the core clears its poison. A
 * thread that watches while nothing is pending must not write the poison again. */
void cuda_watch_lost(const cuda_signal_op *signal);
/* Builds the core's fault from what the kernel wrote, reports it to the core, and clears it. */
symmem_status cuda_take_fault(const cuda_signal_op *signal, symmem_error_record *record_p);
/* Whether a kernel that has left that code has poisoned its handle, as `poisons` in
 * kernels/cuda/signal.cu. 0 is no failure. What every rank finds before anything is moved leaves
 * the handle as it was. */
static inline bool cuda_fault_poisons(uint32_t code) {
    return code != 0 && code != -(uint32_t)SYMMEM_MISMATCH &&
           code != -(uint32_t)SYMMEM_INVALID_ARGUMENT && code != -(uint32_t)SYMMEM_OUT_OF_RANGE;
}
/* The same, and keeps the record for the stream if it is the first one. */
void cuda_check_fault(cuda_stream *stream, const cuda_signal_op *signal);
/* For work that is over, or whose device is lost. Its fault will be freed, and is not written any
 * more. */
void cuda_forget_fault(cuda_instance *instance, const cuda_signal_op *signal);
/* Returns whether work failed because this rank's state was poisoned, by a failure that the core
 * does not know yet. */
bool cuda_is_consequence(const cuda_signal_op *signal);
/* For work that is over and not yet reported. Waits for a limited time until that failure has been
 * reported. */
void cuda_await_cause(cuda_instance *instance, const cuda_signal_op *signal);

#endif
