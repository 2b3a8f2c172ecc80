/* SPDX-License-Identifier: BSD-3-Clause */
/* Each rank in turn stays away from the host's collective calls, and from the store. */
#include "withheld.h"

static uint32_t long_ms(void) {
    return 2 * LONG_MS;
}

/* --- groups ----------------------------------------------------------------------------------- */

static void bring_up(struct withheld *w) {
    TK_REQUIRE_OK(w->t, symmem_group_barrier(w->group, long_ms()));
}

static symmem_status run_group_barrier(struct withheld *w) {
    return symmem_group_barrier(w->group, w->limit_ms);
}

static symmem_status run_all_gather(struct withheld *w) {
    int32_t all[SYMMEM_MAX_WORLD_SIZE];
    return symmem_group_all_gather(w->group, &w->rank, sizeof(w->rank), all, w->limit_ms);
}

/* What the next gathering gives is the next one's. */
static void mend_group(struct withheld *w) {
    int32_t all[SYMMEM_MAX_WORLD_SIZE];
    int32_t own = w->rank * 3 + 1;
    int32_t wrong = -1;
    TK_REQUIRE_OK(w->t, symmem_group_all_gather(w->group, &own, sizeof(own), all, long_ms()));
    for (int32_t r = 0; r < w->size; r++)
        if (all[r] != r * 3 + 1)
            wrong = r;
    TK_CHECK_MSG(w->t, wrong < 0, "after the trial rank %d's contribution is %d", wrong,
                 wrong < 0 ? 0 : all[wrong]);
}

TK_TEST(withheld, group_barrier, "SM-EXCHANGE-03,SM-EXCHANGE-04", .min_ranks = 2, .timeout_s = 120,
        .flags = TK_GROWS_FAST) {
    TK_REQ(t, "SM-EXCHANGE-04");
    WITHHOLD(each, t, .operation = "group_barrier", .own_group = true, .make = bring_up,
             .run = run_group_barrier, .mend = mend_group);
}

TK_TEST(withheld, all_gather, "SM-EXCHANGE-01,SM-EXCHANGE-04", .min_ranks = 2, .timeout_s = 60,
        .flags = TK_GROWS_FAST) {
    TK_REQ(t, "SM-EXCHANGE-04");
    WITHHOLD(some, t, .operation = "group_all_gather", .own_group = true, .make = bring_up,
             .run = run_all_gather, .mend = mend_group);
}

/* A group that no call has brought up. */
static void renew_group(struct withheld *w) {
    int32_t ranks[SYMMEM_MAX_WORLD_SIZE];
    char name[32];
    mend_group(w);
    tk_group_destroy(w->t, w->group);
    snprintf(name, sizeof(name), "withheld.%d", w->index);
    for (int32_t i = 0; i < w->size; i++)
        ranks[i] = withheld_mirror(w->size, w->index, i);
    w->group = tk_group(w->t, name, ranks, w->size);
}

TK_TEST(withheld, first_contact, "SM-EXCHANGE-04", .min_ranks = 2, .timeout_s = 60,
        .flags = TK_GROWS_FAST) {
    WITHHOLD(some, t, .operation = "group_barrier", .own_group = true, .run = run_group_barrier,
             .mend = renew_group);
}

/* --- descriptors ------------------------------------------------------------------------------ */

static void close_all(const int *fds, int32_t count) {
    for (int32_t i = 0; i < count; i++)
        if (fds[i] >= 0)
            (void)close(fds[i]);
}

static symmem_status run_gather_fds(struct withheld *w) {
    int fds[SYMMEM_MAX_WORLD_SIZE];
    symmem_status status = symmem_group_all_gather_fds(w->group, STDERR_FILENO, fds, w->limit_ms);
    if (status == SYMMEM_OK)
        close_all(fds, w->size);
    return status;
}

/* The absent rank has the descriptor in every second trial. */
static symmem_status run_broadcast_fds(struct withheld *w) {
    int32_t root = w->index % 4 < 2 ? w->absent : (w->absent + 1) % w->size;
    int fd = -1;
    symmem_status status = symmem_group_broadcast_fds(
        w->group, root, w->rank == root ? STDERR_FILENO : -1, &fd, w->limit_ms);

    if (status == SYMMEM_OK)
        close_all(&fd, 1);
    return status;
}

static symmem_status run_recv_fd(struct withheld *w) {
    int fd = -1;
    symmem_status status = symmem_group_recv_fd(w->group, w->absent, &fd, w->limit_ms);
    if (status == SYMMEM_OK)
        close_all(&fd, 1);
    return status;
}

static void mend_descriptors(struct withheld *w) {
    int fds[SYMMEM_MAX_WORLD_SIZE];
    TK_REQUIRE_OK(w->t, symmem_group_all_gather_fds(w->group, STDERR_FILENO, fds, long_ms()));
    close_all(fds, w->size);
}

