/* SPDX-License-Identifier: BSD-3-Clause */
/* Work of a device that knows no peers, on a stream or now. */
#ifndef SYMMEM_BACKEND_CUDA_WORK_H
#define SYMMEM_BACKEND_CUDA_WORK_H

#include "cuda_internal.h"

typedef struct cuda_work {
    const char *operation;
    /* Enqueues it. Failures are described. The context is current. */
    symmem_status (*enqueue)(cuda_instance *instance, struct cuda_work *work, CUstream native);
    int32_t device;
    bool capturing;
    const uint64_t *failed; /* see cuda/product.h */
    cuda_signal_op signal;  /* fault NULL: none */
    cuda_staging *staging;  /* enqueue's; what the work needs until it is over; NULL: nothing */
    /* For work that waits for others than this device, without a stream. Asked 50 times a second,
     * and a failure, described, leaves the work to itself, as the limit of exec->timeout_ms does.
     * NULL: the call waits until the work is over. */
    symmem_status (*look)(cuda_instance *instance, const struct cuda_work *work);
} cuda_work;
symmem_status cuda_work_run(cuda_instance *instance, cuda_work *work, const symmem_exec *exec);
/* Launches as many blocks as `count` elements fill, up to a bound. */
symmem_status cuda_work_launch(cuda_instance *instance, const cuda_work *work, CUfunction kernel,
                               uint64_t count, void *args, CUstream native);

#endif
