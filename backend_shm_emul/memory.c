/* SPDX-License-Identifier: BSD-3-Clause */
/* The memory entries of the table. */
#include <string.h>
#include <unistd.h>

#include "memory.h"
#include "error.h"
#include "segment.h"

static void describe(symmem_memory *memory, shm_segment *segment, int32_t device, size_t bytes,
                     int32_t imported) {
    memset(memory, 0, sizeof *memory);
    memory->ptr = segment->base;
    memory->bytes = bytes;
    memory->device = device;
    memory->imported = imported;
    memory->priv = segment;
}

symmem_status shm_memory_alloc(void *instance, int32_t device, size_t bytes,
                               symmem_memory *memory) {
    shm_segment *segment;
    shm_instance *self = instance;
    symmem_status status = shm_segment_create(self, bytes, "alloc", &segment);
    if (status != SYMMEM_OK)
        return status;
    status = shm_failpoint(self->host, "shm.alloc.done");
    if (status == SYMMEM_OK)
        describe(memory, segment, device, bytes, 0);
    else
        shm_segment_release(segment);
    return status;
}

void shm_memory_release(void *instance, symmem_memory *memory) {
    shm_instance *self = instance;
    shm_failpoint_notify(self->host, "shm.release*");
    if (memory->priv)
        shm_segment_release(memory->priv);
    memory->priv = NULL;
    memory->ptr = NULL;
}

symmem_status shm_memory_share(void *instance, symmem_memory *memory, symmem_share *share) {
    shm_instance *self = instance;
    symmem_share made;
    symmem_status status = shm_failpoint(self->host, "shm.export");
    if (status == SYMMEM_OK)
        status = shm_segment_export(self, memory->priv, "rendezvous", &made);
    if (status != SYMMEM_OK)
        return status;
    status = shm_failpoint(self->host, "shm.export.done");
    if (status == SYMMEM_OK)
        *share = made;
    else
        shm_memory_unshare(self, &made);
    return status;
}

void shm_memory_unshare(void *instance, symmem_share *share) {
    shm_instance *self = instance;
    shm_failpoint_notify(self->host, "shm.share.close*");
    if (share->fd >= 0)
        close(share->fd);
    share->fd = -1;
}

symmem_status shm_memory_map(void *instance, int32_t device, const symmem_share *share,
                             size_t bytes, symmem_memory *memory) {
    shm_instance *self = instance;
    shm_segment *segment;
    symmem_status status = shm_failpoint(self->host, "shm.import.map");
    if (status == SYMMEM_OK)
        status = shm_segment_import(self, share, bytes, "rendezvous", &segment);
    if (status != SYMMEM_OK)
        return status;
    status = shm_failpoint(self->host, "shm.import.done");
    if (status == SYMMEM_OK)
        describe(memory, segment, device, bytes, 1);
    else
        shm_segment_release(segment);
    return status;
}
