/* SPDX-License-Identifier: BSD-3-Clause */
/* Reductions of tiles: parts of what the scalar reference makes of all ranks' matrices. */
#include "backend_table.h"
#include "reduce_help.h"
#include "uneven_help.h"

#define TILES (COLLECTIVES | SYMMEM_CAP_TILES)
#define MOST_TILES MAX_RANKS

/* A part of a matrix that begins where the ranks' data does. */
struct tile {
    size_t at, rows, columns, distance; /* elements */
};

/* One call, and where its result goes. */
struct tiles {
    symmem_dtype dtype;
    symmem_reduce_op op;
    int32_t count;
    struct tile in[MOST_TILES];
    int32_t roots[MOST_TILES];
    size_t out_at, out_distance;
    bool in_place;
    bool one; /* by symmem_tile_reduce */
};

/* A tensor of two dimensions with strides. */
struct cut {
    DLTensor dl;
    int64_t shape[2], strides[2];
};

static const DLTensor *cut_of(struct cut *cut, char *data, symmem_dtype dtype,
                              const struct tile *tile) {
    struct ops_tensor flat;
    *cut =
        (struct cut){.dl = *ops_flat(&flat, data + tile->at * symmem_dtype_size(dtype), dtype, 1),
                     .shape = {(int64_t)tile->rows, (int64_t)tile->columns},
                     .strides = {(int64_t)tile->distance, 1}};
    cut->dl.ndim = 2;
    cut->dl.shape = cut->shape;
    cut->dl.strides = cut->strides;
    return &cut->dl;
}

/* The tile that this rank is the root of; -1: none. */
static int32_t own_tile(const struct reduce_desk *desk, const struct tiles *x) {
    for (int32_t i = 0; i < x->count; i++)
        if (x->roots[i] == desk->rank)
            return i;
    return -1;
}

static struct tile out_of(const struct tiles *x, int32_t own) {
    struct tile out = own < 0 ? (struct tile){0, 1, 1, 1} : x->in[own];
    if (!x->in_place) {
        out.at = x->out_at;
        out.distance = own < 0 ? 1 : x->out_distance;
    }
    return out;
}

static char *result_of(const struct reduce_desk *desk, const struct tiles *x) {
    return (x->in_place ? desk->own : desk->out) + REDUCE_MARGIN;
}

static symmem_status tiles_run(const struct reduce_desk *desk, const struct tiles *x) {
    struct cut in[MOST_TILES], out;
    const DLTensor *in_tiles[MOST_TILES], *to = NULL; /* which only a root looks at */
    const int32_t own = own_tile(desk, x);
    const struct tile result = out_of(x, own);
    for (int32_t i = 0; i < x->count; i++)
        in_tiles[i] = cut_of(&in[i], desk->own + REDUCE_MARGIN, x->dtype, &x->in[i]);
    if (own >= 0)
        to = cut_of(&out, result_of(desk, x), x->dtype, &result);
    symmem_status status =
        x->one ? symmem_tile_reduce(desk->handle, in_tiles[0], x->op, x->roots[0], to,
                                    desk->channel, desk->limit_ms, desk->stream)
               : symmem_multi_root_tile_reduce(desk->handle, x->count, in_tiles, x->roots, x->op,
                                               to, desk->channel, desk->limit_ms, desk->stream);
    memset(in_tiles, 0x11, sizeof in_tiles);
    return status;
}

/* What is laid before a call, and what must be there after it. */
struct laid {
    struct reduce_data data;
    char *out; /* data.bytes of them */
};

static void copy_rows(char *to, const struct tile *to_tile, const char *from,
                      const struct tile *tile, size_t element) {
    for (size_t row = 0; row < tile->rows; row++)
        memcpy(to + (to_tile->at + row * to_tile->distance) * element,
               from + (tile->at + row * tile->distance) * element, tile->columns * element);
}

