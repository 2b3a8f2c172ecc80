/* SPDX-License-Identifier: BSD-3-Clause */
/* Collectives that the core makes for peers without pointers: each form, below and above what
 * passes through memory of the rank's at a time. */
#include "ops_calls.h"
#include "reach_help.h"

#define MOST 70000
static const size_t counts[] = {1, 5, MOST};

typedef struct scene {
    struct tk *t;
    symmem_handle *handle;
    float *own, *in, *out; /* own: symmetric, room for MOST elements of each rank */
    size_t count, ranks;
} scene;

static float value(int32_t rank, size_t i) {
    return 0.1f * (float)(rank + 1) + (float)(i % 977) * 1e-3f;
}

/* In rank order, as the reference. */
static float sum(const scene *s, size_t i) {
    float all = value(0, i);
    for (int32_t r = 1; r < (int32_t)s->ranks; r++)
        all += value(r, i);
    return all;
}

static void fill(const scene *s, float *data, size_t count) {
    for (size_t i = 0; i < count; i++)
        data[i] = value(s->t->rank, i);
}

static void expect_sums(const scene *s, const char *what, const float *data, size_t first) {
    size_t i = 0;
    while (i < s->count && data[i] == sum(s, first + i))
        i++;
    TK_CHECK_MSG(s->t, i == s->count, "%s of %zu: element %zu is wrong", what, s->count, i);
}

static void expect_values(const scene *s, const char *what, const float *data, int32_t rank,
                          size_t first) {
    size_t i = 0;
    while (i < s->count && data[i] == value(rank, first + i))
        i++;
    TK_CHECK_MSG(s->t, i == s->count, "%s of %zu: element %zu of rank %d is wrong", what, s->count,
                 i, (int)rank);
}

static void meet(const scene *s) {
    TK_REQUIRE_OK(s->t, symmem_barrier(s->handle, 0, LONG_MS, NULL));
}

static struct ops_call call_of(const scene *s) {
    return (struct ops_call){.handle = s->handle,
                             .op = SYMMEM_SUM,
                             .root = s->t->last,
                             .channel = 1,
                             .limit_ms = LONG_MS};
}

static void one_shot(const scene *s) {
    struct tk *t = s->t;
    struct ops_call call = call_of(s);
    fill(s, s->own, s->count);
    call.input = FLAT(s->own, SYMMEM_FLOAT32, s->count);
    call.out = FLAT(s->out, SYMMEM_FLOAT32, s->count);
    TK_OK(t, row_one_shot_out(&call));
    expect_sums(s, "one_shot", s->out, 0);
    expect_values(s, "one_shot's input", s->own, t->rank, 0);
    fill(s, s->in, s->count);
    call.buffer = call.input;
    call.input = FLAT(s->in, SYMMEM_FLOAT32, s->count);
    TK_OK(t, row_one_shot_copy_out(&call));
    expect_sums(s, "one_shot_copy", s->out, 0);
    call.out = call.input;
    TK_OK(t, row_one_shot_copy_out(&call));
    expect_sums(s, "one_shot_copy in place", s->in, 0);
    meet(s);
}

static void two_shot(const scene *s) {
    struct tk *t = s->t;
    struct ops_call call = call_of(s);
    fill(s, s->own, s->count);
    call.input = FLAT(s->own, SYMMEM_FLOAT32, s->count);
    call.out = FLAT(s->out, SYMMEM_FLOAT32, s->count);
    TK_OK(t, row_two_shot_out(&call));
    expect_sums(s, "two_shot_out", s->out, 0);
    expect_values(s, "two_shot_out's input", s->own, t->rank, 0);
    TK_OK(t, row_two_shot(&call));
    expect_sums(s, "two_shot", s->own, 0);
    meet(s);
}

static void scatter(const scene *s) {
    struct tk *t = s->t;
    struct ops_call call = call_of(s);
    fill(s, s->own, s->count * s->ranks);
    call.input = FLAT(s->own, SYMMEM_FLOAT32, s->count * s->ranks);
    call.out = FLAT(s->out, SYMMEM_FLOAT32, s->count);
    TK_OK(t, row_reduce_scatter(&call));
    expect_sums(s, "reduce_scatter", s->out, s->count * (size_t)t->rank);
    meet(s);
}

static void gather(const scene *s) {
    struct tk *t = s->t;
    struct ops_call call = call_of(s);
    fill(s, s->own, s->count);
    call.input = FLAT(s->own, SYMMEM_FLOAT32, s->count);
    call.out = FLAT(s->out, SYMMEM_FLOAT32, s->count * s->ranks);
    TK_OK(t, row_all_gather(&call));
    for (int32_t r = 0; r < t->world_size; r++)
        expect_values(s, "all_gather", s->out + (size_t)r * s->count, r, 0);
    meet(s);
    fill(s, s->in, s->count);
    call.input = FLAT(s->in, SYMMEM_FLOAT32, s->count);
    call.out = FLAT(s->own, SYMMEM_FLOAT32, s->count * s->ranks);
    TK_OK(t, row_all_gather(&call));
    for (int32_t r = 0; r < t->world_size; r++)
        expect_values(s, "all_gather by pushing", s->own + (size_t)r * s->count, r, 0);
    meet(s);
    fill(s, s->own, s->count);
    call.input = FLAT(s->own, SYMMEM_FLOAT32, s->count);
    TK_OK(t, row_broadcast(&call));
    expect_values(s, "broadcast", s->own, t->last, 0);
    meet(s);
}

