/* SPDX-License-Identifier: BSD-3-Clause */
/* Operations as objects, and the three ways to run one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "op.h"
#include "capture.h"
#include "error.h"
#include "event.h"
#include "stream.h"

shm_op *shm_op_clone(const shm_op *op) {
    shm_op *clone = malloc(sizeof *clone);
    if (!clone)
        return NULL;
    *clone = *op;
    clone->next = NULL;
    for (int32_t i = 0; i < clone->ref_count; i++)
        clone->refs[i].retain(clone->refs[i].object);
    if (clone->mark)
        shm_mark_retain(clone->mark);
    return clone;
}

void shm_op_free(shm_op *op) {
    for (int32_t i = 0; i < op->ref_count; i++)
        op->refs[i].release(op->refs[i].object);
    shm_mark_release(op->mark);
    free(op);
}

void shm_op_free_list(shm_op *first) {
    while (first) {
        shm_op *next = first->next;
        shm_op_free(first);
        first = next;
    }
}

void shm_route_locked(shm_stream *stream, shm_op *op) {
    if (stream->capture)
        shm_capture_append_locked(stream, op);
    else
        shm_stream_push(stream, op, op, 1);
}

symmem_status shm_op_failpoint_slow(const shm_op *op, const char *name, const char *operation,
                                    symmem_error_record *record_p) {
    const symmem_host *host = op->instance->host;
    symmem_status status = host->point(host, name);
    if (status == SYMMEM_OK)
        return status;
    memset(record_p, 0, sizeof *record_p);
    record_p->status = status;
    record_p->rank = op->instance->rank;
    record_p->world_size = op->instance->world_size;
    record_p->channel = -1;
    record_p->failed_rank = -1;
    snprintf(record_p->operation, sizeof record_p->operation, "%s", operation);
    snprintf(record_p->stage, sizeof record_p->stage, "%s", name);
    snprintf(record_p->message, sizeof record_p->message, "the failpoint %s failed", name);
    return status;
}

/* Reports the fault of a step of a composite operation that no signal operation has described, or
 * that is skipped. */
static void fail_step(const shm_op *op, symmem_status status, symmem_error_record *record_p) {
    const symmem_peers *peers = op->composite->peers;
    const symmem_fault fault = {
        .operation = op->operation, .status = status, .channel = -1, .failed_rank = peers->rank};
    peers->host->signal_failed(peers, &fault, record_p);
}

/* Skips the step. A stream that has not reported the failure does so, if others are concerned. */
static symmem_status skip_step(const shm_op *op, const void *told, const shm_stream *stream,
                               symmem_error_record *record_p) {
    const symmem_peers *peers = op->composite->peers;
    if ((told == stream && !op->first) || !peers->host->is_poisoned(peers))
        return SYMMEM_OK;
    fail_step(op, SYMMEM_POISONED, record_p);
    return SYMMEM_POISONED;
}

symmem_status shm_op_run(const shm_op *op, shm_stream *stream, symmem_error_record *record_p) {
    if (op->composite == NULL)
        return op->run(op, record_p);
    /* Streams that share an operation are ordered by events where it matters, and by these
     * accesses. */
    if (op->step == 0 && !op->loose)
        __atomic_store_n(&op->composite->failed, NULL, __ATOMIC_RELEASE);
    void *told = __atomic_load_n(&op->composite->failed, __ATOMIC_ACQUIRE);
    if (told != NULL)
        return skip_step(op, told, stream, record_p);
    symmem_status status = op->run(op, record_p);
    if (status == SYMMEM_OK)
        return SYMMEM_OK;
    if (!op->reports_itself) /* before other streams see that it has failed, and ask */
        fail_step(op, status, NULL);
    (void)__atomic_compare_exchange_n(&op->composite->failed, &told, stream, false,
                                      __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
    return status;
}

symmem_status shm_submit(shm_op *op, const symmem_exec *exec, const char *operation) {
    op->operation = operation;
    if (!exec->stream) {
        symmem_error_record record; /* the core has its own copy, from signal_failed */
        return op->run(op, &record);
    }
    symmem_status status = shm_failpoint(op->instance->host, "shm.enqueue");
    if (status != SYMMEM_OK)
        return status;
    op->ref_count = exec->ref_count;
    op->composite = exec->composite;
    op->step = exec->step;
    op->loose = exec->loose;
    op->first = exec->first;
    for (int32_t i = 0; i < exec->ref_count; i++)
        op->refs[i] = exec->refs[i];
    shm_op *clone = shm_op_clone(op);
    if (!clone)
        return shm_out_of_memory(op->instance->host, operation);
    pthread_mutex_lock(&op->instance->lock);
    shm_route_locked(exec->stream, clone);
    pthread_mutex_unlock(&op->instance->lock);
    return SYMMEM_OK;
}
