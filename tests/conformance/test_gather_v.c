/* SPDX-License-Identifier: BSD-3-Clause */
/* All-gathers of another number of elements from each rank. */
#include "uneven_help.h"
#include "work_after.h"

/* Where the input is. `PULL`: in the block; the others push it. */
enum way { PULL, FROM_ELSEWHERE, FROM_BEHIND, IN_PLACE, WAYS };

struct gather {
    enum way way;
    symmem_dtype dtype;
    size_t in_at, out_at; /* bytes */
    size_t more;          /* elements of the input that do not count */
    int32_t channel;
    symmem_stream *stream;
    uint32_t generation;
};

/* Between a result in the block and the end of the area. */
#define BEHIND (AREA_BYTES - 4096)

static struct area *input_area(struct places *p, const struct gather *g) {
    return g->way == FROM_ELSEWHERE ? &p->far : &p->own;
}

static size_t input_at(const struct places *p, const struct gather *g,
                       const struct counts *counts) {
    if (g->way == IN_PLACE)
        return g->out_at + counts_before(counts, p->rank) * symmem_dtype_size(g->dtype);
    return g->in_at + (g->way == FROM_BEHIND ? BEHIND : 0);
}

static void gather_load(struct tk *t, struct places *p, const struct gather *g,
                        const struct counts *counts) {
    places_clear(p);
    move_fill(input_area(p, g)->expected + input_at(p, g, counts),
              counts->all[p->rank] * symmem_dtype_size(g->dtype), p->rank, g->generation);
    places_upload(t, p);
}

static symmem_status gather_run(struct places *p, const struct gather *g,
                                const struct counts *counts, const size_t *given) {
    struct area *out = g->way == PULL ? &p->far : &p->own;
    return symmem_all_gather_v(p->handle,
                               FLAT(input_area(p, g)->at + input_at(p, g, counts), g->dtype,
                                    counts->all[p->rank] + g->more),
                               given, FLAT(out->at + g->out_at, g->dtype, counts->sum), g->channel,
                               p->limit_ms, g->stream);
}

static bool gather_expect(struct tk *t, struct places *p, const struct gather *g,
                          const struct counts *counts, const char *what) {
    const size_t width = symmem_dtype_size(g->dtype);
    uint8_t *to = (g->way == PULL ? &p->far : &p->own)->expected + g->out_at;
    for (int32_t r = 0; r < p->size; r++) {
        move_fill(to, counts->all[r] * width, r, g->generation);
        to += counts->all[r] * width;
    }
    return places_check(t, p, what);
}

static void gather_drawn_once(struct tk *t, struct places *p, uint64_t *state, bool even,
                              uint32_t generation) {
    struct counts counts;
    struct gather g = {.way = (enum way)draw(state, WAYS),
                       .dtype = draw(state, SYMMEM_DTYPE_COUNT),
                       .channel = (int32_t)(generation % 3),
                       .generation = generation};
    const size_t width = symmem_dtype_size(g.dtype);
    const uint32_t below = 1 + draw(state, 3000 / (uint32_t)p->size / (uint32_t)width);
    if (even)
        counts_even(&counts, p->size, draw(state, below));
    else
        counts_draw(&counts, p->size, state, below);
    g.in_at = draw(state, 40) * width;
    g.out_at = draw(state, 40) * width;
    if (g.way == FROM_ELSEWHERE || g.way == FROM_BEHIND) /* on each rank where it likes */
        g.in_at += (size_t)p->rank * 3 * width;
    g.more = g.way == IN_PLACE ? 0 : draw(state, 3) * (size_t)p->rank;
    gather_load(t, p, &g, &counts);
    bool held = TK_OK(t, gather_run(p, &g, &counts, counts.all));
    held = gather_expect(t, p, &g, &counts, "uneven parts") && held;
    TK_CHECK_MSG(t, held, "way %d, %zu %s from byte %zu to %zu", (int)g.way, counts.sum,
                 symmem_dtype_name(g.dtype), g.in_at, g.out_at);
}

