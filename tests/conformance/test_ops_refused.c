/* SPDX-License-Identifier: BSD-3-Clause */
/* Each argument of each collective with the first values that it may not have: refused at once, on
 * the one rank that has them, with nothing written. */
#include "case_help.h"
#include "ops_table_help.h"

/* With `words` in the record's message. */
static void refused(struct tk *t, const struct ops_row *row, struct ops_setting *set,
                    symmem_status expected, const char *what, const char *words) {
    set->call.limit_ms = 50;
    symmem_status status = row->run(&set->call);
    symmem_error_record record = last_record();
    TK_CHECK_MSG(t, status == expected, "%s with %s: %s, not %s", row->what, what,
                 symmem_status_name(status), symmem_status_name(expected));
    TK_CHECK_MSG(t, ops_recorded(row) && record.status == status && strstr(record.message, words),
                 "%s with %s: a record of %s: %s", row->what, what, record.operation,
                 record.message);
    TK_CHECK_MSG(t, set->made == NULL, "%s with %s: an output was made", row->what, what);
    symmem_clear_error();
}

/* Sets the row up anew, changes one thing, and wants it refused; with words of the message, if the
 * case names some. */
#define REFUSED_IF(change_, expected_, ...)                                                        \
    do {                                                                                           \
        struct ops_setting set;                                                                    \
        ops_set(desk, row, &ops_usual, &set);                                                      \
        change_;                                                                                   \
        refused(t, row, &set, SYMMEM_##expected_, #change_, "" __VA_ARGS__);                       \
    } while (0)

/* The same for each wrong member of a tensor. Of a flat one a row of products makes others, with
 * ndim, shape and strides of their own. */
#define WRONG_MEMBERS(tensor_)                                                                     \
    do {                                                                                           \
        struct ops_setting set;                                                                    \
        symmem_status expected = SYMMEM_OK;                                                        \
        const char *wrong;                                                                         \
        for (int m = 0;; m++) {                                                                    \
            ops_set(desk, row, &ops_usual, &set);                                                  \
            wrong = ops_wrong_member(t, &set.tensor_.dl, m,                                        \
                                     !(row->traits & (ROW_FUSED | ROW_MATRIX)), &expected);        \
            if (wrong == NULL)                                                                     \
                break;                                                                             \
            refused(t, row, &set, expected, wrong, "");                                            \
        }                                                                                          \
    } while (0)

/* --- one call's arguments ------------------------------------------------------------------- */

static void plain_arguments(struct tk *t, const struct ops_desk *desk, const struct ops_row *row) {
    const int32_t channels[] = {-1, info_of(t, desk->handle).channel_count, INT32_MIN, INT32_MAX};
    const struct ops_terms whole_averages = {SYMMEM_INT32, SYMMEM_AVG, OPS_COUNT, 0, 0};
    const int32_t roots[] = {-1, desk->size, INT32_MIN, INT32_MAX};
    REFUSED_IF(set.call.handle = NULL, INVALID_ARGUMENT, "handle");
    for (int i = 0; i < 4; i++) {
        REFUSED_IF(set.call.channel = channels[i], OUT_OF_RANGE, "channel");
        if (row->traits & ROW_ROOTED)
            REFUSED_IF(set.call.root = roots[i], OUT_OF_RANGE);
    }
    if (row->traits & ROW_REDUCES) {
        REFUSED_IF(set.call.op = (symmem_reduce_op)-1, INVALID_ARGUMENT);
        REFUSED_IF(set.call.op = SYMMEM_REDUCE_OP_COUNT, INVALID_ARGUMENT);
        if (!(row->traits & ROW_FUSED))
            REFUSED_IF(ops_set(desk, row, &whole_averages, &set), UNSUPPORTED);
    }
    if (row->out == NEW) {
        REFUSED_IF(set.call.made_p = NULL, INVALID_ARGUMENT);
        /* No memory would do for the output: it is not asked for. */
        REFUSED_IF(set.input.shape[0] = set.buffer.shape[0] = (int64_t)1 << 44, OUT_OF_RANGE);
    }
}

static void tensor_arguments(struct tk *t, const struct ops_desk *desk, const struct ops_row *row) {
    bool has_out = row->out == BLOCK || row->out == FAR;
    if ((row->traits & ROW_ROOTED) && has_out)
        has_out = desk->rank == ops_usual.root;
    REFUSED_IF(set.call.input = NULL, INVALID_ARGUMENT);
    WRONG_MEMBERS(input);
    if (row->traits & ROW_BUFFER) {
        REFUSED_IF(set.call.buffer = NULL, INVALID_ARGUMENT);
        WRONG_MEMBERS(buffer);
        REFUSED_IF(set.buffer.shape[0]++, INVALID_ARGUMENT);
    }
    if (has_out) {
        REFUSED_IF(set.call.out = NULL, INVALID_ARGUMENT);
        WRONG_MEMBERS(out);
        if (row->traits & ROW_FUSED)
            REFUSED_IF(set.out.dl.dtype.code = kDLInt, UNSUPPORTED);
        else
            REFUSED_IF(set.out.dl.dtype.code = kDLInt, INVALID_ARGUMENT);
        REFUSED_IF(set.out.shape[0]++, INVALID_ARGUMENT);
    }
}

static void split_arguments(struct tk *t, const struct ops_desk *desk, const struct ops_row *row) {
    size_t splits[OPS_MAX_RANKS];
    for (int32_t rank = 0; rank < desk->size; rank++)
        splits[rank] = OPS_COUNT;
    splits[desk->size - 1]--;
    REFUSED_IF(set.call.in_splits = splits, INVALID_ARGUMENT);
    REFUSED_IF(set.call.out_splits = splits, INVALID_ARGUMENT);
    splits[desk->size - 1] += 2;
    REFUSED_IF(set.call.in_splits = splits, INVALID_ARGUMENT);
    REFUSED_IF(set.call.out_splits = splits, INVALID_ARGUMENT);
}

/* Every row that can be run, one by one, with nothing written at the end of it. */
static void each_row(struct tk *t, void (*refuse)(struct tk *t, const struct ops_desk *desk,
                                                  const struct ops_row *row)) {
    struct ops_desk desk = ops_desk_begin(t);
    ops_load(t, &desk, 1);
    for (int i = 0; i < OPS_ROWS; i++)
        if (ops_can(&desk, &ops_rows[i]))
            refuse(t, &desk, &ops_rows[i]);
    ops_untouched(t, &desk, 1, "refused calls");
    TK_CHECK(t, !info_of(t, desk.handle).poisoned);
    TK_OK(t, symmem_barrier(desk.handle, 0, LONG_MS, NULL));
}

static void all_arguments(struct tk *t, const struct ops_desk *desk, const struct ops_row *row) {
    plain_arguments(t, desk, row);
    tensor_arguments(t, desk, row);
    if (row->traits & ROW_SPLITS)
        split_arguments(t, desk, row);
}

TK_TEST(ops_refused, arguments, "SM-COLL-02,SM-COLL-20,SM-ERROR-08,SM-MMEM-02",
        .needs = COLLECTIVES, .ranks = {2, OPS_MAX_RANKS}) {
    each_row(t, all_arguments);
}

/* --- places --------------------------------------------------------------------------------- */

/* Tensors may be anywhere, or in the block or not alternately. */
static bool goes_from_anywhere(const struct ops_row *row) {
    return (row->traits & (ROW_TABLE | ROW_FUSED)) ||
           (strncmp(row->what, "low_contention", 14) == 0 && !(row->traits & ROW_MULTIMEM));
}

static void wrong_places(struct tk *t, const struct ops_desk *desk, const struct ops_row *row) {
    char *end = desk->block + info_of(t, desk->handle).block_size - sizeof(float);
    char *peer = (char *)buffers_of(t, desk->handle)[(desk->rank + 1) % desk->size];
    bool roots_out = (row->traits & ROW_ROOTED) && desk->rank != ops_usual.root;
    bool has_out = (row->out == BLOCK || row->out == FAR) && !roots_out;
    if (row->input == BLOCK)
        REFUSED_IF(set.input.dl.data = end, OUT_OF_RANGE);
    if (row->out == BLOCK)
        REFUSED_IF(set.out.dl.data = end, OUT_OF_RANGE);
    if (row->traits & ROW_BUFFER) {
        REFUSED_IF(set.buffer.dl.data = end, OUT_OF_RANGE);
        REFUSED_IF(set.buffer.dl.data = desk->far, NOT_SYMMETRIC);
    } else if (!goes_from_anywhere(row) && row->out == BLOCK && row->input == FAR) {
        REFUSED_IF(set.out.dl.data = desk->far + OPS_HALF, NOT_SYMMETRIC);
    } else if (!goes_from_anywhere(row) && row->out != BLOCK) {
        REFUSED_IF(set.input.dl.data = desk->far, NOT_SYMMETRIC);
    }
    if (row->traits & ROW_FUSED || !has_out)
        return;
    if (row->out == FAR && row->input == BLOCK) {
        REFUSED_IF(set.out.dl.data = desk->block + sizeof(float), INVALID_ARGUMENT);
        REFUSED_IF(set.out.dl.data = peer, INVALID_ARGUMENT);
    } else if (row->out == FAR) {
        REFUSED_IF(set.out.dl.data = desk->far + sizeof(float), INVALID_ARGUMENT);
    } else {
        REFUSED_IF(set.input.dl.data = (char *)set.out.dl.data + sizeof(float), INVALID_ARGUMENT);
    }
    if (row->out == BLOCK && (row->traits & ROW_OUT_WHOLE))
        REFUSED_IF(set.input.dl.data = peer + OPS_HALF + sizeof(float), INVALID_ARGUMENT);
}

TK_TEST(ops_refused, places, "SM-COLL-03,SM-COLL-04,SM-MMEM-02,SM-MMEM-03,SM-MOVE-03,SM-MOVE-09",
        .needs = COLLECTIVES, .ranks = {2, OPS_MAX_RANKS}, .flags = TK_PLAIN_MEMORY) {
    each_row(t, wrong_places);
}

/* A copy to all ranks waits for none, so it has no row. */
TK_TEST(ops_refused, memcpy_arguments, "SM-MMEM-04", .needs = SYMMEM_CAP_MULTICAST,
        .min_ranks = 2, /* a group of one has no multicast */
        .max_ranks = OPS_MAX_RANKS) {
    struct ops_desk desk = ops_desk_begin(t);
    struct ops_tensor src;
    const DLTensor *from = ops_flat(&src, desk.far, SYMMEM_FLOAT32, 4);
    size_t block = info_of(t, desk.handle).block_size;
    ops_load(t, &desk, 1);
    TK_FAILS(t, INVALID_ARGUMENT, symmem_memcpy_to_multicast(NULL, 0, from, NULL));
    TK_FAILS(t, INVALID_ARGUMENT, symmem_memcpy_to_multicast(desk.handle, 0, NULL, NULL));
    TK_FAILS(t, OUT_OF_RANGE, symmem_memcpy_to_multicast(desk.handle, block, from, NULL));
    TK_FAILS(t, OVERFLOW, symmem_memcpy_to_multicast(desk.handle, SIZE_MAX, from, NULL));
    OPS_WRONG_MEMBERS(t, src.dl, true, symmem_memcpy_to_multicast(desk.handle, 0, from, NULL));
    DLManagedTensor *made = NULL;
    (void)ops_flat(&src, ops_own(t, desk.handle), SYMMEM_FLOAT32, (size_t)1 << 44);
    TK_FAILS(t, OUT_OF_RANGE,
             symmem_low_contention_all_gather_ce_multicast(desk.handle, from, 0, 50, NULL, &made));
    TK_FAILS(t, OUT_OF_RANGE,
             symmem_low_contention_all_gather_ce_multicast(desk.handle, from, -1, 50, NULL, &made));
    TK_FAILS(t, INVALID_ARGUMENT,
             symmem_low_contention_all_gather_ce_multicast(NULL, from, 0, 50, NULL, &made));
    TK_CHECK(t, made == NULL);
    ops_untouched(t, &desk, 1, "refused copies");
}

/* --- objects of others ---------------------------------------------------------------------- */

TK_TEST(ops_refused, foreign_streams, "SM-STREAM-16", .needs = COLLECTIVES | SYMMEM_CAP_STREAMS,
        .max_ranks = OPS_MAX_RANKS) {
    struct ops_desk own = ops_desk_begin(t), *desk = &own;
    symmem_context *alone = context_alone(t);
    symmem_stream *theirs = NULL;
    TK_REQUIRE(t, alone != NULL);
    TK_REQUIRE_OK(t, symmem_stream_create(alone, 0, &theirs));
    ops_load(t, desk, 1);
    for (int i = 0; i < OPS_ROWS; i++) {
        const struct ops_row *row = &ops_rows[i];
        if (ops_can(desk, row))
            REFUSED_IF(set.call.stream = theirs, INVALID_ARGUMENT, "another context");
    }
    const DLTensor *src = FLAT(desk->far, SYMMEM_FLOAT32, 1);
    if (desk->multicast)
        TK_FAILS(t, INVALID_ARGUMENT, symmem_memcpy_to_multicast(desk->handle, 0, src, theirs));
    ops_untouched(t, desk, 1, "refused calls");
    TK_OK(t, symmem_stream_destroy(theirs));
    symmem_context_free(alone);
}

TK_TEST(ops_refused, finalized_handles, "SM-CONTEXT-05", .needs = COLLECTIVES,
        .max_ranks = OPS_MAX_RANKS) {
    struct ops_desk own = ops_desk_begin(t), *desk = &own;
    tk_out_of_band_barrier(t);
    TK_OK(t, symmem_finalize(t->context));
    for (int i = 0; i < OPS_ROWS; i++) {
        const struct ops_row *row = &ops_rows[i];
        REFUSED_IF((void)0, NOT_INITIALIZED);
    }
    const DLTensor *src = FLAT(desk->far, SYMMEM_FLOAT32, 1);
    TK_FAILS(t, NOT_INITIALIZED, symmem_memcpy_to_multicast(desk->handle, 0, src, NULL));
}
