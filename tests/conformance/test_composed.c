/* SPDX-License-Identifier: BSD-3-Clause */
/* Operations that are composed of several entries, on streams: once a part has failed, the later
 * ones do nothing, and the failure is told once. */
#include "fused_pair.h"
#include "move_help.h"
#include "sync_help.h"

#define COUNT 32

struct gather {
    symmem_handle *handle;
    symmem_stream *stream;
    char *out;
    struct ops_tensor input, result;
    uint32_t limit_ms;
    char step[32]; /* of the backend's own, in the work of a copy; empty if it offers none */
};

/* The last one that a copy passes when its stream gets to it, and that may fail. What the call has
 * passed would fail the call. */
static void find_step(struct tk *t, struct gather *g) {
    struct gate gate = {0};
    if ((t->capabilities & SYMMEM_CAP_HOST_FN) == 0)
        return;
    tk_record_points(t, true);
    TK_OK(t, symmem_stream_host_fn(g->stream, gate_fn, &gate));
    TK_OK(t, symmem_copy(t->context, g->out, ops_own(t, g->handle), 4, g->stream));
    int of_calls = tk_recorded_points(t);
    gate_open(&gate);
    tk_synchronize(t, g->stream);
    tk_record_points(t, false);
    for (int i = of_calls; i < tk_recorded_points(t); i++) {
        int count;
        const char *name = tk_recorded_point(t, i, &count);
        if (ops_own_step(t, name))
            snprintf(g->step, sizeof(g->step), "%s", name);
    }
}

static struct gather *gather_begin(struct tk *t) {
    struct gather *g = tk_scratch(t, sizeof *g);
    size_t bytes = COUNT * sizeof(int32_t);
    int32_t words[COUNT];
    g->handle = tk_handle(t, bytes, tk_world_group(t));
    g->stream = tk_stream(t);
    g->out = tk_alloc(t, bytes * (size_t)t->world_size);
    g->limit_ms = tk_limit_ms(t, 6000);
    for (int i = 0; i < COUNT; i++)
        words[i] = 100 * t->rank + i;
    ops_upload(t, ops_own(t, g->handle), words, bytes);
    (void)ops_flat(&g->input, ops_own(t, g->handle), SYMMEM_INT32, COUNT);
    (void)ops_flat(&g->result, g->out, SYMMEM_INT32, COUNT * (size_t)t->world_size);
    g->step[0] = 0;
    find_step(t, g);
    return g;
}

static symmem_status gather_enqueue(struct gather *g) {
    return symmem_low_contention_all_gather_out(g->handle, &g->input.dl, &g->result.dl, 1,
                                                g->limit_ms, g->stream);
}

static void gather_clear(struct tk *t, struct gather *g) {
    int32_t none[COUNT] = {0};
    for (int32_t r = 0; r < t->world_size; r++)
        ops_upload(t, g->out + (size_t)r * sizeof none, none, sizeof none);
}

/* Whether all is there, or nothing is. */
static void gather_expect(struct tk *t, const struct gather *g, bool there) {
    int32_t found[COUNT], wrong = 0;
    for (int32_t r = 0; r < t->world_size; r++) {
        ops_download(t, found, g->out + (size_t)r * sizeof found, sizeof found);
        for (int i = 0; i < COUNT; i++)
            wrong += found[i] != (there ? 100 * r + i : 0);
    }
    TK_CHECK_MSG(t, wrong == 0,
                 there ? "%d elements of out are wrong"
                       : "%d elements of out were written by parts after the one that failed",
                 (int)wrong);
}

static void expect_gathers_now(struct tk *t, struct gather *g) {
    TK_OK(t, gather_enqueue(g));
    tk_synchronize(t, g->stream);
    gather_expect(t, g, true);
    work_after(t, g->stream);
}

