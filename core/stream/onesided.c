/* SPDX-License-Identifier: BSD-3-Clause */
/* One-sided copies, and the checks and references of all operations on memory. */
#include "stream/channel.h"
#include "backend/device.h"
#include "backend/host.h"
#include "backend/instance.h"
#include "backend/query.h"
#include "rendezvous/handle.h"

symmem_status sm_handle_bounds(const symmem_handle *handle, const char *operation, size_t offset,
                               size_t bytes) {
    const sm_link *link = handle->link;
    size_t end;
    /* The handle's offset lies in the block, so the sum of the two cannot hide a wrap. */
    if (!sm_add(offset, bytes, &end) || !sm_add(end, handle->offset - link->block_offset, &end)) {
        return sm_fail(SYMMEM_OVERFLOW, operation, "", "offset %zu + %zu bytes overflows", offset,
                       bytes);
    }
    if (end <= link->block_bytes)
        return SYMMEM_OK;
    (void)sm_fail(SYMMEM_OUT_OF_RANGE, operation, "",
                  "offset %zu + %zu bytes ends at byte %zu of a block of %zu", offset, bytes, end,
                  link->block_bytes);
    return sm_error_sizes(link->block_bytes, end);
}

static void allocation_ref_retain(void *object) {
    sm_allocation_retain(object);
}

static void allocation_ref_release(void *object) {
    symmem_context *context = ((sm_allocation *)object)->context;
    sm_instance_retain(context);
    sm_allocation_release(object);
    sm_instance_release_work(context);
}

void sm_refs_init(sm_refs *refs, sm_link *link) {
    refs->count = refs->held_count = 0; /* the arrays are not in use yet */
    refs->device = -1;
    if (link != NULL)
        sm_link_ref(link, &refs->refs[refs->count++]);
}

symmem_status sm_refs_cover(sm_refs *refs, symmem_context *context, const char *operation,
                            const void *ptr, size_t bytes) {
    if (ptr == NULL)
        return SYMMEM_OK;
    if ((uintptr_t)ptr + bytes < (uintptr_t)ptr)
        return sm_fail(SYMMEM_OVERFLOW, operation, "", "%p + %zu bytes overflows", ptr, bytes);
    sm_allocation *allocation = sm_allocation_find(context, ptr);
    if (allocation == NULL)
        return SYMMEM_OK; /* not symmetric memory: the caller keeps it */
    refs->held[refs->held_count++] = allocation;
    refs->refs[refs->count++] = (symmem_ref){
        .retain = allocation_ref_retain, .release = allocation_ref_release, .object = allocation};
    if (refs->device < 0)
        refs->device = allocation->device;
    size_t left =
        allocation->bytes - (size_t)((const char *)ptr - (const char *)allocation->memory.ptr);
    if (bytes <= left)
        return SYMMEM_OK;
    (void)sm_fail(SYMMEM_OUT_OF_RANGE, operation, "",
                  "%zu bytes, but the allocation ends after %zu", bytes, left);
    return sm_error_sizes(left, bytes);
}

symmem_status sm_refs_stream(const sm_refs *refs, const symmem_context *context,
                             const char *operation, const symmem_stream *stream) {
    for (int32_t i = 0; stream != NULL && i < refs->held_count; i++)
        if (refs->held[i]->device == stream->device)
            return SYMMEM_OK;
    return sm_stream_check(context, stream, refs->device, operation);
}

symmem_status sm_refs_device(const sm_refs *refs, symmem_context *context, const char *operation,
                             int32_t device, int32_t *device_p) {
    symmem_status status = SYMMEM_OK;
    *device_p = device >= 0 ? device : refs->device;
    if (*device_p < 0)
        status = sm_device_resolve(context, -1, operation, device_p);
    for (int32_t i = 0; status == SYMMEM_OK && i < refs->held_count; i++) {
        if (refs->held[i]->device == *device_p)
            continue;
        status = sm_fail(SYMMEM_INVALID_ARGUMENT, operation, "",
                         "memory of device %d, but the work is for device %d",
                         refs->held[i]->device, *device_p);
        (void)sm_error_sizes((uint64_t)*device_p, (uint64_t)refs->held[i]->device);
    }
    return status;
}

