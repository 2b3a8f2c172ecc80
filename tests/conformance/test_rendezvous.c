/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rendezvous: what it gives, how local it is, and how long its results live.
 *
 * Two tests of PyTorch's have no counterpart, for a reason in the design: our pads belong to the
 * (block, group) pair, so no rank can have or lack a pad that others expect.
 * test_signal_pad_mapping_disagreement_raises_everywhere and
 * test_signal_pad_creation_disagreement_raises_everywhere are therefore not applicable.
 */
#include "case_help.h"
#include "counting_store.h"

/* --- pointers --------------------------------------------------------------------------------- */

ON_EACH_SHAPE(rendezvous, first_and_last_byte, "SM-RDV-01,SM-RDV-03", .max_ranks = 8,
              .flags = TK_PLAIN_MEMORY) {
    enum { PIECE = 3 };
    size_t bytes = 4096 + 13 + 2 * PIECE * (size_t)shape->count;
    symmem_handle *handle = tk_handle(t, bytes, group);
    TK_EQ_SIZE(t, bytes, info_of(t, handle).buffer_size);
    for (int32_t peer = 0; peer < shape->count; peer++) {
        uint8_t piece[PIECE] = {(uint8_t)(t->rank + 1), (uint8_t)(peer + 1), 7};
        size_t at = (size_t)shape->rank * PIECE;
        tk_write(t, handle, peer, at, piece, PIECE);
        tk_write(t, handle, peer, bytes - at - PIECE, piece, PIECE);
    }
    tk_group_barrier(t, group);
    for (int32_t peer = 0; peer < shape->count; peer++) {
        uint8_t own[PIECE] = {(uint8_t)(shape->ranks[peer] + 1), (uint8_t)(shape->rank + 1), 7};
        uint8_t theirs[PIECE] = {(uint8_t)(t->rank + 1), (uint8_t)(peer + 1), 7};
        size_t at = (size_t)peer * PIECE;
        tk_expect_data(t, handle, shape->rank, at, own, PIECE);
        tk_expect_data(t, handle, shape->rank, bytes - at - PIECE, own, PIECE);
        tk_expect_data(t, handle, peer, (size_t)shape->rank * PIECE, theirs, PIECE);
    }
}

/* One allocation on three groups at once; each handle reaches the same memory. */
TK_TEST(rendezvous, several_groups_for_one_allocation, "SM-RDV-03,SM-RDV-01", .max_ranks = 64) {
    const int32_t n = t->world_size;
    void *ptr = tk_alloc(t, 1024);
    symmem_handle *world = tk_rendezvous(t, ptr, tk_world_group(t));
    symmem_handle *back = tk_rendezvous(t, ptr, reversed_group(t, "back"));
    symmem_handle *alone = tk_rendezvous(t, ptr, tk_group(t, "alone", &t->rank, 1));
    int32_t next = (t->rank + 1) % n;
    tk_fill(t, back, n - 1 - next, 0, 64, (uint8_t)(t->rank + 1));
    tk_fill(t, alone, 0, 64, 64, 0x99);
    TK_OK(t, symmem_barrier(back, 0, LONG_MS, NULL));
    tk_expect_bytes(t, world, t->rank, 0, 64, (uint8_t)((t->rank + n - 1) % n + 1));
    tk_expect_bytes(t, world, next, 0, 64, (uint8_t)(t->rank + 1));
    tk_expect_bytes(t, world, next, 64, 64, 0x99);
    TK_OK(t, symmem_barrier(world, 0, LONG_MS, NULL));
}

/* --- locality of the second rendezvous -------------------------------------------------------- */

/* Of a new context. */
static symmem_store *counting_begin(struct tk *t, struct counting_store **counting_p) {
    symmem_store *store = NULL;
    *counting_p = counting_store_begin(t->store);
    TK_REQUIRE_OK(t, symmem_store_open_custom(&counting_store_ops, *counting_p, &store));
    TK_REINIT(t, options.store = store);
    return store;
}

static void counting_end(struct tk *t, symmem_store *store) {
    tk_end_context(t);
    symmem_store_close(store);
}

