/* SPDX-License-Identifier: BSD-3-Clause */
/* All-to-alls with splits in memory: what each rank brings, the call, and what must come out by the
 * scalar reference. Every rank draws the same numbers. */
#ifndef SYMMEM_CONFORMANCE_SPLIT_HELP_H
#define SYMMEM_CONFORMANCE_SPLIT_HELP_H

#include "move_help.h"
#include "reference/splits.h"

#define SPLITS (COLLECTIVES | SYMMEM_CAP_SPLITS)

enum { SPLIT_RANKS = 8, SPLIT_EXPERTS = 3, SPLIT_PARTS = SPLIT_RANKS * SPLIT_EXPERTS };
/* In other memory: out, then splits, then out's splits. */
enum { SPLIT_OUT_BYTES = 12288, SPLIT_IN_AT = 13312, SPLIT_TO_AT = 14336 };

enum split_form { SPLIT_FLAT, SPLIT_2D, SPLIT_BACK, SPLIT_FORMS };

/* What a rank brings. */
struct split_rank {
    int64_t in[2][SPLIT_PARTS]; /* the second row is used by SPLIT_BACK */
    size_t in_rows, out_rows;
    size_t in_at; /* bytes from the handle's block */
};

struct split_case {
    symmem_handle *handle;
    int32_t rank, size, channel;
    uint32_t limit_ms;
    struct area own, far;
    enum split_form form;
    symmem_dtype dtype;
    size_t experts, row; /* elements of a row */
    int64_t align;
    char *in_place, *out_place, *to_place; /* splits, out, out's splits */
    struct split_rank ranks[SPLIT_RANKS];
    uint8_t inputs[SPLIT_RANKS][AREA_BYTES];
};

static inline size_t split_parts(const struct split_case *x) {
    return (size_t)x->size * x->experts;
}

static inline size_t split_row_bytes(const struct split_case *x) {
    return x->row * symmem_dtype_size(x->dtype);
}

static inline struct split_case *split_begin(struct tk *t, symmem_group *group) {
    struct split_case *x = tk_scratch(t, sizeof *x);
    memset(x, 0, sizeof *x);
    x->handle = tk_handle(t, AREA_BYTES, group);
    symmem_handle_info info = info_of(t, x->handle);
    x->rank = info.rank;
    x->size = info.world_size;
    x->limit_ms = LONG_MS;
    x->dtype = SYMMEM_FLOAT32;
    x->experts = x->row = 1;
    area_init(&x->own, ops_own(t, x->handle), AREA_BYTES);
    area_init(&x->far, tk_alloc(t, AREA_BYTES), AREA_BYTES);
    x->out_place = x->far.at;
    x->in_place = x->far.at + SPLIT_IN_AT;
    x->to_place = x->far.at + SPLIT_TO_AT;
    return x;
}

/* --- what must come out ----------------------------------------------------------------------- */

static inline void split_describe(const struct split_case *x, symmem_reference_splits *shape,
                                  symmem_reference_rank *ranks) {
    *shape = (symmem_reference_splits){.ranks = (size_t)x->size,
                                       .experts = x->experts,
                                       .row_bytes = split_row_bytes(x),
                                       .align = x->form == SPLIT_2D ? (size_t)x->align : 0,
                                       .by_experts = x->form == SPLIT_BACK};
    for (int32_t r = 0; r < x->size; r++)
        ranks[r] =
            (symmem_reference_rank){.in = x->inputs[r],
                                    .in_rows = x->ranks[r].in_rows,
                                    .out_rows = x->ranks[r].out_rows,
                                    .in_splits = x->ranks[r].in[0],
                                    .in_offsets = x->form == SPLIT_BACK ? x->ranks[r].in[1] : NULL};
}

static inline symmem_reference_fault split_fault_of(const struct split_case *x) {
    symmem_reference_splits shape;
    symmem_reference_rank ranks[SPLIT_RANKS];
    split_describe(x, &shape, ranks);
    return symmem_reference_check_splits(&shape, ranks);
}

/* Rows that rank's out needs. */
static inline size_t split_need(struct split_case *x, int32_t rank) {
    size_t saved[SPLIT_RANKS];
    for (int32_t r = 0; r < x->size; r++) {
        saved[r] = x->ranks[r].out_rows;
        x->ranks[r].out_rows = r == rank ? 0 : SIZE_MAX;
    }
    const symmem_reference_fault found = split_fault_of(x);
    for (int32_t r = 0; r < x->size; r++)
        x->ranks[r].out_rows = saved[r];
    return found.fault == SYMMEM_SPLIT_OUT ? found.found : 0;
}

/* --- drawing ---------------------------------------------------------------------------------- */

/* Splits below `below`, of which a third are 0, with gaps where offsets say so. */
static inline void split_draw(struct split_case *x, uint64_t *state, uint32_t below) {
    for (int32_t r = 0; r < x->size; r++) {
        struct split_rank *rank = &x->ranks[r];
        int64_t end = 0;
        for (size_t i = 0; i < split_parts(x); i++) {
            const int64_t rows = draw(state, 3) == 0 ? 0 : draw(state, below);
            const int64_t gap = x->form == SPLIT_BACK ? draw(state, 3) : 0;
            rank->in[0][i] = rows;
            rank->in[1][i] = rows > 0 ? end + gap : -(int64_t)draw(state, 99);
            end += rows > 0 ? rows + gap : 0;
        }
        rank->in_rows = (size_t)end + draw(state, 3);
        rank->in_at = draw(state, 20) * symmem_dtype_size(x->dtype);
        rank->out_rows = SIZE_MAX;
    }
    for (int32_t r = 0; r < x->size; r++)
        x->ranks[r].out_rows = split_need(x, r) + draw(state, 3);
}

