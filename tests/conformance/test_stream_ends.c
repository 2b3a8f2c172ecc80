/* SPDX-License-Identifier: BSD-3-Clause */
/* What becomes of work whose stream or handle goes before it has run. */
#include <dirent.h>

#include "case_help.h"
#include "timeout_help.h"

/* Enqueues on a held stream: data to the next rank, a barrier, and the way back of what came. */
static void enqueue_exchange(struct tk *t, symmem_handle *handle, symmem_stream *stream,
                             const uint32_t *value, uint32_t *seen) {
    TK_OK(t, symmem_put(handle, t->next, 128, value, 4, stream));
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, stream));
    TK_OK(t, symmem_get(handle, t->rank, 128, seen, 4, stream));
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, stream));
}

/* Handle and group, which keeps what its handles had, go while the work is held back; what they
 * needed would be there to have again. */
TK_TEST(stream, work_outlives_its_handle, "SM-STREAM-23", .needs = STREAM_FN, .max_ranks = 4) {
    symmem_stream *stream = tk_stream(t);
    struct gate gate = {0};
    uint32_t value = 1000u + (uint32_t)t->rank;
    uint32_t seen = 0;
    void *ptr = tk_alloc(t, 4096);
    symmem_group *group = tk_group(t, "short", NULL, 0);
    symmem_handle *handle = tk_rendezvous(t, ptr, group);
    hold(t, stream, &gate);
    enqueue_exchange(t, handle, stream, &value, &seen);
    tk_release(t, handle);
    tk_group_destroy(t, group);
    symmem_handle *fresh = tk_handle(t, 4096, tk_world_group(t));
    tk_out_of_band_barrier(t);
    gate_open(&gate);
    tk_synchronize(t, stream);
    TK_EQ_INT(t, 1000 + t->previous, seen);
    tk_expect_bytes(t, fresh, t->rank, 0, 4096, 0);
    TK_OK(t, symmem_barrier(fresh, 0, LONG_MS, NULL));
}

/* What is enqueued and what it says once it has run. */
struct rest {
    struct gate gates[2];
    struct step_log log;
    struct step steps[2];
    uint32_t from[2], to[2];
};

static bool step_reached(struct step_log *log, int count) {
    uint64_t end_ms = tk_now_ms() + tk_scaled_ms(5000);
    while (steps_done(log) < count && tk_now_ms() < end_ms)
        tk_sleep_ms(1);
    return steps_done(log) == count;
}

/* Two held stretches of work, with memory of the context and without, with an event in each. */
static void enqueue_rest(struct tk *t, symmem_context *context, void *ptr, symmem_stream *stream,
                         struct rest *rest) {
    symmem_event *event = NULL;
    TK_OK(t, symmem_event_create(context, -1, &event));
    for (int i = 0; i < 2; i++) {
        rest->from[i] = 100u + (uint32_t)i;
        hold(t, stream, &rest->gates[i]);
        let_follow(t, stream, event, stream);
        if (i == 0) {
            TK_OK(t, symmem_copy(context, ptr, &rest->from[i], 4, stream));
            TK_OK(t, symmem_copy(context, &rest->to[i], ptr, 4, stream));
        } else {
            TK_OK(t, symmem_copy(context, &rest->to[i], &rest->from[i], 4, stream));
        }
        enqueue_step(t, stream, &rest->steps[i], &rest->log, i + 1);
    }
    TK_OK(t, symmem_event_record(event, stream));
    symmem_event_destroy(event);
}

/* A context whose streams and graphs are soon given up. No point function: it would be asked until
 * the work has ended. */
static symmem_context *hasty_context(struct tk *t) {
    symmem_context_options options = tk_options(t);
    symmem_context *context = NULL;
    options.default_timeout_ms = 20;
    options.point = NULL;
    TK_REQUIRE_OK(t, symmem_init(&options, &context));
    TK_REQUIRE_OK(t, symmem_set_backend(context, t->backend));
    return context;
}

/* A step behind a gate on a stream that was not to be destroyed in time. */
struct held_step {
    struct gate gate;
    struct step_log log;
    struct step step;
};

static void give_up_held_step(struct tk *t, symmem_context *context, struct held_step *held) {
    symmem_stream *stream = NULL;
    TK_REQUIRE_OK(t, symmem_stream_create(context, -1, &stream));
    hold(t, stream, &held->gate);
    enqueue_step(t, stream, &held->step, &held->log, 1);
    TK_FAILS(t, TIMEOUT, symmem_stream_destroy(stream));
}

static void open_held_step(struct tk *t, struct held_step *held) {
    gate_open(&held->gate);
    TK_CHECK_MSG(t, step_reached(&held->log, 1), "the stream's work never ran to its end");
}

/* Destroying waits for a while and then gives up: what is enqueued runs nevertheless. */
TK_TEST(stream, destroyed_in_vain, "SM-STREAM-17,SM-LIFE-09", .needs = STREAM_FN, .max_ranks = 1) {
    struct held_step held = {.log = {0}};
    symmem_context *context = hasty_context(t);
    give_up_held_step(t, context, &held);
    open_held_step(t, &held);
    TK_OK(t, symmem_finalize(context));
    symmem_context_free(context);
}

/* By their numbers: one of an earlier case's may still be ending, and is not to stand for one that
 * this case has left. */
