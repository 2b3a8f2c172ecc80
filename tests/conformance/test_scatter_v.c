/* SPDX-License-Identifier: BSD-3-Clause */
/* Reduce-scatters of another number of elements to each rank: parts of what the scalar reference
 * makes of all inputs. */
#include "../strange_floats.h"
#include "backend_table.h"
#include "reduce_help.h"
#include "uneven_help.h"

#define TILES (COLLECTIVES | SYMMEM_CAP_TILES)
#define ROOM ((size_t)1 << 14)

struct scatter {
    symmem_dtype dtype;
    symmem_reduce_op op;
    size_t at; /* elements */
};

static symmem_status scatter_run(const struct reduce_desk *desk, const struct scatter *s,
                                 const struct counts *counts, const size_t *given) {
    const size_t offset = REDUCE_MARGIN + s->at * symmem_dtype_size(s->dtype);
    return symmem_reduce_scatter_v(desk->handle, FLAT(desk->own + offset, s->dtype, counts->sum),
                                   s->op, given,
                                   FLAT(desk->out + offset, s->dtype, counts->all[desk->rank]),
                                   desk->channel, desk->limit_ms, desk->stream);
}

/* What this rank's out must have. */
static const char *part_of(const struct reduce_desk *desk, const struct counts *counts,
                           const struct reduce_data *data) {
    return data->expected + counts_before(counts, desk->rank) * symmem_dtype_size(data->dtype);
}

static void scatter_lay(struct tk *t, struct reduce_desk *desk, const struct scatter *s,
                        const struct counts *counts, struct reduce_data *data) {
    const size_t element = symmem_dtype_size(s->dtype);
    const size_t offset = REDUCE_MARGIN + s->at * element;
    reduce_data_begin(t, data, s->dtype, s->op, counts->sum, desk->size, desk->generation++);
    TK_REQUIRE(t, offset + data->bytes + REDUCE_MARGIN <= desk->room);
    reduce_lay(t, desk->own + offset, data->inputs + (size_t)desk->rank * data->bytes, data->bytes);
    reduce_lay(t, desk->out + offset, NULL, counts->all[desk->rank] * element);
}

static void scatter_expect(struct tk *t, const struct reduce_desk *desk, const struct scatter *s,
                           const struct counts *counts, const struct reduce_data *data) {
    const size_t offset = REDUCE_MARGIN + s->at * symmem_dtype_size(s->dtype);
    reduce_expect_laid(t, desk->out + offset, part_of(desk, counts, data), s->dtype,
                       counts->all[desk->rank], "the part");
    reduce_expect_laid(t, desk->own + offset, data->inputs + (size_t)desk->rank * data->bytes,
                       s->dtype, data->count, "the input");
}

static void scatter_check(struct tk *t, struct reduce_desk *desk, const struct scatter *s,
                          const struct counts *counts) {
    struct reduce_data data;
    tk_checkpoint(t, "%zu of dtype %d, op %d, at %zu", counts->sum, (int)s->dtype, (int)s->op,
                  s->at);
    scatter_lay(t, desk, s, counts, &data);
    if (TK_OK(t, scatter_run(desk, s, counts, counts->all))) {
        if (desk->stream != NULL)
            tk_synchronize(t, desk->stream);
        scatter_expect(t, desk, s, counts, &data);
    }
    reduce_data_end(&data);
}

/* --- what it computes ------------------------------------------------------------------------- */

static void each_pair(struct tk *t, struct reduce_desk *desk, uint64_t seed) {
    for (int i = 0; i < reduce_pair_count(); i++) {
        struct scatter s = {.at = (size_t)draw(&seed, 8)};
        struct counts counts;
        reduce_pair(i, &s.dtype, &s.op);
        if (i % 5 == 4)
            counts_even(&counts, desk->size, draw(&seed, 60));
        else
            counts_draw(&counts, desk->size, &seed, 1 + draw(&seed, 120));
        scatter_check(t, desk, &s, &counts);
    }
}

