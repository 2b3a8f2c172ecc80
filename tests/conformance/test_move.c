/* SPDX-License-Identifier: BSD-3-Clause */
/* All-gather and broadcast: every byte in its place, and no other. */
#include "backend_table.h"
#include "gathers.h"
#include "work_after.h"

/* --- all-gather ------------------------------------------------------------------------------- */

/* 0 to 130 and primes; everything with the long suite, else a dtype and form for each count. */
TK_TEST(move, all_gather_every_count, "SM-MOVE-01,SM-MOVE-02,SM-COLL-07", .needs = COLLECTIVES,
        .max_ranks = 3, .timeout_s = 60) {
    static const size_t primes[] = {139, 251, 509, 997, 1009};
    uint64_t state = t->seed;
    uint32_t generation = 0;
    TK_REQ(t, "SM-MOVE-01");
    struct places *p = places_on(t, tk_world_group(t));
    for (size_t i = 0; i < 131 + TK_COUNT(primes); i++)
        for (int again = tk_suite_is_long() ? 2 * SYMMEM_DTYPE_COUNT * 3 : 1; again > 0; again--)
            gather_drawn(t, p, &gather_ways[draw(&state, TK_COUNT(gather_ways))], &state,
                         i <= 130 ? i : primes[i - 131], generation++);
}

ON_EACH_SHAPE(move, all_gather_on_every_group_shape, "SM-MOVE-01,SM-MOVE-02", .needs = COLLECTIVES,
              .max_ranks = 8) {
    uint64_t state = t->seed + (uint64_t)shape->count;
    struct places *p = places_on(t, group);
    for (uint32_t i = 0; i < 2 * TK_COUNT(gather_ways); i++)
        gather_drawn(t, p, &gather_ways[i % 3], &state, 1 + draw(&state, 150), i);
}

/* --- shapes ----------------------------------------------------------------------------------- */

TK_TEST(move, all_gather_shapes, "SM-MOVE-03", .needs = COLLECTIVES, .ranks = {2, 3}) {
    struct ops_tensor input, out;
    struct places *p = places_on(t, tk_world_group(t));
    int64_t n = p->size;
    const struct {
        int32_t in_ndim, out_ndim;
        int64_t in[3], out[3];
        bool fits;
    } shapes[] = {
        {0, 1, {0}, {n}, true},
        {1, 1, {1}, {n}, true},
        {2, 2, {3, 4}, {3 * n, 4}, true},
        {3, 3, {2, 3, 5}, {2 * n, 3, 5}, true},
        {2, 2, {0, 4}, {0, 4}, true},
        {2, 2, {3, 0}, {3 * n, 0}, true},
        {0, 0, {0}, {0}, false},
        {0, 2, {0}, {n, 1}, false},
        {1, 2, {4}, {n, 4}, false},
        {1, 1, {4}, {4 * n + 1}, false},
        {1, 1, {4}, {4 * (n + 1)}, false},
        {2, 2, {3, 4}, {3, 4 * n}, false},
        {2, 1, {3, 4}, {12 * n}, false},
        {2, 2, {2, 6}, {4 * n, 3}, false},
        {2, 2, {3, 0}, {3 * n + 1, 0}, false},
    };
    for (size_t i = 0; i < TK_COUNT(shapes); i++) {
        area_upload(t, &p->far);
        symmem_status status = symmem_all_gather_out(
            p->handle, ops_shaped(&input, p->own.at, SYMMEM_INT16, shapes[i].in_ndim, shapes[i].in),
            ops_shaped(&out, p->far.at, SYMMEM_INT16, shapes[i].out_ndim, shapes[i].out), 0,
            shapes[i].fits ? p->limit_ms : 50, NULL);
        TK_CHECK_MSG(t, status == (shapes[i].fits ? SYMMEM_OK : SYMMEM_INVALID_ARGUMENT),
                     "shape %zu: %s", i, symmem_status_name(status));
        if (!shapes[i].fits)
            area_check(t, &p->far, "out after a refusal");
    }
    (void)ops_flat(&input, p->own.at, SYMMEM_INT16, 4);
    (void)ops_flat(&out, p->far.at, SYMMEM_UINT16, 4 * (size_t)n);
    TK_FAILS(t, INVALID_ARGUMENT,
             symmem_all_gather_out(p->handle, &input.dl, &out.dl, 0, 50, NULL));
}

