/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What holds for every collective, shown by one_shot_all_reduce: arguments, agreement of the calls,
 * waiting and failing, order. What each operation computes is tested with its family.
 */
#include "ops_help.h"

enum { COUNT = 64 };

/* float32 sum of COUNT elements over the handle's group; out lies in memory of its own. */
struct sum {
    symmem_handle *handle;
    char *own;
    char *out;
    int32_t rank, size;
    uint32_t limit_ms;
};

static struct sum sum_begin(struct tk *t, symmem_group *group) {
    struct sum s = {.handle = tk_handle(t, COUNT * sizeof(float), group),
                    .out = tk_alloc(t, COUNT * sizeof(float)),
                    .limit_ms = tk_scaled_ms(LONG_MS)};
    symmem_handle_info info = info_of(t, s.handle);
    s.own = ops_own(t, s.handle);
    s.rank = info.rank;
    s.size = info.world_size;
    return s;
}

static void sum_load(struct tk *t, const struct sum *s, uint32_t generation) {
    float values[COUNT];
    ops_fill(values, SYMMEM_FLOAT32, COUNT, s->rank, generation);
    ops_upload(t, s->own, values, sizeof(values));
}

static void sum_expect(struct tk *t, const struct sum *s, uint32_t generation, const char *what) {
    float expected[COUNT] = {0}, values[COUNT], got[COUNT];
    for (int32_t r = 0; r < s->size; r++) {
        ops_fill(values, SYMMEM_FLOAT32, COUNT, r, generation);
        for (int i = 0; i < COUNT; i++)
            expected[i] += values[i];
    }
    ops_download(t, got, s->out, sizeof(got));
    ops_expect(t, expected, got, SYMMEM_FLOAT32, COUNT, what);
}

/* Bytes that no result can have. */
static void out_mark(struct tk *t, const struct sum *s) {
    uint8_t bytes[COUNT * sizeof(float)];
    memset(bytes, 0xEE, sizeof(bytes));
    ops_upload(t, s->out, bytes, sizeof(bytes));
}

static void out_untouched(struct tk *t, const struct sum *s) {
    uint8_t expected[COUNT * sizeof(float)], got[COUNT * sizeof(float)];
    memset(expected, 0xEE, sizeof(expected));
    ops_download(t, got, s->out, sizeof(got));
    ops_expect(t, expected, got, SYMMEM_UINT8, sizeof(got), "out after a refusal");
}

static symmem_status sum_count(const struct sum *s, symmem_dtype dtype, size_t count,
                               symmem_reduce_op op, int32_t channel, uint32_t limit_ms,
                               symmem_stream *stream) {
    struct ops_tensor input, out;
    return symmem_one_shot_all_reduce_out(s->handle, ops_flat(&input, s->own, dtype, count), op,
                                          ops_flat(&out, s->out, dtype, count), channel, limit_ms,
                                          stream);
}

static symmem_status sum_run(const struct sum *s, int32_t channel, uint32_t limit_ms,
                             symmem_stream *stream) {
    return sum_count(s, SYMMEM_FLOAT32, COUNT, SYMMEM_SUM, channel, limit_ms, stream);
}

/* --- arguments ------------------------------------------------------------------------------ */

/* One wrong thing about a tensor that is right otherwise. */
struct flaw {
    const char *what;
    symmem_status status;
    void (*apply)(struct ops_tensor *tensor);
};

static int64_t odd_strides[1] = {2}; /* not const, for DLPack; never written */

static void no_data(struct ops_tensor *tensor) {
    tensor->dl.data = NULL;
}
static void no_shape(struct ops_tensor *tensor) {
    tensor->dl.shape = NULL;
}
static void negative_ndim(struct ops_tensor *tensor) {
    tensor->dl.ndim = -1;
}
static void negative_size(struct ops_tensor *tensor) {
    tensor->shape[0] = -1;
}
static void huge_size(struct ops_tensor *tensor) {
    tensor->dl.ndim = 3;
    tensor->shape[0] = tensor->shape[1] = tensor->shape[2] = INT64_C(1) << 40;
}
static void unknown_bits(struct ops_tensor *tensor) {
    tensor->dl.dtype.bits = 24;
}
static void lanes(struct ops_tensor *tensor) {
    tensor->dl.dtype.lanes = 4;
}
static void other_dtype(struct ops_tensor *tensor) {
    tensor->dl.dtype.code = kDLInt;
}
static void other_count(struct ops_tensor *tensor) {
    tensor->shape[0]--;
}
static void other_shape(struct ops_tensor *tensor) {
    tensor->dl.ndim = 2;
    tensor->shape[0] = COUNT / 2;
    tensor->shape[1] = 2;
}
static void gaps(struct ops_tensor *tensor) {
    tensor->shape[0] = COUNT;
    tensor->dl.strides = odd_strides;
}
static void misaligned(struct ops_tensor *tensor) {
    tensor->dl.byte_offset = 2;
}

