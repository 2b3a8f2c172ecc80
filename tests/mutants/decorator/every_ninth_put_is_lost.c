/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdatomic.h>

#include "decorator.h"

static atomic_uint count;

static symmem_status put_signal(void *instance, const symmem_peers *peers, int32_t dst_rank,
                                int32_t channel, const symmem_exec *exec) {
    if ((atomic_fetch_add(&count, 1) + 1) % 9 == 0)
        return SYMMEM_OK;
    return real->put_signal(instance, peers, dst_rank, channel, exec);
}

void mutate(symmem_backend *table) {
    table->put_signal = put_signal;
}
