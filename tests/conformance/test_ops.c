/* SPDX-License-Identifier: BSD-3-Clause */
/* What holds for every collective, shown by all of them: agreement, waiting, failing, order. */
#include "case_help.h"
#include "ops_table_help.h"
#include "work_after.h"

#define STREAMS SYMMEM_CAP_STREAMS

/* --- agreement ------------------------------------------------------------------------------ */

/* What the odd rank does instead. */
enum oddity { ODD_COUNT, ODD_DTYPE, ODD_OP, ODD_ROOT, ODD_OFFSET, ODD_BARRIER, ODD_ROW, ODDITIES };

/* The next row that is another call. */
static const struct ops_row *other_row(const struct ops_desk *desk, int row, uint64_t draw) {
    for (int step = 1 + (int)(draw % (OPS_ROWS - 1));; step = step % (OPS_ROWS - 1) + 1) {
        const struct ops_row *own = &ops_rows[row], *other = &ops_rows[(row + step) % OPS_ROWS];
        bool alike = own->like != NULL && other->like != NULL && !strcmp(own->like, other->like);
        if (ops_can(desk, other) && !alike)
            return other;
    }
}

static bool applies(const struct ops_row *row, int oddity) {
    switch (oddity) {
    case ODD_DTYPE:
        return !(row->traits & ROW_FUSED); /* which have no products of whole numbers */
    case ODD_OP:
        return row->traits & ROW_REDUCES;
    case ODD_ROOT:
        return row->traits & ROW_ROOTED;
    case ODD_OFFSET: /* of what is the same on all ranks */
        return !(row->traits & ROW_SPLITS) &&
               (row->input != FAR || row->out == BLOCK || (row->traits & ROW_BUFFER));
    default:
        return true;
    }
}

static symmem_status odd_call(struct tk *t, const struct ops_desk *desk, const struct ops_row *row,
                              const struct ops_row *other, int oddity, symmem_stream *stream) {
    struct ops_setting set;
    struct ops_terms terms = ops_usual;
    terms.count -= oddity == ODD_COUNT;
    terms.dtype = oddity == ODD_DTYPE ? SYMMEM_INT32 : terms.dtype;
    terms.op = oddity == ODD_OP ? SYMMEM_AVG : terms.op;
    terms.root = oddity == ODD_ROOT;
    terms.shift = oddity == ODD_OFFSET;
    if (oddity == ODD_BARRIER)
        return symmem_barrier(desk->handle, 0, desk->limit_ms, stream);
    row = oddity == ODD_ROW ? other : row;
    ops_set(desk, row, &terms, &set);
    set.call.stream = stream;
    return ops_run(t, desk, row, &set);
}

static void disagree_once(struct tk *t, const struct ops_desk *desk, const struct ops_row *row,
                          const struct ops_row *other, int oddity, int32_t odd,
                          symmem_stream *stream) {
    tk_checkpoint(t, "%s, oddity %d (%s) at rank %d", row->what, oddity, other->what, (int)odd);
    symmem_status status = desk->rank == odd ? odd_call(t, desk, row, other, oddity, stream)
                                             : ops_run_usual(t, desk, row, 0, stream);
    if (stream != NULL && status == SYMMEM_OK)
        status = symmem_stream_synchronize(stream, desk->limit_ms);
    symmem_error_record record = last_record();
    int32_t named = desk->rank != odd ? odd : odd == 0 ? 1 : 0;
    bool held =
        TK_CHECK_MSG(t, status == SYMMEM_MISMATCH && record.failed_rank == named,
                     "%s, oddity %d (%s) at rank %d: %s, naming rank %d", row->what, oddity,
                     other->what, (int)odd, symmem_status_name(status), (int)record.failed_rank);
    if (held && (desk->rank != odd || (oddity != ODD_BARRIER && oddity != ODD_ROW)))
        TK_CHECK_MSG(t, ops_recorded(row), "%s: a record of %s", row->what, record.operation);
    TK_CHECK_MSG(t, !info_of(t, desk->handle).poisoned, "%s: poisoned", row->what);
}

