/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The kernels of a device, loaded once for all instances of the process that use it. Ranks that are
 * threads may share its context, and loading waits for all that runs there: for a peer's kernel,
 * which may wait for this rank.
 */
#include "cuda_internal.h"

typedef struct loaded {
    int32_t users;
    cuda_kernels kernels;
} loaded;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static loaded devices[CUDA_MAX_DEVICES];

static CUresult find_kernels(const cuda_driver *driver, cuda_kernels *found) {
    const struct {
        const char *name;
        CUfunction *function;
    } kernels[] = {
        {"symmem_barrier", &found->barrier},
        {"symmem_put_signal", &found->put_signal},
        {"symmem_wait_signal", &found->wait_signal},
        {"symmem_collective_bytes", &found->collective_bytes},
        {"symmem_collective_u8", &found->collective[SYMMEM_UINT8]},
        {"symmem_collective_i8", &found->collective[SYMMEM_INT8]},
        {"symmem_collective_i16", &found->collective[SYMMEM_INT16]},
        {"symmem_collective_u16", &found->collective[SYMMEM_UINT16]},
        {"symmem_collective_i32", &found->collective[SYMMEM_INT32]},
        {"symmem_collective_u32", &found->collective[SYMMEM_UINT32]},
        {"symmem_collective_i64", &found->collective[SYMMEM_INT64]},
        {"symmem_collective_u64", &found->collective[SYMMEM_UINT64]},
        {"symmem_collective_f16", &found->collective[SYMMEM_FLOAT16]},
        {"symmem_collective_bf16", &found->collective[SYMMEM_BFLOAT16]},
        {"symmem_collective_f32", &found->collective[SYMMEM_FLOAT32]},
        {"symmem_collective_f64", &found->collective[SYMMEM_FLOAT64]},
        {"symmem_show_words", &found->show_words},
        {"symmem_move_part", &found->move_part},
    };
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; result == CUDA_SUCCESS && i < sizeof kernels / sizeof kernels[0]; i++) {
        result = driver->ModuleGetFunction(kernels[i].function, found->module, kernels[i].name);
        /* Now, and not with the first launch. */
        if (result == CUDA_SUCCESS && driver->FuncLoad != NULL)
            result = driver->FuncLoad(*kernels[i].function);
    }
    return result == CUDA_SUCCESS ? cuda_local_load(driver, found->module, &found->local) : result;
}

static CUresult load(const cuda_driver *driver, cuda_kernels *kernels) {
    CUresult result = driver->ModuleLoadData(&kernels->module, cuda_image());
    if (result != CUDA_SUCCESS)
        return result;
    result = find_kernels(driver, kernels);
    if (result != CUDA_SUCCESS)
        (void)driver->ModuleUnload(kernels->module);
    return result;
}

CUresult cuda_kernels_take(const cuda_driver *driver, int32_t device, cuda_kernels *kernels_p) {
    loaded *own = &devices[device];
    pthread_mutex_lock(&lock);
    CUresult result = own->users > 0 ? CUDA_SUCCESS : load(driver, &own->kernels);
    if (result == CUDA_SUCCESS) {
        own->users++;
        *kernels_p = own->kernels;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

void cuda_kernels_give(const cuda_driver *driver, int32_t device) {
    loaded *own = &devices[device];
    pthread_mutex_lock(&lock);
    if (--own->users == 0)
        (void)driver->ModuleUnload(own->kernels.module);
    pthread_mutex_unlock(&lock);
}

bool cuda_kernels_are_shared(int32_t device) {
    pthread_mutex_lock(&lock);
    bool shared = devices[device].users > 1;
    pthread_mutex_unlock(&lock);
    return shared;
}
