/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every public collective operation, one row each and one more for each way in which it goes about
 * its work. What holds for all of them is tested by going through the rows, so that a new operation
 * adds its row and nothing else.
 */
#ifndef SYMMEM_CONFORMANCE_OPS_TABLE_HELP_H
#define SYMMEM_CONFORMANCE_OPS_TABLE_HELP_H

#include "move_help.h"
#include "ops_calls.h"

#include <symmem/ops_matmul.h>

/* --- the rows ------------------------------------------------------------------------------- */

enum ops_place {
    NOWHERE,   /* the operation has no such tensor */
    BLOCK,     /* symmetric */
    FAR,       /* in memory that is not */
    SAME,      /* out: the input itself */
    OWN_CHUNK, /* input: part `rank` of out */
    NEW        /* out: made by the call */
};

#define ROW_IN_WHOLE (1u << 0)  /* the input has a part for each rank, */
#define ROW_OUT_WHOLE (1u << 1) /* the output one of each */
#define ROW_BUFFER (1u << 2)
#define ROW_REDUCES (1u << 3)
#define ROW_ROOTED (1u << 4)
#define ROW_MULTIMEM (1u << 5)
#define ROW_SPLITS (1u << 6)   /* takes splits; ranks may have their inputs at different places */
#define ROW_TABLE (1u << 7)    /* chooses by the context's table */
#define ROW_COMPOSED (1u << 8) /* of barriers and copies */
#define ROW_FUSED (1u << 9)    /* with products; the block is the workspace */
#define ROW_TILES (1u << 10)   /* needs SYMMEM_CAP_TILES */
#define ROW_MATRIX (1u << 11)  /* makes matrices of flat tensors */

struct ops_row {
    const char *what; /* the operation, with the way after a blank */
    enum ops_place input, out;
    unsigned traits;
    ops_fn run;
    const char *like; /* rows that ranks may mix; NULL: none */
};

/* --- with products -------------------------------------------------------------------------- */

enum { OPS_HALF = 2048 };

/* A flat tensor as a matrix with so many rows, or, if they do not divide it, with one. */
struct row_matrix {
    DLTensor dl;
    int64_t shape[2];
};

static inline const DLTensor *row_matrix_of(struct row_matrix *matrix, const DLTensor *flat,
                                            int64_t rows) {
    if (flat == NULL)
        return NULL;
    matrix->dl = *flat;
    matrix->shape[0] = flat->shape[0] % rows == 0 ? rows : 1;
    matrix->shape[1] = flat->shape[0] / matrix->shape[0];
    matrix->dl.ndim = 2;
    matrix->dl.strides = NULL;
    matrix->dl.shape = matrix->shape;
    return &matrix->dl;
}

/* The tensors of a product: a is the input, b is square, and both scales are single numbers. */
struct row_product {
    struct row_matrix in, out, b, scale;
    const DLTensor *a, *to; /* NULL where the call has none */
    const DLTensor *bs[1], *scales[1], *outs[1];
};

/* A square matrix of the input's dtype. */
static inline void row_product_side(struct row_matrix *matrix, const struct row_matrix *in,
                                    int64_t side, char *data) {
    *matrix = *in;
    matrix->dl.shape = matrix->shape;
    matrix->dl.byte_offset = 0;
    matrix->dl.data = data;
    matrix->shape[0] = matrix->shape[1] = side;
}

static inline void row_product_set(struct row_product *p, const struct ops_call *c, bool gathers) {
    symmem_handle_info info;
    int64_t size = symmem_handle_get_info(c->handle, &info) == SYMMEM_OK ? info.world_size : 1;
    const DLTensor *any = c->input != NULL ? c->input : c->out;
    (void)row_matrix_of(&p->in, any, gathers ? 1 : size);
    row_product_side(&p->b, &p->in, p->in.shape[1], c->more);
    row_product_side(&p->scale, &p->in, 1, c->more + OPS_HALF / 4);
    p->scale.dl.ndim = 1; /* one for all, even if there is one row only */
    p->a = row_matrix_of(&p->in, c->input, gathers ? 1 : size);
    p->to = row_matrix_of(&p->out, c->out, gathers ? size : 1);
    p->bs[0] = &p->b.dl;
    p->scales[0] = &p->scale.dl;
    p->outs[0] = p->to;
}

