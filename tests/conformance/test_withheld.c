/* SPDX-License-Identifier: BSD-3-Clause */
/* Each rank once stays away from a signal operation: in the calling thread, on a stream, and in the
 * replay of a graph. */
#include "withheld.h"

static uint32_t long_ms(void) {
    return 2 * LONG_MS;
}

/* --- handles ---------------------------------------------------------------------------------- */

static void make_handle(struct withheld *w) {
    withheld_make_handle(w);
    w->channel = w->index % info_of(w->t, w->handle).channel_count;
}

/* Nothing is left of the trial: the barrier works, and so does a signal to the next rank. */
static void mend_handle(struct withheld *w) {
    struct tk *t = w->t;
    TK_REQUIRE_OK(t, symmem_handle_reset(w->handle, long_ms()));
    TK_REQUIRE_OK(
        t, symmem_put_signal(w->handle, (w->rank + 1) % w->size, w->channel, long_ms(), NULL));
    TK_REQUIRE_OK(t, symmem_barrier(w->handle, w->channel, long_ms(), NULL));
    TK_REQUIRE_OK(t, symmem_wait_signal(w->handle, (w->rank + w->size - 1) % w->size, w->channel,
                                        long_ms(), NULL));
}

static void fill_slot(struct withheld *w) {
    TK_REQUIRE_OK(w->t, symmem_put_signal(w->handle, w->absent, w->channel, long_ms(), NULL));
}

/* --- in the calling thread, where the stream is NULL ------------------------------------------ */

static symmem_status run_barrier(struct withheld *w) {
    return symmem_barrier(w->handle, w->channel, w->limit_ms, w->stream);
}

static symmem_status run_wait(struct withheld *w) {
    return symmem_wait_signal(w->handle, w->absent, w->channel, w->limit_ms, w->stream);
}

static symmem_status run_put(struct withheld *w) {
    return symmem_put_signal(w->handle, w->absent, w->channel, w->limit_ms, w->stream);
}

TK_TEST(withheld, barrier, "SM-BARRIER-01,SM-TIMEOUT-01,SM-TIMEOUT-02,SM-TIMEOUT-07",
        .min_ranks = 2, .timeout_s = 120, .flags = TK_GROWS_FAST) {
    TK_REQ(t, "SM-TIMEOUT-02");
    WITHHOLD(each, t, .operation = "barrier", .make = make_handle, .run = run_barrier,
             .mend = mend_handle, .end = withheld_end_handle);
}

TK_TEST(withheld, wait_signal, "SM-SIGNAL-01,SM-TIMEOUT-01,SM-TIMEOUT-02,SM-TIMEOUT-07",
        .timeout_s = 60, .flags = TK_GROWS_FAST) {
    TK_REQ(t, "SM-TIMEOUT-02");
    WITHHOLD(peers, t, .operation = "wait_signal", .make = make_handle, .run = run_wait,
             .mend = mend_handle, .end = withheld_end_handle);
}

TK_TEST(withheld, put_signal, "SM-SIGNAL-02,SM-TIMEOUT-01,SM-TIMEOUT-02,SM-TIMEOUT-07",
        .timeout_s = 60, .flags = TK_GROWS_FAST) {
    TK_REQ(t, "SM-TIMEOUT-02");
    WITHHOLD(peers, t, .operation = "put_signal", .make = make_handle, .arm = fill_slot,
             .run = run_put, .mend = mend_handle, .end = withheld_end_handle);
}

/* --- on a stream ------------------------------------------------------------------------------ */

static void make_streamed(struct withheld *w) {
    make_handle(w);
    w->stream = tk_stream(w->t);
}

static void end_streamed(struct withheld *w) {
    tk_stream_destroy(w->t, w->stream);
    withheld_end_handle(w);
}

static symmem_status settle(struct withheld *w, symmem_status called) {
    return called == SYMMEM_OK ? symmem_stream_synchronize(w->stream, long_ms()) : called;
}

