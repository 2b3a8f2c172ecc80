/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams whose work fails: when its limit begins, what runs behind it, and who is told. */
#include "case_help.h"
#include "ops_help.h"
#include "timeout_help.h"

#define STREAM_FN (SYMMEM_CAP_STREAMS | SYMMEM_CAP_HOST_FN)

/* --- what a failure leaves alone -------------------------------------------------------------- */

/* A synchronization that ends too early forgets no failure. */
TK_TEST(stream, failure_outlasts_a_timeout, "SM-STREAM-03,SM-TIMEOUT-14", .needs = STREAM_FN,
        .max_ranks = 2) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    symmem_stream *stream = tk_stream(t);
    struct gate gate = {0};
    TK_OK(t, symmem_wait_signal(handle, t->rank, 2, 20, stream));
    hold(t, stream, &gate);
    TK_FAILS(t, TIMEOUT, symmem_stream_synchronize(stream, tk_limit_ms(t, 100)));
    gate_open(&gate);
    symmem_clear_error();
    TK_FAILS(t, TIMEOUT, symmem_stream_synchronize(stream, LONG_MS));
    TK_EQ_STR(t, "wait_signal", last_record().operation);
    TK_OK(t, symmem_stream_synchronize(stream, LONG_MS));
    work_after(t, stream);
}

/* What is not for the handle runs nevertheless, and may be what the program waits for. */
TK_TEST(stream, other_work_runs_behind_a_failure, "SM-STREAM-01,SM-TIMEOUT-06,SM-TIMEOUT-14",
        .needs = STREAM_FN, .max_ranks = 2) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    symmem_stream *stream = tk_stream(t);
    struct step_log log = {0};
    struct step step;
    uint8_t from[16], to[16] = {0};
    memset(from, 0x7A, sizeof(from));
    TK_OK(t, symmem_wait_signal(handle, t->rank, 2, 20, stream));
    TK_OK(t, symmem_copy(t->context, to, from, sizeof(from), stream));
    enqueue_step(t, stream, &step, &log, 1);
    TK_FAILS(t, TIMEOUT, symmem_stream_synchronize(stream, LONG_MS));
    TK_EQ_INT(t, 1, steps_done(&log));
    TK_CHECK_MSG(t, memcmp(from, to, sizeof(from)) == 0,
                 "the copy behind an operation that failed did not run");
    work_after(t, stream);
}

/* --- held back behind a gate ------------------------------------------------------------------ */

/* The three signal operations and, where there are collectives, one that needs all ranks. */
enum { OP_BROADCAST = OP_COUNT };

static int last_op(const struct tk *t) {
    return (t->capabilities & COLLECTIVES) == COLLECTIVES ? OP_BROADCAST : OP_COUNT - 1;
}

/* Enqueues the operation behind the gate. */
static void hold_back(struct tk *t, symmem_handle *handle, int op, int32_t peer, int32_t channel,
                      uint32_t limit_ms, symmem_stream *stream, struct gate *gate) {
    const DLTensor *tensor = FLAT(ops_own(t, handle), SYMMEM_INT32, 16);
    tk_checkpoint(t, "%s", op == OP_BROADCAST ? "broadcast" : op_name((enum signal_op)op));
    hold(t, stream, gate);
    if (op == OP_BROADCAST)
        TK_OK(t, symmem_broadcast(handle, tensor, 0, channel, limit_ms, stream));
    else
        TK_OK(t, run_op(handle, (enum signal_op)op, peer, channel, limit_ms, stream));
}

/* Each was enqueued while all was well and would succeed at once; another stream's failure comes
 * before it begins. A group of one, in which nobody else is needed. */
TK_TEST(stream, begun_after_a_poison_is_poisoned, "SM-TIMEOUT-04,SM-TIMEOUT-14", .needs = STREAM_FN,
        .max_ranks = 2) {
    symmem_group *group = tk_group(t, "alone", &t->rank, 1);
    for (int op = 0; op <= last_op(t); op++) {
        symmem_handle *handle = tk_handle(t, 64, group);
        symmem_stream *stream = tk_stream(t);
        struct gate gate = {0};
        if (op == OP_WAIT)
            TK_OK(t, symmem_put_signal(handle, 0, 1, LONG_MS, NULL));
        hold_back(t, handle, op, 0, 1, LONG_MS, stream, &gate);
        poison_own(t, handle, 2);
        gate_open(&gate);
        TK_FAILS(t, POISONED, symmem_stream_synchronize(stream, LONG_MS));
    }
    work_after(t, NULL);
}

/* The gates open when the limit has passed since the call, where all ranks wait for each other on
 * rank 1 a moment later: then rank 0's work has still to wait when it begins. */
static void held_back_for_long(struct tk *t, int op, uint32_t limit_ms) {
    bool for_all = op == OP_BARRIER || op == OP_BROADCAST;
    int32_t peer = 1 - t->rank, channel = for_all ? 3 : t->rank; /* of one each: they take turns */
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    symmem_stream *stream = tk_stream(t);
    struct gate gate = {0};
    if (op == OP_PUT)
        make_unsatisfied(t, handle, OP_PUT, peer, channel);
    hold_back(t, handle, op, peer, channel, limit_ms, stream, &gate);
    tk_sleep_ms(limit_ms + 5);
    tk_out_of_band_barrier(t);
    if (for_all && t->rank == 1)
        tk_sleep_ms(20);
    gate_open(&gate);
    tk_sleep_ms(20);
    if (op == OP_WAIT)
        TK_OK(t, symmem_put_signal(handle, peer, peer, LONG_MS, NULL));
    for (int i = 0; op == OP_PUT && i < 2; i++) /* the one that was in its way, and itself */
        TK_OK(t, symmem_wait_signal(handle, peer, peer, LONG_MS, NULL));
    tk_synchronize(t, stream);
    TK_CHECK(t, !info_of(t, handle).poisoned);
    tk_out_of_band_barrier(t);
}

/* The limit counts from the moment the operation begins to run, not from the call: each is held
 * back for longer than its limit, and has still to wait when it begins. */
TK_TEST(stream, limit_counts_from_the_start_of_work, "SM-TIMEOUT-03", .needs = STREAM_FN,
        .ranks = {2, 2}) {
    for (int op = 0; op <= last_op(t); op++)
        held_back_for_long(t, op, tk_limit_ms(t, 250));
}
