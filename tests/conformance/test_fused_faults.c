/* SPDX-License-Identifier: BSD-3-Clause */
/* Fused operations: a user's own product, failures, reuse, disagreement. */
#include "fused_pair.h"
#include "work_after.h"

struct own_product {
    atomic_int calls;     /* of any product */
    atomic_int others;    /* of those, not of the size that a pair has */
    symmem_status status; /* of each call, but of the first `good` */
    int good;
    bool is_empty; /* nothing is computed, for the CPU does not reach the matrices */
    uint32_t delay_ms;
};

/* Twice the product, or nothing, or a failure. */
static symmem_status twice(void *arg, const symmem_matmul *p, void *native_stream) {
    struct own_product *own = arg;
    const int before = atomic_fetch_add_explicit(&own->calls, 1, memory_order_relaxed);
    const symmem_status status = before < own->good ? SYMMEM_OK : own->status;
    if (p->m != PAIR_ROWS || p->n != PAIR_N || p->k != PAIR_K || p->signals != NULL)
        atomic_fetch_add_explicit(&own->others, 1, memory_order_relaxed);
    if (own->delay_ms > 0)
        tk_sleep_ms(own->delay_ms);
    if (status != SYMMEM_OK || own->is_empty)
        return status;
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < p->n; j++) {
            double magnitude, value = 2 * symmem_reference_matmul(p, i, j, &magnitude);
            symmem_reference_store(p->out_dtype, p->out, i * p->out_row + j * p->out_column, value);
        }
    return SYMMEM_OK;
}

static void use_own(struct tk *t, struct own_product *own) {
    TK_OK(t, symmem_set_matmul(t->context, own != NULL ? twice : NULL, own));
}

static void expect_calls(struct tk *t, struct own_product *own, int count) {
    TK_EQ_INT(t, count, atomic_load_explicit(&own->calls, memory_order_relaxed));
    TK_EQ_INT(t, 0, atomic_load_explicit(&own->others, memory_order_relaxed));
}

/* One that does nothing, on any backend: no product is made in its place, for the output stays. */
static void empty_product(struct tk *t, struct fused_pair *x, symmem_stream *stream) {
    struct own_product own = {.status = SYMMEM_OK, .is_empty = true};
    use_own(t, &own);
    struct pair_call call = pair_call(x);
    call.a_out = NULL;
    call.limit_ms = LONG_MS;
    call.stream = stream;
    TK_OK(t, pair_run(&call, PAIR_GATHER));
    use_own(t, NULL);
    tk_synchronize(t, stream);
    expect_calls(t, &own, t->world_size);
    pair_expect_untouched(t, x);
}

TEST_WITH_AND_WITHOUT_STREAM(fused_faults, own_product, "SM-FUSED-11", PRODUCTS, .max_ranks = 3) {
    struct own_product own = {.status = SYMMEM_OK,
                              .is_empty = (t->capabilities & SYMMEM_CAP_HOST_ACCESS) == 0};
    struct fused_pair *x = pair_begin(t);
    empty_product(t, x, stream);
    use_own(t, &own);
    TK_OK(t, pair_gather(x, LONG_MS, stream));
    TK_OK(t, pair_scatter(x, LONG_MS, stream));
    use_own(t, NULL);
    tk_synchronize(t, stream);
    expect_calls(t, &own, 2 * t->world_size);
    if (!own.is_empty) {
        pair_expect_gather(t, x, 2);
        pair_expect_scatter(t, x, 2);
    }
    TK_OK(t, pair_gather(x, LONG_MS, stream));
    TK_OK(t, pair_scatter(x, LONG_MS, stream));
    tk_synchronize(t, stream);
    pair_expect_gather(t, x, 1);
    pair_expect_scatter(t, x, 1);
}

static symmem_status both_ends(symmem_status status, symmem_stream *stream) {
    if (stream == NULL)
        return status;
    symmem_status late = symmem_stream_synchronize(stream, LONG_MS);
    return status != SYMMEM_OK ? status : late;
}

