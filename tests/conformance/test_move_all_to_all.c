/* SPDX-License-Identifier: BSD-3-Clause */
/* All-to-all: splits of every kind, and those that do not fit. */
#include "gathers.h"

#define MAX_RANKS 8

/* How many elements each rank has for each, and one rank's view of that. */
struct exchange {
    symmem_handle *handle;
    int32_t rank, size, channel;
    uint32_t limit_ms;
    struct area own, far;
    size_t table[MAX_RANKS][MAX_RANKS]; /* [from][to], the same on all ranks */
    size_t in_splits[MAX_RANKS], out_splits[MAX_RANKS];
};

static void exchange_init(struct tk *t, struct exchange *x, symmem_group *group) {
    x->handle = tk_handle(t, AREA_BYTES, group);
    symmem_handle_info info = info_of(t, x->handle);
    x->rank = info.rank;
    x->size = info.world_size;
    x->channel = 1;
    x->limit_ms = LONG_MS;
    area_init(&x->own, ops_own(t, x->handle), AREA_BYTES);
    area_init(&x->far, tk_alloc(t, AREA_BYTES), AREA_BYTES);
    area_clear(&x->own);
    area_clear(&x->far);
}

/* Splits in [0, below), of which a third are 0. */
static void draw_table(struct exchange *x, uint64_t *state, uint32_t below) {
    for (int32_t from = 0; from < x->size; from++)
        for (int32_t to = 0; to < x->size; to++)
            x->table[from][to] = draw(state, 3) == 0 ? 0 : draw(state, below);
}

static void take_own(struct exchange *x) {
    for (int32_t r = 0; r < x->size; r++) {
        x->in_splits[r] = x->table[x->rank][r];
        x->out_splits[r] = x->table[r][x->rank];
    }
}

static size_t sum_of(const size_t *splits, int32_t count) {
    size_t sum = 0;
    for (int32_t r = 0; r < count; r++)
        sum += splits[r];
    return sum;
}

/* Loads this rank's input; what must have come out goes into the model by exchange_expect. */
static void exchange_load(struct tk *t, struct exchange *x, size_t width, size_t at,
                          uint32_t generation) {
    take_own(x);
    area_clear(&x->own);
    area_clear(&x->far);
    move_fill(x->own.expected + at, sum_of(x->in_splits, x->size) * width, x->rank, generation);
    area_upload(t, &x->own);
    area_upload(t, &x->far);
}

static bool exchange_expect(struct tk *t, struct exchange *x, size_t width, size_t at,
                            uint32_t generation, const char *what) {
    uint8_t input[AREA_BYTES];
    uint8_t *to = x->far.expected + at;
    for (int32_t r = 0; r < x->size; r++) {
        size_t before = sum_of(x->table[r], x->rank) * width;
        size_t bytes = x->table[r][x->rank] * width;
        move_fill(input, before + bytes, r, generation);
        memcpy(to, input + before, bytes);
        to += bytes;
    }
    return area_check(t, &x->own, what) && area_check(t, &x->far, what);
}

static symmem_status exchange_run(const struct exchange *x, symmem_dtype dtype, size_t in_at,
                                  size_t out_at, const size_t *in_splits, const size_t *out_splits,
                                  symmem_stream *stream) {
    return symmem_all_to_all_out(
        x->handle, FLAT(x->own.at + in_at, dtype, sum_of(x->in_splits, x->size)), in_splits,
        FLAT(x->far.at + out_at, dtype, sum_of(x->out_splits, x->size)), out_splits, x->channel,
        x->limit_ms, stream);
}

/* --- what comes out --------------------------------------------------------------------------- */

