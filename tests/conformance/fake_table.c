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

static symmem_status fake_memory_share(void *instance, symmem_memory *memory, symmem_share *share) {
    count_call();
    memset(share, 0, sizeof(*share));
    share->kind = SYMMEM_SHARE_BYTES;
    share->fd = -1;
    memcpy(share->bytes, &memory->ptr, sizeof(memory->ptr));
    return SYMMEM_OK;
}

static void fake_memory_unshare(void *instance, symmem_share *share) {
    count_call();
}

COUNTS(fake_memory_map, UNREACHABLE, void *instance, int32_t device, const symmem_share *share,
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

#define INSTANCE_OPS(probe_)                                                                       \
    {                                                                                              \
        .size = sizeof(symmem_instance_ops), .probe = (probe_), .open = fake_open,                 \
        .close = fake_close, .device_count = fake_device_count, .device_info = fake_device_info,   \
    }
static const symmem_instance_ops instance_ops = INSTANCE_OPS(fake_probe);
static const symmem_instance_ops absent_ops = INSTANCE_OPS(fake_probe_absent);

static const symmem_memory_ops memory_ops = {
    .size = sizeof(symmem_memory_ops),
    .alloc = fake_memory_alloc,
    .release = fake_memory_release,
    .share = fake_memory_share,
    .unshare = fake_memory_unshare,
    .map = fake_memory_map,
};

static const symmem_signal_ops signal_ops = {
    .size = sizeof(symmem_signal_ops),
    .bytes = fake_signal_bytes,
    .peers_open = fake_peers_open,
    .peers_close = fake_peers_close,
    .barrier = fake_barrier,
    .put = fake_signal,
    .wait = fake_signal,
    .reset = fake_signal_reset,
};

static const symmem_copy_ops copy_ops = {
    .size = sizeof(symmem_copy_ops),
    .copy = fake_copy,
    .memset32 = fake_memset32,
    .write_value32 = fake_write_value32,
};

#define FAKE_TABLE(name_, instance_)                                                               \
    {                                                                                              \
        .size = sizeof(symmem_backend), .abi = SYMMEM_BACKEND_ABI, .name = (name_),                \
        .description = "a fake of the suite", .flags = SYMMEM_CAP_PROCESS_RANKS,                   \
        .instance = &(instance_), .memory = &memory_ops, .signal = &signal_ops, .copy = &copy_ops, \
    }

const symmem_backend fake_table_a = FAKE_TABLE("suite_fake_a", instance_ops);
const symmem_backend fake_table_b = FAKE_TABLE("suite_fake_b", instance_ops);
const symmem_backend fake_table_absent = FAKE_TABLE("suite_fake_absent", absent_ops);
const symmem_backend fake_table_longest =
    FAKE_TABLE("suite_fake_of_thirty_one_chars_", instance_ops);

/* Fills entries that must never be called. */
static void fake_never(void) {
    count_call();
}

void fake_table_full(flat_backend *table) {
    *table = flat_of(&fake_table_a);
    table->head.flags = SYMMEM_CAP_FLAGS;
    flat_fill(table, fake_never);
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

void fake_table_exchanges(flat_backend *table) {
    table->group_open = fake_group_open;
    table->group_close = fake_group_close;
    table->memory_exchange = fake_exchange;
    table->memory_release = fake_release_own;
    table->memory_share = NULL;
    table->memory_map = NULL;
    table->memory_unshare = NULL;
}
