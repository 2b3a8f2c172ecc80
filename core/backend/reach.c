/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The entries of the group signal, made of words in the ranks' heaps and of the group reach.
 *
 * A rank looks at its own words alone, and writes those of its peers, each of which has one writer
 * among the peers. Of w ranks and c channels, in this order:
 *   parts[c][w]    64 bits each, see reach_collective.c; the owner's, for that rank to read
 *   gave_up[w]     1: that rank's state is poisoned
 *   slot[c][w]     1: that rank's signal is here. Made 1 by it, 0 by the owner's wait
 *   sent[c][w]     1: this rank's signal to that rank is not consumed. Made 1 by the owner's put, 0
 *                  by that rank's wait
 *   arrival[c][w]  the number of the last barrier at which that rank has arrived
 *   round[c]       of the owner's last barrier; read by the owner alone
 *   came[c][w]     how many counted signals that rank has given, as it says
 *   given[c][w]    how many the owner has given that rank; read by the owner alone
 *   taken[c][w]    how many of those that came the owner's waits have taken; the same
 * So a put need not ask the peer, and no word is written by two ranks at a time.
 */
#include "backend/reach.h"
#include "backend/host.h"

#include <sched.h>

#define NS_PER_MS 1000000ull
#define LOOK_NS (1 * NS_PER_MS)  /* between two looks at what may end a wait */
#define GONE_NS (20 * NS_PER_MS) /* between two questions whether a peer lives */
#define YIELDS 200               /* before a wait begins to sleep */
#define SLEEP_NS 50000u

typedef _Atomic uint32_t word;
typedef struct attempt attempt;

/* One operation under way. */
struct attempt {
    void *instance;
    const symmem_context *context;
    const symmem_peers *peers;
    const char *operation;
    int32_t channel;
    int32_t rank; /* the peer; -1: all */
    uint32_t round;
    uint64_t begin_ns, end_ns, look_ns, gone_ns;
    bool (*is_there)(const attempt *wait, int32_t rank);
    const symmem_value_wait *value;   /* of a wait for a value; NULL: of another operation */
    const symmem_window_wait *counts; /* of a wait for counted signals, count_count of them */
    int32_t count_count;
};

/* --- places --------------------------------------------------------------------------------- */

typedef enum table { GAVE_UP, SLOT, SENT, ARRIVAL, ROUND, CAME, GIVEN, TAKEN } table;

static size_t index_of(const symmem_peers *peers, table which, int32_t channel, int32_t rank) {
    const size_t ranks = (size_t)peers->world_size, channels = (size_t)peers->channel_count;
    const size_t first = 2 * channels * ranks; /* behind the parts */
    if (which == GAVE_UP)
        return first + (size_t)rank;
    if (which == ROUND)
        return first + ranks + 3 * channels * ranks + (size_t)channel;
    if (which > ROUND)
        return first + ranks + 3 * channels * ranks + channels +
               (((size_t)which - CAME) * channels + (size_t)channel) * ranks + (size_t)rank;
    return first + ranks + (((size_t)which - SLOT) * channels + (size_t)channel) * ranks +
           (size_t)rank;
}

uint64_t *sm_reach_parts(const symmem_peers *peers, int32_t channel) {
    return (uint64_t *)peers->signals[peers->rank] + (size_t)channel * (size_t)peers->world_size;
}

static size_t signal_bytes(void *instance, int32_t world_size, int32_t channel_count,
                           size_t block_bytes) {
    const size_t ranks = (size_t)world_size, channels = (size_t)channel_count;
    (void)instance;
    (void)block_bytes;
    return (ranks + 8 * channels * ranks + channels) * sizeof(uint32_t);
}

static word *own_word(const symmem_peers *peers, table which, int32_t channel, int32_t rank) {
    return (word *)peers->signals[peers->rank] + index_of(peers, which, channel, rank);
}

/* The word of `which` that is this rank's at the peer. */
static symmem_status write_word(void *instance, const symmem_peers *peers, int32_t peer,
                                table which, int32_t channel, uint32_t value) {
    const symmem_context *context = peers->host->self;
    const symmem_exec exec = {0};
    const symmem_place to = {.peers = peers,
                             .peer = peer,
                             .rank = peers->global_ranks[peer],
                             .offset =
                                 peers->signal_offsets[peer] +
                                 index_of(peers, which, channel, peers->rank) * sizeof(uint32_t)};
    return context->backend->reach_write_value32(instance, &to, value, &exec);
}

