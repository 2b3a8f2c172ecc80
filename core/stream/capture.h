/* SPDX-License-Identifier: BSD-3-Clause */
/* The operations that a capture holds. */
#ifndef SYMMEM_CORE_STREAM_CAPTURE_H
#define SYMMEM_CORE_STREAM_CAPTURE_H

#include "stream/stream.h"

/* Notes the link of an operation that is about to be captured. */
symmem_status sm_capture_note(const sm_link *link, uint64_t capture, const char *operation);
/* Returns the number of the capture in which the stream takes part, or 0. */
uint64_t sm_capture_of(const symmem_context *context, void *native);
/* Ends the notes of a capture that a stream of the context began. What sm_capture_note noted moves
 * to the empty list `links`, under a new, unique number, which is returned. */
uint64_t sm_capture_take(symmem_context *context, uint64_t capture, sm_node *links);
void sm_capture_forget(symmem_context *context, sm_node *links);
/* Whether the link is noted under that number. */
bool sm_capture_has(symmem_context *context, uint64_t number, const sm_link *link);

#endif