static void exchange_once(struct tk *t, struct exchange *x, uint64_t *state, uint32_t below,
                          uint32_t generation) {
    symmem_dtype dtype = draw(state, SYMMEM_DTYPE_COUNT);
    size_t width = symmem_dtype_size(dtype);
    size_t in_at = draw(state, 40) * width, out_at = draw(state, 40) * width;
    in_at += (size_t)x->rank * 3 * width; /* on each rank where it likes */
    draw_table(x, state, below);
    exchange_load(t, x, width, in_at, generation);
    bool held = TK_OK(t, exchange_run(x, dtype, in_at, out_at, x->in_splits, x->out_splits, NULL));
    held = held && exchange_expect(t, x, width, out_at, generation, "uneven parts");
    TK_CHECK_MSG(t, held, "generation %u, %s", generation, symmem_dtype_name(dtype));
}

ON_EACH_SHAPE(move, all_to_all_on_every_group_shape, "SM-MOVE-05", .needs = COLLECTIVES,
              .max_ranks = MAX_RANKS) {
    struct exchange x;
    uint64_t state = t->seed + (uint64_t)shape->count;
    exchange_init(t, &x, group);
    for (uint32_t i = 0; i < (tk_suite_is_long() ? 200 : 6); i++)
        exchange_once(t, &x, &state, 1 + draw(&state, 2000 / (uint32_t)x.size / 8), i);
}

/* With and without arrays, on some ranks only, and nothing at all. */
TK_TEST(move, all_to_all_equal_parts, "SM-MOVE-05,SM-COLL-07", .needs = COLLECTIVES,
        .max_ranks = 4) {
    struct exchange x;
    exchange_init(t, &x, tk_world_group(t));
    for (uint32_t part = 0; part < 36; part++) {
        symmem_dtype dtype = (symmem_dtype)(part % SYMMEM_DTYPE_COUNT);
        size_t width = symmem_dtype_size(dtype);
        for (int32_t i = 0; i < x.size * x.size; i++)
            x.table[i / x.size][i % x.size] = part;
        exchange_load(t, &x, width, 8, part);
        bool in_array = part % 4 == 1 || (part % 4 == 2 && x.rank % 2 == 0);
        bool out_array = part % 4 == 3 || (part % 4 == 2 && x.rank % 2 == 1);
        TK_OK(t, exchange_run(&x, dtype, 8, 8, in_array ? x.in_splits : NULL,
                              out_array ? x.out_splits : NULL, NULL));
        exchange_expect(t, &x, width, 8, part, "equal parts");
    }
}

/* --- refusals --------------------------------------------------------------------------------- */

TK_TEST(move, all_to_all_splits_that_do_not_add_up, "SM-MOVE-06", .needs = COLLECTIVES,
        .max_ranks = 3) {
    struct exchange x;
    uint64_t state = t->seed;
    exchange_init(t, &x, tk_world_group(t));
    draw_table(&x, &state, 20);
    for (int32_t r = 0; r < x.size; r++)
        x.table[r][(r + 1) % x.size] += 5; /* some */
    exchange_load(t, &x, 4, 0, 1);
    const struct {
        int32_t in, out;
        size_t add;
        symmem_status status;
    } wrong[] = {
        {0, -1, 1, SYMMEM_INVALID_ARGUMENT},
        {x.size - 1, -1, SIZE_MAX, SYMMEM_INVALID_ARGUMENT}, /* one less, unless it is 0 */
        {-1, 0, 1, SYMMEM_INVALID_ARGUMENT},
        {-1, x.size - 1, 7, SYMMEM_INVALID_ARGUMENT},
    };
    for (size_t i = 0; i < TK_COUNT(wrong); i++) {
        size_t in[MAX_RANKS], out[MAX_RANKS];
        memcpy(in, x.in_splits, sizeof(in));
        memcpy(out, x.out_splits, sizeof(out));
        size_t *number = wrong[i].in >= 0 ? &in[wrong[i].in] : &out[wrong[i].out];
        *number += *number == 0 && wrong[i].add == SIZE_MAX ? 3 : wrong[i].add;
        TK_STATUS(t, wrong[i].status, exchange_run(&x, SYMMEM_INT32, 0, 0, in, out, NULL));
        TK_EQ_STR(t, "all_to_all_out", last_record().operation);
    }
    /* Modulo 2^64 they add up. */
    size_t huge[MAX_RANKS] = {SIZE_MAX, sum_of(x.in_splits, x.size) + 1};
    if (x.size > 1)
        TK_FAILS(t, OVERFLOW, exchange_run(&x, SYMMEM_INT32, 0, 0, huge, x.out_splits, NULL));
    struct ops_tensor out;
    const DLTensor *input = FLAT(x.own.at, SYMMEM_INT32, 3 * (size_t)x.size + 1);
    (void)ops_flat(&out, x.far.at, SYMMEM_INT32, 3 * (size_t)x.size);
    if (x.size > 1) {
        TK_FAILS(t, INVALID_ARGUMENT,
                 symmem_all_to_all_out(x.handle, input, NULL, &out.dl, NULL, 0, 50, NULL));
        TK_EQ_SIZE(t, (uint64_t)x.size, last_record().expected);
    }
    area_check(t, &x.own, "the block after refusals");
    area_check(t, &x.far, "out after refusals");
    TK_OK(t, exchange_run(&x, SYMMEM_INT32, 0, 0, x.in_splits, x.out_splits, NULL));
    exchange_expect(t, &x, 4, 0, 1, "after refusals");
}

