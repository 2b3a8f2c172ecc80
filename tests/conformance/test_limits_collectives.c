/* SPDX-License-Identifier: BSD-3-Clause */
/* What every collective checks before it looks at its tensors: handle, channel, stream; and the
 * tensor that it cannot do without. */
#include "limits_help.h"
#include "ops_help.h"

#define LIMIT_MS 2000u

/* How all of them are called, and what all must answer. */
struct call {
    symmem_handle *handle;
    int32_t channel;
    symmem_stream *stream;
    symmem_status expected;
    const char *words; /* of the record's message; "": any */
};

static void answer(struct tk *t, const struct call *call, symmem_status status, const char *name,
                   int line) {
    symmem_error_record record = last_record();

    tk_status_at(t, call->expected, status, name, "limits", line);
    tk_check_at(t, record.status == status && strstr(record.message, call->words) != NULL, "limits",
                line, "%s: the record says %s: %s", name, symmem_status_name(record.status),
                record.message);
    symmem_clear_error();
}

static void call_reductions(struct tk *t, const struct call *c) {
    DLManagedTensor *made = UNTOUCHED_POINTER;
    symmem_handle *h = c->handle;
    const symmem_reduce_op op = SYMMEM_SUM;
    const int32_t at = c->channel;
    symmem_stream *s = c->stream;

    answer(t, c, symmem_one_shot_all_reduce(h, NULL, op, at, LIMIT_MS, s, &made),
           "one_shot_all_reduce", __LINE__);
    answer(t, c, symmem_one_shot_all_reduce_out(h, NULL, op, NULL, at, LIMIT_MS, s),
           "one_shot_all_reduce_out", __LINE__);
    answer(t, c, symmem_one_shot_all_reduce_copy(h, NULL, NULL, op, at, LIMIT_MS, s, &made),
           "one_shot_all_reduce_copy", __LINE__);
    answer(t, c, symmem_one_shot_all_reduce_copy_out(h, NULL, NULL, op, NULL, at, LIMIT_MS, s),
           "one_shot_all_reduce_copy_out", __LINE__);
    answer(t, c, symmem_two_shot_all_reduce(h, NULL, op, at, LIMIT_MS, s), "two_shot_all_reduce",
           __LINE__);
    answer(t, c, symmem_two_shot_all_reduce_out(h, NULL, op, NULL, at, LIMIT_MS, s),
           "two_shot_all_reduce_out", __LINE__);
    answer(t, c, symmem_reduce_scatter_out(h, NULL, op, false, NULL, at, LIMIT_MS, s),
           "reduce_scatter_out", __LINE__);
    answer(t, c, symmem_low_contention_reduce_scatter(h, NULL, op, NULL, at, LIMIT_MS, s),
           "low_contention_reduce_scatter", __LINE__);
    answer(t, c, symmem_all_reduce(h, NULL, op, NULL, at, LIMIT_MS, s), "all_reduce", __LINE__);
    TK_CHECK(t, (void *)made == UNTOUCHED_POINTER || made == NULL);
}

static void call_moves(struct tk *t, const struct call *c) {
    symmem_handle *h = c->handle;
    const int32_t at = c->channel;
    symmem_stream *s = c->stream;

    answer(t, c, symmem_all_gather_out(h, NULL, NULL, at, LIMIT_MS, s), "all_gather_out", __LINE__);
    answer(t, c, symmem_broadcast(h, NULL, 0, at, LIMIT_MS, s), "broadcast", __LINE__);
    answer(t, c, symmem_all_to_all_out(h, NULL, NULL, NULL, NULL, at, LIMIT_MS, s),
           "all_to_all_out", __LINE__);
    answer(t, c, symmem_low_contention_all_gather_out(h, NULL, NULL, at, LIMIT_MS, s),
           "low_contention_all_gather_out", __LINE__);
}

