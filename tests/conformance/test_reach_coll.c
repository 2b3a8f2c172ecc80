/* SPDX-License-Identifier: BSD-3-Clause */
/* Collectives that the core makes for peers without pointers: each form, below and above what
 * passes through memory of the rank's at a time. */
#include "ops_calls.h"
#include "reach_help.h"
#include "reference/reduce.h"

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

/* --- calls of the engine's that fail -------------------------------------------------------- */

static void fail_entries(flat_backend *table);
static struct table_twin failing = {.name = "suite_failing", .change = fail_entries};

static _Thread_local struct strike {
    int calls, at;      /* the call that fails; 0: none */
    uint64_t published; /* not 0: what is read of a peer's table of parts */
} strike;

static bool strikes(void) {
    return ++strike.calls == strike.at;
}

static symmem_status put_or_fail(void *instance, const symmem_place *to, const void *src,
                                 size_t bytes, const symmem_exec *exec) {
    return strikes() ? SYMMEM_LIMIT : failing.real->reach->put(instance, to, src, bytes, exec);
}

static symmem_status get_or_fail(void *instance, const symmem_place *from, void *dst, size_t bytes,
                                 const symmem_exec *exec) {
    if (strikes())
        return SYMMEM_LIMIT;
    symmem_status status = failing.real->reach->get(instance, from, dst, bytes, exec);
    if (strike.published != 0 && bytes == sizeof(strike.published))
        memcpy(dst, &strike.published, bytes);
    return status;
}

static symmem_status write_or_fail(void *instance, const symmem_place *to, uint32_t value,
                                   const symmem_exec *exec) {
    return strikes() ? SYMMEM_LIMIT : failing.real->reach->write_value32(instance, to, value, exec);
}

static symmem_status quiet_or_fail(void *instance, const symmem_peers *peers,
                                   const symmem_exec *exec) {
    return strikes() ? SYMMEM_LIMIT : failing.real->reach->quiet(instance, peers, exec);
}

/* The CPU does it for an engine that has none: those that the core makes signals for it reaches. */
static symmem_status reduce(void *instance, int32_t device, const symmem_local_reduce *what,
                            const symmem_exec *exec) {
    const void *srcs[SYMMEM_MAX_WORLD_SIZE];
    if (failing.real->reach->reduce_local != NULL)
        return failing.real->reach->reduce_local(instance, device, what, exec);
    for (int32_t s = 0; s < what->src_count; s++)
        srcs[s] = (const char *)what->src + (size_t)s * what->src_stride;
    symmem_reference_reduce(what->dst, srcs, what->src_count, what->count, what->dtype, what->op);
    return SYMMEM_OK;
}

static symmem_status reduce_or_fail(void *instance, int32_t device, const symmem_local_reduce *what,
                                    const symmem_exec *exec) {
    return strikes() ? SYMMEM_LIMIT : reduce(instance, device, what, exec);
}

static void fail_entries(flat_backend *table) {
    table->reach_put = put_or_fail;
    table->reach_get = get_or_fail;
    table->reach_write_value32 = write_or_fail;
    table->reach_quiet = quiet_or_fail;
    table->reach_reduce_local = reduce_or_fail;
}

static symmem_status row_barrier(const struct ops_call *call) {
    return symmem_barrier(call->handle, call->channel, call->limit_ms, NULL);
}

/* The reset behind each takes back what was put. */
static symmem_status row_signals(const struct ops_call *call) {
    return symmem_put_signal(call->handle, call->root, call->channel, call->limit_ms, NULL);
}

static symmem_status row_put(const struct ops_call *call) {
    return symmem_put(call->handle, call->root, 0, call->input->data, 16, call->stream);
}

static symmem_status row_get(const struct ops_call *call) {
    return symmem_get(call->handle, call->root, 0, call->out->data, 16, call->stream);
}

/* Where input and out of each lie, and how many times the count they have. */
static const struct failing_row {
    ops_fn run;
    const char *name;
    bool from_own, to_own;
    bool in_ranks, out_ranks;
} failing_rows[] = {
    {row_one_shot_out, "one_shot_all_reduce_out", true, false, false, false},
    {row_one_shot_copy_out, "one_shot_all_reduce_copy_out", false, false, false, false},
    {row_two_shot, "two_shot_all_reduce", true, false, false, false},
    {row_two_shot_out, "two_shot_all_reduce_out", true, false, false, false},
    {row_reduce_scatter, "reduce_scatter_out", true, false, true, false},
    {row_all_gather, "all_gather_out", true, false, false, true},
    {row_all_gather, "all_gather_out", false, true, false, true},
    {row_broadcast, "broadcast", true, false, false, false},
    {row_all_to_all, "all_to_all_out", true, false, true, true},
    {row_barrier, "barrier", true, false, false, false},
    {row_put, "put", false, false, false, false},
    {row_get, "get", false, false, false, false},
    {row_signals, "put_signal", true, false, false, false}};

