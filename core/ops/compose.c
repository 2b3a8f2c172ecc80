/* SPDX-License-Identifier: BSD-3-Clause */
/* Operations composed of a backend's barriers, copies and reductions. They share one hold of the
 * channel, one name and one time limit. */
#include "ops/collective.h"
#include "ops/compose.h"
#include "backend/host.h"
#include "rendezvous/link_poison.h"

void sm_parts_begin(sm_parts *parts, const sm_channel_op *op, const symmem_exec *exec,
                    bool capturing) {
    *parts = (sm_parts){.op = op, .exec = *exec, .capturing = capturing};
    parts->exec.operation = op->name;
    if (exec->stream == NULL)
        parts->deadline_ns = sm_deadline_ns(exec->timeout_ms);
    else
        parts->exec.composite = sm_link_composite(op->link, op->channel);
}

/* A barrier that ran and failed has poisoned the link and told the peers. After another failure
 * peers may wait for parts that will never come, so they are told here. Captured parts have not
 * run. */
static symmem_status part_done(sm_parts *parts, symmem_status status, const char *entry) {
    sm_link *link = parts->op->link;
    if (status == SYMMEM_OK) {
        parts->begun = true;
        parts->exec.step++;
        return SYMMEM_OK;
    }
    if (status == SYMMEM_MISMATCH || sm_link_is_poisoned(&link->peers))
        return status;
    status = sm_backend_failed(link->context, status, parts->op->name, entry);
    if (!parts->begun || parts->capturing)
        return status;
    symmem_error_record error;
    (void)sm_error_channel(parts->op->channel);
    (void)sm_error_get(&error);
    sm_link_poison_and_tell(link, &error);
    return status;
}

symmem_status sm_parts_barrier(sm_parts *parts) {
    const sm_link *link = parts->op->link;
    if (parts->deadline_ns != 0) { /* one that is over need not wait: it has a moment to pass */
        uint32_t left_ms = sm_remaining_ms(parts->deadline_ns, UINT32_MAX);
        parts->exec.timeout_ms = left_ms > 0 ? left_ms : 1;
    }
    symmem_status status = link->context->backend->barrier(link->context->instance, &link->peers,
                                                           parts->op->channel, &parts->exec);
    parts->exec.call = (symmem_call_id){.kind = SYMMEM_CALL_NONE};
    return part_done(parts, status, "barrier");
}

symmem_status sm_parts_copy(sm_parts *parts, void *dst, const void *src, size_t bytes) {
    if (bytes == 0)
        return SYMMEM_OK;
    const sm_link *link = parts->op->link;
    symmem_status status = link->context->backend->copy(link->context->instance, link->device, dst,
                                                        src, bytes, &parts->exec);
    return part_done(parts, status, "copy");
}

symmem_status sm_parts_reduce(sm_parts *parts, const symmem_tile_reduction *tile) {
    if (tile->rows == 0 || tile->row == 0)
        return SYMMEM_OK;
    const sm_link *link = parts->op->link;
    symmem_status status = link->context->backend->reduce_tile(link->context->instance,
                                                               &link->peers, tile, &parts->exec);
    return part_done(parts, status, "reduce_tile");
}

symmem_status sm_parts_store(sm_parts *parts, void *address, const void *src, size_t bytes) {
    if (bytes == 0)
        return SYMMEM_OK;
    const sm_link *link = parts->op->link;
    symmem_status status = link->context->backend->multimem_store(
        link->context->instance, &link->peers, address, src, bytes, &parts->exec);
    return part_done(parts, status, "multimem_store");
}
