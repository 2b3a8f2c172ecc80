/* SPDX-License-Identifier: BSD-3-Clause */
#include "decorator.h"

static symmem_status signal_reset(void *instance, const symmem_peers *peers) {
    (void)instance, (void)peers;
    return SYMMEM_OK;
}

void mutate(symmem_backend *table) {
    table->signal_reset = signal_reset;
}