static const struct flaw flaws[] = {
    {"no data", SYMMEM_INVALID_ARGUMENT, no_data},
    {"no shape", SYMMEM_INVALID_ARGUMENT, no_shape},
    {"negative ndim", SYMMEM_INVALID_ARGUMENT, negative_ndim},
    {"negative size", SYMMEM_INVALID_ARGUMENT, negative_size},
    {"a size that overflows", SYMMEM_OVERFLOW, huge_size},
    {"24 bits", SYMMEM_INVALID_ARGUMENT, unknown_bits},
    {"lanes", SYMMEM_INVALID_ARGUMENT, lanes},
    {"another dtype", SYMMEM_INVALID_ARGUMENT, other_dtype},
    {"another count", SYMMEM_INVALID_ARGUMENT, other_count},
    {"another shape", SYMMEM_INVALID_ARGUMENT, other_shape},
    {"gaps", SYMMEM_INVALID_ARGUMENT, gaps},
    {"misaligned", SYMMEM_MISALIGNED, misaligned},
};
#define FLAW_COUNT ((int)(sizeof(flaws) / sizeof(flaws[0])))

/* Every flaw of either tensor on one rank is refused there at once, with nothing written. */
static void malformed_tensors(struct tk *t) {
    struct sum s = sum_begin(t, tk_world_group(t));
    struct ops_tensor input, out;
    TK_REQ(t, "SM-COLL-02");
    out_mark(t, &s);
    for (int i = 0; i < 2 * FLAW_COUNT; i++) {
        const struct flaw *flaw = &flaws[i / 2];
        (void)ops_flat(&input, s.own, SYMMEM_FLOAT32, COUNT);
        (void)ops_flat(&out, s.out, SYMMEM_FLOAT32, COUNT);
        flaw->apply(i % 2 ? &out : &input);
        symmem_status status =
            symmem_one_shot_all_reduce_out(s.handle, &input.dl, SYMMEM_SUM, &out.dl, 0, 50, NULL);
        TK_CHECK_MSG(t, status == flaw->status, "%s with %s: %s", i % 2 ? "out" : "input",
                     flaw->what, symmem_status_name(status));
        TK_EQ_STR(t, "one_shot_all_reduce_out", last_record().operation);
    }
    (void)ops_flat(&input, s.own, SYMMEM_FLOAT32, COUNT);
    (void)ops_flat(&out, s.out, SYMMEM_FLOAT32, COUNT);
    TK_STATUS(t, SYMMEM_INVALID_ARGUMENT,
              symmem_one_shot_all_reduce_out(s.handle, NULL, SYMMEM_SUM, &out.dl, 0, 50, NULL));
    TK_STATUS(t, SYMMEM_INVALID_ARGUMENT,
              symmem_one_shot_all_reduce_out(s.handle, &input.dl, SYMMEM_SUM, NULL, 0, 50, NULL));
    TK_STATUS(t, SYMMEM_INVALID_ARGUMENT,
              symmem_one_shot_all_reduce_out(NULL, &input.dl, SYMMEM_SUM, &out.dl, 0, 50, NULL));
    out_untouched(t, &s);
    TK_CHECK(t, !info_of(t, s.handle).poisoned);
    /* A stride says nothing where there is one element or none. */
    int64_t strange = -7;
    input.shape[0] = out.shape[0] = 1;
    input.dl.strides = out.dl.strides = &strange;
    TK_OK(t, symmem_one_shot_all_reduce_out(s.handle, &input.dl, SYMMEM_SUM, &out.dl, 0, s.limit_ms,
                                            NULL));
}