/* Rank r gives rank p r + p + 1 elements, of an input that begins elsewhere on each rank. */
static void exchange(const scene *s) {
    struct tk *t = s->t;
    struct ops_call call = call_of(s);
    size_t splits[SYMMEM_MAX_WORLD_SIZE], all = 0, at = 0;
    float *input = s->own + 3 * t->rank;
    for (size_t r = 0; r < s->ranks; r++)
        all += splits[r] = (size_t)t->rank + r + 1;
    fill(s, input, all);
    call.input = FLAT(input, SYMMEM_FLOAT32, all);
    call.out = FLAT(s->out, SYMMEM_FLOAT32, all);
    call.in_splits = call.out_splits = splits;
    TK_OK(t, row_all_to_all(&call));
    for (int32_t r = 0; r < t->world_size; r++) {
        size_t first = 0; /* of this rank's part in rank r's input */
        for (int32_t p = 0; p < t->rank; p++)
            first += (size_t)(r + p + 1);
        for (size_t i = 0; i < splits[r]; i++)
            TK_CHECK(t, s->out[at + i] == value(r, first + i));
        at += splits[r];
    }
    meet(s);
}

/* The suite's own engine has collectives, whatever the backend under test has. */
static void begin(struct tk *t) {
    char path[4096];
    const char *name = NULL;
    TK_OK(t, symmem_get_backend(t->context, &name));
    if (name != NULL || (t->capabilities & SYMMEM_CAP_COLLECTIVES_APART) != 0) {
        reach_begin(t);
        return;
    }
    suite_plugin_path(t, path, sizeof(path), "reach");
    TK_REQUIRE_OK(t, symmem_set_backend(t->context, path));
    tk_join(t, t->context);
}

static void collectives(struct tk *t) {
    begin(t);
    const size_t ranks = (size_t)t->world_size, bytes = (MOST * ranks + 16) * sizeof(float);
    scene s = {.t = t, .ranks = ranks, .in = tk_scratch(t, bytes), .out = tk_scratch(t, bytes)};
    s.own = tk_alloc(t, bytes);
    s.handle = tk_rendezvous(t, s.own, tk_world_group(t));
    TK_REQUIRE(t, (uintptr_t)s.own % sizeof(float) == 0);
    for (size_t i = 0; i < TK_COUNT(counts); i++) {
        s.count = counts[i];
        tk_checkpoint(t, "%zu elements", s.count);
        one_shot(&s);
        two_shot(&s);
        scatter(&s);
        gather(&s);
    }
    exchange(&s);
}

/* What waits for the others is told, and the handle poisoned, until a reset. */
static void one_is_missing(struct tk *t) {
    begin(t);
    float *own = tk_alloc(t, 256), out[4] = {0};
    symmem_handle *handle = tk_rendezvous(t, own, tk_world_group(t));
    if (t->rank != t->last) {
        TK_FAILS(t, TIMEOUT,
                 symmem_one_shot_all_reduce_out(handle, FLAT(own, SYMMEM_FLOAT32, 4), SYMMEM_SUM,
                                                FLAT(out, SYMMEM_FLOAT32, 4), 0,
                                                tk_limit_ms(t, 200), NULL));
        const symmem_error_record record = last_record();
        TK_CHECK(t, symmem_error_is_missing(&record, t->last));
        TK_CHECK(t, info_of(t, handle).poisoned);
    }
    tk_out_of_band_barrier(t);
    TK_OK(t, symmem_handle_reset(handle, LONG_MS));
    TK_OK(t, symmem_one_shot_all_reduce_out(handle, FLAT(own, SYMMEM_FLOAT32, 4), SYMMEM_SUM,
                                            FLAT(out, SYMMEM_FLOAT32, 4), 0, LONG_MS, NULL));
}

#define ROWS(area_, needs_, flags_)                                                                \
    TK_CASE(area_ ".collectives", collectives, "SM-REACH-08", .needs = (needs_),                   \
            .flags = (flags_), .max_ranks = 8),                                                    \
        TK_CASE(area_ ".collective_in_vain", one_is_missing, "SM-REACH-08,SM-COLL-08",             \
                .needs = (needs_), .ranks = {2, 8}, .flags = (flags_))

static const struct tk_case cases[] = {
    ROWS("reach", SYMMEM_CAP_REACH | SYMMEM_CAP_COLLECTIVES_APART, 0),
    ROWS("engine", 0, JOINED_LATER)};
TK_SUITE(reach_coll, cases);
