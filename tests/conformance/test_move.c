/* SPDX-License-Identifier: BSD-3-Clause */
/* All-gather and broadcast: every byte in its place, and no other. */
#include "move_help.h"

enum form { PULL, PUSH, IN_PLACE, FORM_COUNT };

/* One rank's memory: in the handle's block, and elsewhere. */
struct places {
    symmem_handle *handle;
    int32_t rank, size;
    uint32_t limit_ms;
    struct area own, far;
};

static struct places *places_init(struct tk *t, symmem_group *group) {
    struct places *p = tk_scratch(t, sizeof *p);
    p->handle = tk_handle(t, AREA_BYTES, group);
    symmem_handle_info info = info_of(t, p->handle);
    p->rank = info.rank;
    p->size = info.world_size;
    p->limit_ms = LONG_MS;
    area_init(&p->own, ops_own(t, p->handle), AREA_BYTES);
    area_init(&p->far, tk_alloc(t, AREA_BYTES), AREA_BYTES);
    area_clear(&p->own);
    area_clear(&p->far);
    return p;
}

/* What is gathered, and from and to which bytes of the areas. */
struct gather {
    enum form form;
    symmem_dtype dtype;
    size_t count, in_at, out_at;
    uint32_t generation;
};

static const char *const form_names[FORM_COUNT] = {"pull", "push", "in place"};

/* --- all-gather ------------------------------------------------------------------------------- */

static void gather_once(struct tk *t, struct places *p, const struct gather *g) {
    size_t bytes = g->count * symmem_dtype_size(g->dtype);
    struct area *in = g->form == PULL ? &p->own : &p->far;
    struct area *out = g->form == PULL ? &p->far : &p->own;
    size_t in_at = g->in_at;
    if (g->form == IN_PLACE) {
        in = out;
        in_at = g->out_at + (size_t)p->rank * bytes;
    }
    area_clear(&p->own);
    area_clear(&p->far);
    move_fill(in->expected + in_at, bytes, p->rank, g->generation);
    area_upload(t, &p->own);
    area_upload(t, &p->far);
    bool held = TK_OK(
        t, symmem_all_gather_out(p->handle, FLAT(in->at + in_at, g->dtype, g->count),
                                 FLAT(out->at + g->out_at, g->dtype, g->count * (size_t)p->size),
                                 (int32_t)g->generation % 3, p->limit_ms, NULL));
    for (int32_t r = 0; r < p->size; r++)
        move_fill(out->expected + g->out_at + (size_t)r * bytes, bytes, r, g->generation);
    held = held && area_check(t, &p->own, "the block") && area_check(t, &p->far, "other memory");
    TK_CHECK_MSG(t, held, "%s of %zu %s from byte %zu to %zu", form_names[g->form], g->count,
                 symmem_dtype_name(g->dtype), in_at, g->out_at);
}

/* A form, dtype and places that fit the areas, drawn from *state. */
static struct gather draw_gather(uint64_t *state, int32_t size, size_t count, uint32_t generation) {
    struct gather g = {.form = draw(state, FORM_COUNT),
                       .dtype = draw(state, SYMMEM_DTYPE_COUNT),
                       .count = count,
                       .generation = generation};
    size_t width = symmem_dtype_size(g.dtype);
    if (count * width * (size_t)size + 64 * width > AREA_BYTES) {
        g.dtype = SYMMEM_UINT8;
        width = 1;
    }
    g.in_at = draw(state, 40) * width;
    g.out_at = draw(state, 40) * width;
    return g;
}

/* 0 to 130 and primes; everything with the long suite, else a dtype and form for each count. */
TK_TEST(move, all_gather_every_count, "SM-MOVE-01,SM-MOVE-02,SM-COLL-07", .needs = COLLECTIVES,
        .max_ranks = 3, .timeout_s = 60) {
    static const size_t primes[] = {139, 251, 509, 997, 1009};
    uint64_t state = t->seed;
    uint32_t generation = 0;
    TK_REQ(t, "SM-MOVE-01");
    struct places *p = places_init(t, tk_world_group(t));
    for (size_t i = 0; i < 131 + sizeof(primes) / sizeof(primes[0]); i++) {
        size_t count = i <= 130 ? i : primes[i - 131];
        for (int again = tk_suite_is_long() ? 2 * SYMMEM_DTYPE_COUNT * FORM_COUNT : 1; again > 0;
             again--) {
            struct gather g = draw_gather(&state, p->size, count, generation++);
            gather_once(t, p, &g);
        }
    }
}

