/* SPDX-License-Identifier: BSD-3-Clause */
/* What runs as a kernel gets no memory of another device than its own. */
#include "fused_pair.h"
#include "ops_table_help.h"

/* Memory of the next device, all zero; NULL where there is none. */
static char *far_memory(struct tk *t) {
    symmem_alloc_options options;
    void *ptr = NULL;
    const int32_t count = device_count(t);
    if (count < 2 || !tk_has_memory_of(t, (own_device(t) + 1) % count))
        return NULL;
    symmem_alloc_options_init(&options);
    TK_REQUIRE_OK(t, symmem_alloc(t->context, (size_t)2 * OPS_HALF, (own_device(t) + 1) % count,
                                  &options, &ptr));
    return ptr;
}

static void expect_far_untouched(struct tk *t, char *far) {
    static const uint8_t zero[2 * OPS_HALF];
    uint8_t bytes[2 * OPS_HALF];
    ops_download(t, bytes, far, sizeof bytes);
    TK_CHECK_MSG(t, memcmp(bytes, zero, sizeof bytes) == 0,
                 "the other device's memory was written");
    TK_OK(t, symmem_free(t->context, far));
}

TK_TEST(device_memory, of_collectives, "SM-STREAM-25", .needs = COLLECTIVES | SYMMEM_CAP_STREAMS,
        .max_ranks = 1) {
    struct ops_desk desk = ops_desk_begin(t), apart = desk; /* it may make the context anew */
    char *far = far_memory(t);
    if (far == NULL)
        return;
    symmem_stream *streams[2] = {NULL, tk_stream(t)};
    apart.far = far;
    ops_load(t, &desk, 1);
    for (int i = 0; i < OPS_ROWS; i++) {
        const struct ops_row *row = &ops_rows[i];
        if (!ops_can(&desk, row) || (row->input != FAR && row->out != FAR))
            continue;
        for (int s = 0; s < 2; s++) {
            tk_checkpoint(t, "%s, %s", row->what, s == 0 ? "no stream" : "a stream");
            TK_FAILS(t, INVALID_ARGUMENT, ops_run_usual(t, &apart, row, 0, streams[s]));
            TK_CHECK_MSG(t, ops_recorded(row), "%s: a record of %s", row->what,
                         last_record().operation);
        }
        ops_untouched(t, &desk, 1, row->what);
    }
    TK_CHECK(t, !info_of(t, desk.handle).poisoned);
    TK_OK(t, ops_run_usual(t, &desk, &ops_rows[0], 0, NULL));
    expect_far_untouched(t, far);
}

TK_TEST(device_memory, of_multicast, "SM-STREAM-25", .needs = SYMMEM_CAP_MULTICAST,
        .ranks = {2, 2}) {
    struct ops_desk desk = ops_desk_begin(t);
    char *far = desk.multicast ? far_memory(t) : NULL;
    if (far == NULL)
        return;
    ops_load(t, &desk, 1);
    tk_out_of_band_barrier(t);
    TK_FAILS(t, INVALID_ARGUMENT, symmem_multimem_store(desk.handle, 0, far, 16, NULL));
    TK_FAILS(t, INVALID_ARGUMENT,
             symmem_multimem_ld_reduce(desk.handle, 0, far, 4, SYMMEM_UINT32, SYMMEM_SUM, NULL));
    TK_OK(t, symmem_multimem_store(desk.handle, 0, far, 0, NULL)); /* nothing is nowhere */
    TK_OK(t, symmem_multimem_ld_reduce(desk.handle, 0, far, 0, SYMMEM_UINT32, SYMMEM_SUM, NULL));
    tk_out_of_band_barrier(t);
    ops_untouched(t, &desk, 1, "multimem_store");
    expect_far_untouched(t, far);
}

static DLTensor moved(const struct fused_tensor *tensor, void *data) {
    DLTensor copy = tensor->dl;
    copy.data = data;
    return copy;
}

/* Each argument of the two fused products by itself. */
static void one_at_a_time(struct tk *t, const struct fused_pair *x, char *far,
                          symmem_stream *stream) {
    struct pair_call call = pair_call(x);
    const DLTensor **const members[] = {&call.shard, &call.b,         &call.a_out, &call.out,
                                        &call.a,     &call.scatter_b, &call.part};
    call.stream = stream;
    for (int i = 0; i < 7; i++) {
        const DLTensor *right = *members[i];
        DLTensor there = *right;
        there.data = far;
        *members[i] = &there;
        TK_FAILS(t, INVALID_ARGUMENT, pair_run(&call, i < 4 ? PAIR_GATHER : PAIR_SCATTER));
        *members[i] = right;
    }
}