static void disagree(struct tk *t, symmem_stream *(*stream_of)(struct tk *t)) {
    struct ops_desk desk = ops_desk_begin(t);
    symmem_stream *stream = stream_of != NULL ? stream_of(t) : NULL;
    uint64_t state = t->seed;
    TK_REQ(t, "SM-COLL-06");
    for (int i = 0; i < OPS_ROWS && !tk_failed(t); i++) {
        const struct ops_row *row = &ops_rows[i];
        for (int oddity = 0; oddity < ODDITIES && ops_can(&desk, row); oddity++) {
            const struct ops_row *other = other_row(&desk, i, draw(&state, 1000));
            int32_t odd = (int32_t)draw(&state, (uint32_t)desk.size);
            if (!applies(row, oddity))
                continue;
            ops_load(t, &desk, (uint32_t)i);
            disagree_once(t, &desk, row, other, oddity, odd, stream);
            /* On a stream what a call made is copied behind it, whatever became of it. */
            if (stream == NULL || (row->out != NEW && other->out != NEW))
                ops_untouched(t, &desk, (uint32_t)i, row->what);
            TK_OK(t, ops_run_usual(t, &desk, row, 0, NULL));
        }
    }
}

TK_TEST(ops, ranks_disagree, "SM-COLL-06", .needs = COLLECTIVES, .ranks = {2, OPS_MAX_RANKS}) {
    disagree(t, NULL);
}

static symmem_stream *own_stream(struct tk *t) {
    return tk_stream(t);
}

TK_TEST(ops, ranks_disagree_on_a_stream, "SM-COLL-06", .needs = COLLECTIVES | STREAMS,
        .ranks = {2, OPS_MAX_RANKS}) {
    disagree(t, own_stream);
}

/* --- waiting and failing -------------------------------------------------------------------- */

/* From row to row where all would take long; the next seed takes others. */
static int stride(int usual) {
    return tk_suite_is_long() ? 1 : usual;
}

TK_TEST(ops, empty_ones_synchronize, "SM-COLL-07", .needs = COLLECTIVES,
        .ranks = {2, OPS_MAX_RANKS}) {
    struct ops_desk desk = ops_desk_begin(t);
    struct ops_terms nothing = ops_usual;
    nothing.count = 0;
    ops_load(t, &desk, 1);
    int step = stride(2);
    for (int i = (int)(t->seed % (uint64_t)step); i < OPS_ROWS; i += step) {
        int32_t held = (int32_t)((t->seed / 2 + (uint64_t)i) % (uint64_t)desk.size);
        struct ops_setting set;
        if (!ops_can(&desk, &ops_rows[i]))
            continue;
        tk_checkpoint(t, "%s", ops_rows[i].what);
        if (t->rank == held)
            check_others_held(t, NULL, desk.size, (uint64_t)i + 1);
        else
            show_entered(t, (uint64_t)i + 1);
        ops_set(&desk, &ops_rows[i], &nothing, &set);
        if (t->rank == held) /* which rank holds back matters to none */
            set.buffer.dl.data = set.input.dl.data = set.out.dl.data = NULL;
        TK_OK(t, ops_run(t, &desk, &ops_rows[i], &set));
        show_passed(t, (uint64_t)i + 1);
    }
    ops_untouched(t, &desk, 1, "operations without elements");
}

TK_TEST(ops, missing_rank, "SM-COLL-08,SM-TIMEOUT-14", .needs = COLLECTIVES,
        .ranks = {2, OPS_MAX_RANKS}) {
    struct ops_desk desk = ops_desk_begin(t);
    TK_REQ(t, "SM-COLL-08");
    /* A third of them, for the resets take their time. */
    int step = stride(3);
    for (int i = (int)(t->seed % (uint64_t)step); i < OPS_ROWS && !tk_failed(t); i += step) {
        const struct ops_row *row = &ops_rows[i];
        int32_t absent = (int32_t)((t->seed / 3 + (uint64_t)i) % (uint64_t)desk.size);
        struct ops_setting set;
        if (!ops_can(&desk, row))
            continue;
        tk_checkpoint(t, "%s without rank %d", row->what, (int)absent);
        ops_load(t, &desk, (uint32_t)i);
        ops_set(&desk, row, &ops_usual, &set);
        set.call.limit_ms = 10;
        if (desk.rank != absent) {
            TK_FAILS(t, TIMEOUT, ops_run(t, &desk, row, &set));
            symmem_error_record record = last_record();
            TK_CHECK_MSG(t, ops_recorded(row), "%s: a record of %s", row->what, record.operation);
            TK_CHECK(t, symmem_error_is_missing(&record, absent));
            TK_CHECK(t, info_of(t, desk.handle).poisoned);
            TK_FAILS(t, POISONED, ops_run(t, &desk, row, &set));
        }
        ops_untouched(t, &desk, (uint32_t)i, row->what);
        tk_out_of_band_barrier(t);
        TK_REQUIRE_OK(t, symmem_handle_reset(desk.handle, desk.limit_ms));
        TK_OK(t, ops_run_usual(t, &desk, row, 0, NULL));
    }
    work_after(t, NULL);
}