TK_TEST(rendezvous, second_is_local, "SM-RDV-02", .max_ranks = 4) {
    struct counting_store *counting;
    symmem_store *store = counting_begin(t, &counting);
    void *ptr = tk_alloc(t, 1024);
    symmem_handle *first = tk_rendezvous(t, ptr, tk_world_group(t));
    tk_out_of_band_barrier(t);
    for (int32_t active = 0; active < t->world_size; active++) {
        if (t->rank == active) { /* the others make no call of the library */
            int before = counting_store_calls(counting);
            symmem_handle *second = tk_rendezvous(t, ptr, tk_world_group(t));
            symmem_handle *inside = tk_rendezvous(t, (char *)ptr + 512, tk_world_group(t));
            TK_EQ_INT(t, before, counting_store_calls(counting));
            for (int32_t r = 0; r < t->world_size; r++)
                TK_EQ_PTR(t, buffers_of(t, first)[r], buffers_of(t, second)[r]);
            /* shared signal state: put by one handle, waited for by another */
            TK_OK(t, symmem_put_signal(first, t->rank, 0, LONG_MS, NULL));
            TK_OK(t, symmem_wait_signal(second, t->rank, 0, 1000, NULL));
            TK_OK(t, symmem_put_signal(inside, t->rank, 1, LONG_MS, NULL));
            TK_OK(t, symmem_wait_signal(first, t->rank, 1, 1000, NULL));
        }
        tk_out_of_band_barrier(t);
    }
    counting_end(t, store);
}

/* Writes of one rendezvous of a new block on the group. */
static uint64_t writes_of(struct tk *t, struct counting_store *counting, symmem_group *group) {
    void *ptr = tk_alloc(t, 256);
    int before = counting_store_writes(counting);
    symmem_handle *handle = tk_rendezvous(t, ptr, group);
    uint64_t writes = (uint64_t)(counting_store_writes(counting) - before);
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    return writes;
}

static uint64_t highest(struct tk *t, int slot) {
    uint64_t most = 0;
    for (int32_t r = 0; r < t->world_size; r++)
        most = tk_read_u64(t, r, slot) > most ? tk_read_u64(t, r, slot) : most;
    return most;
}

/* Groups of two and of all cost each rank the same; a known group costs less than a new one. */
TK_TEST(rendezvous, store_writes_are_few, "SM-RDV-14", .min_ranks = 3) {
    struct counting_store *counting;
    symmem_store *store = counting_begin(t, &counting);
    int32_t pair_ranks[2] = {0, 1};
    if (t->rank < 2) {
        symmem_group *pair = tk_group(t, "pair", pair_ranks, 2);
        tk_share_u64(t, 2, writes_of(t, counting, pair));
        tk_share_u64(t, 3, writes_of(t, counting, pair));
    }
    tk_out_of_band_barrier(t);
    tk_share_u64(t, 4, writes_of(t, counting, tk_world_group(t)));
    tk_share_u64(t, 5, writes_of(t, counting, tk_world_group(t)));
    tk_share_u64(t, 6, writes_of(t, counting, tk_world_group(t)));
    tk_out_of_band_barrier(t);
    TK_CHECK(t, highest(t, 2) > 0);
    TK_CHECK_MSG(t, highest(t, 4) <= highest(t, 2), "%llu writes for all ranks, %llu for two",
                 (unsigned long long)highest(t, 4), (unsigned long long)highest(t, 2));
    TK_CHECK(t, highest(t, 5) <= highest(t, 3));
    TK_CHECK_MSG(t, highest(t, 5) < highest(t, 4), "%llu writes on a known group, %llu on a new",
                 (unsigned long long)highest(t, 5), (unsigned long long)highest(t, 4));
    TK_CHECK(t, highest(t, 6) < highest(t, 4));
    counting_end(t, store);
}

/* PyTorch counts the communicator's all-gathers: one or two without multicast, up to four with.
 * Here each exchange phase is one write of each rank. */
