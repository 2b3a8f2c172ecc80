/* SPDX-License-Identifier: BSD-3-Clause */
/* A put that is enqueued does not wait for the work before it in the stream. */
#include "decorator.h"

static void take_time(void *arg) {
    (void)arg;
    mutant_sleep_ms(3);
}

/* Not changed but for the time it takes to write to a peer. */
static symmem_status copy(void *instance, int32_t device, void *dst, const void *src, size_t bytes,
                          const symmem_exec *exec) {
    if (exec->stream && real->host_fn && mutant_is_a_peers(dst))
        (void)real->host_fn(instance, exec->stream, take_time, NULL);
    return real->copy(instance, device, dst, src, bytes, exec);
}

static symmem_status put_signal(void *instance, const symmem_peers *peers, int32_t dst_rank,
                                int32_t channel, const symmem_exec *exec) {
    symmem_exec at_once = *exec;
    at_once.stream = NULL;
    return real->put_signal(instance, peers, dst_rank, channel, &at_once);
}

void mutate(symmem_backend *table) {
    table->copy = copy;
    table->put_signal = put_signal;
    mutant_watch_imports(table);
}
