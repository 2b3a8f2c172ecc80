/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Walks every call that the core makes of its backend in a complete run and lets each fail once,
 * described or not: the core returns that status with a record, and gives all back.
 */
#include "life.h"

static const symmem_backend *real;
static _Thread_local int calls, fail_at;
static _Thread_local const char *failed_entry;
static _Thread_local const symmem_host *host;
static bool described; /* whether failing entries tell the host; set between walks */

static void arm(int nth) {
    failed_entry = NULL;
    calls = 0;
    fail_at = nth;
}

static int disarm(const char **name_p) {
    fail_at = 0;
    *name_p = failed_entry;
    return calls;
}

/* True once, for the call that is to fail. */
static bool fails(const char *entry) {
    if (++calls != fail_at)
        return false;
    failed_entry = entry;
    return true;
}

static symmem_status refuse(const char *entry) {
    if (described && host != NULL)
        return host->fail(host, SYMMEM_BACKEND, 0, entry, "told to fail");
    return SYMMEM_BACKEND;
}

/* One entry: its name, parameters and arguments. */
#define ENTRY(name, parameters, arguments)                                                         \
    static symmem_status faulty_##name parameters {                                                \
        return fails(#name) ? refuse(#name) : real->name arguments;                                \
    }

ENTRY(probe, (char *reason, size_t capacity), (reason, capacity))
ENTRY(device_count, (void *instance, int32_t *count_p), (instance, count_p))
ENTRY(device_info, (void *instance, int32_t device, symmem_device_info *info_p),
      (instance, device, info_p))
ENTRY(memory_alloc, (void *instance, int32_t device, size_t bytes, symmem_memory *memory),
      (instance, device, bytes, memory))
ENTRY(memory_export, (void *instance, symmem_memory *memory, symmem_share *share),
      (instance, memory, share))
ENTRY(memory_import,
      (void *instance, int32_t device, const symmem_share *share, size_t bytes,
       symmem_memory *memory),
      (instance, device, share, bytes, memory))
ENTRY(peers_open, (void *instance, symmem_peers *peers, void **buffers_dev_p, void **pads_dev_p),
      (instance, peers, buffers_dev_p, pads_dev_p))
ENTRY(barrier,
      (void *instance, const symmem_peers *peers, int32_t channel, const symmem_exec *exec),
      (instance, peers, channel, exec))
ENTRY(put_signal,
      (void *instance, const symmem_peers *peers, int32_t rank, int32_t channel,
       const symmem_exec *exec),
      (instance, peers, rank, channel, exec))
ENTRY(wait_signal,
      (void *instance, const symmem_peers *peers, int32_t rank, int32_t channel,
       const symmem_exec *exec),
      (instance, peers, rank, channel, exec))
ENTRY(signal_reset, (void *instance, const symmem_peers *peers), (instance, peers))
ENTRY(copy,
      (void *instance, int32_t device, void *dst, const void *src, size_t bytes,
       const symmem_exec *exec),
      (instance, device, dst, src, bytes, exec))
ENTRY(memset32,
      (void *instance, int32_t device, void *dst, uint32_t value, size_t count,
       const symmem_exec *exec),
      (instance, device, dst, value, count, exec))
ENTRY(write_value32,
      (void *instance, int32_t device, void *dst, uint32_t value, const symmem_exec *exec),
      (instance, device, dst, value, exec))
ENTRY(stream_create, (void *instance, int32_t device, void **stream_p),
      (instance, device, stream_p))
ENTRY(stream_synchronize,
      (void *instance, void *stream, uint32_t timeout_ms, symmem_error_record *record_p),
      (instance, stream, timeout_ms, record_p))
ENTRY(stream_query, (void *instance, void *stream, bool *idle_p), (instance, stream, idle_p))
ENTRY(device_synchronize, (void *instance, int32_t device, uint32_t timeout_ms),
      (instance, device, timeout_ms))
ENTRY(event_create, (void *instance, int32_t device, void **event_p), (instance, device, event_p))
ENTRY(event_record, (void *instance, void *event, void *stream), (instance, event, stream))
ENTRY(stream_wait_event, (void *instance, void *stream, void *event), (instance, stream, event))
ENTRY(event_query, (void *instance, void *event, bool *reached_p), (instance, event, reached_p))
ENTRY(host_fn, (void *instance, void *stream, void (*fn)(void *arg), void *arg),
      (instance, stream, fn, arg))
