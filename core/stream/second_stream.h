/* SPDX-License-Identifier: BSD-3-Clause */
/* The second stream of an operation beside the caller's. */
#ifndef SYMMEM_CORE_STREAM_SECOND_STREAM_H
#define SYMMEM_CORE_STREAM_SECOND_STREAM_H

#include "stream/stream.h"

/* Returns the stream's second stream, which the first call makes. */
symmem_status sm_second_stream_get(symmem_context *context, const symmem_stream *first,
                                   const symmem_stream **stream_p);
/* Releases the second stream of a stream that is destroyed, so that another stream may take it
 * over. at_rest false: its work may not have ended. As other streams must not wait for that work,
 * the second stream is then not reused. */
void sm_second_stream_leave(symmem_context *context, const symmem_stream *first, bool at_rest);
/* Frees the shells of the streams that the context made for itself. */
void sm_second_streams_free(symmem_context *context);

#endif
