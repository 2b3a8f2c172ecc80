/* SPDX-License-Identifier: BSD-3-Clause */
/* Reduce-scatter: rank r's part of what the scalar reference makes of all inputs. */
#include "case_help.h"
#include "reduce_help.h"
#include "walk.h"

/* --- one checked call ------------------------------------------------------------------------- */

enum scatter_form { SCATTER_FLAT, SCATTER_ROWS, SCATTER_PULL, SCATTER_PUSH, SCATTER_COUNT };

struct scatter_call {
    enum scatter_form form;
    symmem_dtype dtype;
    symmem_reduce_op op;
    size_t rows, part; /* of each row, a rank's elements */
    size_t at;
};

/* The rank's columns of `rows` rows of ranks * part elements. */
static void cut(char *to, const char *from, const struct scatter_call *call, int32_t rank,
                int32_t ranks) {
    size_t element = symmem_dtype_size(call->dtype), bytes = call->part * element;
    for (size_t row = 0; row < call->rows; row++)
        memcpy(to + row * bytes, from + (row * (size_t)ranks + (size_t)rank) * bytes, bytes);
}

static symmem_status run_form(const struct reduce_desk *desk, const struct scatter_call *call,
                              char *input, char *out) {
    const int64_t wide = (int64_t)(call->part * (size_t)desk->size), part = (int64_t)call->part;
    const int64_t rows = (int64_t)call->rows;
    const int64_t shapes[4][4] = {
        {wide, 0, part, 0}, {rows, wide, rows, part}, {wide, 1, part, 1}, {wide, 1, part, 1}};
    const int64_t *shape = shapes[call->form];
    int32_t ndim = call->form == SCATTER_FLAT ? 1 : 2;
    const DLTensor *in = SHAPED(input, call->dtype, ndim, shape);
    const DLTensor *result = SHAPED(out, call->dtype, ndim, shape + 2);
    if (call->form >= SCATTER_PULL)
        return symmem_low_contention_reduce_scatter(desk->handle, in, call->op, result,
                                                    desk->channel, desk->limit_ms, desk->stream);
    return symmem_reduce_scatter_out(desk->handle, in, call->op, call->form == SCATTER_ROWS, result,
                                     desk->channel, desk->limit_ms, desk->stream);
}

static void scatter_check(struct tk *t, struct reduce_desk *desk, const struct scatter_call *call) {
    struct reduce_data data;
    size_t element = symmem_dtype_size(call->dtype), count = call->rows * call->part;
    size_t offset = REDUCE_MARGIN + call->at * element;
    char *input = (call->form == SCATTER_PUSH ? desk->input : desk->own) + offset;
    char *out = desk->out + offset, *expected = malloc(count * element + 1);
    reduce_data_begin(t, &data, call->dtype, call->op, count * (size_t)desk->size, desk->size,
                      desk->generation++);
    TK_REQUIRE(t, expected != NULL && offset + data.bytes + REDUCE_MARGIN <= desk->room);
    cut(expected, data.expected, call, desk->rank, desk->size);
    const char *own = data.inputs + (size_t)desk->rank * data.bytes;
    reduce_lay(t, out, NULL, count * element);
    reduce_lay(t, input, own, data.bytes);
    if (TK_OK(t, run_form(desk, call, input, out))) {
        if (desk->stream != NULL)
            tk_synchronize(t, desk->stream);
        reduce_expect_laid(t, out, expected, call->dtype, count, "the part");
        reduce_expect_laid(t, input, own, call->dtype, data.count, "the input");
    }
    free(expected);
    reduce_data_end(&data);
}

/* --- what it computes ------------------------------------------------------------------------- */

