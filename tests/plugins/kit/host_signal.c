/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Words of 32 bits in each rank's signal state, all 0 at the start:
 *   poisoned         one word, not 0: this rank has given up; alone in its cache line
 *   table[row][rank] row = channel: a signal, 0 or 1, put by `rank`, consumed by the owner
 *                    row = channels + channel: the number of the last barrier `rank` entered
 *   number[channel]  of the owner's own last barrier; no other rank reads it
 * So a pending signal is never an arrival. Numbers wrap; differences are compared.
 */
#include "host_signal.h"

#include <stdatomic.h>
#include <string.h>

#include "wait.h"

#define NS_PER_MS UINT64_C(1000000)
#define LOOK_NS (50 * NS_PER_MS) /* between two questions whether the peers live */
#define HEADER_WORDS 16

typedef _Atomic uint32_t word;
_Static_assert(sizeof(word) == 4 && ATOMIC_INT_LOCK_FREE == 2, "processes share these words");

static word *table_word(const symmem_peers *peers, int32_t owner, int32_t row, int32_t rank) {
    return (word *)peers->signals[owner] + HEADER_WORDS + (size_t)row * (size_t)peers->world_size +
           (size_t)rank;
}

static size_t signal_bytes(void *instance, int32_t world_size, int32_t channel_count,
                           size_t block_bytes) {
    const size_t ranks = (size_t)world_size, channels = (size_t)channel_count;
    (void)instance, (void)block_bytes;
    return (HEADER_WORDS + 2 * channels * ranks + channels) * sizeof(word);
}

static symmem_status peers_open(void *instance, symmem_peers *peers, void **buffers_dev_p,
                                void **pads_dev_p) {
    (void)instance;
    *buffers_dev_p = (void *)(uintptr_t)peers->buffers;
    *pads_dev_p = (void *)(uintptr_t)peers->pads;
    return SYMMEM_OK;
}

static void peers_close(void *instance, symmem_peers *peers) {
    (void)instance, (void)peers;
}

static symmem_status reset(void *instance, const symmem_peers *peers) {
    word *own = peers->signals[peers->rank];
    (void)instance;
    for (size_t i = 0; i < peers->signal_bytes / sizeof(word); i++)
        atomic_store_explicit(&own[i], 0, memory_order_relaxed); /* the core's barriers order it */
    return SYMMEM_OK;
}

static void poison(void *instance, const symmem_peers *peers) {
    (void)instance;
    /* release; pairs with: look_around */
    atomic_store_explicit((word *)peers->signals[peers->rank], 1, memory_order_release);
}

/* --- waits ----------------------------------------------------------------------------------- */

typedef enum wait_kind { BARRIER, PUT, TAKE } wait_kind;

typedef struct attempt {
    const symmem_peers *peers;
    wait_kind kind;
    int32_t rank, row; /* rank: the one peer it is about; BARRIER: -1, all others */
    uint32_t number;   /* of a BARRIER's round */
    uint64_t begin_ns, limit_ns;
    const char *operation;
} attempt;

static attempt begin(const symmem_peers *peers, wait_kind kind, int32_t rank, int32_t row,
                     const symmem_exec *exec) {
    static const char *const names[] = {"barrier", "put_signal", "wait_signal"};
    return (attempt){.peers = peers,
                     .kind = kind,
                     .rank = rank,
                     .row = row,
                     .begin_ns = symmem_kit_now_ns(),
                     .limit_ns = exec->timeout_ms * NS_PER_MS,
                     .operation = exec->operation != NULL ? exec->operation : names[kind]};
}

static word *word_of(const attempt *at, int32_t rank) {
    const int32_t own = at->peers->rank;
    return at->kind == PUT ? table_word(at->peers, rank, at->row, own)
                           : table_word(at->peers, own, at->row, rank);
}

/* Whether `rank` has done its part. Takes nothing. */
static bool is_there(const attempt *at, int32_t rank) {
    /* acquire; pairs with: the arrival's store in barrier */
    const uint32_t value = atomic_load_explicit(word_of(at, rank), memory_order_acquire);
    return at->kind == BARRIER ? (int32_t)(value - at->number) >= 0 : value != (at->kind == PUT);
}

/* Takes what is waited for if it is there; else *found_p is what the word holds. */
static bool take(const attempt *at, int32_t rank, uint32_t *found_p) {
    *found_p = at->kind == TAKE;
    if (at->kind == BARRIER)
        return is_there(at, rank);
    /* release of a put, acquire of a wait: the one pairs with the other */
    return atomic_compare_exchange_strong_explicit(word_of(at, rank), found_p, at->kind == PUT,
                                                   memory_order_acq_rel, memory_order_relaxed);
}

