/* SPDX-License-Identifier: BSD-3-Clause */
/* All-to-alls with splits in memory: splits that cannot be, arguments that do not fit, and ranks
 * that call something else. */
#include "backend_table.h"
#include "case_help.h"
#include "split_help.h"

/* Splits with room for all, which a case then makes wrong. */
static void drawn(struct split_case *x, uint64_t *state, enum split_form form) {
    x->form = form;
    x->experts = form == SPLIT_FLAT ? 1 : 2;
    x->align = 2;
    split_draw(x, state, 5);
    for (int32_t r = 0; r < x->size; r++)
        for (size_t i = 0; i < split_parts(x); i += 3) { /* some rows everywhere */
            x->ranks[r].in[0][i] += x->form == SPLIT_BACK ? 0 : 1;
            x->ranks[r].in_rows += x->form != SPLIT_BACK;
        }
    for (int32_t r = 0; r < x->size; r++)
        x->ranks[r].out_rows = split_need(x, r);
}

/* --- splits that cannot be -------------------------------------------------------------------- */

/* What is wrong, by what the reference says. */
static void expect_record(struct tk *t, const struct split_case *x,
                          const symmem_reference_fault *wrong) {
    symmem_error_record record = last_record();
    TK_REQ(t, "SM-SPLIT-08");
    TK_EQ_STR(t, split_name(x), record.operation);
    TK_EQ_STR(t, symmem_split_stage(wrong->fault), record.stage);
    TK_EQ_INT(t, wrong->rank, record.failed_rank);
    TK_EQ_SIZE(t, wrong->allowed, record.expected);
    TK_EQ_SIZE(t, wrong->found, record.actual);
    TK_EQ_INT(t, x->channel, record.channel);
}

/* The case's splits are wrong: every rank says so, on a stream by its synchronization. */
static void refused_once(struct tk *t, struct split_case *x, symmem_stream *stream,
                         symmem_split_fault expected, uint32_t generation) {
    const symmem_reference_fault wrong = split_fault_of(x);
    TK_REQ(t, NULL);
    TK_EQ_INT(t, expected, wrong.fault);
    split_load(t, x, generation);
    symmem_status status = split_run(x, stream);
    if (stream != NULL && TK_OK(t, status))
        status = symmem_stream_synchronize(stream, LONG_MS);
    if (TK_STATUS(t, symmem_split_status(expected), status))
        expect_record(t, x, &wrong);
    TK_REQ(t, "SM-SPLIT-09");
    split_untouched(t, x, "wrong splits");
    TK_CHECK(t, !info_of(t, x->handle).poisoned);
}

/* The channel goes on with right splits. */
static void goes_on(struct tk *t, struct split_case *x, symmem_stream *stream,
                    uint32_t generation) {
    split_load(t, x, generation);
    TK_OK(t, split_run(x, stream));
    if (stream != NULL)
        tk_synchronize(t, stream);
    split_expect(t, x, "after wrong splits");
}

/* One thing that is wrong at rank `odd`. False if that form cannot have it. */
static bool make_wrong(struct split_case *x, symmem_split_fault fault, int32_t odd, size_t part,
                       int64_t by) {
    struct split_rank *rank = &x->ranks[odd];
    switch (fault) {
    case SYMMEM_SPLIT_NEGATIVE:
        rank->in[0][part] = -by;
        return true;
    case SYMMEM_SPLIT_BEYOND:
        rank->in[0][part] += (int64_t)rank->in_rows - 1 + by;
        return x->form != SPLIT_BACK;
    case SYMMEM_SPLIT_OFFSET_NEGATIVE:
        rank->in[0][part] += rank->in[0][part] == 0;
        rank->in[1][part] = -by;
        return x->form == SPLIT_BACK;
    case SYMMEM_SPLIT_OFFSET_ORDER:
        for (size_t i = 0; i < split_parts(x); i++) {
            rank->in[0][i] = 2;
            rank->in[1][i] = 2 * (int64_t)i - (i == part);
        }
        rank->in_rows = 2 * split_parts(x);
        return x->form == SPLIT_BACK && part > 0;
    case SYMMEM_SPLIT_OFFSET_BEYOND:
        rank->in[0][part] += rank->in[0][part] == 0;
        rank->in[1][part] = (int64_t)rank->in_rows - 1 + by;
        return x->form == SPLIT_BACK && part + 1 == split_parts(x);
    default:
        rank->out_rows = (size_t)((int64_t)rank->out_rows - by);
        return by <= (int64_t)rank->out_rows;
    }
}

