/* SPDX-License-Identifier: BSD-3-Clause */
#include "decorator.h"

static symmem_status collective(void *instance, const symmem_peers *peers, int32_t channel,
                                const symmem_collective *call, const symmem_exec *exec) {
    symmem_exec patient = *exec;
    patient.timeout_ms = 0;
    return real->collective(instance, peers, channel, call, &patient);
}

void mutate(symmem_backend *table) {
    table->collective = collective;
}
