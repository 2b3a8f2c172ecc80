/* SPDX-License-Identifier: BSD-3-Clause */
/* Waits for the value of a word. Like the one-sided copies they belong to no channel. */
#include "backend/host.h"
#include "backend/query.h"
#include "backend/table.h"
#include "memory/group_explain.h"
#include "rendezvous/handle.h"
#include "rendezvous/link_poison.h"
#include "stream/onesided.h"

#define NO_CHANNEL (-1)

/* One call: its name, and the memory that its word is in. */
typedef struct value_call {
    const char *name;
    symmem_handle *handle;
    int32_t rank;
    size_t offset;
    symmem_value_wait wait;
    uint32_t timeout_ms;
    const symmem_stream *stream;
} value_call;

static symmem_status check_compare(const value_call *call) {
    if ((unsigned)call->wait.compare < SYMMEM_COMPARE_COUNT)
        return SYMMEM_OK;
    return sm_fail(SYMMEM_INVALID_ARGUMENT, call->name, "", "%d is no comparison",
                   (int)call->wait.compare);
}

static symmem_status locate_word(value_call *call) {
    const sm_link *link = call->handle->link;
    const size_t bytes = (size_t)call->wait.bytes;
    const size_t at = call->handle->offset + call->offset; /* in bounds, so the sum is exact */
    const char *base = link->mapping->buffers[call->rank];
    /* Allocations are aligned to more than a word, so this holds for peers without a pointer too.
     */
    if (at % bytes != 0)
        return sm_fail(SYMMEM_MISALIGNED, call->name, "",
                       "byte %zu of the allocation is not aligned to words of %zu bytes", at,
                       bytes);
    if (base == NULL) {
        (void)sm_fail(SYMMEM_UNREACHABLE, call->name, "", "no direct access to rank %d",
                      call->rank);
        return sm_error_failed_rank(call->rank);
    }
    call->wait.word = base + at;
    return SYMMEM_OK;
}

static symmem_status check_call(value_call *call) {
    symmem_status status = sm_handle_check(call->handle, call->name);
    if (status != SYMMEM_OK)
        return status;
    const sm_link *link = call->handle->link;
    status = sm_need_capability(link->context, SYMMEM_CAP_VALUES, call->name, "waits for values");
    if (status == SYMMEM_OK)
        status = sm_handle_rank_check(call->handle, call->name, call->rank);
    if (status == SYMMEM_OK)
        status = sm_handle_rank_check(call->handle, call->name, call->wait.source);
    if (status == SYMMEM_OK)
        status = check_compare(call);
    if (status == SYMMEM_OK)
        status = sm_handle_bounds(call->handle, call->name, call->offset, (size_t)call->wait.bytes);
    if (status == SYMMEM_OK)
        status = sm_stream_fits(link->context, call->stream, link->device, call->name);
    return status == SYMMEM_OK ? locate_word(call) : status;
}

/* Runs or enqueues the wait, whose arguments are checked. */
static symmem_status run_wait(const value_call *call, sm_link *link) {
    symmem_context *context = link->context;
    sm_refs refs;
    sm_refs_init(&refs, link);
    symmem_exec exec = sm_refs_exec(&refs, call->stream);
    exec.timeout_ms = sm_context_timeout(context, call->timeout_ms);
    exec.operation = call->name;
    symmem_error_record record;
    record.status = SYMMEM_OK; /* the other members matter only once it is filled */
    sm_link_caller *caller =
        sm_link_set_caller(link, NO_CHANNEL, call->stream == NULL ? &record : NULL);
    symmem_status status =
        context->backend->wait_value(context->instance, &link->peers, &call->wait, &exec);
    caller->record = NULL;
    if (status == SYMMEM_OK)
        return SYMMEM_OK;
    /* Without a record the call failed, and not the wait. */
    if (record.status != status)
        return sm_backend_failed(context, status, call->name, "wait_value");
    return sm_error_raise(&record);
}

static symmem_status wait_value(value_call *call) {
    symmem_status status = check_call(call);
    if (status != SYMMEM_OK)
        return status;
    sm_link *link = call->handle->link;
    status = sm_link_refuse_poisoned(link, call->name);
    if (status == SYMMEM_OK)
        status = sm_context_point(link->context, call->name, "value.before");
    if (status == SYMMEM_OK)
        status = run_wait(call, link);
    if (status != SYMMEM_OK)
        sm_group_explain(link->context);
    return status;
}

symmem_status symmem_wait_value32(symmem_handle *handle, int32_t rank, size_t offset,
                                  symmem_compare compare, uint32_t value, int32_t source,
                                  uint32_t timeout_ms, symmem_stream *stream) {
    SM_PUBLIC_CALL;
    value_call call = {.name = "wait_value32",
                       .handle = handle,
                       .rank = rank,
                       .offset = offset,
                       .wait = {.size = sizeof call.wait,
                                .value = value,
                                .bytes = sizeof value,
                                .compare = compare,
                                .source = source},
                       .timeout_ms = timeout_ms,
                       .stream = stream};
    return wait_value(&call);
}

symmem_status symmem_wait_value64(symmem_handle *handle, int32_t rank, size_t offset,
                                  symmem_compare compare, uint64_t value, int32_t source,
                                  uint32_t timeout_ms, symmem_stream *stream) {
    SM_PUBLIC_CALL;
    value_call call = {.name = "wait_value64",
                       .handle = handle,
                       .rank = rank,
                       .offset = offset,
                       .wait = {.size = sizeof call.wait,
                                .value = value,
                                .bytes = sizeof value,
                                .compare = compare,
                                .source = source},
                       .timeout_ms = timeout_ms,
                       .stream = stream};
    return wait_value(&call);
}
