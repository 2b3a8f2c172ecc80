/* SPDX-License-Identifier: BSD-3-Clause */
#include "decorator.h"

static void memory_release(void *instance, symmem_memory *memory) {
    if (!memory->imported)
        real->memory_release(instance, memory);
}

void mutate(symmem_backend *table) {
    table->memory_release = memory_release;
}
