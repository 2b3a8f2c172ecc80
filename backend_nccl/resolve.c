/* SPDX-License-Identifier: BSD-3-Clause */
/* From a window to pointers: by the host's query if NCCL has one, or by a small kernel. */
#include <string.h>

#include "nccl_internal.h"
#include "resolve.h"
#include "comm.h"
#include "error.h"
#include "image.h"
#include "lsa_team.h"

#define POINTERS_PER_PIECE ((int)(CUDA_SMALL_BLOCK_BYTES / sizeof(void *)))
#define RESOLVE_MS 30000u

static symmem_status ask_host(cuda_instance *instance, const nccl_window *window, void **pointers) {
    const nccl_lsa_team ranks = window->comm->ranks;
    for (int32_t r = 0; r < ranks.count; r++) {
        ncclResult_t result = nccl_state_of(instance)->library.GetPeerDevicePointer(
            window->handle, 0, (int)r, &pointers[ranks.first + r]);
        if (result != ncclSuccess)
            return nccl_fail(instance, result, "rendezvous");
    }
    return SYMMEM_OK;
}

/* If windows are not supported, 2.28 returns a registration of its own on the host. A kernel that
 * followed it would break the context. */
static bool is_on_device(const cuda_instance *instance, const nccl_window *window) {
    return cuda_memory_type(&instance->driver, cuda_address(window->handle)) ==
           CU_MEMORYTYPE_DEVICE;
}

static cuda_module modules[CUDA_MAX_DEVICES] = {
    [0 ... CUDA_MAX_DEVICES - 1] = CUDA_MODULE_NONE,
};

/* The caller then owns one use of the module. Called without the state's lock, because the driver
 * may wait for a callback that takes the lock (nccl_inflight_end). */
static CUresult load_kernel(cuda_instance *instance, int32_t index, CUfunction *kernel_p) {
    const cuda_device *device = &instance->devices[index];
    CUmodule module;
    CUresult result = cuda_module_take(&instance->driver, &modules[index], device->context,
                                       device->context_id, nccl_image(), &module, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    result = instance->driver.ModuleGetFunction(kernel_p, module, "symmem_nccl_resolve");
    if (result == CUDA_SUCCESS)
        return CUDA_SUCCESS;
    *kernel_p = NULL;
    cuda_module_give(&instance->driver, &modules[index]);
    return result;
}

static CUresult find_kernel(cuda_instance *instance, int32_t device, CUfunction *kernel_p) {
    nccl_state *state = nccl_state_of(instance);
    CUfunction loaded = NULL;
    pthread_mutex_lock(&state->lock);
    *kernel_p = state->resolvers[device];
    pthread_mutex_unlock(&state->lock);
    if (*kernel_p != NULL)
        return CUDA_SUCCESS;
    CUresult result = load_kernel(instance, device, &loaded);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&state->lock);
    bool first = state->resolvers[device] == NULL;
    if (first)
        state->resolvers[device] = loaded;
    pthread_mutex_unlock(&state->lock);
    *kernel_p = loaded;
    if (!first) /* another group's rendezvous took the instance's use already */
        cuda_module_give(&instance->driver, &modules[device]);
    return CUDA_SUCCESS;
}

/* Not 0, which would mean no limit. */
static uint32_t time_left_ms(uint64_t deadline_ns) {
    const uint64_t now_ns = cuda_now_ns();
    if (deadline_ns == 0 || deadline_ns > now_ns + RESOLVE_MS * CUDA_NS_PER_MS)
        return RESOLVE_MS;
    return deadline_ns <= now_ns ? 1 : (uint32_t)((deadline_ns - now_ns) / CUDA_NS_PER_MS) + 1;
}