TK_TEST(withheld, descriptors, "SM-EXCHANGE-04,SM-EXCHANGE-06", .min_ranks = 2, .timeout_s = 60,
        .flags = TK_GROWS_FAST) {
    struct withheld_kind kind = {.operation = "group_all_gather_fds",
                                 .own_group = true,
                                 .make = bring_up,
                                 .run = run_gather_fds,
                                 .mend = mend_descriptors};
    TK_REQ(t, "SM-EXCHANGE-04");
    withhold_some(t, &kind);
    kind.operation = "group_broadcast_fds";
    kind.run = run_broadcast_fds;
    withhold_some(t, &kind);
}

TK_TEST(withheld, pairwise_descriptor, "SM-EXCHANGE-04,SM-EXCHANGE-06", .min_ranks = 2,
        .timeout_s = 60, .flags = TK_GROWS_FAST) {
    TK_REQ(t, "SM-EXCHANGE-04");
    WITHHOLD(peers, t, .operation = "group_recv_fd", .own_group = true, .make = bring_up,
             .run = run_recv_fd, .mend = mend_descriptors);
}

/* --- rendezvous and reset --------------------------------------------------------------------- */

static void make_memory(struct withheld *w) {
    if (w->memory == NULL)
        bring_up(w);
    w->memory = tk_alloc(w->t, 64);
}

static symmem_status run_rendezvous(struct withheld *w) {
    return symmem_rendezvous(w->t->context, w->memory, w->group, w->limit_ms, &w->handle);
}

/* The memory that no rendezvous was made for is rendezvoused now; the next trial has its own. */
static void mend_rendezvous(struct withheld *w) {
    struct tk *t = w->t;
    symmem_handle *handle;
    TK_CHECK_MSG(t, w->handle == NULL, "a failed rendezvous gave a handle");
    handle = tk_rendezvous(t, w->memory, w->group);
    TK_REQUIRE_OK(t, symmem_barrier(handle, 0, long_ms(), NULL));
    tk_release(t, handle);
    tk_free(t, w->memory);
    make_memory(w);
}

static void end_memory(struct withheld *w) {
    tk_free(w->t, w->memory);
}

TK_TEST(withheld, rendezvous, "SM-RDV-11", .min_ranks = 2, .timeout_s = 60,
        .flags = TK_GROWS_FAST) {
    WITHHOLD(some, t, .operation = "rendezvous", .own_group = true, .make = make_memory,
             .run = run_rendezvous, .mend = mend_rendezvous, .end = end_memory);
}

static symmem_status run_reset(struct withheld *w) {
    return symmem_handle_reset(w->handle, w->limit_ms);
}

static void mend_reset(struct withheld *w) {
    TK_REQUIRE_OK(w->t, symmem_handle_reset(w->handle, long_ms()));
    TK_REQUIRE_OK(w->t, symmem_barrier(w->handle, 0, long_ms(), NULL));
}

TK_TEST(withheld, reset, "SM-EXCHANGE-04,SM-TIMEOUT-07", .min_ranks = 2, .timeout_s = 60,
        .flags = TK_GROWS_FAST) {
    TK_REQ(t, "SM-EXCHANGE-04");
    WITHHOLD(some, t, .operation = "handle_reset", .own_group = true, .make = withheld_make_handle,
             .run = run_reset, .mend = mend_reset, .end = withheld_end_handle);
}

/* --- the store -------------------------------------------------------------------------------- */

static void key_of(const struct withheld *w, char *key, size_t capacity) {
    snprintf(key, capacity, "withheld/%d", w->index);
}

static symmem_status run_store_wait(struct withheld *w) {
    char key[32];
    key_of(w, key, sizeof(key));
    return symmem_store_wait(w->t->store, key, w->limit_ms);
}

/* One rank sets the key late, all see it, and it goes. */
static void mend_key(struct withheld *w) {
    struct tk *t = w->t;
    char key[32];
    key_of(w, key, sizeof(key));
    if (t->rank == w->index % w->size)
        TK_OK(t, symmem_store_set(t->store, key, "x", 1, long_ms()));
    TK_OK(t, symmem_store_wait(t->store, key, long_ms()));
    tk_out_of_band_barrier(t);
    if (t->rank == w->index % w->size)
        TK_OK(t, symmem_store_remove(t->store, key, long_ms()));
    tk_out_of_band_barrier(t);
}

TK_TEST(withheld, store_wait, "SM-STORE-03", .min_ranks = 2, .flags = TK_GROWS_FAST) {
    WITHHOLD(some, t, .operation = "store_wait", .ranks_unknown = true, .run = run_store_wait,
             .mend = mend_key);
}