static void channels(struct tk *t) {
    struct sum s = sum_begin(t, tk_world_group(t));
    int32_t count = info_of(t, s.handle).channel_count;
    TK_REQ(t, "SM-COLL-02");
    TK_STATUS(t, SYMMEM_OUT_OF_RANGE, sum_run(&s, -1, 50, NULL));
    TK_STATUS(t, SYMMEM_OUT_OF_RANGE, sum_run(&s, count, 50, NULL));
    TK_EQ_SIZE(t, (uint64_t)count, last_record().expected);
    sum_load(t, &s, 1);
    TK_OK(t, sum_run(&s, count - 1, s.limit_ms, NULL));
    sum_expect(t, &s, 1, "the last channel");
}

static void places(struct tk *t) {
    enum { BYTES = COUNT * 4 };
    struct ops_tensor input, out;
    symmem_handle *handle = tk_handle(t, 2 * BYTES, tk_world_group(t));
    char *own = ops_own(t, handle), *elsewhere = tk_alloc(t, BYTES);
    symmem_handle_info info = info_of(t, handle);
    const DLTensor *result = ops_flat(&out, elsewhere, SYMMEM_FLOAT32, COUNT);
    float on_host[COUNT] = {0};
    TK_REQ(t, "SM-COLL-03");
    const struct {
        void *at;
        symmem_status status;
    } inputs[] = {
        {elsewhere, SYMMEM_NOT_SYMMETRIC},      {on_host, SYMMEM_NOT_SYMMETRIC},
        {own - 4, SYMMEM_NOT_SYMMETRIC},        {own + 2 * BYTES - 4, SYMMEM_OUT_OF_RANGE},
        {own + BYTES + 4, SYMMEM_OUT_OF_RANGE}, {own + info.block_size, SYMMEM_NOT_SYMMETRIC},
    };
    for (size_t i = 0; i < sizeof(inputs) / sizeof(inputs[0]); i++) {
        symmem_status status = symmem_one_shot_all_reduce_out(
            handle, ops_flat(&input, inputs[i].at, SYMMEM_FLOAT32, COUNT), SYMMEM_SUM, result, 0,
            50, NULL);
        TK_CHECK_MSG(t, status == inputs[i].status, "place %zu: %s", i, symmem_status_name(status));
    }
    TK_OK(t, symmem_one_shot_all_reduce_out(handle,
                                            ops_flat(&input, own + BYTES, SYMMEM_FLOAT32, COUNT),
                                            SYMMEM_SUM, result, 0, tk_scaled_ms(LONG_MS), NULL));
    /* out beside the input in the same block is no overlap; one element into it is. */
    TK_REQ(t, "SM-COLL-04");
    (void)ops_flat(&input, own, SYMMEM_FLOAT32, COUNT);
    TK_OK(t, symmem_one_shot_all_reduce_out(handle, &input.dl, SYMMEM_SUM,
                                            ops_flat(&out, own + BYTES, SYMMEM_FLOAT32, COUNT), 0,
                                            tk_scaled_ms(LONG_MS), NULL));
    TK_STATUS(t, SYMMEM_INVALID_ARGUMENT,
              symmem_one_shot_all_reduce_out(handle, &input.dl, SYMMEM_SUM,
                                             ops_flat(&out, own + BYTES - 4, SYMMEM_FLOAT32, COUNT),
                                             0, 50, NULL));
    TK_STATUS(
        t, SYMMEM_INVALID_ARGUMENT,
        symmem_one_shot_all_reduce_out(handle, &input.dl, SYMMEM_SUM, &input.dl, 0, 50, NULL));
    void *const *buffers = NULL;
    TK_REQUIRE_OK(t, symmem_handle_buffer_ptrs(handle, &buffers));
    int32_t next = (info.rank + 1) % info.world_size;
    TK_STATUS(t, SYMMEM_INVALID_ARGUMENT,
              symmem_one_shot_all_reduce_out(
                  handle, &input.dl, SYMMEM_SUM,
                  ops_flat(&out, (char *)buffers[next] + info.offset, SYMMEM_FLOAT32, COUNT), 0, 50,
                  NULL));
}

