/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams, events, graphs and captures. */
#ifndef SYMMEM_CORE_STREAM_H
#define SYMMEM_CORE_STREAM_H

#include "rendezvous/link.h"

struct symmem_stream {
    sm_node node;
    symmem_context *context; /* an instance user until native is destroyed; counted */
    void *native;            /* NULL after finalize */
    int32_t device;
    bool capturing; /* began a capture that has not ended */
};
struct symmem_event {
    sm_node node;
    symmem_context *context;
    void *native;
    int32_t device;
};
struct symmem_graph {
    sm_node node;
    symmem_context *context;
    void *native;
    int32_t device;
    sm_timed_mutex call_lock;
    void *done_event; /* native, recorded after each launch; NULL before the first */
    sm_node links;    /* what its operations use */
    uint64_t number;  /* under which they are noted */
    sm_node launched; /* of context->launched */
};
/* Checks that stream is NULL or usable, of this context, and of this device unless that is -1. */
symmem_status sm_stream_check(const symmem_context *context, const symmem_stream *stream,
                              int32_t device, const char *operation);
/* Before an operation on the link is captured. */
symmem_status sm_capture_note(const sm_link *link, uint64_t capture, const char *operation);
/* Whether launches of graphs with operations on the link are pending. */
symmem_status sm_graph_pending(const sm_link *link, const char *operation, bool *pending_p);
/* The stream's second one, made at the first call. */
symmem_status sm_second_stream_get(symmem_context *context, const symmem_stream *first,
                                   const symmem_stream **stream_p);
/* The stream is destroyed, so another one may take over its second stream. at_rest false: work may
 * still be under way there, and as other streams must not wait for it, the second stream is not
 * reused. */
void sm_second_stream_leave(symmem_context *context, const symmem_stream *first, bool at_rest);
/* Gives up a stream that the context made for itself. Does not wait for its work. */
void sm_stream_give_up(symmem_stream *stream);
/* Frees the shells of the streams that the context made for itself. */
void sm_second_streams_free(symmem_context *context);
/* By finalize: ends streams, graphs and events natively; the shells stay. */
void sm_stream_destroy_all(symmem_context *context);

/* --- among themselves ------------------------------------------------------------- */

/* As sm_stream_check, for calls that need a stream. */
symmem_status sm_stream_need(const symmem_stream *stream, const char *operation);
/* CAPTURE if the stream takes part in a capture. */
symmem_status sm_stream_not_capturing(const symmem_stream *stream, const char *operation);
/* Adds a new object to its context's list, with a context reference for the shell. False once the
 * context is finalized. */
bool sm_enlist(symmem_context *context, sm_node *head, sm_node *node);
/* Takes an object out of the list and its native part, which is NULL if finalize was first. */
void *sm_delist(symmem_context *context, sm_node *node, void **native);
/* For work whose end could not be marked by an event, so that nothing can wait for it later: waits
 * until its stream is idle. The record stays. False if the time was up first. */
bool sm_stream_drain(const symmem_context *context, void *native, uint32_t timeout_ms);
/* The number of the capture in which the stream takes part; 0: none. */
uint64_t sm_capture_of(const symmem_context *context, void *native);
/* A capture that a stream of the context's began is over: what sm_capture_note noted of it goes to
 * the empty list `links`, under a number that nothing else has. */
uint64_t sm_capture_take(symmem_context *context, uint64_t capture, sm_node *links);
void sm_capture_forget(symmem_context *context, sm_node *links);
/* Whether the link is among those of that number. */
bool sm_capture_has(symmem_context *context, uint64_t number, const sm_link *link);
/* By finalize. */
void sm_graph_destroy_all(symmem_context *context, uint64_t deadline_ns);
void sm_event_destroy_all(symmem_context *context);

#endif