/* One pulls from where the others push to. */
TK_TEST(move, all_gather_forms_differ, "SM-COLL-06", .needs = COLLECTIVES, .ranks = {2, 3}) {
    struct places *p = places_on(t, tk_world_group(t));
    for (int32_t odd = 0; odd < p->size; odd++) {
        bool pulls = p->rank == odd;
        places_upload(t, p);
        TK_FAILS(t, MISMATCH,
                 symmem_all_gather_out(
                     p->handle, FLAT(pulls ? p->own.at : p->far.at, SYMMEM_INT64, 9),
                     FLAT(pulls ? p->far.at : p->own.at, SYMMEM_INT64, 9 * (size_t)p->size), 0,
                     p->limit_ms, NULL));
        places_check(t, p, "a mismatch");
    }
    TK_OK(t, symmem_barrier(p->handle, 0, p->limit_ms, NULL));
}

/* --- broadcast -------------------------------------------------------------------------------- */

static void broadcast_once(struct tk *t, struct places *p, symmem_dtype dtype, size_t count,
                           size_t at, int32_t root, uint32_t generation) {
    size_t bytes = count * symmem_dtype_size(dtype);
    area_clear(&p->own);
    move_fill(p->own.expected + at, bytes, p->rank, generation);
    area_upload(t, &p->own);
    bool held = TK_OK(t, symmem_broadcast(p->handle, FLAT(p->own.at + at, dtype, count), root,
                                          (int32_t)generation % 3, p->limit_ms, NULL));
    move_fill(p->own.expected + at, bytes, root, generation);
    held = held && area_check(t, &p->own, "the block");
    TK_CHECK_MSG(t, held, "%zu %s at byte %zu from rank %d", count, symmem_dtype_name(dtype), at,
                 root);
}

ON_EACH_SHAPE(move, broadcast_on_every_group_shape, "SM-MOVE-04", .needs = COLLECTIVES,
              .max_ranks = 8) {
    uint64_t state = t->seed + (uint64_t)shape->count;
    struct places *p = places_on(t, group);
    for (int32_t i = 0; i < 2 * p->size; i++) {
        symmem_dtype dtype = draw(&state, SYMMEM_DTYPE_COUNT);
        broadcast_once(t, p, dtype, 1 + draw(&state, 200),
                       draw(&state, 40) * symmem_dtype_size(dtype), i % p->size, (uint32_t)i);
    }
}

TK_TEST(move, broadcast_every_count, "SM-MOVE-04,SM-COLL-07", .needs = COLLECTIVES, .max_ranks = 3,
        .timeout_s = 60) {
    uint64_t state = t->seed;
    struct places *p = places_on(t, tk_world_group(t));
    for (size_t count = 0; count <= 130; count++)
        for (int again = tk_suite_is_long() ? SYMMEM_DTYPE_COUNT : 1; again > 0; again--) {
            symmem_dtype dtype = (symmem_dtype)((count + (size_t)again) % SYMMEM_DTYPE_COUNT);
            broadcast_once(t, p, dtype, count, draw(&state, 40) * symmem_dtype_size(dtype),
                           (int32_t)draw(&state, (uint32_t)p->size), (uint32_t)count);
        }
}

/* --- The all-gather of barriers and copies: one operation, whatever its parts do -------------- */

/* No collectives needed. */
#define REACH SYMMEM_CAP_DIRECT_ACCESS

#define PLACE 256 /* of the handle in its block */

static struct places *places_behind(struct tk *t, symmem_group *group) {
    char *block = tk_alloc(t, AREA_BYTES + PLACE);
    return places_begin(t, tk_rendezvous(t, block + PLACE, group));
}

