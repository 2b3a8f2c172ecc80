/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams whose work fails: when its limit begins, what runs behind it, and who is told. */
#include "ops_help.h"
#include "timeout_help.h"
#include "work_after.h"

#define STREAM_FN (SYMMEM_CAP_STREAMS | SYMMEM_CAP_HOST_FN)

/* While a gate is closed a body must not leave: checks only, no REQUIRE. */

static bool has_collectives(const struct tk *t) {
    return (t->capabilities & COLLECTIVES) == COLLECTIVES;
}

/* A collective on `channel` that needs all of the handle's ranks. */
static void enqueue_broadcast(struct tk *t, symmem_handle *handle, int32_t channel,
                              uint32_t limit_ms, symmem_stream *stream) {
    const DLTensor *tensor = FLAT(ops_own(t, handle), SYMMEM_INT32, 16);
    TK_OK(t, symmem_broadcast(handle, tensor, 0, channel, limit_ms, stream));
}

/* --- what a failure leaves alone -------------------------------------------------------------- */

/* A synchronisation that ends too early forgets no failure. */
TK_TEST(stream, failure_outlasts_a_timeout, "SM-STREAM-03,SM-TIMEOUT-14", .needs = STREAM_FN,
        .max_ranks = 2) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    symmem_stream *stream = tk_stream(t);
    struct gate gate = {0};
    TK_OK(t, symmem_wait_signal(handle, t->rank, 2, 20, stream));
    TK_OK(t, symmem_stream_host_fn(stream, gate_fn, &gate));
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
    struct step step = {.log = &log, .number = 1};
    uint8_t from[16], to[16] = {0};
    memset(from, 0x7A, sizeof(from));
    TK_OK(t, symmem_wait_signal(handle, t->rank, 2, 20, stream));
    TK_OK(t, symmem_copy(t->context, to, from, sizeof(from), stream));
    TK_OK(t, symmem_stream_host_fn(stream, step_fn, &step));
    TK_FAILS(t, TIMEOUT, symmem_stream_synchronize(stream, LONG_MS));
    TK_EQ_INT(t, 1, steps_done(&log));
    TK_CHECK_MSG(t, memcmp(from, to, sizeof(from)) == 0,
                 "the copy behind an operation that failed did not run");
    work_after(t, stream);
}

/* --- what begins after a poisoning ------------------------------------------------------------ */

/* The stream's work waits for the gate; another failure comes first. */
static void expect_poisoned(struct tk *t, symmem_handle *handle, symmem_stream *stream,
                            struct gate *gate) {
    poison_own(t, handle, 2);
    gate_open(gate);
    TK_FAILS(t, POISONED, symmem_stream_synchronize(stream, LONG_MS));
}

static void begun_after_a_poison(struct tk *t, symmem_group *group, enum signal_op op) {
    symmem_handle *handle = tk_handle(t, 64, group);
    symmem_stream *stream = tk_stream(t);
    struct gate gate = {0};
    tk_checkpoint(t, "%s", op_name(op));
    if (op == OP_WAIT)
        TK_OK(t, symmem_put_signal(handle, 0, 1, LONG_MS, NULL));
    TK_OK(t, symmem_stream_host_fn(stream, gate_fn, &gate));
    TK_OK(t, run_op(handle, op, 0, 1, LONG_MS, stream));
    expect_poisoned(t, handle, stream, &gate);
}

static void collective_begun_after_a_poison(struct tk *t, symmem_group *group) {
    symmem_handle *handle = tk_handle(t, 64, group);
    symmem_stream *stream = tk_stream(t);
    struct gate gate = {0};
    tk_checkpoint(t, "broadcast");
    TK_OK(t, symmem_stream_host_fn(stream, gate_fn, &gate));
    enqueue_broadcast(t, handle, 1, LONG_MS, stream);
    expect_poisoned(t, handle, stream, &gate);
}

/* Each was enqueued while all was well and would succeed at once; another stream's failure comes
 * before it begins. A group of one, in which nobody else is needed. */
TK_TEST(stream, begun_after_a_poison_is_poisoned, "SM-TIMEOUT-04,SM-TIMEOUT-14", .needs = STREAM_FN,
        .max_ranks = 2) {
    symmem_group *group = tk_group(t, "alone", &t->rank, 1);
    for (enum signal_op op = OP_BARRIER; op < OP_COUNT; op++)
        begun_after_a_poison(t, group, op);
    if (has_collectives(t))
        collective_begun_after_a_poison(t, group);
    work_after(t, NULL);
}

/* --- when a limit begins ---------------------------------------------------------------------- */

/* Opens the gate when the limit has passed since the call, on rank 1 a moment later if it is
 * `late`: then rank 0's work has still to wait when it begins. */
static void open_after_the_limit(struct tk *t, uint32_t limit_ms, bool late, struct gate *gate) {
    tk_sleep_ms(limit_ms + 5);
    tk_out_of_band_barrier(t);
    if (late && t->rank == 1)
        tk_sleep_ms(20);
    gate_open(gate);
}

static void held_back(struct tk *t, enum signal_op op, uint32_t limit_ms) {
    int32_t peer = 1 - t->rank;
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    symmem_stream *stream = tk_stream(t);
    struct gate gate = {0};
    int32_t channel = op == OP_BARRIER ? 3 : t->rank; /* of one each, for they take turns */
    tk_checkpoint(t, "%s", op_name(op));
    make_unsatisfied(t, handle, op, peer, channel);
    TK_OK(t, symmem_stream_host_fn(stream, gate_fn, &gate));
    TK_OK(t, run_op(handle, op, peer, channel, limit_ms, stream));
    open_after_the_limit(t, limit_ms, op == OP_BARRIER, &gate);
    tk_sleep_ms(20);
    if (op == OP_WAIT)
        TK_OK(t, symmem_put_signal(handle, peer, peer, LONG_MS, NULL));
    for (int i = 0; op == OP_PUT && i < 2; i++) /* the one that was in its way, and itself */
        TK_OK(t, symmem_wait_signal(handle, peer, peer, LONG_MS, NULL));
    tk_synchronize(t, stream);
    TK_CHECK(t, !info_of(t, handle).poisoned);
    tk_out_of_band_barrier(t);
}

static void collective_held_back(struct tk *t, uint32_t limit_ms) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    symmem_stream *stream = tk_stream(t);
    struct gate gate = {0};
    tk_checkpoint(t, "broadcast");
    TK_OK(t, symmem_stream_host_fn(stream, gate_fn, &gate));
    enqueue_broadcast(t, handle, 1, limit_ms, stream);
    open_after_the_limit(t, limit_ms, true, &gate);
    tk_synchronize(t, stream);
    TK_CHECK(t, !info_of(t, handle).poisoned);
}

/* The limit counts from the moment the operation begins to run, not from the call: each is held
 * back for longer than its limit, and has still to wait when it begins. */
TK_TEST(stream, limit_counts_from_the_start_of_work, "SM-TIMEOUT-03", .needs = STREAM_FN,
        .ranks = {2, 2}) {
    uint32_t limit_ms = tk_limit_ms(t, 250);
    for (enum signal_op op = OP_BARRIER; op < OP_COUNT; op++)
        held_back(t, op, limit_ms);
    if (has_collectives(t))
        collective_held_back(t, limit_ms);
}