struct threads {
    int count;
    int ids[256];
};

static struct threads threads_now(void) {
    struct threads now = {0};
    DIR *listing = opendir("/proc/self/task");
    for (const struct dirent *entry; listing != NULL && (entry = readdir(listing)) != NULL;)
        if (entry->d_name[0] != '.' && now.count < (int)TK_COUNT(now.ids))
            now.ids[now.count++] = atoi(entry->d_name);
    if (listing != NULL)
        closedir(listing);
    return now;
}

/* Once the driver has those that it keeps. */
static struct threads settled_threads(struct tk *t) {
    (void)tk_stream(t);
    return threads_now();
}

static int count_new(const struct threads *before) {
    const struct threads now = threads_now();
    int count = 0;
    for (int i = 0; i < now.count; i++) {
        int at = 0;
        while (at < before->count && before->ids[at] != now.ids[i])
            at++;
        count += at == before->count;
    }
    return count;
}

/* Nothing else says that the context's end is over, and the runner looks at what is left. */
static void await_threads(struct tk *t, const struct threads *before) {
    uint64_t end_ms = tk_now_ms() + tk_limit_ms(t, 5000);
    while (count_new(before) > 0 && tk_now_ms() < end_ms)
        tk_sleep_ms(1);
    TK_CHECK_MSG(t, count_new(before) == 0, "%d threads are left", count_new(before));
}

/* The context has gone. Each stretch runs when its gate opens, and no sooner. */
static void expect_rest(struct tk *t, struct rest *rest) {
    for (int i = 0; i < 2; i++) {
        TK_EQ_INT(t, i, steps_done(&rest->log));
        TK_EQ_INT(t, 0, rest->to[i]);
        gate_open(&rest->gates[i]);
        TK_CHECK_MSG(t, step_reached(&rest->log, i + 1), "the stream's work never ran to its end");
        TK_EQ_INT(t, i + 1, rest->log.order[i]);
        TK_EQ_INT(t, rest->from[i], rest->to[i]);
    }
}

/* Host functions and events alone: nothing of the context is in them. */
TK_TEST(stream, host_functions_outlive_their_context, "SM-LIFE-13,SM-STREAM-17", .needs = STREAM_FN,
        .max_ranks = 1) {
    struct held_step held = {.log = {0}};
    const struct threads threads = settled_threads(t);
    symmem_context *context = hasty_context(t);
    give_up_held_step(t, context, &held);
    symmem_context_free(context);
    TK_CHECK_MSG(t, steps_done(&held.log) == 0 && !held.gate.timed_out,
                 "the context's end, and with it the backend's close, waited for a host function "
                 "that does not return");
    open_held_step(t, &held);
    await_threads(t, &threads);
}

/* The rest on a stream of its own, forked from `stream` and joined to it. */
static void capture_rest(struct tk *t, symmem_context *context, void *ptr, symmem_stream *stream,
                         struct rest *rest, symmem_graph **graph_p) {
    symmem_stream *side = NULL;
    symmem_event *event = NULL;
    TK_REQUIRE_OK(t, symmem_stream_create(context, -1, &side));
    TK_REQUIRE_OK(t, symmem_event_create(context, -1, &event));
    TK_OK(t, symmem_stream_begin_capture(stream));
    let_follow(t, side, event, stream);
    enqueue_rest(t, context, ptr, side, rest);
    let_follow(t, stream, event, side);
    TK_REQUIRE_OK(t, symmem_stream_end_capture(stream, graph_p));
    symmem_event_destroy(event);
    TK_OK(t, symmem_stream_destroy(side));
}

/* The rest is work of a stream, or `is_launched` on it. */
static void outlive_context(struct tk *t, bool is_launched) {
    symmem_stream *stream = NULL;
    symmem_graph *graph = NULL;
    struct rest rest = {.log = {0}};
    void *ptr = NULL;
    const struct threads threads = settled_threads(t);
    symmem_context *context = hasty_context(t);
    TK_REQUIRE_OK(t, symmem_alloc(context, 4096, -1, NULL, &ptr));
    TK_REQUIRE_OK(t, symmem_stream_create(context, -1, &stream));
    if (is_launched) {
        capture_rest(t, context, ptr, stream, &rest, &graph);
        TK_OK(t, symmem_graph_launch(graph, stream));
    } else {
        enqueue_rest(t, context, ptr, stream, &rest);
    }
    TK_FAILS(t, TIMEOUT, symmem_stream_destroy(stream));
    if (is_launched)
        TK_FAILS(t, TIMEOUT, symmem_graph_destroy(graph));
    symmem_context_free(context);
    TK_OK(t, symmem_graph_destroy(graph));
    expect_rest(t, &rest);
    await_threads(t, &threads);
}

/* A program that gives up a stream may go on to give up the context, and its work runs all the
 * same.
 */
TK_TEST(stream, work_outlives_its_context, "SM-LIFE-13,SM-STREAM-17", .needs = STREAM_FN,
        .max_ranks = 1) {
    outlive_context(t, false);
}

/* As work of a stream; and the graph itself is given up before the context and freed after it. */
TK_TEST(stream, launch_outlives_its_context, "SM-LIFE-13,SM-STREAM-17",
        .needs = STREAM_FN | SYMMEM_CAP_CAPTURE, .max_ranks = 1) {
    outlive_context(t, true);
}
