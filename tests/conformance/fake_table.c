/* SPDX-License-Identifier: BSD-3-Clause */
#include "fake_table.h"

#include <symmem/memory.h>

#include "kit.h"

const char fake_reason[] = "the fake machine is not there";

static atomic_int calls;

int fake_table_calls(void) {
    return atomic_load(&calls);
}

static void count_call(void) {
    atomic_fetch_add(&calls, 1);
}

#define COUNTS(name, status, ...)                                                                  \
    static symmem_status name(__VA_ARGS__) {                                                       \
        count_call();                                                                              \
        return SYMMEM_##status;                                                                    \
    }

COUNTS(fake_probe, OK, char *reason, size_t capacity)

static symmem_status fake_probe_absent(char *reason, size_t capacity) {
    count_call();
    snprintf(reason, capacity, "%s", fake_reason);
    return SYMMEM_UNSUPPORTED;
}

static symmem_status fake_open(const symmem_host *host, const symmem_backend_config *config,
                               void **instance_p) {
    count_call();
    *instance_p = &calls;
    return SYMMEM_OK;
}

static void fake_close(void *instance) {
    count_call();
}

static symmem_status fake_device_count(void *instance, int32_t *count_p) {
    count_call();
    *count_p = 2;
    return SYMMEM_OK;
}

static symmem_status fake_device_info(void *instance, int32_t device, symmem_device_info *info_p) {
    count_call();
    memset(info_p, 0, sizeof(*info_p));
    info_p->device_type = 1;
    info_p->granularity = SYMMEM_ALIGNMENT;
    return SYMMEM_OK;
}

static symmem_status fake_memory_alloc(void *instance, int32_t device, size_t bytes,
                                       symmem_memory *memory) {
    size_t rounded = (bytes + SYMMEM_ALIGNMENT - 1) / SYMMEM_ALIGNMENT * SYMMEM_ALIGNMENT;
    void *ptr = aligned_alloc(SYMMEM_ALIGNMENT, rounded);
    count_call();
    if (ptr == NULL)
        return SYMMEM_OUT_OF_MEMORY;
    memset(ptr, 0, rounded);
    memset(memory, 0, sizeof(*memory));
    memory->ptr = ptr;
    memory->bytes = bytes;
    memory->device = device;
    return SYMMEM_OK;
}

static void fake_memory_release(void *instance, symmem_memory *memory) {
    count_call();
    free(memory->ptr);
    memory->ptr = NULL;
}

static symmem_status fake_memory_export(void *instance, symmem_memory *memory,
                                        symmem_share *share) {
    count_call();
    memset(share, 0, sizeof(*share));
    share->kind = SYMMEM_SHARE_BYTES;
    share->fd = -1;
    memcpy(share->bytes, &memory->ptr, sizeof(memory->ptr));
    return SYMMEM_OK;
}

static void fake_share_close(void *instance, symmem_share *share) {
    count_call();
}

COUNTS(fake_memory_import, UNREACHABLE, void *instance, int32_t device, const symmem_share *share,
       size_t bytes, symmem_memory *memory)

static size_t fake_signal_bytes(void *instance, int32_t world_size, int32_t channel_count,
                                size_t block_bytes) {
    count_call();
    return 4 * (size_t)world_size * (size_t)channel_count;
}

static symmem_status fake_peers_open(void *instance, symmem_peers *peers, void **buffers_dev_p,
                                     void **pads_dev_p) {
    count_call();
    *buffers_dev_p = (void *)(uintptr_t)peers->buffers;
    *pads_dev_p = (void *)(uintptr_t)peers->pads;
    return SYMMEM_OK;
}

static void fake_peers_close(void *instance, symmem_peers *peers) {
    count_call();
}

COUNTS(fake_barrier, OK, void *instance, const symmem_peers *peers, int32_t channel,
       const symmem_exec *exec)

static symmem_status fake_signal(void *instance, const symmem_peers *peers, int32_t rank,
                                 int32_t channel, const symmem_exec *exec) {
    return fake_barrier(instance, peers, channel, exec);
}

COUNTS(fake_signal_reset, OK, void *instance, const symmem_peers *peers)

