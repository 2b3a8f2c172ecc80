/* SPDX-License-Identifier: BSD-3-Clause */
/* The product whose input arrives chunk by chunk. */
#include "fused_help.h"
#include "work_after.h"

#define CHUNKS 4
#define CHUNK_ROWS 3
#define ROWS (CHUNKS * CHUNK_ROWS)
#define K 5
#define N 6

struct arrival {
    struct fused_tensor a, b, out;
    struct ops_tensor words;
    uint32_t *signals; /* in the device's memory */
    const DLTensor *signals_dl;
};

static struct arrival *begin(struct tk *t, symmem_dtype dtype, int64_t rows, int64_t chunks,
                             bool b_columns) {
    struct arrival *x = tk_scratch(t, sizeof *x);
    const int64_t a_shape[2] = {rows, K}, b_shape[2] = {K, N}, out_shape[2] = {rows, N};
    const uint32_t none[16] = {0};
    TK_REQUIRE(t, chunks <= 16);
    fused_make(t, &x->a, dtype, 2, a_shape, 0);
    if (b_columns)
        fused_make_columns(t, &x->b, dtype, K, N);
    else
        fused_make(t, &x->b, dtype, 2, b_shape, 0);
    fused_make(t, &x->out, dtype, 2, out_shape, 0);
    fused_fill(&x->a, t->rank, 1, true);
    fused_fill(&x->b, 9, 1, true);
    fused_upload(t, &x->a);
    fused_upload(t, &x->b);
    fused_set_bytes(t, &x->out, 0x55);
    x->signals = tk_alloc(t, sizeof none);
    ops_upload(t, x->signals, none, sizeof none);
    x->signals_dl = ops_flat(&x->words, x->signals, SYMMEM_UINT32, (size_t)chunks);
    return x;
}

static void expect_product(struct tk *t, struct arrival *x) {
    struct fused_sum sum;
    fused_sum_make(t, &sum, x->out.count);
    fused_sum_add(&sum, x->a.values, x->a.shape[0], K, x->b.values, N, N, NULL, NULL);
    fused_sum_expect(t, &sum, &x->out, symmem_dtype_size(x->out.dtype) > 2, K, 1, "out");
}

static symmem_status multiply(struct tk *t, const struct arrival *x, int64_t pivot,
                              uint32_t limit_ms, symmem_stream *stream) {
    return symmem_async_input_mm(t->context, &x->a.dl, &x->b.dl, x->signals_dl, pivot, &x->out.dl,
                                 limit_ms, stream);
}

/* All signals are there: the product, with both orders of b; the words stay. */
TK_TEST(fused_async, all_there, "SM-FUSED-07", .needs = SYMMEM_CAP_MATMUL, .max_ranks = 1) {
    static const symmem_dtype dtypes[] = {SYMMEM_FLOAT32, SYMMEM_BFLOAT16, SYMMEM_FLOAT64};
    for (int i = 0; i < 3; i++) {
        const uint32_t set[CHUNKS] = {1, 7, 0x80000000u, 2};
        uint32_t after[CHUNKS] = {0};
        struct arrival *x = begin(t, dtypes[i], ROWS, CHUNKS, i == 0);
        ops_upload(t, x->signals, set, sizeof set);
        TK_OK(t, multiply(t, x, i, LONG_MS, NULL));
        expect_product(t, x);
        ops_download(t, after, x->signals, sizeof after);
        TK_CHECK(t, memcmp(set, after, sizeof set) == 0);
    }
}

/* The first chunk of a row is what the user's product sees of each call. */
struct order_log {
    const char *a;
    int count;
    int64_t first_rows[CHUNKS + 1];
};

static symmem_status log_order(void *arg, const symmem_matmul *product, void *native_stream) {
    struct order_log *log = arg;
    if (log->count <= CHUNKS)
        log->first_rows[log->count] =
            ((const char *)product->a - log->a) / (int64_t)sizeof(float) / K;
    log->count++;
    return product->m == CHUNK_ROWS && product->signals == NULL ? SYMMEM_OK : SYMMEM_MISMATCH;
}

