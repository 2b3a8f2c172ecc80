/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The kernels of a device, loaded once for all instances of the process. Ranks that are threads may
 * share its context. Loading waits for everything that runs there, for example for a peer's kernel,
 * which may wait for this rank.
 */
#include <stddef.h>

#include "driver/kernels.h"
#include "driver/image.h"
#include "driver/module.h"

typedef struct loaded {
    pthread_mutex_t lock; /* held during loading, because the next user needs the kernels too */
    cuda_module module;   /* its users are counted under this lock too */
    cuda_kernels kernels;
    bool found;     /* the kernels belong to the module */
    int32_t rank;   /* of its first user */
    int32_t others; /* users of other ranks */
    atomic_bool shared;
} loaded;

static loaded devices[CUDA_MAX_DEVICES] = {
    [0 ... CUDA_MAX_DEVICES - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER, .module = CUDA_MODULE_NONE},
};

/* Each kernel's name in the image, and where its function belongs. */
static const struct {
    const char *name;
    size_t offset;
} kernel_names[] = {
    {"symmem_barrier", offsetof(cuda_kernels, barrier)},
    {"symmem_small_barrier", offsetof(cuda_kernels, small_barrier)},
    {"symmem_put_signal", offsetof(cuda_kernels, put_signal)},
    {"symmem_wait_signal", offsetof(cuda_kernels, wait_signal)},
    {"symmem_wait_value", offsetof(cuda_kernels, wait_value)},
    {"symmem_signal_count", offsetof(cuda_kernels, signal_count)},
    {"symmem_wait_counts", offsetof(cuda_kernels, wait_counts)},
    {"symmem_collective_bytes", offsetof(cuda_kernels, collective_bytes)},
    {"symmem_collective_u8", offsetof(cuda_kernels, collective[SYMMEM_UINT8])},
    {"symmem_collective_i8", offsetof(cuda_kernels, collective[SYMMEM_INT8])},
    {"symmem_collective_i16", offsetof(cuda_kernels, collective[SYMMEM_INT16])},
    {"symmem_collective_u16", offsetof(cuda_kernels, collective[SYMMEM_UINT16])},
    {"symmem_collective_i32", offsetof(cuda_kernels, collective[SYMMEM_INT32])},
    {"symmem_collective_u32", offsetof(cuda_kernels, collective[SYMMEM_UINT32])},
    {"symmem_collective_i64", offsetof(cuda_kernels, collective[SYMMEM_INT64])},
    {"symmem_collective_u64", offsetof(cuda_kernels, collective[SYMMEM_UINT64])},
    {"symmem_collective_f16", offsetof(cuda_kernels, collective[SYMMEM_FLOAT16])},
    {"symmem_collective_bf16", offsetof(cuda_kernels, collective[SYMMEM_BFLOAT16])},
    {"symmem_collective_f32", offsetof(cuda_kernels, collective[SYMMEM_FLOAT32])},
    {"symmem_collective_f64", offsetof(cuda_kernels, collective[SYMMEM_FLOAT64])},
    {"symmem_fast_ll_of_two_f16", offsetof(cuda_kernels, fast[SYMMEM_FLOAT16].ll[0][0])},
    {"symmem_fast_ll_of_two_bf16", offsetof(cuda_kernels, fast[SYMMEM_BFLOAT16].ll[0][0])},
    {"symmem_fast_ll_of_two_f32", offsetof(cuda_kernels, fast[SYMMEM_FLOAT32].ll[0][0])},
    {"symmem_fast_ll_of_four_f16", offsetof(cuda_kernels, fast[SYMMEM_FLOAT16].ll[0][1])},
    {"symmem_fast_ll_of_four_bf16", offsetof(cuda_kernels, fast[SYMMEM_BFLOAT16].ll[0][1])},
    {"symmem_fast_ll_of_four_f32", offsetof(cuda_kernels, fast[SYMMEM_FLOAT32].ll[0][1])},
    {"symmem_fast_ll_of_eight_f16", offsetof(cuda_kernels, fast[SYMMEM_FLOAT16].ll[0][2])},
    {"symmem_fast_ll_of_eight_bf16", offsetof(cuda_kernels, fast[SYMMEM_BFLOAT16].ll[0][2])},
    {"symmem_fast_ll_of_eight_f32", offsetof(cuda_kernels, fast[SYMMEM_FLOAT32].ll[0][2])},
    {"symmem_fast_ll_short_of_two_f16", offsetof(cuda_kernels, fast[SYMMEM_FLOAT16].ll[1][0])},
    {"symmem_fast_ll_short_of_two_bf16", offsetof(cuda_kernels, fast[SYMMEM_BFLOAT16].ll[1][0])},
    {"symmem_fast_ll_short_of_two_f32", offsetof(cuda_kernels, fast[SYMMEM_FLOAT32].ll[1][0])},
    {"symmem_fast_ll_short_of_four_f16", offsetof(cuda_kernels, fast[SYMMEM_FLOAT16].ll[1][1])},
    {"symmem_fast_ll_short_of_four_bf16", offsetof(cuda_kernels, fast[SYMMEM_BFLOAT16].ll[1][1])},
    {"symmem_fast_ll_short_of_four_f32", offsetof(cuda_kernels, fast[SYMMEM_FLOAT32].ll[1][1])},
    {"symmem_fast_ll_short_of_eight_f16", offsetof(cuda_kernels, fast[SYMMEM_FLOAT16].ll[1][2])},
    {"symmem_fast_ll_short_of_eight_bf16", offsetof(cuda_kernels, fast[SYMMEM_BFLOAT16].ll[1][2])},
    {"symmem_fast_ll_short_of_eight_f32", offsetof(cuda_kernels, fast[SYMMEM_FLOAT32].ll[1][2])},
    {"symmem_fast_blocks_of_two_f16", offsetof(cuda_kernels, fast[SYMMEM_FLOAT16].blocks_of_two)},
    {"symmem_fast_blocks_of_two_bf16", offsetof(cuda_kernels, fast[SYMMEM_BFLOAT16].blocks_of_two)},
    {"symmem_fast_blocks_of_two_f32", offsetof(cuda_kernels, fast[SYMMEM_FLOAT32].blocks_of_two)},
    {"symmem_fast_blocks_f16", offsetof(cuda_kernels, fast[SYMMEM_FLOAT16].blocks)},
    {"symmem_fast_blocks_bf16", offsetof(cuda_kernels, fast[SYMMEM_BFLOAT16].blocks)},
    {"symmem_fast_blocks_f32", offsetof(cuda_kernels, fast[SYMMEM_FLOAT32].blocks)},
    {"symmem_fast_wide_f16", offsetof(cuda_kernels, fast[SYMMEM_FLOAT16].wide)},
    {"symmem_fast_wide_bf16", offsetof(cuda_kernels, fast[SYMMEM_BFLOAT16].wide)},
    {"symmem_fast_wide_f32", offsetof(cuda_kernels, fast[SYMMEM_FLOAT32].wide)},
    {"symmem_fast_ll_scatter_f16", offsetof(cuda_kernels, fast[SYMMEM_FLOAT16].scatter[0])},
    {"symmem_fast_ll_short_scatter_f16", offsetof(cuda_kernels, fast[SYMMEM_FLOAT16].scatter[1])},
    {"symmem_fast_chunks_f16", offsetof(cuda_kernels, fast[SYMMEM_FLOAT16].chunks)},
    {"symmem_fast_ll_scatter_bf16", offsetof(cuda_kernels, fast[SYMMEM_BFLOAT16].scatter[0])},
    {"symmem_fast_ll_short_scatter_bf16", offsetof(cuda_kernels, fast[SYMMEM_BFLOAT16].scatter[1])},
    {"symmem_fast_chunks_bf16", offsetof(cuda_kernels, fast[SYMMEM_BFLOAT16].chunks)},
    {"symmem_fast_ll_scatter_f32", offsetof(cuda_kernels, fast[SYMMEM_FLOAT32].scatter[0])},
    {"symmem_fast_ll_short_scatter_f32", offsetof(cuda_kernels, fast[SYMMEM_FLOAT32].scatter[1])},
    {"symmem_fast_chunks_f32", offsetof(cuda_kernels, fast[SYMMEM_FLOAT32].chunks)},
    {"symmem_fast_ll_moves", offsetof(cuda_kernels, moves[0])},
    {"symmem_fast_ll_short_moves", offsetof(cuda_kernels, moves[1])},
    {"symmem_fast_chunks_moves", offsetof(cuda_kernels, chunked_moves)},
    {"symmem_store_words", offsetof(cuda_kernels, store_words)},
    {"symmem_composite_move", offsetof(cuda_kernels, composite_move)},
    {"symmem_all_to_all_v", offsetof(cuda_kernels, splits)},
    {"symmem_tile_u8", offsetof(cuda_kernels, tile[SYMMEM_UINT8])},
    {"symmem_tile_i8", offsetof(cuda_kernels, tile[SYMMEM_INT8])},
    {"symmem_tile_i16", offsetof(cuda_kernels, tile[SYMMEM_INT16])},
    {"symmem_tile_u16", offsetof(cuda_kernels, tile[SYMMEM_UINT16])},
    {"symmem_tile_i32", offsetof(cuda_kernels, tile[SYMMEM_INT32])},
    {"symmem_tile_u32", offsetof(cuda_kernels, tile[SYMMEM_UINT32])},
    {"symmem_tile_i64", offsetof(cuda_kernels, tile[SYMMEM_INT64])},
    {"symmem_tile_u64", offsetof(cuda_kernels, tile[SYMMEM_UINT64])},
    {"symmem_tile_f16", offsetof(cuda_kernels, tile[SYMMEM_FLOAT16])},
    {"symmem_tile_bf16", offsetof(cuda_kernels, tile[SYMMEM_BFLOAT16])},
    {"symmem_tile_f32", offsetof(cuda_kernels, tile[SYMMEM_FLOAT32])},
    {"symmem_tile_f64", offsetof(cuda_kernels, tile[SYMMEM_FLOAT64])},
    {"symmem_product_f32", offsetof(cuda_kernels, local.product[SYMMEM_FLOAT32])},
    {"symmem_product_f64", offsetof(cuda_kernels, local.product[SYMMEM_FLOAT64])},
    {"symmem_product_f16", offsetof(cuda_kernels, local.product[SYMMEM_FLOAT16])},
    {"symmem_product_bf16", offsetof(cuda_kernels, local.product[SYMMEM_BFLOAT16])},
    {"symmem_product_i8", offsetof(cuda_kernels, local.product[SYMMEM_INT8])},
    {"symmem_product_u8", offsetof(cuda_kernels, local.product[SYMMEM_UINT8])},
    {"symmem_finish_f32", offsetof(cuda_kernels, local.finish)},
    {"symmem_finish_f64", offsetof(cuda_kernels, local.finish_double)},
    {"symmem_await_chunk", offsetof(cuda_kernels, local.await_chunk)},
    {"symmem_copy_strided", offsetof(cuda_kernels, local.copy_strided)},
    {"symmem_local_u8", offsetof(cuda_kernels, local.reduce[SYMMEM_UINT8])},
    {"symmem_local_i8", offsetof(cuda_kernels, local.reduce[SYMMEM_INT8])},
    {"symmem_local_i16", offsetof(cuda_kernels, local.reduce[SYMMEM_INT16])},
    {"symmem_local_u16", offsetof(cuda_kernels, local.reduce[SYMMEM_UINT16])},
    {"symmem_local_i32", offsetof(cuda_kernels, local.reduce[SYMMEM_INT32])},
    {"symmem_local_u32", offsetof(cuda_kernels, local.reduce[SYMMEM_UINT32])},
    {"symmem_local_i64", offsetof(cuda_kernels, local.reduce[SYMMEM_INT64])},
    {"symmem_local_u64", offsetof(cuda_kernels, local.reduce[SYMMEM_UINT64])},
    {"symmem_local_f16", offsetof(cuda_kernels, local.reduce[SYMMEM_FLOAT16])},
    {"symmem_local_bf16", offsetof(cuda_kernels, local.reduce[SYMMEM_BFLOAT16])},
    {"symmem_local_f32", offsetof(cuda_kernels, local.reduce[SYMMEM_FLOAT32])},
    {"symmem_local_f64", offsetof(cuda_kernels, local.reduce[SYMMEM_FLOAT64])},
};

