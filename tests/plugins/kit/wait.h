/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A wait of a backend for something that another rank brings about, with all that may end it: the
 * limit, the end of the peer, and a handle that is poisoned.
 *
 *     symmem_kit_wait wait = symmem_kit_wait_begin(exec->timeout_ms);
 *     while (!arrived() && status == SYMMEM_OK)
 *         status = symmem_kit_wait_turn(&wait, host, peers, peer, "put");
 */
#ifndef SYMMEM_KIT_WAIT_H
#define SYMMEM_KIT_WAIT_H

#include <stdbool.h>
#include <symmem/backend.h>

typedef struct symmem_kit_wait {
    uint64_t deadline_ns; /* 0: no limit */
    uint64_t look_ns;     /* when the peer is next asked for */
    unsigned turns;
    bool was_poisoned; /* when it began: the core wants the call all the same */
} symmem_kit_wait;

/* Of CLOCK_MONOTONIC, as all deadlines of a backend. */
uint64_t symmem_kit_now_ns(void);
/* 0: no limit. */
symmem_kit_wait symmem_kit_wait_begin(uint32_t timeout_ms);
/* Between two looks: yields, and after a while sleeps. TIMEOUT, PEER_LOST or POISONED by host->fail
 * when the wait has to end. `peers` NULL: none is asked for; `peer` -1: none in particular, and
 * only poison counts. */
symmem_status symmem_kit_wait_turn(symmem_kit_wait *wait, const symmem_host *host,
                                   const symmem_peers *peers, int32_t peer, const char *operation);
/* The same pause for waits that end by other means. */
void symmem_kit_pause(unsigned turns);

#endif
