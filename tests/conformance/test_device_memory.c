/* SPDX-License-Identifier: BSD-3-Clause */
/* What runs as a kernel gets no memory of another device than its own. */
#include "fused_pair.h"
#include "ops_table_help.h"

/* Memory of the next device, all zero; NULL where there is one device only. */
static char *far_memory(struct tk *t) {
    symmem_alloc_options options;
    void *ptr = NULL;
    int32_t count = 0;
    TK_REQUIRE_OK(t, symmem_device_count(t->context, &count));
    if (count < 2)
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

static void of_collectives(struct tk *t) {
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
            TK_STATUS(t, SYMMEM_INVALID_ARGUMENT, ops_run_usual(t, &apart, row, 0, streams[s]));
            TK_CHECK_MSG(t, ops_recorded(row), "%s: a record of %s", row->what,
                         last_record().operation);
        }
        ops_untouched(t, &desk, 1, row->what);
    }
    TK_CHECK(t, !info_of(t, desk.handle).poisoned);
    TK_OK(t, ops_run_usual(t, &desk, &ops_rows[0], 0, NULL));
    expect_far_untouched(t, far);
}

static DLTensor moved(const struct fused_tensor *tensor, void *data) {
    DLTensor copy = tensor->dl;
    copy.data = data;
    return copy;
}

static void of_products(struct tk *t) {
    char *far = far_memory(t);
    struct fused_pair x;
    struct ops_tensor words;
    if (far == NULL)
        return;
    pair_begin(t, &x);
    symmem_stream *streams[2] = {NULL, tk_stream(t)};
    const DLTensor *signals = ops_flat(&words, tk_alloc(t, 4), SYMMEM_UINT32, 1);
    const DLTensor a = moved(&x.shard, far), b = moved(&x.b, far), out = moved(&x.part, far);
    for (int s = 0; s < 2; s++) {
        symmem_stream *stream = streams[s];
        TK_STATUS(t, SYMMEM_INVALID_ARGUMENT, symmem_restride(t->context, &a, &x.shard.dl, stream));
        TK_STATUS(t, SYMMEM_INVALID_ARGUMENT, symmem_restride(t->context, &x.shard.dl, &a, stream));
        TK_STATUS(
            t, SYMMEM_INVALID_ARGUMENT,
            symmem_async_input_mm(t->context, &a, &x.b.dl, signals, 0, &x.part.dl, 30, stream));
        TK_STATUS(
            t, SYMMEM_INVALID_ARGUMENT,
            symmem_async_input_mm(t->context, &x.shard.dl, &b, signals, 0, &x.part.dl, 30, stream));
        TK_STATUS(
            t, SYMMEM_INVALID_ARGUMENT,
            symmem_async_input_mm(t->context, &x.shard.dl, &x.b.dl, signals, 0, &out, 30, stream));
    }
    tk_synchronize(t, streams[1]);
    pair_expect_untouched(t, &x);
    expect_far_untouched(t, far);
    pair_end(&x);
}

static const struct tk_case cases[] = {
    {.name = "device_memory.of_collectives",
     .requirements = "SM-STREAM-25",
     .needs = COLLECTIVES | SYMMEM_CAP_STREAMS,
     .max_ranks = 1,
     .body = of_collectives},
    {.name = "device_memory.of_products",
     .requirements = "SM-STREAM-25",
     .needs = PRODUCTS | SYMMEM_CAP_STREAMS,
     .max_ranks = 1,
     .body = of_products},
};
TK_SUITE(device_memory, cases);