/* --- waits ---------------------------------------------------------------------------------- */

static attempt begin_attempt(void *instance, const symmem_peers *peers, int32_t rank,
                             int32_t channel, const symmem_exec *exec, const char *operation) {
    const uint64_t now_ns = sm_now_ns();
    return (attempt){.instance = instance,
                     .context = peers->host->self,
                     .peers = peers,
                     .operation = exec->operation ? exec->operation : operation,
                     .channel = channel,
                     .rank = rank,
                     .begin_ns = now_ns,
                     .end_ns = exec->timeout_ms == 0 ? 0 : now_ns + exec->timeout_ms * NS_PER_MS,
                     .look_ns = now_ns + LOOK_NS,
                     .gone_ns = now_ns + GONE_NS};
}

/* acquire; pairs with: the release store or value write of the source */
static uint64_t load_value(const symmem_value_wait *value) {
    return value->bytes == 8
               ? atomic_load_explicit((const _Atomic uint64_t *)value->word, memory_order_acquire)
               : atomic_load_explicit((const word *)value->word, memory_order_acquire);
}

/* What was wanted, and what is there. */
static void describe_value(const symmem_value_wait *value, symmem_fault *fault) {
    fault->actual = load_value(value);
    fault->own = (symmem_call_id){.kind = SYMMEM_CALL_WAIT_VALUE,
                                  .dtype = value->bytes == 8 ? SYMMEM_UINT64 : SYMMEM_UINT32,
                                  .op = (uint16_t)value->compare,
                                  .count = value->value};
}

static symmem_status fail(const attempt *wait, symmem_fault *fault) {
    if (wait->value != NULL)
        describe_value(wait->value, fault);
    fault->operation = wait->operation;
    fault->channel = wait->channel;
    fault->elapsed_ns = sm_now_ns() - wait->begin_ns;
    wait->peers->host->signal_failed(wait->peers, fault, NULL);
    return fault->status;
}

static symmem_status fail_simply(const attempt *wait, symmem_status status, int32_t rank,
                                 uint64_t actual) {
    symmem_fault fault = {.status = status, .failed_rank = rank, .actual = actual};
    return fail(wait, &fault);
}

/* How many counted signals of the rank are waited for. */
static uint32_t awaited_count(const attempt *wait, int32_t rank) {
    for (int32_t i = 0; i < wait->count_count; i++)
        if (wait->counts[i].rank == rank)
            return wait->counts[i].count;
    return 0;
}

static bool concerns(const attempt *wait, int32_t rank) {
    if (wait->counts != NULL)
        return awaited_count(wait, rank) > 0;
    return wait->rank < 0 ? rank != wait->peers->rank : rank == wait->rank;
}

static bool all_are_there(const attempt *wait) {
    for (int32_t r = 0; r < wait->peers->world_size; r++)
        if (concerns(wait, r) && !wait->is_there(wait, r))
            return false;
    return true;
}

static void progress(const attempt *wait) {
    if (wait->context->backend->reach_progress)
        wait->context->backend->reach_progress(wait->instance);
}

/* Whether the rank has not done its part. PEER_LOST: and never will. What it did before it ended
 * may have come while this rank looked whether it has ended. */
static bool is_missing(const attempt *wait, int32_t rank, symmem_status status) {
    const symmem_peers *peers = wait->peers;
    if (wait->is_there(wait, rank))
        return false;
    if (status != SYMMEM_PEER_LOST)
        return true;
    if (peers->host->peer_state(peers, rank) != SYMMEM_PEER_GONE)
        return false;
    progress(wait);
    return !wait->is_there(wait, rank);
}

/* Names the missing ranks: those that have ended, or else all. */
static symmem_status fail_missing(const attempt *wait, symmem_status status) {
    const symmem_peers *peers = wait->peers;
    symmem_fault fault = {.status = status, .failed_rank = -1};
    int32_t count = 0;
    for (int32_t r = 0; r < peers->world_size; r++) {
        if (!concerns(wait, r) || !is_missing(wait, r, status))
            continue;
        fault.missing[r / 64] |= 1ull << (r % 64);
        fault.failed_rank = count++ == 0 ? r : -1;
    }
    return count == 0 ? SYMMEM_OK : fail(wait, &fault);
}

