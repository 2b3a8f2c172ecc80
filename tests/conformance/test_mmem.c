/* SPDX-License-Identifier: BSD-3-Clause */
/* Reductions through multicast, against the scalar reference. */
#include "case_help.h"
#include "gathers.h"
#include "move_help.h"
#include "reference/reduce.h"

#include <math.h>

#define STORES (SYMMEM_CAP_MULTICAST | SYMMEM_CAP_DIRECT_ACCESS)
#define MULTIMEM (STORES | SYMMEM_CAP_COLLECTIVES)
#define MAX_RANKS 8

enum form { ALL_REDUCE, ONE_SHOT, REDUCE_TO_ROOT, FORM_COUNT };

struct reduction {
    symmem_handle *handle;
    int32_t rank, size;
    uint32_t limit_ms;
    struct area own, far;
    enum form form;
    int32_t root;
    symmem_dtype dtype;
    symmem_reduce_op op;
    size_t count, at, out_at;
    uint32_t generation;
    int refused; /* pairs that the hardware cannot reduce */
};

static struct reduction *reduction_init(struct tk *t, symmem_group *group) {
    struct reduction *r = tk_scratch(t, sizeof *r);
    r->handle = tk_handle(t, AREA_BYTES, group);
    symmem_handle_info info = info_of(t, r->handle);
    r->rank = info.rank;
    r->size = info.world_size;
    r->limit_ms = LONG_MS;
    area_init(&r->own, ops_own(t, r->handle), AREA_BYTES);
    area_init(&r->far, tk_alloc(t, AREA_BYTES), AREA_BYTES);
    return r;
}

static symmem_status reduction_run(const struct reduction *r, int32_t channel,
                                   symmem_stream *stream) {
    const DLTensor *input = FLAT(r->own.at + r->at, r->dtype, r->count);
    const DLTensor *out = FLAT(r->far.at + r->out_at, r->dtype, r->count);
    if (r->form == ALL_REDUCE)
        return symmem_multimem_all_reduce(r->handle, input, r->op, channel, r->limit_ms, stream);
    if (r->form == ONE_SHOT)
        return symmem_multimem_one_shot_all_reduce_out(r->handle, input, r->op, out, channel,
                                                       r->limit_ms, stream);
    const DLTensor *result = r->rank == r->root ? out : NULL;
    return symmem_multimem_one_shot_reduce_out(r->handle, input, r->op, r->root, result, channel,
                                               r->limit_ms, stream);
}

static void reduction_load(struct tk *t, struct reduction *r) {
    area_clear(&r->own);
    area_clear(&r->far);
    ops_fill(r->own.expected + r->at, r->dtype, r->count, r->rank, r->generation);
    area_upload(t, &r->own);
    area_upload(t, &r->far);
}

/* Puts what the reference computes where this rank's result has to be. */
static void model_result(struct reduction *r) {
    uint8_t inputs[MAX_RANKS][AREA_BYTES / MAX_RANKS];
    const void *srcs[MAX_RANKS];
    for (int32_t k = 0; k < r->size; k++) {
        ops_fill(inputs[k], r->dtype, r->count, k, r->generation);
        srcs[k] = inputs[k];
    }
    void *to = r->form == ALL_REDUCE ? r->own.expected + r->at : r->far.expected + r->out_at;
    if (r->form != REDUCE_TO_ROOT || r->rank == r->root)
        (void)symmem_reference_reduce(to, srcs, r->size, r->count, r->dtype, r->op);
}

/* Averages may be rounded otherwise where the sum is no multiple: those of ops_fill are exact sums,
 * and their quotient is rounded once from the same number on every rank. */
static void reduce_once(struct tk *t, struct reduction *r) {
    static const char *const names[FORM_COUNT] = {"all_reduce", "one_shot_all_reduce",
                                                  "one_shot_reduce"};
    reduction_load(t, r);
    symmem_status status = reduction_run(r, (int32_t)r->generation % 3, NULL);
    bool held = true;
    if (status == SYMMEM_UNSUPPORTED &&
        !(r->op == SYMMEM_SUM && (r->dtype == SYMMEM_FLOAT32 || r->dtype == SYMMEM_BFLOAT16))) {
        r->refused++;
    } else {
        held = TK_OK(t, status);
        model_result(r);
    }
    held = held && area_check(t, &r->own, "the block") && area_check(t, &r->far, "other memory");
    TK_CHECK_MSG(t, held, "%s %d of %zu %s at byte %zu", names[r->form], (int)r->op, r->count,
                 symmem_dtype_name(r->dtype), r->at);
}

