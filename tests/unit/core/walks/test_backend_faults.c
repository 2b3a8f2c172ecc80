/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Walks every call that the core makes of its backend in a complete run and lets each fail once,
 * described or not: the core returns that status with a record, and gives all back.
 */
#include "../../../flat_backend.h"
#include "life.h"

static flat_backend emulation;
static const flat_backend *real = &emulation;
static _Thread_local const symmem_host *host;
static bool described; /* whether failing entries tell the host; set between walks */

static symmem_status refuse(const char *entry) {
    if (described && host != NULL)
        return host->fail(host, SYMMEM_BACKEND, 0, entry, "told to fail");
    return SYMMEM_BACKEND;
}

/* The objects that entries make and other entries have to end. */
typedef enum made { NOTHING, INSTANCE, MEMORY, SHARE, PEERS, STREAM, EVENT, GRAPH, MULTICAST } made;
static atomic_int there[MULTICAST + 1];

static symmem_status makes(made kind, symmem_status status) {
    if (kind != NOTHING && status == SYMMEM_OK)
        atomic_fetch_add(&there[kind], 1);
    return status;
}

/* A failing entry: its name, what it makes, parameters and arguments. */
#define MAKER(name, kind, parameters, arguments)                                                   \
    static symmem_status faulty_##name parameters {                                                \
        return life_strikes(#name) ? refuse(#name) : makes(kind, real->name arguments);            \
    }
#define ENTRY(name, parameters, arguments) MAKER(name, NOTHING, parameters, arguments)
#define ENDER(name, kind, type)                                                                    \
    static void faulty_##name(void *instance, type *object) {                                      \
        real->name(instance, object);                                                              \
        atomic_fetch_sub(&there[kind], 1);                                                         \
    }

ENTRY(probe, (char *reason, size_t capacity), (reason, capacity))
ENTRY(device_count, (void *instance, int32_t *count_p), (instance, count_p))
ENTRY(device_info, (void *instance, int32_t device, symmem_device_info *info_p),
      (instance, device, info_p))
MAKER(memory_alloc, MEMORY, (void *instance, int32_t device, size_t bytes, symmem_memory *memory),
      (instance, device, bytes, memory))
MAKER(memory_share, SHARE, (void *instance, symmem_memory *memory, symmem_share *share),
      (instance, memory, share))
MAKER(memory_map, MEMORY,
      (void *instance, int32_t device, const symmem_share *share, size_t bytes,
       symmem_memory *memory),
      (instance, device, share, bytes, memory))