/* A peer's poison counts after what it did before that. */
static symmem_status find_poison(const attempt *wait) {
    const symmem_peers *peers = wait->peers;
    for (int32_t r = 0; r < peers->world_size; r++)
        /* acquire; pairs with: the peer's poison */
        if (concerns(wait, r) &&
            atomic_load_explicit(own_word(peers, GAVE_UP, 0, r), memory_order_acquire) != 0 &&
            !wait->is_there(wait, r))
            return fail_simply(wait, SYMMEM_POISONED, r, 0);
    if (peers->host->is_poisoned(peers))
        return fail_simply(wait, SYMMEM_POISONED, peers->rank, 0);
    return SYMMEM_OK;
}

static symmem_status look(attempt *wait) {
    const uint64_t now_ns = sm_now_ns();
    const bool late = wait->end_ns != 0 && now_ns >= wait->end_ns;
    symmem_status status = SYMMEM_OK;
    if (now_ns < wait->look_ns && !late)
        return SYMMEM_OK;
    wait->look_ns = now_ns + LOOK_NS;
    if (now_ns >= wait->gone_ns || late) {
        wait->gone_ns = now_ns + GONE_NS;
        status = fail_missing(wait, SYMMEM_PEER_LOST);
    }
    if (status == SYMMEM_OK)
        status = find_poison(wait);
    return status == SYMMEM_OK && late ? fail_missing(wait, SYMMEM_TIMEOUT) : status;
}

static void pause_wait(const attempt *wait, uint32_t turns) {
    progress(wait);
    if (turns < YIELDS)
        (void)sched_yield();
    else
        sm_sleep_ns(SLEEP_NS);
}

static symmem_status run(attempt *wait) {
    for (uint32_t turns = 0; !all_are_there(wait); turns++) {
        symmem_status status = look(wait);
        if (status != SYMMEM_OK)
            return status;
        pause_wait(wait, turns);
    }
    return SYMMEM_OK;
}

/* What this rank has put anywhere is there before it says so. */
static symmem_status settle(const attempt *wait) {
    if (sm_expired(wait->end_ns))
        return SYMMEM_OK; /* the wait that comes next says it */
    const symmem_exec exec = {.timeout_ms = sm_limit_ms(wait->end_ns)};
    symmem_status status = wait->context->backend->reach_quiet(wait->instance, wait->peers, &exec);
    return status == SYMMEM_OK ? status : fail_simply(wait, status, -1, 0);
}

static symmem_status refuse_poisoned(const attempt *wait) {
    if (!wait->peers->host->is_poisoned(wait->peers))
        return SYMMEM_OK;
    return fail_simply(wait, SYMMEM_POISONED, wait->peers->rank, 0);
}

/* --- the entries ---------------------------------------------------------------------------- */

static symmem_status peers_open(void *instance, symmem_peers *peers, void **buffers_dev_p,
                                void **pads_dev_p) {
    (void)instance;
    *buffers_dev_p = (void *)(uintptr_t)peers->buffers;
    *pads_dev_p = (void *)(uintptr_t)peers->pads;
    return SYMMEM_OK;
}

static void peers_close(void *instance, symmem_peers *peers) {
    (void)instance;
    (void)peers;
}

static bool has_arrived(const attempt *wait, int32_t rank) {
    /* acquire; pairs with: the peer's arrival, behind all that it wrote */
    const uint32_t seen = atomic_load_explicit(own_word(wait->peers, ARRIVAL, wait->channel, rank),
                                               memory_order_acquire);
    return (int32_t)(seen - wait->round) >= 0;
}

static symmem_status barrier(void *instance, const symmem_peers *peers, int32_t channel,
                             const symmem_exec *exec) {
    attempt wait = begin_attempt(instance, peers, -1, channel, exec, "barrier");
    word *round = own_word(peers, ROUND, channel, 0);
    symmem_status status = refuse_poisoned(&wait);
    if (status == SYMMEM_OK)
        status = settle(&wait);
    if (status != SYMMEM_OK)
        return status;
    /* relaxed: this rank's alone, and the channel's operations come one after the other */
    wait.round = atomic_load_explicit(round, memory_order_relaxed) + 1;
    wait.is_there = has_arrived;
    atomic_store_explicit(round, wait.round, memory_order_relaxed);
    for (int32_t r = 0; r < peers->world_size && status == SYMMEM_OK; r++)
        if (r != peers->rank)
            status = write_word(instance, peers, r, ARRIVAL, channel, wait.round);
    return status == SYMMEM_OK ? run(&wait) : fail_simply(&wait, status, -1, 0);
}