void sm_refs_finish(sm_refs *refs) {
    for (int32_t i = 0; i < refs->held_count; i++)
        sm_allocation_release(refs->held[i]);
    refs->held_count = 0;
}

symmem_exec sm_refs_exec(sm_refs *refs, const symmem_stream *stream) {
    if (stream != NULL && refs->count == 0)
        refs->refs[refs->count++] = sm_instance_ref(stream->context);
    return (symmem_exec){
        .stream = stream != NULL ? stream->native : NULL,
        .refs = refs->refs,
        .ref_count = refs->count,
    };
}

static symmem_status locate(const symmem_handle *handle, const char *operation, int32_t rank,
                            size_t offset, sm_remote *remote_p) {
    const sm_link *link = handle->link;
    char *base = link->mapping->buffers[rank];
    remote_p->address = base == NULL ? NULL : base + handle->offset + offset;
    if (base != NULL)
        return SYMMEM_OK;
    if (link->context->backend->reach_put != NULL) {
        remote_p->place =
            (symmem_place){.peers = &link->peers,
                           .peer = rank,
                           .rank = link->group->global_ranks[rank],
                           .offset = link->peers.buffer_offsets[rank] + handle->offset + offset};
        return SYMMEM_OK;
    }
    (void)sm_fail(SYMMEM_UNREACHABLE, operation, "", "no direct access to rank %d", rank);
    return sm_error_failed_rank(rank);
}

symmem_status sm_remote_check(const symmem_handle *handle, const char *operation, int32_t rank,
                              size_t offset, const void *local, size_t bytes,
                              const symmem_stream *stream, sm_remote *remote_p) {
    symmem_status status = sm_handle_check(handle, operation);
    if (status == SYMMEM_OK)
        status = sm_handle_rank_check(handle, operation, rank);
    if (status == SYMMEM_OK)
        status = sm_handle_bounds(handle, operation, offset, bytes);
    if (status != SYMMEM_OK)
        return status;
    if (local == NULL && bytes > 0)
        return sm_fail(SYMMEM_INVALID_ARGUMENT, operation, "", "local pointer is NULL");
    status = sm_stream_check(handle->link->context, stream, handle->link->device, operation);
    return status == SYMMEM_OK ? locate(handle, operation, rank, offset, remote_p) : status;
}

/* Moves bytes by the reach entries: dst or src is NULL, which is the remote place. A put without
 * stream returns when the bytes are in place. A backend cannot name the peer in the record of a
 * failure that is not of a signal. */
static symmem_status over_reach(const symmem_context *context, const char *operation,
                                const symmem_place *place, void *dst, const void *src, size_t bytes,
                                const symmem_exec *exec) {
    const char *entry = dst != NULL ? "reach_get" : "reach_put";
    if (bytes == 0)
        return SYMMEM_OK;
    symmem_status status =
        dst != NULL ? context->backend->reach_get(context->instance, place, dst, bytes, exec)
                    : context->backend->reach_put(context->instance, place, src, bytes, exec);
    if (status == SYMMEM_OK && dst == NULL && exec->stream == NULL) {
        entry = "reach_quiet";
        status = context->backend->reach_quiet(context->instance, place->peers, exec);
    }
    if (status == SYMMEM_OK)
        return status;
    status = sm_backend_failed(context, status, operation, entry);
    return status == SYMMEM_PEER_LOST ? sm_error_missing(place->peer) : status;
}

/* A put (dst is NULL) or a get (src is NULL). */
static symmem_status move_bytes(const sm_link *link, const char *operation, const sm_remote *peer,
                                void *dst, const void *src, size_t bytes, const symmem_exec *exec) {
    symmem_context *context = link->context;
    if (peer->address == NULL)
        return over_reach(context, operation, &peer->place, dst, src, bytes, exec);
    symmem_status status =
        context->backend->copy(context->instance, link->device, dst != NULL ? dst : peer->address,
                               dst != NULL ? peer->address : src, bytes, exec);
    return status == SYMMEM_OK ? status : sm_backend_failed(context, status, operation, "copy");
}

