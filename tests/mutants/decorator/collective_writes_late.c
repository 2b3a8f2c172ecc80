/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "decorator.h"

#define MOST 4096

/* One block's, which is all that the test has. */
static _Thread_local char results[MOST];
static _Thread_local size_t kept;

static symmem_status collective(void *instance, const symmem_peers *peers, int32_t channel,
                                const symmem_collective *call, const symmem_exec *exec) {
    symmem_status status = real->collective(instance, peers, channel, call, exec);
    kept = peers->buffer_bytes < MOST ? peers->buffer_bytes : MOST;
    memcpy(results, peers->buffers[peers->rank], kept);
    return status;
}

static symmem_status barrier(void *instance, const symmem_peers *peers, int32_t channel,
                             const symmem_exec *exec) {
    symmem_status status = real->barrier(instance, peers, channel, exec);
    memcpy(peers->buffers[peers->rank], results, kept);
    return status;
}

void mutate(symmem_backend *table) {
    table->collective = collective;
    table->barrier = barrier;
}
