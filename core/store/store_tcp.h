/* SPDX-License-Identifier: BSD-3-Clause */
/* The TCP store: rank 0 of a world serves, and every rank is a client, rank 0 too. */
#ifndef SYMMEM_CORE_STORE_TCP_H
#define SYMMEM_CORE_STORE_TCP_H

#include "store/store_tcp_address.h"

/* When it closes the store, the rank that serves waits at most so long for the others to close. */
#define SM_TCP_LAST_MS 10000u

/* Opens the store at that place. `listener`: a socket that listens there, which this rank serves
 * from now on, in any case; -1: another one does, and may begin to until the deadline. `turn`: of
 * the worlds that this process has at that place, one after the other, which this one is.
 * `closed`: called when the store has been closed; NULL: nothing is. */
symmem_status sm_store_open_tcp(const sm_tcp_place *place, int listener, int32_t rank,
                                uint32_t turn, uint64_t deadline_ns, void (*closed)(void),
                                symmem_store **store_p);

#endif
