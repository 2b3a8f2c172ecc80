/* SPDX-License-Identifier: BSD-3-Clause */
/* Many objects, many threads and groups at once, and their ends in any order. */
#include "timeout_help.h"
#include "work_after.h"

enum { BLOCKS = 20, HANDLES = 1000 };

/* The context ends with all of them alive, with half of the handles still held. */
TK_TEST(life, thousand_registrations_end, "SM-CONTEXT-07,SM-LIFE-06", .max_ranks = 2) {
    symmem_context_options options = tk_options(t);
    symmem_handle **handles = calloc(HANDLES, sizeof(*handles));
    symmem_group *group = NULL;
    symmem_context *context = NULL;
    void *blocks[BLOCKS];
    TK_REQUIRE(t, handles != NULL);
    tk_end_context(t);
    TK_REQUIRE_OK(t, symmem_init(&options, &context));
    TK_REQUIRE_OK(t, symmem_group_create(context, "all", NULL, 0, NULL, &group));
    for (int i = 0; i < BLOCKS; i++)
        TK_REQUIRE_OK(t, symmem_alloc(context, 64 + (size_t)i, -1, NULL, &blocks[i]));
    for (int i = 0; i < HANDLES; i++)
        TK_REQUIRE_OK(t,
                      symmem_rendezvous(context, blocks[i % BLOCKS], group, LONG_MS, &handles[i]));
    for (int i = 0; i < HANDLES; i += 2)
        symmem_handle_release(handles[i]);
    tk_out_of_band_barrier(t);
    uint64_t begin_ms = tk_now_ms();
    TK_OK(t, symmem_finalize(context));
    TK_WITHIN(t, 5000, begin_ms);
    TK_FAILS(t, NOT_INITIALIZED, symmem_barrier(handles[1], 0, 50, NULL));
    symmem_context_free(context);
    for (int i = HANDLES - 1; i > 0; i -= 2)
        symmem_handle_release(handles[i]);
    free(handles);
}

enum { COUNT = 4 };

/* A permutation of [0, count) of this rank's own. */
static void shuffle(struct tk *t, int *order, int count) {
    for (int i = 0; i < count; i++) {
        int k = (int)tk_random_below(t, (uint64_t)i + 1);
        order[i] = order[k];
        order[k] = i;
    }
}

/* Blocks on two groups of the same ranks, given back in another order on each rank, whose addresses
 * differ as well. */
TK_TEST(life, teardown_in_any_order, "SM-LIFE-04,SM-GROUP-05", .max_ranks = 3) {
    void *noise[8] = {NULL};
    for (int round = 0; round < 2; round++) {
        symmem_handle *handles[2 * COUNT];
        void *blocks[COUNT];
        int order[3 * COUNT + 2];
        for (size_t i = 0; i < 8; i++)
            noise[i] = malloc(1 + (size_t)tk_random_below(t, 100000));
        symmem_group *groups[2] = {tk_group(t, "one", NULL, 0), reversed_group(t, "two")};
        for (int i = 0; i < COUNT; i++) {
            TK_REQUIRE_OK(t, symmem_alloc(t->context, 1000, -1, NULL, &blocks[i]));
            for (int g = 0; g < 2; g++)
                TK_REQUIRE_OK(t, symmem_rendezvous(t->context, blocks[i], groups[g], LONG_MS,
                                                   &handles[2 * i + g]));
        }
        shuffle(t, order, 3 * COUNT + 2);
        for (int i = 0; i < 3 * COUNT + 2; i++) {
            if (order[i] < 2 * COUNT)
                symmem_handle_release(handles[order[i]]);
            else if (order[i] < 3 * COUNT)
                TK_OK(t, symmem_free(t->context, blocks[order[i] - 2 * COUNT]));
            else
                tk_group_destroy(t, groups[order[i] - 3 * COUNT]);
        }
        for (int i = 0; i < 8; i++)
            free(noise[i]);
    }
    symmem_handle *handle = tk_handle(t, 256, tk_world_group(t));
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
}

struct crowd {
    struct tk *t;
    symmem_group *group;
    symmem_handle *handle;
    void *memory;
    int number;
    symmem_status status;
    uint64_t ended_ms;
};

static void *wait_in_barrier(void *arg) {
    struct crowd *own = arg;
    TK_OK(own->t, symmem_barrier(own->handle, 0, LONG_MS, NULL));
    return NULL;
}

/* On all ranks but the last, a thread waits in a barrier for the last one, which enters only when
 * its barriers on the other group are over: nothing may hold these up. */
TK_TEST(thread, rendezvous_beside_barriers, "SM-THREAD-01,SM-RDV-17", .ranks = {2, 4}) {
    struct crowd waiter = {.t = t, .handle = tk_handle(t, 64, tk_world_group(t))};
    symmem_group *group = NULL;
    pthread_t thread;
    bool last = t->rank == t->last;
    bool started = false;
    TK_REQUIRE_OK(t, symmem_group_create(t->context, "other", NULL, 0, NULL, &group));
    if (!last)
        started = TK_CHECK(t, pthread_create(&thread, NULL, wait_in_barrier, &waiter) == 0);
    for (int i = 0; i < 6; i++) {
        symmem_handle *handle = NULL;
        void *memory = tk_alloc(t, 512);
        TK_OK(t, symmem_rendezvous(t->context, memory, group, LONG_MS / 2, &handle));
        if (handle != NULL)
            TK_OK(t, symmem_barrier(handle, 0, LONG_MS / 2, NULL));
        symmem_handle_release(handle);
        tk_free(t, memory);
    }
    if (last)
        (void)wait_in_barrier(&waiter);
    TK_CHECK(t, last || (started && pthread_join(thread, NULL) == 0));
    TK_OK(t, symmem_group_destroy(group));
}