/* One of them, another one with each seed. */
TK_TEST(ops, lost_rank, "SM-COLL-08,SM-TIMEOUT-14", .needs = COLLECTIVES,
        .ranks = {2, OPS_MAX_RANKS}, .flags = TK_PROCESS_ONLY | TK_MAY_DIE | TK_MAY_LEAK) {
    struct ops_desk desk = ops_desk_begin(t);
    const struct ops_row *row = &ops_rows[t->seed % OPS_ROWS];
    int32_t victim = desk.size - 1;
    TK_REQ(t, "SM-COLL-08");
    row = ops_can(&desk, row) ? row : &ops_rows[0];
    tk_note(t, "%s", row->what);
    tk_expect_death(t, victim);
    tk_out_of_band_barrier(t);
    if (desk.rank == victim)
        tk_kill_self(t);
    uint64_t begin_ms = tk_now_ms();
    TK_FAILS(t, PEER_LOST, ops_run_usual(t, &desk, row, 0, NULL));
    TK_EQ_INT(t, victim, last_record().failed_rank);
    tk_expect_prompt(t, victim, begin_ms, tk_now_ms());
    TK_CHECK(t, info_of(t, desk.handle).poisoned);
    work_after_loss(t, NULL, victim, 1, NULL);
}

/* --- order ---------------------------------------------------------------------------------- */

/* What the row makes of a generation's data. */
static void eager_result(struct tk *t, const struct ops_desk *desk, const struct ops_row *row,
                         uint32_t generation, uint8_t *bytes) {
    ops_load(t, desk, generation);
    TK_OK(t, ops_run_usual(t, desk, row, 0, NULL));
    ops_result(t, desk, row, bytes);
}

static void expect_result(struct tk *t, const struct ops_desk *desk, const struct ops_row *row,
                          const uint8_t *expected, const char *how) {
    uint8_t found[OPS_HALF];
    ops_result(t, desk, row, found);
    TK_CHECK_MSG(t, memcmp(expected, found, sizeof(found)) == 0, "%s: another result %s", row->what,
                 how);
}

/* A row is held on its stream at one rank. The call does not wait; another stream's barrier on the
 * same channel comes after it, one on another channel does not: not the next one, which fused
 * products take, too. */
static void hold_row(struct tk *t, const struct ops_desk *desk, const struct ops_row *row,
                     symmem_stream *const *streams, int32_t held) {
    struct gate gate = {0};
    if (desk->rank != held)
        gate_open(&gate);
    TK_OK(t, symmem_stream_host_fn(streams[0], gate_fn, &gate));
    TK_OK(t, ops_run_usual(t, desk, row, 0, streams[0]));
    TK_OK(t, symmem_barrier(desk->handle, 0, desk->limit_ms, streams[1]));
    TK_OK(t, symmem_barrier(desk->handle, 2, desk->limit_ms, streams[2]));
    tk_synchronize(t, streams[2]);
    if (desk->rank == held) {
        tk_sleep_ms(3);
        TK_CHECK_MSG(t, !is_idle(t, streams[1]), "a barrier overtook %s", row->what);
        gate_open(&gate);
    }
    tk_synchronize(t, streams[1]);
    tk_synchronize(t, streams[0]);
}

TK_TEST(ops, order_on_a_channel, "SM-COLL-09,SM-COLL-10",
        .needs = COLLECTIVES | STREAMS | SYMMEM_CAP_HOST_FN, .ranks = {2, OPS_MAX_RANKS}) {
    struct ops_desk desk = ops_desk_begin(t);
    symmem_stream *const streams[3] = {tk_stream(t), tk_stream(t), tk_stream(t)};
    uint8_t expected[OPS_HALF];
    int step = stride(2);
    for (int i = (int)(t->seed % (uint64_t)step); i < OPS_ROWS && !tk_failed(t); i += step) {
        const struct ops_row *row = &ops_rows[i];
        if (!ops_can(&desk, row))
            continue;
        tk_checkpoint(t, "%s", row->what);
        eager_result(t, &desk, row, (uint32_t)i, expected);
        ops_load(t, &desk, (uint32_t)i);
        TK_REQ(t, "SM-COLL-10");
        hold_row(t, &desk, row, streams, (int32_t)(t->seed % (uint64_t)desk.size));
        TK_REQ(t, "SM-COLL-09");
        expect_result(t, &desk, row, expected, "on a stream");
    }
}

