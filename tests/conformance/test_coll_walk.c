/* SPDX-License-Identifier: BSD-3-Clause */
/* Every collective under what goes wrong: one rank that calls another thing, or fails half-way. */
#include "ops_table_help.h"

enum { ROOM = 1 << 14 };

struct call {
    int kind; /* of the bench's rows */
    symmem_dtype dtype;
    symmem_reduce_op op;
    size_t count; /* elements of an input, divisible by 2 * world_size */
    size_t at;    /* bytes behind the handle's place */
    int32_t root;
};

/* On one group: a symmetric input, then as much room for a result, and both elsewhere too. */
struct bench {
    const struct ops_row *rows[OPS_ROWS + 1]; /* NULL: a barrier */
    int kinds;
    symmem_handle *handle;
    char *own, *far;
    int32_t rank, size, channel;
    symmem_stream *stream; /* NULL: none */
    uint32_t limit_ms;
};

/* Without products, what makes its output, and a form that ranks may mix with another one. */
static bool is_walked(const struct tk *t, const struct ops_row *row, bool multicast) {
    return ((t->capabilities & SYMMEM_CAP_TILES) != 0 || (row->traits & ROW_TILES) == 0) &&
           (row->traits & ROW_FUSED) == 0 && row->out != NEW && row->input != OWN_CHUNK &&
           (multicast || (row->traits & ROW_MULTIMEM) == 0);
}

static struct bench bench_on(struct tk *t, symmem_handle *handle) {
    struct bench b = {.handle = handle, .far = tk_alloc(t, (size_t)2 * ROOM), .limit_ms = LONG_MS};
    symmem_handle_info info = info_of(t, b.handle);
    b.own = ops_own(t, b.handle);
    b.rank = info.rank;
    b.size = info.world_size;
    for (int i = 0; i < OPS_ROWS; i++)
        if (is_walked(t, &ops_rows[i], info.multicast_ptr != NULL))
            b.rows[b.kinds++] = &ops_rows[i];
    b.rows[b.kinds++] = NULL;
    return b;
}

static struct bench bench_begin(struct tk *t) {
    return bench_on(t, tk_handle(t, (size_t)2 * ROOM, tk_world_group(t)));
}

static bool has(const struct ops_row *row, unsigned traits) {
    return row != NULL && (row->traits & traits) == traits;
}

static bool scatters(const struct ops_row *row) {
    return has(row, ROW_IN_WHOLE) && !has(row, ROW_SPLITS);
}

static bool gathers(const struct ops_row *row) {
    return has(row, ROW_OUT_WHOLE) && !has(row, ROW_SPLITS);
}

static char *input_of(const struct bench *b, const struct call *c) {
    return b->rows[c->kind]->input == FAR ? b->far : b->own + c->at;
}

static char *result_of(const struct bench *b, const struct call *c) {
    const enum ops_place out = b->rows[c->kind]->out;
    return out == BLOCK ? b->own + ROOM + c->at : out == FAR ? b->far + ROOM : input_of(b, c);
}

static symmem_status run(const struct bench *b, const struct call *c) {
    const struct ops_row *row = b->rows[c->kind];
    if (row == NULL)
        return symmem_barrier(b->handle, b->channel, b->limit_ms, b->stream);
    const int64_t size = b->size, count = (int64_t)c->count;
    const int64_t result = scatters(row) ? count / size : gathers(row) ? count * size : count;
    const bool rows = row->run == row_reduce_scatter_split;
    const int64_t from[2] = {rows ? 2 : count, count / 2}, to[2] = {rows ? 2 : result, result / 2};
    size_t counts[OPS_MAX_RANKS];
    for (int32_t rank = 0; rank < b->size; rank++)
        counts[rank] = scatters(row) ? c->count / (size_t)size : c->count;
    const struct ops_call call = {.handle = b->handle,
                                  .counts = counts,
                                  .buffer = FLAT(b->own + c->at, c->dtype, c->count),
                                  .input = SHAPED(input_of(b, c), c->dtype, 1 + rows, from),
                                  .out = SHAPED(result_of(b, c), c->dtype, 1 + rows, to),
                                  .op = c->op,
                                  .root = c->root,
                                  .channel = b->channel,
                                  .limit_ms = b->limit_ms,
                                  .stream = b->stream};
    return row->run(&call);
}

/* Whether ranks can differ in that op. Hardware that reduces through multicast does not find minima
 * of all dtypes: a rank that asks for one is refused without waiting for others. */
static bool has_minimum(const struct ops_row *row, symmem_dtype dtype) {
    return has(row, ROW_REDUCES) && row->run != row_low_contention_reduce_scatter &&
           (!has(row, ROW_MULTIMEM) || dtype == SYMMEM_INT32);
}