TK_PORTED(test_rendezvous_via_pg_allgather, "SM-RDV-14,SM-RDV-01", .ranks = {2, 8}) {
    struct counting_store *counting;
    symmem_store *store = counting_begin(t, &counting);
    tk_on_point(t, "rendezvous.register.after", 0, (struct tk_action){0}); /* to count them */
    (void)writes_of(t, counting, tk_world_group(t));                       /* the group comes up */
    uint64_t writes = writes_of(t, counting, tk_world_group(t));
    /* Where the backend registers memory collectively its ranks have more to agree on. */
    uint64_t most = tk_point_count(t, "rendezvous.register.after") > 0 ? 32 : 16;
    TK_CHECK_MSG(t, writes >= 1 && writes <= most, "%llu phases", (unsigned long long)writes);
    symmem_handle *handle = tk_handle(t, 256, tk_world_group(t));
    tk_fill(t, handle, t->rank, 0, 256, (uint8_t)(t->rank + 1));
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    for (int32_t r = 0; r < t->world_size; r++)
        tk_expect_bytes(t, handle, r, 0, 256, (uint8_t)(r + 1));
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    counting_end(t, store);
}

/* --- default group ---------------------------------------------------------------------------- */

static void *alloc_on(struct tk *t, size_t bytes, symmem_group *group) {
    symmem_alloc_options options;
    void *ptr = NULL;
    symmem_alloc_options_init(&options);
    options.default_group = group;
    TK_REQUIRE_OK(t, symmem_alloc(t->context, bytes, -1, &options, &ptr));
    return ptr;
}

TK_TEST(rendezvous, default_group_is_used, "SM-RDV-04", .ranks = {2, 2}) {
    int32_t ranks[2] = {1, 0};
    symmem_handle *none = NULL;
    void *ptr = alloc_on(t, 256, tk_group(t, "turned", ranks, 2));
    void *bare = tk_alloc(t, 256);
    const char *name = NULL;
    TK_FAILS(t, INVALID_ARGUMENT, symmem_rendezvous(t->context, bare, NULL, 1000, &none));
    TK_CHECK(t, none == NULL);
    symmem_handle *handle = tk_rendezvous(t, ptr, NULL);
    TK_OK(t, symmem_handle_group_name(handle, &name));
    TK_EQ_STR(t, "turned", name);
    TK_EQ_INT(t, 1 - t->rank, info_of(t, handle).rank);
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    tk_release(t, handle);
    /* A group argument goes before the default. */
    handle = tk_rendezvous(t, ptr, tk_world_group(t));
    TK_EQ_INT(t, t->rank, info_of(t, handle).rank);
    tk_release(t, handle);
    TK_OK(t, symmem_free(t->context, ptr));
}

/* An ordinary pointer is an error here where PyTorch gives None; the handle outlives the free. */
TK_PORTED(test_empty_strided_p2p, "SM-RDV-04,SM-RDV-05,SM-RDV-18,SM-SIGNAL-01,SM-BARRIER-02",
          .ranks = {2, 4}) {
    float plain[4] = {0};
    symmem_handle *handle = NULL;
    TK_FAILS(t, NOT_SYMMETRIC,
             symmem_rendezvous(t->context, plain, tk_world_group(t), LONG_MS, &handle));
    TK_CHECK(t, handle == NULL);
    void *ptr = alloc_on(t, 64 * 64 * sizeof(float), tk_world_group(t));
    TK_REQUIRE_OK(t, symmem_rendezvous(t->context, ptr, NULL, LONG_MS, &handle));
    TK_OK(t, symmem_free(t->context, ptr));
    tk_out_of_band_barrier(t);
    verify_symmetric_memory(t, handle);
    symmem_handle_release(handle);
}

/* --- lifetimes -------------------------------------------------------------------------------- */

