/* SPDX-License-Identifier: BSD-3-Clause */
/* Modules belong to the process and not to an instance. */
#ifndef SYMMEM_BACKEND_CUDA_MODULE_H
#define SYMMEM_BACKEND_CUDA_MODULE_H

#include "cuda_internal.h"

typedef struct cuda_module { /* of one device; CUDA_MODULE_NONE: not loaded */
    pthread_mutex_t lock;    /* over all of it */
    CUmodule module;
    CUcontext context; /* that it was loaded into, and its id */
    unsigned long long context_id;
    int32_t users;
} cuda_module;

#define CUDA_MODULE_NONE                                                                           \
    { .lock = PTHREAD_MUTEX_INITIALIZER }

/* Loads own->module from `image` unless it is loaded. The context is current. *loaded_p, unless
 * NULL: it was loaded now, so functions that were found before are invalid. */
CUresult cuda_module_take(const cuda_driver *driver, cuda_module *own, CUcontext context,
                          unsigned long long context_id, const void *image, CUmodule *module_p,
                          bool *loaded_p);
/* Also without a context, if that is broken. */
void cuda_module_give(const cuda_driver *driver, cuda_module *own);
/* The same for a caller outside the device's context. */
void cuda_module_give_in(cuda_instance *instance, int32_t device, cuda_module *own);

#endif