TK_TEST(ops, captured, "SM-COLL-09", .needs = COLLECTIVES | STREAMS | SYMMEM_CAP_CAPTURE,
        .max_ranks = OPS_MAX_RANKS) {
    struct ops_desk desk = ops_desk_begin(t);
    symmem_stream *stream = tk_stream(t);
    uint8_t expected[OPS_HALF];
    for (int i = 0; i < OPS_ROWS && !tk_failed(t); i++) {
        const struct ops_row *row = &ops_rows[i];
        if (!ops_can(&desk, row))
            continue;
        tk_checkpoint(t, "%s", row->what);
        ops_load(t, &desk, 99);
        TK_REQUIRE_OK(t, symmem_stream_begin_capture(stream));
        symmem_status status = ops_run_usual(t, &desk, row, 0, stream);
        symmem_graph *graph = tk_end_capture(t, stream);
        TK_STATUS(t, row->out == NEW ? SYMMEM_CAPTURE : SYMMEM_OK, status);
        ops_untouched(t, &desk, 99, row->what);
        for (uint32_t launch = 0; launch < 2 && row->out != NEW; launch++) {
            eager_result(t, &desk, row, launch, expected);
            ops_load(t, &desk, launch);
            run_graph(t, graph, stream);
            expect_result(t, &desk, row, expected, "in a launch");
        }
    }
}

/* What every collective waits for, and in which order several of them run. Each is run twice: with
 * all ranks waiting for each other before and behind it, and as the case has it. The result is the
 * same. */

/* The first rank, the last one, and then no other. */
static int32_t next_end(const struct tk *t, int32_t rank) {
    return rank < t->last ? t->last : t->world_size;
}

static void load_and_meet(struct tk *t, const struct ops_desk *desk, uint32_t generation) {
    ops_load(t, desk, generation);
    tk_out_of_band_barrier(t);
}

static void run_and_meet(struct tk *t, const struct ops_desk *desk, const struct ops_row *row) {
    TK_OK(t, ops_run_usual(t, desk, row, 0, NULL));
    tk_out_of_band_barrier(t);
}

/* Runs the body with each row and each end of the ranks, and what the row makes of a generation. */
typedef void (*order_fn)(struct tk *t, const struct ops_desk *desk, const struct ops_row *row,
                         int32_t slow, uint32_t generation, const uint8_t *expected);

static void each_row(struct tk *t, order_fn body) {
    struct ops_desk desk = ops_desk_begin(t);
    uint8_t expected[OPS_HALF];
    for (uint32_t i = 0; i < OPS_ROWS && !tk_failed(t); i++)
        for (int32_t slow = 0; slow < t->world_size; slow = next_end(t, slow)) {
            const struct ops_row *row = &ops_rows[i];
            if (!ops_can(&desk, row))
                continue;
            tk_checkpoint(t, "%s, rank %d", row->what, (int)slow);
            load_and_meet(t, &desk, i);
            run_and_meet(t, &desk, row);
            ops_result(t, &desk, row, expected);
            body(t, &desk, row, slow, i, expected);
            tk_out_of_band_barrier(t);
        }
}

/* The last one to come loads its input when all others wait for it already. */
static void late(struct tk *t, const struct ops_desk *desk, const struct ops_row *row, int32_t slow,
                 uint32_t generation, const uint8_t *expected) {
    load_and_meet(t, desk, 1000 + generation);
    if (t->rank == slow)
        tk_sleep_ms(4);
    ops_load(t, desk, generation);
    TK_OK(t, ops_run_usual(t, desk, row, 1, NULL));
    expect_result(t, desk, row, expected, "with a late rank");
}

TK_TEST(ops, late_rank, "SM-COLL-01", .needs = COLLECTIVES, .ranks = {2, 3}) {
    each_row(t, late);
}

/* One rank lags behind the others after the first barrier: they may not go on to write the inputs
 * it still has to read, nor believe that what it writes is there. */
static void lagging(struct tk *t, const struct ops_desk *desk, const struct ops_row *row,
                    int32_t slow, uint32_t generation, const uint8_t *expected) {
    bool in_place = row->out == NOWHERE || row->out == SAME || row->input == OWN_CHUNK;
    bool sent = row->traits & ROW_ROOTED && row->out == NOWHERE && t->rank == ops_usual.root;
    uint8_t other[OPS_HALF];
    memset(other, 0x5A, sizeof(other));
    load_and_meet(t, desk, generation);
    if (t->rank == slow)
        tk_on_point(t, "shm.barrier.after_arrive", 1, (struct tk_action){.delay_ms = 6});
    TK_OK(t, ops_run_usual(t, desk, row, 0, NULL));
    if (!in_place || sent) { /* inputs, and what they were staged in */
        ops_upload(t, desk->block, other, sizeof(other));
        ops_upload(t, desk->far, other, sizeof(other));
    }
    if (!sent)
        expect_result(t, desk, row, expected, "with a lagging rank");
    tk_forget_points(t);
}

