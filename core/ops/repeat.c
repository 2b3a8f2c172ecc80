/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reductions that are called again with the same arguments. A program calls few different ones on a
 * channel. Whether their tensors fit depends on the tensors and on the link, which never changes.
 * So a channel keeps the last calls that passed all checks. A repeated call asks only for what may
 * have changed: the context, the poison, the stream, and memory that the link does not keep.
 */
#include "ops/repeat.h"
#include "backend/query.h"
#include "memory/group_explain.h"
#include "rendezvous/handle.h"
#include "rendezvous/link_poison.h"

#include <string.h>

#define WAYS 4
#define MOST_NDIM 4             /* tensors with more dimensions are not kept */
#define MIX 0x9e3779b97f4a7c15u /* the golden ratio, which spreads values over the highest bits */

/* A tensor argument with all that its checks read. */
typedef struct kept_tensor {
    void *data;
    uint64_t byte_offset;
    DLDevice device;
    DLDataType dtype;
    int32_t ndim;
    bool has_strides;
    int64_t shape[MOST_NDIM], strides[MOST_NDIM];
} kept_tensor;

/* Memory of the call beside the link's own; data NULL: none. */
typedef struct kept_memory {
    const void *data;
    size_t bytes;
} kept_memory;

typedef struct kept_call {
    const char *name; /* of the public call; NULL: nothing is kept here */
    bool has_buffer, has_out, split;
    symmem_reduce_op op;
    size_t offset; /* of the handle */
    kept_tensor input, out, buffer;
    symmem_collective call;
    symmem_call_id id;
    kept_memory read, written;
} kept_call;

_Static_assert(WAYS * sizeof(kept_call) <= SM_KEPT_BYTES, "a channel has room for all ways");
_Static_assert(sizeof(sm_channel) % _Alignof(kept_call) == 0, "behind a channel");

/* --- the same arguments ----------------------------------------------------------------------- */

static bool is_same(const kept_tensor *kept, const DLTensor *tensor) {
    if (tensor == NULL || tensor->data != kept->data || tensor->ndim != kept->ndim ||
        tensor->byte_offset != kept->byte_offset ||
        memcmp(&tensor->dtype, &kept->dtype, sizeof kept->dtype) != 0 ||
        memcmp(&tensor->device, &kept->device, sizeof kept->device) != 0 ||
        (tensor->strides != NULL) != kept->has_strides || (tensor->shape == NULL && kept->ndim > 0))
        return false;
    for (int32_t d = 0; d < kept->ndim; d++)
        if (tensor->shape[d] != kept->shape[d] ||
            (kept->has_strides && tensor->strides[d] != kept->strides[d]))
            return false;
    return true;
}

static bool is_same_call(const kept_call *kept, const sm_reduction *reduction) {
    return kept->name == reduction->name && kept->op == reduction->op &&
           kept->offset == reduction->handle->offset && kept->has_out == reduction->has_out &&
           kept->has_buffer == reduction->has_buffer && kept->split == reduction->split &&
           is_same(&kept->input, reduction->input) &&
           (!kept->has_out || is_same(&kept->out, reduction->out)) &&
           (!kept->has_buffer || is_same(&kept->buffer, reduction->buffer));
}

static void keep_tensor(kept_tensor *kept, const DLTensor *tensor) {
    *kept = (kept_tensor){.data = tensor->data,
                          .byte_offset = tensor->byte_offset,
                          .device = tensor->device,
                          .dtype = tensor->dtype,
                          .ndim = tensor->ndim,
                          .has_strides = tensor->strides != NULL};
    for (int32_t d = 0; d < tensor->ndim; d++) {
        kept->shape[d] = tensor->shape[d];
        kept->strides[d] = kept->has_strides ? tensor->strides[d] : 0;
    }
}

/* By what differs most between the calls of a program. */
static size_t way_of(const sm_reduction *reduction) {
    uint64_t mixed = (uintptr_t)reduction->input->data * MIX;
    if (reduction->has_out && reduction->out != NULL)
        mixed = (mixed ^ (uintptr_t)reduction->out->data) * MIX;
    return (size_t)(mixed >> 32) % WAYS;
}

/* --- running -------------------------------------------------------------------------------------
 */

/* Allocations may be freed, and others come in their place, so they are found anew. */
static symmem_status cover(sm_refs *refs, const sm_link *link, const kept_call *kept) {
    int32_t device;
    if (kept->read.data == NULL && kept->written.data == NULL)
        return SYMMEM_OK;
    symmem_status status =
        sm_refs_cover(refs, link->context, kept->name, kept->read.data, kept->read.bytes);
    if (status == SYMMEM_OK)
        status =
            sm_refs_cover(refs, link->context, kept->name, kept->written.data, kept->written.bytes);
    return status == SYMMEM_OK
               ? sm_refs_device(refs, link->context, kept->name, link->device, &device)
               : status;
}

/* channel: the call lock is held; NULL: it is not. The caller finishes the references without it.
 */
