/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams, and waits for them. */
#ifndef SYMMEM_BACKEND_CUDA_STREAM_H
#define SYMMEM_BACKEND_CUDA_STREAM_H

#include "cuda_internal.h"

void cuda_stream_drop(cuda_stream *stream);
/* Waits until the stream's work so far has ended. Not for capturing streams. */
CUresult cuda_wait_idle(cuda_instance *instance, CUstream native, uint32_t timeout_ms,
                        const cuda_signal_op *signal);
/* Without a deadline, in a user's call, which prints a notice that it waits. */
CUresult cuda_wait_call(cuda_instance *instance, CUstream native);
/* Returns the deadline of the collective user's call that this thread serves; 0: none. */
uint64_t cuda_call_deadline(const symmem_host *host);
/* In such a call waits until a little before its deadline, so that there is time to tell the other
 * ranks, and then returns NOT_READY. Without a deadline as before. */
CUresult cuda_wait_in_time(cuda_instance *instance, CUstream native);
symmem_status cuda_stream_create(void *instance, int32_t device, void **stream_p);
symmem_status cuda_stream_wrap(void *instance, int32_t device, void *native, void **stream_p);
void cuda_stream_destroy(void *instance, void *stream);
symmem_status cuda_stream_synchronize(void *instance, void *stream, uint32_t timeout_ms,
                                      symmem_error_record *record_p);
symmem_status cuda_stream_query(void *instance, void *stream, bool *idle_p);
symmem_status cuda_device_synchronize(void *instance, int32_t device, uint32_t timeout_ms);
symmem_status cuda_host_fn(void *instance, void *stream, void (*fn)(void *arg), void *arg);

#endif