/* A value that no protocol makes counts as there: the caller then finds it. */
static bool is_consumed(const attempt *wait, int32_t rank) {
    /* acquire; pairs with: the peer's wait. What it read it has read before this rank writes again.
     */
    return atomic_load_explicit(own_word(wait->peers, SENT, wait->channel, rank),
                                memory_order_acquire) != 1;
}

static bool own_is_consumed(const attempt *wait, int32_t rank) {
    return atomic_load_explicit(own_word(wait->peers, SLOT, wait->channel, rank),
                                memory_order_acquire) != 1;
}

static symmem_status put(void *instance, const symmem_peers *peers, int32_t dst_rank,
                         int32_t channel, const symmem_exec *exec) {
    attempt wait = begin_attempt(instance, peers, dst_rank, channel, exec, "put_signal");
    const bool self = dst_rank == peers->rank;
    word *sent = own_word(peers, self ? SLOT : SENT, channel, dst_rank);
    wait.is_there = self ? own_is_consumed : is_consumed;
    symmem_status status = refuse_poisoned(&wait);
    if (status == SYMMEM_OK)
        status = run(&wait);
    if (status != SYMMEM_OK)
        return status;
    const uint32_t found = atomic_load_explicit(sent, memory_order_relaxed);
    if (found != 0)
        return fail_simply(&wait, SYMMEM_CORRUPT, dst_rank, found);
    status = settle(&wait);
    if (status != SYMMEM_OK)
        return status;
    /* release; pairs with: own waits on a signal to itself */
    atomic_store_explicit(sent, 1, memory_order_release);
    if (self)
        return SYMMEM_OK;
    status = write_word(instance, peers, dst_rank, SLOT, channel, 1);
    if (status == SYMMEM_OK)
        return status;
    atomic_store_explicit(sent, 0, memory_order_relaxed);
    return fail_simply(&wait, status, dst_rank, 0);
}

static bool is_here(const attempt *wait, int32_t rank) {
    /* acquire; pairs with: the peer's put, behind all that it wrote */
    return atomic_load_explicit(own_word(wait->peers, SLOT, wait->channel, rank),
                                memory_order_acquire) != 0;
}

static symmem_status wait_signal(void *instance, const symmem_peers *peers, int32_t src_rank,
                                 int32_t channel, const symmem_exec *exec) {
    attempt wait = begin_attempt(instance, peers, src_rank, channel, exec, "wait_signal");
    word *slot = own_word(peers, SLOT, channel, src_rank);
    wait.is_there = is_here;
    symmem_status status = refuse_poisoned(&wait);
    if (status == SYMMEM_OK)
        status = run(&wait);
    if (status != SYMMEM_OK)
        return status;
    const uint32_t found = atomic_load_explicit(slot, memory_order_relaxed);
    if (found != 1)
        return fail_simply(&wait, SYMMEM_CORRUPT, src_rank, found);
    atomic_store_explicit(slot, 0, memory_order_release);
    if (src_rank == peers->rank)
        return SYMMEM_OK;
    status = write_word(instance, peers, src_rank, SENT, channel, 0);
    if (status == SYMMEM_OK)
        return status;
    atomic_store_explicit(slot, 1, memory_order_relaxed);
    return fail_simply(&wait, status, src_rank, 0);
}

/* --- counted signals --- */

static symmem_status count(void *instance, const symmem_peers *peers, int32_t dst_rank,
                           int32_t channel, uint32_t added, const symmem_exec *exec) {
    const attempt wait = begin_attempt(instance, peers, dst_rank, channel, exec, "signal_count");
    word *given = own_word(peers, GIVEN, channel, dst_rank);
    symmem_status status = refuse_poisoned(&wait);
    if (status == SYMMEM_OK)
        status = settle(&wait);
    if (status != SYMMEM_OK)
        return status;
    /* relaxed: this rank's alone, and the channel's operations come one after the other */
    const uint32_t before = atomic_load_explicit(given, memory_order_relaxed);
    atomic_store_explicit(given, before + added, memory_order_relaxed);
    if (dst_rank == peers->rank) { /* release; pairs with: untaken */
        atomic_store_explicit(own_word(peers, CAME, channel, dst_rank), before + added,
                              memory_order_release);
        return SYMMEM_OK;
    }
    status = write_word(instance, peers, dst_rank, CAME, channel, before + added);
    if (status == SYMMEM_OK)
        return status;
    atomic_store_explicit(given, before, memory_order_relaxed);
    return fail_simply(&wait, status, dst_rank, 0);
}

