/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Signals and the barrier.
 *
 * A rank's signal state. All words have 32 bits and are 0 at the start:
 *   header
 *   slots    [channel][source]  0 or 1: put by `source`, consumed by the owner
 *   arrivals [2][channel][source]  the epoch of the last even barrier that `source` entered, and of
 *                               the last odd one. No rank polls the one that is written next,
 *                               except a rank that is one barrier ahead, so its line can be
 *                               prefetched
 *   epochs   [channel]          the owner's count of barriers; only the owner accesses it
 *   calls    [channel][2]       the owner's calls in its last two barriers, if calls are compared
 *   splits   [channel][words]   64-bit words that a collective publishes, see cpu/comm.h
 *   eager    [channel][2]       what the owner publishes in even and odd barriers, see cpu/comm.h;
 *                               of the first channels only, as they take most of the state
 *   counts   [3][channel][rank] counted signals, see signal/counts.c
 * The epoch lives here and never in an argument, so that a captured barrier can be replayed. It
 * wraps, and epochs are compared by their difference.
 */
#include <stdlib.h>
#include <string.h>

#include "cpu/prefetch.h"
#include "cpu/comm.h"
#include "signals.h"
#include "error.h"
#include "op.h"
#include "wait.h"

/* How often a rank polls for the others before it wakes any. This takes about 1 us. */
#define ARRIVAL_POLLS 100
/* How many channels have eager buffers. */
#define EAGER_CHANNELS 4
#define LINE_BYTES 64
#define CLAIMING_RANKS 8

/* Whole cache lines. */
static size_t table_words(int32_t world_size, int32_t channel_count) {
    const size_t line = LINE_BYTES / sizeof(shm_word);
    return ((size_t)world_size * (size_t)channel_count + line - 1) / line * line;
}

/* Returns the offset of the calls in the state. */
static size_t calls_offset(int32_t world_size, int32_t channel_count) {
    size_t words = 3 * table_words(world_size, channel_count) + (size_t)channel_count;
    size_t bytes = sizeof(shm_signal_header) + words * sizeof(shm_word);
    return (bytes + sizeof(uint64_t) - 1) / sizeof(uint64_t) * sizeof(uint64_t);
}

static size_t split_tables_offset(int32_t world_size, int32_t channel_count) {
    return calls_offset(world_size, channel_count) +
           2 * (size_t)channel_count * sizeof(symmem_call_id);
}

