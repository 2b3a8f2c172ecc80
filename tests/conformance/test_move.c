/* SPDX-License-Identifier: BSD-3-Clause */
/* All-gather and broadcast: every byte in its place, and no other. */
#include "gathers.h"

/* --- all-gather ------------------------------------------------------------------------------- */

/* 0 to 130 and primes; everything with the long suite, else a dtype and form for each count. */
TK_TEST(move, all_gather_every_count, "SM-MOVE-01,SM-MOVE-02,SM-COLL-07", .needs = COLLECTIVES,
        .max_ranks = 3, .timeout_s = 60) {
    static const size_t primes[] = {139, 251, 509, 997, 1009};
    uint64_t state = t->seed;
    uint32_t generation = 0;
    TK_REQ(t, "SM-MOVE-01");
    struct places *p = places_on(t, tk_world_group(t));
    for (size_t i = 0; i < 131 + LENGTH(primes); i++)
        for (int again = tk_suite_is_long() ? 2 * SYMMEM_DTYPE_COUNT * 3 : 1; again > 0; again--)
            gather_drawn(t, p, &gather_ways[draw(&state, LENGTH(gather_ways))], &state,
                         i <= 130 ? i : primes[i - 131], generation++);
}

ON_EACH_SHAPE(move, all_gather_on_every_group_shape, "SM-MOVE-01,SM-MOVE-02", .needs = COLLECTIVES,
              .max_ranks = 8) {
    uint64_t state = t->seed + (uint64_t)shape->count;
    struct places *p = places_on(t, group);
    for (uint32_t i = 0; i < 2 * LENGTH(gather_ways); i++)
        gather_drawn(t, p, &gather_ways[i % 3], &state, 1 + draw(&state, 150), i);
}

/* --- shapes ----------------------------------------------------------------------------------- */

TK_TEST(move, all_gather_shapes, "SM-MOVE-03", .needs = COLLECTIVES, .ranks = {2, 3}) {
    struct ops_tensor input, out;
    struct places *p = places_on(t, tk_world_group(t));
    int64_t n = p->size;
    const struct {
        int32_t in_ndim, out_ndim;
        int64_t in[3], out[3];
        bool fits;
    } shapes[] = {
        {0, 1, {0}, {n}, true},
        {1, 1, {1}, {n}, true},
        {2, 2, {3, 4}, {3 * n, 4}, true},
        {3, 3, {2, 3, 5}, {2 * n, 3, 5}, true},
        {2, 2, {0, 4}, {0, 4}, true},
        {2, 2, {3, 0}, {3 * n, 0}, true},
        {0, 0, {0}, {0}, false},
        {0, 2, {0}, {n, 1}, false},
        {1, 2, {4}, {n, 4}, false},
        {1, 1, {4}, {4 * n + 1}, false},
        {1, 1, {4}, {4 * (n + 1)}, false},
        {2, 2, {3, 4}, {3, 4 * n}, false},
        {2, 1, {3, 4}, {12 * n}, false},
        {2, 2, {2, 6}, {4 * n, 3}, false},
        {2, 2, {3, 0}, {3 * n + 1, 0}, false},
    };
    for (size_t i = 0; i < LENGTH(shapes); i++) {
        area_upload(t, &p->far);
        symmem_status status = symmem_all_gather_out(
            p->handle, ops_shaped(&input, p->own.at, SYMMEM_INT16, shapes[i].in_ndim, shapes[i].in),
            ops_shaped(&out, p->far.at, SYMMEM_INT16, shapes[i].out_ndim, shapes[i].out), 0,
            shapes[i].fits ? p->limit_ms : 50, NULL);
        TK_CHECK_MSG(t, status == (shapes[i].fits ? SYMMEM_OK : SYMMEM_INVALID_ARGUMENT),
                     "shape %zu: %s", i, symmem_status_name(status));
        if (!shapes[i].fits)
            area_check(t, &p->far, "out after a refusal");
    }
    (void)ops_flat(&input, p->own.at, SYMMEM_INT16, 4);
    (void)ops_flat(&out, p->far.at, SYMMEM_UINT16, 4 * (size_t)n);
    TK_FAILS(t, INVALID_ARGUMENT,
             symmem_all_gather_out(p->handle, &input.dl, &out.dl, 0, 50, NULL));
}

/* One pulls from where the others push to. */
TK_TEST(move, all_gather_forms_differ, "SM-COLL-06", .needs = COLLECTIVES, .ranks = {2, 3}) {
    struct places *p = places_on(t, tk_world_group(t));
    for (int32_t odd = 0; odd < p->size; odd++) {
        bool pulls = p->rank == odd;
        places_upload(t, p);
        TK_FAILS(t, MISMATCH,
                 symmem_all_gather_out(
                     p->handle, FLAT(pulls ? p->own.at : p->far.at, SYMMEM_INT64, 9),
                     FLAT(pulls ? p->far.at : p->own.at, SYMMEM_INT64, 9 * (size_t)p->size), 0,
                     p->limit_ms, NULL));
        places_check(t, p, "a mismatch");
    }
    TK_OK(t, symmem_barrier(p->handle, 0, p->limit_ms, NULL));
}

/* --- broadcast -------------------------------------------------------------------------------- */

static void broadcast_once(struct tk *t, struct places *p, symmem_dtype dtype, size_t count,
                           size_t at, int32_t root, uint32_t generation) {
    size_t bytes = count * symmem_dtype_size(dtype);
    area_clear(&p->own);
    move_fill(p->own.expected + at, bytes, p->rank, generation);
    area_upload(t, &p->own);
    bool held = TK_OK(t, symmem_broadcast(p->handle, FLAT(p->own.at + at, dtype, count), root,
                                          (int32_t)generation % 3, p->limit_ms, NULL));
    move_fill(p->own.expected + at, bytes, root, generation);
    held = held && area_check(t, &p->own, "the block");
    TK_CHECK_MSG(t, held, "%zu %s at byte %zu from rank %d", count, symmem_dtype_name(dtype), at,
                 root);
}

ON_EACH_SHAPE(move, broadcast_on_every_group_shape, "SM-MOVE-04", .needs = COLLECTIVES,
              .max_ranks = 8) {
    uint64_t state = t->seed + (uint64_t)shape->count;
    struct places *p = places_on(t, group);
    for (int32_t i = 0; i < 2 * p->size; i++) {
        symmem_dtype dtype = draw(&state, SYMMEM_DTYPE_COUNT);
        broadcast_once(t, p, dtype, 1 + draw(&state, 200),
                       draw(&state, 40) * symmem_dtype_size(dtype), i % p->size, (uint32_t)i);
    }
}

TK_TEST(move, broadcast_every_count, "SM-MOVE-04,SM-COLL-07", .needs = COLLECTIVES, .max_ranks = 3,
        .timeout_s = 60) {
    uint64_t state = t->seed;
    struct places *p = places_on(t, tk_world_group(t));
    for (size_t count = 0; count <= 130; count++)
        for (int again = tk_suite_is_long() ? SYMMEM_DTYPE_COUNT : 1; again > 0; again--) {
            symmem_dtype dtype = (symmem_dtype)((count + (size_t)again) % SYMMEM_DTYPE_COUNT);
            broadcast_once(t, p, dtype, count, draw(&state, 40) * symmem_dtype_size(dtype),
                           (int32_t)draw(&state, (uint32_t)p->size), (uint32_t)count);
        }
}