static void all_gather_on_shape(struct tk *t, symmem_group *group, const struct tk_shape *shape,
                                void *arg) {
    uint64_t state = t->seed + (uint64_t)shape->count;
    (void)arg;
    struct places *p = places_init(t, group);
    for (uint32_t i = 0; i < 2 * FORM_COUNT; i++) {
        struct gather g = draw_gather(&state, p->size, 1 + draw(&state, 150), i);
        g.form = i % FORM_COUNT;
        gather_once(t, p, &g);
    }
}

TK_TEST(move, all_gather_on_every_group_shape, "SM-MOVE-01,SM-MOVE-02", .needs = COLLECTIVES,
        .max_ranks = 8) {
    tk_for_each_group_shape(t, all_gather_on_shape, NULL);
}

/* Large ones, in and past the caches. */
TK_TEST(move, all_gather_large, "SM-MOVE-01", .needs = COLLECTIVES, .max_ranks = 2) {
    static const size_t counts[] = {100003, (1u << 20) - 1, (1u << 20) + 1};
    int last = tk_suite_is_long() ? 3 : 1;
    size_t most = counts[last - 1] * 4;
    symmem_handle *handle = tk_handle(t, most, tk_world_group(t));
    char *own = ops_own(t, handle), *far = tk_alloc(t, most * (size_t)t->world_size);
    uint8_t *host = tk_scratch(t, 2 * most);
    for (int i = 0; i < last; i++) {
        size_t bytes = counts[i] * 4;
        move_fill(host, bytes, t->rank, (uint32_t)i);
        ops_upload(t, own, host, bytes);
        TK_OK(t, symmem_all_gather_out(handle, FLAT(own, SYMMEM_FLOAT32, counts[i]),
                                       FLAT(far, SYMMEM_FLOAT32, counts[i] * (size_t)t->world_size),
                                       0, LONG_MS, NULL));
        for (int32_t r = 0; r < t->world_size; r++) {
            move_fill(host, bytes, r, (uint32_t)i);
            ops_download(t, host + most, far + (size_t)r * bytes, bytes);
            ops_expect(t, host, host + most, SYMMEM_UINT8, bytes, "a large chunk");
        }
    }
}

/* --- shapes ----------------------------------------------------------------------------------- */

TK_TEST(move, all_gather_shapes, "SM-MOVE-03", .needs = COLLECTIVES, .ranks = {2, 3}) {
    struct ops_tensor input, out;
    struct places *p = places_init(t, tk_world_group(t));
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
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
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

/* --- wrong places ----------------------------------------------------------------------------- */

TK_TEST(move, all_gather_places, "SM-MOVE-03,SM-COLL-03,SM-COLL-04", .needs = COLLECTIVES,
        .max_ranks = 2, .flags = TK_PLAIN_MEMORY) {
    enum { BYTES = 64 };
    struct ops_tensor input, out;
    struct places *p = places_init(t, tk_world_group(t));
    area_upload(t, &p->own);
    area_upload(t, &p->far);
    symmem_handle_info info = info_of(t, p->handle);
    size_t all = BYTES * (size_t)p->size;
    char *end = p->own.at + info.block_size; /* the handle's place is the block's begin */
    void *const *buffers = NULL;
    TK_REQUIRE_OK(t, symmem_handle_buffer_ptrs(p->handle, &buffers));
    char *peer = (char *)buffers[(p->rank + 1) % p->size];
    const struct {
        const char *what;
        char *in, *out;
        symmem_status status;
    } calls[] = {
        {"neither symmetric", p->far.at, p->far.at + BYTES, SYMMEM_NOT_SYMMETRIC},
        {"input past the end", end - BYTES / 2, p->far.at, SYMMEM_OUT_OF_RANGE},
        {"out past the end", p->far.at, end - all / 2, SYMMEM_OUT_OF_RANGE},
        {"out on the input", p->own.at, p->own.at, SYMMEM_INVALID_ARGUMENT},
        {"out into the input", p->own.at + all - 1, p->own.at, SYMMEM_INVALID_ARGUMENT},
        {"out on a peer's input", p->own.at, peer, SYMMEM_INVALID_ARGUMENT},
        {"pushed from a peer's out", peer + 1, p->own.at, SYMMEM_INVALID_ARGUMENT},
    };
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        /* Rank 0's chunk begins where out does; a group of one has no peer. */
        if (calls[i].in == calls[i].out + (size_t)p->rank * BYTES || (p->size == 1 && i >= 5))
            continue;
        symmem_status status =
            symmem_all_gather_out(p->handle, ops_flat(&input, calls[i].in, SYMMEM_UINT8, BYTES),
                                  ops_flat(&out, calls[i].out, SYMMEM_UINT8, all), 0, 50, NULL);
        TK_CHECK_MSG(t, status == calls[i].status, "%s: %s", calls[i].what,
                     symmem_status_name(status));
        TK_EQ_STR(t, "all_gather_out", last_record().operation);
    }
    area_check(t, &p->own, "the block");
    area_check(t, &p->far, "other memory");
}

