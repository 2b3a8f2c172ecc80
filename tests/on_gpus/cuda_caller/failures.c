/* SPDX-License-Identifier: BSD-3-Clause */
/* Failures in launches that the library does not know of. */
#include <unistd.h>

#include "caller.h"

#define SHORT_MS 300u
/* Of a graph whose launches are to succeed as well, with ranks that may begin so much apart. */
#define PATIENT_MS 1500u
#define CHANNEL 2

static CUgraphExec capture_barrier(struct caller *c, uint32_t limit_ms, CUgraph *graph_p) {
    begin_capture(c);
    need(c, "barrier", symmem_barrier(c->handle, CHANNEL, limit_ms, c->stream));
    return end_capture(c, graph_p);
}

static void expect_failure(struct caller *c, symmem_status wanted, double least_s, double most_s,
                           double begin_s) {
    const bool ended = is_idle_in(c, 10000);
    const double took_s = now_s() - begin_s;
    symmem_status told = symmem_stream_synchronize(c->stream, LIMIT_MS);
    symmem_error_record record;
    symmem_last_error(&record);
    /* Another rank's failure may have been here before the launch, or its limit over earlier. */
    const bool followed = c->world > 2 && told == SYMMEM_POISONED;
    expect(c, "the launch", ended && (followed || took_s >= least_s) && took_s < most_s,
           "%s after %.3f s", ended ? "ends" : "DOES NOT END", took_s);
    expect(c, "what its stream says",
           followed || (told == wanted && record.failed_rank == c->world - 1), "%s, rank %d: %s",
           symmem_status_name(told), (int)record.failed_rank, record.message);
    expect_status(c, "once", symmem_stream_synchronize(c->stream, LIMIT_MS), SYMMEM_OK);
    expect_status(c, "what its handle says", symmem_handle_status(c->handle, NULL),
                  followed ? SYMMEM_POISONED : wanted);
    expect_status(c, "the next call", symmem_barrier(c->handle, CHANNEL, LIMIT_MS, c->stream),
                  SYMMEM_POISONED);
}

/* The last rank does not launch. */
static void late(struct caller *c) {
    CUgraph graph = NULL;
    CUgraphExec executable = capture_barrier(c, PATIENT_MS, &graph);
    for (int turn = 0; turn < 2; turn++) {
        host_barrier(c);
        if (c->rank != c->world - 1) {
            const double begin_s = now_s();
            launch(c, executable);
            expect_failure(c, SYMMEM_TIMEOUT, PATIENT_MS * 1e-3, 5, begin_s);
        }
        host_barrier(c);
        expect_status(c, "reset", symmem_handle_reset(c->handle, LIMIT_MS), SYMMEM_OK);
    }
    launch(c, executable);
    expect(c, "a launch of all", is_idle_in(c, 10000), "ends");
    expect_status(c, "what its stream says", symmem_stream_synchronize(c->stream, LIMIT_MS),
                  SYMMEM_OK);
    end_graph(c, graph, executable);
}

/* --- a failed launch, and what follows from it ------------------------------------------------ */

/* What is enqueued or called behind or beside the launch. Returns what is told first. */
typedef symmem_status (*follow_fn)(struct caller *c, CUgraphExec executable);

static symmem_status told(struct caller *c) {
    return symmem_stream_synchronize(c->stream, LIMIT_MS);
}

static symmem_status eager_behind(struct caller *c, CUgraphExec executable) {
    launch(c, executable);
    need(c, "behind it", symmem_barrier(c->handle, CHANNEL + 1, LIMIT_MS, c->stream));
    return told(c);
}

static symmem_status graph_behind(struct caller *c, CUgraphExec executable) {
    symmem_graph *graph = NULL;
    need(c, "a capture of the library's", symmem_stream_begin_capture(c->stream));
    need(c, "barrier", symmem_barrier(c->handle, CHANNEL + 1, LIMIT_MS, c->stream));
    need(c, "its end", symmem_stream_end_capture(c->stream, &graph));
    launch(c, executable);
    need(c, "behind it", symmem_graph_launch(graph, c->stream));
    symmem_status status = told(c);
    (void)told(c);
    need(c, "its end", symmem_graph_destroy(graph));
    return status;
}

/* The follower's graph is gone before anybody has looked. */
static symmem_status gone_behind(struct caller *c, CUgraphExec executable) {
    CUgraph graph = NULL;
    CUgraphExec other = capture_barrier(c, LIMIT_MS, &graph);
    launch(c, executable);
    launch(c, other);
    (void)is_idle_in(c, 10000);
    end_graph(c, graph, other);
    return told(c);
}

