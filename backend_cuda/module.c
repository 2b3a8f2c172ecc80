/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Modules of the process and not of an instance, kept for as long as their context lives, as
 * streams are (native.c): the driver does not give back all of what a module had on the device when
 * it is unloaded (about 20 KB for each kernel, seen on an H100 with driver 580), and it may wait
 * for all that runs to load one. Where contexts cannot be told apart they go with their last user.
 */
#include "cuda_internal.h"

CUresult cuda_module_take(const cuda_driver *driver, cuda_module *own, CUcontext context,
                          unsigned long long context_id, const void *image, bool *new_p) {
    CUmodule module;
    /* Of another context: who used that one has left it broken, or it was reset, and its modules
     * went with it. */
    *new_p = own->module == NULL || own->context != context || own->context_id != context_id;
    CUresult result = *new_p ? driver->ModuleLoadData(&module, image) : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS)
        return result;
    if (*new_p) {
        own->module = module;
        own->context = context;
        own->context_id = context_id;
    }
    own->users++;
    return CUDA_SUCCESS;
}

void cuda_module_give(const cuda_driver *driver, cuda_module *own) {
    if (--own->users > 0 || own->context_id != 0)
        return;
    (void)driver->ModuleUnload(own->module);
    own->module = NULL;
}