static void tiles_lay(struct tk *t, struct reduce_desk *desk, const struct tiles *x, size_t count,
                      struct laid *laid) {
    const size_t element = symmem_dtype_size(x->dtype);
    const int32_t own = own_tile(desk, x);
    reduce_data_begin(t, &laid->data, x->dtype, x->op, count, desk->size, desk->generation++);
    TK_REQUIRE(t, laid->data.bytes + (size_t)2 * REDUCE_MARGIN <= desk->room);
    laid->out = malloc(laid->data.bytes + 1);
    TK_REQUIRE(t, laid->out != NULL);
    char *input = laid->data.inputs + (size_t)desk->rank * laid->data.bytes;
    reduce_lay(t, desk->own + REDUCE_MARGIN, input, laid->data.bytes);
    memset(laid->out, REDUCE_MARK, laid->data.bytes);
    reduce_lay(t, desk->out + REDUCE_MARGIN, laid->out, laid->data.bytes);
    if (own < 0)
        return;
    const struct tile result = out_of(x, own);
    copy_rows(x->in_place ? input : laid->out, &result, laid->data.expected, &x->in[own], element);
}

static void laid_end(struct laid *laid) {
    free(laid->out);
    reduce_data_end(&laid->data);
}

static bool tiles_expect(struct tk *t, const struct reduce_desk *desk, const struct laid *laid) {
    const struct reduce_data *data = &laid->data;
    const char *input = data->inputs + (size_t)desk->rank * data->bytes;
    bool held = reduce_expect_laid(t, desk->out + REDUCE_MARGIN, laid->out, data->dtype,
                                   data->count, "the result");
    return reduce_expect_laid(t, desk->own + REDUCE_MARGIN, input, data->dtype, data->count,
                              "the matrix") &&
           held;
}

static void tiles_check(struct tk *t, struct reduce_desk *desk, const struct tiles *x,
                        size_t count) {
    struct laid laid;
    tk_checkpoint(t, "%d tiles, the first %zu x %zu at %zu with %zu between rows, dtype %d, op %d",
                  (int)x->count, x->in[0].rows, x->in[0].columns, x->in[0].at, x->in[0].distance,
                  (int)x->dtype, (int)x->op);
    tiles_lay(t, desk, x, count, &laid);
    if (TK_OK(t, tiles_run(desk, x))) {
        if (desk->stream != NULL)
            tk_synchronize(t, desk->stream);
        tiles_expect(t, desk, &laid);
    }
    laid_end(&laid);
}

/* --- what they compute ------------------------------------------------------------------------ */

enum { MATRIX = 900 };

static void draw_tile(struct tile *tile, uint64_t *state) {
    tile->rows = draw(state, 7);
    tile->columns = draw(state, 4) == 0 ? draw(state, 110) : draw(state, 12);
    tile->distance = tile->columns + (draw(state, 3) == 0 ? 0 : draw(state, 20));
    tile->at = draw(state, 60);
}

/* Drawn tiles, roots in any order, one in place at times. */
static void draw_tiles(struct tiles *x, const struct reduce_desk *desk, uint64_t *state) {
    x->one = draw(state, 3) == 0;
    x->count = x->one ? 1 : (int32_t)draw(state, (uint32_t)desk->size + 1);
    x->in_place = x->one && draw(state, 3) == 0;
    const int32_t first = (int32_t)draw(state, (uint32_t)desk->size);
    for (int32_t i = 0; i < x->count; i++) {
        draw_tile(&x->in[i], state);
        x->roots[i] = (first + i) % desk->size;
    }
    x->out_at = draw(state, 50);
    x->out_distance = 110 + draw(state, 2) * draw(state, 9);
    if (x->one && draw(state, 2) == 0)
        x->out_distance = x->in[0].columns;
}

static void each_pair(struct tk *t, struct reduce_desk *desk, uint64_t seed) {
    for (int i = 0; i < reduce_pair_count(); i++) {
        struct tiles x = {0};
        reduce_pair(i, &x.dtype, &x.op);
        draw_tiles(&x, desk, &seed);
        tiles_check(t, desk, &x, MATRIX);
    }
}