static symmem_status run_kept(const kept_call *kept, const sm_reduction *reduction,
                              sm_channel *channel, sm_refs *refs) {
    sm_link *link = reduction->handle->link;
    sm_refs_init(refs, link);
    symmem_status status = sm_context_point(link->context, kept->name, "collective.before");
    if (status == SYMMEM_OK)
        status = cover(refs, link, kept);
    if (status != SYMMEM_OK)
        return status;
    const sm_channel_op op = {
        .kind = SM_COLLECTIVE,
        .name = kept->name,
        .begin_point = "collective.begin",
        .done_point = "collective.done",
        .link = link,
        .channel = reduction->channel,
        .timeout_ms = sm_context_timeout(link->context, reduction->timeout_ms),
        .refs = refs->refs,
        .ref_count = refs->count,
        .id = kept->id,
        .collective = &kept->call,
    };
    return channel != NULL ? sm_channel_run(&op, channel, reduction->stream)
                           : sm_channel_submit(&op, reduction->stream);
}

/* The call lock is held. NULL: none that may run. */
static const kept_call *find(const sm_channel *channel, const sm_reduction *reduction) {
    const sm_link *link = reduction->handle->link;
    const symmem_stream *stream = reduction->stream;
    if (reduction->input == NULL)
        return NULL;
    const kept_call *kept = (const kept_call *)channel->kept + way_of(reduction);
    const bool fits =
        stream == NULL || (stream->context == link->context && stream->device == link->device);
    return fits && is_same_call(kept, reduction) && !sm_link_finds_poison(link) ? kept : NULL;
}

/* The channel that a call may use; NULL: none yet, or not without a closer look. */
static sm_channel *find_channel(const sm_link *link, int32_t index) {
    if (index < 0 || index >= link->channel_count)
        return NULL;
    /* acquire; pairs with: make_channel of link.c */
    return atomic_load_explicit(&link->channels[index], memory_order_acquire);
}

bool sm_repeat_run(sm_reduction *reduction, symmem_status *status_p) {
    if (sm_handle_check(reduction->handle, reduction->name) != SYMMEM_OK)
        return false;
    const sm_link *link = reduction->handle->link;
    /* relaxed: see choose of all_reduce.c */
    reduction->is_kept =
        !reduction->by_table ||
        atomic_load_explicit(&link->context->all_reduce_table, memory_order_relaxed) == NULL;
    sm_channel *channel = find_channel(link, reduction->channel);
    if (!reduction->is_kept || channel == NULL || !sm_timed_mutex_try_lock(&channel->call_lock))
        return false;
    const kept_call *kept = find(channel, reduction);
    if (kept == NULL) {
        sm_timed_mutex_unlock(&channel->call_lock);
        return false;
    }
    sm_refs refs;
    if (link->context->point != NULL) { /* the program's, which may call the library */
        const kept_call copy = *kept;
        sm_timed_mutex_unlock(&channel->call_lock);
        *status_p = run_kept(&copy, reduction, NULL, &refs);
    } else {
        *status_p = run_kept(kept, reduction, channel, &refs);
        sm_timed_mutex_unlock(&channel->call_lock);
        if (*status_p != SYMMEM_OK)
            sm_group_explain(link->context);
    }
    sm_refs_finish(&refs);
    return true;
}

/* --- keeping -------------------------------------------------------------------------------------
 */

/* What lies in the link's own allocation stays as long as the link. */
static kept_memory memory_of(const sm_link *link, const sm_tensor *tensor) {
    if (tensor == NULL || tensor->count == 0)
        return (kept_memory){NULL, 0};
    return sm_collective_is_of(link, tensor) ? (kept_memory){NULL, 0}
                                             : (kept_memory){tensor->data, tensor->bytes};
}

static bool may_keep(const sm_reduction *reduction) {
    return reduction->input->ndim <= MOST_NDIM &&
           (!reduction->has_out || reduction->out->ndim <= MOST_NDIM) &&
           (!reduction->has_buffer || reduction->buffer->ndim <= MOST_NDIM);
}

static void keep(kept_call *kept, const sm_reduction *reduction, const sm_collective_op *op,
                 const symmem_call_id *id) {
    kept->name = reduction->name;
    kept->has_buffer = reduction->has_buffer;
    kept->has_out = reduction->has_out;
    kept->split = reduction->split;
    kept->op = reduction->op;
    kept->offset = reduction->handle->offset;
    keep_tensor(&kept->input, reduction->input);
    if (reduction->has_out)
        keep_tensor(&kept->out, reduction->out);
    if (reduction->has_buffer)
        keep_tensor(&kept->buffer, reduction->buffer);
    kept->call = op->call;
    kept->id = *id;
}

void sm_repeat_keep(const sm_collective_op *op, const sm_tensor *in, const sm_tensor *out,
                    const symmem_call_id *id) {
    const sm_reduction *reduction = op->reduction;
    sm_channel *channel = find_channel(op->link, op->channel);
    if (!may_keep(reduction) || channel == NULL || !sm_timed_mutex_try_lock(&channel->call_lock))
        return;
    kept_call *kept = (kept_call *)channel->kept + way_of(reduction);
    keep(kept, reduction, op, id);
    kept->read = memory_of(op->link, in);
    kept->written = memory_of(op->link, out);
    sm_timed_mutex_unlock(&channel->call_lock);
}
