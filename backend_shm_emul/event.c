/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Events. Each record makes a new mark. A wait takes the current mark, so a later record of the
 * same event does not move it, and the event may be destroyed.
 */
#include <stdlib.h>

#include "event.h"
#include "capture.h"
#include "error.h"
#include "op.h"
#include "stream.h"
#include "wait.h"

shm_mark *shm_mark_create(void) {
    shm_mark *mark = calloc(1, sizeof *mark);
    if (!mark)
        return NULL;
    if (pthread_mutex_init(&mark->lock, NULL) != 0)
        goto free_mark;
    if (shm_cond_init(&mark->changed) != 0)
        goto destroy_lock;
    atomic_init(&mark->reference_count, 1);
    return mark;

destroy_lock:
    pthread_mutex_destroy(&mark->lock);
free_mark:
    free(mark);
    return NULL;
}

shm_mark *shm_mark_retain(shm_mark *mark) {
    atomic_fetch_add_explicit(&mark->reference_count, 1, memory_order_relaxed);
    return mark;
}

void shm_mark_release(shm_mark *mark) {
    /* acq_rel; pairs with: the other releases, whose last accesses come before the free. */
    if (!mark || atomic_fetch_sub_explicit(&mark->reference_count, 1, memory_order_acq_rel) != 1)
        return;
    pthread_cond_destroy(&mark->changed);
    pthread_mutex_destroy(&mark->lock);
    free(mark);
}

/* Returns false if the deadline (0: none) passed first. */
static bool wait_reached(const symmem_clock *clock, shm_mark *mark, uint64_t deadline_ns) {
    pthread_mutex_lock(&mark->lock);
    bool in_time = true;
    while (!mark->reached && in_time)
        in_time = shm_cond_wait(clock, &mark->changed, &mark->lock, deadline_ns);
    bool reached = mark->reached;
    pthread_mutex_unlock(&mark->lock);
    return reached;
}

symmem_status shm_run_record(const shm_op *op, symmem_error_record *record_p) {
    (void)record_p;
    pthread_mutex_lock(&op->mark->lock);
    op->mark->reached = true;
    shm_cond_wake(op->instance->clock, &op->mark->changed);
    pthread_mutex_unlock(&op->mark->lock);
    return SYMMEM_OK;
}

/* Waits without a deadline, because the record was enqueued before, and each operation ahead of it
 * ends. */
symmem_status shm_run_wait(const shm_op *op, symmem_error_record *record_p) {
    (void)record_p;
    wait_reached(op->instance->clock, op->mark, 0);
    return SYMMEM_OK;
}

symmem_status shm_event_create(void *instance, int32_t device, void **event_p) {
    shm_instance *self = instance;
    (void)device;
    shm_event *event = calloc(1, sizeof *event);
    if (!event)
        return shm_out_of_memory(self->host, "event_create");
    *event_p = event;
    return SYMMEM_OK;
}

void shm_event_destroy(void *instance, void *event) {
    (void)instance;
    shm_event *self = event;
    shm_mark_release(self->mark);
    free(self);
}

symmem_status shm_event_record(void *instance, void *event, void *stream) {
    shm_instance *self = instance;
    shm_event *recorded = event;
    symmem_status status = shm_failpoint(self->host, "shm.event.record");
    if (status != SYMMEM_OK)
        return status;
    shm_mark *mark = shm_mark_create();
    if (!mark)
        return shm_out_of_memory(self->host, "event_record");
    shm_op record = {.run = shm_run_record, .instance = self, .mark = mark};
    shm_op *op = shm_op_clone(&record);
    if (!op) {
        shm_mark_release(mark);
        return shm_out_of_memory(self->host, "event_record");
    }
    pthread_mutex_lock(&self->lock);
    shm_route_locked(stream, op);
    shm_mark *before = recorded->mark;
    recorded->mark = mark;
    pthread_mutex_unlock(&self->lock);
    shm_mark_release(before);
    return SYMMEM_OK;
}

/* Returns the event's latest mark with a reference, or NULL if it was never recorded. */
static shm_mark *latest_mark(shm_instance *self, shm_event *event) {
    pthread_mutex_lock(&self->lock);
    shm_mark *mark = event->mark ? shm_mark_retain(event->mark) : NULL;
    pthread_mutex_unlock(&self->lock);
    return mark;
}

/* Makes the stream join the mark's capture if needed. */
static symmem_status route_wait_locked(shm_stream *stream, shm_op *op) {
    uint64_t wanted = op->mark->capture_id;
    uint64_t present = stream->capture ? stream->capture->id : 0;
    symmem_status status = SYMMEM_OK;
    if (present == 0 && wanted != 0)
        status = shm_capture_join_locked(stream, wanted);
    else if (present != wanted)
        status = SYMMEM_CAPTURE;
    if (status == SYMMEM_OK)
        shm_route_locked(stream, op);
    return status;
}

symmem_status shm_stream_wait_event(void *instance, void *stream, void *event) {
    shm_instance *self = instance;
    symmem_status status = shm_failpoint(self->host, "shm.event.wait");
    if (status != SYMMEM_OK)
        return status;
    shm_mark *mark = latest_mark(self, event);
    if (!mark)
        return SYMMEM_OK;
    shm_op wait = {.run = shm_run_wait, .instance = self, .mark = mark};
    shm_op *op = shm_op_clone(&wait);
    shm_mark_release(mark);
    if (!op)
        return shm_out_of_memory(self->host, "stream_wait_event");
    pthread_mutex_lock(&self->lock);
    status = route_wait_locked(stream, op);
    pthread_mutex_unlock(&self->lock);
    if (status == SYMMEM_OK)
        return status;
    shm_op_free(op);
    return self->host->fail(self->host, status, 0, "stream_wait_event",
                            status == SYMMEM_CAPTURE
                                ? "event and stream do not belong to the same running capture"
                                : "out of host memory");
}

static symmem_status fail_captured(shm_instance *self, const char *operation) {
    return self->host->fail(self->host, SYMMEM_CAPTURE, 0, operation,
                            "the event was recorded in a capture");
}

symmem_status shm_event_synchronize(void *instance, void *event, uint32_t timeout_ms) {
    shm_instance *self = instance;
    shm_mark *mark = latest_mark(self, event);
    if (!mark)
        return SYMMEM_OK;
    symmem_status status = SYMMEM_OK;
    if (mark->capture_id != 0)
        status = fail_captured(self, "event_synchronize");
    else if (!wait_reached(self->clock, mark, shm_deadline_ns(self->clock, timeout_ms)))
        status = self->host->fail(self->host, SYMMEM_TIMEOUT, 0, "event_synchronize",
                                  "the event was not reached in %u ms", (unsigned)timeout_ms);
    shm_mark_release(mark);
    return status;
}

symmem_status shm_event_query(void *instance, void *event, bool *reached_p) {
    shm_instance *self = instance;
    shm_mark *mark = latest_mark(self, event);
    if (!mark) {
        *reached_p = true;
        return SYMMEM_OK;
    }
    symmem_status status = SYMMEM_OK;
    if (mark->capture_id != 0) {
        status = fail_captured(self, "event_query");
    } else {
        pthread_mutex_lock(&mark->lock);
        *reached_p = mark->reached;
        pthread_mutex_unlock(&mark->lock);
    }
    shm_mark_release(mark);
    return status;
}
