/* SPDX-License-Identifier: BSD-3-Clause */
/* The state that all handles of one block and group share: pointers, channels, poison. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/heap.h"
#include "rendezvous/rendezvous.h"
#include "rendezvous/link.h"
#include "backend/instance.h"
#include "rendezvous/rendezvous_multicast.h"

size_t sm_link_signal_offset(const sm_link *link) {
    /* The pad is at most 1 GiB, so this cannot overflow. */
    return (link->signal_pad_size + SYMMEM_ALIGNMENT - 1) & ~(size_t)(SYMMEM_ALIGNMENT - 1);
}

size_t sm_link_signal_total(const sm_link *link, size_t signal_bytes) {
    return sm_link_signal_offset(link) + signal_bytes;
}

/* Allocates the arrays of a link, whose other members are zero. */
static bool allocate_arrays(sm_link *link, size_t world_size) {
    link->peer_signals = calloc(world_size, sizeof *link->peer_signals);
    link->identities = calloc(world_size, sizeof *link->identities);
    link->pads = calloc(world_size, sizeof *link->pads);
    link->signals = calloc(world_size, sizeof *link->signals);
    link->offsets = calloc(3 * world_size, sizeof *link->offsets);
    /* At least one: a pad without room for a channel is reported later, by all ranks. */
    link->channels = calloc((size_t)link->channel_count + 1, sizeof(sm_channel *));
    return link->peer_signals != NULL && link->identities != NULL && link->pads != NULL &&
           link->signals != NULL && link->offsets != NULL && link->channels != NULL;
}

static void free_arrays(sm_link *link) {
    free(link->peer_signals);
    free(link->identities);
    free(link->pads);
    free(link->signals);
    free(link->offsets);
    free(link->channels);
    free(link);
}

static void release_cached(sm_cached *cached) {
    sm_link_release(SM_CONTAINER(cached, sm_link, cached));
}

symmem_status sm_link_create(const sm_rendezvous *rendezvous, sm_link **link_p) {
    size_t world_size = (size_t)rendezvous->group->world_size;
    sm_link *link = calloc(1, sizeof *link);
    if (link == NULL)
        return sm_fail(SYMMEM_OUT_OF_MEMORY, SM_RENDEZVOUS, "metadata", "no memory for a link");
    link->signal_pad_size = rendezvous->signal_pad_size;
    link->channel_count = (int32_t)(rendezvous->signal_pad_size / (4 * world_size));
    if (!allocate_arrays(link, world_size)) {
        free_arrays(link);
        return sm_fail(SYMMEM_OUT_OF_MEMORY, SM_RENDEZVOUS, "metadata", "no memory for %zu peers",
                       world_size);
    }
    if (pthread_mutex_init(&link->lock, NULL) != 0) {
        free_arrays(link);
        return sm_fail(SYMMEM_OUT_OF_MEMORY, SM_RENDEZVOUS, "metadata", "no memory for a lock");
    }
    sm_list_init(&link->cached.node);
    link->cached.is_link = true;
    link->cached.release = release_cached;
    atomic_init(&link->references, 1);
    atomic_init(&link->poisoned, false);
    sm_instance_retain(rendezvous->context);
    link->context = rendezvous->context;
    sm_group_retain(rendezvous->group);
    link->group = rendezvous->group;
    link->block_offset = rendezvous->block_offset;
    link->block_bytes = rendezvous->block_bytes;
    link->buffer_bytes = rendezvous->allocation->bytes;
    link->device = rendezvous->allocation->device;
    link->multicast_failed = -1;
    *link_p = link;
    return SYMMEM_OK;
}

static void set_signal_pointers(sm_link *link, int32_t rank, const symmem_memory *memory) {
    if (memory->ptr == NULL)
        return;
    link->pads[rank] = memory->ptr;
    link->signals[rank] = (char *)memory->ptr + sm_link_signal_offset(link);
}

/* Sets where the ranks' memory begins in their heaps: allocations, pads, signal state. */
static void set_offsets(sm_link *link) {
    const size_t ranks = (size_t)link->group->world_size, own = (size_t)link->group->rank;
    for (size_t r = 0; r < ranks; r++) {
        const symmem_memory *data =
            r == own ? &link->mapping->allocation->memory : &link->mapping->peers[r];
        const symmem_memory *signals = r == own ? &link->own_signals : &link->peer_signals[r];
        link->offsets[r] = sm_memory_offset(data);
        link->offsets[ranks + r] = sm_memory_offset(signals);
        link->offsets[2 * ranks + r] = sm_memory_offset(signals) + sm_link_signal_offset(link);
    }
}

