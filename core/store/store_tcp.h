/* SPDX-License-Identifier: BSD-3-Clause */
/* The TCP store: rank 0 of a world serves, and every rank is a client, rank 0 too. */
#ifndef SYMMEM_CORE_STORE_TCP_H
#define SYMMEM_CORE_STORE_TCP_H

#include "store/store_tcp_address.h"

/* When it closes the store, the rank that serves waits at most so long for the others to close. */
#define SM_TCP_LAST_MS 10000u

typedef struct sm_tcp_opening {
    const sm_tcp_place *place;
    int listener; /* a socket that listens there, which this rank serves from now on and owns, even
                     if opening fails; -1: another rank serves, and may begin to until the deadline
                   */
    int32_t rank, world_size;
    uint32_t incarnation; /* see sm_tcp_hello */
    uint64_t deadline_ns;
    void (*closed)(void); /* called when the store has been closed; NULL: nothing is */
} sm_tcp_opening;

symmem_status sm_store_open_tcp(const sm_tcp_opening *opening, symmem_store **store_p);

#endif
