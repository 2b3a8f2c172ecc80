/* SPDX-License-Identifier: BSD-3-Clause */
/* The arguments of what works on handles and tensors. */
#include "case_help.h"
#include "limits_help.h"

#define BYTES 512
#define LIMIT_MS 2000u

/* A handle of all ranks with a pattern in buffer and pad, which every refused call has to leave. */
struct scene {
    struct tk *t;
    symmem_handle *handle;
    symmem_handle_info info;
    struct outputs out;
};

static struct scene *scene_begin(struct tk *t) {
    struct scene *s = tk_scratch(t, sizeof *s);
    *s = (struct scene){.t = t, .handle = tk_handle(t, BYTES, tk_world_group(t))};
    s->info = info_of(t, s->handle);
    s->out = outputs_fresh();
    tk_fill(t, s->handle, t->rank, 0, BYTES, 0x37);
    pad_fill(t, s->handle, 0x37);
    tk_group_barrier(t, tk_world_group(t));
    return s;
}

/* Nothing was written on any rank, and no signal was left: the same channels work. */
static void scene_end(struct scene *s) {
    struct tk *t = s->t;
    outputs_check(t, &s->out);
    tk_group_barrier(t, tk_world_group(t));
    tk_expect_bytes(t, s->handle, t->rank, 0, BYTES, 0x37);
    pad_expect(t, s->handle, 0x37);
    ring_signal(t, s->handle, 0);
    ring_signal(t, s->handle, s->info.channel_count - 1);
    TK_OK(t, symmem_barrier(s->handle, 0, LONG_MS, NULL));
    TK_OK(t, symmem_barrier(s->handle, s->info.channel_count - 1, LONG_MS, NULL));
    TK_OK(t, symmem_handle_status(s->handle, NULL));
}

/* --- signals ---------------------------------------------------------------------------------- */

TK_TEST(limits, signals, "SM-SIGNAL-09,SM-BARRIER-06,SM-ERROR-01",
        .needs = SYMMEM_CAP_DIRECT_ACCESS, .max_ranks = 4, .flags = TK_WRITES_PADS) {
    struct scene *s = scene_begin(t);
    const int32_t n = s->info.world_size, channels = s->info.channel_count;
    const int32_t bad_channels[] = {-1, channels, INT32_MIN, INT32_MAX};
    const int32_t bad_ranks[] = {-1, n, INT32_MIN, INT32_MAX};
    for (int i = 0; i < 4; i++) {
        TK_REQ(t, "SM-BARRIER-06");
        REFUSED(t, OUT_OF_RANGE, symmem_barrier(s->handle, bad_channels[i], LIMIT_MS, NULL));
        TK_REQ(t, "SM-SIGNAL-09");
        REFUSED(t, OUT_OF_RANGE, symmem_put_signal(s->handle, 0, bad_channels[i], LIMIT_MS, NULL));
        REFUSED(t, OUT_OF_RANGE, symmem_wait_signal(s->handle, 0, bad_channels[i], LIMIT_MS, NULL));
        REFUSED(t, OUT_OF_RANGE, symmem_put_signal(s->handle, bad_ranks[i], 0, LIMIT_MS, NULL));
        REFUSED(t, OUT_OF_RANGE, symmem_wait_signal(s->handle, bad_ranks[i], 0, LIMIT_MS, NULL));
    }
    REFUSED(t, INVALID_ARGUMENT, symmem_barrier(NULL, 0, LIMIT_MS, NULL));
    REFUSED(t, INVALID_ARGUMENT, symmem_put_signal(NULL, 0, 0, LIMIT_MS, NULL));
    REFUSED(t, INVALID_ARGUMENT, symmem_wait_signal(NULL, 0, 0, LIMIT_MS, NULL));
    REFUSED(t, INVALID_ARGUMENT, symmem_handle_reset(NULL, LIMIT_MS));
    scene_end(s);
}

/* A peer that is a little late shows whether long limits last. */
static void late_peers(struct tk *t, symmem_handle *handle) {
    for (size_t i = 0; i < LONG_LIMITS; i++) {
        tk_out_of_band_barrier(t);
        if (t->rank == 0)
            tk_sleep_ms(40);
        TK_OK(t, symmem_barrier(handle, 0, long_limits_ms[i], NULL));
        tk_out_of_band_barrier(t);
        if (t->rank == 0)
            tk_sleep_ms(40);
        TK_OK(t, symmem_put_signal(handle, t->next, 0, long_limits_ms[i], NULL));
        TK_OK(t, symmem_wait_signal(handle, t->previous, 0, long_limits_ms[i], NULL));
    }
}

