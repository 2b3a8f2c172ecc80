/* SPDX-License-Identifier: BSD-3-Clause */
/* A put that is enqueued does not wait for the work before it in the stream. */
#include "decorator.h"

static symmem_status put_signal(void *instance, const symmem_peers *peers, int32_t dst_rank,
                                int32_t channel, const symmem_exec *exec) {
    symmem_exec at_once = *exec;
    at_once.stream = NULL;
    return real->put_signal(instance, peers, dst_rank, channel, &at_once);
}

void mutate(symmem_backend *table) {
    table->put_signal = put_signal;
}
