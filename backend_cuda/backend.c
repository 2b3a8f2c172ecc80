/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of the CUDA skeleton, its instance and its devices. */
#include "cuda_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

SYMMEM_API const symmem_backend *symmem_backend_entry(uint32_t abi);

symmem_status cuda_fail(const cuda_instance *instance, CUresult result, const char *operation) {
    symmem_status status = SYMMEM_BACKEND;
    const char *name = NULL;

    if (cuGetErrorName(result, &name) != CUDA_SUCCESS) {
        name = "unknown CUresult";
    }
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        status = SYMMEM_NO_SPACE;
    } else if (result >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
               result <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD) {
        status = SYMMEM_CAPTURE;
    }
    return instance->host->fail(instance->host, status, 0, operation, "driver: %s (%d)", name,
                                (int)result);
}

symmem_status cuda_enter(const cuda_instance *instance, int32_t device, const char *operation) {
    CUresult result = cuCtxPushCurrent(instance->devices[device].context);
    return result == CUDA_SUCCESS ? SYMMEM_OK : cuda_fail(instance, result, operation);
}

void cuda_leave(void) {
    CUcontext context;
    (void)cuCtxPopCurrent(&context);
}

CUdeviceptr cuda_address(const void *pointer) {
    return (CUdeviceptr)(uintptr_t)pointer;
}

static symmem_status probe(char *reason, size_t capacity) {
    snprintf(reason, capacity, "skeleton: only the shape of the table is checked");
    return SYMMEM_UNSUPPORTED;
}

static void close_instance(void *opaque) {
    cuda_instance *instance = opaque;

    cuda_collect(instance);
    for (int32_t i = 0; i < instance->device_count; i++) {
        if (instance->devices[i].context != NULL) {
            if (cuda_enter(instance, i, "close") == SYMMEM_OK) {
                (void)cuStreamDestroy(instance->devices[i].stream);
                cuda_leave();
            }
            (void)cuDevicePrimaryCtxRelease(instance->devices[i].id);
        }
    }
    pthread_mutex_destroy(&instance->lock);
    free(instance);
}

static symmem_status open_device(cuda_instance *instance, int32_t index) {
    cuda_device *device = &instance->devices[index];
    CUresult result = cuDeviceGet(&device->id, index);

    if (result == CUDA_SUCCESS) {
        result = cuDevicePrimaryCtxRetain(&device->context, device->id);
    }
    if (result != CUDA_SUCCESS) {
        return cuda_fail(instance, result, "open");
    }
    symmem_status status = cuda_enter(instance, index, "open");
    if (status != SYMMEM_OK) {
        return status;
    }
    result = cuStreamCreate(&device->stream, CU_STREAM_NON_BLOCKING);
    cuda_leave();
    /* The kernels would come from kernels/ here: cuLibraryLoadData, cuLibraryGetKernel. */
    return result == CUDA_SUCCESS ? SYMMEM_OK : cuda_fail(instance, result, "open");
}

static symmem_status open_instance(const symmem_host *host, const symmem_backend_config *config,
                                   void **instance_p) {
    cuda_instance *instance = calloc(1, sizeof *instance);
    int count = 0;

    if (instance == NULL) {
        return host->fail(host, SYMMEM_OUT_OF_MEMORY, 0, "open", "no memory for the instance");
    }
    instance->host = host;
    instance->multicast_allowed = config->multicast_allowed;
    pthread_mutex_init(&instance->lock, NULL);
    CUresult result = cuInit(0);
    if (result == CUDA_SUCCESS) {
        result = cuDeviceGetCount(&count);
    }
    symmem_status status = result == CUDA_SUCCESS ? SYMMEM_OK : cuda_fail(instance, result, "open");
    instance->device_count = count < CUDA_MAX_DEVICES ? count : CUDA_MAX_DEVICES;
    for (int32_t i = 0; status == SYMMEM_OK && i < instance->device_count; i++) {
        status = open_device(instance, i);
    }
    if (status != SYMMEM_OK) {
        close_instance(instance);
        return status;
    }
    *instance_p = instance;
    return SYMMEM_OK;
}

static symmem_status device_count(void *opaque, int32_t *count_p) {
    *count_p = ((cuda_instance *)opaque)->device_count;
    return SYMMEM_OK;
}