/* The smallest limit, the largest that is one, and the two with a meaning of their own. */
TK_TEST(limits, time, "SM-TIMEOUT-03,SM-TIMEOUT-11", .max_ranks = 4, .flags = TK_WRITES_PADS) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    const uint32_t limits_ms[] = {UINT32_MAX - 1, SYMMEM_TIMEOUT_DEFAULT, 0, INT32_MAX};
    uint64_t begin_ms = tk_now_ms();
    TK_REQ(t, "SM-TIMEOUT-03");
    for (int i = 0; i < 4; i++) {
        TK_OK(t, symmem_barrier(handle, 0, limits_ms[i], NULL));
        TK_OK(t, symmem_put_signal(handle, t->rank, 0, limits_ms[i], NULL));
        TK_OK(t, symmem_wait_signal(handle, t->rank, 0, limits_ms[i], NULL));
        TK_OK(t, symmem_group_barrier(tk_world_group(t), limits_ms[i]));
        TK_OK(t, symmem_handle_reset(handle, limits_ms[i]));
    }
    late_peers(t, handle);
    /* Without PASSIVE what was put before is there once the peer makes a call: no matter of 1 ms.
     */
    if ((t->capabilities & SYMMEM_CAP_PASSIVE) == 0)
        TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    TK_OK(t, symmem_put_signal(handle, t->rank, 0, 1, NULL));
    TK_OK(t, symmem_wait_signal(handle, t->rank, 0, 1, NULL));
    tk_out_of_band_barrier(t);
    TK_FAILS(t, TIMEOUT, symmem_wait_signal(handle, t->rank, 0, 1, NULL));
    TK_WITHIN(t, 15000, begin_ms);
}

/* --- one-sided data --------------------------------------------------------------------------- */

TK_TEST(onesided, ranges_are_checked, "SM-ONESIDED-03,SM-ERROR-01,SM-ERROR-04", .max_ranks = 4,
        .flags = TK_WRITES_PADS | TK_PLAIN_MEMORY) {
    struct scene *s = scene_begin(t);
    const int32_t bad_ranks[] = {-1, s->info.world_size, INT32_MIN, INT32_MAX};
    unsigned char data[BYTES + 1], *out = s->out.bytes;
    const struct {
        size_t offset, bytes;
        symmem_status status;
    } ranges[] = {
        {0, BYTES + 1, SYMMEM_OUT_OF_RANGE}, {1, BYTES, SYMMEM_OUT_OF_RANGE},
        {BYTES, 1, SYMMEM_OUT_OF_RANGE},     {BYTES - 1, 2, SYMMEM_OUT_OF_RANGE},
        {BYTES + 1, 0, SYMMEM_OUT_OF_RANGE}, {(size_t)1 << 32, 1, SYMMEM_OUT_OF_RANGE},
        {SIZE_MAX, 1, SYMMEM_OVERFLOW},      {SIZE_MAX - 7, 16, SYMMEM_OVERFLOW},
        {16, SIZE_MAX - 7, SYMMEM_OVERFLOW}, {((size_t)1 << 32) + 8, 8, SYMMEM_OUT_OF_RANGE},
    };
    memset(data, 0x99, sizeof(data));
    TK_REQ(t, "SM-ONESIDED-03");
    for (int i = 0; i < 4; i++) {
        REFUSED(t, OUT_OF_RANGE, symmem_put(s->handle, bad_ranks[i], 0, data, 1, NULL));
        REFUSED(t, OUT_OF_RANGE, symmem_get(s->handle, bad_ranks[i], 0, out, 1, NULL));
        REFUSED(t, OUT_OF_RANGE, symmem_put(s->handle, bad_ranks[i], 0, data, 0, NULL));
    }
    for (size_t i = 0; i < TK_COUNT(ranges); i++) {
        const size_t at = ranges[i].offset, bytes = ranges[i].bytes;
        refused(t, ranges[i].status, symmem_put(s->handle, t->next, at, data, bytes, NULL), "put",
                __LINE__);
        refused(t, ranges[i].status, symmem_get(s->handle, t->next, at, out, bytes, NULL), "get",
                __LINE__);
    }
    REFUSED(t, INVALID_ARGUMENT, symmem_put(s->handle, 0, 0, NULL, 1, NULL));
    REFUSED(t, INVALID_ARGUMENT, symmem_get(s->handle, 0, 0, NULL, 1, NULL));
    REFUSED(t, INVALID_ARGUMENT, symmem_put(NULL, 0, 0, data, 1, NULL));
    REFUSED(t, INVALID_ARGUMENT, symmem_get(NULL, 0, 0, out, 1, NULL));
    TK_OK(t, symmem_put(s->handle, 0, BYTES, data, 0, NULL));
    TK_OK(t, symmem_put(s->handle, 0, BYTES, NULL, 0, NULL));
    TK_OK(t, symmem_get(s->handle, 0, BYTES, NULL, 0, NULL));
    REFUSED(t, INVALID_ARGUMENT, symmem_copy(t->context, NULL, data, 1, NULL));
    REFUSED(t, INVALID_ARGUMENT, symmem_copy(t->context, out, NULL, 1, NULL));
    TK_OK(t, symmem_copy(t->context, NULL, NULL, 0, NULL));
    scene_end(s);
    TK_OK(t, symmem_put(s->handle, t->next, BYTES - 1, data, 1, NULL));
    tk_expect_bytes(t, s->handle, t->next, 0, BYTES - 1, 0x37);
    tk_expect_bytes(t, s->handle, t->next, BYTES - 1, 1, 0x99);
}