/* Chunks arrive out of order while the product waits on its stream. */
TK_TEST(fused_async, as_they_arrive, "SM-FUSED-07", .needs = SYMMEM_CAP_MATMUL | SYMMEM_CAP_STREAMS,
        .max_ranks = 1) {
    symmem_stream *stream = tk_stream(t);
    struct arrival *x = begin(t, SYMMEM_FLOAT32, ROWS, CHUNKS, false);
    /* The chunk is written only now: read too early it would be all zeros. */
    double *late = tk_scratch(t, x->a.count * sizeof *late);
    memcpy(late, x->a.values, x->a.count * sizeof *late);
    memset(x->a.values, 0, x->a.count * sizeof *late);
    fused_upload(t, &x->a);
    TK_OK(t, multiply(t, x, 2, LONG_MS, stream));
    for (int i = 0; i < CHUNKS; i++) {
        static const int order[CHUNKS] = {1, 2, 0, 3};
        size_t first = (size_t)order[i] * CHUNK_ROWS * K;
        float rows[CHUNK_ROWS * K];
        tk_sleep_ms(2);
        TK_CHECK_MSG(t, !is_idle(t, stream), "the product ended before chunk %d was there",
                     order[i]);
        for (size_t at = 0; at < CHUNK_ROWS * K; at++)
            rows[at] = (float)late[first + at];
        memcpy(x->a.values + first, late + first, TK_COUNT(rows) * sizeof *late);
        ops_upload(t, x->a.memory + first * sizeof(float), rows, sizeof rows);
        TK_OK(t, symmem_stream_write_value32(t->context, x->signals_dl, order[i], 1, NULL));
    }
    tk_synchronize(t, stream);
    expect_product(t, x);
}

TK_TEST(fused_async, order_of_chunks, "SM-FUSED-07,SM-FUSED-11", .needs = SYMMEM_CAP_MATMUL,
        .max_ranks = 1) {
    const uint32_t set[CHUNKS] = {1, 1, 1, 1};
    TK_REQ(t, "SM-FUSED-07");
    struct arrival *x = begin(t, SYMMEM_FLOAT32, ROWS, CHUNKS, false);
    ops_upload(t, x->signals, set, sizeof set);
    for (int64_t pivot = 0; pivot < CHUNKS; pivot++) {
        struct order_log log = {.a = x->a.memory};
        TK_OK(t, symmem_set_matmul(t->context, log_order, &log));
        TK_OK(t, multiply(t, x, pivot, LONG_MS, NULL));
        TK_EQ_INT(t, CHUNKS, log.count);
        for (int i = 0; i < CHUNKS; i++)
            TK_EQ_INT(t, (pivot + i) % CHUNKS * CHUNK_ROWS, log.first_rows[i]);
    }
    TK_OK(t, symmem_set_matmul(t->context, NULL, NULL));
}

/* One chunk does not come: those before it are done, the others untouched. */
TEST_WITH_AND_WITHOUT_STREAM(fused_async, chunk_missing, "SM-FUSED-08,SM-TIMEOUT-14",
                             SYMMEM_CAP_MATMUL, .max_ranks = 1) {
    const uint32_t some[CHUNKS] = {1, 0, 1, 1};
    uint64_t begin_ms = tk_now_ms();
    TK_REQ(t, "SM-FUSED-08");
    struct arrival *x = begin(t, SYMMEM_FLOAT32, ROWS, CHUNKS, false);
    ops_upload(t, x->signals, some, sizeof some);
    symmem_status status = multiply(t, x, 3, 30, stream);
    if (stream != NULL) {
        TK_OK(t, status);
        status = symmem_stream_synchronize(stream, LONG_MS);
    }
    TK_FAILS(t, TIMEOUT, status);
    TK_SAYS(t, "chunk 1 ");
    TK_WITHIN(t, 5000, begin_ms);
    size_t row = N * sizeof(float), chunk = CHUNK_ROWS * row;
    uint8_t out[ROWS * N * sizeof(float)];
    ops_download(t, out, x->out.memory, sizeof out);
    bool untouched = true;
    for (size_t i = chunk; i < 3 * chunk; i++)
        untouched = untouched && out[i] == 0x55;
    TK_CHECK_MSG(t, untouched, "rows behind the missing chunk were written");
    work_after(t, stream);
}