static symmem_status call_beside(struct caller *c, CUgraphExec executable) {
    launch(c, executable);
    expect_status(c, "a call beside it", symmem_barrier(c->handle, CHANNEL + 1, LIMIT_MS, NULL),
                  SYMMEM_POISONED);
    return told(c);
}

/* The last rank does not take part. The cause is told, and before what follows from it. */
static void order(struct caller *c) {
    static const struct {
        const char *what;
        follow_fn follow;
    } kinds[] = {{"an operation behind a failed launch", eager_behind},
                 {"a graph of the library's behind it", graph_behind},
                 {"another graph behind it", gone_behind},
                 {"a call beside it", call_beside}};
    CUgraph graph = NULL;
    CUgraphExec executable = capture_barrier(c, SHORT_MS, &graph);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        host_barrier(c);
        if (c->rank != c->world - 1) {
            symmem_status status = kinds[i].follow(c, executable);
            symmem_status cause = symmem_handle_status(c->handle, NULL);
            /* With more ranks the cause may be another one's. */
            const bool followed = c->world > 2 && status == SYMMEM_POISONED && cause == status;
            expect(c, kinds[i].what, followed || (status == SYMMEM_TIMEOUT && cause == status),
                   "%s, its handle %s", symmem_status_name(status), symmem_status_name(cause));
            (void)told(c);
        }
        host_barrier(c);
        need(c, "reset", symmem_handle_reset(c->handle, LIMIT_MS));
    }
    end_graph(c, graph, executable);
}

/* Calls that differ harm nothing, and are told in each launch. */
static void apart(struct caller *c) {
    struct vector in, out;
    CUgraph graph = NULL;
    int told_apart = 0;
    begin_capture(c);
    need(c, "calls that differ",
         c->rank == 0 ? symmem_barrier(c->handle, CHANNEL, LIMIT_MS, c->stream)
                      : symmem_one_shot_all_reduce_out(c->handle, vector(&in, c->memory, COUNT),
                                                       SYMMEM_SUM, vector(&out, c->out, COUNT),
                                                       CHANNEL, LIMIT_MS, c->stream));
    CUgraphExec executable = end_capture(c, &graph);
    for (int turn = 0; turn < 3; turn++) {
        host_barrier(c);
        launch(c, executable);
        (void)is_idle_in(c, 10000);
        told_apart += told(c) == SYMMEM_MISMATCH;
    }
    expect(c, "calls that differ", told_apart == 3, "told in %d of 3 launches", told_apart);
    expect_status(c, "their handle", symmem_handle_status(c->handle, NULL), SYMMEM_OK);
    end_graph(c, graph, executable);
}

/* Waits for a signal that no rank raises. */
static CUgraphExec capture_wait(struct caller *c, int32_t channel, uint32_t limit_ms,
                                CUgraph *graph_p) {
    begin_capture(c);
    need(c, "wait", symmem_wait_signal(c->handle, c->rank, channel, limit_ms, c->stream));
    return end_capture(c, graph_p);
}

static symmem_status follow_and_go(struct caller *c, struct caller *other, CUgraphExec cause) {
    CUgraph graph = NULL;
    CUgraphExec follower = capture_wait(other, CHANNEL + 1, LIMIT_MS, &graph);
    launch(c, cause);
    launch(other, follower);
    const bool ended = is_idle_in(c, 10000) && is_idle_in(other, 10000);
    end_graph(other, graph, follower);
    return ended ? told(other) : SYMMEM_TIMEOUT;
}

/* What follows on another stream, in a graph that is gone before anybody has looked: that stream
 * tells of it all the same. */
static void gone_beside(struct caller *c) {
    enum { TURNS = 3 };
    struct caller other = *c;
    CUgraph graph = NULL;
    need_driver(c, "stream", c->driver.StreamCreate(&other.native, CU_STREAM_NON_BLOCKING));
    need(c, "wrap", symmem_stream_wrap(c->context, c->device, other.native, &other.stream));
    CUgraphExec cause = capture_wait(c, CHANNEL, SHORT_MS, &graph);
    for (int turn = 0; turn < TURNS; turn++) {
        host_barrier(c);
        if (c->rank == 0) {
            symmem_status status = follow_and_go(c, &other, cause);
            expect(c, "a graph that is gone with what follows on another stream",
                   status == SYMMEM_POISONED, "%s", symmem_status_name(status));
            expect_status(c, "the cause", told(c), SYMMEM_TIMEOUT);
        }
        host_barrier(c);
        need(c, "reset", symmem_handle_reset(c->handle, LIMIT_MS));
    }
    end_graph(c, graph, cause);
    need(c, "its end", symmem_stream_destroy(other.stream));
    need_driver(c, "its end", c->driver.StreamDestroy(other.native));
}

