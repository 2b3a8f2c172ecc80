/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The kernels of a device, loaded once for all instances of the process that use it. Ranks that are
 * threads may share its context, and loading waits for all that runs there: for a peer's kernel,
 * which may wait for this rank.
 */
#include "cuda_internal.h"

typedef struct loaded {
    pthread_mutex_t lock; /* held while they are loaded: who comes next needs them, too */
    CUcontext context;    /* that they were loaded into */
    cuda_kernels kernels;
    int32_t users;
    int32_t rank;   /* of the first of them */
    int32_t others; /* users of other ranks */
    atomic_bool shared;
} loaded;

static loaded devices[CUDA_MAX_DEVICES] = {
    [0 ... CUDA_MAX_DEVICES - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER},
};

static CUresult find_kernels(const cuda_driver *driver, cuda_kernels *found) {
    const struct {
        const char *name;
        CUfunction *function;
    } kernels[] = {
        {"symmem_barrier", &found->barrier},
        {"symmem_near_barrier", &found->near_barrier},
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
        {"symmem_plain_lines_of_two_f16", &found->plain[SYMMEM_FLOAT16].lines_of_two},
        {"symmem_plain_lines_of_two_bf16", &found->plain[SYMMEM_BFLOAT16].lines_of_two},
        {"symmem_plain_lines_of_two_f32", &found->plain[SYMMEM_FLOAT32].lines_of_two},
        {"symmem_plain_lines_f16", &found->plain[SYMMEM_FLOAT16].lines},
        {"symmem_plain_lines_bf16", &found->plain[SYMMEM_BFLOAT16].lines},
        {"symmem_plain_lines_f32", &found->plain[SYMMEM_FLOAT32].lines},
        {"symmem_plain_blocks_of_two_f16", &found->plain[SYMMEM_FLOAT16].blocks_of_two},
        {"symmem_plain_blocks_of_two_bf16", &found->plain[SYMMEM_BFLOAT16].blocks_of_two},
        {"symmem_plain_blocks_of_two_f32", &found->plain[SYMMEM_FLOAT32].blocks_of_two},
        {"symmem_plain_blocks_f16", &found->plain[SYMMEM_FLOAT16].blocks},
        {"symmem_plain_blocks_bf16", &found->plain[SYMMEM_BFLOAT16].blocks},
        {"symmem_plain_blocks_f32", &found->plain[SYMMEM_FLOAT32].blocks},
        {"symmem_plain_wide_f16", &found->plain[SYMMEM_FLOAT16].wide},
        {"symmem_plain_wide_bf16", &found->plain[SYMMEM_BFLOAT16].wide},
        {"symmem_plain_wide_f32", &found->plain[SYMMEM_FLOAT32].wide},
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

/* lock held. Contexts of one rank do not wait for each other; one whose rank cannot be told any
 * more counts as another one. */
static void count_user(loaded *own, int32_t rank, int32_t change) {
    own->users += change;
    own->others += rank != own->rank ? change : 0;
    atomic_store(&own->shared, own->others > 0 && own->users > 1);
}

CUresult cuda_kernels_take(const cuda_driver *driver, int32_t device, int32_t rank,
                           CUcontext context, cuda_kernels *kernels_p) {
    loaded *own = &devices[device];
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&own->lock);
    /* Of another context: who used that one has left it broken, and its kernels went with it. */
    if (own->users == 0 || own->context != context)
        result = load(driver, &own->kernels);
    if (result == CUDA_SUCCESS) {
        own->context = context;
        own->rank = own->users == 0 ? rank : own->rank;
        count_user(own, rank, 1);
        *kernels_p = own->kernels;
    }
    pthread_mutex_unlock(&own->lock);
    return result;
}

void cuda_kernels_give(const cuda_driver *driver, int32_t device, int32_t rank) {
    loaded *own = &devices[device];
    pthread_mutex_lock(&own->lock);
    count_user(own, rank, -1);
    if (own->users == 0)
        (void)driver->ModuleUnload(own->kernels.module);
    pthread_mutex_unlock(&own->lock);
}

bool cuda_kernels_are_shared(int32_t device) {
    return atomic_load(&devices[device].shared);
}