static CUresult find_kernels(const cuda_driver *driver, CUmodule module, cuda_kernels *found) {
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; result == CUDA_SUCCESS && i < sizeof kernel_names / sizeof kernel_names[0];
         i++) {
        CUfunction *function = (CUfunction *)(void *)((char *)found + kernel_names[i].offset);
        result = driver->ModuleGetFunction(function, module, kernel_names[i].name);
        /* Now, and not with the first launch. */
        if (result == CUDA_SUCCESS && driver->FuncLoad != NULL)
            result = driver->FuncLoad(*function);
    }
    return result;
}

/* lock held. Contexts of one rank do not wait for each other. A context whose rank is unknown
 * counts as another rank. */
static void count_other(loaded *own, int32_t rank, int32_t change) {
    own->others += rank != own->rank ? change : 0;
    atomic_store(&own->shared, own->others > 0 && own->module.users > 1);
}

/* lock held. If a kernel is not found the module stays loaded, because unloading would not free its
 * memory. */
static CUresult take(const cuda_driver *driver, loaded *own, CUcontext context,
                     unsigned long long context_id) {
    CUmodule module;
    bool is_new;
    CUresult result =
        cuda_module_take(driver, &own->module, context, context_id, cuda_image(), &module, &is_new);
    if (result != CUDA_SUCCESS)
        return result;
    own->found = own->found && !is_new;
    if (!own->found)
        result = find_kernels(driver, module, &own->kernels);
    own->found = result == CUDA_SUCCESS;
    if (!own->found)
        cuda_module_give(driver, &own->module);
    return result;
}

CUresult cuda_kernels_take(const cuda_driver *driver, int32_t device, int32_t rank,
                           CUcontext context, unsigned long long context_id,
                           cuda_kernels *kernels_p) {
    loaded *own = &devices[device];
    pthread_mutex_lock(&own->lock);
    CUresult result = take(driver, own, context, context_id);
    if (result == CUDA_SUCCESS) {
        own->rank = own->module.users == 1 ? rank : own->rank;
        count_other(own, rank, 1);
        *kernels_p = own->kernels;
    }
    pthread_mutex_unlock(&own->lock);
    return result;
}

void cuda_kernels_give(const cuda_driver *driver, int32_t device, int32_t rank) {
    loaded *own = &devices[device];
    pthread_mutex_lock(&own->lock);
    cuda_module_give(driver, &own->module);
    count_other(own, rank, -1);
    pthread_mutex_unlock(&own->lock);
}

bool cuda_kernels_are_shared(int32_t device) {
    return atomic_load(&devices[device].shared);
}
