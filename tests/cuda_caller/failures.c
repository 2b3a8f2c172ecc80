/* SPDX-License-Identifier: BSD-3-Clause */
/* Failures in launches that the library does not know of. */
#include <stdio.h>
#include <unistd.h>

#include "caller.h"

#define SHORT_MS 300u
#define CHANNEL 2

static CUgraphExec capture_barrier(struct caller *c, uint32_t limit_ms, CUgraph *graph_p) {
    need_driver(c, "a capture",
                c->driver.StreamBeginCapture(c->native, CU_STREAM_CAPTURE_MODE_GLOBAL));
    need(c, "barrier", symmem_barrier(c->handle, CHANNEL, limit_ms, c->stream));
    return end_capture(c, graph_p);
}

static void expect_failure(struct caller *c, symmem_status wanted, double least_s, double most_s,
                           double begin_s) {
    const bool ended = is_idle_in(c, 10000);
    const double took_s = now_s() - begin_s;
    expect(c, "the launch", ended && took_s >= least_s && took_s < most_s, "%s after %.3f s",
           ended ? "ends" : "DOES NOT END", took_s);
    symmem_status told = symmem_stream_synchronize(c->stream, LIMIT_MS);
    symmem_error_record record;
    symmem_last_error(&record);
    /* Another rank's failure may have been here before the launch. */
    const bool followed = c->world > 2 && told == SYMMEM_POISONED;
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
    CUgraphExec executable = capture_barrier(c, SHORT_MS, &graph);
    for (int turn = 0; turn < 2; turn++) {
        meet(c);
        if (c->rank != c->world - 1) {
            const double begin_s = now_s();
            launch(c, executable);
            expect_failure(c, SYMMEM_TIMEOUT, SHORT_MS * 1e-3, 5, begin_s);
        }
        meet(c);
        expect_status(c, "reset", symmem_handle_reset(c->handle, LIMIT_MS), SYMMEM_OK);
    }
    launch(c, executable);
    expect(c, "a launch of all", is_idle_in(c, 10000), "ends");
    expect_status(c, "what its stream says", symmem_stream_synchronize(c->stream, LIMIT_MS),
                  SYMMEM_OK);
    end_graph(c, graph, executable);
}

/* The last rank ends. */
static void lost(struct caller *c) {
    CUgraph graph = NULL;
    CUgraphExec executable = capture_barrier(c, LIMIT_MS, &graph);
    meet(c);
    if (c->rank == c->world - 1) {
        fflush(stdout);
        _exit(c->bad == 0 ? 0 : 1);
    }
    const double begin_s = now_s();
    launch(c, executable);
    expect_failure(c, SYMMEM_PEER_LOST, 0, 1 + 1, begin_s); /* the other has to end first */
    end_graph(c, graph, executable);
}

void check_failures(struct caller *c) {
    if (c->world == 1)
        return;
    late(c);
    lost(c);
}
