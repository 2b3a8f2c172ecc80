/* SPDX-License-Identifier: BSD-3-Clause */
#include "collective.h"

#include <errno.h>
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

typedef struct look {
    const symmem_exchange *exchange;
    uint64_t next_ns;
} look;

static bool someone_ended(void *look_v) {
    look *at = look_v;
    const uint64_t now_ns = symmem_kit_now_ns();
    if (now_ns < at->next_ns)
        return false;
    at->next_ns = now_ns + LOOK_NS;
    for (int32_t r = 0; r < at->exchange->world_size; r++)
        if (at->exchange->peer_state(at->exchange, r) == SYMMEM_PEER_GONE)
            return true;
    return false;
}

symmem_status symmem_kit_together(const symmem_host *host, const symmem_exchange *exchange,
                                  symmem_kit_helper *helper, symmem_kit_task_fn task, void *arg,
                                  const char *step) {
    look at = {.exchange = exchange};
    bool began;
    if (symmem_kit_helper_run(helper, task, arg, exchange->deadline_ns, someone_ended, &at, &began))
        return SYMMEM_OK;
    at.next_ns = 0;
    return host->fail(host, someone_ended(&at) ? SYMMEM_PEER_LOST : SYMMEM_TIMEOUT, 0, "join",
                      "%s was given up", step);
}