symmem_status sm_remote_put(const sm_link *link, const char *operation, const sm_remote *dst,
                            const void *src, size_t bytes, const symmem_exec *exec) {
    return move_bytes(link, operation, dst, NULL, src, bytes, exec);
}

static symmem_status transfer(sm_link *link, const sm_remote *peer, void *dst, const void *src,
                              size_t bytes, const symmem_stream *stream) {
    symmem_context *context = link->context;
    const char *operation = dst != NULL ? "get" : "put";
    sm_refs refs;
    sm_refs_init(&refs, link);
    symmem_status status = sm_context_point(context, operation, "copy.before");
    if (status == SYMMEM_OK)
        status = sm_refs_cover(&refs, context, operation, dst != NULL ? dst : src, bytes);
    if (status == SYMMEM_OK) {
        const symmem_exec exec = sm_refs_exec(&refs, stream);
        status = move_bytes(link, operation, peer, dst, src, bytes, &exec);
    }
    sm_refs_finish(&refs);
    return status;
}

symmem_status symmem_put(symmem_handle *handle, int32_t dst_rank, size_t dst_offset,
                         const void *src, size_t bytes, symmem_stream *stream) {
    SM_PUBLIC_CALL;
    sm_remote dst;
    symmem_status status =
        sm_remote_check(handle, "put", dst_rank, dst_offset, src, bytes, stream, &dst);
    return status == SYMMEM_OK ? transfer(handle->link, &dst, NULL, src, bytes, stream) : status;
}

symmem_status symmem_get(symmem_handle *handle, int32_t src_rank, size_t src_offset, void *dst,
                         size_t bytes, symmem_stream *stream) {
    SM_PUBLIC_CALL;
    sm_remote src;
    symmem_status status =
        sm_remote_check(handle, "get", src_rank, src_offset, dst, bytes, stream, &src);
    return status == SYMMEM_OK ? transfer(handle->link, &src, dst, NULL, bytes, stream) : status;
}

static symmem_status copy_between(symmem_context *context, sm_refs *refs, void *dst,
                                  const void *src, size_t bytes, const symmem_stream *stream) {
    symmem_status status = sm_context_point(context, "copy", "copy.before");
    if (status == SYMMEM_OK)
        status = sm_refs_cover(refs, context, "copy", dst, bytes);
    if (status == SYMMEM_OK)
        status = sm_refs_cover(refs, context, "copy", src, bytes);
    if (status == SYMMEM_OK)
        status = sm_refs_stream(refs, context, "copy", stream);
    int32_t device = stream != NULL ? stream->device : refs->device;
    if (status == SYMMEM_OK)
        status = sm_device_resolve(context, device, "copy", &device);
    if (status != SYMMEM_OK)
        return status;
    symmem_exec exec = sm_refs_exec(refs, stream);
    status = context->backend->copy(context->instance, device, dst, src, bytes, &exec);
    return status == SYMMEM_OK ? status : sm_backend_failed(context, status, "copy", "copy");
}

symmem_status symmem_copy(symmem_context *context, void *dst, const void *src, size_t bytes,
                          symmem_stream *stream) {
    SM_PUBLIC_CALL;
    symmem_status status = sm_context_check(context, "copy");
    if (status == SYMMEM_OK)
        status = sm_stream_check(context, stream, -1, "copy");
    if (status != SYMMEM_OK)
        return status;
    if (bytes > 0 && (dst == NULL || src == NULL))
        return sm_fail(SYMMEM_INVALID_ARGUMENT, "copy", "", "%s is NULL",
                       dst == NULL ? "dst" : "src");
    sm_refs refs;
    sm_refs_init(&refs, NULL);
    status = copy_between(context, &refs, dst, src, bytes, stream);
    sm_refs_finish(&refs);
    return status;
}