/* Of load-reduces. */
static const struct {
    size_t at, count;
    int dtype, op;
    size_t shift; /* of the destination */
    symmem_status status;
} wrong_loads[] = {
    {BYTES - 12, 4, SYMMEM_INT32, SYMMEM_SUM, 0, SYMMEM_OUT_OF_RANGE},
    {0, BYTES / 4 + 1, SYMMEM_INT32, SYMMEM_SUM, 0, SYMMEM_OUT_OF_RANGE},
    {0, ((size_t)1 << 30) + 1, SYMMEM_INT32, SYMMEM_SUM, 0, SYMMEM_OUT_OF_RANGE},
    {0, ((size_t)1 << 32) + 1, SYMMEM_INT32, SYMMEM_SUM, 0, SYMMEM_OUT_OF_RANGE},
    {0, ((size_t)1 << 62) + 1, SYMMEM_INT32, SYMMEM_SUM, 0, SYMMEM_OVERFLOW},
    {0, SIZE_MAX / 4 + 2, SYMMEM_INT32, SYMMEM_SUM, 0, SYMMEM_OVERFLOW},
    {0, SIZE_MAX / 2 + 2, SYMMEM_INT32, SYMMEM_SUM, 0, SYMMEM_OVERFLOW},
    {0, SIZE_MAX, SYMMEM_INT32, SYMMEM_SUM, 0, SYMMEM_OVERFLOW},
    {0, 4, -1, SYMMEM_SUM, 0, SYMMEM_INVALID_ARGUMENT},
    {0, 4, SYMMEM_DTYPE_COUNT, SYMMEM_SUM, 0, SYMMEM_INVALID_ARGUMENT},
    {0, 4, SYMMEM_INT32, -1, 0, SYMMEM_INVALID_ARGUMENT},
    {0, 4, SYMMEM_INT32, SYMMEM_REDUCE_OP_COUNT, 0, SYMMEM_INVALID_ARGUMENT},
    {1, 1, SYMMEM_INT32, SYMMEM_SUM, 0, SYMMEM_MISALIGNED},
    {2, 1, SYMMEM_INT32, SYMMEM_SUM, 0, SYMMEM_MISALIGNED},
    {3, 1, SYMMEM_INT32, SYMMEM_SUM, 0, SYMMEM_MISALIGNED},
    {0, 1, SYMMEM_INT32, SYMMEM_SUM, 1, SYMMEM_MISALIGNED},
    {0, 1, SYMMEM_INT32, SYMMEM_SUM, 2, SYMMEM_MISALIGNED},
    {0, 1, SYMMEM_INT32, SYMMEM_SUM, 3, SYMMEM_MISALIGNED},
};