/* Groups that come up at once in several threads, descriptors of all of them under way. */
static void *bring_up_groups(void *arg) {
    struct crowd *own = arg;
    struct tk *t = own->t;
    for (int i = 0; i < 3; i++) {
        symmem_group *group = NULL;
        symmem_handle *handle = NULL;
        void *memory = NULL;
        uint32_t word = (uint32_t)(own->number * 1000 + i * 10 + t->rank), seen = 0;
        char name[24];
        snprintf(name, sizeof(name), "crowd-%d-%d", own->number, i);
        TK_OK(t, symmem_group_create(t->context, name, NULL, 0, NULL, &group));
        TK_OK(t, symmem_alloc(t->context, 256, -1, NULL, &memory));
        TK_OK(t, symmem_copy(t->context, memory, &word, 4, NULL));
        if (TK_OK(t, symmem_rendezvous(t->context, memory, group, LONG_MS, &handle))) {
            int32_t next = t->next;
            TK_OK(t, symmem_get(handle, next, 0, &seen, 4, NULL));
            TK_EQ_INT(t, own->number * 1000 + i * 10 + next, seen);
            TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
        }
        symmem_handle_release(handle);
        TK_OK(t, symmem_free(t->context, memory));
        TK_OK(t, symmem_group_destroy(group));
    }
    return NULL;
}

TK_TEST(thread, groups_in_threads, "SM-EXCHANGE-07,SM-RDV-17,SM-EXCHANGE-06", .ranks = {2, 4}) {
    enum { THREADS = 4 };
    struct crowd crowd[THREADS];
    for (int i = 0; i < THREADS; i++)
        crowd[i] = (struct crowd){.t = t, .number = i};
    tk_in_threads(t, bring_up_groups, crowd, sizeof(crowd[0]), THREADS);
}

enum { IN_BARRIER = 0, IN_WAIT, IN_RENDEZVOUS, IN_GATHERING, PLACES };

static void *wait_for_the_lost(void *arg) {
    struct crowd *own = arg;
    struct tk *t = own->t;
    symmem_handle *none = NULL;
    int32_t victim = t->last;
    uint32_t word = 0, all[8];
    if (own->number == IN_BARRIER)
        own->status = symmem_barrier(own->handle, 0, 60000, NULL);
    else if (own->number == IN_WAIT)
        own->status = symmem_wait_signal(own->handle, victim, 1, 0, NULL);
    else if (own->number == IN_GATHERING)
        own->status = symmem_group_all_gather(own->group, &word, 4, all, 60000);
    else
        own->status = symmem_rendezvous(t->context, own->memory, own->group, 0, &none);
    own->ended_ms = tk_now_ms();
    return NULL;
}

/* Each of a survivor's threads sits in another call that needs the rank that ends. */
TK_TEST(peer_loss, every_blocked_thread_is_released, "SM-TIMEOUT-08,SM-THREAD-01,SM-TIMEOUT-14",
        .ranks = {2, 4}, .flags = TK_PROCESS_ONLY | TK_MAY_DIE | TK_MAY_LEAK, .timeout_s = 30) {
    static const char *const names[PLACES] = {"barrier", "wait", "rendezvous", "gathering"};
    struct crowd crowd[PLACES];
    pthread_t threads[PLACES];
    bool started[PLACES];
    int32_t victim = t->last;
    tk_expect_death(t, victim);
    for (int i = 0; i < PLACES; i++) {
        crowd[i] = (struct crowd){.t = t, .number = i};
        TK_REQUIRE_OK(t, symmem_group_create(t->context, names[i], NULL, 0, NULL, &crowd[i].group));
        crowd[i].handle = tk_handle(t, 64, crowd[i].group);
        crowd[i].memory = tk_alloc(t, 64);
    }
    tk_out_of_band_barrier(t);
    if (t->rank == victim) {
        for (int32_t r = 0; r < victim; r++)
            (void)await_shared(t, r, 5, 1);
        tk_sleep_ms(60);
        tk_kill_self(t);
    }
    uint64_t begin_ms = tk_now_ms();
    for (int i = 0; i < PLACES; i++)
        started[i] =
            TK_CHECK(t, pthread_create(&threads[i], NULL, wait_for_the_lost, &crowd[i]) == 0);
    tk_share_u64(t, 5, 1);
    for (int i = 0; i < PLACES; i++) {
        TK_CHECK(t, started[i] && pthread_join(threads[i], NULL) == 0);
        TK_CHECK_MSG(t, crowd[i].status == SYMMEM_PEER_LOST, "%s: %s", names[i],
                     symmem_status_name(crowd[i].status));
        tk_expect_prompt(t, victim, begin_ms, crowd[i].ended_ms);
    }
    work_after_loss(t, NULL, victim, 1, NULL);
}