static void each_fault(struct tk *t, enum split_form form, symmem_stream *stream) {
    struct split_case *x = split_begin(t, tk_world_group(t));
    uint64_t state = t->seed;
    uint32_t generation = 0;
    x->channel = 2;
    for (int fault = SYMMEM_SPLIT_NEGATIVE; fault < SYMMEM_SPLIT_FAULT_COUNT; fault++) {
        for (int32_t odd = 0; odd < x->size; odd++) {
            drawn(x, &state, form);
            const size_t last = split_parts(x) - 1;
            const size_t part = (odd + fault) % 2 == 0 ? last : draw(&state, (uint32_t)last + 1);
            const struct split_rank right = x->ranks[odd];
            if (!make_wrong(x, (symmem_split_fault)fault, odd, part, 1 + draw(&state, 2)))
                continue;
            refused_once(t, x, stream, (symmem_split_fault)fault, generation++);
            x->ranks[odd] = right;
            goes_on(t, x, stream, generation++);
        }
    }
}

TK_TEST(all_to_all_v, wrong_splits, "SM-SPLIT-06,SM-SPLIT-07,SM-SPLIT-08,SM-SPLIT-09",
        .needs = SPLITS, .max_ranks = 4) {
    for (int form = 0; form < SPLIT_FORMS; form++)
        each_fault(t, (enum split_form)form, NULL);
}

TK_TEST(all_to_all_v, wrong_splits_on_a_stream, "SM-SPLIT-06,SM-SPLIT-07,SM-SPLIT-08,SM-SPLIT-09",
        .needs = SPLITS | SYMMEM_CAP_STREAMS, .max_ranks = 4) {
    for (int form = 0; form < SPLIT_FORMS; form++)
        each_fault(t, (enum split_form)form, tk_stream(t));
}

/* Numbers whose sums or products overflow. */
TK_TEST(all_to_all_v, huge_numbers, "SM-SPLIT-07,SM-SPLIT-08", .needs = SPLITS, .max_ranks = 4) {
    struct split_case *x = split_begin(t, tk_world_group(t));
    uint64_t state = t->seed;
    const int64_t huge[] = {INT64_MAX, INT64_MAX - 1, INT64_MAX / 4 + 1, (int64_t)1 << 32};
    for (uint32_t i = 0; i < 8; i++) {
        const int32_t odd = (int32_t)(i % (uint32_t)x->size);
        drawn(x, &state, i < 4 ? SPLIT_2D : SPLIT_BACK);
        struct split_rank *rank = &x->ranks[odd];
        const size_t part = i < 4 ? i % split_parts(x) : split_parts(x) - 1;
        rank->in[0][part] = huge[i % 4];
        if (i >= 4)
            rank->in[1][part] = huge[(i + 1) % 4];
        refused_once(t, x, NULL, i < 4 ? SYMMEM_SPLIT_BEYOND : SYMMEM_SPLIT_OFFSET_BEYOND, i);
    }
    drawn(x, &state, SPLIT_FLAT);
    goes_on(t, x, NULL, 9);
}

/* Several ranks are wrong, each in its own way: all say the same. */
TK_TEST(all_to_all_v, every_rank_wrong, "SM-SPLIT-08,SM-SPLIT-09", .needs = SPLITS,
        .ranks = {2, 4}) {
    struct split_case *x = split_begin(t, tk_world_group(t));
    uint64_t state = t->seed;
    for (uint32_t i = 0; i < 8; i++) {
        drawn(x, &state, SPLIT_2D);
        for (int32_t r = (int32_t)(i % 2); r < x->size; r++) {
            if ((r + (int32_t)i) % 3 == 0)
                x->ranks[r].out_rows = 0;
            else if ((r + (int32_t)i) % 3 == 1)
                x->ranks[r].in[0][r] = -7;
            else
                x->ranks[r].in_rows = 0;
        }
        refused_once(t, x, NULL, split_fault_of(x).fault, i);
    }
    drawn(x, &state, SPLIT_2D);
    goes_on(t, x, NULL, 9);
}