ON_MULTICAST(multicast, edges, "SM-MCAST-08,SM-MCAST-10,SM-ERROR-01,SM-ERROR-04",
             .needs = SYMMEM_CAP_MULTICAST, .ranks = {2, 4},
             .flags = TK_WRITES_PADS | TK_PLAIN_MEMORY) {
    unsigned char data[BYTES + 16];
    struct scene *s = scene_begin(t);
    unsigned char *out = s->out.bytes;
    memset(data, 0x99, sizeof(data));
    TK_REQ(t, "SM-MCAST-08");
    for (size_t i = 0; i < TK_COUNT(wrong_loads); i++) {
        tk_checkpoint(t, "load %zu", i);
        symmem_status status = symmem_multimem_ld_reduce(
            s->handle, wrong_loads[i].at, out + wrong_loads[i].shift, wrong_loads[i].count,
            (symmem_dtype)wrong_loads[i].dtype, (symmem_reduce_op)wrong_loads[i].op, NULL);
        refused(t, wrong_loads[i].status, status, "multimem_ld_reduce", __LINE__);
    }
    REFUSED(t, INVALID_ARGUMENT,
            symmem_multimem_ld_reduce(s->handle, 0, NULL, 4, SYMMEM_INT32, SYMMEM_SUM, NULL));
    REFUSED(t, OUT_OF_RANGE, symmem_multimem_store(s->handle, BYTES, data, 16, NULL));
    REFUSED(t, OUT_OF_RANGE, symmem_multimem_store(s->handle, 0, data, BYTES + 16, NULL));
    REFUSED(t, OUT_OF_RANGE, symmem_multimem_store(s->handle, BYTES - 16, data, 32, NULL));
    REFUSED(t, OVERFLOW, symmem_multimem_store(s->handle, SIZE_MAX - 15, data, 32, NULL));
    REFUSED(t, INVALID_ARGUMENT, symmem_multimem_store(s->handle, 0, NULL, 16, NULL));
    TK_OK(t, symmem_multimem_store(s->handle, BYTES, data, 0, NULL));
    TK_OK(t, symmem_multimem_store(s->handle, 0, NULL, 0, NULL));
    TK_OK(t, symmem_multimem_ld_reduce(s->handle, BYTES, out, 0, SYMMEM_INT32, SYMMEM_SUM, NULL));
    scene_end(s);
    if (t->rank == 0) /* one writer: two would race, if only with equal bytes */
        TK_OK(t, symmem_multimem_store(s->handle, BYTES - 16, data, 16, NULL));
    TK_OK(t, symmem_barrier(s->handle, 0, LONG_MS, NULL));
    tk_expect_bytes(t, s->handle, t->rank, BYTES - 16, 16, 0x99);
}

/* --- queries ---------------------------------------------------------------------------------- */

TK_TEST(limits, handles, "SM-HANDLE-06,SM-ERROR-01,SM-ERROR-04,SM-ERROR-08",
        .needs = SYMMEM_CAP_DIRECT_ACCESS, .max_ranks = 4, .flags = TK_WRITES_PADS) {
    symmem_handle_info info;
    symmem_error_record record;
    const char *name = NULL;
    void *const *table = NULL;
    struct scene *s = scene_begin(t);
    const int32_t bad_ranks[] = {-1, s->info.world_size, INT32_MIN, INT32_MAX};
    TK_REQ(t, "SM-HANDLE-06");
    for (int i = 0; i < 4; i++)
        REFUSED(t, OUT_OF_RANGE,
                symmem_handle_global_rank(s->handle, bad_ranks[i], &s->out.number));
    TK_REQ(t, "SM-ERROR-01");
    REFUSED(t, INVALID_ARGUMENT, symmem_handle_global_rank(s->handle, 0, NULL));
    REFUSED(t, INVALID_ARGUMENT, symmem_handle_global_rank(NULL, 0, &s->out.number));
    REFUSED(t, INVALID_ARGUMENT, symmem_handle_get_info(s->handle, NULL));
    REFUSED(t, INVALID_ARGUMENT, symmem_handle_get_info(NULL, &info));
    REFUSED(t, INVALID_ARGUMENT, symmem_handle_buffer_ptrs(s->handle, NULL));
    REFUSED(t, INVALID_ARGUMENT, symmem_handle_buffer_ptrs(NULL, &table));
    REFUSED(t, INVALID_ARGUMENT, symmem_handle_signal_pad_ptrs(s->handle, NULL));
    REFUSED(t, INVALID_ARGUMENT, symmem_handle_signal_pad_ptrs(NULL, &table));
    REFUSED(t, INVALID_ARGUMENT, symmem_handle_buffer_ptrs_dev(s->handle, NULL));
    REFUSED(t, INVALID_ARGUMENT, symmem_handle_buffer_ptrs_dev(NULL, &s->out.pointer));
    REFUSED(t, INVALID_ARGUMENT, symmem_handle_signal_pad_ptrs_dev(s->handle, NULL));
    REFUSED(t, INVALID_ARGUMENT, symmem_handle_signal_pad_ptrs_dev(NULL, &s->out.pointer));
    REFUSED(t, INVALID_ARGUMENT, symmem_handle_group_name(s->handle, NULL));
    REFUSED(t, INVALID_ARGUMENT, symmem_handle_group_name(NULL, &name));
    REFUSED(t, INVALID_ARGUMENT, symmem_handle_retain(NULL));
    TK_REQ(t, "SM-ERROR-08");
    memset(&record, 0x5b, sizeof(record));
    const symmem_error_record untouched = record;
    REFUSED(t, INVALID_ARGUMENT, symmem_handle_status(NULL, &record));
    TK_CHECK(t, memcmp(&record, &untouched, sizeof(record)) == 0);
    REFUSED(t, INVALID_ARGUMENT, symmem_multimem_store(NULL, 0, "0123456789abcde", 16, NULL));
    REFUSED(t, INVALID_ARGUMENT,
            symmem_multimem_ld_reduce(NULL, 0, s->out.bytes, 4, SYMMEM_INT32, SYMMEM_SUM, NULL));
    symmem_handle_release(NULL);
    TK_CHECK(t, name == NULL && table == NULL);
    scene_end(s);
}