static void draw_reduction(struct reduction *r, uint64_t *state, size_t count) {
    do {
        r->dtype = draw(state, SYMMEM_DTYPE_COUNT);
        r->op = draw(state, SYMMEM_REDUCE_OP_COUNT);
    } while (!symmem_reduce_supported(r->dtype, r->op));
    size_t width = symmem_dtype_size(r->dtype);
    r->form = draw(state, FORM_COUNT);
    r->root = (int32_t)draw(state, (uint32_t)r->size);
    r->count = count;
    r->at = draw(state, 40) * width;
    r->out_at = draw(state, 40) * width;
    r->generation++;
}

/* --- every count, dtype, op and group --------------------------------------------------------- */

ON_MULTICAST(mmem, every_count, "SM-MMEM-01,SM-MMEM-02,SM-MMEM-07,SM-COLL-07", .needs = MULTIMEM,
             .ranks = {2, 3}, .timeout_s = 60) {
    static const size_t primes[] = {139, 193, 241, 251};
    uint64_t state = t->seed;
    struct reduction *r = reduction_init(t, tk_world_group(t));
    for (size_t i = 0; i < 131 + TK_COUNT(primes); i++)
        for (int again = tk_suite_is_long() ? 100 : 1; again > 0; again--) {
            draw_reduction(r, &state, i <= 130 ? i : primes[i - 131]);
            reduce_once(t, r);
        }
}

PORTED_ON_MULTICAST(test_multimem_all_reduce, "SM-MMEM-01,SM-MMEM-07", .needs = MULTIMEM,
                    .ranks = {2, 4}) {
    uint64_t state = t->seed;
    struct reduction *r = reduction_init(t, tk_world_group(t));
    for (int dtype = 0; dtype < SYMMEM_DTYPE_COUNT; dtype++)
        for (int op = 0; op < SYMMEM_REDUCE_OP_COUNT; op++) {
            if (!symmem_reduce_supported((symmem_dtype)dtype, (symmem_reduce_op)op))
                continue;
            for (int form = 0; form < FORM_COUNT; form++) {
                draw_reduction(r, &state, 67);
                r->dtype = (symmem_dtype)dtype;
                r->op = (symmem_reduce_op)op;
                r->form = (enum form)form;
                r->at = 24;
                r->out_at = 40;
                reduce_once(t, r);
            }
        }
    if (r->refused > 0)
        tk_note(t, "%d forms of dtype and op are not done by the hardware", r->refused);
}

static void reduce_on_shape(struct tk *t, symmem_group *group, const struct tk_shape *shape,
                            void *arg) {
    uint64_t state = t->seed + (uint64_t)shape->count;
    int *seen = arg;
    struct reduction *r = reduction_init(t, group);
    bool multicast = info_of(t, r->handle).multicast_ptr != NULL;
    *seen += multicast;
    for (uint32_t i = 0; i < 2 * FORM_COUNT; i++) {
        draw_reduction(r, &state, 1 + draw(&state, 150));
        r->form = i % FORM_COUNT;
        if (multicast)
            reduce_once(t, r);
        else /* a group of one may go without */
            TK_FAILS(t, UNSUPPORTED, reduction_run(r, 0, NULL));
    }
}

PORTED_ON_MULTICAST(test_multimem_one_shot_all_reduce, "SM-MMEM-01,SM-MMEM-02,SM-MMEM-07",
                    .needs = MULTIMEM, .ranks = {2, MAX_RANKS}) {
    int seen = 0;
    tk_for_each_group_shape(t, reduce_on_shape, &seen);
    TK_CHECK_MSG(t, seen > 0, "no group had a multicast pointer");
}