static inline symmem_status row_fused_gather(const struct ops_call *c) {
    struct row_product p;
    row_product_set(&p, c, true);
    return symmem_fused_all_gather_matmul(c->handle, p.a, 0, 1, p.bs, NULL, p.outs, c->channel,
                                          c->limit_ms, c->stream, NULL);
}
static inline symmem_status row_fused_scaled_gather(const struct ops_call *c) {
    struct row_product p;
    row_product_set(&p, c, true);
    return symmem_fused_all_gather_scaled_matmul(c->handle, p.a, &p.scale.dl, 0, 1, p.bs, p.scales,
                                                 NULL, p.outs, c->channel, c->limit_ms, c->stream,
                                                 NULL);
}
static inline symmem_status row_fused_scatter(const struct ops_call *c) {
    struct row_product p;
    row_product_set(&p, c, false);
    return symmem_fused_matmul_reduce_scatter(c->handle, p.a, &p.b.dl, c->op, 0, p.to, c->channel,
                                              c->limit_ms, c->stream, NULL);
}
static inline symmem_status row_fused_scaled_scatter(const struct ops_call *c) {
    struct row_product p;
    row_product_set(&p, c, false);
    return symmem_fused_scaled_matmul_reduce_scatter(c->handle, p.a, &p.b.dl, &p.scale.dl,
                                                     &p.scale.dl, c->op, 0, p.to, c->channel,
                                                     c->limit_ms, c->stream, NULL);
}

/* Of two rows, if they divide it. */
static inline symmem_status row_tile(const struct ops_call *c) {
    struct row_matrix in, out;
    return symmem_tile_reduce(c->handle, row_matrix_of(&in, c->input, 2), c->op, c->root,
                              row_matrix_of(&out, c->out, 2), c->channel, c->limit_ms, c->stream);
}
static inline symmem_status row_tiles(const struct ops_call *c) {
    struct row_matrix in, out;
    const DLTensor *tile = row_matrix_of(&in, c->input, 2);
    return symmem_multi_root_tile_reduce(c->handle, 1, &tile, &c->root, c->op,
                                         row_matrix_of(&out, c->out, 2), c->channel, c->limit_ms,
                                         c->stream);
}

#define ROW_GATHERS ROW_OUT_WHOLE
#define ROW_SCATTERS (ROW_IN_WHOLE | ROW_REDUCES)
#define ROW_EVEN (ROW_IN_WHOLE | ROW_OUT_WHOLE)