ON_EACH_SHAPE(tile, on_every_group_shape,
              "SM-TILE-01,SM-TILE-02,SM-TILE-03,SM-TILE-08,SM-COLL-01,SM-COLL-07", .needs = TILES,
              .max_ranks = MAX_RANKS, .timeout_s = 60) {
    struct reduce_desk desk = reduce_desk_begin(t, group, (size_t)MATRIX * 8 + 256);
    each_pair(t, &desk, t->seed + (uint64_t)shape->count);
}

TK_TEST(tile, on_streams, "SM-TILE-01,SM-TILE-02", .needs = TILES | SYMMEM_CAP_STREAMS,
        .max_ranks = MAX_RANKS) {
    struct reduce_desk desk = reduce_desk_begin(t, tk_world_group(t), (size_t)MATRIX * 8 + 256);
    desk.stream = tk_stream(t);
    desk.channel = info_of(t, desk.handle).channel_count - 1;
    each_pair(t, &desk, t->seed);
}

/* PyTorch's: the quadrants of a matrix, each to another root, or one to each root. */
TK_TEST(tile, quadrants, "SM-TILE-01,SM-TILE-02", .needs = TILES, .max_ranks = MAX_RANKS) {
    enum { SIDE = 64 };
    struct reduce_desk desk =
        reduce_desk_begin(t, tk_world_group(t), (size_t)4 * SIDE * SIDE * 4 + 256);
    struct tiles x = {.dtype = SYMMEM_FLOAT32, .op = SYMMEM_SUM, .out_distance = SIDE};
    for (int32_t i = 0; i < 4 && i < desk.size; i++) {
        const size_t at = (size_t)(i / 2) * 2 * SIDE * SIDE + (size_t)(i % 2) * SIDE;
        x.in[i] = (struct tile){at, SIDE, SIDE, (size_t)2 * SIDE};
        x.roots[i] = desk.size - 1 - i;
        x.count++;
    }
    tiles_check(t, &desk, &x, (size_t)4 * SIDE * SIDE);
    x.one = true;
    x.count = 1;
    for (x.roots[0] = 0; x.roots[0] < desk.size; x.roots[0]++)
        tiles_check(t, &desk, &x, (size_t)4 * SIDE * SIDE);
}

/* The result goes between the rows of the tile, on which its memory touches but shares nothing. */
TK_TEST(tile, between_the_rows, "SM-TILE-03", .needs = TILES, .max_ranks = MAX_RANKS) {
    const struct tile in = {0, 6, 5, 11}, gaps = {5, 6, 5, 11};
    struct reduce_desk desk = reduce_desk_begin(t, tk_world_group(t), 1024);
    const struct tiles x = {.dtype = SYMMEM_INT16, .count = 1, .in = {in}, .in_place = true};
    struct laid laid;
    struct cut from, to;
    tiles_lay(t, &desk, &x, 200, &laid);
    char *input = laid.data.inputs + (size_t)desk.rank * laid.data.bytes;
    if (desk.rank == 0) { /* tiles_lay has put it in place */
        ops_download(t, input, desk.own + REDUCE_MARGIN, laid.data.bytes);
        copy_rows(input, &gaps, laid.data.expected, &in, 2);
    }
    TK_OK(t, symmem_tile_reduce(
                 desk.handle, cut_of(&from, desk.own + REDUCE_MARGIN, x.dtype, &in), SYMMEM_SUM, 0,
                 cut_of(&to, desk.own + REDUCE_MARGIN, x.dtype, &gaps), 0, desk.limit_ms, NULL));
    tiles_expect(t, &desk, &laid);
    laid_end(&laid);
}

/* --- refusals --------------------------------------------------------------------------------- */

static void refuse_out(struct tk *t, const struct reduce_desk *desk, const struct tile *in,
                       char *data, const struct tile *out) {
    struct cut from, to;
    symmem_status status = symmem_tile_reduce(
        desk->handle, cut_of(&from, desk->own + REDUCE_MARGIN, SYMMEM_INT16, in), SYMMEM_SUM,
        desk->rank, cut_of(&to, data, SYMMEM_INT16, out), 0, 50, NULL);
    TK_CHECK_MSG(t, status == SYMMEM_INVALID_ARGUMENT && recorded_as("tile_reduce"),
                 "an out of %zu x %zu at %zu with %zu between rows: %s", out->rows, out->columns,
                 out->at, out->distance, symmem_status_name(status));
}