/* Every root, and all the others left alone: out NULL, or something that no tensor is. */
PORTED_ON_MULTICAST(test_multimem_one_shot_reduce_out, "SM-MMEM-02", .needs = MULTIMEM,
                    .ranks = {2, 4}) {
    struct ops_tensor input, out;
    struct reduction *r = reduction_init(t, tk_world_group(t));
    for (int32_t root = 0; root < r->size; root++) {
        r->form = REDUCE_TO_ROOT;
        r->root = root;
        r->dtype = SYMMEM_FLOAT32;
        r->count = 77;
        r->generation = (uint32_t)root;
        reduce_once(t, r);
        reduction_load(t, r);
        (void)ops_flat(&input, r->own.at, r->dtype, r->count);
        (void)ops_flat(&out, r->far.at, r->dtype, r->count);
        if (r->rank != root)
            memset(&out.dl, 0x5b, sizeof(out.dl));
        TK_OK(t, symmem_multimem_one_shot_reduce_out(r->handle, &input.dl, SYMMEM_SUM, root,
                                                     &out.dl, 0, r->limit_ms, NULL));
        model_result(r);
        area_check(t, &r->far, "out");
    }
}

/* --- floats that round ------------------------------------------------------------------------ */

/* Sums that depend on their order: within the bound of the exact one, and of an all-reduce the same
 * bits on every rank. */
ON_MULTICAST(mmem, within_the_bound, "SM-MMEM-01,SM-MMEM-02", .needs = MULTIMEM, .ranks = {2, 4}) {
    enum { COUNT = 500 };
    float values[COUNT], got[COUNT], all[COUNT];
    double exact[COUNT] = {0}, magnitude[COUNT] = {0};
    struct ops_tensor input, out;
    struct reduction *r = reduction_init(t, tk_world_group(t));
    for (int32_t k = r->size - 1; k >= 0; k--) { /* this rank's stay */
        int32_t rank = (r->rank + k) % r->size;
        for (uint32_t i = 0; i < COUNT; i++) {
            uint32_t word = word_of(rank, 9, i) * 0x9e3779b1u;
            values[i] = ldexpf((float)(int32_t)word, (int)(word % 40) - 60);
            exact[i] += (double)values[i];
            magnitude[i] += fabs((double)values[i]);
        }
    }
    for (enum form form = ALL_REDUCE; form <= ONE_SHOT; form++) {
        (void)ops_flat(&input, r->own.at, SYMMEM_FLOAT32, COUNT);
        (void)ops_flat(&out, r->far.at, SYMMEM_FLOAT32, COUNT);
        ops_upload(t, r->own.at, values, sizeof(values));
        if (form == ALL_REDUCE)
            TK_OK(t, symmem_multimem_all_reduce(r->handle, &input.dl, SYMMEM_SUM, 0, r->limit_ms,
                                                NULL));
        else
            TK_OK(t, symmem_multimem_one_shot_all_reduce_out(r->handle, &input.dl, SYMMEM_SUM,
                                                             &out.dl, 0, r->limit_ms, NULL));
        ops_download(t, got, form == ALL_REDUCE ? r->own.at : r->far.at, sizeof(got));
        int wrong = 0;
        for (int i = 0; i < COUNT; i++) { /* the exact sum is one of doubles: their error, too */
            double bound = (r->size - 1) * 0x1.00001p-24 * magnitude[i] + 0x1p-48 * magnitude[i];
            wrong += !(fabs((double)got[i] - exact[i]) <= bound);
        }
        TK_EQ_INT(t, 0, wrong);
        tk_out_of_band_barrier(t);
        if (form == ALL_REDUCE) {
            tk_read(t, r->handle, (r->rank + 1) % r->size, 0, all, sizeof(all));
            TK_CHECK_MSG(t, memcmp(all, got, sizeof(all)) == 0, "two ranks have other bits");
        }
        tk_out_of_band_barrier(t);
    }
}

/* --- Moves through multicast: into every rank's buffer, at the same place --------------------- */

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

/* Multicast is forbidden: no rank waits, nothing is written. */
TK_TEST(mmem, without_multicast, "SM-MMEM-06", .needs = MULTIMEM, .max_ranks = 3) {
    TK_REINIT(t, options.multicast = 0);
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