static void pairs_on_shape(struct tk *t, symmem_group *group, const struct tk_shape *shape,
                           void *arg) {
    int first = *(int *)arg;
    struct reduce_desk desk = reduce_desk_begin(t, group, (size_t)1 << 16);
    for (int i = reduce_first_pair(t, &desk); i < reduce_pair_count(); i += reduce_step(&desk))
        for (int f = 0; f < (tk_suite_is_long() ? 2 : 1); f++) {
            uint64_t turn = t->seed + (uint64_t)i + (uint64_t)f;
            struct scatter_call call = {.form = (enum scatter_form)(first + (int)(turn % 2)),
                                        .rows = 1,
                                        .part = (size_t)(turn * 37 % (desk.size <= 32 ? 131 : 17)),
                                        .at = turn % 3 == 0 ? 0 : turn % 8};
            reduce_pair(i, &call.dtype, &call.op);
            if (first == SCATTER_PULL && call.op > SYMMEM_AVG)
                call.op = SYMMEM_SUM;
            if (call.form == SCATTER_ROWS) {
                call.rows = turn % 5;
                call.part %= 40;
            }
            tk_checkpoint(t, "%s, pair %d, form %d, %zu x %zu", shape->name, i, (int)call.form,
                          call.rows, call.part);
            scatter_check(t, &desk, &call);
        }
}

TK_PORTED(test_reduce_scatter, "SM-REDUCE-08,SM-COLL-01", .needs = COLLECTIVES, .timeout_s = 60) {
    int first = SCATTER_FLAT;
    TK_REQ(t, "SM-REDUCE-08");
    tk_for_each_group_shape(t, pairs_on_shape, &first);
}

TK_PORTED(test_low_contention_reduce_scatter, "SM-REDUCE-10,SM-COLL-01", .needs = COLLECTIVES,
          .timeout_s = 60) {
    int first = SCATTER_PULL;
    TK_REQ(t, "SM-REDUCE-10");
    tk_for_each_group_shape(t, pairs_on_shape, &first);
}

/* All of PyTorch's sizes but the largest, and one that is no whole line per rank. */
TK_TEST(reduce_scatter, larger_sizes, "SM-REDUCE-08,SM-REDUCE-10", .needs = COLLECTIVES,
        .max_ranks = 3) {
    struct reduce_desk desk = reduce_desk_begin(t, tk_world_group(t), (size_t)1 << 19);
    static const size_t parts[] = {16, 1009, 4099, 10007};
    TK_REQ(t, "SM-REDUCE-08");
    for (int i = 0; i < 8; i++) {
        const struct scatter_call call = {.form = (enum scatter_form)((i + i / 4) % SCATTER_COUNT),
                                          .dtype = i < 4 ? SYMMEM_BFLOAT16 : SYMMEM_FLOAT32,
                                          .op = SYMMEM_AVG,
                                          .rows = 1,
                                          .part = parts[i % 4]};
        scatter_check(t, &desk, &call);
    }
}

/* A part of so many elements for each rank. */
static void scatter_part(struct tk *t, struct reduce_desk *desk, size_t part, uint64_t form,
                         uint64_t pair) {
    struct scatter_call call = {.form = (enum scatter_form)(form % SCATTER_COUNT),
                                .rows = 1,
                                .part = part,
                                .at = (form + pair) % 5};
    bool pulled = call.form >= SCATTER_PULL;
    reduce_pair((int)(pair % (uint64_t)reduce_pair_count()), &call.dtype, &call.op);
    if (pulled && call.op > SYMMEM_AVG)
        call.op = SYMMEM_SUM;
    TK_REQ(t, pulled ? "SM-REDUCE-10" : "SM-REDUCE-08");
    tk_checkpoint(t, "parts of %zu of dtype %d, op %d, form %d", part, (int)call.dtype,
                  (int)call.op, (int)call.form);
    scatter_check(t, desk, &call);
}

/* Every pair of dtype and op, the forms alternating. */
TK_TEST(reduce_scatter, on_streams, "SM-REDUCE-08,SM-REDUCE-10",
        .needs = COLLECTIVES | SYMMEM_CAP_STREAMS, .max_ranks = 3) {
    struct reduce_desk desk = reduce_desk_begin(t, tk_world_group(t), (size_t)1 << 16);
    desk.stream = tk_stream(t);
    desk.channel = info_of(t, desk.handle).channel_count - 1;
    for (int i = 0; i < reduce_pair_count(); i++) {
        uint64_t turn = t->seed + (uint64_t)i;
        scatter_part(t, &desk, (size_t)(turn * 337 % 1031), turn, (uint64_t)i);
    }
}