/* The product on a stream forked from `stream` and joined to it. */
static symmem_graph *capture_forked(struct tk *t, const struct arrival *x, symmem_stream *stream) {
    symmem_stream *side = tk_stream(t);
    symmem_event *event = tk_event(t);
    TK_OK(t, symmem_stream_begin_capture(stream));
    let_follow(t, side, event, stream);
    TK_OK(t, multiply(t, x, 0, LONG_MS, side));
    let_follow(t, stream, event, side);
    symmem_graph *graph = tk_end_capture(t, stream);
    tk_stream_destroy(t, side);
    return graph;
}

/* A call that failed to destroy the stream waits for the chunk no more, whatever the limit was, and
 * whatever stream of a graph's the product is on: then it is the launch that is given up. */
static void give_up(struct tk *t, bool by_graph) {
    symmem_stream *stream = NULL;
    TK_REINIT(t, options.default_timeout_ms = 50);
    struct arrival *x = begin(t, SYMMEM_FLOAT32, ROWS, CHUNKS, false);
    TK_REQUIRE_OK(t, symmem_stream_create(t->context, -1, &stream));
    symmem_event *over = tk_event(t);
    if (by_graph)
        TK_OK(t, symmem_graph_launch(capture_forked(t, x, stream), stream));
    else
        TK_OK(t, multiply(t, x, 0, LONG_MS, stream));
    TK_OK(t, symmem_event_record(over, stream));
    TK_FAILS(t, TIMEOUT, symmem_stream_destroy(stream));
    TK_OK(t, symmem_event_synchronize(over, tk_limit_ms(t, 3000)));
    work_after(t, NULL);
    fused_expect_bytes(t, &x->out, 0x55, "out");
}

TK_TEST(fused_async, given_up, "SM-LIFE-13,SM-LIFE-27,SM-STREAM-17,SM-TIMEOUT-14",
        .needs = SYMMEM_CAP_MATMUL | SYMMEM_CAP_STREAMS, .max_ranks = 1) {
    give_up(t, false);
}

TK_TEST(fused_async, launch_given_up, "SM-LIFE-13,SM-LIFE-27,SM-STREAM-17,SM-TIMEOUT-14",
        .needs = SYMMEM_CAP_MATMUL | SYMMEM_CAP_STREAMS | SYMMEM_CAP_CAPTURE, .max_ranks = 1) {
    give_up(t, true);
}

/* Those of the first `count` chunks, but for one; -1: for none. */
static void put_words(struct tk *t, const struct arrival *x, int count, int missing) {
    uint32_t words[CHUNKS];
    for (int i = 0; i < CHUNKS; i++)
        words[i] = i < count && i != missing;
    ops_upload(t, x->signals, words, sizeof words);
}

/* In a graph: each launch looks at the words of its time, and a launch whose chunk does not come
 * does not harm the next one. */
TK_TEST(fused_async, replayed, "SM-FUSED-09,SM-TIMEOUT-14",
        .needs = SYMMEM_CAP_MATMUL | SYMMEM_CAP_STREAMS | SYMMEM_CAP_CAPTURE, .max_ranks = 1) {
    symmem_stream *stream = tk_stream(t);
    TK_REQ(t, "SM-FUSED-09");
    struct arrival *x = begin(t, SYMMEM_FLOAT32, ROWS, CHUNKS, true);
    TK_REQUIRE_OK(t, symmem_stream_begin_capture(stream));
    TK_OK(t, multiply(t, x, 1, tk_limit_ms(t, 100), stream));
    symmem_graph *graph = tk_end_capture(t, stream);
    for (int launch = 0; launch < 6; launch++) {
        bool late = launch % 3 == 1;
        put_words(t, x, CHUNKS, late ? 2 : -1);
        fused_fill(&x->a, t->rank, (uint32_t)launch, true);
        fused_upload(t, &x->a);
        fused_set_bytes(t, &x->out, 0x55);
        TK_OK(t, symmem_graph_launch(graph, stream));
        if (!late) {
            tk_synchronize(t, stream);
            expect_product(t, x);
            continue;
        }
        TK_FAILS(t, TIMEOUT, symmem_stream_synchronize(stream, LONG_MS));
        TK_SAYS(t, "chunk 2 ");
        TK_OK(t, symmem_stream_synchronize(stream, LONG_MS));
    }
    work_after(t, stream);
}

