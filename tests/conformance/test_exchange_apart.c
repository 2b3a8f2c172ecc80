/* SPDX-License-Identifier: BSD-3-Clause */
/* What goes on beside an exchange and must not disturb it: another group of the same ranks, another
 * thread on the same group. */
#include "sync_help.h"

#define MAX_RANKS 4
#define ROUNDS 30

/* One thread's gatherings on one group. */
struct gatherer {
    struct tk *t;
    symmem_group *group;
    int32_t number; /* the same on all ranks of what is to meet; -1: any thread may meet any */
    uint32_t delay_ms;
};

static void *gather(void *arg) {
    struct gatherer *own = arg;
    struct tk *t = own->t;
    int32_t mine[2] = {own->number, t->rank}, all[2 * MAX_RANKS];
    tk_sleep_ms(own->delay_ms);
    for (int round = 0; round < ROUNDS; round++) {
        memset(all, 0xEE, sizeof(all));
        if (!TK_OK(t, symmem_group_all_gather(own->group, mine, sizeof(mine), all, LONG_MS)))
            return NULL;
        for (int32_t rank = 0; rank < t->world_size; rank++) {
            TK_EQ_INT(t, own->number, all[2 * rank]);
            TK_EQ_INT(t, rank, all[2 * rank + 1]);
        }
        if (tk_failed(t))
            return NULL;
    }
    return NULL;
}

static void run_both(struct tk *t, struct gatherer *gatherers) {
    tk_in_threads(t, gather, gatherers, sizeof(gatherers[0]), 2);
}

/* Two groups of the same ranks come up at the same time, at rank 0 in the other order. */
TK_TEST(exchange, twin_groups_in_threads, "SM-EXCHANGE-07,SM-EXCHANGE-01",
        .ranks = {2, MAX_RANKS}) {
    int32_t ranks[MAX_RANKS] = {0, 1, 2, 3};
    TK_REQUIRE(t, t->world_size <= MAX_RANKS);
    symmem_group *groups[2] = {tk_group(t, "twin", ranks, t->world_size),
                               tk_group(t, "other twin", ranks, t->world_size)};
    struct gatherer gatherers[2];
    for (int i = 0; i < 2; i++)
        gatherers[i] = (struct gatherer){t, groups[i], i, (t->rank == 0) == (i == 0) ? 0 : 60};
    tk_out_of_band_barrier(t);
    run_both(t, gatherers);
}

/* Both threads of a rank call on one group; whichever meet, all ranks take part. */
TK_TEST(exchange, threads_take_turns, "SM-GROUP-11", .ranks = {2, MAX_RANKS}) {
    TK_REQUIRE(t, t->world_size <= MAX_RANKS);
    struct gatherer gatherers[2] = {{t, tk_world_group(t), -1, 0}, {t, tk_world_group(t), -1, 0}};
    tk_group_barrier(t, tk_world_group(t));
    run_both(t, gatherers);
}