/* Form, dtype, row and alignment too, such that everything has room. */
static inline void split_draw_all(struct split_case *x, uint64_t *state, enum split_form form) {
    static const int64_t aligns[] = {1, 4, 7, 16};
    x->form = form;
    x->dtype = (symmem_dtype)draw(state, SYMMEM_DTYPE_COUNT);
    x->experts = form == SPLIT_FLAT ? 1 : 1 + draw(state, SPLIT_EXPERTS);
    x->align = aligns[draw(state, 4)];
    x->row = 1;
    split_draw(x, state, 7);
    size_t rows = 1;
    for (int32_t r = 0; r < x->size; r++) {
        rows = x->ranks[r].in_rows > rows ? x->ranks[r].in_rows : rows;
        rows = x->ranks[r].out_rows > rows ? x->ranks[r].out_rows : rows;
    }
    const size_t most = SPLIT_OUT_BYTES / (rows * symmem_dtype_size(x->dtype));
    x->row = 1 + draw(state, most < 9 ? (uint32_t)most : 9);
}

/* --- running ---------------------------------------------------------------------------------- */

/* Where a place of this rank's memory is in the models. */
static inline uint8_t *split_model(struct split_case *x, const char *place) {
    if (place >= x->own.at && place < x->own.at + x->own.bytes)
        return x->own.expected + (place - x->own.at);
    return x->far.expected + (place - x->far.at);
}

/* Loads this rank's input and splits. */
static inline void split_load(struct tk *t, struct split_case *x, uint32_t generation) {
    const struct split_rank *own = &x->ranks[x->rank];
    const size_t numbers = split_parts(x) * sizeof(int64_t);
    for (int32_t r = 0; r < x->size; r++)
        move_fill(x->inputs[r], x->ranks[r].in_rows * split_row_bytes(x), r, generation);
    area_clear(&x->own);
    area_clear(&x->far);
    memcpy(x->own.expected + own->in_at, x->inputs[x->rank], own->in_rows * split_row_bytes(x));
    memcpy(split_model(x, x->in_place), own->in[0], numbers);
    if (x->form == SPLIT_BACK)
        memcpy(split_model(x, x->in_place) + numbers, own->in[1], numbers);
    area_upload(t, &x->own);
    area_upload(t, &x->far);
}

static inline bool split_untouched(struct tk *t, const struct split_case *x, const char *what) {
    return area_check(t, &x->own, what) && area_check(t, &x->far, what);
}

static inline bool split_expect(struct tk *t, struct split_case *x, const char *what) {
    symmem_reference_splits shape;
    symmem_reference_rank ranks[SPLIT_RANKS];
    int64_t numbers[2 * SPLIT_PARTS];
    split_describe(x, &shape, ranks);
    symmem_reference_all_to_all_v(&shape, ranks, (size_t)x->rank, split_model(x, x->out_place),
                                  numbers);
    memcpy(split_model(x, x->to_place), numbers, 2 * split_parts(x) * sizeof(int64_t));
    return split_untouched(t, x, what);
}

/* The tensors of a call. Do not copy. */
struct split_tensors {
    struct ops_tensor in, splits, out, to;
};

static inline void split_tensors_set(const struct split_case *x, struct split_tensors *s) {
    const struct split_rank *own = &x->ranks[x->rank];
    const int64_t parts = (int64_t)split_parts(x), row = (int64_t)x->row;
    const int64_t numbers[2] = {2, parts};
    (void)ops_shaped(&s->in, x->own.at + own->in_at, x->dtype, 2,
                     (const int64_t[]){(int64_t)own->in_rows, row});
    (void)ops_shaped(&s->out, x->out_place, x->dtype, 2,
                     (const int64_t[]){(int64_t)own->out_rows, row});
    (void)ops_shaped(&s->to, x->to_place, SYMMEM_INT64, 2, numbers);
    if (x->form == SPLIT_BACK)
        (void)ops_shaped(&s->splits, x->in_place, SYMMEM_INT64, 2, numbers);
    else
        (void)ops_flat(&s->splits, x->in_place, SYMMEM_INT64, (size_t)parts);
}

static inline symmem_status split_call(const struct split_case *x, const struct split_tensors *s,
                                       symmem_stream *stream) {
    if (x->form == SPLIT_2D)
        return symmem_all_to_all_v_2d(x->handle, &s->in.dl, &s->splits.dl, x->align, &s->out.dl,
                                      &s->to.dl, x->channel, x->limit_ms, stream);
    if (x->form == SPLIT_BACK)
        return symmem_all_to_all_v_2d_offset(x->handle, &s->in.dl, &s->splits.dl, &s->out.dl,
                                             &s->to.dl, x->channel, x->limit_ms, stream);
    return symmem_all_to_all_v(x->handle, &s->in.dl, &s->splits.dl, &s->out.dl, &s->to.dl,
                               x->channel, x->limit_ms, stream);
}

static inline symmem_status split_run(const struct split_case *x, symmem_stream *stream) {
    struct split_tensors s;
    split_tensors_set(x, &s);
    return split_call(x, &s, stream);
}

/* The name of the public call. */
static inline const char *split_name(const struct split_case *x) {
    static const char *const names[] = {"all_to_all_v", "all_to_all_v_2d",
                                        "all_to_all_v_2d_offset"};
    return names[x->form];
}

#endif
