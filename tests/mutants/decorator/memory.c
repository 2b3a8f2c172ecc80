/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that is not what it should be, or stays. */
#include "decorator.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* --- releases --------------------------------------------------------------------- */

static void release_own_only(void *instance, symmem_memory *memory) {
    if (!memory->imported)
        real->memory_release(instance, memory);
}

static void release_imported_only(void *instance, symmem_memory *memory) {
    if (memory->imported)
        real->memory_release(instance, memory);
}

/* What is freed on one rank is gone on all, also where it is still mapped. */
static void wipe_and_release(void *instance, symmem_memory *memory) {
    if (!memory->imported && memory->ptr)
        memset(memory->ptr, 0, memory->bytes);
    real->memory_release(instance, memory);
}

static void keep_peers(void *instance, symmem_peers *peers) {
    (void)instance, (void)peers;
}

static void keep_share(void *instance, symmem_share *share) {
    (void)instance, (void)share;
}

static void keep_multicast(void *instance, void *multicast_or_object) {
    (void)instance, (void)multicast_or_object;
}

/* --- allocations ------------------------------------------------------------------ */

static symmem_status alloc_32_bits(void *instance, int32_t device, size_t bytes,
                                   symmem_memory *memory) {
    return real->memory_alloc(instance, device, (uint32_t)bytes, memory);
}

/* Memory that was released is handed out again as it is. */
#define KEPT 16

/* In this process. What is kept at its end goes with it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static symmem_memory kept[KEPT];

static symmem_status alloc_recycled(void *instance, int32_t device, size_t bytes,
                                    symmem_memory *memory) {
    bool found = false;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < KEPT && !found; i++)
        if (kept[i].ptr && kept[i].bytes == bytes && kept[i].device == device) {
            *memory = kept[i];
            kept[i].ptr = NULL;
            found = true;
        }
    pthread_mutex_unlock(&lock);
    return found ? SYMMEM_OK : real->memory_alloc(instance, device, bytes, memory);
}

static void keep_memory(void *instance, symmem_memory *memory) {
    bool keep = false;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < KEPT && !keep && !memory->imported; i++)
        if (!kept[i].ptr) {
            kept[i] = *memory;
            keep = true;
        }
    pthread_mutex_unlock(&lock);
    if (!keep)
        real->memory_release(instance, memory);
}

/* A descriptor that works, but not of the memory it is said to be of. */
static symmem_status export_other(void *instance, symmem_memory *memory, symmem_share *share) {
    symmem_status status = real->memory_share(instance, memory, share);
    int other = memfd_create("mutant", MFD_CLOEXEC);
    if (status != SYMMEM_OK || other < 0 || ftruncate(other, (off_t)share->mapped_bytes) != 0)
        return status;
    close(share->fd);
    share->fd = other;
    return SYMMEM_OK;
}

/* A heap on each rank, of which a peer's memory is looked for where its own is: not there once
 * sizes have differed. How much this process has had says where. */
static size_t heap_used;

static symmem_status alloc_in_heap(void *instance, int32_t device, size_t bytes,
                                   symmem_memory *memory) {
    heap_used += bytes;
    return real->memory_alloc(instance, device, bytes, memory);
}

static uint8_t *place_in(const symmem_share *share) {
    return (uint8_t *)share->more_bytes + sizeof(share->more_bytes) - sizeof(heap_used);
}

static symmem_status share_with_place(void *instance, symmem_memory *memory, symmem_share *share) {
    symmem_status status = real->memory_share(instance, memory, share);
    memcpy(place_in(share), &heap_used, sizeof(heap_used));
    return status;
}

