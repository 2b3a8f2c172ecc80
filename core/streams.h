/* SPDX-License-Identifier: BSD-3-Clause */
/* What stream.c, event.c and graph.c share. */
#ifndef SYMMEM_CORE_STREAMS_H
#define SYMMEM_CORE_STREAMS_H

#include "objects.h"

/* As sm_stream_check, for calls that need a stream. */
symmem_status sm_stream_need(const symmem_stream *stream, const char *operation);
/* UNSUPPORTED: "the backend has no <what>". */
symmem_status sm_need_capability(symmem_context *context, uint64_t capability,
                                 const char *operation, const char *what);
/* CAPTURE if the stream takes part in a capture. */
symmem_status sm_stream_not_capturing(const symmem_stream *stream, const char *operation);
/* Adds a new object to its context's list, with a context reference for the shell. False once the
 * context is finalised. */
bool sm_enlist(symmem_context *context, sm_node *head, sm_node *node);
/* Takes an object out of the list and its native part, which is NULL if finalise was first. */
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
/* By finalise. */
void sm_graph_destroy_all(symmem_context *context, uint64_t deadline_ns);
void sm_event_destroy_all(symmem_context *context);

#endif