/* That of an asynchronous one. */
static symmem_status multiply(struct tk *t, const DLTensor *a, const DLTensor *b,
                              const DLTensor *signals, const DLTensor *out, symmem_stream *stream) {
    return symmem_async_input_mm(t->context, a, b, signals, 0, out, 30, stream);
}

TK_TEST(device_memory, of_products, "SM-STREAM-25", .needs = PRODUCTS | SYMMEM_CAP_STREAMS,
        .max_ranks = 1) {
    char *far = far_memory(t);
    if (far == NULL)
        return;
    struct fused_pair *x = pair_begin(t);
    symmem_stream *streams[2] = {NULL, tk_stream(t)};
    uint32_t *signal = tk_alloc(t, sizeof *signal);
    const DLTensor *signals = FLAT(signal, SYMMEM_UINT32, 1);
    const DLTensor a = moved(&x->shard, far), b = moved(&x->b, far), out = moved(&x->part, far);
    uint32_t zero = 0, *far_signal = (uint32_t *)(void *)far;
    const DLTensor *far_signals = FLAT(far_signal, SYMMEM_UINT32, 1);
    ops_upload(t, signal, &zero, sizeof zero);
    for (int s = 0; s < 2; s++) {
        symmem_stream *stream = streams[s];
        one_at_a_time(t, x, far, stream);
        TK_FAILS(t, INVALID_ARGUMENT, symmem_restride(t->context, &a, &x->shard.dl, stream));
        TK_FAILS(t, INVALID_ARGUMENT, symmem_restride(t->context, &x->shard.dl, &a, stream));
        const DLTensor *shard = &x->shard.dl, *part = &x->part.dl;
        TK_FAILS(t, INVALID_ARGUMENT, multiply(t, shard, &x->b.dl, far_signals, part, stream));
        TK_FAILS(t, INVALID_ARGUMENT, multiply(t, &a, &x->b.dl, signals, part, stream));
        TK_FAILS(t, INVALID_ARGUMENT, multiply(t, shard, &b, signals, part, stream));
        TK_FAILS(t, INVALID_ARGUMENT, multiply(t, shard, &x->b.dl, signals, &out, stream));
    }
    tk_synchronize(t, streams[1]);
    pair_expect_untouched(t, x);
    expect_far_untouched(t, far);
}

/* What is empty may point anywhere. */
TK_TEST(device_memory, of_nothing, "SM-STREAM-25", .needs = COLLECTIVES, .max_ranks = 1) {
    static const struct ops_terms nothing = {SYMMEM_FLOAT32, SYMMEM_SUM, 0, 0, 0};
    struct ops_desk desk = ops_desk_begin(t);
    char *far = far_memory(t);
    struct ops_setting set;
    if (far == NULL)
        return;
    desk.far = far;
    for (int i = 0; i < OPS_ROWS; i++) {
        const struct ops_row *row = &ops_rows[i];
        if (!ops_can(&desk, row) || (row->traits & (ROW_FUSED | ROW_SPLITS)) ||
            (row->input != FAR && row->out != FAR))
            continue;
        ops_set(&desk, row, &nothing, &set);
        TK_CHECK_MSG(t, ops_run(t, &desk, row, &set) == SYMMEM_OK, "%s: %s", row->what,
                     last_record().message);
    }
    expect_far_untouched(t, far);
}

/* A product without terms: what is multiplied is empty, its result is not. */
TK_TEST(device_memory, of_empty_products, "SM-STREAM-25", .needs = PRODUCTS, .max_ranks = 1) {
    char *far = far_memory(t);
    static const int64_t tall[2] = {2, 0}, flat[2] = {0, 3}, whole[2] = {2, 3};
    static const float zero[6];
    float sums[6] = {1, 1, 1, 1, 1, 1};
    uint32_t one = 1;
    if (far == NULL)
        return;
    uint32_t *signal = tk_alloc(t, sizeof *signal);
    float *result = tk_alloc(t, sizeof sums);
    ops_upload(t, signal, &one, sizeof one);
    ops_upload(t, result, sums, sizeof sums);
    TK_OK(t, symmem_async_input_mm(t->context, SHAPED(far, SYMMEM_FLOAT32, 2, tall),
                                   SHAPED(far, SYMMEM_FLOAT32, 2, flat),
                                   FLAT(signal, SYMMEM_UINT32, 1), 0,
                                   SHAPED(result, SYMMEM_FLOAT32, 2, whole), 5000, NULL));
    ops_download(t, sums, result, sizeof sums);
    TK_CHECK(t, memcmp(sums, zero, sizeof sums) == 0);
    TK_OK(t, symmem_restride(t->context, SHAPED(far, SYMMEM_FLOAT32, 2, flat),
                             SHAPED(result, SYMMEM_FLOAT32, 2, flat), NULL));
    expect_far_untouched(t, far);
}