ON_EACH_SHAPE(gather_v, on_every_group_shape, "SM-GATHERV-01,SM-GATHERV-02,SM-COLL-07",
              .needs = REACH, .max_ranks = MAX_RANKS, .timeout_s = 60) {
    uint64_t state = t->seed + (uint64_t)shape->count;
    struct places *p = places_on(t, group);
    for (uint32_t i = 0; i < (tk_suite_is_long() ? 300 : 12); i++)
        gather_drawn_once(t, p, &state, i % 6 == 5, i);
}

/* As calls are in programs, and not in the suite: those with equal counts may go another way. */
TK_TEST(gather_v, uncompared, "SM-GATHERV-01,SM-GATHERV-02", .needs = REACH,
        .max_ranks = MAX_RANKS) {
    TK_REINIT(t, options.check_collectives = 0);
    uint64_t state = t->seed;
    struct places *p = places_on(t, tk_world_group(t));
    for (uint32_t i = 0; i < 24; i++)
        gather_drawn_once(t, p, &state, i % 2 == 1, i);
}

/* One rank alone has something, or one has nothing: its tensor has no address, or one within the
 * result. */
TK_TEST(gather_v, ranks_without_elements, "SM-GATHERV-01,SM-GATHERV-02", .needs = REACH,
        .max_ranks = MAX_RANKS) {
    struct places *p = places_on(t, tk_world_group(t));
    for (int32_t i = 0; i < 2 * p->size; i++) {
        const int32_t rank = i % p->size;
        struct counts counts;
        struct gather g = {.way = i < p->size ? FROM_ELSEWHERE : PULL,
                           .dtype = SYMMEM_INT16,
                           .out_at = 2,
                           .generation = (uint32_t)i};
        counts_even(&counts, p->size, i % 2 == 0 ? 0 : 33);
        counts.all[rank] = 33 - counts.all[rank];
        counts.sum = counts_before(&counts, p->size);
        gather_load(t, p, &g, &counts);
        char *none = i % 2 == 0 ? p->own.at + 4 : NULL;
        const bool nothing = g.way != PULL && counts.all[p->rank] == 0;
        TK_OK(t, symmem_all_gather_v(
                     p->handle,
                     nothing ? FLAT(none, g.dtype, 0)
                             : FLAT(input_area(p, &g)->at, g.dtype, counts.all[p->rank]),
                     counts.all,
                     FLAT((g.way == PULL ? p->far.at : p->own.at) + 2, g.dtype, counts.sum), 0,
                     p->limit_ms, NULL));
        gather_expect(t, p, &g, &counts, "of some ranks only");
    }
}

/* --- refusals --------------------------------------------------------------------------------- */

/* With more or less than there is. */
static void wrong_counts(struct tk *t, struct places *p, const struct counts *right) {
    const DLTensor *in = FLAT(p->own.at, SYMMEM_INT32, right->all[p->rank]);
    const DLTensor *out = FLAT(p->far.at, SYMMEM_INT32, right->sum);
    size_t wrong[MAX_RANKS];
    TK_FAILS(t, INVALID_ARGUMENT, symmem_all_gather_v(p->handle, in, NULL, out, 0, 50, NULL));
    for (int32_t r = 0; r < p->size; r++)
        for (int change = -1; change <= 1; change += 2) {
            memcpy(wrong, right->all, sizeof wrong);
            wrong[r] += (size_t)change;
            TK_FAILS(t, INVALID_ARGUMENT,
                     symmem_all_gather_v(p->handle, in, wrong, out, 0, 50, NULL));
            TK_EQ_SIZE(t, right->sum, last_record().expected);
            TK_EQ_SIZE(t, right->sum + (size_t)change, last_record().actual);
            TK_CHECK(t, recorded_as("all_gather_v"));
        }
    /* They add up, but this rank has less. */
    TK_FAILS(t, INVALID_ARGUMENT,
             symmem_all_gather_v(p->handle, FLAT(p->own.at, SYMMEM_INT32, right->all[p->rank] - 1),
                                 right->all, out, 0, 50, NULL));
    TK_EQ_SIZE(t, right->all[p->rank], last_record().expected);
    /* Modulo 2^64 they add up. */
    memcpy(wrong, right->all, sizeof wrong);
    wrong[0] = SIZE_MAX;
    wrong[1] += right->all[0] + 1;
    TK_FAILS(t, OVERFLOW, symmem_all_gather_v(p->handle, in, wrong, out, 0, 50, NULL));
}