/* --- views ------------------------------------------------------------------------------------ */

/* `symmem_`, for the record's operation. */
#define VIEW_REFUSED(t, expected, name, ...)                                                       \
    refused((t), SYMMEM_##expected, view(__VA_ARGS__), name, __LINE__)

static void view_arguments_of(struct scene *s, view_fn view, const char *name, int64_t words) {
    struct tk *t = s->t;
    DLManagedTensor *tensor = UNTOUCHED_POINTER;
    const int64_t one[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1}, all[1] = {words}, more[1] = {words + 1};
    const int64_t negative[2] = {1, -1}, huge[2] = {INT64_MAX, INT64_MAX};
    const int32_t bad_ranks[] = {-1, s->info.world_size, INT32_MIN, INT32_MAX};
    const symmem_dtype u32 = SYMMEM_UINT32;
    for (int i = 0; i < 4; i++)
        VIEW_REFUSED(t, OUT_OF_RANGE, name, s->handle, bad_ranks[i], 1, one, u32, 0, &tensor);
    VIEW_REFUSED(t, INVALID_ARGUMENT, name, s->handle, 0, -1, one, u32, 0, &tensor);
    VIEW_REFUSED(t, INVALID_ARGUMENT, name, s->handle, 0, 9, one, u32, 0, &tensor);
    VIEW_REFUSED(t, INVALID_ARGUMENT, name, s->handle, 0, 1, NULL, u32, 0, &tensor);
    VIEW_REFUSED(t, INVALID_ARGUMENT, name, s->handle, 0, 1, one, (symmem_dtype)-1, 0, &tensor);
    VIEW_REFUSED(t, INVALID_ARGUMENT, name, s->handle, 0, 1, one, SYMMEM_DTYPE_COUNT, 0, &tensor);
    VIEW_REFUSED(t, OUT_OF_RANGE, name, s->handle, 0, 1, one, u32, -1, &tensor);
    VIEW_REFUSED(t, OUT_OF_RANGE, name, s->handle, 0, 1, one, u32, INT64_MIN, &tensor);
    VIEW_REFUSED(t, OUT_OF_RANGE, name, s->handle, 0, 1, one, u32, words, &tensor);
    VIEW_REFUSED(t, OUT_OF_RANGE, name, s->handle, 0, 1, more, u32, 0, &tensor);
    VIEW_REFUSED(t, OUT_OF_RANGE, name, s->handle, 0, 1, all, u32, 1, &tensor);
    VIEW_REFUSED(t, OUT_OF_RANGE, name, s->handle, 0, 2, negative, u32, 0, &tensor);
    VIEW_REFUSED(t, OVERFLOW, name, s->handle, 0, 2, huge, u32, 0, &tensor);
    VIEW_REFUSED(t, OVERFLOW, name, s->handle, 0, 1, one, u32, INT64_MAX, &tensor);
    VIEW_REFUSED(t, INVALID_ARGUMENT, name, s->handle, 0, 1, one, u32, 0, NULL);
    VIEW_REFUSED(t, INVALID_ARGUMENT, name, NULL, 0, 1, one, u32, 0, &tensor);
    TK_CHECK(t, (void *)tensor == UNTOUCHED_POINTER);
    TK_REQUIRE_OK(t, view(s->handle, 0, 1, all, u32, 0, &tensor));
    tensor->deleter(tensor);
    TK_REQUIRE_OK(t, view(s->handle, 0, 8, one, u32, 0, &tensor));
    tensor->deleter(tensor);
}

TK_TEST(limits, views, "SM-VIEW-03,SM-VIEW-04,SM-ERROR-01,SM-ERROR-04",
        .needs = SYMMEM_CAP_DIRECT_ACCESS, .max_ranks = 4,
        .flags = TK_WRITES_PADS | TK_PLAIN_MEMORY) {
    struct scene *s = scene_begin(t);
    TK_REQ(t, "SM-VIEW-03");
    view_arguments_of(s, symmem_get_buffer, "get_buffer", BYTES / 4);
    view_arguments_of(s, symmem_get_remote_tensor, "get_remote_tensor", BYTES / 4);
    view_arguments_of(s, symmem_get_signal_pad, "get_signal_pad",
                      (int64_t)s->info.signal_pad_size / 4);
    scene_end(s);
}

TK_TEST(limits, fills, "SM-FILL-03,SM-ERROR-01", .needs = SYMMEM_CAP_DIRECT_ACCESS, .max_ranks = 4,
        .flags = TK_WRITES_PADS | TK_PLAIN_MEMORY) {
    const int64_t words = BYTES / 4, all[1] = {words};
    struct scene *s = scene_begin(t);
    DLManagedTensor *tensor =
        view_by(t, symmem_get_buffer, s->handle, t->rank, 1, all, SYMMEM_UINT32, 0);
    const DLTensor *whole = &tensor->dl_tensor;
    const int64_t values[] = {-1, (int64_t)1 << 32, INT64_MIN, INT64_MAX};
    const int64_t places[] = {-1, words, INT64_MIN, INT64_MAX};
    TK_REQ(t, "SM-FILL-03");
    for (int i = 0; i < 4; i++) {
        REFUSED(t, OUT_OF_RANGE, symmem_memset32(t->context, whole, 0, values[i], 1, NULL));
        REFUSED(t, OUT_OF_RANGE, symmem_memset32(t->context, whole, places[i], 1, 1, NULL));
        REFUSED(t, OUT_OF_RANGE,
                symmem_stream_write_value32(t->context, whole, 0, values[i], NULL));
        REFUSED(t, OUT_OF_RANGE,
                symmem_stream_write_value32(t->context, whole, places[i], 1, NULL));
    }
    REFUSED(t, OUT_OF_RANGE, symmem_memset32(t->context, whole, 0, 1, 0, NULL));
    REFUSED(t, OUT_OF_RANGE, symmem_memset32(t->context, whole, 0, 1, -1, NULL));
    REFUSED(t, OUT_OF_RANGE, symmem_memset32(t->context, whole, 0, 1, words + 1, NULL));
    REFUSED(t, OUT_OF_RANGE, symmem_memset32(t->context, whole, 1, 1, words, NULL));
    REFUSED(t, OUT_OF_RANGE, symmem_memset32(t->context, whole, 1, 1, INT64_MAX, NULL));
    DLTensor member = *whole;
    OPS_WRONG_MEMBERS(t, member, true, symmem_memset32(t->context, &member, 0, 1, 1, NULL));
    OPS_WRONG_MEMBERS(t, member, true,
                      symmem_stream_write_value32(t->context, &member, 0, 1, NULL));
    REFUSED(t, INVALID_ARGUMENT, symmem_memset32(t->context, NULL, 0, 1, 1, NULL));
    REFUSED(t, INVALID_ARGUMENT, symmem_stream_write_value32(t->context, NULL, 0, 1, NULL));
    tensor->deleter(tensor);
    scene_end(s);
}
