/* SPDX-License-Identifier: BSD-3-Clause */
/* Entries of work in flight, each with an event and a place for a fault, kept for later work. */
#ifndef SYMMEM_BACKEND_CUDA_SPARE_H
#define SYMMEM_BACKEND_CUDA_SPARE_H

#include "cuda_internal.h"

/* Returns an entry for the stream's next work, with an event. The context need not be current. */
symmem_status cuda_spare_take(cuda_stream *stream, const char *operation, cuda_pending **pending_p);
/* After work was added to the stream: has an entry at hand for the next. The instance's lock is
 * held. */
void cuda_spare_prepare(cuda_stream *stream);
/* The stream has no work any more. */
void cuda_spare_leave(cuda_stream *stream);
/* Gives the entry its place for a fault, zeroed, unless it has one. */
CUresult cuda_spare_place_fault(cuda_pending *pending);
/* Nothing of the entry's work runs any more, or ever will. Also if the context is lost. */
void cuda_spare_give(cuda_instance *instance, cuda_pending *pending);
/* With the device's context. Their events are kept as others are: see event.h. */
void cuda_spares_end(cuda_instance *instance, int32_t device);

#endif