/* Rank `giver` has one element more for `taker` than that expects: all ranks see it. */
static void disagree(struct tk *t, struct exchange *x, int32_t giver, int32_t taker,
                     uint32_t generation) {
    symmem_error_record record;
    exchange_load(t, x, 4, 0, generation);
    if (x->rank == giver)
        x->in_splits[taker]++;
    TK_FAILS(t, MISMATCH, exchange_run(x, SYMMEM_INT32, 0, 0, x->in_splits, x->out_splits, NULL));
    record = last_record();
    TK_EQ_STR(t, "all_to_all_out", record.operation);
    if (x->rank == taker) {
        TK_EQ_INT(t, giver, record.failed_rank);
        TK_EQ_SIZE(t, x->out_splits[giver], record.expected);
        TK_EQ_SIZE(t, x->out_splits[giver] + 1, record.actual);
    } else if (x->rank == giver) {
        TK_EQ_INT(t, taker, record.failed_rank);
        TK_EQ_SIZE(t, x->in_splits[taker], record.expected);
        TK_EQ_SIZE(t, x->in_splits[taker] - 1, record.actual);
    } else {
        TK_EQ_INT(t, taker, record.failed_rank);
    }
    area_check(t, &x->own, "the block after a mismatch");
    area_check(t, &x->far, "out after a mismatch");
    TK_CHECK(t, !info_of(t, x->handle).poisoned);
}

TK_TEST(move, all_to_all_splits_that_do_not_fit, "SM-MOVE-07", .needs = COLLECTIVES,
        .max_ranks = 4) {
    struct exchange x;
    uint64_t state = t->seed;
    exchange_init(t, &x, tk_world_group(t));
    for (int32_t i = 0; i < 2 * x.size; i++) {
        draw_table(&x, &state, 20);
        disagree(t, &x, i % x.size, (i + i / x.size) % x.size, (uint32_t)i);
        /* At once, on the same channel. */
        exchange_load(t, &x, 4, 0, 100 + (uint32_t)i);
        TK_OK(t, exchange_run(&x, SYMMEM_INT32, 0, 0, x.in_splits, x.out_splits, NULL));
        exchange_expect(t, &x, 4, 0, 100 + (uint32_t)i, "after a mismatch");
    }
}

/* All ranks are wrong, each in another way. */
TK_TEST(move, all_to_all_every_split_wrong, "SM-MOVE-07", .needs = COLLECTIVES, .max_ranks = 3) {
    struct exchange x;
    exchange_init(t, &x, tk_world_group(t));
    memset(x.table, 0, sizeof(x.table));
    exchange_load(t, &x, 4, 0, 1);
    for (int32_t r = 0; r < x.size; r++)
        x.out_splits[r] = 1 + (size_t)(x.rank + r) % 3;
    TK_FAILS(t, MISMATCH, exchange_run(&x, SYMMEM_INT32, 0, 0, x.in_splits, x.out_splits, NULL));
    area_check(t, &x.far, "out after a mismatch");
    TK_OK(t, symmem_barrier(x.handle, 1, x.limit_ms, NULL));
}

