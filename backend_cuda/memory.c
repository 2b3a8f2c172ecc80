/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory by the driver's virtual memory management: create, map, export, import.
 *
 * Ranks that are threads see one mapping of each rank's memory (SM-HANDLE-13). The importer finds
 * it in the list below by the number that the share carries; if its owner has given it up
 * meanwhile, the descriptor is imported as another process would.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda_internal.h"

typedef struct cuda_mapping {
    struct cuda_mapping *next;
    uint64_t number; /* of own memory, in this process; 0: imported */
    int32_t users;
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    size_t mapped_bytes;
} cuda_mapping;

static struct {
    pthread_mutex_t lock;
    cuda_mapping *first;
    uint64_t last_number;
} mappings = {.lock = PTHREAD_MUTEX_INITIALIZER};

static CUmemAllocationProp allocation_property(int32_t device) {
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
    };
}

static CUresult allow_access(const cuda_driver *driver, const cuda_mapping *mapping,
                             int32_t device) {
    CUmemAccessDesc access = {
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
    };
    return driver->MemSetAccess(mapping->address, mapping->mapped_bytes, &access, 1);
}

/* Reserves addresses for mapping->handle and maps it for one device; undoes its own part. */
static CUresult map_handle(const cuda_driver *driver, cuda_mapping *mapping, int32_t device) {
    CUresult result = driver->MemAddressReserve(&mapping->address, mapping->mapped_bytes, 0, 0, 0);
    if (result != CUDA_SUCCESS)
        return result;
    result = driver->MemMap(mapping->address, mapping->mapped_bytes, 0, mapping->handle, 0);
    if (result != CUDA_SUCCESS)
        goto free_address;
    result = allow_access(driver, mapping, device);
    if (result != CUDA_SUCCESS)
        goto unmap;
    return CUDA_SUCCESS;
unmap:
    (void)driver->MemUnmap(mapping->address, mapping->mapped_bytes);
free_address:
    (void)driver->MemAddressFree(mapping->address, mapping->mapped_bytes);
    return result;
}

static void destroy(const cuda_driver *driver, cuda_mapping *mapping) {
    (void)driver->MemUnmap(mapping->address, mapping->mapped_bytes);
    (void)driver->MemAddressFree(mapping->address, mapping->mapped_bytes);
    (void)driver->MemRelease(mapping->handle);
    free(mapping);
}

static void enlist(cuda_mapping *mapping) {
    pthread_mutex_lock(&mappings.lock);
    mapping->number = ++mappings.last_number;
    mapping->next = mappings.first;
    mappings.first = mapping;
    pthread_mutex_unlock(&mappings.lock);
}

static cuda_mapping *find(uint64_t number) {
    pthread_mutex_lock(&mappings.lock);
    cuda_mapping *mapping = mappings.first;
    while (mapping != NULL && mapping->number != number)
        mapping = mapping->next;
    if (mapping != NULL)
        mapping->users++;
    pthread_mutex_unlock(&mappings.lock);
    return mapping;
}