TK_TEST(ops, lagging_rank, "SM-COLL-01", .needs = COLLECTIVES, .ranks = {2, 3}) {
    each_row(t, lagging);
}

/* Two back to back through one memory, one rank delayed now and then. */
static void one_behind_the_other(struct tk *t, const struct ops_desk *desk,
                                 const struct ops_row *first, const struct ops_row *second,
                                 uint32_t generation) {
    uint8_t expected[OPS_HALF];
    if (!ops_can(desk, first) || !ops_can(desk, second))
        return;
    tk_checkpoint(t, "%s, then %s", first->what, second->what);
    load_and_meet(t, desk, generation);
    run_and_meet(t, desk, first);
    run_and_meet(t, desk, second);
    ops_result(t, desk, second, expected);
    load_and_meet(t, desk, generation);
    if (generation % 4 == 0 && t->rank == (int32_t)(generation / 4) % t->world_size)
        tk_sleep_ms(1);
    TK_OK(t, ops_run_usual(t, desk, first, 2, NULL));
    TK_OK(t, ops_run_usual(t, desk, second, 2, NULL));
    expect_result(t, desk, second, expected, first->what);
    tk_out_of_band_barrier(t);
}

static bool only_moves(const struct ops_row *row) {
    return !(row->traits & (ROW_REDUCES | ROW_FUSED));
}

/* All pairs of what only moves; of the others each as the first with some as the second, others
 * with another seed, and all with SYMMEM_SUITE_LONG=1. */
TK_TEST(ops, back_to_back, "SM-COLL-01,SM-COLL-10", .needs = COLLECTIVES, .ranks = {2, 3}) {
    struct ops_desk desk = ops_desk_begin(t);
    uint64_t state = t->seed;
    uint32_t generation = 0;
    for (int i = 0; i < OPS_ROWS && !tk_failed(t); i++) {
        const struct ops_row *first = &ops_rows[i];
        for (int k = 0; k < OPS_ROWS; k++)
            if (tk_suite_is_long() || (only_moves(first) && only_moves(&ops_rows[k])))
                one_behind_the_other(t, &desk, first, &ops_rows[k], ++generation);
        for (int some = 0; some < 5 && !tk_suite_is_long(); some++)
            one_behind_the_other(t, &desk, first, &ops_rows[draw(&state, OPS_ROWS)], ++generation);
    }
}

/* All at once behind a gate, on two streams alternately, one channel, each on what the one before
 * has left. What a call made is copied elsewhere beside them, so those are not among them. */
TK_TEST(ops, all_on_streams, "SM-COLL-09,SM-COLL-10,SM-MOVE-10",
        .needs = COLLECTIVES | SYMMEM_CAP_STREAMS | SYMMEM_CAP_HOST_FN, .ranks = {2, 3}) {
    struct ops_desk desk = ops_desk_begin(t);
    symmem_stream *streams[2] = {tk_stream(t), tk_stream(t)};
    uint8_t expected[2][2 * OPS_HALF], found[2][2 * OPS_HALF];
    for (int enqueued = 0; enqueued < 2; enqueued++) {
        struct gate gate = {0};
        load_and_meet(t, &desk, 3);
        if (enqueued)
            hold(t, streams[0], &gate);
        for (int i = 0; i < OPS_ROWS; i++)
            if (ops_can(&desk, &ops_rows[i]) && ops_rows[i].out != NEW && enqueued)
                TK_OK(t, ops_run_usual(t, &desk, &ops_rows[i], 1, streams[i % 2]));
            else if (ops_can(&desk, &ops_rows[i]) && ops_rows[i].out != NEW)
                run_and_meet(t, &desk, &ops_rows[i]);
        if (enqueued)
            ops_untouched(t, &desk, 3, "enqueued");
        gate_open(&gate);
        tk_synchronize(t, streams[0]);
        tk_synchronize(t, streams[1]);
        ops_download(t, enqueued ? found[0] : expected[0], desk.block, sizeof(found[0]));
        ops_download(t, enqueued ? found[1] : expected[1], desk.far, sizeof(found[1]));
        tk_out_of_band_barrier(t);
    }
    TK_CHECK_MSG(t, memcmp(expected, found, sizeof(found)) == 0, "another result on streams");
}