static const struct ops_row ops_rows[] = {
    {"all_reduce plain", BLOCK, FAR, ROW_REDUCES | ROW_TABLE, row_all_reduce, NULL},
    {"all_reduce in place", BLOCK, SAME, ROW_REDUCES | ROW_TABLE, row_all_reduce, NULL},
    {"all_reduce to symmetric", FAR, BLOCK, ROW_REDUCES | ROW_TABLE, row_all_reduce, NULL},
    {"all_reduce private", FAR, FAR, ROW_REDUCES | ROW_TABLE, row_all_reduce, NULL},
    {"one_shot_all_reduce_out", BLOCK, FAR, ROW_REDUCES, row_one_shot_out, "one-shot"},
    {"one_shot_all_reduce", BLOCK, NEW, ROW_REDUCES, row_one_shot, "one-shot"},
    {"one_shot_all_reduce_copy_out", FAR, FAR, ROW_REDUCES | ROW_BUFFER, row_one_shot_copy_out,
     "one-shot copy"},
    {"one_shot_all_reduce_copy", FAR, NEW, ROW_REDUCES | ROW_BUFFER, row_one_shot_copy,
     "one-shot copy"},
    {"two_shot_all_reduce", BLOCK, NOWHERE, ROW_REDUCES, row_two_shot, NULL},
    {"two_shot_all_reduce_out", BLOCK, FAR, ROW_REDUCES, row_two_shot_out, NULL},
    {"reduce_scatter_out", BLOCK, FAR, ROW_SCATTERS, row_reduce_scatter, NULL},
    {"reduce_scatter_out split", BLOCK, FAR, ROW_SCATTERS, row_reduce_scatter_split, NULL},
    {"low_contention_reduce_scatter", BLOCK, FAR, ROW_SCATTERS, row_low_contention_reduce_scatter,
     NULL},
    {"low_contention_reduce_scatter push", FAR, FAR, ROW_SCATTERS,
     row_low_contention_reduce_scatter, NULL},
    {"all_gather_out", BLOCK, FAR, ROW_GATHERS, row_all_gather, NULL},
    {"all_gather_out push", FAR, BLOCK, ROW_GATHERS, row_all_gather, "push"},
    {"all_gather_out own chunk", OWN_CHUNK, BLOCK, ROW_GATHERS, row_all_gather, "push"},
    {"broadcast", BLOCK, NOWHERE, ROW_ROOTED, row_broadcast, NULL},
    {"all_to_all_out", BLOCK, FAR, ROW_EVEN | ROW_SPLITS, row_all_to_all, NULL},
    {"low_contention_all_gather_out", BLOCK, FAR, ROW_GATHERS | ROW_COMPOSED,
     row_low_contention_all_gather, NULL},
    {"low_contention_all_gather_out staged", FAR, FAR, ROW_GATHERS | ROW_COMPOSED,
     row_low_contention_all_gather, NULL},
    {"all_gather_v", BLOCK, FAR, ROW_GATHERS | ROW_COMPOSED, row_all_gather_v, NULL},
    {"all_gather_v push", FAR, BLOCK, ROW_GATHERS | ROW_COMPOSED, row_all_gather_v, "push of v"},
    {"all_gather_v own chunk", OWN_CHUNK, BLOCK, ROW_GATHERS | ROW_COMPOSED, row_all_gather_v,
     "push of v"},
    {"reduce_scatter_v", BLOCK, FAR, ROW_SCATTERS | ROW_COMPOSED | ROW_TILES, row_reduce_scatter_v,
     NULL},
    {"tile_reduce", BLOCK, FAR, ROW_REDUCES | ROW_ROOTED | ROW_COMPOSED | ROW_TILES | ROW_MATRIX,
     row_tile, NULL},
    {"multi_root_tile_reduce", BLOCK, FAR,
     ROW_REDUCES | ROW_ROOTED | ROW_COMPOSED | ROW_TILES | ROW_MATRIX, row_tiles, NULL},
    {"multimem_all_reduce", BLOCK, NOWHERE, ROW_REDUCES | ROW_MULTIMEM, row_multimem_all_reduce,
     NULL},
    {"multimem_one_shot_all_reduce_out", BLOCK, FAR, ROW_REDUCES | ROW_MULTIMEM,
     row_multimem_one_shot, "multimem one-shot"},
    {"multimem_one_shot_all_reduce", BLOCK, NEW, ROW_REDUCES | ROW_MULTIMEM,
     row_multimem_one_shot_made, "multimem one-shot"},
    {"multimem_one_shot_reduce_out", BLOCK, FAR, ROW_REDUCES | ROW_ROOTED | ROW_MULTIMEM,
     row_multimem_reduce, NULL},
    {"multimem_all_gather_out", FAR, BLOCK, ROW_GATHERS | ROW_MULTIMEM, row_multimem_all_gather,
     NULL},
    {"low_contention_all_gather_ce_multicast_out", FAR, BLOCK,
     ROW_GATHERS | ROW_MULTIMEM | ROW_COMPOSED, row_ce_multicast, NULL},
    {"fused_all_gather_matmul", FAR, FAR, ROW_GATHERS | ROW_FUSED, row_fused_gather, NULL},
    {"fused_all_gather_scaled_matmul", FAR, FAR, ROW_GATHERS | ROW_FUSED, row_fused_scaled_gather,
     NULL},
    {"fused_matmul_reduce_scatter", FAR, FAR, ROW_SCATTERS | ROW_FUSED, row_fused_scatter,
     "fused scatter"},
    {"fused_scaled_matmul_reduce_scatter", FAR, FAR, ROW_SCATTERS | ROW_FUSED,
     row_fused_scaled_scatter, "fused scatter"},
};
#define OPS_ROWS ((int)(sizeof(ops_rows) / sizeof(ops_rows[0])))

