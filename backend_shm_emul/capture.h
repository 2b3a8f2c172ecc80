/* SPDX-License-Identifier: BSD-3-Clause */
/* Capture. */
#ifndef SYMMEM_BACKEND_SHM_CAPTURE_H
#define SYMMEM_BACKEND_SHM_CAPTURE_H

#include "shm.h"

/* What one stream of a capture recorded. */
typedef struct shm_branch {
    shm_stream *stream; /* NULL once destroyed */
    shm_op *first;
    shm_op *last;
    int32_t count;
} shm_branch;

struct shm_capture { /* with instance->lock until it has ended */
    shm_capture *next;
    uint64_t id;
    shm_branch *branches; /* 0 is the origin's */
    int32_t branch_count;
    int32_t record_count;
    bool broken; /* a joined stream was destroyed */
};

/* Appends to the branch of a capturing stream. With instance->lock. */
void shm_capture_append_locked(shm_stream *stream, shm_op *op);
/* Makes a stream part of the running capture `id`. With instance->lock. */
symmem_status shm_capture_join_locked(shm_stream *stream, uint64_t id);
/* The stream is destroyed. Ends its own capture and breaks another stream's. */
void shm_capture_abandon(shm_stream *stream);

symmem_status shm_capture_begin(void *instance, void *stream);
symmem_status shm_capture_end(void *instance, void *stream, void **graph_p);
symmem_status shm_capture_id(void *instance, void *stream, uint64_t *id_p);

#endif