/* Whether ranks have to have the same `at`. */
static bool has_place(const struct ops_row *row) {
    return (row->input == BLOCK || row->out == BLOCK || has(row, ROW_BUFFER)) &&
           !has(row, ROW_SPLITS);
}

static struct call random_call(const struct bench *b, uint64_t bits) {
    static const symmem_dtype dtypes[] = {SYMMEM_FLOAT32, SYMMEM_INT32, SYMMEM_BFLOAT16,
                                          SYMMEM_FLOAT64};
    return (struct call){.kind = (int)(bits % (uint64_t)b->kinds),
                         .dtype = dtypes[bits >> 8 & 3],
                         .op = SYMMEM_SUM,
                         .count = (size_t)b->size * 2 * (1 + (bits >> 12 & 7)),
                         .at = (bits >> 16 & 3) * 16,
                         .root = (int32_t)((bits >> 20) % (uint64_t)b->size)};
}

/* Another call than `c` in one thing that ranks have to agree on. */
static struct call odd_one(const struct bench *b, struct call c, uint64_t bits) {
    const struct ops_row *row = b->rows[c.kind];
    const int what = row == NULL ? 0 : (int)(bits % 6);
    if (what == 1)
        c.dtype = c.dtype == SYMMEM_FLOAT32 ? SYMMEM_INT32 : SYMMEM_FLOAT32;
    else if (what == 2)
        c.count += (size_t)b->size * 2;
    else if (what == 3 && has_place(row))
        c.at += 16;
    else if (what == 4 && has_minimum(row, c.dtype))
        c.op = SYMMEM_MIN;
    else if (what == 5 && has(row, ROW_ROOTED))
        c.root = (c.root + 1) % b->size;
    else
        c.kind = (c.kind + 1 + (int)((bits >> 8) % (uint64_t)(b->kinds - 1))) % b->kinds;
    return c;
}

/* Programs of random calls, in which at some step one rank does another thing: that one fails on
 * all, and all others work. */
TK_TEST(coll, one_rank_strays, "SM-COLL-06", .needs = COLLECTIVES, .ranks = {2, 8},
        .timeout_s = 60) {
    struct bench b = bench_begin(t);
    int steps = tk_suite_is_long() ? 20000 : 400;
    uint64_t random = t->seed;
    for (int step = 0; step < steps && !tk_failed(t); step++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        struct call agreed = random_call(&b, random >> 20);
        struct call odd = odd_one(&b, agreed, random >> 44);
        bool strays = (random >> 33) % 3 == 0;
        int32_t stray = (int32_t)((random >> 36) % (uint64_t)b.size);
        tk_checkpoint(t, "step %d of seed %llu: kind %d, rank %d kind %d", step,
                      (unsigned long long)t->seed, agreed.kind, strays ? (int)stray : -1, odd.kind);
        symmem_status status = run(&b, strays && b.rank == stray ? &odd : &agreed);
        TK_STATUS(t, strays ? SYMMEM_MISMATCH : SYMMEM_OK, status);
    }
    TK_CHECK(t, !info_of(t, b.handle).poisoned);
}

/* A step of the backend's own at which a call may fail, and how often it comes there. */
struct own_step {
    char name[32];
    int count;
};

enum { MOST_STEPS = 16, SLOT_TOTAL = 8, SLOT_POISONED, SLOT_ENDED };

/* Those that this rank passes in a call. Returns how many, and how often all of them are passed. */
static int find_own_steps(struct tk *t, const struct bench *b, const struct call *c,
                          struct own_step steps[MOST_STEPS], int *total_p) {
    int found = 0;
    *total_p = 0;
    tk_record_points(t, true);
    TK_OK(t, run(b, c));
    tk_record_points(t, false);
    for (int i = 0; i < tk_recorded_points(t) && found < MOST_STEPS; i++) {
        int count = 0;
        const char *name = tk_recorded_point(t, i, &count);
        if (!ops_own_step(t, name))
            continue;
        snprintf(steps[found].name, sizeof(steps[found].name), "%s", name);
        steps[found++].count = count;
        *total_p += count;
    }
    return found;
}

static void reset_after(struct tk *t, const struct bench *b) {
    tk_out_of_band_barrier(t);
    TK_REQUIRE_OK(t, symmem_handle_reset(b->handle, b->limit_ms));
}

/* The victim fails at the nth of all its passes of such steps: it says so, and no rank waits for it
 * for long. Where it had not yet begun no rank was told: its peers find out by themselves. */
