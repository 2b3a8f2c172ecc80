/* SPDX-License-Identifier: BSD-3-Clause */
/* Signals and barriers that do not arrive, or arrive where they should not. */
#include "decorator.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

static bool do_nothing(struct signal_call *call) {
    (void)call;
    return false;
}

static symmem_status reset_nothing(void *instance, const symmem_peers *peers) {
    (void)instance, (void)peers;
    return SYMMEM_OK;
}

static bool all_but_each_ninth(struct signal_call *call) {
    static atomic_uint count;
    (void)call;
    return (atomic_fetch_add(&count, 1) + 1) % 9 != 0;
}

ON_SIGNAL(on_channel_0, call->channel = 0)
ON_SIGNAL(to_global_rank,
          call->rank = call->peers->global_ranks[call->rank] % call->peers->world_size)

/* --- a signal's place depends on what has nothing to do with it ------------------- */

static bool move(struct signal_call *call, size_t by) {
    call->channel = (int32_t)(((size_t)call->channel + by) % (size_t)call->peers->channel_count);
    return true;
}

static bool move_with_stream(struct signal_call *call) {
    return move(call, call->exec.stream ? 1 : 0);
}

static bool move_with_timeout(struct signal_call *call) {
    return move(call, call->exec.timeout_ms);
}

static _Thread_local size_t last_bytes;

static symmem_status copy_measured(void *instance, int32_t device, void *dst, const void *src,
                                   size_t bytes, const symmem_exec *exec) {
    last_bytes = bytes;
    return real->copy(instance, device, dst, src, bytes, exec);
}

static bool move_with_size(struct signal_call *call) {
    return move(call, last_bytes / 16);
}

/* --- groups ----------------------------------------------------------------------- */

/* All groups on one block use the signal state of the first: the group is left out of the slot. */
#define LINKS 64

/* The first peers of each block, by the address of this rank's buffer. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const symmem_peers *links[LINKS];

static const symmem_peers *first_of(const symmem_peers *peers) {
    const symmem_peers *first = peers;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < LINKS && first == peers; i++)
        if (links[i] && links[i]->buffers[links[i]->rank] == peers->buffers[peers->rank])
            first = links[i];
    pthread_mutex_unlock(&lock);
    return first;
}

static void replace_link(const symmem_peers *old, const symmem_peers *by) {
    pthread_mutex_lock(&lock);
    for (int i = 0; i < LINKS; i++)
        if (links[i] == old) {
            links[i] = by;
            break;
        }
    pthread_mutex_unlock(&lock);
}

static symmem_status open_link(void *instance, symmem_peers *peers, void **buffers_dev_p,
                               void **pads_dev_p) {
    replace_link(NULL, peers);
    return real->peers_open(instance, peers, buffers_dev_p, pads_dev_p);
}

static void close_link(void *instance, symmem_peers *peers) {
    replace_link(peers, NULL);
    real->peers_close(instance, peers);
}

static bool in_first_group(struct signal_call *call) {
    const symmem_peers *first = first_of(call->peers);
    const int32_t wanted = call->peers->global_ranks[call->rank];
    call->peers = first;
    for (call->rank = first->world_size - 1; call->rank > 0; call->rank--)
        if (first->global_ranks[call->rank] == wanted)
            break;
    return true;
}

/* --- limits that are wrong, or do harm when they are over -------------------------- */

ON_SIGNAL(for_ever, call->exec.timeout_ms = 0)

static void abort_on_timeout(symmem_status status, const symmem_peers *peers) {
    (void)peers;
    if (status == SYMMEM_TIMEOUT)
        abort();
}

ON_SIGNAL(in_microseconds,
          call->exec.timeout_ms = call->exec.timeout_ms / 1000 + (call->exec.timeout_ms > 0))

/* The clock ticks at a rate other than the constant says. */
ON_SIGNAL(in_slow_ticks, call->exec.timeout_ms *= 3)
ON_SIGNAL(in_fast_ticks, call->exec.timeout_ms -= call->exec.timeout_ms / 4)
ON_SIGNAL(zero_is_short, if (call->exec.timeout_ms == 0) call->exec.timeout_ms = 100)
ON_SIGNAL(at_most_50, if (call->exec.timeout_ms > 50) call->exec.timeout_ms = 50)

const struct mutant signal_mutants[] = {
    {"barrier_does_nothing", .on = ON_BARRIER, .before = do_nothing},
    {"put_does_nothing", .on = ON_PUT, .before = do_nothing},
    {"wait_does_nothing", .on = ON_WAIT, .before = do_nothing},
    {"reset_does_nothing", .entries.signal_reset = reset_nothing},
    {"every_ninth_barrier_is_empty", .on = ON_BARRIER, .before = all_but_each_ninth},
    {"every_ninth_put_is_lost", .on = ON_PUT, .before = all_but_each_ninth},
    {"all_on_channel_0", .on = ON_ALL, .before = on_channel_0},
    {"signal_to_global_rank", .on = ON_PUT, .before = to_global_rank},
    {"signals_move_with_stream", .on = ON_SIGNALS, .before = move_with_stream},
    {"signals_move_with_timeout", .on = ON_SIGNALS, .before = move_with_timeout},
    {"signals_move_with_size", .entries.copy = copy_measured, .on = ON_SIGNALS,
     .before = move_with_size},
    {"groups_share_signals", .entries = {.peers_open = open_link, .peers_close = close_link},
     .on = ON_SIGNALS, .before = in_first_group},
    {"barrier_ignores_timeout", .on = ON_BARRIER, .before = for_ever},
    {"put_ignores_timeout", .on = ON_PUT, .before = for_ever},
    {"wait_ignores_timeout", .on = ON_WAIT, .before = for_ever},
    {"barrier_aborts_on_timeout", .on = ON_BARRIER, .after = abort_on_timeout},
    {"put_aborts_on_timeout", .on = ON_PUT, .after = abort_on_timeout},
    {"wait_aborts_on_timeout", .on = ON_WAIT, .after = abort_on_timeout},
    {"timeout_in_microseconds", .on = ON_ALL, .before = in_microseconds},
    {"timeout_in_slow_ticks", .on = ON_ALL, .before = in_slow_ticks},
    {"timeout_in_fast_ticks", .on = ON_ALL, .before = in_fast_ticks},
    {"timeout_zero_is_short", .on = ON_ALL, .before = zero_is_short},
    {"timeout_is_compiled_in", .on = ON_ALL, .before = at_most_50},
    {.name = NULL},
};
