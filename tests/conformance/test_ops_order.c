/* SPDX-License-Identifier: BSD-3-Clause */
/* What every collective waits for, and in which order several of them run. Each is run twice: with
 * the ranks meeting before and behind it, and as the case has it. The result is the same. */
#include "case_help.h"
#include "ops_table_help.h"

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

static void expect_result(struct tk *t, const struct ops_desk *desk, const struct ops_row *row,
                          const uint8_t *expected, const char *how) {
    uint8_t found[OPS_HALF];
    ops_result(t, desk, row, found);
    TK_CHECK_MSG(t, memcmp(expected, found, sizeof(found)) == 0, "%s: %s", row->what, how);
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

/* One rank lags behind the others after the first meeting: they may not go on to write the inputs
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

/* All at once behind a gate, on two streams by turns, one channel, each on what the one before has
 * left. What a call made is copied elsewhere beside them, so those are not among them. */
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
