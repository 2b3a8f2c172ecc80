/* SPDX-License-Identifier: BSD-3-Clause */
/* The services that the core offers to a backend. */
#ifndef SYMMEM_CORE_BACKEND_HOST_H
#define SYMMEM_CORE_BACKEND_HOST_H

#include "backend/context.h"

/* After a backend entry failed: makes the record the public operation's, with the entry as stage.
 * Writes one if the backend left none. Returns `status`. */
symmem_status sm_backend_failed(const symmem_context *context, symmem_status status,
                                const char *operation, const char *entry);
void sm_context_notice(symmem_context *context, const char *text); /* once per text */
/* Fills context->host (host.c), but for what handles have to say: sm_link_host_init. */
void sm_host_init(symmem_context *context);
/* Sets the deadline of this thread's public call, which backends ask for. Returns the earlier
 * value, which the call puts back at its end. */
uint64_t sm_call_deadline(uint64_t deadline_ns);
/* Sets the limit of a call that no other rank waits for, counted from when the backend asks; 0
 * means none. Returns the earlier value. */
uint32_t sm_call_limit(uint32_t limit_ms);

#endif