static symmem_status run_streamed_barrier(struct withheld *w) {
    return settle(w, run_barrier(w));
}

static symmem_status run_streamed_wait(struct withheld *w) {
    return settle(w, run_wait(w));
}

static symmem_status run_streamed_put(struct withheld *w) {
    return settle(w, run_put(w));
}

TK_TEST(withheld, on_streams, "SM-STREAM-03,SM-TIMEOUT-02,SM-TIMEOUT-07",
        .needs = SYMMEM_CAP_STREAMS, .min_ranks = 2, .timeout_s = 120, .flags = TK_GROWS_FAST) {
    struct withheld_kind kind = {.operation = "barrier",
                                 .make = make_streamed,
                                 .run = run_streamed_barrier,
                                 .mend = mend_handle,
                                 .end = end_streamed};
    TK_REQ(t, "SM-STREAM-03");
    withhold_some(t, &kind);
    kind.operation = "wait_signal";
    kind.run = run_streamed_wait;
    withhold_peers(t, &kind);
    kind.operation = "put_signal";
    kind.arm = fill_slot;
    kind.run = run_streamed_put;
    withhold_peers(t, &kind);
}

/* --- in a replay ------------------------------------------------------------------------------ */

static symmem_status capture_into(struct withheld *w, symmem_status (*add)(struct withheld *w)) {
    symmem_status status = symmem_stream_begin_capture(w->stream);
    symmem_status ended;
    if (status == SYMMEM_OK)
        status = add(w);
    ended = symmem_stream_end_capture(w->stream, &w->graph);
    return status == SYMMEM_OK ? ended : status;
}

static void make_replayed_barrier(struct withheld *w) {
    make_streamed(w);
    TK_REQUIRE_OK(w->t, capture_into(w, run_barrier));
}

static void arm_replayed_wait(struct withheld *w) {
    TK_REQUIRE_OK(w->t, capture_into(w, run_wait));
}

static void arm_replayed_put(struct withheld *w) {
    fill_slot(w);
    TK_REQUIRE_OK(w->t, capture_into(w, run_put));
}

static symmem_status run_replay(struct withheld *w) {
    return settle(w, symmem_graph_launch(w->graph, w->stream));
}

/* The graph that failed works again after the reset, if all ranks launch it. Its barrier has the
 * short limit of the trial, so a rank that is kept from running may come too late. */
static void mend_replayed_barrier(struct withheld *w) {
    mend_handle(w);
    tk_out_of_band_barrier(w->t);
    TK_OK(w->t, run_replay(w));
}

static void mend_replayed(struct withheld *w) {
    if (w->absent >= 0)
        TK_OK(w->t, symmem_graph_destroy(w->graph));
    mend_handle(w);
}

static void end_replayed_barrier(struct withheld *w) {
    TK_OK(w->t, symmem_graph_destroy(w->graph));
    end_streamed(w);
}

TK_TEST(withheld, in_replays, "SM-STREAM-15,SM-TIMEOUT-02,SM-TIMEOUT-07",
        .needs = SYMMEM_CAP_STREAMS | SYMMEM_CAP_CAPTURE, .min_ranks = 2, .timeout_s = 120,
        .flags = TK_GROWS_FAST) {
    struct withheld_kind kind = {.operation = "barrier",
                                 .make = make_replayed_barrier,
                                 .run = run_replay,
                                 .mend = mend_replayed_barrier,
                                 .end = end_replayed_barrier};
    TK_REQ(t, "SM-STREAM-15");
    withhold_some(t, &kind);
    kind = (struct withheld_kind){.operation = "wait_signal",
                                  .make = make_streamed,
                                  .arm = arm_replayed_wait,
                                  .run = run_replay,
                                  .mend = mend_replayed,
                                  .end = end_streamed};
    withhold_peers(t, &kind);
    kind.operation = "put_signal";
    kind.arm = arm_replayed_put;
    withhold_peers(t, &kind);
}

/* --- each rank once stays away from the host's collective calls, and from the store ----------- */

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
