/* SPDX-License-Identifier: BSD-3-Clause */
/* Moves through multicast: into every rank's buffer, at the same place. */
#include "gathers.h"

#define STORES (SYMMEM_CAP_MULTICAST | SYMMEM_CAP_DIRECT_ACCESS)
#define MULTIMEM (STORES | SYMMEM_CAP_COLLECTIVES)

#define UNTOUCHED_TENSOR ((DLManagedTensor *)(uintptr_t)0x5b5b5b50)

static void on_shape(struct tk *t, symmem_group *group, const struct tk_shape *shape, void *arg) {
    const struct gather_way *ways = arg;
    uint64_t state = t->seed + (uint64_t)shape->count;
    struct places *p = places_on(t, group);
    bool multicast = info_of(t, p->handle).multicast_ptr != NULL;
    for (uint32_t i = 0; multicast && i < (tk_suite_is_long() ? 200 : 8); i++)
        gather_drawn(t, p, &ways[draw(&state, 3)], &state, draw(&state, 131), i);
    TK_CHECK_MSG(t, multicast || shape->count == 1, "%s has no multicast pointer", shape->name);
    if (!multicast) /* a group of one may go without */
        TK_FAILS(t, UNSUPPORTED,
                 ways->call(p->handle, FLAT(p->far.at, SYMMEM_UINT8, 8),
                            FLAT(p->own.at, SYMMEM_UINT8, 8), 0, 50, NULL));
}

TK_PORTED(test_multimem_all_gather, "SM-MMEM-03,SM-COLL-07", .needs = MULTIMEM, .ranks = {2, 8}) {
    if (multicast_allowed(t))
        tk_for_each_group_shape(t, on_shape, (void *)multimem_ways);
}

TK_PORTED(test_low_contention_all_gather_ce_multicast, "SM-MMEM-05,SM-COLL-07", .needs = STORES,
          .ranks = {2, 8}) {
    if (multicast_allowed(t))
        tk_for_each_group_shape(t, on_shape, (void *)ce_ways);
}

/* The new memory's multicast, which one rank cannot join, or the memory itself. */
TK_TEST(mmem_gather, one_rank_lacks_it, "SM-RDV-25", .needs = STORES, .ranks = {2, 4}) {
    static const char *const points[] = {"rendezvous.attach.before", "alloc.before"};
    if (!multicast_allowed(t))
        return;
    symmem_handle *handle = tk_handle(t, 4096, tk_world_group(t));
    DLManagedTensor *made = NULL;
    struct ops_tensor input;
    for (int i = 0; i < 2; i++) {
        if (t->rank == t->last)
            tk_on_point(t, points[i], 1, (struct tk_action){.status = SYMMEM_LIMIT});
        const symmem_status status = symmem_low_contention_all_gather_ce_multicast(
            handle, ops_flat(&input, ops_own(t, handle), SYMMEM_UINT8, 64), 0, LONG_MS, NULL,
            &made);
        const symmem_error_record record = last_record();
        TK_STATUS(t, i == 0 ? SYMMEM_UNSUPPORTED : SYMMEM_LIMIT, status);
        TK_CHECK(t, record.failed_rank == t->last || (t->rank == t->last && i == 1));
        TK_CHECK_MSG(t, i == 1 || strstr(record.message, "LIMIT") != NULL, "%s", record.message);
        tk_forget_points(t);
        tk_out_of_band_barrier(t);
    }
    TK_REQUIRE_OK(t, symmem_low_contention_all_gather_ce_multicast(
                         handle, ops_flat(&input, ops_own(t, handle), SYMMEM_UINT8, 64), 0, LONG_MS,
                         NULL, &made));
    made->deleter(made);
}