ON_EACH_SHAPE(scatter_v, on_every_group_shape, "SM-SCATTERV-01,SM-COLL-01,SM-COLL-07",
              .needs = TILES, .max_ranks = MAX_RANKS, .timeout_s = 60) {
    struct reduce_desk desk = reduce_desk_begin(t, group, ROOM);
    each_pair(t, &desk, t->seed + (uint64_t)shape->count);
}

TK_TEST(scatter_v, on_streams, "SM-SCATTERV-01", .needs = TILES | SYMMEM_CAP_STREAMS,
        .max_ranks = MAX_RANKS) {
    struct reduce_desk desk = reduce_desk_begin(t, tk_world_group(t), ROOM);
    desk.stream = tk_stream(t);
    desk.channel = info_of(t, desk.handle).channel_count - 1;
    each_pair(t, &desk, t->seed);
}

/* As calls are in programs, and not in the suite: those with equal counts may go another way. */
TK_TEST(scatter_v, uncompared, "SM-SCATTERV-01", .needs = TILES, .max_ranks = MAX_RANKS) {
    TK_REINIT(t, options.check_collectives = 0);
    struct reduce_desk desk = reduce_desk_begin(t, tk_world_group(t), ROOM);
    each_pair(t, &desk, t->seed);
}

/* One rank has all, or all but one have something, up to sizes that a backend may treat in another
 * way. */
TK_TEST(scatter_v, ranks_without_elements, "SM-SCATTERV-01", .needs = TILES,
        .max_ranks = MAX_RANKS) {
    struct reduce_desk desk = reduce_desk_begin(t, tk_world_group(t), (size_t)1 << 20);
    for (int32_t i = 0; i < 2 * desk.size; i++) {
        const struct scatter s = {.dtype = SYMMEM_BFLOAT16, .op = SYMMEM_AVG, .at = (size_t)i};
        const size_t many = i % 2 == 0 ? 100003 : 2049;
        struct counts counts;
        counts_even(&counts, desk.size, i < desk.size ? 0 : many / (size_t)desk.size);
        counts.all[i % desk.size] = i < desk.size ? many : 0;
        counts.sum = counts_before(&counts, desk.size);
        scatter_check(t, &desk, &s, &counts);
    }
}

/* In a rank that rounds in another way, and traps. */
TK_TEST(scatter_v, float_environment, "SM-SCATTERV-01,SM-COLL-11", .needs = TILES,
        .ranks = {2, MAX_RANKS}) {
    struct counts counts;
    struct reduce_data data;
    struct reduce_desk desk = reduce_desk_begin(t, tk_world_group(t), ROOM);
    const bool strange = t->rank == (int32_t)(t->seed % (uint64_t)t->world_size);
    for (int i = 0; i < 8; i++) {
        const struct scatter s = {.dtype = (symmem_dtype)(SYMMEM_FLOAT16 + i % 4),
                                  .op = i < 4 ? SYMMEM_SUM : SYMMEM_AVG};
        counts_even(&counts, desk.size, 90);
        counts.all[0] += 7;
        counts.sum += 7;
        scatter_lay(t, &desk, &s, &counts, &data);
        const uint32_t usual = strange ? strange_floats(STRANGE_TRAPS) : 0;
        const symmem_status status = scatter_run(&desk, &s, &counts, counts.all);
        TK_CHECK_MSG(t, !strange || usual_floats(STRANGE_TRAPS, usual),
                     "the environment was changed");
        if (TK_OK(t, status))
            scatter_expect(t, &desk, &s, &counts, &data);
        reduce_data_end(&data);
    }
}

/* --- refusals --------------------------------------------------------------------------------- */

static size_t one_more(int32_t rank) {
    return 5 + (size_t)rank;
}

