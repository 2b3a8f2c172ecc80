/* SPDX-License-Identifier: BSD-3-Clause */
/* Operations as objects, and the three ways to run one. */
#ifndef SYMMEM_BACKEND_SHM_OP_H
#define SYMMEM_BACKEND_SHM_OP_H

#include "shm.h"

/* One operation with its arguments by value. It runs at once, waits in a stream, or is captured. */
struct shm_op {
    shm_op *next;
    /* Returns OK or a status with *record_p filled. */
    symmem_status (*run)(const shm_op *op, symmem_error_record *record_p);
    shm_instance *instance;
    shm_stream *report;          /* keeps a failure; NULL: the stream that runs it */
    shm_mark *mark;              /* of event operations; referenced */
    shm_stream *runner;          /* the stream whose worker runs it; NULL: the caller does */
    const char *operation;       /* its name in a record or fault */
    symmem_composite *composite; /* see symmem_exec; NULL in one that runs now */
    uint32_t step;
    bool loose, first;
    bool reports_itself; /* a signal operation, whose failure has already gone to the core */
    union {
        struct {
            const symmem_peers *peers;
            int32_t rank;
            int32_t channel;
            uint32_t timeout_ms;
            symmem_call_id call;
            const char *operation; /* for the fault */
        } signal;
        struct {
            const symmem_peers *peers;
            int32_t channel;
            uint32_t timeout_ms;
            symmem_call_id id;
            symmem_collective call;
        } collective;
        struct {
            void *dst;
            const void *src;
            size_t bytes;
            const char *operation; /* for the record */
        } copy;
        struct {
            void *dst;
            size_t count;
            uint32_t value;
        } fill;
        struct {
            void *dst;
            uint64_t value;
        } wide;
        struct {
            const symmem_peers *peers;
            int32_t channel;
            uint32_t timeout_ms;
            const char *operation; /* for the fault */
            int32_t list_count;
            symmem_window_wait list[SYMMEM_WINDOW_PEERS]; /* given: one entry */
        } counts;
        struct {
            const symmem_peers *peers;
            symmem_value_wait wait;
            uint32_t timeout_ms;
            const char *operation; /* for the fault */
        } value;
        struct {
            const symmem_peers *peers;
            size_t offset;
            const void *src;
            size_t bytes;
            const char *operation; /* for the record */
        } store;
        struct {
            const symmem_peers *peers;
            size_t offset;
            void *dst;
            size_t count;
            symmem_dtype dtype;
            symmem_reduce_op op;
        } reduce;
        struct {
            void (*fn)(void *arg);
            void *arg;
        } call;
        struct {
            symmem_matmul product;
            uint32_t timeout_ms;
        } matmul;
        struct {
            const symmem_peers *peers;
            symmem_tile_reduction tile;
        } tile;
        symmem_strided_copy strided;
        symmem_local_reduce local;
    } u;
    int32_t ref_count;
    symmem_ref refs[SHM_MAX_REFS];
};

/* Runs a failpoint of a running operation. A failure is described in *record_p. */
symmem_status shm_op_failpoint_slow(const shm_op *op, const char *name, const char *operation,
                                    symmem_error_record *record_p);
static inline symmem_status shm_op_failpoint(const shm_op *op, const char *name,
                                             const char *operation, symmem_error_record *record_p) {
    if (__builtin_expect(!op->instance->host->has_points, true))
        return SYMMEM_OK;
    return shm_op_failpoint_slow(op, name, operation, record_p);
}
/* Runs the operation in a stream, unless it is a step of a composite operation that has failed. The
 * stream is the one that reports a failure. */
symmem_status shm_op_run(const shm_op *op, shm_stream *stream, symmem_error_record *record_p);
/* Makes a heap copy with references of its own. Returns NULL without memory. */
shm_op *shm_op_clone(const shm_op *op);
void shm_op_free(shm_op *op); /* gives the references back */
void shm_op_free_list(shm_op *first);
/* Returns the operation's name in records: exec's name for it, or its own. */
static inline const char *shm_operation(const symmem_exec *exec, const char *own) {
    return exec->operation ? exec->operation : own;
}
/* Initializes the common fields. Most of the rest are other operations' arguments. */
static inline void shm_op_init(shm_op *op, shm_instance *instance,
                               symmem_status (*run)(const shm_op *, symmem_error_record *)) {
    op->next = NULL;
    op->run = run;
    op->instance = instance;
    op->report = NULL;
    op->mark = NULL;
    op->runner = NULL;
    op->reports_itself = false;
    op->ref_count = 0;
    op->composite = NULL;
    op->step = 0;
}
/* Runs *op as exec says: now, later in its stream, or in each launch of the capture's graph. */
symmem_status shm_submit(shm_op *op, const symmem_exec *exec, const char *operation);
/* Queues or captures a clone that the stream or capture then owns. With instance->lock. */
void shm_route_locked(shm_stream *stream, shm_op *op);

#endif