static void supported_pairs(struct tk *t) {
    struct sum s = sum_begin(t, tk_world_group(t));
    TK_REQ(t, "SM-COLL-05");
    for (int dtype = 0; dtype < SYMMEM_DTYPE_COUNT; dtype++)
        for (int op = 0; op < SYMMEM_REDUCE_OP_COUNT; op++) {
            bool is_float = dtype >= SYMMEM_FLOAT16 && dtype <= SYMMEM_FLOAT64;
            bool supported = op != SYMMEM_AVG || is_float;
            TK_EQ_INT(t, supported,
                      symmem_reduce_supported((symmem_dtype)dtype, (symmem_reduce_op)op));
            out_mark(t, &s);
            symmem_status status =
                sum_count(&s, (symmem_dtype)dtype, 8, (symmem_reduce_op)op, 0, s.limit_ms, NULL);
            TK_CHECK_MSG(t, status == (supported ? SYMMEM_OK : SYMMEM_UNSUPPORTED), "%s, op %d: %s",
                         symmem_dtype_name((symmem_dtype)dtype), op, symmem_status_name(status));
            if (!supported)
                out_untouched(t, &s);
        }
    TK_CHECK(t, !symmem_reduce_supported(SYMMEM_DTYPE_COUNT, SYMMEM_SUM));
    TK_CHECK(t, !symmem_reduce_supported((symmem_dtype)-1, SYMMEM_SUM));
    TK_CHECK(t, !symmem_reduce_supported(SYMMEM_FLOAT32, SYMMEM_REDUCE_OP_COUNT));
    TK_CHECK(t, !symmem_reduce_supported(SYMMEM_FLOAT32, (symmem_reduce_op)-1));
    TK_STATUS(t, SYMMEM_INVALID_ARGUMENT,
              sum_count(&s, SYMMEM_FLOAT32, 8, SYMMEM_REDUCE_OP_COUNT, 0, 50, NULL));
    TK_STATUS(t, SYMMEM_INVALID_ARGUMENT,
              sum_count(&s, SYMMEM_FLOAT32, 8, (symmem_reduce_op)-1, 0, 50, NULL));
}

/* --- agreement ------------------------------------------------------------------------------ */

/* What the odd rank does instead. */
enum oddity { ODD_COUNT, ODD_DTYPE, ODD_OP, ODD_OFFSET, ODD_BARRIER, ODDITIES };

static symmem_status odd_call(const struct sum *s, enum oddity oddity, symmem_stream *stream) {
    struct ops_tensor input, out;
    switch (oddity) {
    case ODD_COUNT:
        return sum_count(s, SYMMEM_FLOAT32, COUNT / 2 - 1, SYMMEM_SUM, 0, s->limit_ms, stream);
    case ODD_DTYPE:
        return sum_count(s, SYMMEM_INT32, COUNT / 2, SYMMEM_SUM, 0, s->limit_ms, stream);
    case ODD_OP:
        return sum_count(s, SYMMEM_FLOAT32, COUNT / 2, SYMMEM_MAX, 0, s->limit_ms, stream);
    case ODD_OFFSET:
        return symmem_one_shot_all_reduce_out(
            s->handle, ops_flat(&input, s->own + 4, SYMMEM_FLOAT32, COUNT / 2), SYMMEM_SUM,
            ops_flat(&out, s->out, SYMMEM_FLOAT32, COUNT / 2), 0, s->limit_ms, stream);
    default:
        return symmem_barrier(s->handle, 0, s->limit_ms, stream);
    }
}

static void expect_mismatch(struct tk *t, const struct sum *s, enum oddity oddity, int32_t odd) {
    symmem_error_record record = last_record();
    bool own = s->rank == odd;
    TK_EQ_INT(t, SYMMEM_MISMATCH, record.status);
    TK_EQ_INT(t, own ? (odd == 0 ? 1 : 0) : odd, record.failed_rank);
    TK_EQ_INT(t, 0, record.channel);
    TK_EQ_STR(t, own && oddity == ODD_BARRIER ? "barrier" : "one_shot_all_reduce_out",
              record.operation);
    if (oddity == ODD_COUNT) {
        TK_EQ_SIZE(t, own ? COUNT / 2 - 1 : COUNT / 2, record.expected);
        TK_EQ_SIZE(t, own ? COUNT / 2 : COUNT / 2 - 1, record.actual);
    }
    TK_EQ_INT(t, 0, record.missing_count);
}