static void wrong_sums(struct tk *t, const struct reduce_desk *desk, const struct scatter *s,
                       const struct counts *right) {
    size_t wrong[MAX_RANKS];
    for (int32_t r = 0; r < desk->size; r++)
        for (int change = -1; change <= 1; change += 2) {
            memcpy(wrong, right->all, sizeof wrong);
            wrong[r] += (size_t)change;
            TK_FAILS(t, INVALID_ARGUMENT, scatter_run(desk, s, right, wrong));
            TK_EQ_SIZE(t, right->sum, last_record().expected);
            TK_EQ_SIZE(t, right->sum + (size_t)change, last_record().actual);
            TK_CHECK(t, recorded_as("reduce_scatter_v"));
        }
    memcpy(wrong, right->all, sizeof wrong); /* modulo 2^64 they add up */
    wrong[0] = SIZE_MAX;
    wrong[1] += right->all[0] + 1;
    TK_FAILS(t, OVERFLOW, scatter_run(desk, s, right, wrong));
    TK_FAILS(t, INVALID_ARGUMENT, scatter_run(desk, s, right, NULL));
}

TK_TEST(scatter_v, wrong_counts, "SM-SCATTERV-02", .needs = TILES, .ranks = {2, MAX_RANKS}) {
    const struct scatter s = {.dtype = SYMMEM_INT32, .op = SYMMEM_SUM};
    struct counts right, other;
    struct reduce_data data;
    struct reduce_desk desk = reduce_desk_begin(t, tk_world_group(t), 1024);
    counts_set(&right, desk.size, one_more);
    scatter_lay(t, &desk, &s, &right, &data);
    const uint32_t limit_ms = desk.limit_ms;
    desk.limit_ms = 50;
    wrong_sums(t, &desk, &s, &right);
    /* They add up, but out has more, or less. */
    for (int change = -1; change <= 1; change += 2) {
        other = right;
        other.all[desk.rank] += (size_t)change;
        TK_FAILS(t, INVALID_ARGUMENT, scatter_run(&desk, &s, &other, right.all));
        TK_EQ_SIZE(t, right.all[desk.rank], last_record().expected);
        TK_EQ_SIZE(t, other.all[desk.rank], last_record().actual);
    }
    desk.limit_ms = limit_ms;
    reduce_expect_laid(t, desk.out + REDUCE_MARGIN, NULL, SYMMEM_UINT8, right.all[desk.rank] * 4,
                       "out after refusals");
    TK_OK(t, scatter_run(&desk, &s, &right, right.all));
    scatter_expect(t, &desk, &s, &right, &data);
    reduce_data_end(&data);
}

TK_TEST(scatter_v, refused_without_the_capability, "SM-SCATTERV-05,SM-BACKEND-09",
        .needs = COLLECTIVES, .max_ranks = 2) {
    const struct scatter s = {.dtype = SYMMEM_INT32, .op = SYMMEM_SUM};
    struct counts counts;
    backend_without(t, SYMMEM_CAP_TILES);
    struct reduce_desk desk = reduce_desk_begin(t, tk_world_group(t), 1024);
    for (size_t each = 0; each < 3; each++) {
        counts_even(&counts, desk.size, each);
        reduce_lay(t, desk.out + REDUCE_MARGIN, NULL, 64);
        TK_FAILS(t, UNSUPPORTED, scatter_run(&desk, &s, &counts, counts.all));
        reduce_expect_laid(t, desk.out + REDUCE_MARGIN, NULL, SYMMEM_UINT8, 64, "out");
    }
}

/* --- agreement -------------------------------------------------------------------------------- */

enum oddity { ODD_COUNTS, ODD_DTYPE, ODD_OP, ODD_PLACE, ODDITIES };

static symmem_status odd_scatter(const struct reduce_desk *desk, const struct scatter *usual,
                                 const struct counts *right, enum oddity oddity) {
    struct counts counts = *right;
    struct scatter s = *usual;
    if (oddity == ODD_COUNTS) { /* the same sum, and on more than two ranks the same part */
        counts.all[(desk->rank + 1) % desk->size] += 2;
        counts.all[desk->size > 2 ? (desk->rank + 2) % desk->size : desk->rank] -= 2;
    }
    s.dtype = oddity == ODD_DTYPE ? SYMMEM_FLOAT32 : s.dtype;
    s.op = oddity == ODD_OP ? SYMMEM_MAX : s.op;
    s.at = oddity == ODD_PLACE ? 1 : s.at;
    return scatter_run(desk, &s, &counts, counts.all);
}

