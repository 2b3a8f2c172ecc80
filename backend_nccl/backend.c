/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NCCL skeleton: a check of backend.h's collective entries against nccl.h; see README.md. What a
 * rank does on its own GPU (streams, copies, graphs, kernels) is the CUDA skeleton's, on other
 * pointers, and is not repeated: those entries are NULL here.
 */
#include "nccl_internal.h"

#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

SYMMEM_API const symmem_backend *symmem_backend_entry(uint32_t abi);

/* ncclResult_t grows from version to version: never an index into a table. */
symmem_status nccl_fail(const nccl_instance *instance, ncclResult_t result, const char *operation) {
    symmem_status status = SYMMEM_BACKEND;
    if (result == ncclRemoteError) {
        status = SYMMEM_PEER_LOST;
    } else if (result == ncclInProgress) {
        status = SYMMEM_TIMEOUT;
    }
    return instance->host->fail(instance->host, status, 0, operation, "NCCL: %s (%d)",
                                ncclGetErrorString(result), (int)result);
}

static symmem_status probe(char *reason, size_t capacity) {
    snprintf(reason, capacity, "skeleton: only the shape of the table is checked");
    return SYMMEM_UNSUPPORTED;
}

/*
 * A communicator makes multicast objects by itself unless NCCL_NVLS_ENABLE is 0 in the environment
 * before NCCL's first call. Changing the environment here would be process-wide state and a race,
 * so the user has to set it.
 */
static symmem_status open_instance(const symmem_host *host, const symmem_backend_config *config,
                                   void **instance_p) {
    const char *nvls = getenv("NCCL_NVLS_ENABLE");
    if (!config->multicast_allowed && (nvls == NULL || strcmp(nvls, "0") != 0)) {
        return host->fail(host, SYMMEM_UNSUPPORTED, 0, "open",
                          "multicast is off: set NCCL_NVLS_ENABLE=0 before starting");
    }
    nccl_instance *instance = calloc(1, sizeof *instance);
    if (instance == NULL) {
        return host->fail(host, SYMMEM_OUT_OF_MEMORY, 0, "open", "no memory for the instance");
    }
    instance->host = host;
    *instance_p = instance;
    return SYMMEM_OK;
}

static void close_instance(void *instance) {
    free(instance);
}

static symmem_status device_count(void *opaque, int32_t *count_p) {
    nccl_instance *instance = opaque;
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess) {
        return instance->host->fail(instance->host, SYMMEM_BACKEND, 0, "device_count", "no device");
    }
    *count_p = count;
    return SYMMEM_OK;
}

static symmem_status device_info(void *opaque, int32_t device, symmem_device_info *info_p) {
    nccl_instance *instance = opaque;
    struct cudaDeviceProp properties;
    symmem_device_info info = {.device_type = 2 /* kDLCUDA */, .granularity = 2u << 20};
    if (cudaGetDeviceProperties(&properties, device) != cudaSuccess) {
        return instance->host->fail(instance->host, SYMMEM_BACKEND, 0, "device_info", "device");
    }
    memcpy(info.name, properties.name, sizeof info.name - 1);
    *info_p = info;
    return SYMMEM_OK;
}

static const symmem_backend table = {
    .size = sizeof table,
    .abi = SYMMEM_BACKEND_ABI,
    .name = "nccl",
    .description = "NCCL windows (skeleton)",
    .capabilities = SYMMEM_CAP_THREAD_RANKS | SYMMEM_CAP_PROCESS_RANKS | SYMMEM_CAP_DIRECT_ACCESS,
    .probe = probe,
    .open = open_instance,
    .close = close_instance,
    .device_count = device_count,
    .device_info = device_info,
    .memory_alloc = nccl_memory_alloc,
    .memory_release = nccl_memory_release,
    .memory_exchange = nccl_memory_exchange,
    .group_open = nccl_group_open,
    .group_close = nccl_group_close,
};

const symmem_backend *symmem_backend_entry(uint32_t abi) {
    return abi == SYMMEM_BACKEND_ABI ? &table : NULL;
}
