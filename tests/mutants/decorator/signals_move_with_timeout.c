/* SPDX-License-Identifier: BSD-3-Clause */
/* The place of a signal depends on an argument of the call that has nothing to do with it. */
#include "decorator.h"

static int32_t moved(const symmem_peers *peers, int32_t channel, const symmem_exec *exec) {
    return (int32_t)(((uint32_t)channel + exec->timeout_ms) % (uint32_t)peers->channel_count);
}

static symmem_status put_signal(void *instance, const symmem_peers *peers, int32_t dst_rank,
                                int32_t channel, const symmem_exec *exec) {
    return real->put_signal(instance, peers, dst_rank, moved(peers, channel, exec), exec);
}

static symmem_status wait_signal(void *instance, const symmem_peers *peers, int32_t src_rank,
                                 int32_t channel, const symmem_exec *exec) {
    return real->wait_signal(instance, peers, src_rank, moved(peers, channel, exec), exec);
}

void mutate(symmem_backend *table) {
    table->put_signal = put_signal;
    table->wait_signal = wait_signal;
}
