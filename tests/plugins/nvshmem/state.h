/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of the backend share. */
#ifndef SYMMEM_NVSHMEM_STATE_H
#define SYMMEM_NVSHMEM_STATE_H

#include <cuda_device.h>
#include <symmem/kit/engine.h>

/* Of a context; the instance's extension. */
typedef struct state {
    cuda_named_host host; /* as the CUDA backend's code gets it */
    symmem_kit_member *member;
    int32_t device;
    CUuuid *devices; /* of the ranks of the context; NULL: not joined */
} state;

static inline state *state_of(const cuda_instance *instance) {
    return instance->extension;
}

/* reach.c */
extern const symmem_reach_ops nvshmem_reach;

#endif