TK_TEST(rendezvous, handle_outlives_group_and_memory, "SM-RDV-18", .ranks = {2, 4}) {
    const int32_t n = t->world_size;
    symmem_group *group = reversed_group(t, "short");
    void *ptr = tk_alloc(t, 512);
    symmem_handle *handle = tk_rendezvous(t, ptr, group);
    int32_t rank = info_of(t, handle).rank;
    int32_t next = (rank + 1) % n;
    tk_group_destroy(t, group);
    if (t->rank % 2 == 0) /* on some ranks only */
        tk_free(t, ptr);
    tk_out_of_band_barrier(t);
    for (int i = 0; i < 3; i++) {
        tk_fill(t, handle, next, 0, 512, (uint8_t)(rank + 1 + i));
        TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
        tk_expect_bytes(t, handle, rank, 0, 512, (uint8_t)((rank + n - 1) % n + 1 + i));
        ring_signal(t, handle, 1);
        TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    }
    TK_FAILS(t, STALE, symmem_handle_reset(handle, 1000));
}

/* Freed on every rank, in the group that goes on: the handle's data and signals are as before. */
TK_TEST(rendezvous, handle_outlives_the_free, "SM-RDV-18", .max_ranks = 4) {
    void *ptr = tk_alloc(t, 512);
    symmem_handle *handle = tk_rendezvous(t, ptr, tk_world_group(t));
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    tk_free(t, ptr);
    tk_fill(t, handle, t->next, 0, 512, (uint8_t)(t->rank + 1));
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    tk_expect_bytes(t, handle, t->rank, 0, 512, (uint8_t)(t->previous + 1));
    ring_signal(t, handle, 1);
    TK_OK(t, symmem_handle_reset(handle, LONG_MS));
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
}

/* An address that comes back is new memory with a new link, whatever the old one was left with. */
TK_TEST(rendezvous, reused_address_is_new, "SM-RDV-19", .ranks = {2, 4}) {
    for (int i = 0; i < 6; i++) {
        void *ptr = tk_alloc(t, 4096);
        symmem_handle *handle = tk_rendezvous(t, ptr, tk_world_group(t));
        tk_expect_bytes(t, handle, t->rank, 0, 4096, 0);
        tk_out_of_band_barrier(t);
        tk_fill(t, handle, t->next, 0, 4096, (uint8_t)(0x60 + i));
        tk_out_of_band_barrier(t);
        tk_expect_bytes(t, handle, t->rank, 0, 4096, (uint8_t)(0x60 + i));
        check_nothing_pending(t, handle, -1, 0);
        tk_out_of_band_barrier(t);
        TK_OK(t, symmem_handle_reset(handle, LONG_MS));
        TK_OK(t, symmem_put_signal(handle, t->next, 0, LONG_MS, NULL)); /* left pending */
        tk_out_of_band_barrier(t);
        tk_free(t, ptr);
        if (i % 2)
            tk_release(t, handle); /* and with the old handle alive */
        tk_out_of_band_barrier(t);
    }
}

/* --- two threads ------------------------------------------------------------------------------ */

struct rendezvous_thread {
    struct tk *t;
    symmem_group *group;
};

static void *rendezvous_loop(void *arg) {
    struct rendezvous_thread *self = arg;
    struct tk *t = self->t;
    for (int i = 0; i < 8; i++) {
        void *ptr = NULL;
        symmem_handle *handle = NULL;
        if (!TK_OK(t, symmem_alloc(t->context, 256, -1, NULL, &ptr)))
            return NULL;
        if (TK_OK(t, symmem_rendezvous(t->context, ptr, self->group, LONG_MS, &handle)))
            TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
        symmem_handle_release(handle);
        TK_OK(t, symmem_free(t->context, ptr));
    }
    return NULL;
}

TK_TEST(rendezvous, two_threads_two_groups, "SM-RDV-17", .ranks = {2, 4}) {
    struct rendezvous_thread threads[2] = {{t, tk_world_group(t)},
                                           {t, reversed_group(t, "second")}};
    pthread_t id;
    bool started = TK_CHECK(t, pthread_create(&id, NULL, rendezvous_loop, &threads[1]) == 0);
    (void)rendezvous_loop(&threads[0]);
    TK_CHECK(t, !started || pthread_join(id, NULL) == 0);
}