/* Parts of any size: a form and pair for each, all of both with SYMMEM_SUITE_LONG=1. */
TK_TEST(reduce_scatter, every_count, "SM-REDUCE-08,SM-REDUCE-10", .needs = COLLECTIVES,
        .max_ranks = 8, .timeout_s = 60) {
    struct reduce_desk desk =
        reduce_desk_begin(t, tk_world_group(t), (size_t)t->world_size * 140 * 8);
    uint64_t pairs = (uint64_t)reduce_pair_count();
    uint64_t turns = tk_suite_is_long() ? SCATTER_COUNT * pairs : 1;
    for (size_t part = 0; part <= 130; part++)
        for (uint64_t i = 0; i < turns; i++) {
            uint64_t turn = t->seed + part * 5 + i;
            scatter_part(t, &desk, part, turn, turn / SCATTER_COUNT);
        }
}

/* Whole sizes near 10^3, 10^5 and 2^20, in parts of which the most are no whole lines: forms and
 * pairs alternating, every pair with SYMMEM_SUITE_LONG=1. */
TK_TEST(reduce_scatter, odd_counts, "SM-REDUCE-08,SM-REDUCE-10", .needs = COLLECTIVES,
        .max_ranks = 8, .timeout_s = 600) {
    static const size_t wholes[] = {997, 1009, 99991, 100003, (1 << 20) - 1, (1 << 20) + 1};
    bool all = tk_suite_is_long();
    int kinds = all ? (int)(TK_COUNT(wholes)) : 3;
    uint64_t pairs = all ? (uint64_t)reduce_pair_count() : 1;
    size_t ranks = (size_t)t->world_size;
    struct reduce_desk desk =
        reduce_desk_begin(t, tk_world_group(t), (wholes[kinds - 1] + ranks) * 8);
    for (int i = 0; i < kinds; i++)
        for (uint64_t pair = 0; pair < pairs; pair++) {
            uint64_t turn = t->seed + (uint64_t)i + pair;
            scatter_part(t, &desk, (wholes[i] + ranks - 1) / ranks, turn + turn / SCATTER_COUNT,
                         turn);
        }
}

/* --- what is refused -------------------------------------------------------------------------- */

struct corner {
    const char *what;
    bool split;
    int32_t in_ndim, out_ndim;
    int64_t in[3], out[3];
    uint64_t expected, actual;
};

/* For four ranks. */
static const struct corner corners[] = {
    {"46 elements", false, 1, 1, {46}, {11}, 44, 46},
    {"rows of 46", true, 2, 2, {2, 46}, {2, 11}, 44, 46},
    {"an out of another size", false, 1, 1, {48}, {11}, 12, 11},
    {"columns of another size", true, 2, 2, {2, 48}, {2, 13}, 12, 13},
    {"another number of rows", true, 2, 2, {2, 48}, {3, 12}, 2, 3},
    {"an out of fewer dimensions", true, 2, 1, {2, 48}, {24}, 2, 1},
    {"two dimensions unsplit", false, 2, 1, {2, 48}, {24}, 1, 2},
    {"an out of two dimensions", false, 1, 2, {48}, {1, 12}, 1, 2},
    {"no dimension", true, 0, 0, {0}, {0}, 1, 0},
};