/* A piece that the kernel did not finish in time is given up. */
static CUresult run_kernel(cuda_instance *instance, CUstream native, CUfunction kernel,
                           ncclWindow_t window, int first, int count, void **pointers,
                           uint64_t deadline_ns) {
    void *piece;
    CUresult result = cuda_small_block_take(&instance->driver, &piece);
    if (result != CUDA_SUCCESS)
        return result;
    void *arguments[] = {&window, &first, &count, &piece};
    result = instance->driver.LaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, native, arguments, NULL);
    if (result == CUDA_SUCCESS)
        result = cuda_wait_idle(instance, native, time_left_ms(deadline_ns), NULL);
    if (result == CUDA_SUCCESS)
        memcpy(pointers, piece, sizeof(void *) * (size_t)count);
    if (result != CUDA_ERROR_NOT_READY)
        cuda_small_block_give(piece);
    return result;
}

/* pointers[0..count): the ranks of the LSA team. */
static CUresult ask_device(cuda_instance *instance, const nccl_window *window, int count,
                           void **pointers, uint64_t deadline_ns) {
    int32_t device = window->comm->device;
    CUfunction kernel;
    cuda_private_stream *private_stream;
    CUresult result = find_kernel(instance, device, &kernel);
    if (result == CUDA_SUCCESS)
        result = cuda_private_stream_take(instance, device, &private_stream);
    if (result != CUDA_SUCCESS)
        return result;
    for (int first = 0; result == CUDA_SUCCESS && first < count; first += POINTERS_PER_PIECE) {
        int left = count - first;
        result = run_kernel(instance, private_stream->native, kernel, window->handle, first,
                            left < POINTERS_PER_PIECE ? left : POINTERS_PER_PIECE, pointers + first,
                            deadline_ns);
    }
    if (result != CUDA_ERROR_NOT_READY)
        cuda_private_stream_give(instance, device, private_stream);
    else
        window->comm->late =
            private_stream; /* the group has failed, so no kernel runs there any more */
    return result;
}

/* The team is a run of ranks around this rank. */
static symmem_status ask_kernel(cuda_instance *instance, const nccl_window *window,
                                const symmem_exchange *exchange, void **pointers) {
    const symmem_host *host = instance->host;
    nccl_lsa_team lsa_team;
    if (!is_on_device(instance, window))
        return host->fail(host, SYMMEM_UNSUPPORTED, 0, "rendezvous",
                          "NCCL registered the memory without a window: some ranks of a host "
                          "cannot reach each other's memory");
    symmem_status status = nccl_lsa_team_of(instance, window->comm->handle, exchange, &lsa_team);
    if (status != SYMMEM_OK)
        return status;
    CUresult result = ask_device(instance, window, lsa_team.count, pointers + lsa_team.first,
                                 nccl_deadline(exchange->deadline_ns));
    if (result == CUDA_ERROR_NOT_READY)
        return host->fail(host, SYMMEM_TIMEOUT, 0, "rendezvous",
                          "the device did not get to the kernel that asks for NCCL's pointers");
    return result == CUDA_SUCCESS ? SYMMEM_OK : cuda_fail(instance, result, "rendezvous");
}

symmem_status nccl_resolve(cuda_instance *instance, const nccl_window *window,
                           const symmem_exchange *exchange, void **pointers) {
    symmem_status status = cuda_failpoint(instance, "nccl.resolve");
    if (status == SYMMEM_OK && window->comm->ranks.count == 1) {
        /* NCCL makes no window for a single rank. */
        pointers[exchange->rank] = window->allocation->memory.ptr;
        return SYMMEM_OK;
    }
    if (status == SYMMEM_OK)
        status = cuda_enter(instance, window->comm->device, "rendezvous");
    if (status != SYMMEM_OK)
        return status;
    if (nccl_state_of(instance)->library.resolver == NCCL_RESOLVE_BY_HOST)
        status = ask_host(instance, window, pointers);
    else
        status = ask_kernel(instance, window, exchange, pointers);
    cuda_leave(instance);
    return status;
}

void nccl_modules_release(cuda_instance *instance) {
    for (int32_t i = 0; i < instance->device_count; i++)
        if (nccl_state_of(instance)->resolvers[i] != NULL)
            cuda_module_give_in(instance, i, &modules[i]);
}
