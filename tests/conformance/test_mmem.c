/* SPDX-License-Identifier: BSD-3-Clause */
/* Reductions through multicast, against the scalar reference. */
#include <math.h>

#include "case_help.h"
#include "move_help.h"
#include "reference/reduce.h"

#define MULTIMEM (COLLECTIVES | SYMMEM_CAP_MULTICAST)
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
 * and their quotient is rounded once from the same number by everybody. */
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
    for (size_t i = 0; i < 131 + LENGTH(primes); i++)
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
    for (int32_t k = r->size - 1; k >= 0; k--) { /* the own ones stay */
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
