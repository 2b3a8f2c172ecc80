/* SPDX-License-Identifier: BSD-3-Clause */
/* The kernels of kernels/cuda/ as functions of the host. */
#ifndef FAKE_CUDA_KERNELS_H
#define FAKE_CUDA_KERNELS_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FAKE_MOST_ARGS 4096 /* bytes */

typedef struct fake_kernel {
    const char *name;
    void (*run)(const void *args);
    size_t args_bytes;
    unsigned int least_threads; /* of a block on the device; here there is one */
    /* At a launch, in place of a copy of the first argument; NULL: that copy. */
    void (*take)(const struct fake_kernel *kernel, void *args, void **arguments, void *stream);
} fake_kernel;

/* kernels.cpp, or the program that has the driver linked in. NULL: there is none of that name. */
const fake_kernel *fake_find_kernel(const char *name);

#ifdef __cplusplus
}
#endif
#endif
