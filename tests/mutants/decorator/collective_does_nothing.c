/* SPDX-License-Identifier: BSD-3-Clause */
#include "decorator.h"

static symmem_status collective(void *instance, const symmem_peers *peers, int32_t channel,
                                const symmem_collective *call, const symmem_exec *exec) {
    (void)instance, (void)peers, (void)channel, (void)call, (void)exec;
    return SYMMEM_OK;
}

void mutate(symmem_backend *table) {
    table->collective = collective;
}
