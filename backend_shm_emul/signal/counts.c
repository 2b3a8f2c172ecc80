/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Counted signals. For each channel and each pair of ranks there are three words that only grow,
 * and wrap. The source has one that says how many signals it has given, and writes the same number
 * to the peer. The peer has one that says how many its waits have taken. Each word has one writer,
 * so a source need not read what the peer has.
 */
#include <string.h>

#include "error.h"
#include "op.h"
#include "signals.h"
#include "wait.h"
#include "signal/counts.h"

/* --- giving ------------------------------------------------------------------------- */

static void give(const shm_op *op) {
    const symmem_peers *peers = op->u.counts.peers;
    const int32_t channel = op->u.counts.channel, peer = op->u.counts.list[0].rank;
    shm_word *given = shm_count_word(peers, SHM_GIVEN, peers->rank, channel, peer);
    shm_word *came = shm_count_word(peers, SHM_CAME, peer, channel, peers->rank);
    /* relaxed: only this rank uses the word, and the core serializes a channel's operations. */
    const uint32_t number =
        atomic_load_explicit(given, memory_order_relaxed) + op->u.counts.list[0].count;
    atomic_store_explicit(given, number, memory_order_relaxed);
    /* release; pairs with: untaken. seq_cst for shm_wake. */
    atomic_store_explicit(came, number, memory_order_seq_cst);
    shm_failpoint_notify(peers->host, "shm.count.wake*");
    shm_wake(peers, peer, came);
}

static void prepare_counts(const shm_op *op, shm_wait *wait) {
    shm_sync_prepare(op->instance, op->u.counts.peers, op->u.counts.operation, op->u.counts.channel,
                     op->u.counts.timeout_ms, wait);
}

static symmem_status run_count(const shm_op *op, symmem_error_record *record_p) {
    shm_wait wait;
    symmem_fault fault;
    prepare_counts(op, &wait);
    wait.rank = op->u.counts.list[0].rank;
    symmem_status status = shm_signal_before(&wait, "shm.count.before", &fault);
    if (status == SYMMEM_OK)
        give(op);
    return shm_signal_finish(&wait, "shm.count.done*", status, &fault, record_p);
}

/* --- waiting ------------------------------------------------------------------------ */

/* A wait for what the operation lists. */
typedef struct count_wait {
    shm_wait wait; /* first: the functions that it points to get this */
    const shm_op *op;
} count_wait;

static uint32_t awaited(const shm_wait *wait, int32_t rank) {
    const shm_op *op = ((const count_wait *)wait)->op;
    for (int32_t i = 0; i < op->u.counts.list_count; i++)
        if (op->u.counts.list[i].rank == rank)
            return op->u.counts.list[i].count;
    return 0;
}

static shm_word *came_word(const shm_wait *wait, int32_t rank) {
    return shm_count_word(wait->peers, SHM_CAME, wait->peers->rank, wait->channel, rank);
}

/* *came_p: what the word of the source says. Returns how many no wait has taken. */
static uint32_t untaken(const shm_wait *wait, int32_t rank, uint32_t *came_p) {
    /* acquire; pairs with: give. seq_cst for shm_wake. */
    *came_p = atomic_load_explicit(came_word(wait, rank), memory_order_seq_cst);
    return *came_p - atomic_load_explicit(shm_count_word(wait->peers, SHM_TAKEN, wait->peers->rank,
                                                         wait->channel, rank),
                                          memory_order_relaxed);
}

static shm_seen count_attempt(const shm_wait *wait, int32_t rank, uint32_t *value_p) {
    const uint32_t needed = awaited(wait, rank);
    if (needed == 0)
        return SHM_READY;
    const uint32_t found = untaken(wait, rank, value_p);
    if (found > INT32_MAX) {
        *value_p = found; /* for the record */
        return SHM_BROKEN;
    }
    return found >= needed ? SHM_READY : SHM_MISSING;
}

static bool count_peek(const shm_wait *wait, int32_t rank) {
    uint32_t value;
    return count_attempt(wait, rank, &value) != SHM_MISSING;
}

static symmem_status run_wait_counts(const shm_op *op, symmem_error_record *record_p) {
    count_wait wait = {.op = op};
    const symmem_peers *peers = op->u.counts.peers;
    symmem_fault fault;
    prepare_counts(op, &wait.wait);
    wait.wait.own_too = true;
    wait.wait.word = came_word;
    wait.wait.attempt = count_attempt;
    wait.wait.peek = count_peek;
    symmem_status status = shm_signal_before(&wait.wait, "shm.counts.before", &fault);
    if (status == SYMMEM_OK)
        status = shm_wait_run(&wait.wait, &fault);
    for (int32_t i = 0; status == SYMMEM_OK && i < op->u.counts.list_count; i++) {
        shm_word *taken = shm_count_word(peers, SHM_TAKEN, peers->rank, op->u.counts.channel,
                                         op->u.counts.list[i].rank);
        /* relaxed: as in give */
        atomic_fetch_add_explicit(taken, op->u.counts.list[i].count, memory_order_relaxed);
    }
    return shm_signal_finish(&wait.wait, "shm.counts.done*", status, &fault, record_p);
}

/* --- entries ------------------------------------------------------------------------ */

static symmem_status submit_counts(void *instance, const symmem_peers *peers, int32_t channel,
                                   const symmem_window_wait *list, int32_t list_count,
                                   const symmem_exec *exec, const char *operation,
                                   symmem_status (*run)(const shm_op *, symmem_error_record *)) {
    shm_op op;
    shm_op_init(&op, instance, run);
    op.reports_itself = true;
    op.u.counts.peers = peers;
    op.u.counts.channel = channel;
    op.u.counts.timeout_ms = exec->timeout_ms;
    op.u.counts.operation = shm_operation(exec, operation);
    op.u.counts.list_count = list_count;
    memcpy(op.u.counts.list, list, (size_t)list_count * sizeof *list);
    return shm_submit(&op, exec, op.u.counts.operation);
}

symmem_status shm_signal_count(void *instance, const symmem_peers *peers, int32_t dst_rank,
                               int32_t channel, uint32_t count, const symmem_exec *exec) {
    const symmem_window_wait given = {.rank = dst_rank, .count = count};
    return submit_counts(instance, peers, channel, &given, 1, exec, "signal_count", run_count);
}

symmem_status shm_wait_counts(void *instance, const symmem_peers *peers, int32_t channel,
                              const symmem_window_wait *counts, int32_t count_count,
                              const symmem_exec *exec) {
    return submit_counts(instance, peers, channel, counts, count_count, exec, "wait_counts",
                         run_wait_counts);
}