/* Computes nothing; the call of that number fails, and says when. */
struct failing {
    int calls, fails_at;
    uint64_t failed_ms;
};

static symmem_status fail_at(void *arg, const symmem_matmul *product, void *native_stream) {
    struct failing *own = arg;
    if (own->calls++ != own->fails_at)
        return SYMMEM_OK;
    own->failed_ms = tk_now_ms();
    return SYMMEM_UNSUPPORTED;
}

/* Nothing of what failed is left. */
static void expect_works(struct tk *t, struct arrival *x, symmem_stream *stream) {
    TK_OK(t, symmem_set_matmul(t->context, NULL, NULL));
    put_words(t, x, CHUNKS, -1);
    TK_OK(t, multiply(t, x, 0, LONG_MS, stream));
    tk_synchronize(t, stream);
    expect_product(t, x);
}

/* A backend that runs streams itself gets to a product with its chunk only. */
static void check_failure(struct tk *t, int words, int fails_at) {
    struct failing own = {.fails_at = fails_at};
    /* What it waits for and does not get lasts as long, the rest ends long before. */
    const uint32_t limit_ms = tk_limit_ms(t, words <= fails_at ? 1000 : 3000);
    struct arrival *x = begin(t, SYMMEM_FLOAT32, ROWS, CHUNKS, false);
    put_words(t, x, words, -1);
    TK_OK(t, symmem_set_matmul(t->context, fail_at, &own));
    symmem_status status = multiply(t, x, 0, limit_ms, NULL);
    const uint64_t end_ms = tk_now_ms();
    if (words <= fails_at && own.failed_ms == 0) {
        TK_FAILS(t, TIMEOUT, status);
    } else {
        TK_FAILS(t, UNSUPPORTED, status);
        TK_EQ_INT(t, fails_at + 1, own.calls);
        TK_TIMELY(t, end_ms - own.failed_ms < limit_ms / 2,
                  "the call went on for %u ms after its product had failed",
                  (unsigned)(end_ms - own.failed_ms));
    }
    fused_expect_bytes(t, &x->out, 0x55, "out");
    expect_works(t, x, NULL);
}

TK_TEST(fused_async, product_fails, "SM-FUSED-15", .needs = SYMMEM_CAP_MATMUL, .max_ranks = 1) {
    check_failure(t, 1, 0);
    check_failure(t, 3, 2);
    check_failure(t, 0, 0);
}

/* The words are set only after the call, and those of later chunks never. */
static void check_failure_on(struct tk *t, symmem_stream *stream, int fails_at) {
    struct failing own = {.fails_at = fails_at};
    const uint32_t limit_ms = LONG_MS;
    const uint64_t begin_ms = tk_now_ms();
    struct arrival *x = begin(t, SYMMEM_FLOAT32, ROWS, CHUNKS, false);
    TK_OK(t, symmem_set_matmul(t->context, fail_at, &own));
    symmem_status status = multiply(t, x, 0, limit_ms, stream);
    TK_TIMELY(t, tk_now_ms() - begin_ms < limit_ms / 2, "the call waited for a chunk");
    for (int i = 0; i <= fails_at; i++)
        TK_OK(t, symmem_stream_write_value32(t->context, x->signals_dl, i, 1, NULL));
    const symmem_status late = symmem_stream_synchronize(stream, limit_ms);
    TK_TIMELY(t, tk_now_ms() - begin_ms < limit_ms / 2, "the stream waited for a chunk");
    TK_FAILS(t, UNSUPPORTED, status != SYMMEM_OK ? status : late);
    TK_EQ_INT(t, fails_at + 1, own.calls);
    fused_expect_bytes(t, &x->out, 0x55, "out");
    expect_works(t, x, stream);
}

