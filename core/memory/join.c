/* SPDX-License-Identifier: BSD-3-Clause */
/* symmem_join: the ranks form a group for this call, in which the backend starts its engine. */
#include "memory/join.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "backend/heap.h"
#include "backend/device.h"
#include "backend/host.h"
#include "backend/instance.h"
#include "backend/query.h"
#include "backend/registry.h"
#include "memory/group_calls.h"

static const char operation[] = "join";

/* The record that each rank sends before anything is started. It has no padding. */
typedef struct record {
    uint64_t backend, heap_bytes;
} record;

typedef struct joining {
    symmem_context *context;
    symmem_group *group;
    size_t heap_bytes;
    uint64_t deadline_ns;
    uint32_t device_ms; /* for the device, from when it is asked for; 0: until the deadline */
} joining;

static symmem_status disagree(const char *what, int32_t rank, uint64_t expected, uint64_t actual) {
    (void)sm_fail(SYMMEM_MISMATCH, operation, "world",
                  "ranks disagree on the %s: rank 0 has %" PRIu64 ", rank %d has %" PRIu64, what,
                  expected, rank, actual);
    (void)sm_error_failed_rank(rank);
    return sm_error_sizes(expected, actual);
}

/* All ranks reach the same result. */
static symmem_status check_heaps(const record *all, int32_t world_size) {
    for (int32_t r = 1; r < world_size; r++) {
        if (all[r].backend != all[0].backend)
            return disagree("backend, by a hash of its name", r, all[0].backend, all[r].backend);
        if (all[r].heap_bytes != all[0].heap_bytes)
            return disagree("bytes of the heap", r, all[0].heap_bytes, all[r].heap_bytes);
    }
    return SYMMEM_OK;
}

static symmem_status compare(const joining *join) {
    const int32_t world_size = join->context->world_size;
    const char *name = join->context->backend->name;
    const record own = {sm_hash(name, strlen(name), SM_HASH_SEED), join->heap_bytes};
    record *all = calloc((size_t)world_size, sizeof *all);
    if (!all) {
        symmem_status status = sm_context_fail(join->context, SYMMEM_OUT_OF_MEMORY, operation,
                                               "world", "no memory for %d ranks", world_size);
        return sm_session_agree(join->group->session, operation, "world", status,
                                join->deadline_ns);
    }
    symmem_status status = sm_session_all_gather(join->group->session, operation, "world", &own,
                                                 sizeof own, all, true, join->deadline_ns);
    if (status == SYMMEM_OK)
        status = check_heaps(all, world_size);
    free(all);
    return status;
}

/* An answer that a backend must not give is the backend's failure. */
static symmem_status check_heap(const joining *join, const symmem_memory *heap) {
    if (heap->ptr && (uintptr_t)heap->ptr % SYMMEM_ALIGNMENT == 0 &&
        heap->bytes >= join->heap_bytes)
        return SYMMEM_OK;
    return sm_context_fail(join->context, SYMMEM_BACKEND, operation, "world_open",
                           "backend '%s' gave a heap of %zu bytes at %p for %zu bytes",
                           join->context->backend->name, heap->bytes, heap->ptr, join->heap_bytes);
}

/* Starts the engine on every rank, or on none. */
static symmem_status open_world(const joining *join) {
    symmem_context *context = join->context;
    symmem_exchange exchange;
    symmem_memory heap = {.device = -1};
    sm_group_exchange(join->group, join->deadline_ns, &exchange);
    int32_t device = 0;
    symmem_status status = sm_device_resolve(context, -1, operation, &device);
    const symmem_world_config config = {.size = sizeof config,
                                        .job = exchange.group_id,
                                        .rank = context->rank,
                                        .world_size = context->world_size,
                                        .local_rank = context->local_rank,
                                        .device = device,
                                        .heap_bytes = join->heap_bytes};
    /* No rank starts what another one cannot. */
    status = sm_session_agree(join->group->session, operation, "world", status, join->deadline_ns);
    if (status != SYMMEM_OK)
        return status;
    const uint64_t before_ns = sm_call_deadline(join->device_ms > 0 ? 0 : join->deadline_ns);
    const uint32_t before_ms = sm_call_limit(join->device_ms);
    status = context->backend->world_open(context->instance, &exchange, &config, &heap);
    (void)sm_call_limit(before_ms);
    (void)sm_call_deadline(before_ns);
    const bool opened = status == SYMMEM_OK;
    status = opened ? check_heap(join, &heap)
                    : sm_backend_failed(context, status, operation, "world_open");
    status =
        sm_session_agree(join->group->session, operation, "world_open", status, join->deadline_ns);
    if (status == SYMMEM_OK)
        status = sm_heap_create(context, &heap, join->heap_bytes);
    if (status != SYMMEM_OK && opened)
        context->backend->world_close(context->instance, &heap);
    return status;
}

