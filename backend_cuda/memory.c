/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory by the driver's virtual memory management: create, map, export, import. */
#include "cuda_internal.h"

#include <stdlib.h>
#include <unistd.h>

static CUmemAllocationProp allocation_property(int32_t device) {
    CUmemAllocationProp property = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
    };
    property.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    property.location.id = device;
    return property;
}

static CUresult allow_access(const cuda_mapping *mapping, int32_t device) {
    CUmemAccessDesc access = {.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = device;
    return cuMemSetAccess(mapping->address, mapping->mapped_bytes, &access, 1);
}

/* Reserves addresses for mapping->handle and maps it for one device; undoes its own part. */
static CUresult map_handle(cuda_mapping *mapping, int32_t device) {
    CUresult result = cuMemAddressReserve(&mapping->address, mapping->mapped_bytes, 0, 0, 0);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = cuMemMap(mapping->address, mapping->mapped_bytes, 0, mapping->handle, 0);
    if (result != CUDA_SUCCESS) {
        goto free_address;
    }
    result = allow_access(mapping, device);
    if (result != CUDA_SUCCESS) {
        goto unmap;
    }
    return CUDA_SUCCESS;
unmap:
    (void)cuMemUnmap(mapping->address, mapping->mapped_bytes);
free_address:
    (void)cuMemAddressFree(mapping->address, mapping->mapped_bytes);
    return result;
}

static void drop_mapping(cuda_mapping *mapping) {
    /* acq_rel; pairs with: itself, so that the last user sees the others' work as over */
    if (atomic_fetch_sub_explicit(&mapping->users, 1, memory_order_acq_rel) == 1) {
        (void)cuMemUnmap(mapping->address, mapping->mapped_bytes);
        (void)cuMemAddressFree(mapping->address, mapping->mapped_bytes);
        (void)cuMemRelease(mapping->handle);
        free(mapping);
    }
}

static void describe(symmem_memory *memory, cuda_mapping *mapping, int32_t device, size_t bytes,
                     int32_t imported) {
    *memory = (symmem_memory){
        .ptr = (void *)(uintptr_t)mapping->address,
        .bytes = bytes,
        .device = device,
        .imported = imported,
        .priv = mapping,
    };
}

/* Zeroed on the private stream and waited for: nobody knows the memory yet. */
static CUresult zero(const cuda_instance *instance, const cuda_mapping *mapping, int32_t device) {
    CUstream stream = instance->devices[device].stream;
    CUresult result = cuMemsetD8Async(mapping->address, 0, mapping->mapped_bytes, stream);
    return result == CUDA_SUCCESS ? cuStreamSynchronize(stream) : result;
}

static symmem_status fail_alloc(cuda_instance *instance, CUresult result, size_t bytes) {
    size_t free_bytes = 0, total_bytes = 0;
    if (result == CUDA_ERROR_OUT_OF_MEMORY &&
        cuMemGetInfo(&free_bytes, &total_bytes) == CUDA_SUCCESS) {
        return instance->host->fail_sizes(instance->host, SYMMEM_NO_SPACE, 0, "alloc", bytes,
                                          free_bytes);
    }
    return cuda_fail(instance, result, "alloc");
}

symmem_status cuda_memory_alloc(void *opaque, int32_t device, size_t bytes, symmem_memory *memory) {
    cuda_instance *instance = opaque;
    CUmemAllocationProp property = allocation_property(device);
    size_t granularity = 0;
    symmem_status status = cuda_enter(instance, device, "alloc");
    if (status != SYMMEM_OK) {
        return status;
    }
    CUresult result;
    cuda_mapping *mapping = calloc(1, sizeof *mapping);
    if (mapping == NULL) {
        status = instance->host->fail(instance->host, SYMMEM_OUT_OF_MEMORY, 0, "alloc", "mapping");
        goto leave;
    }
    atomic_init(&mapping->users, 1);
    /* Recommended: what a multicast object could be bound to as well. */
    result = cuMemGetAllocationGranularity(&granularity, &property,
                                           CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    if (result != CUDA_SUCCESS) {
        goto free_mapping;
    }
    mapping->mapped_bytes = (bytes + granularity - 1) / granularity * granularity;
    result = cuMemCreate(&mapping->handle, mapping->mapped_bytes, &property, 0);
    if (result != CUDA_SUCCESS) {
        goto free_mapping;
    }
    result = map_handle(mapping, device);
    if (result != CUDA_SUCCESS) {
        goto release_handle;
    }
    result = zero(instance, mapping, device);
    if (result != CUDA_SUCCESS) {
        status = cuda_fail(instance, result, "alloc");
        drop_mapping(mapping);
        goto leave;
    }
    describe(memory, mapping, device, bytes, 0);
    goto leave;
release_handle:
    (void)cuMemRelease(mapping->handle);
free_mapping:
    status = fail_alloc(instance, result, bytes);
    free(mapping);
leave:
    cuda_leave();
    return status;
}

/* Calls the driver, so it must not be reached from a host function of a stream. */
void cuda_memory_release(void *opaque, symmem_memory *memory) {
    cuda_instance *instance = opaque;
    if (cuda_enter(instance, memory->device, "release") == SYMMEM_OK) {
        drop_mapping(memory->priv);
        cuda_leave();
    }
}

symmem_status cuda_memory_export(void *opaque, symmem_memory *memory, symmem_share *share) {
    cuda_instance *instance = opaque;
    cuda_mapping *mapping = memory->priv;
    int fd = -1;
    CUresult result = cuMemExportToShareableHandle(&fd, mapping->handle,
                                                   CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (result != CUDA_SUCCESS) {
        return cuda_fail(instance, result, "export");
    }
    *share = (symmem_share){
        .kind = SYMMEM_SHARE_FD,
        .fd = fd,
        .mapped_bytes = mapping->mapped_bytes,
    };
    return SYMMEM_OK;
}

void cuda_share_close(void *opaque, symmem_share *share) {
    (void)opaque;
    if (share->fd >= 0) {
        close(share->fd);
        share->fd = -1;
    }
}

static CUresult import_mapping(const symmem_share *share, int32_t device,
                               cuda_mapping **mapping_p) {
    cuda_mapping *mapping = calloc(1, sizeof *mapping);
    if (mapping == NULL) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    atomic_init(&mapping->users, 1);
    mapping->mapped_bytes = share->mapped_bytes;
    CUresult result = cuMemImportFromShareableHandle(&mapping->handle, (void *)(uintptr_t)share->fd,
                                                     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    if (result != CUDA_SUCCESS) {
        goto free_mapping;
    }
    result = map_handle(mapping, device);
    if (result != CUDA_SUCCESS) {
        goto release_handle;
    }
    *mapping_p = mapping;
    return CUDA_SUCCESS;
release_handle:
    (void)cuMemRelease(mapping->handle);
free_mapping:
    free(mapping);
    return result;
}

symmem_status cuda_memory_import(void *opaque, int32_t device, const symmem_share *share,
                                 size_t bytes, symmem_memory *memory) {
    cuda_instance *instance = opaque;
    cuda_mapping *mapping = NULL;
    symmem_status status = cuda_enter(instance, device, "import");
    if (status != SYMMEM_OK) {
        return status;
    }
    CUresult result = import_mapping(share, device, &mapping);
    if (result == CUDA_ERROR_INVALID_DEVICE || result == CUDA_ERROR_PEER_ACCESS_UNSUPPORTED) {
        status = instance->host->fail(instance->host, SYMMEM_UNREACHABLE, 0, "import",
                                      "device %d cannot map the peer's memory", device);
    } else if (result != CUDA_SUCCESS) {
        status = cuda_fail(instance, result, "import");
    } else {
        describe(memory, mapping, device, bytes, 1);
    }
    cuda_leave();
    return status;
}