TK_TEST(fused_async, product_fails_on_stream, "SM-FUSED-15",
        .needs = SYMMEM_CAP_MATMUL | SYMMEM_CAP_STREAMS, .max_ranks = 1) {
    symmem_stream *stream = tk_stream(t);
    check_failure_on(t, stream, 0);
    check_failure_on(t, stream, 2);
}

TK_TEST(fused_async, refusals, "SM-FUSED-10", .needs = SYMMEM_CAP_MATMUL, .max_ranks = 1) {
    struct arrival *x = begin(t, SYMMEM_FLOAT32, ROWS, CHUNKS, false);
#define CALL(a_, b_, signals_, pivot_, out_)                                                       \
    symmem_async_input_mm(t->context, a_, b_, signals_, pivot_, out_, 30, NULL)
    const DLTensor *a = &x->a.dl, *b = &x->b.dl, *out = &x->out.dl;
    TK_FAILS(t, OUT_OF_RANGE, CALL(a, b, x->signals_dl, CHUNKS, out));
    TK_FAILS(t, OUT_OF_RANGE, CALL(a, b, x->signals_dl, -1, out));
    TK_FAILS(t, INVALID_ARGUMENT, CALL(NULL, b, x->signals_dl, 0, out));
    TK_FAILS(t, INVALID_ARGUMENT, CALL(a, b, NULL, 0, out));
    TK_FAILS(t, INVALID_ARGUMENT, CALL(b, a, x->signals_dl, 0, out));
    TK_FAILS(t, INVALID_ARGUMENT, CALL(a, NULL, x->signals_dl, 0, out));
    TK_FAILS(t, INVALID_ARGUMENT, CALL(a, b, x->signals_dl, 0, NULL));
    TK_FAILS(t, INVALID_ARGUMENT, CALL(a, b, x->signals_dl, 0, a));
    OPS_WRONG_MEMBERS(t, x->a.dl, true, CALL(a, b, x->signals_dl, 0, out));
    OPS_WRONG_MEMBERS(t, x->b.dl, true, CALL(a, b, x->signals_dl, 0, out));
    OPS_WRONG_MEMBERS(t, x->out.dl, true, CALL(a, b, x->signals_dl, 0, out));
    DLTensor overlapping = x->out.dl;
    overlapping.data = x->a.memory;
    TK_FAILS(t, INVALID_ARGUMENT, CALL(a, b, x->signals_dl, 0, &overlapping));
    TK_FAILS(t, INVALID_ARGUMENT, CALL(a, b, FLAT(x->signals, SYMMEM_UINT32, 5), 0, out));
    TK_FAILS(t, INVALID_ARGUMENT, CALL(a, b, FLAT(x->signals, SYMMEM_UINT32, 0), 0, out));
    TK_FAILS(t, INVALID_ARGUMENT, CALL(a, b, FLAT(x->signals, SYMMEM_INT32, 4), 0, out));
    TK_FAILS(t, MISALIGNED, CALL(a, b, FLAT((char *)x->signals + 2, SYMMEM_UINT32, 4), 0, out));
#undef CALL
    fused_expect_bytes(t, &x->out, 0x55, "out");
}

/*
 * PyTorch's native form: own shard and its signal first, the product waits for all others while a
 * second stream copies them and sets their signals.
 */
