/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Streams, events and captured graphs. All calls are local. [SM-STREAM]
 *
 * A stream runs its operations in order, asynchronously to the caller. An event marks a point of a
 * stream. Between begin and end of a capture a stream records instead of running; other streams
 * join the capture by waiting for an event recorded in it and must be joined back before the end.
 * A graph keeps the memory that its operations use alive and may be launched any number of times,
 * one launch at a time: a launch waits for the one before it.
 * A backend without SYMMEM_CAP_STREAMS (or _CAPTURE, _HOST_FN, _WRAP_STREAM) answers UNSUPPORTED.
 * `device` -1 means local_rank modulo device count. Work on a stream is of the stream's device:
 * with a handle, an event to record or a graph of another one a call answers INVALID_ARGUMENT; a
 * stream may wait for an event of any device. [SM-STREAM-24] Operations that run as kernels take no
 * symmetric memory of another device than their own. [SM-STREAM-25]
 * The stream's next query or synchronization finds an operation that has failed. Without one a GPU
 * backend finds it some 10 ms later, or 30 ms where another failure may be the cause.
 * Threads: any, but begin and end of one stream's capture and its destruction one at a time.
 * Timeouts: milliseconds from the call, 0 = no limit, SYMMEM_TIMEOUT_DEFAULT = the context's.
 */
#ifndef SYMMEM_STREAM_H
#define SYMMEM_STREAM_H

#include <symmem/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A stream of the backend's own making. OUT_OF_RANGE: no such device. */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_stream_create(symmem_context *context,
                                                             int32_t device,
                                                             symmem_stream **stream_p);
/*
 * Borrows a stream of the backend's own kind, which must outlive the wrapper. The CUDA and NCCL
 * backends: a CUstream, not NULL (for the default stream CU_STREAM_LEGACY; CU_STREAM_PER_THREAD is
 * another stream in each thread, so its wrapper is for one thread). The emulation: UNSUPPORTED.
 * Operations with it are in order with the caller's own work.
 *
 * While the caller captures the stream by the device's own calls, operations become part of the
 * caller's graph. One thread at a time adds to a capture. symmem_stream_is_capturing is true, and
 * symmem_stream_end_capture, which ends the library's captures only, CAPTURE. What is captured
 * keeps what it uses until the graph and all that was instantiated of it are gone, beyond free,
 * release and the context's end. The library does not know of the graph's launches, so for those
 * - a failure is told by symmem_handle_status, and by symmem_stream_synchronize with the wrapper
 *   through which the capture was first used, if that still lives;
 * - symmem_handle_reset and symmem_free do not wait, nor are they BUSY;
 * - a context that ends while work which waits for peers is under way on a handle makes that work
 *   give up, and launches on that handle, then and later.
 */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_stream_wrap(symmem_context *context, int32_t device,
                                                           void *native, symmem_stream **stream_p);
/*
 * Waits for the stream's work, at most the context's default timeout, and ends the stream whatever
 * comes of that. Returns what symmem_stream_synchronize would: after a TIMEOUT the work goes on and
 * what it needs is given back when it ends. A capture that was begun is given up. NULL is allowed.
 */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_stream_destroy(symmem_stream *stream);
/*
 * Waits until all enqueued work has ended. Returns the first failure among that work since the last
 * call, with its record; TIMEOUT if the work did not end in time (the work goes on). CAPTURE while
 * capturing.
 */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_stream_synchronize(symmem_stream *stream,
                                                                  uint32_t timeout_ms);
/* *idle_p: no work is pending. Takes no failure away. */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_stream_query(symmem_stream *stream, bool *idle_p);
/* Runs fn(arg) in stream order. fn must not call symmem. arg must stay valid (graphs: for life). */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_stream_host_fn(symmem_stream *stream,
                                                              void (*fn)(void *arg), void *arg);

/* Marks nothing until it is recorded; each record moves it. */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_event_create(symmem_context *context, int32_t device,
                                                            symmem_event **event_p);
/* Streams that wait for it go on doing so. NULL is allowed. */
SYMMEM_API void symmem_event_destroy(symmem_event *event);
/* On a stream of the event's device. */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_event_record(symmem_event *event,
                                                            symmem_stream *stream);
/* Waits for what the event marks at the call: a later record does not move that. A never recorded
 * event counts as reached. */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_stream_wait_event(symmem_stream *stream,
                                                                 symmem_event *event);
/* Waits until the event is reached, at once where it was never recorded; TIMEOUT if that takes too
 * long. Tells no failure of the stream's. CAPTURE for an event whose last record was captured, as
 * from the query. */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_event_synchronize(symmem_event *event,
                                                                 uint32_t timeout_ms);
/* *reached_p: symmem_event_synchronize would not wait. */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_event_query(symmem_event *event, bool *reached_p);

/* From here to the end the stream records. CAPTURE if it does so already. Until then symmem_alloc
 * and a first rendezvous of this context are CAPTURE, on whatever thread. */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_stream_begin_capture(symmem_stream *stream);
/* On the stream that began it; CAPTURE, with the capture as it was, on another. CAPTURE if a forked
 * stream was not joined; the capture is over then, too. */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_stream_end_capture(symmem_stream *stream,
                                                                  symmem_graph **graph_p);
/* *capturing_p: it records, be it as one that joined a capture. */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_stream_is_capturing(symmem_stream *stream,
                                                                   bool *capturing_p);
/* Runs what was captured, in the order of a stream that does not capture itself (CAPTURE). Returns
 * when that is enqueued; its failures are told by the stream's synchronization. TIMEOUT if another
 * thread's launch of the graph keeps this one waiting for the context's default timeout. */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_graph_launch(symmem_graph *graph,
                                                            symmem_stream *stream);
/* Waits for launches under way, at most the context's default timeout: TIMEOUT with the graph as it
 * was, so call again. NULL is allowed. */
SYMMEM_API SYMMEM_CHECKED symmem_status symmem_graph_destroy(symmem_graph *graph);

#ifdef __cplusplus
}
#endif
#endif