void sm_link_fill_peers(sm_link *link, sm_mapping *mapping) {
    symmem_context *context = link->context;
    symmem_group *group = link->group;
    link->mapping = mapping;
    link->within_direct_access = true;
    for (int32_t r = 0; r < group->world_size; r++) {
        set_signal_pointers(link, r,
                            r == group->rank ? &link->own_signals : &link->peer_signals[r]);
        if (mapping->buffers[r] == NULL)
            link->within_direct_access = false;
    }
    if (sm_heap_bytes(context) != 0)
        set_offsets(link);
    int32_t local_rank_count = 0;
    for (int32_t r = 0; r < group->world_size; r++) {
        link->identities[r] = *sm_session_peer(group->session, r);
        local_rank_count += sm_session_same_host(group->session, group->rank, r);
    }
    link->peers = (symmem_peers){
        .size = sizeof link->peers,
        .host = &context->host,
        .self = link,
        .rank = group->rank,
        .world_size = group->world_size,
        .device = link->device,
        .channel_count = link->channel_count,
        .buffers = mapping->buffers,
        .buffer_bytes = link->buffer_bytes,
        .pads = link->pads,
        .pad_bytes = link->signal_pad_size,
        .signals = link->signals,
        .signal_bytes = context->backend->signal_bytes(context->instance, group->world_size,
                                                       link->channel_count, link->block_bytes),
        .global_ranks = group->global_ranks,
        .local_rank_count = local_rank_count,
    };
    if (sm_heap_bytes(context) != 0) {
        link->peers.buffer_offsets = link->offsets;
        link->peers.pad_offsets = link->offsets + group->world_size;
        link->peers.signal_offsets = link->offsets + 2 * (size_t)group->world_size;
    }
}

symmem_status sm_link_open_peers(sm_link *link) {
    symmem_context *context = link->context;
    symmem_status status = context->backend->peers_open(context->instance, &link->peers,
                                                        &link->buffers_dev, &link->pads_dev);
    link->peers_open = status == SYMMEM_OK;
    return status;
}

void sm_link_retain(sm_link *link) {
    /* The caller has a reference already, so nothing needs ordering here. */
    atomic_fetch_add_explicit(&link->references, 1, memory_order_relaxed);
}

static void destroy_channels(sm_link *link) {
    symmem_context *context = link->context;
    for (int32_t c = 0; c < link->channel_count; c++) {
        sm_channel *channel = link->channels[c];
        if (channel == NULL)
            continue;
        if (channel->eager_event != NULL)
            context->backend->event_destroy(context->instance, channel->eager_event);
        if (channel->eager_end != NULL)
            context->backend->event_destroy(context->instance, channel->eager_end);
        if (channel->capture_event != NULL)
            context->backend->event_destroy(context->instance, channel->capture_event);
        sm_timed_mutex_finish(&channel->call_lock);
        free(channel);
    }
}

/* May run on a stream's own thread: takes no lock that a caller of a stream could hold. */
void sm_link_release(sm_link *link) {
    /* pairs with: itself, in the thread that drops the last reference */
    if (atomic_fetch_sub_explicit(&link->references, 1, memory_order_acq_rel) != 1)
        return;
    symmem_context *context = link->context;
    const sm_backend *backend = context->backend;
    if (link->used_channels)
        destroy_channels(link);
    if (link->peers_open)
        backend->peers_close(context->instance, &link->peers);
    sm_multicast_release(link);
    for (int32_t r = 0; r < link->group->world_size; r++) {
        if (sm_memory_exists(&link->peer_signals[r]))
            sm_memory_release(context, &link->peer_signals[r]);
    }
    if (sm_memory_exists(&link->own_signals))
        sm_memory_release(context, &link->own_signals);
    if (link->mapping != NULL)
        sm_mapping_release(link->mapping);
    sm_group_release(link->group);
    pthread_mutex_destroy(&link->lock);
    free_arrays(link);
    sm_instance_release(context);
}

static void ref_retain(void *object) {
    sm_link_retain(object);
}

static void ref_release(void *object) {
    symmem_context *context = ((sm_link *)object)->context;
    sm_instance_retain(context);
    sm_link_release(object);
    sm_instance_release_work(context);
}

void sm_link_ref(sm_link *link, symmem_ref *ref_p) {
    ref_p->retain = ref_retain;
    ref_p->release = ref_release;
    ref_p->object = link;
}

/* Makes a channel at its first use. */
static sm_channel *make_channel(sm_link *link, int32_t index) {
    pthread_mutex_lock(&link->lock);
    sm_channel *channel = atomic_load_explicit(&link->channels[index], memory_order_relaxed);
    if (channel == NULL) {
        channel = calloc(1, sizeof *channel + SM_KEPT_BYTES);
        if (channel != NULL && sm_timed_mutex_init(&channel->call_lock) != SYMMEM_OK) {
            free(channel);
            channel = NULL;
        }
        if (channel != NULL)
            channel->kept = channel + 1;
        if (channel != NULL)
            channel->composite = (symmem_composite){.peers = &link->peers, .channel = index};
        /* release; pairs with: sm_link_channel */
        atomic_store_explicit(&link->channels[index], channel, memory_order_release);
        link->used_channels = true;
    }
    pthread_mutex_unlock(&link->lock);
    return channel;
}

symmem_status sm_link_channel(sm_link *link, int32_t index, sm_channel **channel_p) {
    /* acquire; pairs with: make_channel */
    sm_channel *channel = atomic_load_explicit(&link->channels[index], memory_order_acquire);
    if (channel == NULL)
        channel = make_channel(link, index);
    if (channel == NULL)
        return sm_fail(SYMMEM_OUT_OF_MEMORY, "signal", "channel", "no memory for channel %d",
                       index);
    *channel_p = channel;
    return SYMMEM_OK;
}

symmem_composite *sm_link_composite(const sm_link *link, int32_t index) {
    /* acquire; pairs with: make_channel */
    return &atomic_load_explicit(&link->channels[index], memory_order_acquire)->composite;
}