/* Runs what was enqueued, while rank 0's first copy of it fails. */
static void one_that_fails(struct tk *t, struct gather *g, symmem_status enqueued) {
    uint64_t begin_ms = tk_now_ms();
    TK_OK(t, enqueued);
    symmem_status status = symmem_stream_synchronize(g->stream, LONG_MS);
    bool passed = g->step[0] != 0;
    if (t->rank == 0 && passed) {
        symmem_error_record record = last_record();
        TK_FAILS(t, SYSTEM, status);
        TK_EQ_STR(t, "low_contention_all_gather_out", record.operation);
        TK_EQ_INT(t, 1, tk_point_count(t, g->step));
        TK_FAILS(t, SYSTEM, symmem_handle_status(g->handle, NULL));
        gather_expect(t, g, false);
    } else {
        TK_STATUS_EITHER(t, SYMMEM_POISONED, SYMMEM_OK, status);
    }
    TK_TIMELY(t, tk_now_ms() - begin_ms < g->limit_ms / 2, "a peer was waited for");
    TK_OK(t, symmem_stream_synchronize(g->stream, LONG_MS));
    tk_forget_points(t);
    tk_out_of_band_barrier(t);
    TK_OK(t, symmem_handle_reset(g->handle, g->limit_ms));
}

static void fail_first_copy(struct tk *t, const struct gather *g) {
    if (t->rank == 0 && g->step[0] != 0)
        tk_on_point(t, g->step, 1, (struct tk_action){.status = SYMMEM_SYSTEM});
    if (t->rank == 0 && g->step[0] == 0)
        tk_note(t, "a copy's work passes no step of the backend's own: none is made to fail");
}

TK_TEST(composed, copy_fails, "SM-COLL-15,SM-COLL-21,SM-TIMEOUT-14",
        .needs = SYMMEM_CAP_STREAMS | SYMMEM_CAP_DIRECT_ACCESS, .ranks = {2, 4}) {
    TK_REQ(t, "SM-COLL-15");
    struct gather *g = gather_begin(t);
    gather_clear(t, g);
    fail_first_copy(t, g);
    one_that_fails(t, g, gather_enqueue(g));
    expect_gathers_now(t, g);
}

TK_TEST(composed, copy_fails_in_a_graph, "SM-COLL-15,SM-COLL-21,SM-TIMEOUT-14",
        .needs = SYMMEM_CAP_STREAMS | SYMMEM_CAP_DIRECT_ACCESS | SYMMEM_CAP_CAPTURE,
        .ranks = {2, 4}) {
    TK_REQ(t, "SM-COLL-15");
    struct gather *g = gather_begin(t);
    TK_REQUIRE_OK(t, symmem_stream_begin_capture(g->stream));
    TK_OK(t, gather_enqueue(g));
    symmem_graph *graph = tk_end_capture(t, g->stream);
    for (int launch = 0; launch < 2; launch++) {
        gather_clear(t, g);
        tk_out_of_band_barrier(t);
        fail_first_copy(t, g);
        one_that_fails(t, g, symmem_graph_launch(graph, g->stream));
        run_graph(t, graph, g->stream);
        gather_expect(t, g, true);
    }
    work_after(t, g->stream);
}

/* The first barrier fails, for no other rank calls. Needs no step of the backend's own to fail. */
TK_TEST(composed, barrier_fails, "SM-COLL-15,SM-COLL-21,SM-TIMEOUT-14",
        .needs = SYMMEM_CAP_STREAMS | SYMMEM_CAP_DIRECT_ACCESS, .ranks = {2, 4}) {
    TK_REQ(t, "SM-COLL-15");
    struct gather *g = gather_begin(t);
    gather_clear(t, g);
    if (t->rank == 0) {
        uint32_t limit_ms = g->limit_ms;
        g->limit_ms = 60;
        TK_OK(t, gather_enqueue(g));
        g->limit_ms = limit_ms;
        TK_FAILS(t, TIMEOUT, symmem_stream_synchronize(g->stream, LONG_MS));
        TK_EQ_STR(t, "low_contention_all_gather_out", last_record().operation);
        gather_expect(t, g, false);
        TK_OK(t, symmem_stream_synchronize(g->stream, LONG_MS));
    }
    tk_out_of_band_barrier(t);
    TK_OK(t, symmem_handle_reset(g->handle, g->limit_ms));
    expect_gathers_now(t, g);
}