TK_TEST(tile, overlaps, "SM-TILE-03,SM-COLL-04", .needs = TILES, .ranks = {2, MAX_RANKS},
        .flags = TK_PLAIN_MEMORY) {
    static const struct tile in = {20, 4, 5, 11};
    static const struct tile wrong[] = {{21, 4, 5, 11}, /* a column further */
                                        {31, 4, 5, 11}, /* a row */
                                        {20, 4, 5, 12}, /* from there, but at other distances */
                                        {24, 4, 5, 11}, /* on the last column */
                                        {16, 4, 5, 11}, /* on the first one */
                                        {57, 4, 5, 7},  /* on the last element */
                                        {1, 4, 5, 5}};  /* and on the first one */
    struct reduce_desk desk = reduce_desk_begin(t, tk_world_group(t), 1024);
    char *own = desk.own + REDUCE_MARGIN, *out = desk.out + REDUCE_MARGIN;
    const size_t offset = (size_t)(own - (char *)buffers_of(t, desk.handle)[desk.rank]);
    char *peer = (char *)buffers_of(t, desk.handle)[(desk.rank + 1) % desk.size] + offset;
    reduce_lay(t, own, NULL, 256);
    reduce_lay(t, out, NULL, 256);
    for (size_t i = 0; i < TK_COUNT(wrong); i++)
        refuse_out(t, &desk, &in, own, &wrong[i]);
    refuse_out(t, &desk, &in, peer, &in); /* another rank's own tile */
    reduce_expect_laid(t, own, NULL, SYMMEM_UINT8, 256, "the matrix");
    reduce_expect_laid(t, out, NULL, SYMMEM_UINT8, 256, "out");
    TK_OK(t, symmem_barrier(desk.handle, 0, desk.limit_ms, NULL));
}

/* Right arguments of one call, each of which a case gives another value. */
struct arguments {
    struct cut in, second, out;
    const DLTensor *tiles[2];
    int32_t roots[2], count;
};

static symmem_status call_with(const struct reduce_desk *desk, const struct arguments *a) {
    return symmem_multi_root_tile_reduce(desk->handle, a->count, a->tiles, a->roots, SYMMEM_SUM,
                                         &a->out.dl, 0, 50, NULL);
}

static void arguments_set(const struct reduce_desk *desk, struct arguments *a) {
    static const struct tile tile = {0, 3, 4, 9};
    (void)cut_of(&a->in, desk->own + REDUCE_MARGIN, SYMMEM_INT32, &tile);
    (void)cut_of(&a->second, desk->own + REDUCE_MARGIN, SYMMEM_INT32, &tile);
    (void)cut_of(&a->out, desk->out + REDUCE_MARGIN, SYMMEM_INT32, &tile);
    a->tiles[0] = &a->in.dl;
    a->tiles[1] = &a->second.dl;
    a->roots[0] = desk->rank;
    a->roots[1] = (desk->rank + 1) % desk->size;
    a->count = 2;
}

