/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdatomic.h>

#include "decorator.h"

static atomic_uint count;

static symmem_status barrier(void *instance, const symmem_peers *peers, int32_t channel,
                             const symmem_exec *exec) {
    if ((atomic_fetch_add(&count, 1) + 1) % 9 == 0)
        return SYMMEM_OK;
    return real->barrier(instance, peers, channel, exec);
}

void mutate(symmem_backend *table) {
    table->barrier = barrier;
}
