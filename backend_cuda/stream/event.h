/* SPDX-License-Identifier: BSD-3-Clause */
/* Events. */
#ifndef SYMMEM_BACKEND_CUDA_EVENT_H
#define SYMMEM_BACKEND_CUDA_EVENT_H

#include "cuda_internal.h"

/* An event behind work in flight, which several may use, and which is used again once that work is
 * over and no one has it any more. */
struct cuda_event {
    CUevent native;
    int32_t device;
    bool kept; /* for the next work, unlike one that the program made */
    _Atomic int32_t users;
};
/* The context is current. The caller is the event's one user. */
CUresult cuda_event_take(cuda_instance *instance, int32_t device, cuda_event **event_p);
/* The work behind which it was recorded is over. Also if the context is lost. */
void cuda_event_give(cuda_instance *instance, cuda_event *event);
/* With the device's context. */
void cuda_kept_events_end(cuda_instance *instance, int32_t device);
symmem_status cuda_event_create(void *instance, int32_t device, void **event_p);
void cuda_event_destroy(void *instance, void *event);
symmem_status cuda_event_record(void *instance, void *event, void *stream);
symmem_status cuda_stream_wait_event(void *instance, void *stream, void *event);
symmem_status cuda_event_synchronize(void *instance, void *event, uint32_t timeout_ms);
symmem_status cuda_event_query(void *instance, void *event, bool *reached_p);

#endif
