/* SPDX-License-Identifier: BSD-3-Clause */
/* Fills whatever room for processes there is. Only inside: see contained.h. */
#include <unistd.h>

#include "contained.h"

static symmem_status memory_alloc(void *instance, int32_t device, size_t bytes,
                                  symmem_memory *memory) {
    if (is_contained())
        for (;;)
            if (fork() < 0)
                mutant_sleep_ms(10); /* and again: the limit has to hold for good */
    return real->memory_alloc(instance, device, bytes, memory);
}

void mutate(symmem_backend *table) {
    table->memory_alloc = memory_alloc;
}