/* PyTorch's: (64, 64) float32 of the rank's number. */
TK_PORTED(test_low_contention_all_gather, "SM-MOVE-09", .needs = REACH, .max_ranks = 4) {
    enum { ROWS = 64, COUNT = ROWS * 64 };
    float values[COUNT], got[COUNT];
    symmem_handle *handle = tk_handle(t, sizeof(values), tk_world_group(t));
    char *own = ops_own(t, handle), *far = tk_alloc(t, sizeof(values));
    char *out = tk_alloc(t, sizeof(values) * (size_t)t->world_size);
    const int64_t shape[2] = {ROWS, 64}, all[2] = {ROWS * (int64_t)t->world_size, 64};
    for (int symmetric = 0; symmetric < 2; symmetric++) {
        for (int i = 0; i < COUNT; i++)
            values[i] = (float)(t->rank + 100 * symmetric);
        ops_upload(t, symmetric ? own : far, values, sizeof(values));
        TK_OK(t, symmem_low_contention_all_gather_out(
                     handle, SHAPED(symmetric ? own : far, SYMMEM_FLOAT32, 2, shape),
                     SHAPED(out, SYMMEM_FLOAT32, 2, all), 0, LONG_MS, NULL));
        for (int32_t r = 0; r < t->world_size; r++) {
            for (int i = 0; i < COUNT; i++)
                values[i] = (float)(r + 100 * symmetric);
            ops_download(t, got, out + (size_t)r * sizeof(got), sizeof(got));
            ops_expect(t, values, got, SYMMEM_FLOAT32, COUNT, symmetric ? "symmetric" : "staged");
        }
    }
}

ON_EACH_SHAPE(move, low_contention_on_every_group_shape, "SM-MOVE-09,SM-COLL-07", .needs = REACH,
              .max_ranks = 8) {
    uint64_t state = t->seed + (uint64_t)shape->count;
    struct places *p = places_behind(t, group);
    for (uint32_t i = 0; i < (tk_suite_is_long() ? 200 : 8); i++)
        gather_drawn(t, p, &low_contention_ways[draw(&state, 2)], &state, draw(&state, 131), i);
}

/* As calls are in programs, and not in the suite: small ones may go another way. */
TK_TEST(move, low_contention_uncompared, "SM-MOVE-09", .needs = REACH, .max_ranks = 8) {
    TK_REINIT(t, options.check_collectives = 0);
    uint64_t state = t->seed;
    struct places *p = places_behind(t, tk_world_group(t));
    for (uint32_t i = 0; i < 16; i++)
        gather_drawn(t, p, &low_contention_ways[i % 2], &state, draw(&state, 131), i);
}

/* --- arguments -------------------------------------------------------------------------------- */

/* Where others' calls have no workspace. */
TK_TEST(move, low_contention_refusals, "SM-MOVE-09,SM-COLL-03,SM-COLL-04", .needs = REACH,
        .max_ranks = 2) {
    struct ops_tensor input, out;
    struct places *g = places_behind(t, tk_world_group(t));
    places_upload(t, g);
    size_t n = (size_t)g->size, room = AREA_BYTES;
    char *large = tk_alloc(t, 2 * (room + 1) * n);
    const struct {
        const char *what;
        char *in, *out;
        size_t count;
        symmem_status status;
    } calls[] = {
        {"out on the input", g->own.at, g->own.at + 16, 64, SYMMEM_INVALID_ARGUMENT},
        {"out on the workspace", g->far.at, g->own.at + 63, 64, SYMMEM_INVALID_ARGUMENT},
        {"out on a staged input", g->far.at + 63, g->far.at, 64, SYMMEM_INVALID_ARGUMENT},
        {"more than the block holds", large, large + room + 1, room + 1, SYMMEM_OUT_OF_RANGE},
        {"input past the end", g->own.at + room - 8, g->far.at, 64, SYMMEM_OUT_OF_RANGE},
    };
    for (size_t i = 0; i < TK_COUNT(calls); i++) {
        symmem_status status = symmem_low_contention_all_gather_out(
            g->handle, ops_flat(&input, calls[i].in, SYMMEM_UINT8, calls[i].count),
            ops_flat(&out, calls[i].out, SYMMEM_UINT8, calls[i].count * n), 0, 50, NULL);
        TK_CHECK_MSG(t, status == calls[i].status && recorded_as("low_contention_all_gather_out"),
                     "%s: %s", calls[i].what, symmem_status_name(status));
    }
    places_check(t, g, "refused calls");
}

