/* SPDX-License-Identifier: BSD-3-Clause */
/* Which store a context uses that is given none. */
#ifndef SYMMEM_CORE_STORE_CHOOSE_H
#define SYMMEM_CORE_STORE_CHOOSE_H

#include "base/base.h"

#define SM_STORE_TEXT_BYTES 320

/* What SYMMEM_STORE says; else PMIx, if a launcher offers it; else torchrun's variables. *text_p:
 * the address, as symmem_store_open takes it; empty: nothing names one. *why_p: for people. */
symmem_status sm_store_choose(int32_t world_size, char text_p[SM_STORE_TEXT_BYTES],
                              const char **why_p);
/* symmem_store_open; what has a path of any length is read from SYMMEM_STORE. */
symmem_status sm_store_open_chosen(const char *address, int32_t rank, int32_t world_size,
                                   uint32_t timeout_ms, symmem_store **store_p);
/* Called when no context was made in the store that was opened at this address: the process's next
 * world there is of the same incarnation. */
void sm_store_undo_incarnation(const char *address, int32_t rank);

#endif