/* --- their memory --------------------------------------------------------------------------- */

/* So many ranks find room for their parts of a fused product in the block. */
enum { OPS_COUNT = 6, OPS_MAX_RANKS = 64, OPS_FUSED_RANKS = 12 };

/* The input, or what it is staged in, in the first half of the block or of other memory, the output
 * in the second one. */
struct ops_desk {
    symmem_handle *handle;
    char *block, *far;
    int32_t rank, size;
    bool multicast, products, tiles;
    uint32_t limit_ms;
};

static inline struct ops_desk ops_desk_begin(struct tk *t) {
    if (t->capabilities & SYMMEM_CAP_MULTICAST)
        (void)multicast_allowed(t);
    struct ops_desk desk = {.handle = tk_handle(t, 2 * OPS_HALF, tk_world_group(t)),
                            .far = tk_alloc(t, 2 * OPS_HALF),
                            .limit_ms = LONG_MS};
    symmem_handle_info info = info_of(t, desk.handle);
    desk.block = ops_own(t, desk.handle);
    desk.rank = info.rank;
    desk.size = info.world_size;
    desk.multicast = info.multicast_ptr != NULL;
    desk.tiles = (t->capabilities & SYMMEM_CAP_TILES) != 0;
    desk.products = (t->capabilities & SYMMEM_CAP_MATMUL) && desk.size <= OPS_FUSED_RANKS;
    return desk;
}

static inline bool ops_can(const struct ops_desk *desk, const struct ops_row *row) {
    return (desk->multicast || !(row->traits & ROW_MULTIMEM)) &&
           (desk->tiles || !(row->traits & ROW_TILES)) &&
           (desk->products || !(row->traits & ROW_FUSED));
}

/* What the ranks have to agree on. */
struct ops_terms {
    symmem_dtype dtype;
    symmem_reduce_op op;
    size_t count; /* elements of a part */
    int32_t root;
    size_t shift; /* elements from where a symmetric tensor is otherwise */
};
static const struct ops_terms ops_usual = {SYMMEM_FLOAT32, SYMMEM_SUM, OPS_COUNT, 0, 0};

/* A call's arguments and what they point to. Do not copy. */
struct ops_setting {
    struct ops_call call;
    struct ops_tensor buffer, input, out;
    DLManagedTensor *made;
    size_t counts[OPS_MAX_RANKS];
};

static inline void ops_place_tensor(const struct ops_desk *desk, const struct ops_terms *terms,
                                    struct ops_tensor *tensor, enum ops_place place, size_t half,
                                    bool whole) {
    char *at = (place == FAR ? desk->far : desk->block) + half;
    if (place != FAR)
        at += terms->shift * symmem_dtype_size(terms->dtype);
    (void)ops_flat(tensor, at, terms->dtype, terms->count * (whole ? (size_t)desk->size : 1));
}