static symmem_status map_own_place(void *instance, int32_t device, const symmem_share *share,
                                   size_t bytes, symmem_memory *memory) {
    symmem_status status = real->memory_map(instance, device, share, bytes, memory);
    bool elsewhere = memcmp(place_in(share), &heap_used, sizeof(heap_used)) != 0;
    if (status == SYMMEM_OK && elsewhere)
        (void)mmap(memory->ptr, bytes, PROT_READ | PROT_WRITE,
                   MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return status;
}

/* --- pads and signal state -------------------------------------------------------- */

static symmem_status open_with_full_pad(void *instance, symmem_peers *peers, void **buffers_dev_p,
                                        void **pads_dev_p) {
    memset(peers->pads[peers->rank], 0xff, peers->pad_bytes);
    return real->peers_open(instance, peers, buffers_dev_p, pads_dev_p);
}

static symmem_status open_with_signals(void *instance, symmem_peers *peers, void **buffers_dev_p,
                                       void **pads_dev_p) {
    memset(peers->signals[peers->rank], 1, peers->signal_bytes);
    return real->peers_open(instance, peers, buffers_dev_p, pads_dev_p);
}

static symmem_status open_swapped(void *instance, symmem_peers *peers, void **buffers_dev_p,
                                  void **pads_dev_p) {
    return real->peers_open(instance, peers, pads_dev_p, buffers_dev_p);
}

/* What begins as the last one of its size ended. One for each process; that is enough where ranks
 * are processes. */
static void *old_state;
static size_t old_bytes;

static void begin_as_old(void *state, size_t bytes) {
    if (old_state && old_bytes == bytes)
        memcpy(state, old_state, old_bytes);
}

static void keep_state(const void *state, size_t bytes) {
    free(old_state);
    old_bytes = bytes;
    old_state = malloc(old_bytes);
    if (old_state)
        memcpy(old_state, state, old_bytes);
}

static symmem_status open_with_old_pad(void *instance, symmem_peers *peers, void **buffers_dev_p,
                                       void **pads_dev_p) {
    begin_as_old(peers->pads[peers->rank], peers->pad_bytes);
    return real->peers_open(instance, peers, buffers_dev_p, pads_dev_p);
}

static void close_and_keep_pad(void *instance, symmem_peers *peers) {
    keep_state(peers->pads[peers->rank], peers->pad_bytes);
    real->peers_close(instance, peers);
}

static symmem_status open_with_old_signals(void *instance, symmem_peers *peers,
                                           void **buffers_dev_p, void **pads_dev_p) {
    begin_as_old(peers->signals[peers->rank], peers->signal_bytes);
    return real->peers_open(instance, peers, buffers_dev_p, pads_dev_p);
}

static void close_and_keep_signals(void *instance, symmem_peers *peers) {
    keep_state(peers->signals[peers->rank], peers->signal_bytes);
    real->peers_close(instance, peers);
}

const struct mutant memory_mutants[] = {
    {"imported_memory_not_released", .entries.memory_release = release_own_only},
    {"own_memory_not_released", .entries.memory_release = release_imported_only},
    {"release_wipes_peers", .entries.memory_release = wipe_and_release},
    {"peers_not_closed", .entries.peers_close = keep_peers},
    {"share_not_closed", .entries.memory_unshare = keep_share},
    {"multicast_not_released", .entries.multicast_release = keep_multicast},
    {"sizes_in_32_bits", .entries.memory_alloc = alloc_32_bits},
    {"recycled_memory", .entries = {.memory_alloc = alloc_recycled, .memory_release = keep_memory}},
    {"heaps_are_taken_for_alike", .entries = {.memory_alloc = alloc_in_heap,
                                              .memory_share = share_with_place,
                                              .memory_map = map_own_place}},
    {"exports_other_memory", .entries.memory_share = export_other},
    {"pad_not_zeroed", .entries.peers_open = open_with_full_pad},
    {"signal_state_not_zeroed", .entries.peers_open = open_with_signals},
    {"device_tables_swapped", .entries.peers_open = open_swapped},
    {"recycled_pad",
     .entries = {.peers_open = open_with_old_pad, .peers_close = close_and_keep_pad}},
    {"recycled_signal_state",
     .entries = {.peers_open = open_with_old_signals, .peers_close = close_and_keep_signals}},
    {.name = NULL},
};