/* Calls are not compared, but splits are checked all the same. */
TK_TEST(all_to_all_v, wrong_splits_without_checks, "SM-SPLIT-08,SM-SPLIT-09", .needs = SPLITS,
        .max_ranks = 4) {
    TK_REINIT(t, options.check_collectives = 0);
    each_fault(t, SPLIT_2D, NULL);
    each_fault(t, SPLIT_BACK, NULL);
}

/* --- arguments ------------------------------------------------------------------------------ */

/* The call is refused after `change` has changed its tensors. */
#define REFUSED_IF(change_, status_)                                                               \
    do {                                                                                           \
        split_tensors_set(x, &s);                                                                  \
        change_;                                                                                   \
        TK_FAILS(t, status_, split_call(x, &s, NULL));                                             \
        TK_EQ_STR(t, split_name(x), last_record().operation);                                      \
    } while (0)
#define WRONG_MEMBERS(tensor_)                                                                     \
    do {                                                                                           \
        split_tensors_set(x, &s);                                                                  \
        OPS_WRONG_MEMBERS(t, s.tensor_.dl, true, split_call(x, &s, NULL));                         \
    } while (0)

static void wrong_shapes(struct tk *t, struct split_case *x) {
    struct split_tensors s;
    TK_REQ(t, "SM-SPLIT-12");
    REFUSED_IF(s.splits.dl.dtype.code = kDLUInt, INVALID_ARGUMENT);
    REFUSED_IF(s.to.dl.dtype.code = kDLUInt, INVALID_ARGUMENT);
    REFUSED_IF((s.splits.dl.dtype.bits = 32, s.to.dl.dtype.bits = 32), INVALID_ARGUMENT);
    REFUSED_IF(s.to.shape[0] = 1, INVALID_ARGUMENT);
    REFUSED_IF(s.to.shape[1]--, INVALID_ARGUMENT);
    REFUSED_IF(s.to.dl.ndim = 1, INVALID_ARGUMENT);
    REFUSED_IF(s.splits.dl.ndim = 0, INVALID_ARGUMENT);
    REFUSED_IF(s.splits.shape[s.splits.dl.ndim - 1]--, INVALID_ARGUMENT);
    REFUSED_IF(s.out.shape[1]++, INVALID_ARGUMENT);
    REFUSED_IF(s.out.dl.dtype.code = kDLInt, INVALID_ARGUMENT);
    REFUSED_IF(s.in.dl.ndim = 0, INVALID_ARGUMENT);
    REFUSED_IF((s.in.dl.ndim = 1, s.out.dl.ndim = 0), INVALID_ARGUMENT);
    if (x->form == SPLIT_FLAT)
        REFUSED_IF((s.splits.shape[0] *= 2, s.to.shape[1] *= 2), INVALID_ARGUMENT);
    REFUSED_IF((s.splits.shape[s.splits.dl.ndim - 1]--, s.to.shape[1]--), INVALID_ARGUMENT);
}

TK_TEST(all_to_all_v, arguments, "SM-SPLIT-12,SM-COLL-02,SM-COLL-20", .needs = SPLITS,
        .ranks = {2, SPLIT_RANKS}) {
    struct split_case *x = split_begin(t, tk_world_group(t));
    struct split_tensors s;
    uint64_t state = t->seed;
    for (int form = 0; form < SPLIT_FORMS; form++) {
        drawn(x, &state, (enum split_form)form);
        x->row = 2;
        for (int32_t r = 0; r < x->size; r++) { /* dimensions of which everything matters */
            x->ranks[r].in_rows += 2;
            x->ranks[r].out_rows += 2;
        }
        split_load(t, x, 1);
        TK_REQ(t, "SM-COLL-02");
        WRONG_MEMBERS(in);
        WRONG_MEMBERS(splits);
        WRONG_MEMBERS(out);
        WRONG_MEMBERS(to);
        wrong_shapes(t, x);
        if (form == SPLIT_2D) {
            x->align = 0;
            REFUSED_IF((void)0, INVALID_ARGUMENT);
            x->align = INT64_MIN;
            REFUSED_IF((void)0, INVALID_ARGUMENT);
            x->align = INT64_MAX / 2 + 1;
            REFUSED_IF((void)0, OVERFLOW);
            x->align = 2;
        }
        split_untouched(t, x, "refused calls");
        goes_on(t, x, NULL, 2);
    }
}

