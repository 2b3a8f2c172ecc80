/* SPDX-License-Identifier: BSD-3-Clause */
#include "decorator.h"

static symmem_status barrier(void *instance, const symmem_peers *peers, int32_t channel,
                             const symmem_exec *exec) {
    (void)instance, (void)peers, (void)channel, (void)exec;
    return SYMMEM_OK;
}

void mutate(symmem_backend *table) {
    table->barrier = barrier;
}