/* Some pull, some stage: none writes its workspace. */
TK_TEST(move, low_contention_forms_differ, "SM-COLL-06",
        .needs = REACH | SYMMEM_CAP_COLLECTIVES, /* others need not compare calls */
        .ranks = {2, 3}) {
    struct places *g = places_behind(t, tk_world_group(t));
    move_fill(g->far.expected, AREA_BYTES, g->rank, 1);
    places_upload(t, g);
    for (int32_t odd = 0; odd < g->size; odd++) {
        char *in = g->rank == odd ? g->far.at + AREA_BYTES / 2 : g->own.at;
        TK_FAILS(t, MISMATCH,
                 symmem_low_contention_all_gather_out(
                     g->handle, FLAT(in, SYMMEM_INT32, 32),
                     FLAT(g->far.at, SYMMEM_INT32, 32 * (size_t)g->size), 0, g->limit_ms, NULL));
        TK_EQ_STR(t, "low_contention_all_gather_out", last_record().operation);
        TK_CHECK(t, !info_of(t, g->handle).poisoned);
    }
    places_check(t, g, "calls that differ");
    TK_OK(t, symmem_barrier(g->handle, 0, g->limit_ms, NULL));
}

/* --- failures --------------------------------------------------------------------------------- */

static symmem_status gather_words(const struct places *g, uint32_t limit_ms,
                                  symmem_stream *stream) {
    return symmem_low_contention_all_gather_out(g->handle, FLAT(g->own.at, SYMMEM_INT32, 32),
                                                FLAT(g->far.at, SYMMEM_INT32, 32 * (size_t)g->size),
                                                2, limit_ms, stream);
}

/* So long that the others, who begin together, are all there before it is over. */
#define LATE_MS tk_limit_ms(t, 250)

/* A rank that does not come: the limit holds, under the operation's name. */
TK_TEST(move, low_contention_missing_rank, "SM-MOVE-10,SM-COLL-08,SM-TIMEOUT-14", .needs = REACH,
        .ranks = {2, 3}) {
    TK_REQ(t, "SM-MOVE-10");
    struct places *g = places_behind(t, tk_world_group(t));
    area_upload(t, &g->far);
    tk_out_of_band_barrier(t);
    if (g->rank != g->size - 1) {
        uint64_t begin_ms = tk_now_ms();
        TK_FAILS(t, TIMEOUT, gather_words(g, LATE_MS, NULL));
        symmem_error_record record = last_record();
        TK_WITHIN(t, 2000, begin_ms);
        TK_EQ_STR(t, "low_contention_all_gather_out", record.operation);
        TK_EQ_INT(t, 2, record.channel);
        check_missing_one(t, &record, g->size - 1, g->size);
        TK_CHECK(t, info_of(t, g->handle).poisoned);
        TK_FAILS(t, POISONED, gather_words(g, LATE_MS, NULL));
        area_check(t, &g->far, "out");
    }
    tk_out_of_band_barrier(t);
    work_after(t, NULL);
}

