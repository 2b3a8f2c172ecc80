/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A backend in the heap of this process, for unit tests: it counts what it is asked for and fails
 * on request. Include it in one file of a program. Streams and the like are there in name only.
 */
#ifndef FAKE_BACKEND_H
#define FAKE_BACKEND_H

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <symmem/backend.h>
#include <symmem/memory.h>
#include <time.h>

#include "../flat_backend.h"

#define FAKE_DEVICES 2
#define FAKE_CAPABILITIES                                                                          \
    (SYMMEM_CAP_HOST_ACCESS | SYMMEM_CAP_OVERLAP | SYMMEM_CAP_THREAD_RANKS |                       \
     SYMMEM_CAP_DIRECT_ACCESS | SYMMEM_CAP_POOL)

/* What the backend saw, and what it shall do. Set by the test before threads start. */
static struct fake_state {
    const symmem_host *host;
    atomic_int opened, closed, allocated, released, synchronized, groups_closed;
    int32_t devices;
    int32_t multicast;         /* device_info.multicast */
    symmem_status open_fails;  /* described */
    symmem_status alloc_fails; /* NO_SPACE is described with sizes, others not at all */
    symmem_status sync_fails;  /* described */
    symmem_status count_fails, info_fails, probe_fails;
    size_t misalign; /* bytes that memory_alloc adds to the pointer */
    bool alloc_null;
    _Atomic uint64_t alloc_asked_ns,
        alloc_deadline_ns; /* when memory_alloc asked, and the answer */
    symmem_backend_config config;
} fake;

__attribute__((unused)) static void fake_reset(void) {
    memset(&fake, 0, sizeof(fake));
    fake.devices = FAKE_DEVICES;
}

static symmem_status fake_probe(char *reason, size_t capacity) {
    if (fake.probe_fails != SYMMEM_OK && capacity > 8)
        memcpy(reason, "no luck", 8);
    return fake.probe_fails;
}

static symmem_status fake_open(const symmem_host *host, const symmem_backend_config *config,
                               void **instance_p) {
    fake.host = host;
    fake.config = *config;
    if (fake.open_fails != SYMMEM_OK)
        return host->fail(host, fake.open_fails, 5, "fake_open", "told to fail %d", 1);
    atomic_fetch_add(&fake.opened, 1);
    *instance_p = &fake;
    return SYMMEM_OK;
}

static void fake_close(void *instance) {
    atomic_fetch_add(&fake.closed, 1);
}

static symmem_status fake_device_count(void *instance, int32_t *count_p) {
    *count_p = fake.devices;
    return fake.count_fails;
}

static symmem_status fake_device_info(void *instance, int32_t device, symmem_device_info *info_p) {
    info_p->device_type = 1; /* kDLCPU */
    info_p->multicast = fake.multicast;
    return fake.info_fails;
}

static uint64_t fake_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static symmem_status fake_memory_alloc(void *instance, int32_t device, size_t bytes,
                                       symmem_memory *memory) {
    fake.alloc_asked_ns = fake_now_ns();
    fake.alloc_deadline_ns = fake.host->deadline_ns(fake.host);
    if (fake.alloc_fails == SYMMEM_NO_SPACE)
        return fake.host->fail_sizes(fake.host, SYMMEM_NO_SPACE, 12, "fake_alloc", bytes, 7);
    if (fake.alloc_fails != SYMMEM_OK)
        return fake.alloc_fails;
    size_t rounded = (bytes + 2 * SYMMEM_ALIGNMENT - 1) / SYMMEM_ALIGNMENT * SYMMEM_ALIGNMENT;
    void *ptr = aligned_alloc(SYMMEM_ALIGNMENT, rounded);
    if (!ptr)
        return fake.host->fail(fake.host, SYMMEM_OUT_OF_MEMORY, 12, "fake_alloc", "heap");
    memset(ptr, 0, rounded);
    memory->priv = ptr;
    memory->ptr = fake.alloc_null ? NULL : (char *)ptr + fake.misalign;
    memory->bytes = bytes;
    memory->device = device;
    memory->imported = 0;
    atomic_fetch_add(&fake.allocated, 1);
    return SYMMEM_OK;
}

static void fake_memory_release(void *instance, symmem_memory *memory) {
    if (!memory->imported)
        free(memory->priv);
    atomic_fetch_add(&fake.released, 1);
}

static symmem_status fake_export(void *instance, symmem_memory *memory, symmem_share *share) {
    share->kind = SYMMEM_SHARE_BYTES;
    memcpy(share->bytes, &memory->ptr, sizeof memory->ptr);
    return SYMMEM_OK;
}

static void fake_memory_unshare(void *instance, symmem_share *share) {}

static symmem_status fake_import(void *instance, int32_t device, const symmem_share *share,
                                 size_t bytes, symmem_memory *memory) {
    void *ptr;
    memcpy(&ptr, share->bytes, sizeof ptr);
    *memory =
        (symmem_memory){.ptr = ptr, .bytes = bytes, .device = device, .imported = 1, .priv = NULL};
    return SYMMEM_OK;
}

