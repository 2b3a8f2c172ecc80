/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Modules belong to the process and not to an instance. They are kept as long as their context
 * lives, as streams are (stream_cache.c). When a module is unloaded the driver does not free all
 * its memory on the device (about 20 KB for each kernel, seen on an H100 with driver 580). Loading
 * one may wait for everything that runs there. If contexts cannot be distinguished, a module is
 * unloaded with its last user.
 */
#include "driver/module.h"
#include "driver/context.h"

/* lock held. A module of another context is gone: that context was left broken, or it was reset,
 * and its modules went with it. */
static bool is_there(const cuda_module *own, CUcontext context, unsigned long long context_id) {
    return own->module != NULL && own->context == context && own->context_id == context_id;
}

CUresult cuda_module_take(const cuda_driver *driver, cuda_module *own, CUcontext context,
                          unsigned long long context_id, const void *image, CUmodule *module_p,
                          bool *loaded_p) {
    CUmodule loaded = NULL;
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&own->lock);
    if (!is_there(own, context, context_id))
        result = driver->ModuleLoadData(&loaded, image);
    if (result == CUDA_SUCCESS && loaded != NULL) {
        own->module = loaded;
        own->context = context;
        own->context_id = context_id;
    }
    if (result == CUDA_SUCCESS) {
        own->users++;
        *module_p = own->module;
    }
    pthread_mutex_unlock(&own->lock);
    if (loaded_p != NULL)
        *loaded_p = loaded != NULL;
    return result;
}

void cuda_module_give(const cuda_driver *driver, cuda_module *own) {
    pthread_mutex_lock(&own->lock);
    if (--own->users == 0 && own->context_id == 0) {
        (void)driver->ModuleUnload(own->module);
        own->module = NULL;
    }
    pthread_mutex_unlock(&own->lock);
}

void cuda_module_give_in(cuda_instance *instance, int32_t device, cuda_module *own) {
    const bool entered = cuda_reenter(instance, device);
    cuda_module_give(&instance->driver, own);
    if (entered)
        cuda_leave(instance);
}
