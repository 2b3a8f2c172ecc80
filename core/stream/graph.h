/* SPDX-License-Identifier: BSD-3-Clause */
/* Captures and their graphs. */
#ifndef SYMMEM_CORE_STREAM_GRAPH_H
#define SYMMEM_CORE_STREAM_GRAPH_H

#include "stream/stream.h"

/* Whether launches of graphs with operations on the link are pending. */
symmem_status sm_graph_pending(const sm_link *link, const char *operation, bool *pending_p);
/* Called by finalize. */
void sm_graph_destroy_all(symmem_context *context, uint64_t deadline_ns);

#endif
