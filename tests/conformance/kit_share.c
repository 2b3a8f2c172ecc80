/* SPDX-License-Identifier: BSD-3-Clause */
/* What ranks do with each other outside symmem; time and random numbers. */
#include "kit_internal.h"

#include <time.h>

#define BARRIER_TIMEOUT_MS 30000

void(tk_out_of_band_barrier)(struct tk *t) {
    int ended = -1;
    enum arena_wait result =
        arena_barrier(t->own->setup->arena, t->rank, tk_scaled_ms(BARRIER_TIMEOUT_MS), &ended);
    if (result == ARENA_MET)
        return;
    if (result == ARENA_RANK_ENDED && !tk_failed(t))
        t->own->slot->secondary = 1;
    if (result == ARENA_RANK_ENDED)
        kit_fail_at(t, t->own->file, t->own->line,
                    "gave up at the out-of-band barrier because rank %d has ended", ended);
    else
        kit_fail_late_at(t, t->own->file, t->own->line,
                         "gave up at the out-of-band barrier: not all ranks came in time");
    tk_leave(t);
}

bool tk_try_out_of_band_barrier(struct tk *t, uint32_t timeout_ms) {
    int ended = -1;
    return arena_barrier(t->own->setup->arena, t->rank, timeout_ms, &ended) == ARENA_MET;
}

void tk_share_u64(struct tk *t, int slot, uint64_t value) {
    TK_REQUIRE(t, slot >= 0 && slot < TK_SHARED_SLOTS);
    /* pairs with: tk_read_u64 */
    atomic_store_explicit(&t->own->slot->slots[slot], value, memory_order_release);
}

uint64_t tk_read_u64(struct tk *t, int32_t rank, int slot) {
    if (rank < 0 || rank >= t->world_size || slot < 0 || slot >= TK_SHARED_SLOTS) {
        kit_fail_at(t, __FILE__, __LINE__, "no slot %d of rank %d", slot, rank);
        tk_leave(t);
    }
    /* pairs with: tk_share_u64 */
    return atomic_load_explicit(&t->own->setup->arena->ranks[rank].slots[slot],
                                memory_order_acquire);
}

bool tk_all_agree(struct tk *t, int slot, bool own) {
    bool all = true;
    tk_share_u64(t, slot, own);
    tk_out_of_band_barrier(t);
    for (int32_t r = 0; r < t->world_size; r++)
        all = all && tk_read_u64(t, r, slot) != 0;
    tk_out_of_band_barrier(t); /* all have read it */
    return all;
}

uint64_t tk_random(struct tk *t) {
    uint64_t value = t->own->random_state += 0x9e3779b97f4a7c15u;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
    return value ^ (value >> 31);
}

uint64_t tk_random_below(struct tk *t, uint64_t bound) {
    return bound == 0 ? 0 : tk_random(t) % bound;
}

uint64_t tk_now_ms(void) {
    return arena_now_ns() / 1000000u;
}

void tk_sleep_ms(uint32_t ms) {
    struct timespec left = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000};
    const uint64_t until_ns = arena_now_ns() + (uint64_t)ms * 1000000u;
    while (arena_serve_once() && arena_now_ns() < until_ns)
        (void)nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
    while (arena_now_ns() < until_ns && nanosleep(&left, &left) != 0 && errno == EINTR)
        continue;
}

uint32_t tk_scaled_ms(uint32_t ms) {
    double scaled = ms * runner_timeout_scale();
    return scaled >= UINT32_MAX ? UINT32_MAX - 1 : (uint32_t)scaled;
}

uint32_t tk_late_ms(struct tk *t, uint64_t since_ms) {
    const struct kit_setup *setup = t->own->setup;
    return lateness_allowance_ms(setup->lateness, &setup->arena->delays, since_ms * 1000000u);
}

void tk_note_delay(struct tk *t) {
    delay_note_own(t->own->setup->arena);
}

uint32_t tk_limit_ms(struct tk *t, uint32_t ms) {
    return tk_scaled_ms(ms) + t->own->setup->late_ms;
}

void tk_in_threads(struct tk *t, void *(*fn)(void *arg), void *args, size_t bytes, int count) {
    pthread_t threads[32];
    bool started[32];
    TK_REQUIRE(t, count <= 32);
    for (int i = 0; i < count; i++)
        started[i] = TK_CHECK(
            t, pthread_create(&threads[i], NULL, fn, (char *)args + (size_t)i * bytes) == 0);
    for (int i = 0; i < count; i++)
        TK_CHECK(t, !started[i] || pthread_join(threads[i], NULL) == 0);
}