static void disagree(struct tk *t, struct sum *s, symmem_stream *stream) {
    for (int oddity = 0; oddity < ODDITIES; oddity++) {
        int32_t odd = (int32_t)(t->seed + (uint64_t)oddity) % s->size;
        odd = odd < 0 ? -odd : odd;
        out_mark(t, s);
        tk_checkpoint(t, "oddity %d at rank %d", oddity, (int)odd);
        symmem_status status = s->rank == odd ? odd_call(s, (enum oddity)oddity, stream)
                                              : sum_count(s, SYMMEM_FLOAT32, COUNT / 2, SYMMEM_SUM,
                                                          0, s->limit_ms, stream);
        if (stream != NULL && TK_OK(t, status))
            status = symmem_stream_synchronize(stream, s->limit_ms);
        TK_STATUS(t, SYMMEM_MISMATCH, status);
        expect_mismatch(t, s, (enum oddity)oddity, odd);
        out_untouched(t, s);
        TK_CHECK(t, !info_of(t, s->handle).poisoned);
        sum_load(t, s, (uint32_t)oddity);
        TK_OK(t, sum_run(s, 0, s->limit_ms, NULL));
        sum_expect(t, s, (uint32_t)oddity, "after a mismatch");
        tk_out_of_band_barrier(t); /* inputs change again */
    }
}

static void ranks_disagree(struct tk *t) {
    struct sum s = sum_begin(t, tk_world_group(t));
    TK_REQ(t, "SM-COLL-06");
    disagree(t, &s, NULL);
}

static void ranks_disagree_on_a_stream(struct tk *t) {
    struct sum s = sum_begin(t, tk_world_group(t));
    TK_REQ(t, "SM-COLL-06");
    disagree(t, &s, tk_stream(t));
}

/* Without checking nothing is compared: a barrier meets a collective's first meeting, and its last.
 */
static void unchecked_calls_are_not_compared(struct tk *t) {
    symmem_context_options options = tk_options(t);
    options.check_collectives = 0;
    tk_reinit(t, &options);
    struct sum s = sum_begin(t, tk_world_group(t));
    TK_REQ(t, "SM-COLL-06");
    if (s.rank == 0) {
        TK_OK(t, symmem_barrier(s.handle, 0, s.limit_ms, NULL));
        TK_OK(t, symmem_barrier(s.handle, 0, s.limit_ms, NULL));
    } else {
        TK_OK(t, sum_run(&s, 0, s.limit_ms, NULL));
    }
}

static void options_of_checking(struct tk *t) {
    static const int32_t wrong[] = {-2, 2, INT32_MAX};
    TK_REQ(t, "SM-COLL-06");
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        symmem_context_options options = tk_options(t);
        symmem_context *context = NULL;
        options.check_collectives = wrong[i];
        TK_STATUS(t, SYMMEM_INVALID_ARGUMENT, symmem_init(&options, &context));
        TK_EQ_PTR(t, NULL, context);
    }
    symmem_context_options options = tk_options(t);
    options.check_collectives = -1;
    TK_REQUIRE(t, setenv("SYMMEM_CHECK_COLLECTIVES", "1", 1) == 0);
    tk_reinit(t, &options);
    TK_REQUIRE(t, unsetenv("SYMMEM_CHECK_COLLECTIVES") == 0);
    struct sum s = sum_begin(t, tk_world_group(t));
    TK_STATUS(t, SYMMEM_MISMATCH,
              sum_count(&s, SYMMEM_FLOAT32, s.rank == 0 ? 3 : 4, SYMMEM_SUM, 0, s.limit_ms, NULL));
}

/* --- waiting and failing -------------------------------------------------------------------- */

/* Nobody passes an operation without elements before the held rank comes. */
static void empty_ones_synchronise(struct tk *t) {
    struct sum s = sum_begin(t, tk_world_group(t));
    TK_REQ(t, "SM-COLL-07");
    out_mark(t, &s);
    for (int i = 0; i < held_count(s.size); i++) {
        int32_t held = held_rank(s.size, i);
        if (t->rank == held)
            check_others_held(t, NULL, s.size, (uint64_t)i + 1);
        else
            show_entered(t, (uint64_t)i + 1);
        TK_OK(t, sum_count(&s, SYMMEM_FLOAT32, 0, SYMMEM_SUM, 0, s.limit_ms, NULL));
        show_passed(t, (uint64_t)i + 1);
    }
    out_untouched(t, &s);
}