/* acquire; pairs with: the peer's count, behind all that it wrote */
static uint32_t untaken(const symmem_peers *peers, int32_t channel, int32_t rank) {
    const uint32_t came =
        atomic_load_explicit(own_word(peers, CAME, channel, rank), memory_order_acquire);
    return came - atomic_load_explicit(own_word(peers, TAKEN, channel, rank), memory_order_relaxed);
}

/* A number that cannot be counts as there: the caller then finds it. */
static bool have_come(const attempt *wait, int32_t rank) {
    return untaken(wait->peers, wait->channel, rank) >= awaited_count(wait, rank);
}

static symmem_status wait_counts(void *instance, const symmem_peers *peers, int32_t channel,
                                 const symmem_window_wait *counts, int32_t count_count,
                                 const symmem_exec *exec) {
    attempt wait = begin_attempt(instance, peers, -1, channel, exec, "wait_counts");
    wait.counts = counts;
    wait.count_count = count_count;
    wait.is_there = have_come;
    symmem_status status = refuse_poisoned(&wait);
    if (status == SYMMEM_OK)
        status = run(&wait);
    for (int32_t i = 0; i < count_count && status == SYMMEM_OK; i++) {
        const uint32_t found = untaken(peers, channel, counts[i].rank);
        if (found > INT32_MAX)
            status = fail_simply(&wait, SYMMEM_CORRUPT, counts[i].rank, found);
    }
    for (int32_t i = 0; i < count_count && status == SYMMEM_OK; i++)
        atomic_fetch_add_explicit(own_word(peers, TAKEN, channel, counts[i].rank), counts[i].count,
                                  memory_order_relaxed);
    return status;
}

static bool value_holds(const attempt *wait, int32_t rank) {
    (void)rank;
    return symmem_value_holds(wait->value, load_value(wait->value));
}

static symmem_status wait_value(void *instance, const symmem_peers *peers,
                                const symmem_value_wait *value, const symmem_exec *exec) {
    attempt wait = begin_attempt(instance, peers, value->source, -1, exec, "wait_value");
    wait.value = value;
    wait.is_there = value_holds;
    symmem_status status = refuse_poisoned(&wait);
    return status == SYMMEM_OK ? run(&wait) : status;
}

/* Where the table has none: the CPU reaches all memory here. */
static symmem_status write_value64(void *instance, int32_t device, void *dst, uint64_t value,
                                   const symmem_exec *exec) {
    (void)instance, (void)device, (void)exec;
    /* release; pairs with: load_value, or a load of the user's */
    atomic_store_explicit((_Atomic uint64_t *)dst, value, memory_order_release);
    return SYMMEM_OK;
}

static symmem_status reset(void *instance, const symmem_peers *peers) {
    word *words = peers->signals[peers->rank];
    (void)instance;
    for (size_t i = 0; i < peers->signal_bytes / sizeof *words; i++)
        /* relaxed: between two host barriers, before which each rank was quiet */
        atomic_store_explicit(&words[i], 0, memory_order_relaxed);
    return SYMMEM_OK;
}

static void poison(void *instance, const symmem_peers *peers) {
    for (int32_t r = 0; r < peers->world_size; r++)
        if (r != peers->rank && peers->host->peer_state(peers, r) != SYMMEM_PEER_GONE)
            (void)write_word(instance, peers, r, GAVE_UP, 0, 1);
}

void sm_reach_signals(sm_backend *backend) {
    backend->signal_bytes = signal_bytes;
    backend->peers_open = peers_open;
    backend->peers_close = peers_close;
    backend->barrier = barrier;
    backend->put_signal = put;
    backend->wait_signal = wait_signal;
    backend->signal_reset = reset;
    backend->signal_poison = poison;
    backend->wait_value = wait_value;
    backend->signal_count = count;
    backend->wait_counts = wait_counts;
    if (backend->write_value64 == NULL)
        backend->write_value64 = write_value64;
}

symmem_status sm_reach_quiet(symmem_context *context, const symmem_peers *peers,
                             const char *operation, uint64_t deadline_ns) {
    if (!context->backend->reach_quiet)
        return SYMMEM_OK;
    if (sm_expired(deadline_ns))
        return SYMMEM_OK; /* the next exchange says it */
    const symmem_exec exec = {.timeout_ms = sm_limit_ms(deadline_ns)};
    symmem_status status = context->backend->reach_quiet(context->instance, peers, &exec);
    return status == SYMMEM_OK ? status
                               : sm_backend_failed(context, status, operation, "reach_quiet");
}