static inline void ops_set(const struct ops_desk *desk, const struct ops_row *row,
                           const struct ops_terms *terms, struct ops_setting *set) {
    memset(set, 0, sizeof(*set));
    set->call = (struct ops_call){.handle = desk->handle,
                                  .op = terms->op,
                                  .root = terms->root,
                                  .limit_ms = desk->limit_ms,
                                  .made_p = &set->made,
                                  .more = desk->far + OPS_HALF / 2};
    for (int32_t rank = 0; rank < desk->size; rank++)
        set->counts[rank] = terms->count;
    set->call.counts = set->counts;
    ops_place_tensor(desk, terms, &set->buffer, BLOCK, 0, false);
    ops_place_tensor(desk, terms, &set->input, row->input, 0, row->traits & ROW_IN_WHOLE);
    ops_place_tensor(desk, terms, &set->out, row->out, OPS_HALF, row->traits & ROW_OUT_WHOLE);
    if (row->input == OWN_CHUNK)
        set->input.dl.data = (char *)set->out.dl.data +
                             (size_t)desk->rank * terms->count * symmem_dtype_size(terms->dtype);
    set->call.buffer = row->traits & ROW_BUFFER ? &set->buffer.dl : NULL;
    set->call.input = &set->input.dl;
    if (row->out == SAME)
        set->call.out = &set->input.dl;
    else if (row->out == BLOCK || row->out == FAR)
        set->call.out = &set->out.dl;
}

/* Runs it. What it made goes where an output would be, and is given back at once. */
static inline symmem_status ops_run(struct tk *t, const struct ops_desk *desk,
                                    const struct ops_row *row, struct ops_setting *set) {
    symmem_status status = row->run(&set->call);
    if (status == SYMMEM_OK && set->made != NULL) {
        size_t bytes = (size_t)set->input.shape[0] * sizeof(float);
        TK_OK(t, symmem_copy(t->context, desk->far + OPS_HALF, set->made->dl_tensor.data, bytes,
                             set->call.stream));
        set->made->deleter(set->made);
    }
    set->made = NULL;
    return status;
}

static inline symmem_status ops_run_usual(struct tk *t, const struct ops_desk *desk,
                                          const struct ops_row *row, int32_t channel,
                                          symmem_stream *stream) {
    struct ops_setting set;
    ops_set(desk, row, &ops_usual, &set);
    set.call.channel = channel;
    set.call.stream = stream;
    return ops_run(t, desk, row, &set);
}

/* --- their contents --------------------------------------------------------------------------- */

static inline void ops_model(const struct ops_desk *desk, uint8_t *bytes, uint32_t generation) {
    ops_fill(bytes, SYMMEM_FLOAT32, 2 * OPS_HALF / sizeof(float), desk->rank, generation);
}

/* All memory, so that whatever is written shows. No operation may be using it. */
static inline void ops_load(struct tk *t, const struct ops_desk *desk, uint32_t generation) {
    uint8_t bytes[2 * OPS_HALF];
    ops_model(desk, bytes, generation);
    ops_upload(t, desk->block, bytes, sizeof(bytes));
    ops_upload(t, desk->far, bytes, sizeof(bytes));
}

static inline bool ops_untouched(struct tk *t, const struct ops_desk *desk, uint32_t generation,
                                 const char *what) {
    uint8_t expected[2 * OPS_HALF], found[2][2 * OPS_HALF];
    ops_model(desk, expected, generation);
    ops_download(t, found[0], desk->block, sizeof(expected));
    ops_download(t, found[1], desk->far, sizeof(expected));
    return TK_CHECK_MSG(t, memcmp(expected, found[0], sizeof(expected)) == 0,
                        "%s: the block was written", what) &&
           TK_CHECK_MSG(t, memcmp(expected, found[1], sizeof(expected)) == 0,
                        "%s: other memory was written", what);
}

/* The half that the result is in. */
static inline void ops_result(struct tk *t, const struct ops_desk *desk, const struct ops_row *row,
                              uint8_t *bytes) {
    const char *at = row->out == NOWHERE || row->out == SAME ? desk->block
                     : row->out == BLOCK                     ? desk->block + OPS_HALF
                                                             : desk->far + OPS_HALF;
    ops_download(t, bytes, at, OPS_HALF);
}

/* Whether the last record is of that row's operation. */
static inline bool ops_recorded(const struct ops_row *row) {
    symmem_error_record record = last_record();
    size_t length = strcspn(row->what, " ");
    return strncmp(record.operation, row->what, length) == 0 && record.operation[length] == '\0';
}

#endif