#define REFUSED_IF(change_, status_)                                                               \
    do {                                                                                           \
        struct arguments a;                                                                        \
        arguments_set(&desk, &a);                                                                  \
        change_;                                                                                   \
        symmem_status status = call_with(&desk, &a);                                               \
        TK_CHECK_MSG(t, status == SYMMEM_##status_ && recorded_as("multi_root_tile_reduce"),       \
                     "with %s: %s", #change_, symmem_status_name(status));                         \
    } while (0)

TK_TEST(tile, arguments, "SM-TILE-04,SM-COLL-03", .needs = TILES, .ranks = {2, MAX_RANKS}) {
    struct reduce_desk desk = reduce_desk_begin(t, tk_world_group(t), 1024);
    reduce_lay(t, desk.out + REDUCE_MARGIN, NULL, 256);
    REFUSED_IF(a.in.dl.ndim = 1, INVALID_ARGUMENT);
    REFUSED_IF(a.out.dl.ndim = 1, INVALID_ARGUMENT);
    REFUSED_IF(a.in.strides[1] = 2, INVALID_ARGUMENT);
    REFUSED_IF(a.out.strides[1] = 2, INVALID_ARGUMENT);
    REFUSED_IF(a.in.strides[0] = 3, INVALID_ARGUMENT);
    REFUSED_IF(a.out.strides[0] = 3, INVALID_ARGUMENT);
    REFUSED_IF(a.in.strides[0] = -9, INVALID_ARGUMENT);
    REFUSED_IF(a.second.dl.dtype.code = kDLFloat, INVALID_ARGUMENT);
    REFUSED_IF(a.out.dl.dtype.code = kDLFloat, INVALID_ARGUMENT);
    REFUSED_IF(a.out.shape[0] = 2, INVALID_ARGUMENT);
    REFUSED_IF(a.out.shape[1] = 3, INVALID_ARGUMENT);
    REFUSED_IF(a.tiles[1] = NULL, INVALID_ARGUMENT);
    REFUSED_IF(a.roots[1] = a.roots[0], INVALID_ARGUMENT);
    REFUSED_IF(a.roots[1] = desk.size, OUT_OF_RANGE);
    REFUSED_IF(a.roots[0] = -1, OUT_OF_RANGE);
    REFUSED_IF(a.count = -1, OUT_OF_RANGE);
    REFUSED_IF(a.second.dl.data = desk.out, NOT_SYMMETRIC);
    REFUSED_IF(a.in.strides[0] = 100000, OUT_OF_RANGE);
    REFUSED_IF(a.in.strides[0] = INT64_MAX, OVERFLOW);
    for (int without = 0; without < 2; without++) {
        struct arguments a;
        arguments_set(&desk, &a);
        TK_FAILS(t, INVALID_ARGUMENT,
                 symmem_multi_root_tile_reduce(desk.handle, 2, without == 0 ? NULL : a.tiles,
                                               without == 0 ? a.roots : NULL, SYMMEM_SUM, &a.out.dl,
                                               0, 50, NULL));
    }
    reduce_expect_laid(t, desk.out + REDUCE_MARGIN, NULL, SYMMEM_UINT8, 256, "out");
    TK_OK(t, symmem_multi_root_tile_reduce(desk.handle, 0, NULL, NULL, SYMMEM_MAX, NULL, 0,
                                           desk.limit_ms, NULL));
}

TK_TEST(tile, refused_without_the_capability, "SM-TILE-07,SM-BACKEND-09", .needs = COLLECTIVES,
        .ranks = {2, 2}) {
    backend_without(t, SYMMEM_CAP_TILES);
    struct reduce_desk desk = reduce_desk_begin(t, tk_world_group(t), 1024);
    reduce_lay(t, desk.out + REDUCE_MARGIN, NULL, 256);
    REFUSED_IF(a.count = 0, UNSUPPORTED);
    REFUSED_IF((void)0, UNSUPPORTED);
    struct arguments a;
    arguments_set(&desk, &a);
    TK_FAILS(t, UNSUPPORTED,
             symmem_tile_reduce(desk.handle, &a.in.dl, SYMMEM_SUM, 0, &a.out.dl, 0, 50, NULL));
    reduce_expect_laid(t, desk.out + REDUCE_MARGIN, NULL, SYMMEM_UINT8, 256, "out");
}

/* --- agreement -------------------------------------------------------------------------------- */

enum oddity {
    ODD_COUNT,
    ODD_PLACE,
    ODD_SHAPE,
    ODD_DISTANCE,
    ODD_ROOTS,
    ODD_DTYPE,
    ODD_OP,
    ODD_CALL,
    ODDITIES
};

/* All but the number of elements stay as they were, where that can be. */
static void make_odd(struct tiles *x, enum oddity oddity) {
    struct tile *last = &x->in[x->count - 1];
    x->count -= oddity == ODD_COUNT;
    last->at += oddity == ODD_PLACE;
    if (oddity == ODD_SHAPE) { /* 2 x 6 */
        last->rows = 6;
        last->columns = 2;
    }
    last->distance += oddity == ODD_DISTANCE;
    if (oddity == ODD_ROOTS) {
        const int32_t other = x->roots[0];
        x->roots[0] = x->roots[1];
        x->roots[1] = other;
    }
    x->dtype = oddity == ODD_DTYPE ? SYMMEM_FLOAT32 : x->dtype;
    x->op = oddity == ODD_OP ? SYMMEM_MAX : x->op;
    x->one = oddity == ODD_CALL;
}

TK_TEST(tile, ranks_differ, "SM-TILE-05,SM-COLL-06", .needs = TILES, .ranks = {2, MAX_RANKS}) {
    struct reduce_desk desk = reduce_desk_begin(t, tk_world_group(t), 2048);
    const struct tiles usual = {.dtype = SYMMEM_INT32,
                                .count = 2,
                                .in = {{0, 2, 6, 9}, {30, 2, 6, 9}},
                                .roots = {1, 0},
                                .out_distance = 20};
    for (int i = 0; i < ODDITIES * desk.size; i++) {
        struct tiles x = usual;
        struct laid laid;
        const int32_t odd = i / ODDITIES;
        if (desk.rank == odd)
            make_odd(&x, (enum oddity)(i % ODDITIES));
        tk_checkpoint(t, "oddity %d at rank %d", i % ODDITIES, (int)odd);
        tiles_lay(t, &desk, &usual, 200, &laid);
        TK_FAILS(t, MISMATCH, tiles_run(&desk, &x));
        TK_EQ_INT(t, desk.rank != odd ? odd : odd == 0 ? 1 : 0, last_record().failed_rank);
        TK_CHECK(t, !info_of(t, desk.handle).poisoned);
        reduce_expect_laid(t, desk.out + REDUCE_MARGIN, NULL, SYMMEM_UINT8, 800, "out");
        TK_OK(t, tiles_run(&desk, &usual));
        tiles_expect(t, &desk, &laid);
        laid_end(&laid);
        tk_out_of_band_barrier(t); /* matrices change again */
    }
}

/* --- the arrays' life ------------------------------------------------------------------------- */

/* tiles_run has overwritten the array when the operation runs, and its tensors are gone. */
TK_TEST(tile, arrays_of_the_call_only, "SM-TILE-06,SM-COLL-09",
        .needs = TILES | SYMMEM_CAP_CAPTURE | SYMMEM_CAP_HOST_FN, .max_ranks = MAX_RANKS) {
    struct reduce_desk desk = reduce_desk_begin(t, tk_world_group(t), 2048);
    struct tiles x = {
        .dtype = SYMMEM_FLOAT16, .count = 1, .in = {{3, 4, 6, 9}}, .out_distance = 20};
    struct laid laid;
    struct gate gate = {0};
    desk.stream = tk_stream(t);
    x.roots[0] = desk.size - 1;
    tiles_lay(t, &desk, &x, 200, &laid);
    TK_OK(t, symmem_stream_host_fn(desk.stream, gate_fn, &gate));
    TK_OK(t, tiles_run(&desk, &x));
    gate_open(&gate);
    tk_synchronize(t, desk.stream);
    tiles_expect(t, &desk, &laid);
    laid_end(&laid);
    TK_REQUIRE_OK(t, symmem_stream_begin_capture(desk.stream));
    TK_OK(t, tiles_run(&desk, &x));
    symmem_graph *graph = tk_end_capture(t, desk.stream);
    for (int launch = 0; launch < 3; launch++) {
        tiles_lay(t, &desk, &x, 200, &laid);
        run_graph(t, graph, desk.stream);
        tiles_expect(t, &desk, &laid);
        laid_end(&laid);
    }
}