struct failing {
    atomic_int calls;
    symmem_status status;
};

static symmem_status failing_product(void *arg, const symmem_matmul *product, void *native_stream) {
    struct failing *failing = arg;
    atomic_fetch_add_explicit(&failing->calls, 1, memory_order_relaxed);
    return failing->status;
}

/* A failure that is known while the operation is enqueued is the call's own, any other the
 * stream's.
 */
static symmem_status told_once(symmem_status call, symmem_stream *stream) {
    return call != SYMMEM_OK ? call : symmem_stream_synchronize(stream, LONG_MS);
}

/* Nothing is left to be told, but of earlier parts that a failure which the call told cut short. */
static void expect_told(struct tk *t, symmem_status call, symmem_stream *stream) {
    TK_STATUS_EITHER(t, SYMMEM_OK, call != SYMMEM_OK ? SYMMEM_POISONED : SYMMEM_OK,
                     symmem_stream_synchronize(stream, LONG_MS));
    TK_OK(t, symmem_stream_synchronize(stream, LONG_MS));
}

static symmem_status on_two_streams(const struct fused_pair *x, int form, symmem_stream *stream,
                                    symmem_stream *second) {
    struct pair_call call = pair_call(x);
    call.limit_ms = LONG_MS;
    call.stream = stream;
    call.second = second;
    return pair_run(&call, form);
}

static void expect_gather_now(struct tk *t, struct fused_pair *x, symmem_stream *stream) {
    TK_OK(t, pair_gather(x, LONG_MS, stream));
    tk_synchronize(t, stream);
    pair_expect_gather(t, x, 1);
}

/* Both lanes on one stream: then the first product's failure leaves out all others. */
static void product_fails_with(struct tk *t, symmem_status failure) {
    struct failing failing = {.status = failure};
    symmem_stream *stream = tk_stream(t);
    bool fails = t->rank == t->last;
    TK_REQ(t, "SM-COLL-15");
    struct fused_pair *x = pair_begin(t);
    if (fails)
        TK_OK(t, symmem_set_matmul(t->context, failing_product, &failing));
    uint64_t begin_ms = tk_now_ms();
    symmem_status call = on_two_streams(x, PAIR_GATHER, stream, stream);
    TK_STATUS(t, fails ? failure : SYMMEM_POISONED, told_once(call, stream));
    TK_TIMELY(t, tk_now_ms() - begin_ms < LONG_MS / 2, "a peer was waited for");
    expect_told(t, call, stream);
    TK_EQ_INT(t, fails ? 1 : 0, atomic_load_explicit(&failing.calls, memory_order_relaxed));
    TK_OK(t, symmem_set_matmul(t->context, NULL, NULL));
    TK_OK(t, symmem_handle_reset(x->workspace, LONG_MS));
    expect_gather_now(t, x, stream);
    work_after(t, stream);
}

/* With whatever a product says, MISMATCH too, which of the calls themselves poisons nothing. */
TK_TEST(composed, product_fails, "SM-COLL-15,SM-COLL-21,SM-TIMEOUT-14",
        .needs = SYMMEM_CAP_STREAMS | PRODUCTS, .ranks = {2, 4}) {
    product_fails_with(t, SYMMEM_LIMIT);
    product_fails_with(t, SYMMEM_MISMATCH);
}

/* Fails for what the second stream multiplies first, once all ranks are there: what fails poisons
 * the peers, and theirs would not be asked any more. */
struct fussy {
    struct tk *t;
    const void *out;
};
#define SLOT_FUSSY 7

static symmem_status fussy_product(void *arg, const symmem_matmul *product, void *native_stream) {
    const struct fussy *fussy = arg;
    if (product->out != fussy->out)
        return SYMMEM_OK;
    const uint64_t end_ms = tk_now_ms() + LONG_MS / 2;
    tk_share_u64(fussy->t, SLOT_FUSSY, 1);
    for (int32_t rank = 0; rank < fussy->t->world_size; rank++)
        while (tk_read_u64(fussy->t, rank, SLOT_FUSSY) == 0 && tk_now_ms() < end_ms)
            tk_sleep_ms(1);
    return SYMMEM_LIMIT;
}