/* PyTorch's shapes: a scalar and (64, 64), symmetric input or not. */
PORTED_ON_MULTICAST(test_low_contention_all_gather_ce_multicast_out, "SM-MMEM-05,SM-MOVE-03",
                    .needs = STORES, .ranks = {2, 4}) {
    enum { COUNT = 64 * 64 };
    float values[COUNT], got[COUNT];
    struct ops_tensor input, out;
    size_t n = (size_t)t->world_size;
    symmem_handle *handle = tk_handle(t, (n + 1) * sizeof(values), tk_world_group(t));
    char *own = ops_own(t, handle), *far = tk_alloc(t, sizeof(values));
    for (int i = 0; i < 4; i++) {
        bool scalar = i % 2;
        char *in = i / 2 ? own + n * sizeof(values) : far;
        const int64_t shape[2] = {64, 64};
        const int64_t all[2] = {scalar ? (int64_t)n : 64 * (int64_t)n, 64};
        const int64_t more[2] = {all[0] + 1, 64};
        size_t count = scalar ? 1 : COUNT;
        for (size_t k = 0; k < count; k++)
            values[k] = (float)(t->rank + 10 * i);
        ops_upload(t, in, values, count * 4);
        (void)ops_shaped(&input, in, SYMMEM_FLOAT32, scalar ? 0 : 2, shape);
        (void)ops_shaped(&out, own, SYMMEM_FLOAT32, scalar ? 1 : 2, all);
        TK_OK(t, symmem_low_contention_all_gather_ce_multicast_out(handle, &input.dl, &out.dl, 3,
                                                                   LONG_MS, NULL));
        for (int32_t r = 0; r < t->world_size; r++) {
            for (size_t k = 0; k < count; k++)
                values[k] = (float)(r + 10 * i);
            ops_download(t, got, own + (size_t)r * count * 4, count * 4);
            ops_expect(t, values, got, SYMMEM_FLOAT32, count, "a chunk");
        }
        (void)ops_shaped(&out, own, SYMMEM_FLOAT32, scalar ? 1 : 2, more);
        TK_FAILS(t, INVALID_ARGUMENT,
                 symmem_low_contention_all_gather_ce_multicast_out(handle, &input.dl, &out.dl, 3,
                                                                   50, NULL));
    }
}

/* --- outputs of their own --------------------------------------------------------------------- */

