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
    bool capturing; /* began a capture that has not ended yet */
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
    sm_node links;    /* the links of its operations */
    uint64_t number;  /* under which those links are noted */
    sm_node launched; /* in context->launched */
};
/* Checks that the stream is NULL or usable, belongs to the context, and is on the device unless
 * that is -1. */
symmem_status sm_stream_check(const symmem_context *context, const symmem_stream *stream,
                              int32_t device, const char *operation);
/* Notes the link of an operation that is about to be captured. */
symmem_status sm_capture_note(const sm_link *link, uint64_t capture, const char *operation);
/* Whether launches of graphs with operations on the link are pending. */
symmem_status sm_graph_pending(const sm_link *link, const char *operation, bool *pending_p);
/* Returns the stream's second stream, which the first call makes. */
symmem_status sm_second_stream_get(symmem_context *context, const symmem_stream *first,
                                   const symmem_stream **stream_p);
/* Releases the second stream of a stream that is destroyed, so that another stream may take it
 * over. at_rest false: its work may not have ended. As other streams must not wait for that work,
 * the second stream is then not reused. */
void sm_second_stream_leave(symmem_context *context, const symmem_stream *first, bool at_rest);
/* Destroys a stream that the context made for itself, without waiting for its work. */
void sm_stream_give_up(symmem_stream *stream);
/* Frees the shells of the streams that the context made for itself. */
void sm_second_streams_free(symmem_context *context);
/* Ends all streams, graphs and events natively, for finalize. Their shells stay. */
void sm_stream_destroy_all(symmem_context *context);

/* --- shared by the files of core/stream ------------------------------------------- */

/* Does sm_stream_check for calls that need a stream. */
symmem_status sm_stream_need(const symmem_stream *stream, const char *operation);
/* Answers CAPTURE if the stream takes part in a capture. */
symmem_status sm_stream_not_capturing(const symmem_stream *stream, const char *operation);
/* Adds a new object to its context's list, with a context reference for the shell. False if the
 * context is finalized. */
bool sm_enlist(symmem_context *context, sm_node *head, sm_node *node);
/* Takes an object and its native part out of the list. The native part is NULL if finalize was
 * first. */
void *sm_delist(symmem_context *context, sm_node *node, void **native);
/* Waits until the stream is idle, for work whose end no event could mark, so that no later call can
 * wait for it. The record stays. False if the time ran out first. */
bool sm_stream_drain(const symmem_context *context, void *native, uint32_t timeout_ms);
/* Returns the number of the capture in which the stream takes part, or 0. */
uint64_t sm_capture_of(const symmem_context *context, void *native);
/* Ends the notes of a capture that a stream of the context began. What sm_capture_note noted moves
 * to the empty list `links`, under a new, unique number, which is returned. */
uint64_t sm_capture_take(symmem_context *context, uint64_t capture, sm_node *links);
void sm_capture_forget(symmem_context *context, sm_node *links);
/* Whether the link is noted under that number. */
bool sm_capture_has(symmem_context *context, uint64_t number, const sm_link *link);
/* Called by finalize. */
void sm_graph_destroy_all(symmem_context *context, uint64_t deadline_ns);
void sm_event_destroy_all(symmem_context *context);

#endif