static void fail_once(struct tk *t, const struct bench *bench, const struct call *c, int32_t victim,
                      const struct own_step *steps, int nth) {
    struct bench b = *bench;
    b.limit_ms = tk_limit_ms(t, 3000);
    if (b.rank == victim) {
        for (; nth > steps->count; steps++)
            nth -= steps->count;
        tk_on_point(t, steps->name, nth, (struct tk_action){.status = SYMMEM_SYSTEM});
    }
    uint64_t begin_ms = tk_now_ms();
    symmem_status status = run(&b, c);
    uint64_t took_ms = tk_now_ms() - begin_ms;
    tk_forget_points(t);
    if (b.rank == victim)
        TK_FAILS(t, SYSTEM, status);
    tk_share_u64(t, SLOT_POISONED, info_of(t, b.handle).poisoned);
    tk_out_of_band_barrier(t);
    bool told = tk_read_u64(t, victim, SLOT_POISONED) != 0;
    if (b.rank != victim)
        TK_CHECK_MSG(t,
                     status == SYMMEM_POISONED || status == SYMMEM_OK ||
                         (!told && status == SYMMEM_TIMEOUT),
                     "a peer got %s", symmem_status_name(status));
    if (told)
        TK_TOOK(t, 1000, begin_ms, begin_ms + took_ms);
    reset_after(t, bench);
}

/* No step of the backend's is needed for this: the victim's limit is over at the first barrier, to
 * which one rank comes only when it has gone. A peer that needs no other barrier succeeds. */
static void give_up_once(struct tk *t, const struct bench *bench, const struct call *c,
                         int32_t victim, uint64_t round) {
    struct bench b = *bench;
    const int32_t late = (victim + 1) % b.size;
    if (b.rank == victim)
        b.limit_ms = 20;
    else if (b.rank == late)
        (void)await_shared(t, victim, SLOT_ENDED, round);
    symmem_status status = run(&b, c);
    uint64_t ended_ms = tk_now_ms();
    if (b.rank == victim) {
        TK_FAILS(t, TIMEOUT, status);
        tk_share_u64(t, SLOT_TOTAL, ended_ms);
        tk_share_u64(t, SLOT_ENDED, round);
    } else {
        TK_STATUS_EITHER(t, SYMMEM_POISONED, SYMMEM_OK, status);
        (void)await_shared(t, victim, SLOT_ENDED, round);
        TK_TOOK(t, 1000, tk_read_u64(t, victim, SLOT_TOTAL), ended_ms);
    }
    reset_after(t, bench);
}

static void expect_sum(struct tk *t, const struct bench *b, uint32_t generation) {
    enum { COUNT = 24 };
    int32_t words[COUNT], expected[COUNT] = {0}, got[COUNT];
    for (int32_t r = 0; r < b->size; r++) {
        ops_fill(words, SYMMEM_INT32, COUNT, r, generation);
        for (int i = 0; i < COUNT; i++)
            expected[i] += words[i];
    }
    ops_fill(words, SYMMEM_INT32, COUNT, b->rank, generation);
    ops_upload(t, b->own, words, sizeof(words));
    struct call c = {.dtype = SYMMEM_INT32, .op = SYMMEM_SUM, .count = COUNT};
    while (b->rows[c.kind]->run != row_one_shot_out)
        c.kind++;
    TK_OK(t, run(b, &c));
    ops_download(t, got, b->far + ROOM, sizeof(got));
    ops_expect(t, expected, got, SYMMEM_INT32, COUNT, "after a failure");
}

static void fail_in_every_way(struct tk *t, const struct bench *b, const struct call *c) {
    struct own_step steps[MOST_STEPS];
    int32_t victim = (int32_t)((t->seed + (uint64_t)c->kind) % (uint64_t)b->size);
    int total;
    (void)find_own_steps(t, b, c, steps, &total);
    tk_share_u64(t, SLOT_TOTAL, (uint64_t)total);
    tk_out_of_band_barrier(t);
    total = (int)tk_read_u64(t, victim, SLOT_TOTAL);
    tk_out_of_band_barrier(t);
    for (int nth = 1; nth <= total; nth++) {
        if (!tk_suite_is_long() && nth != 1 + (int)(t->seed / 5 + (uint64_t)c->kind) % total)
            continue;
        tk_checkpoint(t, "kind %d, step %d of %d, rank %d", c->kind, nth, total, (int)victim);
        fail_once(t, b, c, victim, steps, nth);
        expect_sum(t, b, (uint32_t)(8 * c->kind + nth));
    }
    tk_checkpoint(t, "kind %d, rank %d gives up", c->kind, (int)victim);
    give_up_once(t, b, c, victim, (uint64_t)c->kind + 1);
    expect_sum(t, b, (uint32_t)(8 * c->kind));
}