/* --- the arrays' life ------------------------------------------------------------------------- */

/* Enqueued behind a gate, and captured: the arrays are gone when the operation runs. */
TK_TEST(move, all_to_all_arrays_of_the_call_only, "SM-MOVE-08,SM-COLL-09",
        .needs = COLLECTIVES | SYMMEM_CAP_CAPTURE | SYMMEM_CAP_HOST_FN, .max_ranks = 3) {
    struct exchange x;
    uint64_t state = t->seed;
    struct gate gate = {0};
    exchange_init(t, &x, tk_world_group(t));
    symmem_stream *stream = tk_stream(t);
    draw_table(&x, &state, 30);
    exchange_load(t, &x, 8, 16, 1);
    size_t in[MAX_RANKS], out[MAX_RANKS];
    memcpy(in, x.in_splits, sizeof(in));
    memcpy(out, x.out_splits, sizeof(out));
    TK_OK(t, symmem_stream_host_fn(stream, gate_fn, &gate));
    TK_OK(t, exchange_run(&x, SYMMEM_FLOAT64, 16, 32, in, out, stream));
    memset(in, 0x11, sizeof(in));
    memset(out, 0x11, sizeof(out));
    gate_open(&gate);
    tk_synchronize(t, stream);
    exchange_expect(t, &x, 8, 32, 1, "on a stream");

    memcpy(in, x.in_splits, sizeof(in));
    memcpy(out, x.out_splits, sizeof(out));
    TK_REQUIRE_OK(t, symmem_stream_begin_capture(stream));
    TK_OK(t, exchange_run(&x, SYMMEM_FLOAT64, 16, 32, in, out, stream));
    symmem_graph *graph = tk_end_capture(t, stream);
    memset(in, 0x11, sizeof(in));
    memset(out, 0x11, sizeof(out));
    for (uint32_t i = 2; i < 5; i++) {
        exchange_load(t, &x, 8, 16, i);
        run_graph(t, graph, stream);
        exchange_expect(t, &x, 8, 32, i, "in a graph");
    }
}

/* On two channels at once, one rank a step behind: what it sees of its peers is of its own call. */
TK_TEST(move, all_to_all_on_two_channels, "SM-MOVE-05,SM-COLL-10",
        .needs = COLLECTIVES | SYMMEM_CAP_STREAMS, .ranks = {2, 3}) {
    struct exchange x[2];
    symmem_stream *streams[2];
    uint64_t state = t->seed;
    for (int i = 0; i < 2; i++) {
        exchange_init(t, &x[i], tk_world_group(t));
        x[i].channel = i;
        streams[i] = tk_stream(t);
    }
    x[1].handle = x[0].handle;
    area_init(&x[1].own, x[0].own.at + AREA_BYTES / 2, AREA_BYTES / 2);
    area_init(&x[0].own, x[0].own.at, AREA_BYTES / 2);
    for (int32_t slow = 0; slow < x[0].size; slow++) {
        for (int i = 0; i < 2; i++) {
            draw_table(&x[i], &state, 40);
            exchange_load(t, &x[i], 4, 0, (uint32_t)i);
        }
        tk_out_of_band_barrier(t);
        if (x[0].rank == slow)
            tk_on_point(t, "shm.barrier.after_arrive", 1, (struct tk_action){.delay_ms = 6});
        for (int i = 0; i < 2; i++)
            TK_OK(t, exchange_run(&x[i], SYMMEM_INT32, 0, 0, x[i].in_splits, x[i].out_splits,
                                  streams[i]));
        for (int i = 0; i < 2; i++) {
            tk_synchronize(t, streams[i]);
            exchange_expect(t, &x[i], 4, 0, (uint32_t)i, "one of two channels");
        }
        tk_forget_points(t);
    }
}
