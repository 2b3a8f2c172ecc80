/* SPDX-License-Identifier: BSD-3-Clause */
/* Events. */
#ifndef SYMMEM_BACKEND_SHM_EVENT_H
#define SYMMEM_BACKEND_SHM_EVENT_H

#include "shm.h"

/* One record of an event: a point that a stream reaches once. */
struct shm_mark {
    atomic_int reference_count;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool reached; /* with lock */
    /* Set before any other thread can see the mark. capture_id 0: recorded in a running stream. */
    uint64_t capture_id;
    int32_t branch;
    int32_t index;  /* in the branch */
    int32_t record; /* number among the capture's records */
};

struct shm_event {
    shm_mark *mark; /* of the latest record, NULL: never; with instance->lock */
};

shm_mark *shm_mark_create(void); /* NULL without memory */
shm_mark *shm_mark_retain(shm_mark *mark);
void shm_mark_release(shm_mark *mark); /* NULL allowed */
symmem_status shm_run_record(const shm_op *op, symmem_error_record *record_p);
symmem_status shm_run_wait(const shm_op *op, symmem_error_record *record_p);

symmem_status shm_event_create(void *instance, int32_t device, void **event_p);
void shm_event_destroy(void *instance, void *event);
symmem_status shm_event_record(void *instance, void *event, void *stream);
symmem_status shm_stream_wait_event(void *instance, void *stream, void *event);
symmem_status shm_event_synchronize(void *instance, void *event, uint32_t timeout_ms);
symmem_status shm_event_query(void *instance, void *event, bool *reached_p);

#endif