/* The last rank's product fails, in one operation and then in the other. */
static void failing(struct tk *t, symmem_stream *stream) {
    struct own_product own = {.status = SYMMEM_LIMIT};
    bool fails = t->rank == t->last;
    TK_REQ(t, "SM-FUSED-12");
    struct fused_pair *x = pair_begin(t);
    for (int i = 0; i < 2; i++) {
        uint64_t begin_ms = tk_now_ms();
        if (fails)
            use_own(t, &own);
        symmem_status status =
            i == 0 ? pair_gather(x, LONG_MS, stream) : pair_scatter(x, LONG_MS, stream);
        status = both_ends(status, stream);
        if (fails && stream != NULL) /* it may have been the second stream's */
            TK_STATUS_EITHER(t, SYMMEM_LIMIT, SYMMEM_POISONED, status);
        else
            TK_STATUS(t, fails ? SYMMEM_LIMIT : SYMMEM_POISONED, status);
        if (fails)
            TK_FAILS(t, LIMIT, symmem_handle_status(x->workspace, NULL));
        TK_TIMELY(t, tk_now_ms() - begin_ms < LONG_MS / 2, "it took too long");
        use_own(t, NULL);
        TK_FAILS(t, POISONED, pair_gather(x, 1000, stream));
        TK_OK(t, symmem_handle_reset(x->workspace, LONG_MS));
        TK_OK(t, both_ends(pair_gather(x, LONG_MS, stream), stream));
        pair_expect_gather(t, x, 1);
    }
    work_after(t, stream);
}

TEST_WITH_AND_WITHOUT_STREAM(fused_faults, product_fails, "SM-FUSED-12,SM-TIMEOUT-14", PRODUCTS,
                             .ranks = {2, 3}) {
    failing(t, stream);
}

/* Rank 0 does not call. */
TK_TEST(fused_faults, rank_missing, "SM-COLL-08,SM-TIMEOUT-14", .needs = PRODUCTS,
        .ranks = {2, 3}) {
    TK_REQ(t, "SM-COLL-08");
    struct fused_pair *x = pair_begin(t);
    for (int i = 0; i < 2; i++) {
        uint64_t begin_ms = tk_now_ms();
        if (t->rank != 0) {
            TK_STATUS_EITHER(t, SYMMEM_TIMEOUT, SYMMEM_POISONED,
                             i == 0 ? pair_gather(x, 30, NULL) : pair_scatter(x, 30, NULL));
            TK_WITHIN(t, 5000, begin_ms);
            pair_expect_untouched(t, x);
        }
        TK_OK(t, symmem_handle_reset(x->workspace, LONG_MS));
    }
    TK_OK(t, pair_gather(x, LONG_MS, NULL));
    pair_expect_gather(t, x, 1);
    work_after(t, NULL);
}

/* As calls are in programs, and not in the suite: then steps behind a failure may run. */
static void uncompared(struct tk *t) {
    TK_REINIT(t, options.check_collectives = 0);
}

TK_TEST(fused_faults, results_uncompared, "SM-FUSED-01,SM-FUSED-04",
        .needs = PRODUCTS | SYMMEM_CAP_STREAMS, .ranks = {1, 3}) {
    uncompared(t);
    struct fused_pair *x = pair_begin(t);
    symmem_stream *stream = tk_stream(t);
    TK_OK(t, pair_gather(x, LONG_MS, stream));
    TK_OK(t, pair_scatter(x, LONG_MS, stream));
    tk_synchronize(t, stream);
    pair_expect_gather(t, x, 1);
    pair_expect_scatter(t, x, 1);
}

TK_TEST(fused_faults, product_fails_uncompared, "SM-FUSED-12,SM-TIMEOUT-14",
        .needs = PRODUCTS | SYMMEM_CAP_STREAMS, .ranks = {2, 3}) {
    uncompared(t);
    failing(t, tk_stream(t));
}

/* A graph whose product fails on one rank: each launch says so until the reset. */
TK_TEST(fused_faults, launches_fail_uncompared, "SM-FUSED-12",
        .needs = PRODUCTS | SYMMEM_CAP_CAPTURE | SYMMEM_CAP_HOST_ACCESS, .ranks = {2, 3}) {
    struct own_product own = {.status = SYMMEM_LIMIT};
    symmem_graph *graph = NULL;
    uncompared(t);
    struct fused_pair *x = pair_begin(t);
    symmem_stream *stream = tk_stream(t);
    if (t->rank == 0)
        use_own(t, &own);
    TK_REQUIRE_OK(t, symmem_stream_begin_capture(stream));
    TK_OK(t, pair_gather(x, LONG_MS, stream));
    TK_REQUIRE_OK(t, symmem_stream_end_capture(stream, &graph));
    use_own(t, NULL);
    for (int i = 0; i < 2; i++) {
        symmem_status status = both_ends(symmem_graph_launch(graph, stream), stream);
        TK_STATUS_EITHER(t, SYMMEM_LIMIT, SYMMEM_POISONED, status);
    }
    TK_OK(t, symmem_graph_destroy(graph));
    TK_OK(t, symmem_handle_reset(x->workspace, LONG_MS));
    TK_OK(t, both_ends(pair_gather(x, LONG_MS, stream), stream));
    pair_expect_gather(t, x, 1);
}

