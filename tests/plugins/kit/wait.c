/* SPDX-License-Identifier: BSD-3-Clause */
#include "wait.h"

#include <sched.h>
#include <time.h>

#define NS_PER_MS UINT64_C(1000000)
#define LOOK_MS 20u /* between two questions whether a peer lives */
#define SPINS 1000u
#define SLEEP_NS 50000l

uint64_t symmem_kit_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 * NS_PER_MS + (uint64_t)now.tv_nsec;
}

void symmem_kit_pause(unsigned turns) {
    if (turns < SPINS)
        (void)sched_yield();
    else
        nanosleep(&(struct timespec){.tv_nsec = SLEEP_NS}, NULL);
}

symmem_kit_wait symmem_kit_wait_begin(uint32_t timeout_ms) {
    const uint64_t now_ns = symmem_kit_now_ns();
    return (symmem_kit_wait){.deadline_ns = timeout_ms == 0 ? 0 : now_ns + timeout_ms * NS_PER_MS,
                             .look_ns = now_ns + LOOK_MS * NS_PER_MS};
}

/* What the core knows of the peers. */
static symmem_status ask_core(const symmem_kit_wait *wait, const symmem_host *host,
                              const symmem_peers *peers, int32_t peer, const char *operation) {
    if (!wait->was_poisoned && host->is_poisoned(peers))
        return host->fail(host, SYMMEM_POISONED, 0, operation, "given up, for it is poisoned");
    if (peer >= 0 && host->peer_state(peers, peer) == SYMMEM_PEER_GONE)
        return host->fail(host, SYMMEM_PEER_LOST, 0, operation, "its process has ended");
    return SYMMEM_OK;
}

symmem_status symmem_kit_wait_turn(symmem_kit_wait *wait, const symmem_host *host,
                                   const symmem_peers *peers, int32_t peer, const char *operation) {
    const uint64_t now_ns = symmem_kit_now_ns();
    symmem_status status = SYMMEM_OK;
    if (wait->turns == 0 && peers != NULL)
        wait->was_poisoned = host->is_poisoned(peers);
    if (now_ns >= wait->look_ns) {
        wait->look_ns = now_ns + LOOK_MS * NS_PER_MS;
        status = peers == NULL ? SYMMEM_OK : ask_core(wait, host, peers, peer, operation);
    }
    if (status == SYMMEM_OK && wait->deadline_ns != 0 && now_ns >= wait->deadline_ns)
        status = host->fail(host, SYMMEM_TIMEOUT, 0, operation, "the limit has passed");
    if (status == SYMMEM_OK)
        symmem_kit_pause(wait->turns++);
    return status;
}
