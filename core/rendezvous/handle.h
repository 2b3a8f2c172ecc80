/* SPDX-License-Identifier: BSD-3-Clause */
/* Handles: references, and queries that their link answers. */
#ifndef SYMMEM_CORE_RENDEZVOUS_HANDLE_H
#define SYMMEM_CORE_RENDEZVOUS_HANDLE_H

#include "rendezvous/link.h"

/* Answers INVALID_ARGUMENT for NULL, and NOT_INITIALIZED after finalize. */
symmem_status sm_handle_check(const symmem_handle *handle, const char *operation);
/* Takes over a reference of link on success. */
symmem_status sm_handle_create(sm_link *link, size_t offset, symmem_handle **handle_p);
/* Answers OUT_OF_RANGE unless 0 <= rank < world_size. */
symmem_status sm_handle_rank_check(const symmem_handle *handle, const char *operation,
                                   int32_t rank);

#endif
