/* SPDX-License-Identifier: BSD-3-Clause */
#include "collective.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

#include "wait.h"

#define LOOK_NS UINT64_C(20000000) /* between two questions whether the peers live */

symmem_status symmem_kit_gather(const symmem_host *host, const symmem_exchange *exchange,
                                const void *own, size_t bytes, const char *stage, void **all_p) {
    void *all = calloc((size_t)exchange->world_size, bytes);
    symmem_status status = SYMMEM_OK;
    *all_p = NULL;
    if (all == NULL)
        status = host->fail(host, SYMMEM_OUT_OF_MEMORY, ENOMEM, "join", "no memory");
    status = exchange->agree(exchange, status, stage);
    if (status == SYMMEM_OK)
        status = exchange->all_gather(exchange, own, bytes, all);
    if (status == SYMMEM_OK)
        *all_p = all;
    else
        free(all);
    return status;
}

#define TELLING_NS UINT64_C(1000000000)
#define ASK_NS UINT64_C(250000000) /* between two questions whether one has failed */

typedef struct look {
    const symmem_exchange *exchange;
    uint64_t next_ns, ask_ns;
    symmem_status failed; /* a peer has, and comes no more */
} look;

/* An older core cannot tell. */
static bool someone_failed(look *at, uint64_t now_ns) {
    const symmem_exchange *exchange = at->exchange;
    const bool tells =
        exchange->size >= offsetof(symmem_exchange, peer_failure) + sizeof(exchange->peer_failure);
    if (!tells || exchange->peer_failure == NULL || now_ns < at->ask_ns)
        return false;
    at->ask_ns = now_ns + ASK_NS;
    at->failed = exchange->peer_failure(exchange);
    return at->failed != SYMMEM_OK;
}

static bool someone_ended(void *look_v) {
    look *at = look_v;
    const uint64_t now_ns = symmem_kit_now_ns();
    if (now_ns < at->next_ns)
        return false;
    at->next_ns = now_ns + LOOK_NS;
    for (int32_t r = 0; r < at->exchange->world_size; r++)
        if (at->exchange->peer_state(at->exchange, r) == SYMMEM_PEER_GONE)
            return true;
    return someone_failed(at, now_ns);
}

/* Leaves ranks the time to tell each other that they have given up. */
static uint64_t end_of_wait(uint64_t deadline_ns) {
    const uint64_t now_ns = symmem_kit_now_ns();
    const uint64_t left_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 0;
    return deadline_ns == 0 ? 0
                            : deadline_ns - (left_ns / 4 < TELLING_NS ? left_ns / 4 : TELLING_NS);
}

symmem_status symmem_kit_together(const symmem_host *host, const symmem_exchange *exchange,
                                  symmem_kit_helper *helper, symmem_kit_task_fn task, void *arg,
                                  const char *step) {
    look at = {.exchange = exchange};
    bool began;
    if (symmem_kit_helper_run(helper, task, arg, end_of_wait(exchange->deadline_ns), someone_ended,
                              &at, &began))
        return SYMMEM_OK;
    if (at.failed != SYMMEM_OK)
        return at.failed;
    at.next_ns = 0;
    at.ask_ns = UINT64_MAX;
    return host->fail(host, someone_ended(&at) ? SYMMEM_PEER_LOST : SYMMEM_TIMEOUT, 0, "join",
                      "%s was given up", step);
}