static size_t fake_signal_bytes(void *instance, int32_t world_size, int32_t channel_count,
                                size_t block_bytes) {
    return (size_t)world_size * (size_t)channel_count * 4;
}

static symmem_status fake_peers_open(void *instance, symmem_peers *peers, void **buffers_dev_p,
                                     void **pads_dev_p) {
    memcpy(buffers_dev_p, &peers->buffers, sizeof(*buffers_dev_p));
    memcpy(pads_dev_p, &peers->pads, sizeof(*pads_dev_p));
    return SYMMEM_OK;
}

static void fake_peers_close(void *instance, symmem_peers *peers) {}

static symmem_status fake_barrier(void *instance, const symmem_peers *peers, int32_t channel,
                                  const symmem_exec *exec) {
    return SYMMEM_OK;
}

static symmem_status fake_signal(void *instance, const symmem_peers *peers, int32_t rank,
                                 int32_t channel, const symmem_exec *exec) {
    return fake_barrier(instance, peers, channel, exec);
}

static symmem_status fake_signal_reset(void *instance, const symmem_peers *peers) {
    return SYMMEM_OK;
}

static symmem_status fake_copy(void *instance, int32_t device, void *dst, const void *src,
                               size_t bytes, const symmem_exec *exec) {
    memmove(dst, src, bytes);
    return SYMMEM_OK;
}

static symmem_status fake_memset32(void *instance, int32_t device, void *dst, uint32_t value,
                                   size_t count, const symmem_exec *exec) {
    for (size_t i = 0; i < count; i++)
        ((uint32_t *)dst)[i] = value;
    return SYMMEM_OK;
}

static symmem_status fake_write_value32(void *instance, int32_t device, void *dst, uint32_t value,
                                        const symmem_exec *exec) {
    return fake_memset32(instance, device, dst, value, 1, exec);
}

/* --- streams, in name only ---------------------------------------------------------- */

static symmem_status fake_make(void *instance, int32_t device, void **object_p) {
    *object_p = instance;
    return SYMMEM_OK;
}

static void fake_end(void *instance, void *object) {}

static symmem_status fake_stream_synchronize(void *instance, void *stream, uint32_t timeout_ms,
                                             symmem_error_record *record_p) {
    return SYMMEM_OK;
}

static symmem_status fake_query(void *instance, void *object, bool *yes_p) {
    *yes_p = true;
    return SYMMEM_OK;
}

static symmem_status fake_device_synchronize(void *instance, int32_t device, uint32_t timeout_ms) {
    atomic_fetch_add(&fake.synchronized, 1);
    if (fake.sync_fails != SYMMEM_OK)
        return fake.host->fail(fake.host, fake.sync_fails, 0, "fake_sync", "still running");
    return SYMMEM_OK;
}

static symmem_status fake_two(void *instance, void *a, void *b) {
    return SYMMEM_OK;
}

static symmem_status fake_event_synchronize(void *instance, void *event, uint32_t timeout_ms) {
    return fake_two(instance, event, NULL);
}

static symmem_status fake_group_open(void *instance, const symmem_exchange *exchange,
                                     int32_t device, void **group_p) {
    *group_p = instance;
    return SYMMEM_OK;
}

static void fake_group_close(void *instance, void *group) {
    atomic_fetch_add(&fake.groups_closed, 1);
}

/* Fills a table. Of the optional groups only STREAMS is known. */
__attribute__((unused)) static void fake_table(flat_backend *table, const char *name,
                                               uint64_t capabilities) {
    *table = (flat_backend){
        .head = {.size = sizeof(table->head),
                 .abi = SYMMEM_BACKEND_ABI,
                 .name = name,
                 .description = "a fake in the heap",
                 .flags = capabilities & SYMMEM_CAP_FLAGS},
        .probe = fake_probe,
        .open = fake_open,
        .close = fake_close,
        .device_count = fake_device_count,
        .device_info = fake_device_info,
        .memory_alloc = fake_memory_alloc,
        .memory_release = fake_memory_release,
        .memory_share = fake_export,
        .memory_unshare = fake_memory_unshare,
        .memory_map = fake_import,
        .group_open = fake_group_open,
        .group_close = fake_group_close,
        .signal_bytes = fake_signal_bytes,
        .peers_open = fake_peers_open,
        .peers_close = fake_peers_close,
        .barrier = fake_barrier,
        .put_signal = fake_signal,
        .wait_signal = fake_signal,
        .signal_reset = fake_signal_reset,
        .copy = fake_copy,
        .memset32 = fake_memset32,
        .write_value32 = fake_write_value32,
    };
    if (capabilities & SYMMEM_CAP_STREAMS) {
        table->stream_create = fake_make;
        table->stream_destroy = fake_end;
        table->stream_synchronize = fake_stream_synchronize;
        table->stream_query = fake_query;
        table->device_synchronize = fake_device_synchronize;
        table->event_create = fake_make;
        table->event_destroy = fake_end;
        table->event_record = fake_two;
        table->stream_wait_event = fake_two;
        table->event_synchronize = fake_event_synchronize;
        table->event_query = fake_query;
    }
}

#endif
