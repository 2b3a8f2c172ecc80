/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Failpoints carry their backend's name, and the suite relies on that. So another backend gives
 * this one's code a host that translates the names. Everything else is the core's own.
 *
 *     static const char *const names[] = {CUDA_STEP_NAMES("nccl")};
 */
#ifndef SYMMEM_BACKEND_CUDA_STEP_NAMES_H
#define SYMMEM_BACKEND_CUDA_STEP_NAMES_H

#include "cuda_internal.h"

/* The last two stand for steps that the list lacks. */
#define CUDA_STEP_NAMES(backend)                                                                   \
    backend ".open", backend ".close*", backend ".stream.create", backend ".alloc.create",         \
        backend ".alloc.done", backend ".release*", backend ".peers.open",                         \
        backend ".peers.close*", backend ".reset.before", backend ".reset.done",                   \
        backend ".poison*", backend ".collective*", backend ".event.create",                       \
        backend ".capture.begin", backend ".step", backend ".step*"
#define CUDA_STEPS 14

typedef struct cuda_named_host {
    symmem_host host; /* first, because failpoints are called with it */
    const symmem_host *cores;
    const char *const *names;
} cuda_named_host;

/* It stays where it is. */
void cuda_named_host_init(cuda_named_host *own, const symmem_host *cores, const char *const *names);

#endif