TK_TEST(scatter_v, ranks_differ, "SM-SCATTERV-03,SM-COLL-06", .needs = TILES,
        .ranks = {2, MAX_RANKS}) {
    const struct scatter usual = {.dtype = SYMMEM_INT32, .op = SYMMEM_SUM};
    struct counts counts;
    struct reduce_desk desk = reduce_desk_begin(t, tk_world_group(t), 1024);
    counts_set(&counts, desk.size, one_more);
    for (int i = 0; i < ODDITIES * desk.size; i++) {
        struct reduce_data data;
        const int32_t odd = i / ODDITIES;
        scatter_lay(t, &desk, &usual, &counts, &data);
        TK_FAILS(t, MISMATCH,
                 desk.rank == odd ? odd_scatter(&desk, &usual, &counts, (enum oddity)(i % ODDITIES))
                                  : scatter_run(&desk, &usual, &counts, counts.all));
        TK_CHECK(t, recorded_as("reduce_scatter_v"));
        TK_EQ_INT(t, desk.rank != odd ? odd : odd == 0 ? 1 : 0, last_record().failed_rank);
        TK_CHECK(t, !info_of(t, desk.handle).poisoned);
        reduce_expect_laid(t, desk.out + REDUCE_MARGIN, NULL, SYMMEM_UINT8,
                           counts.all[desk.rank] * 4, "out after a mismatch");
        TK_OK(t, scatter_run(&desk, &usual, &counts, counts.all));
        scatter_expect(t, &desk, &usual, &counts, &data);
        reduce_data_end(&data);
        tk_out_of_band_barrier(t); /* inputs change again */
    }
}

/* --- the array's life ------------------------------------------------------------------------- */

/* Enqueued behind a gate, and captured: the array is gone when the operation runs. */
TK_TEST(scatter_v, counts_of_the_call_only, "SM-SCATTERV-04,SM-COLL-09",
        .needs = TILES | SYMMEM_CAP_CAPTURE | SYMMEM_CAP_HOST_FN, .max_ranks = MAX_RANKS) {
    const struct scatter s = {.dtype = SYMMEM_FLOAT16, .op = SYMMEM_SUM, .at = 3};
    struct counts counts;
    struct reduce_data data;
    struct gate gate = {0};
    size_t given[MAX_RANKS];
    struct reduce_desk desk = reduce_desk_begin(t, tk_world_group(t), 1024);
    desk.stream = tk_stream(t);
    counts_set(&counts, desk.size, one_more);
    scatter_lay(t, &desk, &s, &counts, &data);
    memcpy(given, counts.all, sizeof given);
    TK_OK(t, symmem_stream_host_fn(desk.stream, gate_fn, &gate));
    TK_OK(t, scatter_run(&desk, &s, &counts, given));
    memset(given, 0x11, sizeof given);
    gate_open(&gate);
    tk_synchronize(t, desk.stream);
    scatter_expect(t, &desk, &s, &counts, &data);
    reduce_data_end(&data);

    memcpy(given, counts.all, sizeof given);
    TK_REQUIRE_OK(t, symmem_stream_begin_capture(desk.stream));
    TK_OK(t, scatter_run(&desk, &s, &counts, given));
    symmem_graph *graph = tk_end_capture(t, desk.stream);
    memset(given, 0x11, sizeof given);
    for (int launch = 0; launch < 3; launch++) {
        scatter_lay(t, &desk, &s, &counts, &data);
        run_graph(t, graph, desk.stream);
        scatter_expect(t, &desk, &s, &counts, &data);
        reduce_data_end(&data);
    }
}
