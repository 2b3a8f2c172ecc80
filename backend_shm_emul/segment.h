/* SPDX-License-Identifier: BSD-3-Clause */
/* Mapped shared memory. */
#ifndef SYMMEM_BACKEND_SHM_SEGMENT_H
#define SYMMEM_BACKEND_SHM_SEGMENT_H

#include "shm.h"

/* One mapping, used by any number of ranks of this process. Constant but for the first two. */
struct shm_segment {
    shm_segment *next;   /* with the lock of segment.c */
    int reference_count; /* with the lock of segment.c */
    int fd;              /* for exports; -1 where imported */
    void *base;
    size_t bytes; /* whole pages */
    dev_t file_device;
    ino_t file_number;
};

/* Makes zeroed memory of at least `bytes` bytes whose pages are allocated. */
symmem_status shm_segment_create(shm_instance *instance, size_t bytes, const char *operation,
                                 shm_segment **segment_p);
/* Gets the memory behind share->fd: this process's mapping of it, or a new one. */
symmem_status shm_segment_import(shm_instance *instance, const symmem_share *share, size_t bytes,
                                 const char *operation, shm_segment **segment_p);
/* Fills *share with a descriptor of its own. */
symmem_status shm_segment_export(shm_instance *instance, shm_segment *segment,
                                 const char *operation, symmem_share *share);
void shm_segment_release(shm_segment *segment);
/* Rounds up to whole pages. Returns false on overflow. */
bool shm_round_to_pages(size_t bytes, size_t *rounded_p);

#endif