TK_TEST(move, low_contention_missing_rank_on_a_stream, "SM-MOVE-10,SM-COLL-08,SM-TIMEOUT-14",
        .needs = REACH | SYMMEM_CAP_STREAMS, .ranks = {2, 3}) {
    TK_REQ(t, "SM-MOVE-10");
    struct places *g = places_behind(t, tk_world_group(t));
    symmem_stream *stream = tk_stream(t);
    tk_out_of_band_barrier(t);
    if (g->rank != 0) {
        symmem_error_record record;
        TK_OK(t, gather_words(g, LATE_MS, stream));
        TK_FAILS(t, TIMEOUT, symmem_stream_synchronize(stream, LONG_MS));
        record = last_record();
        TK_EQ_STR(t, "low_contention_all_gather_out", record.operation);
        check_missing_one(t, &record, 0, g->size);
    }
    tk_out_of_band_barrier(t);
    work_after(t, stream);
}

/* The active backend's table once more, with a copy that can be made to fail: so it does for every
 * backend, whatever failpoints that has. */
static void change_copy(flat_backend *table);
static struct table_twin failing = {.name = "suite_failing_copy", .change = change_copy};
/* In the rank's own thread: which copy from now on fails, and with what; 0: none. */
static _Thread_local int fails_in;
static _Thread_local symmem_status fails_with;

static symmem_status copy_or_fail(void *instance, int32_t device, void *dst, const void *src,
                                  size_t bytes, const symmem_exec *exec) {
    if (fails_in > 0 && --fails_in == 0)
        return fails_with;
    return failing.real->copy->copy(instance, device, dst, src, bytes, exec);
}

static void change_copy(flat_backend *table) {
    table->copy = copy_or_fail;
}

static void fail_copy(int nth, symmem_status status) {
    fails_in = nth;
    fails_with = status;
}

/* A part of one rank's fails, between the barriers or, on a stream, where it is enqueued: no rank
 * waits for the rest of it. */
static void part_that_fails(struct tk *t, symmem_stream *stream, symmem_status failure) {
    struct places *g = places_behind(t, tk_world_group(t));
    g->limit_ms = tk_limit_ms(t, 3000);
    if (g->rank == 0)
        fail_copy(stream == NULL ? 2 : 1, failure);
    uint64_t begin_ms = tk_now_ms();
    symmem_status status = gather_words(g, g->limit_ms, stream);
    if (g->rank == 0) {
        TK_STATUS(t, failure, status);
        TK_EQ_INT(t, 0, fails_in);
        TK_CHECK(t, recorded_as("low_contention_all_gather_out"));
        TK_EQ_INT(t, 2, last_record().channel);
        TK_CHECK(t, info_of(t, g->handle).poisoned);
    }
    fail_copy(0, SYMMEM_OK);
    if (stream != NULL) {
        TK_STATUS(t, g->rank == 0 ? failure : SYMMEM_OK, status);
        begin_ms = tk_now_ms();
        status = symmem_stream_synchronize(stream, g->limit_ms);
    }
    if (g->rank != 0 || stream != NULL)
        TK_STATUS_EITHER(t, SYMMEM_POISONED, SYMMEM_OK, status);
    if (g->rank != 0)
        TK_WITHIN(t, 2000, begin_ms);
    tk_out_of_band_barrier(t);
    work_after(t, stream);
    TK_OK(t, symmem_handle_reset(g->handle, g->limit_ms));
    TK_OK(t, gather_words(g, g->limit_ms, NULL));
}

TK_TEST(move, low_contention_part_that_fails, "SM-MOVE-10,SM-TIMEOUT-14", .needs = REACH,
        .ranks = {2, 3}, .flags = TK_NO_BACKEND) {
    TK_REQ(t, "SM-MOVE-10");
    use_twin(t, &failing);
    part_that_fails(t, NULL, SYMMEM_SYSTEM);
}

TK_TEST(move, low_contention_part_that_cannot_be_enqueued, "SM-MOVE-10,SM-TIMEOUT-14",
        .needs = REACH | SYMMEM_CAP_STREAMS, .ranks = {2, 3}, .flags = TK_NO_BACKEND) {
    TK_REQ(t, "SM-MOVE-10");
    use_twin(t, &failing);
    part_that_fails(t, tk_stream(t), SYMMEM_OUT_OF_MEMORY);
}