static symmem_status fake_copy(void *instance, int32_t device, void *dst, const void *src,
                               size_t bytes, const symmem_exec *exec) {
    count_call();
    if (bytes > 0)
        memmove(dst, src, bytes);
    return SYMMEM_OK;
}

static symmem_status fake_memset32(void *instance, int32_t device, void *dst, uint32_t value,
                                   size_t count, const symmem_exec *exec) {
    count_call();
    for (size_t i = 0; i < count; i++)
        ((uint32_t *)dst)[i] = value;
    return SYMMEM_OK;
}

static symmem_status fake_write_value32(void *instance, int32_t device, void *dst, uint32_t value,
                                        const symmem_exec *exec) {
    return fake_memset32(instance, device, dst, value, 1, exec);
}

#define FAKE_TABLE(size_, name_, probe_)                                                           \
    {                                                                                              \
        .size = (size_), .abi = SYMMEM_BACKEND_ABI, .name = (name_),                               \
        .description = "a fake of the suite", .capabilities = SYMMEM_CAP_PROCESS_RANKS,            \
        .probe = (probe_), .open = fake_open, .close = fake_close,                                 \
        .device_count = fake_device_count, .device_info = fake_device_info,                        \
        .memory_alloc = fake_memory_alloc, .memory_release = fake_memory_release,                  \
        .memory_export = fake_memory_export, .share_close = fake_share_close,                      \
        .memory_import = fake_memory_import, .signal_bytes = fake_signal_bytes,                    \
        .peers_open = fake_peers_open, .peers_close = fake_peers_close, .barrier = fake_barrier,   \
        .put_signal = fake_signal, .wait_signal = fake_signal, .signal_reset = fake_signal_reset,  \
        .copy = fake_copy, .memset32 = fake_memset32, .write_value32 = fake_write_value32,         \
    }

const symmem_backend fake_table_a = FAKE_TABLE(sizeof(symmem_backend), "suite_fake_a", fake_probe);
const symmem_backend fake_table_b = FAKE_TABLE(sizeof(symmem_backend), "suite_fake_b", fake_probe);
const symmem_backend fake_table_absent =
    FAKE_TABLE(sizeof(symmem_backend), "suite_fake_absent", fake_probe_absent);
const symmem_backend fake_table_longest =
    FAKE_TABLE(sizeof(symmem_backend), "suite_fake_of_thirty_one_chars_", fake_probe);

/* Fills entries that must never be called. */
static void fake_never(void) {
    count_call();
}

void fake_table_full(symmem_backend *table) {
    void (*never)(void) = fake_never;
    char *bytes = (char *)table;
    *table = fake_table_a;
    table->capabilities = SYMMEM_CAP_ALL;
    for (size_t at = offsetof(symmem_backend, probe); at < sizeof(*table); at += sizeof(never)) {
        void (*entry)(void);
        memcpy(&entry, bytes + at, sizeof(entry));
        if (entry == NULL)
            memcpy(bytes + at, &never, sizeof(never));
    }
}

static symmem_status fake_group_open(void *instance, const symmem_exchange *exchange,
                                     int32_t device, void **group_p) {
    *group_p = &calls;
    return SYMMEM_OK;
}

static void fake_group_close(void *instance, void *group) {}

static symmem_status fake_exchange(void *instance, void *group, symmem_memory *own,
                                   const symmem_exchange *exchange, symmem_memory *peers) {
    for (int32_t r = 0; r < exchange->world_size; r++) {
        peers[r] = *own;
        peers[r].imported = 1;
        if (r != exchange->rank)
            peers[r].ptr = NULL;
    }
    return SYMMEM_OK;
}

static void fake_release_own(void *instance, symmem_memory *memory) {
    if (!memory->imported)
        fake_memory_release(instance, memory);
}

void fake_table_exchanges(symmem_backend *table) {
    table->group_open = fake_group_open;
    table->group_close = fake_group_close;
    table->memory_exchange = fake_exchange;
    table->memory_release = fake_release_own;
    table->memory_export = NULL;
    table->memory_import = NULL;
    table->share_close = NULL;
}
