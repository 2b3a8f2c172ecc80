/* SPDX-License-Identifier: BSD-3-Clause */
/* Events. */
#ifndef SYMMEM_BACKEND_CUDA_EVENT_H
#define SYMMEM_BACKEND_CUDA_EVENT_H

#include "cuda_internal.h"

symmem_status cuda_event_create(void *instance, int32_t device, void **event_p);
void cuda_event_destroy(void *instance, void *event);
symmem_status cuda_event_record(void *instance, void *event, void *stream);
symmem_status cuda_stream_wait_event(void *instance, void *stream, void *event);
symmem_status cuda_event_synchronize(void *instance, void *event, uint32_t timeout_ms);
symmem_status cuda_event_query(void *instance, void *event, bool *reached_p);

#endif