/* The second stream tells what happened there, and the first one that it did not get through. */
TK_TEST(composed, product_fails_on_the_second_stream, "SM-COLL-15,SM-COLL-21,SM-TIMEOUT-14",
        .needs = SYMMEM_CAP_STREAMS | PRODUCTS, .ranks = {2, 4}) {
    symmem_stream *stream = tk_stream(t), *second = tk_stream(t);
    uint32_t limit_ms = LONG_MS;
    TK_REQ(t, "SM-COLL-15");
    struct fused_pair *x = pair_begin(t);
    size_t part = PAIR_ROWS * PAIR_N * sizeof(float);
    struct fussy fussy = {
        .t = t, .out = (char *)x->out.dl.data + x->out.dl.byte_offset + (size_t)t->rank * part};
    TK_OK(t, symmem_set_matmul(t->context, fussy_product, &fussy));
    symmem_status call = on_two_streams(x, PAIR_GATHER, stream, second);
    if (call == SYMMEM_OK) {
        TK_FAILS(t, POISONED, symmem_stream_synchronize(stream, limit_ms));
        TK_FAILS(t, LIMIT, symmem_stream_synchronize(second, limit_ms));
    } else {
        TK_FAILS(t, LIMIT, call);
    }
    expect_told(t, call, stream);
    expect_told(t, call, second);
    TK_OK(t, symmem_set_matmul(t->context, NULL, NULL));
    TK_OK(t, symmem_handle_reset(x->workspace, limit_ms));
    expect_gather_now(t, x, stream);
    work_after(t, second);
}

/* The call is told of once, by the first stream, and no harm done. */
static void expect_mismatch(struct tk *t, struct fused_pair *x, symmem_status call,
                            symmem_stream *stream, symmem_stream *second) {
    TK_OK(t, call);
    TK_FAILS(t, MISMATCH, symmem_stream_synchronize(stream, LONG_MS));
    TK_OK(t, symmem_stream_synchronize(second, LONG_MS));
    TK_OK(t, symmem_stream_synchronize(stream, LONG_MS));
    TK_CHECK(t, !info_of(t, x->workspace).poisoned);
    pair_expect_untouched(t, x);
    tk_out_of_band_barrier(t);
}

/* Rank 0 gathers, the others scatter, with a second stream of the caller's: told once, by the
 * first stream, and no harm done. */
TK_TEST(composed, calls_differ_on_two_streams, "SM-COLL-15,SM-COLL-21",
        .needs = SYMMEM_CAP_STREAMS | PRODUCTS, .ranks = {2, 4}) {
    symmem_stream *stream = tk_stream(t), *second = tk_stream(t);
    const int form = t->rank == 0 ? PAIR_GATHER : PAIR_SCATTER;
    struct fused_pair *x = pair_begin(t);
    for (int i = 0; i < 3; i++)
        expect_mismatch(t, x, on_two_streams(x, form, stream, second), stream, second);
    expect_gather_now(t, x, stream);
}

TK_TEST(composed, calls_differ_in_graphs, "SM-COLL-15,SM-COLL-21",
        .needs = SYMMEM_CAP_STREAMS | PRODUCTS | SYMMEM_CAP_CAPTURE, .ranks = {2, 4}) {
    symmem_stream *stream = tk_stream(t);
    struct fused_pair *x = pair_begin(t);
    TK_REQUIRE_OK(t, symmem_stream_begin_capture(stream));
    TK_OK(t, t->rank == 0 ? pair_gather(x, LONG_MS, stream) : pair_scatter(x, LONG_MS, stream));
    symmem_graph *graph = tk_end_capture(t, stream);
    for (int launch = 0; launch < 3; launch++)
        expect_mismatch(t, x, symmem_graph_launch(graph, stream), stream, stream);
    expect_gather_now(t, x, stream);
}