static void missing_rank(struct tk *t) {
    struct sum s = sum_begin(t, tk_world_group(t));
    int32_t absent = (int32_t)(t->seed % (uint64_t)s.size);
    TK_REQ(t, "SM-COLL-08");
    out_mark(t, &s);
    if (s.rank != absent) {
        uint64_t begin_ms = tk_now_ms();
        TK_STATUS(t, SYMMEM_TIMEOUT, sum_run(&s, 0, 40, NULL));
        TK_CHECK(t, tk_now_ms() - begin_ms >= 40);
        symmem_error_record record = last_record();
        TK_EQ_STR(t, "one_shot_all_reduce_out", record.operation);
        TK_CHECK(t, symmem_error_is_missing(&record, absent));
        TK_CHECK(t, info_of(t, s.handle).poisoned);
        TK_STATUS(t, SYMMEM_POISONED, sum_run(&s, 0, 40, NULL));
        out_untouched(t, &s);
    }
    tk_out_of_band_barrier(t);
    TK_OK(t, symmem_handle_reset(s.handle, s.limit_ms));
    sum_load(t, &s, 3);
    TK_OK(t, sum_run(&s, 0, s.limit_ms, NULL));
    sum_expect(t, &s, 3, "after a reset");
}

static void lost_rank(struct tk *t) {
    struct sum s = sum_begin(t, tk_world_group(t));
    int32_t victim = s.size - 1;
    TK_REQ(t, "SM-COLL-08");
    tk_expect_death(t, victim);
    tk_out_of_band_barrier(t);
    if (s.rank == victim) {
        tk_sleep_ms(20);
        tk_share_u64(t, 0, tk_now_ms());
        tk_kill_self(t);
    }
    TK_STATUS(t, SYMMEM_PEER_LOST, sum_run(&s, 0, 60000, NULL));
    TK_EQ_INT(t, victim, last_record().failed_rank);
    TK_CHECK(t, tk_now_ms() - tk_read_u64(t, victim, 0) < tk_scaled_ms(1000));
    TK_CHECK(t, info_of(t, s.handle).poisoned);
}

/* --- order ---------------------------------------------------------------------------------- */

/* Round after round each rank changes its input as soon as its call has ended. */
static void inputs_are_free_afterwards(struct tk *t) {
    enum { ROUNDS = 200 };
    struct sum s = sum_begin(t, tk_world_group(t));
    TK_REQ(t, "SM-COLL-01");
    for (uint32_t round = 0; round < ROUNDS && !tk_failed(t); round++) {
        sum_load(t, &s, round);
        if (tk_random_below(t, 16) == 0)
            tk_sleep_ms(1);
        TK_OK(t, sum_run(&s, 0, s.limit_ms, NULL));
        sum_expect(t, &s, round, "round");
    }
}

static void on_a_stream(struct tk *t) {
    struct sum s = sum_begin(t, tk_world_group(t));
    symmem_stream *stream = tk_stream(t);
    float values[2][COUNT];
    struct gate gate = {0};
    TK_REQ(t, "SM-COLL-09");
    for (uint32_t i = 0; i < 2; i++)
        ops_fill(values[i], SYMMEM_FLOAT32, COUNT, s.rank, i);
    TK_OK(t, symmem_stream_host_fn(stream, gate_fn, &gate));
    TK_OK(t, symmem_copy(t->context, s.own, values[0], sizeof(values[0]), stream));
    TK_OK(t, sum_run(&s, 0, s.limit_ms, stream));
    char *second = tk_alloc(t, COUNT * sizeof(float));
    struct sum later = s;
    later.out = second;
    TK_OK(t, symmem_copy(t->context, s.own, values[1], sizeof(values[1]), stream));
    TK_OK(t, sum_run(&later, 0, s.limit_ms, stream));
    bool idle = true;
    TK_OK(t, symmem_stream_query(stream, &idle));
    TK_CHECK(t, !idle);
    gate_open(&gate);
    tk_synchronize(t, stream);
    sum_expect(t, &s, 0, "the first");
    sum_expect(t, &later, 1, "the second");
}

static void captured(struct tk *t) {
    enum { LAUNCHES = 5 };
    struct sum s = sum_begin(t, tk_world_group(t));
    symmem_stream *stream = tk_stream(t);
    symmem_graph *graph = NULL;
    TK_REQ(t, "SM-COLL-09");
    out_mark(t, &s);
    TK_REQUIRE_OK(t, symmem_stream_begin_capture(stream));
    TK_OK(t, sum_run(&s, 0, s.limit_ms, stream));
    TK_REQUIRE_OK(t, symmem_stream_end_capture(stream, &graph));
    out_untouched(t, &s);
    for (uint32_t launch = 0; launch < LAUNCHES; launch++) {
        sum_load(t, &s, launch);
        TK_OK(t, symmem_graph_launch(graph, stream));
        tk_synchronize(t, stream);
        sum_expect(t, &s, launch, "a launch");
        /* An eager one between the launches takes its turn. */
        out_mark(t, &s);
        TK_OK(t, sum_run(&s, 0, s.limit_ms, stream));
        tk_synchronize(t, stream);
        sum_expect(t, &s, launch, "an eager call");
    }
    TK_OK(t, symmem_graph_destroy(graph));
}