/* One pulls from where the others push to. */
TK_TEST(move, all_gather_forms_differ, "SM-COLL-06", .needs = COLLECTIVES, .ranks = {2, 3}) {
    struct places *p = places_init(t, tk_world_group(t));
    for (int32_t odd = 0; odd < p->size; odd++) {
        bool pulls = p->rank == odd;
        area_upload(t, &p->own);
        area_upload(t, &p->far);
        TK_FAILS(t, MISMATCH,
                 symmem_all_gather_out(
                     p->handle, FLAT(pulls ? p->own.at : p->far.at, SYMMEM_INT64, 9),
                     FLAT(pulls ? p->far.at : p->own.at, SYMMEM_INT64, 9 * (size_t)p->size), 0,
                     p->limit_ms, NULL));
        area_check(t, &p->own, "the block after a mismatch");
        area_check(t, &p->far, "other memory after a mismatch");
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

static void broadcast_on_shape(struct tk *t, symmem_group *group, const struct tk_shape *shape,
                               void *arg) {
    uint64_t state = t->seed + (uint64_t)shape->count;
    (void)arg;
    struct places *p = places_init(t, group);
    for (int32_t i = 0; i < 2 * p->size; i++) {
        symmem_dtype dtype = draw(&state, SYMMEM_DTYPE_COUNT);
        broadcast_once(t, p, dtype, 1 + draw(&state, 200),
                       draw(&state, 40) * symmem_dtype_size(dtype), i % p->size, (uint32_t)i);
    }
}

TK_TEST(move, broadcast_on_every_group_shape, "SM-MOVE-04", .needs = COLLECTIVES, .max_ranks = 8) {
    tk_for_each_group_shape(t, broadcast_on_shape, NULL);
}

TK_TEST(move, broadcast_every_count, "SM-MOVE-04,SM-COLL-07", .needs = COLLECTIVES, .max_ranks = 3,
        .timeout_s = 60) {
    uint64_t state = t->seed;
    struct places *p = places_init(t, tk_world_group(t));
    for (size_t count = 0; count <= 130; count++)
        for (int again = tk_suite_is_long() ? SYMMEM_DTYPE_COUNT : 1; again > 0; again--) {
            symmem_dtype dtype = (symmem_dtype)((count + (size_t)again) % SYMMEM_DTYPE_COUNT);
            broadcast_once(t, p, dtype, count, draw(&state, 40) * symmem_dtype_size(dtype),
                           (int32_t)draw(&state, (uint32_t)p->size), (uint32_t)count);
        }
}

TK_TEST(move, broadcast_refusals, "SM-MOVE-04,SM-COLL-03,SM-COLL-06", .needs = COLLECTIVES,
        .max_ranks = 3, .flags = TK_PLAIN_MEMORY) {
    struct ops_tensor tensor;
    struct places *p = places_init(t, tk_world_group(t));
    area_upload(t, &p->own);
    size_t block = info_of(t, p->handle).block_size;
    (void)ops_flat(&tensor, p->own.at, SYMMEM_INT32, 16);
    const int32_t strange[] = {-1, p->size, INT32_MIN, INT32_MAX};
    for (int i = 0; i < 4; i++)
        TK_FAILS(t, OUT_OF_RANGE, symmem_broadcast(p->handle, &tensor.dl, strange[i], 0, 50, NULL));
    TK_FAILS(t, INVALID_ARGUMENT, symmem_broadcast(p->handle, NULL, 0, 0, 50, NULL));
    (void)ops_flat(&tensor, p->far.at, SYMMEM_INT32, 16);
    TK_FAILS(t, NOT_SYMMETRIC, symmem_broadcast(p->handle, &tensor.dl, 0, 0, 50, NULL));
    (void)ops_flat(&tensor, p->own.at + block - 32, SYMMEM_INT32, 16);
    TK_FAILS(t, OUT_OF_RANGE, symmem_broadcast(p->handle, &tensor.dl, 0, 0, 50, NULL));
    TK_EQ_STR(t, "broadcast", last_record().operation);
    area_check(t, &p->own, "the block");
    if (p->size > 1) { /* another root than the others' */
        (void)ops_flat(&tensor, p->own.at, SYMMEM_INT32, 16);
        TK_FAILS(t, MISMATCH,
                 symmem_broadcast(p->handle, &tensor.dl, p->rank == 0, 0, p->limit_ms, NULL));
        area_check(t, &p->own, "the block after a mismatch");
        TK_OK(t, symmem_broadcast(p->handle, &tensor.dl, 0, 0, p->limit_ms, NULL));
    }
}