/* Notes who is missing, and the first of them that has ended or given up. How many. */
static int32_t look_at_peers(const attempt *at, symmem_fault *fault) {
    const symmem_peers *peers = at->peers;
    int32_t missing = 0;
    for (int32_t rank = 0; rank < peers->world_size; rank++) {
        if (at->rank < 0 ? rank == peers->rank : rank != at->rank)
            continue;
        const bool gone = peers->host->peer_state(peers, rank) == SYMMEM_PEER_GONE;
        /* acquire; pairs with: poison */
        const bool poisoned =
            atomic_load_explicit((word *)peers->signals[rank], memory_order_acquire) != 0;
        if (is_there(at, rank)) /* looked at last: what it did before its end counts */
            continue;
        fault->missing[rank / 64] |= UINT64_C(1) << (rank % 64);
        if (fault->status == SYMMEM_OK)
            fault->failed_rank = rank;
        if ((gone || poisoned) && fault->status == SYMMEM_OK)
            fault->status = gone ? SYMMEM_PEER_LOST : SYMMEM_POISONED;
        missing++;
    }
    return missing;
}

/* Whether to go on: not if the time is up, a peer that has still to come is gone or has given up,
 * or this rank has. Describes the failure then. */
static void look_around(const attempt *at, bool expired, symmem_fault *fault) {
    const int32_t missing = look_at_peers(at, fault);
    if (fault->status == SYMMEM_OK && at->peers->host->is_poisoned(at->peers)) {
        fault->status = SYMMEM_POISONED;
        fault->failed_rank = at->peers->rank;
    } else if (fault->status == SYMMEM_OK && expired && missing > 0) {
        fault->status = SYMMEM_TIMEOUT;
        fault->failed_rank = missing == 1 ? fault->failed_rank : -1;
    }
    if (fault->status == SYMMEM_POISONED)
        memset(fault->missing, 0, sizeof(fault->missing)); /* no rank is late: all is off */
}

static symmem_status wait_for(const attempt *at, int32_t rank) {
    uint64_t look_ns = at->begin_ns + LOOK_NS;
    uint32_t found = 0;
    for (unsigned turns = 0; !take(at, rank, &found); turns++) {
        symmem_fault fault = {.operation = at->operation,
                              .channel = at->row % at->peers->channel_count,
                              .failed_rank = rank};
        const uint64_t now_ns = symmem_kit_now_ns();
        const bool expired = at->limit_ns > 0 && now_ns - at->begin_ns >= at->limit_ns;
        if (found > 1) {
            fault.status = SYMMEM_CORRUPT;
            fault.actual = found;
        } else if (expired || now_ns >= look_ns) {
            look_around(at, expired, &fault);
            look_ns = now_ns + LOOK_NS;
        }
        if (fault.status != SYMMEM_OK) {
            fault.elapsed_ns = now_ns - at->begin_ns;
            at->peers->host->signal_failed(at->peers, &fault, NULL);
            return fault.status;
        }
        symmem_kit_pause(turns);
    }
    return SYMMEM_OK;
}

static symmem_status put_signal(void *instance, const symmem_peers *peers, int32_t dst_rank,
                                int32_t channel, const symmem_exec *exec) {
    const attempt at = begin(peers, PUT, dst_rank, channel, exec);
    (void)instance;
    return wait_for(&at, dst_rank);
}

static symmem_status wait_signal(void *instance, const symmem_peers *peers, int32_t src_rank,
                                 int32_t channel, const symmem_exec *exec) {
    const attempt at = begin(peers, TAKE, src_rank, channel, exec);
    (void)instance;
    return wait_for(&at, src_rank);
}

static symmem_status barrier(void *instance, const symmem_peers *peers, int32_t channel,
                             const symmem_exec *exec) {
    attempt at = begin(peers, BARRIER, -1, peers->channel_count + channel, exec);
    symmem_status status = SYMMEM_OK;
    (void)instance;
    /* relaxed: only this rank uses the word, and the core serializes a channel's operations */
    word *number = table_word(peers, peers->rank, 2 * peers->channel_count, 0) + channel;
    at.number = atomic_fetch_add_explicit(number, 1, memory_order_relaxed) + 1;
    for (int32_t rank = 0; rank < peers->world_size; rank++)
        if (rank != peers->rank) /* release; pairs with: is_there */
            atomic_store_explicit(table_word(peers, rank, at.row, peers->rank), at.number,
                                  memory_order_release);
    for (int32_t rank = 0; rank < peers->world_size && status == SYMMEM_OK; rank++)
        if (rank != peers->rank)
            status = wait_for(&at, rank);
    return status;
}

const symmem_signal_ops symmem_kit_host_signal = {.size = sizeof(symmem_signal_ops),
                                                  .bytes = signal_bytes,
                                                  .peers_open = peers_open,
                                                  .peers_close = peers_close,
                                                  .barrier = barrier,
                                                  .put = put_signal,
                                                  .wait = wait_signal,
                                                  .reset = reset,
                                                  .poison = poison};