MAKER(peers_open, PEERS,
      (void *instance, symmem_peers *peers, void **buffers_dev_p, void **pads_dev_p),
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
ENTRY(wait_value,
      (void *instance, const symmem_peers *peers, const symmem_value_wait *wait,
       const symmem_exec *exec),
      (instance, peers, wait, exec))
ENTRY(signal_count,
      (void *instance, const symmem_peers *peers, int32_t rank, int32_t channel, uint32_t count,
       const symmem_exec *exec),
      (instance, peers, rank, channel, count, exec))
ENTRY(wait_counts,
      (void *instance, const symmem_peers *peers, int32_t channel, const symmem_window_wait *counts,
       int32_t count_count, const symmem_exec *exec),
      (instance, peers, channel, counts, count_count, exec))
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
ENTRY(write_value64,
      (void *instance, int32_t device, void *dst, uint64_t value, const symmem_exec *exec),
      (instance, device, dst, value, exec))
MAKER(stream_create, STREAM, (void *instance, int32_t device, void **stream_p),
      (instance, device, stream_p))
ENTRY(stream_synchronize,
      (void *instance, void *stream, uint32_t timeout_ms, symmem_error_record *record_p),
      (instance, stream, timeout_ms, record_p))
ENTRY(stream_query, (void *instance, void *stream, bool *idle_p), (instance, stream, idle_p))
ENTRY(device_synchronize, (void *instance, int32_t device, uint32_t timeout_ms),
      (instance, device, timeout_ms))
MAKER(event_create, EVENT, (void *instance, int32_t device, void **event_p),
      (instance, device, event_p))
ENTRY(event_record, (void *instance, void *event, void *stream), (instance, event, stream))
ENTRY(stream_wait_event, (void *instance, void *stream, void *event), (instance, stream, event))
ENTRY(event_query, (void *instance, void *event, bool *reached_p), (instance, event, reached_p))
ENTRY(host_fn, (void *instance, void *stream, void (*fn)(void *arg), void *arg),
      (instance, stream, fn, arg))
ENTRY(capture_begin, (void *instance, void *stream), (instance, stream))
ENTRY(capture_id, (void *instance, void *stream, uint64_t *id_p), (instance, stream, id_p))
ENTRY(graph_launch, (void *instance, void *graph, void *stream), (instance, graph, stream))
MAKER(multicast_attach, MULTICAST,
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

ENTRY(collective,
      (void *instance, const symmem_peers *peers, int32_t channel,
       const symmem_collective *collective, const symmem_exec *exec),
      (instance, peers, channel, collective, exec))
ENTRY(reduce_tile,
      (void *instance, const symmem_peers *peers, const symmem_tile_reduction *some,
       const symmem_exec *exec),
      (instance, peers, some, exec))
ENTRY(matmul,
      (void *instance, int32_t device, const symmem_matmul *product, const symmem_exec *exec),
      (instance, device, product, exec))
ENTRY(copy_strided,
      (void *instance, int32_t device, const symmem_strided_copy *some, const symmem_exec *exec),
      (instance, device, some, exec))
ENTRY(reduce_local,
      (void *instance, int32_t device, const symmem_local_reduce *some, const symmem_exec *exec),
      (instance, device, some, exec))

static symmem_status faulty_open(const symmem_host *context_host,
                                 const symmem_backend_config *config, void **instance_p) {
    host = context_host;
    return life_strikes("open") ? refuse("open")
                                : makes(INSTANCE, real->open(context_host, config, instance_p));
}

static void faulty_close(void *instance) {
    real->close(instance);
    atomic_fetch_sub(&there[INSTANCE], 1);
}

ENDER(memory_release, MEMORY, symmem_memory)
ENDER(memory_unshare, SHARE, symmem_share)
ENDER(peers_close, PEERS, symmem_peers)
ENDER(stream_destroy, STREAM, void)
ENDER(event_destroy, EVENT, void)
ENDER(graph_destroy, GRAPH, void)
ENDER(multicast_release, MULTICAST, void)

static symmem_status faulty_multicast_create(void *instance, int32_t device, int32_t world_size,
                                             size_t bytes, void **object_p, symmem_share *share) {
    if (life_strikes("multicast_create"))
        return refuse("multicast_create");
    symmem_status status =
        real->multicast_create(instance, device, world_size, bytes, object_p, share);
    return makes(MULTICAST, makes(SHARE, status));
}

/* Does not fail in finalize, which would keep a graph whose work does not end, on purpose. */
static symmem_status faulty_event_synchronize(void *instance, void *event, uint32_t timeout_ms) {
    if (!life_finalizing && life_strikes("event_synchronize"))
        return refuse("event_synchronize");
    return real->event_synchronize(instance, event, timeout_ms);
}

/* A capture is over after this, whatever becomes of it. */
static symmem_status faulty_capture_end(void *instance, void *stream, void **graph_p) {
    if (!life_strikes("capture_end"))
        return makes(GRAPH, real->capture_end(instance, stream, graph_p));
    void *graph = NULL;
    if (real->capture_end(instance, stream, &graph) == SYMMEM_OK)
        real->graph_destroy(instance, graph);
    return refuse("capture_end");
}

static flat_backend faulty_table(void) {
    flat_backend table = *real;
#define FAULTY(name) table.name = faulty_##name
    FAULTY(probe);
    FAULTY(open);
    FAULTY(device_count);
    FAULTY(device_info);
    FAULTY(memory_alloc);
    FAULTY(memory_share);
    FAULTY(memory_map);
    FAULTY(peers_open);
    FAULTY(barrier);
    FAULTY(put_signal);
    FAULTY(wait_signal);
    FAULTY(wait_value);
    FAULTY(signal_count);
    FAULTY(wait_counts);
    FAULTY(signal_reset);
    FAULTY(copy);
    FAULTY(memset32);
    FAULTY(write_value32);
    FAULTY(write_value64);
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
    FAULTY(collective);
    FAULTY(reduce_tile);
    FAULTY(matmul);
    FAULTY(copy_strided);
    FAULTY(reduce_local);
    FAULTY(close);
    FAULTY(memory_release);
    FAULTY(memory_unshare);
    FAULTY(peers_close);
    FAULTY(stream_destroy);
    FAULTY(event_destroy);
    FAULTY(graph_destroy);
    FAULTY(multicast_release);
    return table;
}

/* --- what it has to lead to ------------------------------------------------------------- */

/* In a collective call the other rank learns of the failure. In other calls it waits until its
 * limit, or finds the link poisoned. */
static void judge_other(const struct life_failure *own, const struct life_failure *other) {
    static const char *const meetings[] = {"rendezvous", "handle_reset", NULL};
    const symmem_error_record *mine = &own->record, *theirs = &other->record;
    CU_ASSERT_EQUAL(theirs->rank, 1 - mine->rank);
    if (life_is_one_of(own->call, meetings)) {
        CU_ASSERT_EQUAL(theirs->status, mine->status);
        CU_ASSERT_EQUAL(theirs->failed_rank, mine->rank);
        CU_ASSERT_STRING_EQUAL(theirs->operation, mine->operation);
        CU_ASSERT_STRING_EQUAL(theirs->stage, mine->stage);
        CU_ASSERT_STRING_EQUAL(theirs->message, mine->message);
        CU_ASSERT_STRING_EQUAL(theirs->group, mine->group);
    } else if (theirs->status != SYMMEM_POISONED) {
        CU_ASSERT_EQUAL(theirs->status, SYMMEM_TIMEOUT);
        CU_ASSERT_EQUAL(theirs->failed_rank, mine->rank);
        CU_ASSERT_EQUAL(theirs->missing_count, 1);
        CU_ASSERT_EQUAL(theirs->missing[0], 1u << mine->rank);
    }
}

/* Failures that the core forgives: it does without, or goes on to the end. */
static bool is_forgiven(const char *entry, const char *in) {
    static const char *const places[] = {
        "device_info@symmem_rendezvous",        "multicast_create@symmem_rendezvous",
        "multicast_attach@symmem_rendezvous",   "multicast_bind@symmem_rendezvous",
        "capture_id@symmem_stream_end_capture", NULL};
    char call[64], place[128];
    if (strcmp(in, "symmem_finalize") == 0)
        return true;
    CU_ASSERT_EQUAL(sscanf(in, "%63[a-z0-9_]", call), 1);
    snprintf(place, sizeof(place), "%s@%s", entry, call);
    return life_is_one_of(place, places);
}

/* How many calls may follow in the same call of the library. */
static int most_after(const char *entry, const char *call) {
    static const char *const in_order[] = {
        "barrier",      "put_signal",  "wait_signal", "multimem_store",
        "event_record", "collective",  "copy",        "signal_count",
        "wait_counts",  "reduce_tile", NULL};
    if (strcmp(call, "rendezvous") == 0) /* its record for the others has the device's id */
        return strcmp(entry, "memory_alloc") == 0 || strcmp(entry, "memory_share") == 0 ? 1 : 0;
    if (strncmp(call, "fused_", 6) == 0) /* one lane is to wait for what was begun on the other */
        return 8;
    return life_is_one_of(entry, in_order) ? 2 : 0; /* other streams follow the same order */
}

/* The entry that failed, unless it is part of a step, or its failure is news of a rank's. */
static const char *stage_of(const char *entry, const char *call) {
    static const char *const order[] = {"event_record", "stream_wait_event", NULL};
    if (strcmp(call, "handle_reset") == 0 && strcmp(entry, "event_query") == 0)
        return "reset.begin";
    return strncmp(call, "fused_", 6) == 0 && life_is_one_of(entry, order) ? "order" : entry;
}

static void judge_own(const struct life *life, int nth) {
    const struct life_failure *own = &life->first;
    const symmem_error_record *record = &own->record;
    bool probes = strcmp(life->name, "probe") == 0;
    CU_ASSERT_EQUAL(record->status, probes ? SYMMEM_UNSUPPORTED : SYMMEM_BACKEND);
    /* A second stream is made by a call of the library's own. */
    if (strcmp(record->operation, "stream_create") != 0)
        CU_ASSERT_STRING_EQUAL(record->operation, own->call);
    if (strcmp(record->stage, life->name) != 0) /* a barrier's, of the event behind it */
        CU_ASSERT_STRING_EQUAL(record->stage, stage_of(life->name, own->call));
    CU_ASSERT_EQUAL(record->rank, life->rank);
    CU_ASSERT_EQUAL(record->world_size, life->world_size);
    CU_ASSERT(own->calls >= nth && own->calls <= nth + most_after(life->name, own->call));
}

static void judge(const struct life *own, const struct life *other, int nth) {
    bool finishes = is_forgiven(own->name, own->failed_in);
    CU_ASSERT_EQUAL(own->finished, finishes);
    if (!finishes)
        judge_own(own, nth);
    if (!finishes && other != NULL)
        judge_other(&own->first, &other->first);
    for (made kind = INSTANCE; kind <= MULTICAST; kind++) {
        /* Work that outlasted the wait for its stream keeps what it needs. */
        for (int i = 0; i < 500 && atomic_load(&there[kind]) != 0; i++)
            usleep(10000);
        CU_ASSERT_EQUAL(atomic_exchange(&there[kind], 0), 0);
    }
}

int main(void) {
    emulation = flat_of(symmem_backend_entry(SYMMEM_BACKEND_ABI));
    flat_backend table = faulty_table();
    const struct life_faults faults = {
        .table = flat_table(&table), .judge = judge, .goes_on = true};
    described = false;
    int result = life_main("backend faults, not described", &faults);
    described = true;
    return life_main("backend faults, described", &faults) | result;
}