/* Rank 0 does not call: its workspace stays as it is, whatever the others' steps behind their
 * failure do. */
static void absent_workspace(struct tk *t) {
    struct fused_pair *x = pair_begin(t);
    symmem_stream *stream = tk_stream(t);
    TK_OK(t, both_ends(pair_gather(x, LONG_MS, stream), stream)); /* nothing is new to a device */
    for (int i = 0; i < 2; i++) {
        tk_fill(t, x->workspace, t->rank, 0, x->bytes, 0x77);
        tk_out_of_band_barrier(t);
        if (t->rank != 0)
            TK_STATUS_EITHER(
                t, SYMMEM_TIMEOUT, SYMMEM_POISONED,
                both_ends(i == 0 ? pair_gather(x, 30, stream) : pair_scatter(x, 30, stream),
                          stream));
        tk_out_of_band_barrier(t);
        if (t->rank == 0)
            tk_expect_bytes(t, x->workspace, 0, 0, x->bytes, 0x77);
        TK_OK(t, symmem_handle_reset(x->workspace, LONG_MS));
    }
    TK_OK(t, both_ends(pair_gather(x, LONG_MS, stream), stream));
    pair_expect_gather(t, x, 1);
}

TK_TEST(fused_faults, absent_workspace_stays, "SM-FUSED-16", .needs = PRODUCTS | SYMMEM_CAP_STREAMS,
        .ranks = {2, 3}) {
    absent_workspace(t);
}

TK_TEST(fused_faults, absent_workspace_stays_uncompared, "SM-FUSED-16",
        .needs = PRODUCTS | SYMMEM_CAP_STREAMS, .ranks = {2, 3}) {
    uncompared(t);
    absent_workspace(t);
}

/* The second stream waits for a peer meanwhile, and with it what is behind the failure. */
static symmem_status fail_behind_gate(struct tk *t, struct fused_pair *x, symmem_handle *gate,
                                      symmem_stream *stream, symmem_stream *second) {
    TK_OK(t, symmem_wait_signal(gate, (t->rank + 1) % t->world_size, t->rank, LONG_MS, second));
    return symmem_fused_all_gather_matmul(x->workspace, &x->shard.dl, 0, 1, x->bs, NULL, x->outs, 0,
                                          LONG_MS, stream, second);
}

/* What an operation left on its streams when its last product failed is pending for a reset. That
 * product is the first stream's: where the second one's fails the call may wait for it. */
TK_TEST(fused_faults, rest_is_pending, "SM-TIMEOUT-12", .needs = PRODUCTS | SYMMEM_CAP_STREAMS,
        .ranks = {2, 3}) {
    struct own_product own = {.status = SYMMEM_LIMIT, .good = t->last, .is_empty = true};
    const int32_t before = (t->rank + t->last) % t->world_size;
    uncompared(t);
    symmem_handle *gate = tk_handle(t, 64, tk_world_group(t));
    struct fused_pair *x = pair_begin(t);
    symmem_stream *stream = tk_stream(t), *second = tk_stream(t);
    use_own(t, &own);
    symmem_status status = fail_behind_gate(t, x, gate, stream, second);
    use_own(t, NULL);
    if (status != SYMMEM_OK) /* where the stream does not call it later */
        TK_STATUS_EITHER(t, SYMMEM_LIMIT, SYMMEM_POISONED, status);
    tk_out_of_band_barrier(t);
    TK_FAILS(t, BUSY, symmem_handle_reset(x->workspace, LONG_MS));
    tk_out_of_band_barrier(t);
    TK_OK(t, symmem_put_signal(gate, before, before, LONG_MS, NULL));
    TK_STATUS_EITHER(t, SYMMEM_LIMIT, SYMMEM_POISONED, both_ends(status, stream));
    TK_CHECK(t, symmem_stream_synchronize(second, LONG_MS) != SYMMEM_TIMEOUT);
    tk_out_of_band_barrier(t);
    TK_OK(t, symmem_handle_reset(x->workspace, LONG_MS));
    TK_OK(t, both_ends(pair_gather(x, LONG_MS, stream), stream));
    pair_expect_gather(t, x, 1);
}

