/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Modules, and the kernels in them. They end with their context, as on a device, and launching a
 * kernel of a module that is gone is an error. Unloading does not give back all of what a module
 * had on the device, as seen with a driver (backend_cuda/driver/module.c).
 */

#include "fake.h"
#include "kernels.h"

#define MOST_KERNELS 96

struct CUfunc_st {
    CUmodule module;
    const fake_kernel *kernel;
};

/* Never freed, so that the use of one that is gone is found. */
struct CUmod_st {
    struct CUmod_st *next;
    unsigned long long context_id; /* 0: unloaded */
    int count;
    struct CUfunc_st functions[MOST_KERNELS];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static CUmodule modules;
static _Atomic size_t kept;

size_t fake_modules_kept(void) {
    return kept;
}

FAKE(ModuleLoadData, CUmodule *module, const void *image) {
    FAKE_UNSEEN_CALL("cuModuleLoadData");
    if (!fake_in_context())
        return CUDA_ERROR_INVALID_CONTEXT;
    fake_cuda_quiet();
    if (fake_cuda_hooks.loading != NULL)
        fake_cuda_hooks.loading();
    CUmodule made = calloc(1, sizeof *made);
    if (made == NULL || image == NULL) {
        free(made);
        return CUDA_ERROR_INVALID_IMAGE;
    }
    made->context_id = fake_id_of(fake_current());
    pthread_mutex_lock(&lock);
    made->next = modules;
    modules = made;
    pthread_mutex_unlock(&lock);
    fake_count(1);
    *module = made;
    return CUDA_SUCCESS;
}

/* In its own context. */
static bool is_there(CUmodule module) {
    return module != NULL && fake_in_context() && module->context_id == fake_id_of(fake_current());
}

FAKE(ModuleUnload, CUmodule module) {
    FAKE_UNSEEN_CALL("cuModuleUnload");
    if (!is_there(module))
        return CUDA_ERROR_INVALID_HANDLE;
    fake_cuda_quiet();
    module->context_id = 0;
    kept++;
    fake_count(-1);
    return CUDA_SUCCESS;
}

FAKE(ModuleGetFunction, CUfunction *function, CUmodule module, const char *name) {
    FAKE_CALL("cuModuleGetFunction");
    const fake_kernel *kernel = fake_find_kernel(name);
    int i = 0;
    if (!is_there(module))
        return CUDA_ERROR_INVALID_HANDLE;
    if (kernel == NULL)
        return CUDA_ERROR_NOT_FOUND;
    pthread_mutex_lock(&lock);
    while (i < module->count && module->functions[i].kernel != kernel)
        i++;
    if (i == module->count && i < MOST_KERNELS)
        module->functions[module->count++] = (struct CUfunc_st){module, kernel};
    pthread_mutex_unlock(&lock);
    *function = i < MOST_KERNELS ? &module->functions[i] : NULL;
    return i < MOST_KERNELS ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

FAKE(FuncLoad, CUfunction function) {
    FAKE_UNSEEN_CALL("cuFuncLoad");
    if (function == NULL || !is_there(function->module))
        return CUDA_ERROR_INVALID_HANDLE;
    fake_cuda_quiet();
    return CUDA_SUCCESS;
}

const fake_kernel *fake_kernel_of(CUfunction function) {
    return function != NULL && is_there(function->module) ? function->kernel : NULL;
}
