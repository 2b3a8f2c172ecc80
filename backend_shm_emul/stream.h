/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams: a queue of operations and a thread that runs them in order. */
#ifndef SYMMEM_BACKEND_SHM_STREAM_H
#define SYMMEM_BACKEND_SHM_STREAM_H

#include "shm.h"

struct shm_stream {
    shm_instance *instance;
    int32_t device;
    /* with instance->lock */
    shm_stream *next, *previous;
    int32_t reference_count; /* the owner, the worker, and waiting threads */
    shm_capture *capture;    /* NULL: not capturing */
    int32_t branch;          /* in the capture */
    /* with lock */
    pthread_mutex_t lock;
    pthread_cond_t work; /* for the worker */
    pthread_cond_t done; /* for all other threads */
    shm_op *first;
    shm_op *last;
    uint64_t enqueued;
    uint64_t completed;
    /* with instance->busy_lock */
    shm_stream *next_busy, *previous_busy;
    /* with lock again */
    bool stopping;
    bool failed;
    symmem_error_record failure; /* the first since the last synchronize */
    pthread_t worker;
};

/* With its last stream, or when it closes and has none. */
void shm_instance_free(shm_instance *self);
/* Appends a list of `count` operations. */
void shm_stream_push(shm_stream *stream, shm_op *first, shm_op *last, uint64_t count);

symmem_status shm_stream_create(void *instance, int32_t device, void **stream_p);
void shm_stream_destroy(void *instance, void *stream);
/* Returns whether the stream was destroyed. Then waits that involve no peer give up. */
bool shm_stream_stopping(shm_stream *stream);
symmem_status shm_stream_synchronize(void *instance, void *stream, uint32_t timeout_ms,
                                     symmem_error_record *record_p);
symmem_status shm_stream_query(void *instance, void *stream, bool *idle_p);
symmem_status shm_device_synchronize(void *instance, int32_t device, uint32_t timeout_ms);

#endif