static size_t one_more(int32_t rank) {
    return 5 + (size_t)rank;
}

TK_TEST(gather_v, wrong_counts, "SM-GATHERV-03", .needs = REACH, .ranks = {2, MAX_RANKS}) {
    struct counts right;
    struct places *p = places_on(t, tk_world_group(t));
    const struct gather g = {.dtype = SYMMEM_INT32, .generation = 3};
    counts_set(&right, p->size, one_more);
    gather_load(t, p, &g, &right);
    wrong_counts(t, p, &right);
    places_check(t, p, "refused calls");
    TK_OK(t, gather_run(p, &g, &right, right.all));
    gather_expect(t, p, &g, &right, "after refusals");
}

TK_TEST(gather_v, wrong_places, "SM-GATHERV-04,SM-COLL-03,SM-COLL-04", .needs = REACH,
        .ranks = {2, MAX_RANKS}, .flags = TK_PLAIN_MEMORY) {
    struct counts counts;
    struct places *p = places_on(t, tk_world_group(t));
    const size_t block = info_of(t, p->handle).block_size;
    counts_even(&counts, p->size, 0);
    counts.all[p->size - 1] = counts.sum = 64;
    places_upload(t, p);
    const size_t own = counts.all[p->rank];
    const struct {
        char *in, *out;
        symmem_status status;
    } calls[] = {
        {p->far.at + 512, p->far.at, SYMMEM_NOT_SYMMETRIC},
        {NULL, p->far.at, SYMMEM_NOT_SYMMETRIC},
        {p->own.at + block - 63, p->far.at, SYMMEM_OUT_OF_RANGE}, /* also where nothing counts */
        {p->own.at, p->own.at + block - 63, SYMMEM_OUT_OF_RANGE},
        {p->own.at, (char *)buffers_of(t, p->handle)[(p->rank + 1) % p->size] + 63,
         SYMMEM_INVALID_ARGUMENT},
    };
    for (size_t i = 0; i < TK_COUNT(calls); i++) {
        if (calls[i].in == NULL && own > 0)
            continue;
        symmem_status status =
            symmem_all_gather_v(p->handle, FLAT(calls[i].in, SYMMEM_UINT8, own), counts.all,
                                FLAT(calls[i].out, SYMMEM_UINT8, counts.sum), 0, 50, NULL);
        TK_CHECK_MSG(t, status == calls[i].status && recorded_as("all_gather_v"), "call %zu: %s", i,
                     symmem_status_name(status));
    }
    if (own > 0) /* the input on this rank's own result, but not at its part */
        TK_FAILS(t, INVALID_ARGUMENT,
                 symmem_all_gather_v(p->handle, FLAT(p->own.at + 1, SYMMEM_UINT8, own), counts.all,
                                     FLAT(p->own.at, SYMMEM_UINT8, counts.sum), 0, 50, NULL));
    places_check(t, p, "refused calls");
    tk_out_of_band_barrier(t);
    counts.all[p->size - 1] = counts.sum = 0; /* nothing lies nowhere */
    TK_OK(t, symmem_all_gather_v(p->handle, FLAT(NULL, SYMMEM_UINT8, 0), counts.all,
                                 FLAT(NULL, SYMMEM_UINT8, 0), 0, p->limit_ms, NULL));
}

/* --- agreement -------------------------------------------------------------------------------- */

