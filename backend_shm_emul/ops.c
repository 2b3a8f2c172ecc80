/* SPDX-License-Identifier: BSD-3-Clause */
/* Operations on bytes, and host functions. */
#include <string.h>

#include "ops.h"
#include "op.h"
#include "signals.h"
#include "wait.h"

static symmem_status run_copy(const shm_op *op, symmem_error_record *record_p) {
    symmem_status status = shm_op_failpoint(op, "shm.copy", op->u.copy.operation, record_p);
    if (status != SYMMEM_OK)
        return status;
    if (op->u.copy.bytes > 0)
        memmove(op->u.copy.dst, op->u.copy.src, op->u.copy.bytes);
    return SYMMEM_OK;
}

symmem_status shm_copy(void *instance, int32_t device, void *dst, const void *src, size_t bytes,
                       const symmem_exec *exec) {
    (void)device;
    shm_op op;
    shm_op_init(&op, instance, run_copy);
    op.u.copy.dst = dst;
    op.u.copy.src = src;
    op.u.copy.bytes = bytes;
    op.u.copy.operation = shm_operation(exec, "copy");
    return shm_submit(&op, exec, op.u.copy.operation);
}

static symmem_status run_memset32(const shm_op *op, symmem_error_record *record_p) {
    symmem_status status = shm_op_failpoint(op, "shm.memset", "memset32", record_p);
    if (status != SYMMEM_OK)
        return status;
    uint32_t *words = op->u.fill.dst;
    for (size_t i = 0; i < op->u.fill.count; i++)
        words[i] = op->u.fill.value;
    return SYMMEM_OK;
}

symmem_status shm_memset32(void *instance, int32_t device, void *dst, uint32_t value, size_t count,
                           const symmem_exec *exec) {
    (void)device;
    shm_op op;
    shm_op_init(&op, instance, run_memset32);
    op.u.fill.dst = dst;
    op.u.fill.count = count;
    op.u.fill.value = value;
    return shm_submit(&op, exec, "memset32");
}

/* A thread that waits for the value by the program's clock looks again. */
static void tell_clock(const shm_op *op) {
    const symmem_clock *clock = shm_clock(op->instance->host);
    if (clock != NULL)
        clock->changed(clock->arg);
}

static symmem_status run_write_value32(const shm_op *op, symmem_error_record *record_p) {
    symmem_status status =
        shm_op_failpoint(op, "shm.write_value", "stream_write_value32", record_p);
    if (status != SYMMEM_OK)
        return status;
    /* release; pairs with: the user's load that waits for the word */
    atomic_store_explicit((shm_word *)op->u.fill.dst, op->u.fill.value, memory_order_release);
    tell_clock(op);
    return SYMMEM_OK;
}

symmem_status shm_write_value32(void *instance, int32_t device, void *dst, uint32_t value,
                                const symmem_exec *exec) {
    (void)device;
    shm_op op;
    shm_op_init(&op, instance, run_write_value32);
    op.u.fill.dst = dst;
    op.u.fill.value = value;
    return shm_submit(&op, exec, "stream_write_value32");
}

static symmem_status run_write_value64(const shm_op *op, symmem_error_record *record_p) {
    symmem_status status =
        shm_op_failpoint(op, "shm.write_value", "stream_write_value64", record_p);
    if (status != SYMMEM_OK)
        return status;
    /* release; pairs with: the load in a wait for the value, or the user's */
    atomic_store_explicit((_Atomic uint64_t *)op->u.wide.dst, op->u.wide.value,
                          memory_order_release);
    tell_clock(op);
    return SYMMEM_OK;
}

symmem_status shm_write_value64(void *instance, int32_t device, void *dst, uint64_t value,
                                const symmem_exec *exec) {
    (void)device;
    shm_op op;
    shm_op_init(&op, instance, run_write_value64);
    op.u.wide.dst = dst;
    op.u.wide.value = value;
    return shm_submit(&op, exec, "stream_write_value64");
}

static symmem_status run_host_fn(const shm_op *op, symmem_error_record *record_p) {
    (void)record_p;
    op->u.call.fn(op->u.call.arg);
    return SYMMEM_OK;
}

symmem_status shm_host_fn(void *instance, void *stream, void (*fn)(void *arg), void *arg) {
    shm_op op;
    shm_op_init(&op, instance, run_host_fn);
    op.u.call.fn = fn;
    op.u.call.arg = arg;
    symmem_exec exec = {.stream = stream};
    return shm_submit(&op, &exec, "stream_host_fn");
}