/* A failure that was not asked for ends with the reset, except that the stream still reports its
 * own. */
static void reset_at_once(struct caller *c) {
    CUgraph graph = NULL;
    CUgraphExec executable = capture_barrier(c, PATIENT_MS, &graph);
    host_barrier(c);
    if (c->rank != c->world - 1) {
        launch(c, executable);
        (void)is_idle_in(c, 10000);
    }
    host_barrier(c);
    need(c, "reset", symmem_handle_reset(c->handle, LIMIT_MS));
    sleep_ms(50); /* what might come later is there by then */
    expect_status(c, "a handle that was reset at once", symmem_handle_status(c->handle, NULL),
                  SYMMEM_OK);
    symmem_status status = told(c);
    expect(c, "its stream",
           c->rank == c->world - 1 ? status == SYMMEM_OK
                                   : status == SYMMEM_TIMEOUT || status == SYMMEM_POISONED,
           "%s", symmem_status_name(status));
    host_barrier(c);
    launch(c, executable);
    expect_status(c, "its graph", told(c), SYMMEM_OK);
    end_graph(c, graph, executable);
}

/* A wrapper that ends within a capture waits for what it had been given before, and tells of it. */
static void before_a_capture(struct caller *c) {
    symmem_stream *stream = NULL;
    CUgraph graph = NULL;
    host_barrier(c);
    if (c->rank != c->world - 1) {
        need(c, "wrap", symmem_stream_wrap(c->context, c->device, c->native, &stream));
        need(c, "barrier", symmem_barrier(c->handle, CHANNEL, SHORT_MS, stream));
        need_driver(c, "a capture",
                    c->driver.StreamBeginCapture(c->native, CU_STREAM_CAPTURE_MODE_RELAXED));
        bool idle = true;
        need(c, "query", symmem_stream_query(stream, &idle));
        expect(c, "a stream that captures", !idle, "%s idle", idle ? "IS" : "is not");
        symmem_status status = symmem_stream_destroy(stream);
        expect(c, "work from before a capture",
               status == SYMMEM_TIMEOUT || (c->world > 2 && status == SYMMEM_POISONED), "%s",
               symmem_status_name(status));
        CUgraphExec executable = end_capture(c, &graph);
        end_graph(c, graph, executable);
    }
    host_barrier(c);
    need(c, "reset", symmem_handle_reset(c->handle, LIMIT_MS));
}

/* Those that are left: the same context, and the stream that has told of the loss. */
static void works_after(struct caller *c) {
    struct caller left = *c;
    int32_t ranks[64];
    for (int32_t rank = 0; rank < c->world - 1; rank++)
        ranks[rank] = rank;
    left.world = c->world - 1;
    need(c, "a group of those left",
         symmem_group_create(c->context, "left", ranks, left.world, NULL, &left.group));
    need(c, "its rendezvous",
         symmem_rendezvous(c->context, c->memory, left.group, LIMIT_MS, &left.handle));
    put_in(&left, 5);
    enqueue_sum(&left);
    const bool idle = is_idle_in(&left, (int)LIMIT_MS);
    expect(c, "a sum over those left", idle && came_out(&left, 5), "%s",
           idle ? "ends" : "DOES NOT END");
    expect_status(c, "what its stream says", told(&left), SYMMEM_OK);
    symmem_handle_release(left.handle);
    need(c, "its end", symmem_group_destroy(left.group));
}

/* The last rank ends. */
static void lost(struct caller *c, uint32_t limit_ms) {
    CUgraph graph = NULL;
    CUgraphExec executable = capture_barrier(c, limit_ms, &graph);
    host_barrier(c);
    if (c->rank == c->world - 1) {
        fflush(stdout);
        _exit(c->bad == 0 ? 0 : 1);
    }
    const double begin_s = now_s();
    launch(c, executable);
    /* A second, and the other has to end first, with its device. */
    expect_failure(c, SYMMEM_PEER_LOST, 0, c->world == 2 ? 2 : 5, begin_s);
    end_graph(c, graph, executable);
    works_after(c);
    check_current_lost(c);
}

/* Found out soon, without a call that looks for it. */
void check_lost(struct caller *c) {
    lost(c, 3000);
}

void check_failures(struct caller *c) {
    if (c->world == 1)
        return;
    late(c);
    apart(c);
    order(c);
    gone_beside(c);
    reset_at_once(c);
    before_a_capture(c);
    lost(c, LIMIT_MS);
}
