/* SPDX-License-Identifier: BSD-3-Clause */
/* The device's kernels, run on the CPU. */
#ifndef UNIT_CUDA_HOST_KERNELS_H
#define UNIT_CUDA_HOST_KERNELS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum host_kernel {
    HOST_BARRIER = 1,
    HOST_SHOW_WORDS,
    HOST_COLLECTIVE_BYTES,
    HOST_COLLECTIVE_F32,
    HOST_COLLECTIVE_BF16,
    HOST_AWAIT_CHUNK,
} host_kernel;

/* Returns when it has ended. One at a time in a process. */
void host_launch_kernel(host_kernel kernel, unsigned int blocks, unsigned int threads,
                        const void *args);
/* That word of a channel's state says that the operation has failed, to all threads of a block but
 * the first one, who looked before. */
void host_fail_meanwhile(const uint64_t *failed);

#ifdef __cplusplus
}
#endif
#endif