static size_t eager_buffers_offset(int32_t world_size, int32_t channel_count) {
    size_t bytes =
        split_tables_offset(world_size, channel_count) +
        (size_t)channel_count * SYMMEM_CPU_SPLIT_TABLE_WORDS(world_size) * sizeof(uint64_t);
    return (bytes + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
}

static size_t counts_offset(int32_t world_size, int32_t channel_count) {
    int32_t channels = channel_count < EAGER_CHANNELS ? channel_count : EAGER_CHANNELS;
    return eager_buffers_offset(world_size, channel_count) + 2 * (size_t)channels * SHM_EAGER_BYTES;
}

size_t shm_signal_bytes(void *instance, int32_t world_size, int32_t channel_count,
                        size_t block_bytes) {
    (void)instance;
    (void)block_bytes;
    return counts_offset(world_size, channel_count) +
           3 * table_words(world_size, channel_count) * sizeof(shm_word);
}

shm_word *shm_count_word(const symmem_peers *peers, shm_count which, int32_t owner, int32_t channel,
                         int32_t rank) {
    char *counts =
        (char *)peers->signals[owner] + counts_offset(peers->world_size, peers->channel_count);
    return (shm_word *)(void *)counts +
           (size_t)which * table_words(peers->world_size, peers->channel_count) +
           (size_t)channel * (size_t)peers->world_size + (size_t)rank;
}

static shm_word *slot(const symmem_peers *peers, int32_t owner, int32_t channel, int32_t source) {
    shm_word *words = (shm_word *)((shm_signal_header *)peers->signals[owner] + 1);
    return words + (size_t)channel * (size_t)peers->world_size + (size_t)source;
}

static shm_word *arrival(const symmem_peers *peers, int32_t owner, int32_t channel, int32_t source,
                         uint32_t in_epoch) {
    return slot(peers, owner, channel, source) +
           (1 + in_epoch % 2) * table_words(peers->world_size, peers->channel_count);
}

static shm_word *epoch(const symmem_peers *peers, int32_t channel) {
    return slot(peers, peers->rank, 0, 0) +
           3 * table_words(peers->world_size, peers->channel_count) + channel;
}

/* Returns rank `owner`'s call in the barrier of that epoch. There are two, used alternately. A rank
 * that writes one again has passed a barrier since all ranks read it. */
static symmem_call_id *call_of(const symmem_peers *peers, int32_t owner, int32_t channel,
                               uint32_t in_epoch) {
    char *calls =
        (char *)peers->signals[owner] + calls_offset(peers->world_size, peers->channel_count);
    return (symmem_call_id *)(void *)calls + 2 * (size_t)channel + in_epoch % 2;
}

uint64_t *shm_split_table(const symmem_peers *peers, int32_t owner, int32_t channel) {
    char *split_tables = (char *)peers->signals[owner] +
                         split_tables_offset(peers->world_size, peers->channel_count);
    return (uint64_t *)(void *)split_tables +
           (size_t)channel * SYMMEM_CPU_SPLIT_TABLE_WORDS(peers->world_size);
}

size_t shm_eager_bytes(int32_t channel) {
    return channel < EAGER_CHANNELS ? SHM_EAGER_BYTES : 0;
}

void *shm_eager_buffer(const symmem_peers *peers, int32_t owner, int32_t channel) {
    char *trays = (char *)peers->signals[owner] +
                  eager_buffers_offset(peers->world_size, peers->channel_count);
    /* relaxed: as in shm_sync, whose next epoch this is */
    uint32_t next = atomic_load_explicit(epoch(peers, channel), memory_order_relaxed) + 1;
    return trays + (2 * (size_t)channel + next % 2) * SHM_EAGER_BYTES;
}

/* --- the peers' tables -------------------------------------------------------------- */

symmem_status shm_peers_open(void *instance, symmem_peers *peers, void **buffers_dev_p,
                             void **pads_dev_p) {
    shm_instance *self = instance;
    size_t count = (size_t)peers->world_size;
    symmem_status status = shm_failpoint(self->host, "shm.peers.open");
    if (status != SYMMEM_OK)
        return status;
    void **tables = calloc(2 * count, sizeof *tables);
    if (!tables)
        return shm_out_of_memory(self->host, "rendezvous");
    memcpy(tables, peers->buffers, count * sizeof *tables);
    memcpy(tables + count, peers->pads, count * sizeof *tables);
    peers->priv = tables;
    *buffers_dev_p = tables;
    *pads_dev_p = tables + count;
    return SYMMEM_OK;
}

void shm_peers_close(void *instance, symmem_peers *peers) {
    shm_instance *self = instance;
    shm_failpoint_notify(self->host, "shm.peers.close*");
    free(peers->priv);
    peers->priv = NULL;
}

/* --- what the three operations wait for --------------------------------------------- */

static shm_word *barrier_word(const shm_wait *wait, int32_t rank) {
    return arrival(wait->peers, wait->peers->rank, wait->channel, rank, wait->epoch);
}

static shm_seen barrier_attempt(const shm_wait *wait, int32_t rank, uint32_t *value_p) {
    /* acquire; pairs with: the store in arrive. seq_cst for shm_wake. */
    *value_p = atomic_load_explicit(barrier_word(wait, rank), memory_order_seq_cst);
    return (int32_t)(*value_p - wait->epoch) >= 0 ? SHM_READY : SHM_MISSING;
}

static bool barrier_peek(const shm_wait *wait, int32_t rank) {
    uint32_t value;
    return barrier_attempt(wait, rank, &value) == SHM_READY;
}

static shm_word *put_word(const shm_wait *wait, int32_t rank) {
    return slot(wait->peers, rank, wait->channel, wait->peers->rank);
}

static shm_seen put_attempt(const shm_wait *wait, int32_t rank, uint32_t *value_p) {
    *value_p = 0;
    /* release; pairs with: wait_attempt. seq_cst for shm_wake. */
    if (atomic_compare_exchange_strong_explicit(put_word(wait, rank), value_p, 1,
                                                memory_order_seq_cst, memory_order_seq_cst))
        return SHM_READY;
    return *value_p == 1 ? SHM_MISSING : SHM_BROKEN;
}

static bool put_peek(const shm_wait *wait, int32_t rank) {
    return atomic_load_explicit(put_word(wait, rank), memory_order_relaxed) != 1;
}

static shm_word *wait_word(const shm_wait *wait, int32_t rank) {
    return slot(wait->peers, wait->peers->rank, wait->channel, rank);
}

static shm_seen wait_attempt(const shm_wait *wait, int32_t rank, uint32_t *value_p) {
    *value_p = 1;
    /* acquire; pairs with: put_attempt. seq_cst for shm_wake. */
    if (atomic_compare_exchange_strong_explicit(wait_word(wait, rank), value_p, 0,
                                                memory_order_seq_cst, memory_order_seq_cst))
        return SHM_READY;
    return *value_p == 0 ? SHM_MISSING : SHM_BROKEN;
}

static bool wait_peek(const shm_wait *wait, int32_t rank) {
    return atomic_load_explicit(wait_word(wait, rank), memory_order_relaxed) != 0;
}

/* --- running them ------------------------------------------------------------------- */

void shm_sync_prepare(const shm_instance *instance, const symmem_peers *peers,
                      const char *operation, int32_t channel, uint32_t timeout_ms, shm_wait *wait) {
    memset(wait, 0, sizeof *wait);
    wait->peers = peers;
    wait->operation = operation;
    wait->channel = channel;
    wait->rank = -1;
    wait->timeout_ms = timeout_ms;
    wait->core_count = instance->core_count;
    wait->word = barrier_word;
    wait->attempt = barrier_attempt;
    wait->peek = barrier_peek;
}

static void prepare(const shm_op *op, shm_wait *wait) {
    shm_sync_prepare(op->instance, op->u.signal.peers, op->u.signal.operation, op->u.signal.channel,
                     op->u.signal.timeout_ms, wait);
    wait->rank = op->u.signal.rank;
}

/* Runs a failpoint. Its failure is the operation's and this rank's own. */
static symmem_status point(const shm_wait *wait, const char *name, symmem_fault *fault_p) {
    const symmem_peers *peers = wait->peers;
    symmem_status status = shm_failpoint(peers->host, name);
    if (status == SYMMEM_OK)
        return status;
    shm_wait_fault(wait, status, peers->rank, -1, fault_p);
    memset(fault_p->missing, 0, sizeof fault_p->missing);
    fault_p->stage = name;
    return status;
}

symmem_status shm_signal_before(const shm_wait *wait, const char *name, symmem_fault *fault_p) {
    const symmem_peers *peers = wait->peers;
    symmem_status status = point(wait, name, fault_p);
    if (status == SYMMEM_OK && peers->host->is_poisoned(peers))
        status = shm_wait_fault(wait, SYMMEM_POISONED, -1, -1, fault_p);
    return status;
}

symmem_status shm_signal_finish(const shm_wait *wait, const char *name, symmem_status status,
                                const symmem_fault *fault, symmem_error_record *record_p) {
    shm_failpoint_notify(wait->peers->host, name);
    if (status != SYMMEM_OK)
        wait->peers->host->signal_failed(wait->peers, fault, record_p);
    return status;
}

static void arrive(const shm_wait *wait) {
    const symmem_peers *peers = wait->peers;
    for (int32_t rank = 0; rank < peers->world_size; rank++) {
        if (rank == peers->rank)
            continue;
        shm_failpoint_notify(peers->host, "shm.barrier.arrive*");
        /* release; pairs with: barrier_attempt */
        atomic_store_explicit(arrival(peers, rank, wait->channel, peers->rank, wait->epoch),
                              wait->epoch, memory_order_release);
    }
}

/* Returns whether all others have arrived, after polling for as long as ranks that are in step
 * need. A cache line takes the same time either way, so this rank's arrival travels meanwhile. */
static bool all_are_there(const shm_wait *wait) {
    int32_t looks = wait->peers->local_rank_count > wait->core_count ? 0 : ARRIVAL_POLLS;
    for (int32_t rank = 0; rank < wait->peers->world_size; rank++)
        while (rank != wait->peers->rank && !barrier_peek(wait, rank))
            if (looks-- <= 0)
                return false;
    return true;
}

/* Called after the barrier. No rank reads what this rank stores next, except one that already waits
 * for it. */
static void prefetch_arrivals(const shm_wait *wait) {
    const symmem_peers *peers = wait->peers;
    if (peers->world_size > CLAIMING_RANKS)
        return;
    for (int32_t rank = 0; rank < peers->world_size; rank++)
        if (rank != peers->rank)
            symmem_cpu_prefetch_for_write(
                arrival(peers, rank, wait->channel, peers->rank, wait->epoch + 1), 1);
}

/* Wakes the ranks that sleep until this rank arrives. */
static void wake_sleepers(const shm_wait *wait) {
    const symmem_peers *peers = wait->peers;
    shm_word here;
    atomic_init(&here, 0);
    /* seq_cst, on a word that no other thread uses: the arrivals are stored before the sleepers are
     * read. A sleeper that counted itself too late to be seen here has seen the arrival. */
    atomic_fetch_add_explicit(&here, 1, memory_order_seq_cst);
    for (int32_t rank = 0; rank < peers->world_size; rank++) {
        if (rank == peers->rank)
            continue;
        shm_failpoint_notify(peers->host, "shm.barrier.wake*");
        shm_wake(peers, rank, arrival(peers, rank, wait->channel, peers->rank, wait->epoch));
    }
}

/* All ranks have arrived. Compares their calls. Every rank finds the same result. */
static symmem_status compare_calls(const shm_wait *wait, const symmem_call_id *id,
                                   symmem_fault *fault_p) {
    for (int32_t rank = 0; rank < wait->peers->world_size; rank++) {
        const symmem_call_id *other = call_of(wait->peers, rank, wait->channel, wait->epoch);
        if (other->kind == SYMMEM_CALL_NONE || memcmp(other, id, sizeof *id) == 0)
            continue;
        shm_wait_fault(wait, SYMMEM_MISMATCH, rank, -1, fault_p);
        fault_p->own = *id;
        fault_p->other = *other;
        return SYMMEM_MISMATCH;
    }
    return SYMMEM_OK;
}

symmem_status shm_sync(shm_wait *wait, const symmem_call_id *id, symmem_fault *fault_p) {
    bool checked = id->kind != SYMMEM_CALL_NONE;
    /* relaxed: only this rank uses the word, and the core serializes a channel's operations. */
    shm_word *own = epoch(wait->peers, wait->channel);
    wait->epoch = atomic_load_explicit(own, memory_order_relaxed) + 1;
    symmem_status status = shm_signal_before(wait, "shm.barrier.before_arrive", fault_p);
    if (status != SYMMEM_OK)
        return status;
    if (checked)
        *call_of(wait->peers, wait->peers->rank, wait->channel, wait->epoch) = *id;
    atomic_store_explicit(own, wait->epoch, memory_order_relaxed);
    arrive(wait);
    bool met = all_are_there(wait);
    wake_sleepers(wait);
    /* Now all ranks can go on, whatever happens to this one. */
    status = point(wait, "shm.barrier.after_arrive", fault_p);
    if (status == SYMMEM_OK && !met)
        status = shm_wait_run(wait, fault_p);
    if (status == SYMMEM_OK)
        prefetch_arrivals(wait);
    return status == SYMMEM_OK && checked ? compare_calls(wait, id, fault_p) : status;
}

static symmem_status run_barrier(const shm_op *op, symmem_error_record *record_p) {
    shm_wait wait;
    symmem_fault fault;
    prepare(op, &wait);
    symmem_status status = shm_sync(&wait, &op->u.signal.call, &fault);
    return shm_signal_finish(&wait, "shm.barrier.done*", status, &fault, record_p);
}

static symmem_status run_put(const shm_op *op, symmem_error_record *record_p) {
    shm_wait wait;
    symmem_fault fault;
    prepare(op, &wait);
    wait.word = put_word;
    wait.attempt = put_attempt;
    wait.peek = put_peek;
    symmem_status status = shm_signal_before(&wait, "shm.put.before", &fault);
    if (status == SYMMEM_OK)
        status = shm_wait_run(&wait, &fault);
    if (status == SYMMEM_OK) {
        shm_failpoint_notify(wait.peers->host, "shm.put.wake*");
        shm_wake(wait.peers, wait.rank, put_word(&wait, wait.rank));
    }
    return shm_signal_finish(&wait, "shm.put.done*", status, &fault, record_p);
}

static symmem_status run_wait(const shm_op *op, symmem_error_record *record_p) {
    shm_wait wait;
    symmem_fault fault;
    prepare(op, &wait);
    wait.word = wait_word;
    wait.attempt = wait_attempt;
    wait.peek = wait_peek;
    symmem_status status = shm_signal_before(&wait, "shm.wait.before", &fault);
    if (status == SYMMEM_OK)
        status = shm_wait_run(&wait, &fault);
    if (status == SYMMEM_OK) {
        shm_failpoint_notify(wait.peers->host, "shm.wait.wake*");
        shm_wake(wait.peers, wait.rank, wait_word(&wait, wait.rank));
    }
    return shm_signal_finish(&wait, "shm.wait.done*", status, &fault, record_p);
}

static symmem_status submit(void *instance, const symmem_peers *peers, int32_t rank,
                            int32_t channel, const symmem_exec *exec, const char *operation,
                            symmem_status (*run)(const shm_op *, symmem_error_record *)) {
    shm_op op;
    shm_op_init(&op, instance, run);
    op.reports_itself = true;
    op.u.signal.peers = peers;
    op.u.signal.rank = rank;
    op.u.signal.channel = channel;
    op.u.signal.timeout_ms = exec->timeout_ms;
    op.u.signal.call = exec->call;
    op.u.signal.operation = shm_operation(exec, operation);
    return shm_submit(&op, exec, op.u.signal.operation);
}

symmem_status shm_barrier(void *instance, const symmem_peers *peers, int32_t channel,
                          const symmem_exec *exec) {
    return submit(instance, peers, -1, channel, exec, "barrier", run_barrier);
}

symmem_status shm_put_signal(void *instance, const symmem_peers *peers, int32_t dst_rank,
                             int32_t channel, const symmem_exec *exec) {
    return submit(instance, peers, dst_rank, channel, exec, "put_signal", run_put);
}

symmem_status shm_wait_signal(void *instance, const symmem_peers *peers, int32_t src_rank,
                              int32_t channel, const symmem_exec *exec) {
    return submit(instance, peers, src_rank, channel, exec, "wait_signal", run_wait);
}

/* --- reset and poison --------------------------------------------------------------- */

symmem_status shm_signal_reset(void *instance, const symmem_peers *peers) {
    shm_instance *self = instance;
    size_t bytes = peers->signal_bytes;
    symmem_status status = shm_failpoint(self->host, "shm.reset.before");
    if (status != SYMMEM_OK)
        return status;
    shm_word *words = peers->signals[peers->rank];
    /* relaxed: the core's host barriers around the reset order it. Atomic, because a peer may still
     * read the poisoned flag. */
    for (size_t i = 0; i < bytes / sizeof *words; i++)
        atomic_store_explicit(&words[i], 0, memory_order_relaxed);
    return shm_failpoint(self->host, "shm.reset.done");
}

/* Wakes the threads of that rank that wait on the channel for this rank. */
static void wake_channel(const symmem_peers *peers, int32_t rank, int32_t channel) {
    for (uint32_t parity = 0; parity < 2; parity++)
        shm_wake(peers, rank, arrival(peers, rank, channel, peers->rank, parity));
    shm_wake(peers, rank, slot(peers, rank, channel, peers->rank));
    shm_wake(peers, rank, slot(peers, peers->rank, channel, rank));
    shm_wake(peers, rank, shm_count_word(peers, SHM_CAME, rank, channel, peers->rank));
}

void shm_signal_poison(void *instance, const symmem_peers *peers) {
    shm_instance *self = instance;
    shm_signal_header *own = peers->signals[peers->rank];
    shm_failpoint_notify(self->host, "shm.poison*");
    /* release; pairs with: the load in check_health */
    atomic_store_explicit(&own->poisoned, 1, memory_order_release);
    const int32_t channels =
        peers->channel_count < SHM_WAKE_CHANNELS ? peers->channel_count : SHM_WAKE_CHANNELS;
    for (int32_t rank = 0; rank < peers->world_size; rank++)
        for (int32_t channel = 0; channel < channels; channel++)
            if (shm_has_slept(peers->signals[rank], channel))
                wake_channel(peers, rank, channel);
}
