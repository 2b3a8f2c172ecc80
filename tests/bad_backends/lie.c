/* SPDX-License-Identifier: BSD-3-Clause */
/* Backends that say what is not so: in their table, or in what they answer. */
#include "../mutants/decorator/decorator.h"

#include <string.h>

/* --- tables that are refused ------------------------------------------------------ */

#define CHANGE(name, statement)                                                                    \
    static void name(flat_backend *table) {                                                        \
        statement;                                                                                 \
    }

CHANGE(abi, table->head.abi++)
CHANGE(size_short, table->head.size = SYMMEM_BACKEND_SIZE_ABI2 - 1)
CHANGE(size_zero, table->head.size = 0)
CHANGE(reserved, table->head.reserved = 1)
CHANGE(name_invalid, table->head.name = "Not A Name")
CHANGE(name_null, table->head.name = NULL)
CHANGE(description_null, table->head.description = NULL)
CHANGE(unknown_flags, table->head.flags |= SYMMEM_CAP_ALL + 1)
CHANGE(flag_of_a_group, table->head.flags |= SYMMEM_CAP_STREAMS)
CHANGE(entry_null, table->barrier = NULL)
CHANGE(half_a_group, table->graph_launch = NULL)
CHANGE(group_null, (table->copy = NULL, table->memset32 = NULL, table->write_value32 = NULL))
CHANGE(no_rank_mode, table->head.flags &= ~(SYMMEM_CAP_PROCESS_RANKS | SYMMEM_CAP_THREAD_RANKS))
CHANGE(half_an_export, table->memory_map = NULL)

static void graph_without_streams(flat_backend *table) {
    const flat_backend whole = *table;
    flat_without(table, SYMMEM_CAP_STREAMS);
    table->capture_begin = whole.capture_begin;
    table->capture_end = whole.capture_end;
    table->capture_id = whole.capture_id;
    table->graph_launch = whole.graph_launch;
    table->graph_destroy = whole.graph_destroy;
}

static symmem_status says_no(char *reason, size_t capacity) {
    (void)reason, (void)capacity;
    return SYMMEM_UNSUPPORTED;
}

static symmem_status no_devices(void *instance, int32_t *count_p) {
    (void)instance;
    *count_p = 0;
    return SYMMEM_OK;
}

static symmem_status says_nothing(void *instance, int32_t device, symmem_device_info *info_p) {
    (void)instance, (void)device, (void)info_p;
    return SYMMEM_OK;
}

/* --- promises that are not kept --------------------------------------------------- */

static symmem_status copy_runs_nothing(void *instance, int32_t device, void *dst, const void *src,
                                       size_t bytes, const symmem_exec *exec) {
    return exec->stream != NULL ? SYMMEM_OK : real->copy(instance, device, dst, src, bytes, exec);
}

static symmem_status barrier_unsupported(void *instance, const symmem_peers *peers, int32_t channel,
                                         const symmem_exec *exec) {
    (void)instance, (void)channel, (void)exec;
    return peers->host->fail(peers->host, SYMMEM_UNSUPPORTED, 0, "barrier", "not today");
}

static symmem_status capture_unsupported(void *instance, void *stream) {
    (void)instance, (void)stream;
    return SYMMEM_UNSUPPORTED;
}

static symmem_status barrier_does_nothing(void *instance, const symmem_peers *peers,
                                          int32_t channel, const symmem_exec *exec) {
    (void)instance, (void)peers, (void)channel, (void)exec;
    return SYMMEM_OK;
}

static symmem_status signal_does_nothing(void *instance, const symmem_peers *peers, int32_t rank,
                                         int32_t channel, const symmem_exec *exec) {
    (void)rank;
    return barrier_does_nothing(instance, peers, channel, exec);
}

static symmem_status copy_does_nothing(void *instance, int32_t device, void *dst, const void *src,
                                       size_t bytes, const symmem_exec *exec) {
    (void)instance, (void)device, (void)dst, (void)src, (void)bytes, (void)exec;
    return SYMMEM_OK;
}

static symmem_status alloc_gives_nothing(void *instance, int32_t device, size_t bytes,
                                         symmem_memory *memory) {
    (void)instance, (void)device, (void)bytes, (void)memory;
    return SYMMEM_OK;
}

static symmem_status import_gives_nothing(void *instance, int32_t device, const symmem_share *share,
                                          size_t bytes, symmem_memory *memory) {
    (void)instance, (void)device, (void)share, (void)bytes, (void)memory;
    return SYMMEM_OK;
}

static symmem_status barrier_makes_up_a_status(void *instance, const symmem_peers *peers,
                                               int32_t channel, const symmem_exec *exec) {
    (void)real->barrier(instance, peers, channel, exec);
    return (symmem_status)12345;
}

static symmem_status wait_expires_at_once(void *instance, const symmem_peers *peers, int32_t src,
                                          int32_t channel, const symmem_exec *exec) {
    symmem_fault fault = {.operation = "wait_signal", .status = SYMMEM_TIMEOUT, .failed_rank = src};
    (void)instance, (void)exec;
    fault.channel = channel;
    fault.missing[src / 64] = 1ull << (src % 64);
    peers->host->signal_failed(peers, &fault, NULL);
    return SYMMEM_TIMEOUT;
}

static symmem_status bind_gives_no_address(void *instance, void *multicast, symmem_memory *own,
                                           const symmem_peers *peers, void **address_p) {
    symmem_status status = real->multicast_bind(instance, multicast, own, peers, address_p);
    *address_p = NULL;
    return status;
}

const struct mutant bad_lying[] = {
    {"lie.abi", .change = abi},
    {"lie.size_short", .change = size_short},
    {"lie.size_zero", .change = size_zero},
    {"lie.reserved", .change = reserved},
    {"lie.name_invalid", .change = name_invalid},
    {"lie.name_null", .change = name_null},
    {"lie.description_null", .change = description_null},
    {"lie.unknown_flags", .change = unknown_flags},
    {"lie.flag_of_a_group", .change = flag_of_a_group},
    {"lie.entry_null", .change = entry_null},
    {"lie.half_a_group", .change = half_a_group},
    {"lie.group_null", .change = group_null},
    {"lie.graph_without_streams", .change = graph_without_streams},
    {"lie.no_rank_mode", .change = no_rank_mode},
    {"lie.half_an_export", .change = half_an_export},
    {"lie.probe_without_reason", .entries.probe = says_no},
    {"lie.zero_devices", .entries.device_count = no_devices},
    {"lie.no_device_type", .entries.device_info = says_nothing},
    {"lie.streams_run_nothing", .entries.copy = copy_runs_nothing},
    {"lie.unsupported", .entries.barrier = barrier_unsupported},
    {"lie.unsupported_capture", .entries.capture_begin = capture_unsupported},
    {"lie.ok_and_nothing", .entries = {.barrier = barrier_does_nothing,
                                       .put_signal = signal_does_nothing,
                                       .wait_signal = signal_does_nothing,
                                       .copy = copy_does_nothing}},
    {"lie.no_memory", .entries.memory_alloc = alloc_gives_nothing},
    {"lie.no_peer_memory", .entries.memory_map = import_gives_nothing},
    {"lie.strange_status", .entries.barrier = barrier_makes_up_a_status},
    {"lie.early_timeout", .entries.wait_signal = wait_expires_at_once},
    {"lie.no_multicast_address", .entries.multicast_bind = bind_gives_no_address},
    {.name = NULL},
};
