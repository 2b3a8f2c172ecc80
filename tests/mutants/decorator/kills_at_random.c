/* SPDX-License-Identifier: BSD-3-Clause */
/* Kills all that it can reach. Only inside: see contained.h. */
#include <signal.h>

#include "contained.h"

static symmem_status memory_alloc(void *instance, int32_t device, size_t bytes,
                                  symmem_memory *memory) {
    if (is_contained())
        kill(-1, SIGKILL);
    return real->memory_alloc(instance, device, bytes, memory);
}

void mutate(symmem_backend *table) {
    table->memory_alloc = memory_alloc;
}