enum oddity { ODD_COUNTS, ODD_DTYPE, ODD_PLACE, ODD_FORM, ODDITIES };

static symmem_status odd_gather(struct places *p, const struct counts *usual, enum oddity oddity) {
    struct counts counts = *usual;
    struct gather g = {.dtype = SYMMEM_INT32};
    if (oddity == ODD_COUNTS) { /* the same sum, and the same for this rank */
        counts.all[(p->rank + 1) % p->size] += 2;
        counts.all[p->size > 2 ? (p->rank + 2) % p->size : p->rank] -= 2;
    }
    g.dtype = oddity == ODD_DTYPE ? SYMMEM_FLOAT32 : g.dtype;
    g.in_at = oddity == ODD_PLACE ? 64 : 0;
    g.way = oddity == ODD_FORM ? FROM_ELSEWHERE : PULL;
    return gather_run(p, &g, &counts, counts.all);
}

TK_TEST(gather_v, ranks_differ, "SM-GATHERV-05,SM-COLL-06",
        .needs = REACH | SYMMEM_CAP_COLLECTIVES, /* others need not compare calls */
        .ranks = {2, MAX_RANKS}) {
    struct counts counts;
    struct places *p = places_on(t, tk_world_group(t));
    const struct gather usual = {.dtype = SYMMEM_INT32, .generation = 9};
    counts_set(&counts, p->size, one_more);
    for (int i = 0; i < ODDITIES * p->size; i++) {
        const int32_t odd = i / ODDITIES;
        gather_load(t, p, &usual, &counts);
        TK_FAILS(t, MISMATCH,
                 p->rank == odd ? odd_gather(p, &counts, (enum oddity)(i % ODDITIES))
                                : gather_run(p, &usual, &counts, counts.all));
        TK_CHECK(t, recorded_as("all_gather_v"));
        TK_EQ_INT(t, p->rank != odd ? odd : odd == 0 ? 1 : 0, last_record().failed_rank);
        TK_CHECK(t, !info_of(t, p->handle).poisoned);
        places_check(t, p, "calls that differ");
        TK_OK(t, gather_run(p, &usual, &counts, counts.all));
        gather_expect(t, p, &usual, &counts, "at once");
        tk_out_of_band_barrier(t); /* inputs change again */
    }
}

/* --- the array's life ------------------------------------------------------------------------- */

/* Enqueued behind a gate, and captured: the array is gone when the operation runs. */
TK_TEST(gather_v, counts_of_the_call_only, "SM-GATHERV-06,SM-COLL-09",
        .needs = REACH | SYMMEM_CAP_CAPTURE | SYMMEM_CAP_HOST_FN, .max_ranks = MAX_RANKS) {
    struct counts counts;
    struct gate gate = {0};
    size_t given[MAX_RANKS];
    struct places *p = places_on(t, tk_world_group(t));
    struct gather g = {.dtype = SYMMEM_FLOAT64, .in_at = 16, .out_at = 32, .stream = tk_stream(t)};
    counts_set(&counts, p->size, one_more);
    gather_load(t, p, &g, &counts);
    memcpy(given, counts.all, sizeof given);
    TK_OK(t, symmem_stream_host_fn(g.stream, gate_fn, &gate));
    TK_OK(t, gather_run(p, &g, &counts, given));
    memset(given, 0x11, sizeof given);
    gate_open(&gate);
    tk_synchronize(t, g.stream);
    gather_expect(t, p, &g, &counts, "on a stream");

    memcpy(given, counts.all, sizeof given);
    TK_REQUIRE_OK(t, symmem_stream_begin_capture(g.stream));
    TK_OK(t, gather_run(p, &g, &counts, given));
    symmem_graph *graph = tk_end_capture(t, g.stream);
    memset(given, 0x11, sizeof given);
    for (g.generation = 2; g.generation < 5; g.generation++) {
        gather_load(t, p, &g, &counts);
        run_graph(t, graph, g.stream);
        gather_expect(t, p, &g, &counts, "in a graph");
    }
}