TK_PORTED(test_reduce_scatter_corner_cases, "SM-REDUCE-08,SM-REDUCE-09,SM-COLL-04",
          .needs = COLLECTIVES, .ranks = {4, 4}) {
    struct reduce_desk desk = reduce_desk_begin(t, tk_world_group(t), 512);
    char *out = desk.out + REDUCE_MARGIN;
    TK_REQ(t, "SM-REDUCE-09");
    reduce_lay(t, out, NULL, 256);
    for (size_t i = 0; i < TK_COUNT(corners); i++) {
        const struct corner *corner = &corners[i];
        tk_checkpoint(t, "%s", corner->what);
        const DLTensor *input = SHAPED(desk.own, SYMMEM_BFLOAT16, corner->in_ndim, corner->in);
        TK_FAILS(
            t, INVALID_ARGUMENT,
            symmem_reduce_scatter_out(desk.handle, input, SYMMEM_SUM, corner->split,
                                      SHAPED(out, SYMMEM_BFLOAT16, corner->out_ndim, corner->out),
                                      0, desk.limit_ms, NULL));
        TK_EQ_SIZE(t, corner->expected, last_record().expected);
        TK_EQ_SIZE(t, corner->actual, last_record().actual);
    }
    /* What PyTorch does not look at: the output's alignment and side. */
    const DLTensor *input = FLAT(desk.own, SYMMEM_BFLOAT16, 48);
    TK_FAILS(t, MISALIGNED,
             symmem_reduce_scatter_out(desk.handle, input, SYMMEM_SUM, false,
                                       FLAT(out + 1, SYMMEM_BFLOAT16, 12), 0, desk.limit_ms, NULL));
    TK_FAILS(t, INVALID_ARGUMENT,
             symmem_reduce_scatter_out(desk.handle, input, SYMMEM_SUM, false,
                                       FLAT(desk.own + 94, SYMMEM_BFLOAT16, 12), 0, desk.limit_ms,
                                       NULL));
    TK_FAILS(t, INVALID_ARGUMENT,
             symmem_reduce_scatter_out(desk.handle, input, SYMMEM_SUM, false,
                                       FLAT(out, SYMMEM_FLOAT16, 12), 0, desk.limit_ms, NULL));
    reduce_expect_laid(t, out, NULL, SYMMEM_UINT8, 256, "out");
    /* Any size that divides will do, none as well. */
    for (size_t part = 0; part < 4; part++) {
        const struct scatter_call call = {.form = part % 2 ? SCATTER_ROWS : SCATTER_FLAT,
                                          .dtype = SYMMEM_BFLOAT16,
                                          .op = SYMMEM_SUM,
                                          .rows = 1,
                                          .part = part};
        scatter_check(t, &desk, &call);
    }
}

/* Refused on the rank that asks, before it has met or moved anything. */
TK_TEST(reduce_scatter, low_contention_refusals, "SM-REDUCE-10", .needs = COLLECTIVES,
        .ranks = {2, 3}) {
    struct reduce_desk desk = reduce_desk_begin(t, tk_world_group(t), 256);
    struct ops_tensor from;
    int64_t wide[2] = {2 * t->world_size, 3}, part[2] = {2, 3};
    size_t many = desk.room / 4 / (size_t)t->world_size + 1;
    reduce_lay(t, desk.own + REDUCE_MARGIN, NULL, 128);
    const DLTensor *out = SHAPED(desk.out, SYMMEM_FLOAT32, 2, part);
    for (int k = 0; k < 2; k++) {
        const DLTensor *input =
            ops_shaped(&from, k == 0 ? desk.own : desk.input, SYMMEM_FLOAT32, 2, wide);
        for (int op = SYMMEM_MIN; op <= SYMMEM_MAX; op++)
            TK_FAILS(t, UNSUPPORTED,
                     symmem_low_contention_reduce_scatter(desk.handle, input, (symmem_reduce_op)op,
                                                          out, 0, desk.limit_ms, NULL));
        wide[0]++;
        input = ops_shaped(&from, k == 0 ? desk.own : desk.input, SYMMEM_FLOAT32, 2, wide);
        TK_FAILS(t, INVALID_ARGUMENT,
                 symmem_low_contention_reduce_scatter(desk.handle, input, SYMMEM_SUM, out, 0,
                                                      desk.limit_ms, NULL));
        wide[0]--;
    }
    char *large = tk_alloc(t, many * 4 * (size_t)t->world_size);
    TK_FAILS(t, OUT_OF_RANGE,
             symmem_low_contention_reduce_scatter(
                 desk.handle, ops_flat(&from, large, SYMMEM_FLOAT32, many * (size_t)t->world_size),
                 SYMMEM_SUM, FLAT(desk.out, SYMMEM_FLOAT32, many), 0, desk.limit_ms, NULL));
    reduce_expect_laid(t, desk.own + REDUCE_MARGIN, NULL, SYMMEM_UINT8, 128, "the buffer");
}
