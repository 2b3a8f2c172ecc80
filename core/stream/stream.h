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
/* The same for a context that has just been checked. */
symmem_status sm_stream_fits(const symmem_context *context, const symmem_stream *stream,
                             int32_t device, const char *operation);
/* Destroys a stream that the context made for itself, without waiting for its work. */
void sm_stream_give_up(symmem_stream *stream);
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

#endif
