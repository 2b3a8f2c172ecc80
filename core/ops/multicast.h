/* SPDX-License-Identifier: BSD-3-Clause */
/* The two multicast operations: checks before the backend. */
#ifndef SYMMEM_CORE_OPS_MULTICAST_H
#define SYMMEM_CORE_OPS_MULTICAST_H

#include "rendezvous/link.h"

/* Answers UNSUPPORTED with the reason why the link has no multicast address. */
symmem_status sm_link_no_multicast(const sm_link *link, const char *operation);

/* What symmem_multimem_store does, as `operation`. */
symmem_status sm_multimem_store(symmem_handle *handle, const char *operation, size_t offset,
                                const void *src, size_t bytes, symmem_stream *stream);

#endif
