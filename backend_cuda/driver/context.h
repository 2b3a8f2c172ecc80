/* SPDX-License-Identifier: BSD-3-Clause */
/* The context that a thread works in, and how its calls spare captures of the program. */
#ifndef SYMMEM_BACKEND_CUDA_CONTEXT_H
#define SYMMEM_BACKEND_CUDA_CONTEXT_H

#include "cuda_internal.h"

/* Makes the context current. cuda_pop restores what was. In between this thread's calls break no
 * capture of the program. */
CUresult cuda_push(const cuda_driver *driver, CUcontext context);
void cuda_pop(const cuda_driver *driver);
bool cuda_reenter(const cuda_instance *instance, int32_t device); /* for a device that is open */
void cuda_leave(const cuda_instance *instance);
/* Whether the thread works in the device's context, which is open, already. */
bool cuda_is_entered(const cuda_instance *instance, int32_t device);
/* The same without a context, as far as the driver allows it. */
void cuda_relax(const cuda_driver *driver);
void cuda_restore(const cuda_driver *driver);

#endif
