/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A driver without GPUs, for unit tests of backends on it: eight devices whose memory is this
 * process's, and streams that do everything at once. A test that links it with --wrap=dlopen gets
 * it in place of libcuda.so.1.
 */
#ifndef FAKE_CUDA_H
#define FAKE_CUDA_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>

#define FAKE_CUDA_DEVICES 8

typedef struct fake_cuda_state {
    bool absent;     /* there is no libcuda.so.1 */
    CUresult init;   /* what cuInit answers */
    atomic_int live; /* objects of the driver that are not given back: memory, mappings, streams */
    atomic_int contexts;   /* pushed and not popped */
    atomic_int loads;      /* of modules */
    void (*loading)(void); /* what the driver does meanwhile; NULL: nothing */
    unsigned context_id;   /* of all contexts; 0: the driver cannot tell */
    /* The call of that name fails once, the skip-th time. The name is set last. */
    const char *_Atomic fails;
    atomic_int skip;
    CUresult result;
    /* The kernels, by name. */
    void (*launch)(const char *name, void **arguments);
    bool (*is_device)(const void *pointer);
    bool (*is_busy)(const void *stream); /* NULL: streams do everything at once */
    bool (*is_lost)(const void *stream); /* NULL: no stream's context is */
    bool captures;                       /* every stream does */
    const char *refuses_fabric; /* the call of that name, with fabric handles; NULL: none */
    atomic_int refusals;
} fake_cuda_state;

extern fake_cuda_state fake_cuda;

#endif
