/* SPDX-License-Identifier: BSD-3-Clause */
/* A descriptor that works, but not of the memory it is said to be of. */
#include <sys/mman.h>
#include <unistd.h>

#include "decorator.h"

static symmem_status memory_export(void *instance, symmem_memory *memory, symmem_share *share) {
    symmem_status status = real->memory_export(instance, memory, share);
    int other = memfd_create("mutant", MFD_CLOEXEC);
    if (status != SYMMEM_OK || other < 0 || ftruncate(other, (off_t)share->mapped_bytes) != 0)
        return status;
    close(share->fd);
    share->fd = other;
    return SYMMEM_OK;
}

void mutate(symmem_backend *table) {
    table->memory_export = memory_export;
}
