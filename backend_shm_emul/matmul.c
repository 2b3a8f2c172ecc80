/* SPDX-License-Identifier: BSD-3-Clause */
/* Matrix products, strided copies and local reductions as operations of a stream. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cpu/float_mode.h"
#include "cpu/reduce.h"
#include "matmul.h"
#include "blas.h"
#include "op.h"
#include "signals.h"
#include "stream.h"
#include "wait.h"

/* How often a word is polled before the thread sleeps between polls. No other thread wakes it. */
#define SPIN_COUNT 2000
#define NAP_NS 50000

/* --- the product ---------------------------------------------------------------------------- */

/* Fills the stream's record and the thread's. Without a stream the thread's counts. */
static symmem_status fail(const shm_op *op, symmem_status status, const char *text,
                          symmem_error_record *record_p) {
    const symmem_host *host = op->instance->host;
    memset(record_p, 0, sizeof *record_p);
    record_p->status = status;
    record_p->rank = op->instance->rank;
    record_p->world_size = op->instance->world_size;
    record_p->channel = -1;
    record_p->failed_rank = -1;
    snprintf(record_p->operation, sizeof record_p->operation, "%s", op->operation);
    snprintf(record_p->stage, sizeof record_p->stage, "matmul");
    snprintf(record_p->message, sizeof record_p->message, "%s", text);
    return host->fail(host, status, 0, op->operation, "%s", text);
}

static symmem_status multiply(const shm_op *op, const symmem_matmul *product,
                              symmem_error_record *record_p) {
    if (product->fn == NULL) {
        /* Also set before a library is loaded, whose threads keep the mode of that moment. */
        uint64_t mode = symmem_cpu_float_begin();
        symmem_cpu_matmul(product, shm_blas(op->instance));
        symmem_cpu_float_end(mode);
        return SYMMEM_OK;
    }
    symmem_status status = product->fn(product->fn_arg, product, NULL);
    return status == SYMMEM_OK ? status
                               : fail(op, status, "the user's matrix product failed", record_p);
}

/* Returns whether the operation's stream was destroyed after a TIMEOUT. For a graph's launch the
 * stream that it was launched on counts too. */
static bool is_stream_gone(const shm_op *op) {
    return (op->runner != NULL && shm_stream_stopping(op->runner)) ||
           (op->report != NULL && shm_stream_stopping(op->report));
}

/* Waits until the word is not 0. */
static symmem_status await(const shm_op *op, const shm_word *word, uint64_t deadline_ns) {
    const struct timespec nap = {.tv_nsec = NAP_NS};
    const symmem_clock *clock = op->instance->clock;
    for (int spins = 0;; spins++) {
        /* acquire; pairs with: run_write_value32, or a store of the user */
        if (atomic_load_explicit(word, memory_order_acquire) != 0)
            return SYMMEM_OK;
        if (spins < SPIN_COUNT)
            continue;
        if (deadline_ns != 0 && shm_now_ns(clock) >= deadline_ns)
            return SYMMEM_TIMEOUT;
        if (is_stream_gone(op))
            return SYMMEM_NOT_INITIALIZED;
        if (clock != NULL)
            clock->wait(clock->arg, shm_now_ns(clock) + NAP_NS);
        else
            nanosleep(&nap, NULL);
    }
}

static symmem_status multiply_arriving(const shm_op *op, symmem_error_record *record_p) {
    const symmem_matmul *product = &op->u.matmul.product;
    uint64_t deadline_ns = shm_deadline_ns(op->instance->clock, op->u.matmul.timeout_ms);
    int64_t rows = product->m / product->signal_count;
    for (int32_t i = 0; i < product->signal_count; i++) {
        int32_t chunk = (int32_t)(((int64_t)product->signal_pivot + i) % product->signal_count);
        symmem_status status =
            await(op, (const shm_word *)(const void *)(product->signals + chunk), deadline_ns);
        if (status != SYMMEM_OK) {
            char text[80];
            snprintf(text, sizeof text, "chunk %d of %d did not arrive in time", (int)chunk,
                     (int)product->signal_count);
            return fail(op, status, text, record_p);
        }
        const symmem_matmul some = symmem_cpu_matmul_rows(product, chunk * rows, rows);
        status = multiply(op, &some, record_p);
        if (status != SYMMEM_OK)
            return status;
    }
    return SYMMEM_OK;
}

static symmem_status run_matmul(const shm_op *op, symmem_error_record *record_p) {
    symmem_status status = shm_op_failpoint(op, "shm.matmul", op->operation, record_p);
    if (status != SYMMEM_OK)
        return status;
    return op->u.matmul.product.signals != NULL ? multiply_arriving(op, record_p)
                                                : multiply(op, &op->u.matmul.product, record_p);
}

symmem_status shm_matmul(void *instance, int32_t device, const symmem_matmul *product,
                         const symmem_exec *exec) {
    (void)device;
    shm_op op;
    shm_op_init(&op, instance, run_matmul);
    op.u.matmul.product = *product;
    op.u.matmul.timeout_ms = exec->timeout_ms;
    return shm_submit(&op, exec, shm_operation(exec, "matmul"));
}

/* --- copies and reductions ------------------------------------------------------------------ */

static symmem_status run_copy_strided(const shm_op *op, symmem_error_record *record_p) {
    symmem_status status = shm_op_failpoint(op, "shm.copy_strided", op->operation, record_p);
    if (status == SYMMEM_OK)
        symmem_cpu_copy_strided(&op->u.strided);
    return status;
}

symmem_status shm_copy_strided(void *instance, int32_t device, const symmem_strided_copy *copy,
                               const symmem_exec *exec) {
    (void)device;
    shm_op op;
    shm_op_init(&op, instance, run_copy_strided);
    op.u.strided = *copy;
    return shm_submit(&op, exec, shm_operation(exec, "copy_strided"));
}

static symmem_status run_reduce_local(const shm_op *op, symmem_error_record *record_p) {
    const symmem_local_reduce *reduce = &op->u.local;
    const void *srcs[SYMMEM_MAX_WORLD_SIZE];
    void *dst = reduce->dst;
    symmem_status status = shm_op_failpoint(op, "shm.reduce_local", op->operation, record_p);
    if (status != SYMMEM_OK)
        return status;
    for (int32_t s = 0; s < reduce->src_count; s++)
        srcs[s] = (const char *)reduce->src + (size_t)s * reduce->src_stride;
    const symmem_cpu_reduce_args args = {.dsts = &dst,
                                         .dst_count = 1,
                                         .srcs = srcs,
                                         .src_count = reduce->src_count,
                                         .count = reduce->count};
    uint64_t mode = symmem_cpu_float_begin();
    symmem_cpu_reduce_find(op->instance->isa, reduce->dtype, reduce->op)(&args);
    symmem_cpu_float_end(mode);
    return SYMMEM_OK;
}

symmem_status shm_reduce_local(void *instance, int32_t device, const symmem_local_reduce *reduce,
                               const symmem_exec *exec) {
    (void)device;
    shm_op op;
    shm_op_init(&op, instance, run_reduce_local);
    op.u.local = *reduce;
    return shm_submit(&op, exec, shm_operation(exec, "reduce_local"));
}