TK_TEST(coll, fails_half_way, "SM-COLL-12", .needs = COLLECTIVES, .ranks = {2, 8}) {
    struct bench b = bench_begin(t);
    int stride = tk_suite_is_long() ? 1 : 5;
    for (int kind = (int)(t->seed % (uint64_t)stride); kind < b.kinds; kind += stride) {
        const struct call c = {
            .kind = kind, .dtype = SYMMEM_FLOAT32, .op = SYMMEM_SUM, .count = (size_t)b.size * 16};
        fail_in_every_way(t, &b, &c);
    }
}

enum { THREADS = 4, MOST = 1024 /* int32 elements of any argument */ };

/* What int32 sums leave in the result. Returns the number of elements. */
static size_t model(const struct bench *b, const struct call *c, uint32_t generation,
                    int32_t *out) {
    const struct ops_row *row = b->rows[c->kind];
    int32_t sum[MOST] = {0}, input[MOST];
    size_t part = c->count / (size_t)b->size;
    for (int32_t r = 0; r < b->size; r++) {
        ops_fill(input, SYMMEM_INT32, c->count, r, generation);
        for (size_t i = 0; i < c->count; i++)
            sum[i] += input[i];
        if (has(row, ROW_SPLITS))
            memcpy(out + part * (size_t)r, input + part * (size_t)b->rank, part * 4);
        else if (has(row, ROW_ROOTED) && r == c->root)
            memcpy(out, input, c->count * 4);
        else if (gathers(row))
            memcpy(out + c->count * (size_t)r, input, c->count * 4);
    }
    if (scatters(row)) {
        size_t rows = row->run == row_reduce_scatter_split ? 2 : 1, width = part / rows;
        for (size_t i = 0; i < rows; i++)
            memcpy(out + i * width, sum + (i * (size_t)b->size + (size_t)b->rank) * width,
                   width * 4);
        return part;
    }
    if (has(row, ROW_REDUCES))
        memcpy(out, sum, c->count * 4);
    return gathers(row) ? c->count * (size_t)b->size : c->count;
}

struct worker {
    struct tk *t;
    struct bench bench;
    int rounds;
};

static bool one_round(struct worker *own, struct call c, uint32_t generation) {
    struct tk *t = own->t;
    const struct bench *b = &own->bench;
    int32_t input[MOST], expected[MOST], got[MOST];
    c.dtype = SYMMEM_INT32;
    c.op = SYMMEM_SUM;
    ops_fill(input, SYMMEM_INT32, c.count, b->rank, generation);
    const struct ops_row *row = b->rows[c.kind];
    if (row != NULL)
        ops_upload(t, input_of(b, &c), input, c.count * 4);
    if (!TK_OK(t, run(b, &c)) ||
        (b->stream != NULL && !TK_OK(t, symmem_stream_synchronize(b->stream, b->limit_ms))))
        return false;
    if (row == NULL || (has(row, ROW_ROOTED | ROW_REDUCES) && c.root != b->rank))
        return true;
    size_t count = model(b, &c, generation, expected);
    ops_download(t, got, result_of(b, &c), count * 4);
    return ops_expect(t, expected, got, SYMMEM_INT32, count, "a result beside others");
}

static void *work(void *arg) {
    struct worker *own = arg;
    uint64_t random = own->t->seed + (uint64_t)own->bench.channel;
    for (int round = 0; round < own->rounds; round++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        if (!one_round(own, random_call(&own->bench, random >> 20), (uint32_t)round))
            break;
    }
    return NULL;
}

/* In each thread all kinds in an order of its own, on a channel of its own, with and without a
 * stream; all threads' handles lie in one allocation, so that they share their state. */
TK_TEST(coll, many_threads, "SM-COLL-10", .needs = COLLECTIVES | SYMMEM_CAP_STREAMS, .max_ranks = 8,
        .timeout_s = 60) {
    struct worker workers[THREADS];
    char *base = tk_alloc(t, (size_t)2 * ROOM * THREADS);
    for (int i = 0; i < THREADS; i++) {
        char *place = base + (size_t)2 * ROOM * (size_t)i;
        struct bench b = bench_on(t, tk_rendezvous(t, place, tk_world_group(t)));
        b.channel = i;
        b.stream = i % 2 ? tk_stream(t) : NULL;
        workers[i] = (struct worker){.t = t, .bench = b, .rounds = tk_suite_is_long() ? 5000 : 60};
    }
    tk_in_threads(t, work, workers, sizeof(workers[0]), THREADS);
}