TK_PORTED(test_fused_all_gather_matmul_native, "SM-FUSED-07",
          .needs = PRODUCTS | SYMMEM_CAP_STREAMS, .max_ranks = 4) {
    symmem_stream *stream = tk_stream(t), *copies = tk_stream(t);
    size_t shard = CHUNK_ROWS * K * sizeof(float);
    symmem_handle *handle = tk_handle(t, shard, tk_world_group(t));
    struct arrival *x = begin(t, SYMMEM_FLOAT32, CHUNK_ROWS * t->world_size, t->world_size, true);
    symmem_event *start = tk_event(t);
    symmem_event *done = tk_event(t);
    for (int32_t r = 0; r < t->world_size; r++) {
        struct fused_tensor theirs = x->a;
        theirs.count = CHUNK_ROWS * K;
        theirs.values = x->a.values + (size_t)r * theirs.count;
        fused_fill(&theirs, r, 3, true);
    }
    float own[CHUNK_ROWS * K];
    for (int i = 0; i < CHUNK_ROWS * K; i++)
        own[i] = (float)x->a.values[t->rank * CHUNK_ROWS * K + i];
    tk_write(t, handle, t->rank, 0, own, shard);
    fused_set_bytes(t, &x->a, 0x55);
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, stream));
    let_follow(t, copies, start, stream);
    for (int32_t step = 0; step < t->world_size; step++) {
        int32_t peer = (t->rank + step) % t->world_size;
        symmem_stream *on = step == 0 ? stream : copies;
        TK_OK(t, symmem_get(handle, peer, 0, x->a.memory + (size_t)peer * shard, shard, on));
        TK_OK(t, symmem_stream_write_value32(t->context, x->signals_dl, peer, 1, on));
        if (step == 0)
            TK_OK(t, multiply(t, x, t->rank, LONG_MS, stream));
    }
    let_follow(t, stream, done, copies);
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, stream));
    tk_synchronize(t, stream);
    fused_expect(t, &x->a, NULL, "the gathered A");
    expect_product(t, x);
}

/* A is gathered by multicast, into symmetric memory, and multiplied where it lies. */
TK_PORTED(test_multimem_all_gather_matmul, "SM-FUSED-07", .needs = PRODUCTS | SYMMEM_CAP_MULTICAST,
          .max_ranks = 4) {
    struct ops_tensor in, all;
    size_t count = CHUNK_ROWS * K, shard = count * sizeof(float);
    symmem_handle *handle = tk_handle(t, shard * (size_t)t->world_size, tk_world_group(t));
    const uint32_t there = 1;
    struct arrival *x = begin(t, SYMMEM_FLOAT32, CHUNK_ROWS * t->world_size, 1, false);
    ops_upload(t, x->signals, &there, sizeof there);
    if (info_of(t, handle).multicast_ptr == NULL) /* not allowed here, or a group of one */
        TK_FAILS(t, UNSUPPORTED,
                 symmem_multimem_all_gather_out(
                     handle, ops_flat(&in, x->a.memory, SYMMEM_FLOAT32, count),
                     ops_flat(&all, ops_own(t, handle), SYMMEM_FLOAT32, x->a.count), 0, 50, NULL));
    else {
        const char *own = x->a.memory + (size_t)t->rank * shard;
        TK_OK(t, symmem_multimem_all_gather_out(
                     handle, ops_flat(&in, (char *)(uintptr_t)own, SYMMEM_FLOAT32, count),
                     ops_flat(&all, ops_own(t, handle), SYMMEM_FLOAT32, x->a.count), 0, LONG_MS,
                     NULL));
        for (int32_t r = 0; r < t->world_size; r++) {
            struct fused_tensor theirs = x->a; /* rank r's part of what rank r has in all of a */
            theirs.values = tk_scratch(t, x->a.count * sizeof(double));
            fused_fill(&theirs, r, 1, true);
            memcpy(x->a.values + (size_t)r * count, theirs.values + (size_t)r * count,
                   count * sizeof(double));
        }
        DLTensor gathered = x->a.dl;
        gathered.data = ops_own(t, handle);
        TK_OK(t, symmem_async_input_mm(t->context, &gathered, &x->b.dl, x->signals_dl, 0,
                                       &x->out.dl, LONG_MS, NULL));
        expect_product(t, x);
    }
}