/* One stream's collective is held at one rank; another stream's barrier on the same channel comes
 * after it, one on another channel does not wait. */
static void order_on_a_channel(struct tk *t) {
    struct sum s = sum_begin(t, tk_world_group(t));
    symmem_stream *streams[3] = {tk_stream(t), tk_stream(t), tk_stream(t)};
    struct gate gate = {0};
    TK_REQ(t, "SM-COLL-10");
    sum_load(t, &s, 7);
    if (s.rank != 0)
        gate_open(&gate);
    TK_OK(t, symmem_stream_host_fn(streams[0], gate_fn, &gate));
    TK_OK(t, sum_run(&s, 0, s.limit_ms, streams[0]));
    TK_OK(t, symmem_barrier(s.handle, 0, s.limit_ms, streams[1]));
    TK_OK(t, symmem_barrier(s.handle, 1, s.limit_ms, streams[2]));
    tk_synchronize(t, streams[2]);
    if (s.rank == 0) {
        bool idle = true;
        tk_sleep_ms(20);
        TK_OK(t, symmem_stream_query(streams[1], &idle));
        TK_CHECK_MSG(t, !idle, "a barrier overtook the collective before it");
        gate_open(&gate);
    }
    tk_synchronize(t, streams[1]);
    tk_synchronize(t, streams[0]);
    sum_expect(t, &s, 7, "the held one");
}

#define CASE(name_, requirements_, needs_, min_, flags_, body_)                                    \
    {                                                                                              \
        .name = name_, .requirements = requirements_, .needs = COLLECTIVES | (needs_),             \
        .min_ranks = min_, .flags = flags_, .body = body_                                          \
    }
#define STREAMS SYMMEM_CAP_STREAMS
static const struct tk_case cases[] = {
    CASE("coll.malformed_tensors", "SM-COLL-02", 0, 1, 0, malformed_tensors),
    CASE("coll.channels", "SM-COLL-02", 0, 1, 0, channels),
    CASE("coll.places", "SM-COLL-03,SM-COLL-04", 0, 1, TK_PLAIN_MEMORY, places),
    CASE("coll.supported_pairs", "SM-COLL-05", 0, 1, 0, supported_pairs),
    CASE("coll.ranks_disagree", "SM-COLL-06", 0, 2, 0, ranks_disagree),
    CASE("coll.ranks_disagree_on_a_stream", "SM-COLL-06", STREAMS, 2, 0,
         ranks_disagree_on_a_stream),
    CASE("coll.unchecked_calls_are_not_compared", "SM-COLL-06", 0, 2, 0,
         unchecked_calls_are_not_compared),
    CASE("coll.options_of_checking", "SM-COLL-06", 0, 2, TK_PROCESS_ONLY | TK_SETS_ENVIRONMENT,
         options_of_checking),
    CASE("coll.empty_ones_synchronise", "SM-COLL-07", 0, 2, 0, empty_ones_synchronise),
    CASE("coll.missing_rank", "SM-COLL-08", 0, 2, 0, missing_rank),
    CASE("coll.lost_rank", "SM-COLL-08", 0, 2, TK_PROCESS_ONLY | TK_MAY_DIE | TK_MAY_LEAK,
         lost_rank),
    CASE("coll.inputs_are_free_afterwards", "SM-COLL-01", 0, 2, 0, inputs_are_free_afterwards),
    CASE("coll.on_a_stream", "SM-COLL-09", STREAMS | SYMMEM_CAP_HOST_FN, 1, 0, on_a_stream),
    CASE("coll.captured", "SM-COLL-09", STREAMS | SYMMEM_CAP_CAPTURE, 1, 0, captured),
    CASE("coll.order_on_a_channel", "SM-COLL-10", STREAMS | SYMMEM_CAP_HOST_FN, 2, 0,
         order_on_a_channel),
};
TK_SUITE(coll, cases);
