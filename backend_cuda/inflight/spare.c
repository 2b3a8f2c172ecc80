/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Entries of work in flight, kept for later work. An operation would otherwise allocate memory,
 * take an event and take pinned memory, each with a lock of its own. A stream has one entry at
 * hand, so that its next operation takes it without a lock.
 */
#include "inflight/spare.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "driver/context.h"
#include "driver/error.h"
#include "driver/pinned.h"
#include "stream/event.h"

/* An entry whose event the core had takes one that has come back. lock held. */
static void give_event(cuda_device *device, cuda_pending *pending) {
    if (pending->done != NULL || device->event_count == 0)
        return;
    pending->done = device->events[--device->event_count];
    atomic_store(&pending->done->users, 1);
}

/* lock held */
static cuda_pending *pop(cuda_device *device) {
    cuda_pending *pending = device->spare;
    if (pending != NULL) {
        device->spare = pending->next;
        device->spare_count--;
        pending->next = NULL;
        give_event(device, pending);
    }
    return pending;
}

static cuda_pending *take_kept(cuda_instance *instance, int32_t index) {
    pthread_mutex_lock(&instance->lock);
    cuda_pending *pending = pop(&instance->devices[index]);
    pthread_mutex_unlock(&instance->lock);
    return pending;
}

/* Calls that the capture mode of the thread may forbid. */
static CUresult take_event(cuda_instance *instance, cuda_pending *pending) {
    if (pending->done != NULL)
        return CUDA_SUCCESS;
    if (!cuda_reenter(instance, pending->device))
        return CUDA_ERROR_INVALID_CONTEXT;
    const CUresult result = cuda_event_take(instance, pending->device, &pending->done);
    cuda_leave(instance);
    return result;
}

symmem_status cuda_spare_take(cuda_stream *stream, const char *operation,
                              cuda_pending **pending_p) {
    cuda_instance *instance = stream->instance;
    cuda_pending *pending = atomic_exchange(&stream->ready, NULL);
    if (pending == NULL)
        pending = take_kept(instance, stream->device);
    if (pending == NULL)
        pending = calloc(1, sizeof *pending);
    if (pending == NULL)
        return cuda_no_memory(instance, operation);
    pending->device = stream->device;
    pending->stream = stream;
    const CUresult result = take_event(instance, pending);
    if (result != CUDA_SUCCESS) {
        cuda_spare_give(instance, pending);
        return cuda_fail(instance, result, operation);
    }
    *pending_p = pending;
    return SYMMEM_OK;
}

void cuda_spare_prepare(cuda_stream *stream) {
    if (!stream->given_up && atomic_load_explicit(&stream->ready, memory_order_relaxed) == NULL)
        /* release; pairs with: cuda_spare_take */
        atomic_store_explicit(&stream->ready, pop(&stream->instance->devices[stream->device]),
                              memory_order_release);
}

void cuda_spare_leave(cuda_stream *stream) {
    cuda_pending *ready = atomic_exchange(&stream->ready, NULL);
    if (ready != NULL)
        cuda_spare_give(stream->instance, ready);
}

CUresult cuda_spare_place_fault(cuda_pending *pending) {
    const cuda_instance *instance = pending->stream->instance;
    void *block = NULL;
    if (pending->block != NULL)
        return CUDA_SUCCESS;
    if (!cuda_reenter(instance, pending->device))
        return CUDA_ERROR_INVALID_CONTEXT;
    const CUresult result = cuda_small_block_take(&instance->driver, &block);
    cuda_leave(instance);
    if (result == CUDA_SUCCESS)
        pending->block = block;
    return result;
}

/* The event stays with the entry, unless the core has it, too. */
static void clean(cuda_instance *instance, cuda_pending *pending) {
    symmem_cuda_fault *block = pending->block;
    cuda_event *done = pending->done;
    if (done != NULL && atomic_load(&done->users) > 1) {
        cuda_event_give(instance, done);
        done = NULL;
    }
    const int32_t device = pending->device;
    memset(pending, 0, offsetof(cuda_pending, refs));
    pending->device = device;
    if (block != NULL)
        memset(block, 0, CUDA_SMALL_BLOCK_BYTES);
    pending->block = block;
    pending->done = done;
}

static bool keep(cuda_instance *instance, int32_t index, cuda_pending *pending) {
    cuda_device *device = &instance->devices[index];
    pthread_mutex_lock(&instance->lock);
    const bool kept = device->spare_count < CUDA_KEPT_ENTRIES;
    if (kept) {
        pending->next = device->spare;
        device->spare = pending;
        device->spare_count++;
    }
    pthread_mutex_unlock(&instance->lock);
    return kept;
}

static void end(cuda_instance *instance, cuda_pending *pending) {
    if (pending->done != NULL)
        cuda_event_give(instance, pending->done);
    cuda_small_block_give(pending->block);
    free(pending);
}

void cuda_spare_give(cuda_instance *instance, cuda_pending *pending) {
    const int32_t index = pending->device;
    clean(instance, pending);
    if (!keep(instance, index, pending))
        end(instance, pending);
}

void cuda_spares_end(cuda_instance *instance, int32_t index) {
    cuda_pending *pending;
    while ((pending = take_kept(instance, index)) != NULL)
        end(instance, pending);
}