static symmem_status device_info(void *opaque, int32_t device, symmem_device_info *info_p) {
    cuda_instance *instance = opaque;
    CUmemAllocationProp property = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
    symmem_device_info info = {.device_type = 2 /* kDLCUDA */};

    property.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    property.location.id = device;
    CUresult result = cuMemGetAllocationGranularity(&info.granularity, &property,
                                                    CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    if (result == CUDA_SUCCESS) {
        result = cuDeviceGetName(info.name, (int)sizeof info.name, instance->devices[device].id);
    }
    if (result != CUDA_SUCCESS) {
        return cuda_fail(instance, result, "device_info");
    }
    *info_p = info;
    return SYMMEM_OK;
}

/* Multicast can put shared hosts' GPUs out of service: here it is only declared. */
static symmem_status refuse_multicast(void *opaque) {
    const symmem_host *host = ((cuda_instance *)opaque)->host;
    return host->fail(host, SYMMEM_UNSUPPORTED, 0, "multicast", "not part of the skeleton");
}

static symmem_status multicast_create(void *instance, int32_t device, int32_t world_size,
                                      size_t bytes, void **object_p, symmem_share *share) {
    (void)device, (void)world_size, (void)bytes, (void)object_p, (void)share;
    return refuse_multicast(instance);
}

static symmem_status multicast_attach(void *instance, int32_t device, const symmem_share *share,
                                      size_t bytes, void **multicast_p) {
    (void)device, (void)share, (void)bytes, (void)multicast_p;
    return refuse_multicast(instance);
}

static symmem_status multicast_bind(void *instance, void *multicast, symmem_memory *own,
                                    const symmem_peers *peers, void **address_p) {
    (void)multicast, (void)own, (void)peers, (void)address_p;
    return refuse_multicast(instance);
}

static void multicast_release(void *instance, void *object) {
    (void)instance, (void)object;
}

static symmem_status multimem_store(void *instance, const symmem_peers *peers, void *address,
                                    const void *src, size_t bytes, const symmem_exec *exec) {
    (void)peers, (void)address, (void)src, (void)bytes, (void)exec;
    return refuse_multicast(instance);
}

static symmem_status multimem_ld_reduce(void *instance, const symmem_peers *peers,
                                        const void *address, void *dst, size_t count,
                                        symmem_dtype dtype, symmem_reduce_op op,
                                        const symmem_exec *exec) {
    (void)peers, (void)address, (void)dst, (void)count, (void)dtype, (void)op, (void)exec;
    return refuse_multicast(instance);
}

static const symmem_backend table = {
    .size = sizeof table,
    .abi = SYMMEM_BACKEND_ABI,
    .name = "cuda",
    .description = "CUDA virtual memory management (skeleton)",
    .capabilities = SYMMEM_CAP_STREAMS | SYMMEM_CAP_CAPTURE | SYMMEM_CAP_MULTICAST |
                    SYMMEM_CAP_OVERLAP | SYMMEM_CAP_THREAD_RANKS | SYMMEM_CAP_PROCESS_RANKS |
                    SYMMEM_CAP_HOST_FN | SYMMEM_CAP_DIRECT_ACCESS | SYMMEM_CAP_POOL |
                    SYMMEM_CAP_WRAP_STREAM,
    .probe = probe,
    .open = open_instance,
    .close = close_instance,
    .device_count = device_count,
    .device_info = device_info,
    .memory_alloc = cuda_memory_alloc,
    .memory_release = cuda_memory_release,
    .memory_export = cuda_memory_export,
    .share_close = cuda_share_close,
    .memory_import = cuda_memory_import,
    .signal_bytes = cuda_signal_bytes,
    .peers_open = cuda_peers_open,
    .peers_close = cuda_peers_close,
    .barrier = cuda_barrier,
    .put_signal = cuda_put_signal,
    .wait_signal = cuda_wait_signal,
    .signal_reset = cuda_signal_reset,
    .signal_poison = cuda_signal_poison,
    .copy = cuda_copy,
    .memset32 = cuda_memset32,
    .write_value32 = cuda_write_value32,
    .stream_create = cuda_stream_create,
    .stream_wrap = cuda_stream_wrap,
    .stream_destroy = cuda_stream_destroy,
    .stream_synchronize = cuda_stream_synchronize,
    .stream_query = cuda_stream_query,
    .device_synchronize = cuda_device_synchronize,
    .event_create = cuda_event_create,
    .event_destroy = cuda_event_destroy,
    .event_record = cuda_event_record,
    .stream_wait_event = cuda_stream_wait_event,
    .event_synchronize = cuda_event_synchronize,
    .event_query = cuda_event_query,
    .host_fn = cuda_host_fn,
    .capture_begin = cuda_capture_begin,
    .capture_end = cuda_capture_end,
    .capture_id = cuda_capture_id,
    .graph_launch = cuda_graph_launch,
    .graph_destroy = cuda_graph_destroy,
    .multicast_create = multicast_create,
    .multicast_attach = multicast_attach,
    .multicast_bind = multicast_bind,
    .multicast_release = multicast_release,
    .multimem_store = multimem_store,
    .multimem_ld_reduce = multimem_ld_reduce,
};

const symmem_backend *symmem_backend_entry(uint32_t abi) {
    return abi == SYMMEM_BACKEND_ABI ? &table : NULL;
}