static void call_multicast(struct tk *t, const struct call *c) {
    DLManagedTensor *made = UNTOUCHED_POINTER;
    symmem_handle *h = c->handle;
    const symmem_reduce_op op = SYMMEM_SUM;
    const int32_t at = c->channel;
    symmem_stream *s = c->stream;

    answer(t, c, symmem_multimem_all_reduce(h, NULL, op, at, LIMIT_MS, s), "multimem_all_reduce",
           __LINE__);
    answer(t, c, symmem_multimem_one_shot_all_reduce_out(h, NULL, op, NULL, at, LIMIT_MS, s),
           "multimem_one_shot_all_reduce_out", __LINE__);
    answer(t, c, symmem_multimem_one_shot_all_reduce(h, NULL, op, at, LIMIT_MS, s, &made),
           "multimem_one_shot_all_reduce", __LINE__);
    answer(t, c, symmem_multimem_one_shot_reduce_out(h, NULL, op, 0, NULL, at, LIMIT_MS, s),
           "multimem_one_shot_reduce_out", __LINE__);
    answer(t, c, symmem_multimem_all_gather_out(h, NULL, NULL, at, LIMIT_MS, s),
           "multimem_all_gather_out", __LINE__);
    answer(t, c, symmem_low_contention_all_gather_ce_multicast_out(h, NULL, NULL, at, LIMIT_MS, s),
           "low_contention_all_gather_ce_multicast_out", __LINE__);
    answer(t, c, symmem_low_contention_all_gather_ce_multicast(h, NULL, at, LIMIT_MS, s, &made),
           "low_contention_all_gather_ce_multicast", __LINE__);
    TK_CHECK(t, (void *)made == UNTOUCHED_POINTER || made == NULL);
}

static void arguments_of(struct tk *t, void (*calls)(struct tk *t, const struct call *call)) {
    symmem_handle *handle = tk_handle(t, 256, tk_world_group(t));
    const int32_t channels = info_of(t, handle).channel_count;
    const int32_t bad[] = {-1, channels, INT32_MIN, INT32_MAX};

    TK_REQ(t, "SM-COLL-02");
    for (int i = 0; i < 4; i++)
        calls(t, &(struct call){handle, bad[i], NULL, SYMMEM_OUT_OF_RANGE, "channel"});
    calls(t, &(struct call){handle, 0, NULL, SYMMEM_INVALID_ARGUMENT, ""}); /* no tensor */
    TK_REQ(t, "SM-ERROR-08");
    calls(t, &(struct call){NULL, 0, NULL, SYMMEM_INVALID_ARGUMENT, "handle"});
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    tk_expect_bytes(t, handle, t->rank, 0, 256, 0);
}

TK_TEST(limits, collective_reductions, "SM-COLL-02,SM-ERROR-08", .needs = COLLECTIVES,
        .ranks = {2, 2}) {
    arguments_of(t, call_reductions);
}

TK_TEST(limits, collective_moves, "SM-COLL-02,SM-ERROR-08", .needs = COLLECTIVES, .ranks = {2, 2}) {
    arguments_of(t, call_moves);
}

TK_TEST(limits, collective_multicast, "SM-COLL-02,SM-ERROR-08",
        .needs = COLLECTIVES | SYMMEM_CAP_MULTICAST, .ranks = {2, 2}) {
    if (multicast_allowed(t))
        arguments_of(t, call_multicast);
}

TK_TEST(limits, collective_streams, "SM-STREAM-16", .needs = COLLECTIVES | SYMMEM_CAP_STREAMS,
        .ranks = {2, 2}) {
    symmem_context *alone = context_alone(t);
    symmem_handle *handle = tk_handle(t, 256, tk_world_group(t));
    symmem_stream *theirs = NULL;

    TK_REQUIRE(t, alone != NULL);
    TK_REQUIRE_OK(t, symmem_stream_create(alone, 0, &theirs));
    const struct call call = {handle, 0, theirs, SYMMEM_INVALID_ARGUMENT, "another context"};
    call_reductions(t, &call);
    call_moves(t, &call);
    if (info_of(t, handle).multicast_ptr != NULL)
        call_multicast(t, &call);
    TK_OK(t, symmem_stream_destroy(theirs));
    symmem_context_free(alone);
}

TK_TEST(limits, collective_finalised, "SM-CONTEXT-05", .needs = COLLECTIVES, .ranks = {2, 2}) {
    symmem_handle *handle = tk_handle(t, 256, tk_world_group(t));
    const struct call call = {handle, 0, NULL, SYMMEM_NOT_INITIALISED, ""};

    tk_out_of_band_barrier(t);
    TK_OK(t, symmem_finalize(t->context));
    call_reductions(t, &call);
    call_moves(t, &call);
    call_multicast(t, &call);
}