static void drop(const cuda_driver *driver, cuda_mapping *mapping) {
    pthread_mutex_lock(&mappings.lock);
    bool last = --mapping->users == 0;
    cuda_mapping **link = &mappings.first;
    while (last && *link != NULL && *link != mapping)
        link = &(*link)->next;
    if (last && *link != NULL)
        *link = mapping->next;
    pthread_mutex_unlock(&mappings.lock);
    if (last)
        destroy(driver, mapping);
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

/* --- own memory --------------------------------------------------------------------- */

/* Waited for: nobody knows the memory yet. */
static CUresult zero(cuda_instance *instance, const cuda_mapping *mapping, int32_t device) {
    cuda_lane *lane;
    CUresult result = cuda_lane_take(instance, device, &lane);
    if (result != CUDA_SUCCESS)
        return result;
    result =
        instance->driver.MemsetD8Async(mapping->address, 0, mapping->mapped_bytes, lane->native);
    if (result == CUDA_SUCCESS)
        result = cuda_wait_idle(instance, lane->native, 0, NULL);
    cuda_lane_give(instance, device, lane);
    return result;
}

static symmem_status fail_alloc(const cuda_instance *instance, CUresult result, size_t bytes) {
    size_t free_bytes = 0, total_bytes = 0;
    if (result != CUDA_ERROR_OUT_OF_MEMORY)
        return cuda_fail(instance, result, "alloc");
    (void)instance->driver.MemGetInfo(&free_bytes, &total_bytes);
    return instance->host->fail_sizes(instance->host, SYMMEM_NO_SPACE, 0, "alloc", bytes,
                                      free_bytes);
}

/* Creates, maps and zeroes mapping->mapped_bytes. */
static CUresult create(cuda_instance *instance, int32_t device, cuda_mapping *mapping) {
    const cuda_driver *driver = &instance->driver;
    const CUmemAllocationProp property = allocation_property(device);
    CUresult result = driver->MemCreate(&mapping->handle, mapping->mapped_bytes, &property, 0);
    if (result != CUDA_SUCCESS)
        return result;
    result = map_handle(driver, mapping, device);
    if (result != CUDA_SUCCESS) {
        (void)driver->MemRelease(mapping->handle);
        return result;
    }
    return CUDA_SUCCESS;
}

static symmem_status alloc_rounded(cuda_instance *instance, int32_t device, size_t bytes,
                                   cuda_mapping *mapping) {
    const cuda_driver *driver = &instance->driver;
    const CUmemAllocationProp property = allocation_property(device);
    size_t granularity = 0, rounded;
    /* Recommended: what a multicast object could be bound to as well. */
    CUresult result = driver->MemGetAllocationGranularity(&granularity, &property,
                                                          CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    if (result != CUDA_SUCCESS)
        return cuda_fail(instance, result, "alloc");
    if (__builtin_add_overflow(bytes, granularity - 1, &rounded))
        return fail_alloc(instance, CUDA_ERROR_OUT_OF_MEMORY, bytes);
    mapping->mapped_bytes = rounded / granularity * granularity;
    symmem_status status = cuda_point(instance, "cuda.alloc.create");
    if (status != SYMMEM_OK)
        return status;
    result = create(instance, device, mapping);
    if (result != CUDA_SUCCESS)
        return fail_alloc(instance, result, bytes);
    result = zero(instance, mapping, device);
    if (result != CUDA_SUCCESS)
        status = cuda_fail(instance, result, "alloc");
    if (status == SYMMEM_OK)
        status = cuda_point(instance, "cuda.alloc.done");
    if (status == SYMMEM_OK)
        return status;
    (void)driver->MemUnmap(mapping->address, mapping->mapped_bytes);
    (void)driver->MemAddressFree(mapping->address, mapping->mapped_bytes);
    (void)driver->MemRelease(mapping->handle);
    return status;
}

symmem_status cuda_memory_alloc(void *opaque, int32_t device, size_t bytes, symmem_memory *memory) {
    cuda_instance *instance = opaque;
    symmem_status status = cuda_enter(instance, device, "alloc");
    if (status != SYMMEM_OK)
        return status;
    cuda_mapping *mapping = calloc(1, sizeof *mapping);
    if (mapping == NULL) {
        status = cuda_no_memory(instance, "alloc");
        goto leave;
    }
    mapping->users = 1;
    status = alloc_rounded(instance, device, bytes, mapping);
    if (status == SYMMEM_OK) {
        enlist(mapping);
        describe(memory, mapping, device, bytes, 0);
    } else {
        free(mapping);
    }
leave:
    cuda_leave(instance);
    return status;
}

void cuda_memory_release(void *opaque, symmem_memory *memory) {
    cuda_instance *instance = opaque;
    (void)cuda_point(instance, "cuda.release*");
    if (cuda_enter(instance, memory->device, "release") == SYMMEM_OK) {
        drop(&instance->driver, memory->priv);
        cuda_leave(instance);
    }
}

size_t cuda_memory_mapped_bytes(const symmem_memory *memory) {
    return ((const cuda_mapping *)memory->priv)->mapped_bytes;
}

CUmemGenericAllocationHandle cuda_memory_handle(const symmem_memory *memory) {
    return ((const cuda_mapping *)memory->priv)->handle;
}

/* --- shares ------------------------------------------------------------------------- */

symmem_status cuda_memory_export(void *opaque, symmem_memory *memory, symmem_share *share) {
    cuda_instance *instance = opaque;
    const cuda_mapping *mapping = memory->priv;
    int fd = -1;
    symmem_status status = cuda_point(instance, "cuda.export");
    if (status != SYMMEM_OK)
        return status;
    status = cuda_enter(instance, memory->device, "export");
    if (status != SYMMEM_OK)
        return status;
    CUresult result = instance->driver.MemExportToShareableHandle(
        &fd, mapping->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    cuda_leave(instance);
    if (result != CUDA_SUCCESS)
        return cuda_fail(instance, result, "export");
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC); /* the driver does not promise it */
    /* The bytes are no other way to the memory, so they are not announced as one. */
    share->kind = SYMMEM_SHARE_FD;
    share->fd = fd;
    share->mapped_bytes = mapping->mapped_bytes;
    memcpy(share->bytes, &mapping->number, sizeof mapping->number);
    return SYMMEM_OK;
}

void cuda_share_close(void *opaque, symmem_share *share) {
    (void)opaque;
    if (share->fd >= 0) {
        close(share->fd);
        share->fd = -1;
    }
}

static CUresult import_descriptor(const cuda_driver *driver, const symmem_share *share,
                                  int32_t device, cuda_mapping **mapping_p) {
    cuda_mapping *mapping = calloc(1, sizeof *mapping);
    if (mapping == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    mapping->users = 1;
    mapping->mapped_bytes = share->mapped_bytes;
    CUresult result = driver->MemImportFromShareableHandle(
        &mapping->handle, (void *)(uintptr_t)share->fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    if (result != CUDA_SUCCESS)
        goto free_mapping;
    result = map_handle(driver, mapping, device);
    if (result != CUDA_SUCCESS)
        goto release_handle;
    *mapping_p = mapping;
    return CUDA_SUCCESS;
release_handle:
    (void)driver->MemRelease(mapping->handle);
free_mapping:
    free(mapping);
    return result;
}

static CUresult import_share(const cuda_driver *driver, const symmem_share *share, int32_t device,
                             cuda_mapping **mapping_p) {
    uint64_t number;
    memcpy(&number, share->bytes, sizeof number);
    cuda_mapping *mapping = share->same_process ? find(number) : NULL;
    if (mapping == NULL)
        return import_descriptor(driver, share, device, mapping_p);
    CUresult result = allow_access(driver, mapping, device);
    if (result == CUDA_SUCCESS)
        *mapping_p = mapping;
    else
        drop(driver, mapping);
    return result;
}

symmem_status cuda_memory_import(void *opaque, int32_t device, const symmem_share *share,
                                 size_t bytes, symmem_memory *memory) {
    cuda_instance *instance = opaque;
    cuda_mapping *mapping = NULL;
    symmem_status status = cuda_point(instance, "cuda.import");
    if (status != SYMMEM_OK)
        return status;
    if (share->mapped_bytes < bytes)
        return instance->host->fail_sizes(instance->host, SYMMEM_MISMATCH, 0, "import", bytes,
                                          share->mapped_bytes);
    status = cuda_enter(instance, device, "import");
    if (status != SYMMEM_OK)
        return status;
    CUresult result = import_share(&instance->driver, share, device, &mapping);
    if (result == CUDA_SUCCESS)
        describe(memory, mapping, device, bytes, 1);
    else if (result == CUDA_ERROR_INVALID_DEVICE || result == CUDA_ERROR_PEER_ACCESS_UNSUPPORTED)
        status = instance->host->fail(instance->host, SYMMEM_UNREACHABLE, 0, "import",
                                      "device %d cannot map the peer's memory", (int)device);
    else
        status = cuda_fail(instance, result, "import");
    cuda_leave(instance);
    return status;
}