ON_MULTICAST(mmem, outputs_of_their_own, "SM-MMEM-08", .needs = MULTIMEM, .ranks = {2, 3}) {
    enum { ROWS = 3, COLUMNS = 5, COUNT = ROWS * COLUMNS };
    const int64_t shape[2] = {ROWS, COLUMNS};
    int32_t values[COUNT], sums[COUNT] = {0}, got[COUNT];
    struct ops_tensor input;
    DLManagedTensor *sum = NULL, *all = NULL;
    symmem_handle *handle = tk_handle(t, sizeof(values), tk_world_group(t));
    char *own = ops_own(t, handle);
    for (int round = 0; round < 3; round++) {
        memset(sums, 0, sizeof(sums));
        for (int32_t r = 0; r < t->world_size; r++) {
            ops_fill(values, SYMMEM_INT32, COUNT, r, (uint32_t)round);
            for (int i = 0; i < COUNT; i++)
                sums[i] += values[i];
        }
        ops_fill(values, SYMMEM_INT32, COUNT, t->rank, (uint32_t)round);
        ops_upload(t, own, values, sizeof(values));
        (void)ops_shaped(&input, own, SYMMEM_INT32, 2, shape);
        TK_REQUIRE_OK(t, symmem_multimem_one_shot_all_reduce(handle, &input.dl, SYMMEM_SUM, 0,
                                                             LONG_MS, NULL, &sum));
        TK_REQUIRE_OK(t, symmem_low_contention_all_gather_ce_multicast(handle, &input.dl, 1,
                                                                       LONG_MS, NULL, &all));
        TK_CHECK(t, sum->dl_tensor.ndim == 2 && sum->dl_tensor.shape[0] == ROWS &&
                        sum->dl_tensor.shape[1] == COLUMNS);
        TK_CHECK(t, all->dl_tensor.ndim == 2 && all->dl_tensor.shape[1] == COLUMNS &&
                        all->dl_tensor.shape[0] == ROWS * (int64_t)t->world_size);
        ops_download(t, got, sum->dl_tensor.data, sizeof(got));
        ops_expect(t, sums, got, SYMMEM_INT32, COUNT, "the sum");
        for (int32_t r = 0; r < t->world_size; r++) {
            ops_fill(values, SYMMEM_INT32, COUNT, r, (uint32_t)round);
            ops_download(t, got, (char *)all->dl_tensor.data + (size_t)r * sizeof(got),
                         sizeof(got));
            ops_expect(t, values, got, SYMMEM_INT32, COUNT, "a chunk");
        }
        void *places[2] = {sum->dl_tensor.data, all->dl_tensor.data};
        sum->deleter(sum);
        all->deleter(all);
        for (int i = 0; i < 2; i++) {
            TK_CHECK_MSG(t, !is_symmetric(t, places[i]), "the memory is still there");
        }
    }
    sum = all = UNTOUCHED_TENSOR;
    TK_FAILS(t, INVALID_ARGUMENT,
             symmem_low_contention_all_gather_ce_multicast(handle, NULL, 1, 50, NULL, &all));
    TK_FAILS(t, INVALID_ARGUMENT,
             symmem_multimem_one_shot_all_reduce(handle, NULL, SYMMEM_SUM, 0, 50, NULL, &sum));
    TK_FAILS(t, INVALID_ARGUMENT,
             symmem_low_contention_all_gather_ce_multicast(handle, &input.dl, 1, 50, NULL, NULL));
    TK_FAILS(t, INVALID_ARGUMENT,
             symmem_multimem_one_shot_all_reduce(handle, &input.dl, SYMMEM_SUM, 0, 50, NULL, NULL));
    int64_t sides[9] = {INT64_MAX, 0, 1, 1, 1, 1, 1, 1, 1};
    DLTensor odd = input.dl; /* without elements, which does not matter */
    odd.shape = sides;
    odd.strides = NULL;
    odd.dtype.bits = 8;
    TK_FAILS(t, OVERFLOW,
             symmem_low_contention_all_gather_ce_multicast(handle, &odd, 1, 50, NULL, &all));
    odd.ndim = 9;
    sides[0] = 1;
    TK_FAILS(t, INVALID_ARGUMENT,
             symmem_low_contention_all_gather_ce_multicast(handle, &odd, 1, 50, NULL, &all));
    TK_CHECK(t, sum == UNTOUCHED_TENSOR && all == UNTOUCHED_TENSOR);
    input.dl.ndim = 0; /* one element makes one for each rank */
    TK_REQUIRE_OK(t, symmem_low_contention_all_gather_ce_multicast(handle, &input.dl, 1, LONG_MS,
                                                                   NULL, &all));
    TK_CHECK(t, all->dl_tensor.ndim == 1 && all->dl_tensor.shape[0] == t->world_size);
    all->deleter(all);
}

ON_MULTICAST(mmem, no_outputs_in_a_capture, "SM-MMEM-08", .needs = MULTIMEM | SYMMEM_CAP_CAPTURE,
             .ranks = {2, 2}) {
    DLManagedTensor *made = UNTOUCHED_TENSOR;
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    symmem_stream *stream = tk_stream(t);
    const DLTensor *input = FLAT(ops_own(t, handle), SYMMEM_INT32, 16);
    TK_REQUIRE_OK(t, symmem_stream_begin_capture(stream));
    TK_FAILS(t, CAPTURE,
             symmem_multimem_one_shot_all_reduce(handle, input, SYMMEM_SUM, 0, 50, stream, &made));
    TK_FAILS(t, CAPTURE,
             symmem_low_contention_all_gather_ce_multicast(handle, input, 0, 50, stream, &made));
    (void)tk_end_capture(t, stream);
    TK_CHECK(t, made == UNTOUCHED_TENSOR);
}

/* --- refusals --------------------------------------------------------------------------------- */