/* Forms a group for this call alone. The caller holds context->join_lock. */
static symmem_status meet(joining *join) {
    symmem_context *context = join->context;
    symmem_status status = symmem_group_create(context, SM_JOIN_GROUP, NULL, 0, NULL, &join->group);
    if (status != SYMMEM_OK)
        return status;
    status = sm_group_enter(join->group, operation, join->deadline_ns);
    if (status == SYMMEM_OK) {
        status = compare(join);
        if (status == SYMMEM_OK)
            status = open_world(join);
        status = sm_group_end_call(join->group, status);
    }
    SM_ATTEMPT(end);
    symmem_status destroyed = symmem_group_destroy(join->group);
    return status == SYMMEM_OK && destroyed == SYMMEM_NOT_INITIALIZED ? sm_error_raise(&end.error)
                                                                      : status;
}

/* A later call of symmem_join. */
static symmem_status again(const symmem_context *context, size_t asked) {
    const size_t there = sm_heap_bytes(context);
    if (asked == 0 || asked == there)
        return SYMMEM_OK;
    (void)sm_context_fail(context, SYMMEM_EXISTS, operation, "",
                          "joined already, with a heap of %zu bytes; %zu are asked for", there,
                          asked);
    return sm_error_sizes(there, asked);
}

/* The caller holds context->join_lock, unless the context has a heap. */
static symmem_status join_world(symmem_context *context, size_t asked, uint64_t deadline_ns,
                                uint32_t device_ms) {
    joining join = {.context = context, .deadline_ns = deadline_ns, .device_ms = device_ms};
    if (!sm_round_up(asked == 0 ? SYMMEM_JOIN_HEAP_BYTES : asked, SYMMEM_ALIGNMENT,
                     &join.heap_bytes))
        return sm_context_fail(context, SYMMEM_OVERFLOW, operation, "",
                               "a heap of %zu bytes overflows", asked);
    if (sm_heap_bytes(context) != 0)
        return again(context, asked == 0 ? 0 : join.heap_bytes);
    return meet(&join);
}

symmem_status sm_join_alone(symmem_context *context, uint32_t limit_ms) {
    if (context->world_size > 1 || !context->backend->world_open || sm_heap_bytes(context) != 0)
        return SYMMEM_OK;
    const uint64_t deadline_ns = sm_deadline_ns(limit_ms);
    if (!sm_timed_mutex_lock(&context->join_lock, deadline_ns))
        return sm_context_fail(context, SYMMEM_TIMEOUT, operation, "",
                               "another thread of this rank is still joining");
    symmem_status status = join_world(context, 0, deadline_ns, limit_ms);
    sm_timed_mutex_unlock(&context->join_lock);
    return status;
}

static symmem_status join_unless_busy(symmem_context *context, size_t asked, uint64_t deadline_ns) {
    if (sm_heap_bytes(context) != 0)
        return join_world(context, asked, deadline_ns, 0);
    if (!sm_timed_mutex_try_lock(&context->join_lock))
        return sm_context_fail(context, SYMMEM_BUSY, operation, "",
                               "another thread of this rank is joining");
    symmem_status status = join_world(context, asked, deadline_ns, 0);
    sm_timed_mutex_unlock(&context->join_lock);
    return status;
}

symmem_status symmem_progress(symmem_context *context) {
    SM_PUBLIC_CALL;
    symmem_status status = sm_context_check(context, "progress");
    if (status == SYMMEM_OK)
        (void)sm_heap_progress(context);
    return status;
}

symmem_status symmem_join(symmem_context *context, const symmem_join_options *options,
                          uint32_t timeout_ms) {
    SM_PUBLIC_CALL;
    symmem_status status = sm_context_check(context, operation);
    if (status != SYMMEM_OK)
        return status;
    if (options && options->size < offsetof(symmem_join_options, heap_bytes) + sizeof(size_t))
        return sm_context_fail(context, SYMMEM_INVALID_ARGUMENT, operation, "",
                               "the options' size is %zu", options->size);
    const uint64_t begin_ns = sm_now_ns();
    status = sm_instance_enter(context, operation);
    if (status != SYMMEM_OK)
        return status;
    if (context->backend->world_open)
        status = join_unless_busy(context, options ? options->heap_bytes : 0,
                                  sm_deadline_ns(sm_context_timeout(context, timeout_ms)));
    if (status != SYMMEM_OK)
        (void)sm_error_elapsed(sm_now_ns() - begin_ns);
    sm_instance_release(context);
    return status;
}