TK_TEST(all_to_all_v, places, "SM-SPLIT-13,SM-COLL-03", .needs = SPLITS, .ranks = {2, 8}) {
    struct split_case *x = split_begin(t, tk_world_group(t));
    struct split_tensors s;
    uint64_t state = t->seed;
    void *const *buffers = buffers_of(t, x->handle);
    symmem_handle_info info = info_of(t, x->handle);
    char *peers = (char *)buffers[(x->rank + 1) % x->size] + info.offset;
    drawn(x, &state, SPLIT_2D);
    split_load(t, x, 1);
    TK_REQ(t, "SM-COLL-03");
    REFUSED_IF(s.in.dl.data = x->far.at, NOT_SYMMETRIC);
    REFUSED_IF(s.in.shape[0] = AREA_BYTES, OUT_OF_RANGE);
    TK_REQ(t, "SM-SPLIT-13");
    REFUSED_IF(s.out.dl.data = s.in.dl.data, INVALID_ARGUMENT);
    REFUSED_IF(s.out.dl.data = s.splits.dl.data, INVALID_ARGUMENT);
    REFUSED_IF(s.out.dl.data = s.to.dl.data, INVALID_ARGUMENT);
    REFUSED_IF(s.out.dl.data = peers + AREA_BYTES / 2, INVALID_ARGUMENT);
    REFUSED_IF(s.to.dl.data = s.splits.dl.data, INVALID_ARGUMENT);
    REFUSED_IF(s.to.dl.data = peers + AREA_BYTES / 2, INVALID_ARGUMENT);
    REFUSED_IF((s.in.dl.data = x->own.at, s.to.dl.data = x->own.at), INVALID_ARGUMENT);
    split_untouched(t, x, "refused calls");
    goes_on(t, x, NULL, 2);
}

/* --- ranks that call something else ------------------------------------------------------------
 */

enum oddity { ODD_FORM, ODD_EXPERTS, ODD_ALIGN, ODD_DTYPE, ODD_ROW, ODD_BARRIER, ODDITIES };

static symmem_status odd_call(struct split_case *x, int oddity) {
    struct split_case *other = x;
    if (oddity == ODD_BARRIER)
        return symmem_barrier(x->handle, x->channel, LONG_MS, NULL);
    other->form = oddity == ODD_FORM ? SPLIT_BACK : other->form;
    other->experts -= oddity == ODD_EXPERTS;
    other->align += oddity == ODD_ALIGN;
    other->dtype = oddity == ODD_DTYPE ? SYMMEM_INT32 : other->dtype;
    other->row -= oddity == ODD_ROW;
    return split_run(other, NULL);
}

TK_TEST(all_to_all_v, ranks_disagree, "SM-SPLIT-14,SM-COLL-06", .needs = SPLITS, .ranks = {2, 4}) {
    struct split_case *x = split_begin(t, tk_world_group(t));
    uint64_t state = t->seed;
    drawn(x, &state, SPLIT_2D);
    x->row = 2;
    const enum split_form form = x->form;
    const size_t experts = x->experts;
    for (int oddity = 0; oddity < ODDITIES; oddity++) {
        const int32_t odd = (int32_t)draw(&state, (uint32_t)x->size);
        split_load(t, x, (uint32_t)oddity);
        TK_FAILS(t, MISMATCH, x->rank == odd ? odd_call(x, oddity) : split_run(x, NULL));
        TK_EQ_INT(t, x->rank != odd ? odd : odd == 0 ? 1 : 0, last_record().failed_rank);
        x->form = form;
        x->experts = experts;
        x->align = 2;
        x->dtype = SYMMEM_FLOAT32;
        x->row = 2;
        split_untouched(t, x, "calls that differ");
        TK_CHECK(t, !info_of(t, x->handle).poisoned);
        goes_on(t, x, NULL, 100 + (uint32_t)oddity);
    }
}

TK_TEST(all_to_all_v, refused_without_the_capability, "SM-SPLIT-15,SM-BACKEND-09",
        .needs = COLLECTIVES, .max_ranks = 2) {
    backend_without(t, SYMMEM_CAP_SPLITS);
    struct split_case *x = split_begin(t, tk_world_group(t));
    uint64_t state = t->seed;
    for (int form = 0; form < SPLIT_FORMS; form++) {
        drawn(x, &state, (enum split_form)form);
        split_load(t, x, 1);
        TK_FAILS(t, UNSUPPORTED, split_run(x, NULL));
        split_untouched(t, x, "without the capability");
    }
}