ENTRY(capture_begin, (void *instance, void *stream), (instance, stream))
ENTRY(capture_id, (void *instance, void *stream, uint64_t *id_p), (instance, stream, id_p))
ENTRY(graph_launch, (void *instance, void *graph, void *stream), (instance, graph, stream))
ENTRY(multicast_create,
      (void *instance, int32_t device, int32_t world_size, size_t bytes, void **object_p,
       symmem_share *share),
      (instance, device, world_size, bytes, object_p, share))
ENTRY(multicast_attach,
      (void *instance, int32_t device, const symmem_share *share, size_t bytes, void **multicast_p),
      (instance, device, share, bytes, multicast_p))
ENTRY(multicast_bind,
      (void *instance, void *multicast, symmem_memory *own, const symmem_peers *peers,
       void **address_p),
      (instance, multicast, own, peers, address_p))
ENTRY(multimem_store,
      (void *instance, const symmem_peers *peers, void *address, const void *src, size_t bytes,
       const symmem_exec *exec),
      (instance, peers, address, src, bytes, exec))
ENTRY(multimem_ld_reduce,
      (void *instance, const symmem_peers *peers, const void *address, void *dst, size_t count,
       symmem_dtype dtype, symmem_reduce_op op, const symmem_exec *exec),
      (instance, peers, address, dst, count, dtype, op, exec))

static symmem_status faulty_open(const symmem_host *context_host,
                                 const symmem_backend_config *config, void **instance_p) {
    host = context_host;
    return fails("open") ? refuse("open") : real->open(context_host, config, instance_p);
}

/* Not in finalise: a graph whose work does not end stays there, on purpose. */
static symmem_status faulty_event_synchronize(void *instance, void *event, uint32_t timeout_ms) {
    if (!life_finalising && fails("event_synchronize"))
        return refuse("event_synchronize");
    return real->event_synchronize(instance, event, timeout_ms);
}

/* A capture is over after this, whatever becomes of it. */
static symmem_status faulty_capture_end(void *instance, void *stream, void **graph_p) {
    if (!fails("capture_end"))
        return real->capture_end(instance, stream, graph_p);
    void *graph = NULL;
    if (real->capture_end(instance, stream, &graph) == SYMMEM_OK)
        real->graph_destroy(instance, graph);
    return refuse("capture_end");
}

static symmem_backend faulty_table(void) {
    symmem_backend table = *real;
#define FAULTY(name) table.name = faulty_##name
    FAULTY(probe);
    FAULTY(open);
    FAULTY(device_count);
    FAULTY(device_info);
    FAULTY(memory_alloc);
    FAULTY(memory_export);
    FAULTY(memory_import);
    FAULTY(peers_open);
    FAULTY(barrier);
    FAULTY(put_signal);
    FAULTY(wait_signal);
    FAULTY(signal_reset);
    FAULTY(copy);
    FAULTY(memset32);
    FAULTY(write_value32);
    FAULTY(stream_create);
    FAULTY(stream_synchronize);
    FAULTY(stream_query);
    FAULTY(device_synchronize);
    FAULTY(event_create);
    FAULTY(event_record);
    FAULTY(stream_wait_event);
    FAULTY(event_synchronize);
    FAULTY(event_query);
    FAULTY(host_fn);
    FAULTY(capture_begin);
    FAULTY(capture_end);
    FAULTY(capture_id);
    FAULTY(graph_launch);
    FAULTY(multicast_create);
    FAULTY(multicast_attach);
    FAULTY(multicast_bind);
    FAULTY(multimem_store);
    FAULTY(multimem_ld_reduce);
    return table;
}

int main(void) {
    real = symmem_backend_entry(SYMMEM_BACKEND_ABI);
    symmem_backend table = faulty_table();
    const struct life_faults faults = {.table = &table, .arm = arm, .disarm = disarm};
    described = false;
    int result = life_main("backend faults, not described", &faults);
    described = true;
    return life_main("backend faults, described", &faults) | result;
}