/* Rank 0's products take their time; the others overwrite their workspace and inputs once they are
 * through. */
TK_TEST(fused_faults, reused_at_once, "SM-FUSED-13", .needs = PRODUCTS, .ranks = {2, 5}) {
    struct own_product own = {.status = SYMMEM_OK, .delay_ms = t->rank == 0 ? 15 : 0};
    const bool by_host = (t->capabilities & SYMMEM_CAP_HOST_ACCESS) != 0;
    struct fused_pair *x = pair_begin(t);
    if (by_host)
        use_own(t, &own);
    for (int i = 0; i < 2; i++) {
        if (!by_host) /* late as a whole, where it cannot be in its products */
            tk_sleep_ms(own.delay_ms);
        TK_OK(t, i == 0 ? pair_gather(x, LONG_MS, NULL) : pair_scatter(x, LONG_MS, NULL));
        tk_fill(t, x->workspace, t->rank, 0, x->bytes, 0xff);
        fused_set_bytes(t, i == 0 ? &x->shard : &x->a, 0xff);
    }
    pair_expect_gather(t, x, by_host ? 2 : 1);
    pair_expect_scatter(t, x, by_host ? 2 : 1);
    use_own(t, NULL);
}

/* One operation is held on its stream; another one, on a stream and a channel of its own, is not
 * held by what the first one does on a second stream. */
TK_TEST(fused_faults, two_at_once, "SM-COLL-10",
        .needs = PRODUCTS | SYMMEM_CAP_STREAMS | SYMMEM_CAP_HOST_FN, .max_ranks = 3) {
    struct gate gate = {0};
    symmem_stream *stream = tk_stream(t), *other = tk_stream(t);
    uint32_t limit_ms = LONG_MS;
    struct fused_pair *held = pair_begin(t);
    struct fused_pair *free_one = pair_begin(t);
    /* A library of products may load code for a new shape, which waits for whatever is held-> */
    TK_OK(t, pair_gather(free_one, limit_ms, other));
    tk_synchronize(t, other);
    fused_set_bytes(t, &free_one->out, 0x55);
    fused_set_bytes(t, &free_one->a_out, 0x55);
    TK_OK(t, symmem_stream_host_fn(stream, gate_fn, &gate));
    TK_OK(t, pair_gather(held, limit_ms, stream));
    TK_OK(t, symmem_fused_all_gather_matmul(free_one->workspace, &free_one->shard.dl, 0, 1,
                                            free_one->bs, &free_one->a_out.dl, free_one->outs, 1,
                                            limit_ms, other, NULL));
    TK_OK(t, symmem_stream_synchronize(other, tk_limit_ms(t, 3000)));
    pair_expect_untouched(t, held);
    gate_open(&gate);
    tk_synchronize(t, stream);
    tk_synchronize(t, other);
    pair_expect_gather(t, held, 1);
    pair_expect_gather(t, free_one, 1);
}

struct caller {
    struct fused_pair *pair;
    uint32_t limit_ms;
    symmem_status status;
    int32_t channel;
};

static void *meet_on_channel(void *arg) {
    struct caller *caller = arg;
    caller->status =
        symmem_barrier(caller->pair->workspace, caller->channel, caller->limit_ms, NULL);
    return NULL;
}

static void *gather_in_thread(void *arg) {
    struct caller *caller = arg;
    caller->status = pair_gather(caller->pair, caller->limit_ms, NULL);
    return NULL;
}

static void expect_gathered(struct tk *t, struct fused_pair *x) {
    for (int32_t r = 0; r < t->world_size; r++) {
        struct fused_tensor theirs = x->a_out;
        theirs.count = PAIR_ROWS * PAIR_K;
        theirs.values = x->a_out.values + r * PAIR_ROWS * PAIR_K;
        fused_fill(&theirs, r, 1, true);
    }
    fused_expect(t, &x->a_out, NULL, "a_out");
}

/* Another thread's barrier on the channel comes behind all of the operation, on whichever rank it
 * finds that in the middle: rank 0 is, while the others overwrite what it has yet to fetch. */
