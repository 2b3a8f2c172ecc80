/* SPDX-License-Identifier: BSD-3-Clause */
#include "decorator.h"

static symmem_status memory_alloc(void *instance, int32_t device, size_t bytes,
                                  symmem_memory *memory) {
    return real->memory_alloc(instance, device, (uint32_t)bytes, memory);
}

void mutate(symmem_backend *table) {
    table->memory_alloc = memory_alloc;
}