static symmem_status run_row(const scene *s, const struct failing_row *row) {
    struct ops_call call = call_of(s);
    size_t splits[SYMMEM_MAX_WORLD_SIZE];
    for (size_t r = 0; r < s->ranks; r++)
        splits[r] = s->count;
    call.in_splits = call.out_splits = splits;
    call.root = s->t->next;
    if (row->run == row_broadcast)
        call.root = s->t->last;
    call.buffer = FLAT(s->own, SYMMEM_FLOAT32, s->count);
    call.input = FLAT(row->from_own ? s->own : s->in, SYMMEM_FLOAT32,
                      s->count * (row->in_ranks ? s->ranks : 1));
    call.out = FLAT(row->to_own ? s->own : s->out, SYMMEM_FLOAT32,
                    s->count * (row->out_ranks ? s->ranks : 1));
    return row->run(&call);
}

/* False: rank `victim` made fewer calls. */
static bool fail_row_once(const scene *s, const struct failing_row *row, int32_t victim, int nth) {
    struct tk *t = s->t;
    strike = (struct strike){.at = t->rank == victim ? nth : 0};
    symmem_clear_error();
    const uint64_t begin_ms = tk_now_ms();
    symmem_status status = run_row(s, row);
    const bool struck = strike.at != 0 && strike.calls >= strike.at;
    strike.at = 0;
    TK_WITHIN(t, 1000, begin_ms);
    TK_EQ_INT(t, status, last_record().status);
    tk_share_u64(t, 3, struck);
    tk_out_of_band_barrier(t);
    const bool failed = tk_read_u64(t, victim, 3) != 0;
    if (t->rank == victim && failed) {
        TK_STATUS(t, SYMMEM_LIMIT, status);
        TK_EQ_STR(t, row->name, last_record().operation);
    } else if (status != SYMMEM_POISONED || !failed) {
        TK_STATUS(t, SYMMEM_OK, status);
    }
    TK_OK(t, symmem_handle_reset(s->handle, LONG_MS));
    return failed;
}

static scene begin_failing(struct tk *t) {
    use_reach_twin(t, &failing);
    strike = (struct strike){.at = 0};
    tk_join(t, t->context);
    const size_t ranks = (size_t)t->world_size, bytes = 8 * ranks * sizeof(float);
    scene s = {.t = t,
               .ranks = ranks,
               .count = 5,
               .in = tk_scratch(t, bytes),
               .out = tk_scratch(t, bytes)};
    s.own = tk_alloc(t, bytes);
    s.handle = tk_rendezvous(t, s.own, tk_world_group(t));
    return s;
}

TK_TEST(reach, each_call_fails_once, "SM-REACH-20", .ranks = {2, 3}, .flags = JOINED_LATER) {
    scene s = begin_failing(t);
    const int32_t victim = (int32_t)(t->seed % (uint64_t)t->world_size);
    for (size_t i = 0; i < TK_COUNT(failing_rows); i++) {
        tk_checkpoint(t, "%s", failing_rows[i].name);
        for (int nth = 1; fail_row_once(&s, &failing_rows[i], victim, nth); nth++)
            TK_REQUIRE(t, nth < 100);
        fill(&s, s.own, s.count);
        TK_OK(t, run_row(&s, &failing_rows[0]));
        expect_sums(&s, failing_rows[i].name, s.out, 0);
    }
}

TK_TEST(reach, places_outside_the_block, "SM-REACH-21", .ranks = {2, 2}, .flags = JOINED_LATER) {
    scene s = begin_failing(t);
    const size_t bytes = 8 * s.ranks * sizeof(float);
    const uint64_t places[] = {UINT64_MAX, bytes + 1, bytes, bytes - s.count * sizeof(float) + 1};
    const struct failing_row *row = &failing_rows[8];
    for (size_t i = 0; i < TK_COUNT(places); i++) {
        strike = (struct strike){.published = t->rank == 0 ? places[i] : 0};
        symmem_status status = run_row(&s, row);
        strike.published = 0;
        TK_STATUS(t, t->rank == 0 ? SYMMEM_CORRUPT : SYMMEM_POISONED, status);
        TK_EQ_INT(t, t->next, last_record().failed_rank);
        tk_out_of_band_barrier(t);
        TK_OK(t, symmem_handle_reset(s.handle, LONG_MS));
    }
}