TK_TEST(fused_faults, threads_take_turns, "SM-THREAD-02", .needs = PRODUCTS, .ranks = {2, 3}) {
    struct fused_pair *x = pair_begin(t);
    struct own_product own = {.is_empty = true, .delay_ms = t->rank == 0 ? 150 : 0};
    struct caller gather = {x, LONG_MS, SYMMEM_OK, 0}, meet = gather;
    pthread_t first, second;
    use_own(t, &own);
    TK_REQUIRE(t, pthread_create(&first, NULL, gather_in_thread, &gather) == 0);
    uint64_t give_up_ms = tk_now_ms() + gather.limit_ms;
    while (atomic_load_explicit(&own.calls, memory_order_relaxed) == 0 && tk_now_ms() < give_up_ms)
        tk_sleep_ms(1);
    bool started = TK_CHECK(t, pthread_create(&second, NULL, meet_on_channel, &meet) == 0);
    TK_CHECK(t, pthread_join(first, NULL) == 0);
    tk_fill(t, x->workspace, t->rank, 0, x->bytes, 0xff);
    if (started)
        TK_CHECK(t, pthread_join(second, NULL) == 0);
    TK_EQ_INT(t, SYMMEM_OK, gather.status);
    TK_EQ_INT(t, SYMMEM_OK, meet.status);
    expect_gathered(t, x);
    use_own(t, NULL);
}

/* An operation that does not get its channel in time has begun nothing: what has it goes on. */
TEST_WITH_AND_WITHOUT_STREAM(fused_faults, busy_channel, "SM-THREAD-02", PRODUCTS,
                             .ranks = {2, 3}) {
    struct fused_pair *x = pair_begin(t);
    struct caller meet = {x, LONG_MS, SYMMEM_OK, 0};
    pthread_t thread;
    if (t->rank == 0) {
        if (stream != NULL)
            TK_OK(t, symmem_barrier(x->workspace, 0, meet.limit_ms, stream));
        else
            start_until_point(t, &thread, meet_on_channel, &meet, "barrier.begin");
        tk_sleep_ms(tk_limit_ms(t, 100)); /* until the thread has the channel */
        TK_FAILS(t, TIMEOUT, pair_gather(x, 50, NULL));
        TK_EQ_STR(t, "channel", last_record().stage);
        TK_FAILS(t, TIMEOUT, pair_scatter(x, 50, NULL));
        TK_CHECK(t, !info_of(t, x->workspace).poisoned);
        tk_share_u64(t, 0, 1);
        if (stream != NULL)
            tk_synchronize(t, stream);
        else
            TK_CHECK(t, pthread_join(thread, NULL) == 0);
    } else {
        /* Not the kit's barrier: it would wait for a rank 0 that waits. */
        uint64_t give_up_ms = tk_now_ms() + tk_limit_ms(t, 10000);
        while (tk_read_u64(t, 0, 0) == 0 && tk_now_ms() < give_up_ms)
            tk_sleep_ms(5);
        (void)meet_on_channel(&meet);
    }
    TK_EQ_INT(t, SYMMEM_OK, meet.status);
    pair_expect_untouched(t, x);
    TK_OK(t, pair_gather(x, LONG_MS, NULL));
    pair_expect_gather(t, x, 1);
}

/* The next channel may be another thread's all the while, and there need not be one. */
TK_TEST(fused_faults, one_channel, "SM-COLL-10", .needs = PRODUCTS, .ranks = {2, 3}) {
    struct fused_pair *x = pair_begin(t);
    struct caller meet = {x, LONG_MS, SYMMEM_OK, 1};
    pthread_t thread;
    if (t->rank == 0)
        start_until_point(t, &thread, meet_on_channel, &meet, "barrier.begin");
    tk_sleep_ms(tk_limit_ms(t, 50)); /* until the thread has the channel */
    TK_OK(t, pair_gather(x, LONG_MS / 2, NULL));
    TK_OK(t, pair_scatter(x, LONG_MS / 2, NULL));
    pair_expect_gather(t, x, 1);
    pair_expect_scatter(t, x, 1);
    if (t->rank == 0)
        TK_CHECK(t, pthread_join(thread, NULL) == 0);
    else
        (void)meet_on_channel(&meet);
    TK_EQ_INT(t, SYMMEM_OK, meet.status);
    TK_OK(t, symmem_fused_all_gather_matmul(x->workspace, &x->shard.dl, 0, 1, x->bs, NULL, x->outs,
                                            info_of(t, x->workspace).channel_count - 1, LONG_MS,
                                            NULL, NULL));
}

