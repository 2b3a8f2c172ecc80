/* SPDX-License-Identifier: BSD-3-Clause */
#include "decorator.h"

static symmem_status barrier(void *instance, const symmem_peers *peers, int32_t channel,
                             const symmem_exec *exec) {
    symmem_exec now = *exec;
    now.stream = NULL;
    return real->barrier(instance, peers, channel, &now);
}

void mutate(symmem_backend *table) {
    table->barrier = barrier;
}