/* Multicast is forbidden: nobody waits, nothing is written. */
TK_TEST(mmem, without_multicast, "SM-MMEM-06", .needs = MULTIMEM, .max_ranks = 3) {
    symmem_context_options options = tk_options(t);
    options.multicast = 0;
    tk_reinit(t, &options);
    struct places *g = places_on(t, tk_world_group(t));
    places_upload(t, g);
    const DLTensor *in = FLAT(g->own.at, SYMMEM_FLOAT32, 16);
    const DLTensor *out = FLAT(g->far.at, SYMMEM_FLOAT32, 16 * (size_t)g->size);
    const DLTensor *alike = FLAT(g->far.at, SYMMEM_FLOAT32, 16);
    uint64_t begin_ms = tk_now_ms();
    TK_FAILS(t, UNSUPPORTED, symmem_multimem_all_reduce(g->handle, in, SYMMEM_SUM, 0, 0, NULL));
    TK_FAILS(t, UNSUPPORTED,
             symmem_multimem_one_shot_all_reduce_out(g->handle, in, SYMMEM_SUM, alike, 0, 0, NULL));
    TK_FAILS(t, UNSUPPORTED,
             symmem_multimem_one_shot_reduce_out(g->handle, in, SYMMEM_SUM, 0, alike, 0, 0, NULL));
    TK_FAILS(t, UNSUPPORTED, symmem_multimem_all_gather_out(g->handle, in, out, 0, 0, NULL));
    TK_FAILS(t, UNSUPPORTED,
             symmem_low_contention_all_gather_ce_multicast_out(g->handle, in, out, 0, 0, NULL));
    TK_FAILS(t, UNSUPPORTED, symmem_memcpy_to_multicast(g->handle, 0, alike, NULL));
    DLManagedTensor *made = UNTOUCHED_TENSOR;
    TK_FAILS(t, UNSUPPORTED,
             symmem_multimem_one_shot_all_reduce(g->handle, in, SYMMEM_SUM, 0, 0, NULL, &made));
    TK_FAILS(t, UNSUPPORTED,
             symmem_low_contention_all_gather_ce_multicast(g->handle, in, 0, 0, NULL, &made));
    TK_CHECK(t, made == UNTOUCHED_TENSOR);
    TK_WITHIN(t, 2000, begin_ms);
    places_check(t, g, "refused calls");
}

/* --- memcpy_to_multicast ---------------------------------------------------------------------- */

ON_MULTICAST(mmem, memcpy_reaches_all, "SM-MMEM-04", .needs = STORES, .ranks = {2, 4},
             .flags = TK_PLAIN_MEMORY) {
    struct ops_tensor src;
    struct places *g = places_on(t, tk_world_group(t));
    const int64_t shape[2] = {5, 13};
    size_t bytes = 65 * 8, block = info_of(t, g->handle).block_size;
    for (int32_t writer = 0; writer < g->size; writer++) {
        size_t at = 24 + 640 * (size_t)writer; /* bytes: of no dtype's alignment but this one's */
        area_clear(&g->own);
        area_upload(t, &g->own);
        tk_group_barrier(t, tk_world_group(t));
        move_fill(g->far.expected, bytes, writer, 7);
        area_upload(t, &g->far);
        (void)ops_shaped(&src, g->far.at, SYMMEM_INT64, 2, shape);
        if (g->rank == writer)
            TK_OK(t, symmem_memcpy_to_multicast(g->handle, at, &src.dl, NULL));
        tk_group_barrier(t, tk_world_group(t));
        move_fill(g->own.expected + at, bytes, writer, 7);
        area_check(t, &g->own, "the block");
        tk_group_barrier(t, tk_world_group(t));
    }
    TK_FAILS(t, OUT_OF_RANGE,
             symmem_memcpy_to_multicast(g->handle, block - bytes + 1, &src.dl, NULL));
    TK_EQ_STR(t, "memcpy_to_multicast", last_record().operation);
    TK_STATUS_EITHER(t, SYMMEM_OUT_OF_RANGE, SYMMEM_OVERFLOW,
                     symmem_memcpy_to_multicast(g->handle, SIZE_MAX - 7, &src.dl, NULL));
    TK_FAILS(t, INVALID_ARGUMENT, symmem_memcpy_to_multicast(g->handle, 0, NULL, NULL));
    int64_t gaps[2] = {14, 1};
    src.dl.strides = gaps;
    TK_FAILS(t, INVALID_ARGUMENT, symmem_memcpy_to_multicast(g->handle, 0, &src.dl, NULL));
    area_check(t, &g->own, "the block after refusals");
}