static void check_apart(struct tk *t, struct fused_pair *x, int kind, symmem_stream *stream) {
    const int64_t other_shape[2] = {PAIR_ROWS / 2, PAIR_K * 2};
    bool odd = t->rank == t->last;
    DLTensor other = x->shard.dl;
    int64_t strides[2] = {PAIR_K * 2, 1}, shape[2] = {other_shape[0], other_shape[1]};
    struct fused_tensor wide_b, few_out;
    const int64_t b_shape[2] = {PAIR_K * 2, PAIR_N},
                  out_shape[2] = {PAIR_ROWS / 2 * t->world_size, PAIR_N};
    fused_make(t, &wide_b, SYMMEM_FLOAT32, 2, b_shape, 0);
    fused_make(t, &few_out, SYMMEM_FLOAT32, 2, out_shape, 0);
    const DLTensor *bs[1] = {&wide_b.dl}, *outs[1] = {&few_out.dl};
    other.shape = shape;
    other.strides = strides;
    symmem_status status;
    uint32_t limit_ms = LONG_MS;
    if (!odd)
        status = pair_gather(x, limit_ms, stream);
    else if (kind == 0)
        status = symmem_fused_all_gather_matmul(x->workspace, &other, 0, 1, bs, NULL, outs, 0,
                                                limit_ms, stream, NULL);
    else if (kind == 1)
        status = pair_scatter(x, limit_ms, stream);
    else
        status = symmem_barrier(x->workspace, 0, limit_ms, stream);
    TK_FAILS(t, MISMATCH, both_ends(status, stream));
    TK_EQ_INT(t, odd ? 0 : t->last, last_record().failed_rank);
    TK_CHECK(t, !info_of(t, x->workspace).poisoned);
    pair_expect_untouched(t, x);
}

TEST_WITH_AND_WITHOUT_STREAM(fused_faults, ranks_disagree, "SM-FUSED-14", PRODUCTS,
                             .ranks = {2, 3}) {
    struct fused_pair *x = pair_begin(t);
    for (int kind = 0; kind < 3; kind++)
        check_apart(t, x, kind, stream);
    TK_OK(t, both_ends(pair_gather(x, LONG_MS, stream), stream));
    pair_expect_gather(t, x, 1);
}

/* A device's library may wait for all that runs when a product's shape is new to it: not then. */
static void have_had_the_products(struct tk *t, struct fused_pair *x) {
    symmem_stream *stream = tk_stream(t);
    TK_OK(t, pair_gather(x, LONG_MS, stream));
    TK_OK(t, symmem_stream_synchronize(stream, LONG_MS));
    tk_stream_destroy(t, stream);
    fused_set_bytes(t, &x->out, 0x55);
    fused_set_bytes(t, &x->a_out, 0x55);
}

/* Work that is left behind by a stream that could not be destroyed holds up no other stream's. */
TK_TEST(fused_faults, stream_destroyed_in_vain, "SM-STREAM-07,SM-COLL-10",
        .needs = PRODUCTS | SYMMEM_CAP_STREAMS, .ranks = {2, 3}) {
    symmem_event *over = NULL;
    TK_REINIT(t, options.default_timeout_ms = tk_limit_ms(t, 1000));
    struct fused_pair *left = pair_begin(t);
    struct fused_pair *next = pair_begin(t);
    have_had_the_products(t, left);
    have_had_the_products(t, next);
    tk_out_of_band_barrier(t);
    if (t->rank == 0) {
        symmem_stream *stream = NULL;
        TK_REQUIRE_OK(t, symmem_stream_create(t->context, -1, &stream));
        TK_REQUIRE_OK(t, symmem_event_create(t->context, -1, &over));
        TK_OK(t, pair_gather(left, 2 * LONG_MS, stream));
        TK_OK(t, symmem_event_record(over, stream));
        TK_FAILS(t, TIMEOUT, symmem_stream_destroy(stream));
    }
    tk_out_of_band_barrier(t);
    symmem_stream *stream = tk_stream(t);
    TK_OK(t, pair_gather(next, tk_limit_ms(t, 3000), stream));
    TK_OK(t, symmem_stream_synchronize(stream, LONG_MS));
    pair_expect_gather(t, next, 1);
    tk_out_of_band_barrier(t);
    if (t->rank != 0)
        TK_OK(t, pair_gather(left, LONG_MS, NULL));
    else
        TK_OK(t, symmem_event_synchronize(over, LONG_MS));
    pair_expect_gather(t, left, 1);
    symmem_event_destroy(over);
}
