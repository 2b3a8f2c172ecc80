/* SPDX-License-Identifier: BSD-3-Clause */
/* The core's memory entries: allocate, export, import. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "memory/mapping.h"
#include "memory/memory.h"
#include "driver/context.h"
#include "driver/device.h"
#include "driver/error.h"
#include "driver/fabric.h"
#include "memory/suballoc.h"

/* The contents of a share's bytes. */
typedef struct share_bytes {
    cuda_origin from;
    uint64_t offset, mapped_bytes; /* of the whole mapping */
    uint64_t series;               /* of a granule; 0: none */
    CUuuid maker;                  /* the device */
} share_bytes;

_Static_assert(sizeof(share_bytes) <= sizeof(((symmem_share *)0)->bytes), "it has to fit");

static void describe(symmem_memory *memory, cuda_mapping *mapping, size_t offset, int32_t device,
                     size_t bytes, int32_t imported) {
    *memory = (symmem_memory){
        .ptr = (void *)(uintptr_t)(mapping->address + offset),
        .bytes = bytes,
        .device = device,
        .imported = imported,
        .priv = mapping,
    };
}

/* --- local memory ------------------------------------------------------------------ */

static symmem_status fail_alloc(const cuda_instance *instance, CUresult result, size_t bytes) {
    size_t free_bytes = 0, total_bytes = 0;
    if (result == CUDA_ERROR_NOT_READY)
        return cuda_fail_timeout(instance, "alloc");
    if (result != CUDA_ERROR_OUT_OF_MEMORY || cuda_descriptors_error() != 0)
        return cuda_fail(instance, result, "alloc");
    (void)instance->driver.MemGetInfo(&free_bytes, &total_bytes);
    return instance->host->fail_sizes(instance->host, SYMMEM_NO_SPACE, 0, "alloc", bytes,
                                      free_bytes);
}

/* The recommended granularity also suits a multicast object. */
static CUresult ask_granularity(const cuda_driver *driver, int32_t device, bool fabric,
                                size_t *granularity_p) {
    const CUmemAllocationProp property = cuda_memory_property(device, fabric);
    return driver->MemGetAllocationGranularity(granularity_p, &property,
                                               CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
}

/* fabric_p: it is that of memory with a fabric handle. */
static CUresult find_granularity(cuda_instance *instance, int32_t device, bool *fabric_p,
                                 size_t *granularity_p) {
    const cuda_driver *driver = &instance->driver;
    *fabric_p = cuda_fabric_is_offered(instance, device);
    const CUresult result = ask_granularity(driver, device, *fabric_p, granularity_p);
    if (!*fabric_p || !cuda_fabric_may_be_why(result))
        return result;
    *fabric_p = false;
    const CUresult without = ask_granularity(driver, device, false, granularity_p);
    cuda_fabric_was_why(instance, device, result, without);
    return without;
}

/* If memory is short the open granule is closed, because everything in it may have been freed. */
static CUresult create_whole(cuda_instance *instance, int32_t device, size_t bytes, bool fabric,
                             cuda_mapping *mapping) {
    mapping->mapped_bytes = bytes;
    CUresult result = cuda_mapping_create(instance, device, fabric, mapping);
    if (result != CUDA_ERROR_OUT_OF_MEMORY)
        return result;
    cuda_granule_close(instance, device);
    return cuda_mapping_create(instance, device, fabric, mapping);
}

/* A size that no device of this kind could have is not requested. The driver would list the pages
 * before it finds that there are too few, and would block all use of devices meanwhile. */
static CUresult check_total(const cuda_instance *instance, int32_t device, size_t bytes) {
    size_t total = 0;
    CUresult result = instance->driver.DeviceTotalMem(&total, instance->devices[device].id);
    return result == CUDA_SUCCESS && bytes > total ? CUDA_ERROR_OUT_OF_MEMORY : result;
}

/* A small allocation comes from a granule, which is larger. If that does not fit, a smaller one
 * may. */
static CUresult create_memory(cuda_instance *instance, int32_t device, size_t bytes,
                              size_t granularity, bool fabric, bool small, cuda_mapping *mapping) {
    size_t rounded;
    if (__builtin_add_overflow(bytes, granularity - 1, &rounded))
        return CUDA_ERROR_OUT_OF_MEMORY;
    rounded = rounded / granularity * granularity;
    const size_t wanted = small ? cuda_granule_bytes(granularity) : rounded;
    CUresult result = check_total(instance, device, rounded);
    if (result != CUDA_SUCCESS)
        return result;
    result = create_whole(instance, device, wanted, fabric, mapping);
    if (result != CUDA_ERROR_OUT_OF_MEMORY || rounded == wanted)
        return result;
    return create_whole(instance, device, rounded, fabric, mapping);
}

static symmem_status make(cuda_instance *instance, int32_t device, size_t bytes, size_t granularity,
                          bool fabric, bool small, cuda_mapping **mapping_p) {
    cuda_mapping *mapping = calloc(1, sizeof *mapping);
    if (mapping == NULL)
        return cuda_no_memory(instance, "alloc");
    CUresult result = cuda_device_uuid(&instance->driver, device, &mapping->maker);
    if (result == CUDA_SUCCESS)
        result = create_memory(instance, device, bytes, granularity, fabric, small, mapping);
    if (result != CUDA_SUCCESS) {
        free(mapping);
        return fail_alloc(instance, result, bytes);
    }
    if (small)
        cuda_granule_open(instance, device, mapping, bytes);
    else
        cuda_mapping_add_own(mapping);
    *mapping_p = mapping;
    return SYMMEM_OK;
}

/* On failure mapping_p stays NULL. */
static symmem_status alloc(cuda_instance *instance, int32_t device, size_t bytes, size_t *offset_p,
                           cuda_mapping **mapping_p) {
    size_t granularity = 0;
    bool fabric;
    CUresult result = find_granularity(instance, device, &fabric, &granularity);
    if (result != CUDA_SUCCESS)
        return cuda_fail(instance, result, "alloc");
    const bool small = bytes <= granularity && cuda_granules_are_used(instance);
    if (small)
        cuda_granule_take(instance, device, bytes, offset_p, mapping_p);
    if (*mapping_p != NULL)
        return SYMMEM_OK;
    return make(instance, device, bytes, granularity, fabric, small, mapping_p);
}

symmem_status cuda_memory_alloc(void *opaque, int32_t device, size_t bytes, symmem_memory *memory) {
    cuda_instance *instance = opaque;
    cuda_mapping *mapping = NULL;
    size_t offset = 0;
    symmem_status status = cuda_enter(instance, device, "alloc");
    if (status != SYMMEM_OK)
        return status;
    status = cuda_failpoint(instance, "cuda.alloc.create");
    if (status == SYMMEM_OK)
        status = alloc(instance, device, bytes, &offset, &mapping);
    if (status == SYMMEM_OK)
        status = cuda_failpoint(instance, "cuda.alloc.done");
    if (status == SYMMEM_OK)
        describe(memory, mapping, offset, device, bytes, 0);
    else if (mapping != NULL)
        cuda_mapping_drop(&instance->driver, mapping);
    cuda_leave(instance);
    return status;
}

void cuda_memory_release(void *opaque, symmem_memory *memory) {
    cuda_instance *instance = opaque;
    (void)cuda_failpoint(instance, "cuda.release*");
    if (cuda_enter(instance, memory->device, "release") == SYMMEM_OK) {
        cuda_mapping_drop(&instance->driver, memory->priv);
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

symmem_status cuda_memory_share(void *opaque, symmem_memory *memory, symmem_share *share) {
    cuda_instance *instance = opaque;
    cuda_mapping *mapping = memory->priv;
    int fd = -1;
    symmem_status status = cuda_failpoint(instance, "cuda.export");
    if (status != SYMMEM_OK)
        return status;
    status = cuda_enter(instance, memory->device, "export");
    if (status != SYMMEM_OK)
        return status;
    CUresult result = cuda_mapping_descriptor(&instance->driver, mapping, &fd);
    if (result == CUDA_SUCCESS) {
        share->kind = SYMMEM_SHARE_FD;
        if (mapping->fabric)
            cuda_fabric_export(&instance->driver, mapping->handle, share);
    }
    cuda_leave(instance);
    if (result != CUDA_SUCCESS)
        return cuda_fail(instance, result, "export");
    const share_bytes bytes = {.from = mapping->from,
                               .offset = cuda_address(memory->ptr) - mapping->address,
                               .mapped_bytes = mapping->mapped_bytes,
                               .series = mapping->series,
                               .maker = mapping->maker};
    share->fd = fd;
    share->mapped_bytes = mapping->mapped_bytes - bytes.offset;
    memcpy(share->bytes, &bytes, sizeof bytes);
    return SYMMEM_OK;
}

void cuda_memory_unshare(void *opaque, symmem_share *share) {
    (void)opaque;
    if (share->fd >= 0) {
        close(share->fd);
        share->fd = -1;
    }
}

static CUresult import_handle(const cuda_driver *driver, const symmem_share *share,
                              CUmemGenericAllocationHandle *handle_p) {
    if (share->fd < 0)
        return cuda_fabric_import(driver, share, handle_p);
    return driver->MemImportFromShareableHandle(handle_p, (void *)(uintptr_t)share->fd,
                                                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

static CUresult import_new(const cuda_driver *driver, const symmem_share *share,
                           const share_bytes *bytes, int32_t device, cuda_mapping **mapping_p) {
    CUmemGenericAllocationHandle handle;
    cuda_mapping *mapping = calloc(1, sizeof *mapping);
    if (mapping == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    mapping->mapped_bytes = bytes->mapped_bytes;
    mapping->series = bytes->series;
    mapping->maker = bytes->maker;
    CUresult result = import_handle(driver, share, &handle);
    if (result != CUDA_SUCCESS)
        goto free_mapping;
    result = cuda_mapping_import(driver, handle, device, mapping);
    if (result != CUDA_SUCCESS)
        goto release_handle;
    cuda_mapping_add_imported(mapping, bytes->from);
    *mapping_p = mapping;
    return CUDA_SUCCESS;
release_handle:
    (void)driver->MemRelease(handle);
free_mapping:
    free(mapping);
    return result;
}

/* Finds what is mapped here already. The core says that a share is from this process, not the peer.
 * A number alone proves nothing, because with it a peer could name this rank's memory. */
static cuda_mapping *find_mapping(const symmem_share *share, const share_bytes *bytes) {
    const bool is_own = cuda_mapping_is_of(bytes->from);
    return is_own == (share->same_process != 0)
               ? cuda_mapping_find(bytes->from, bytes->mapped_bytes)
               : NULL;
}

static CUresult import_share(cuda_instance *instance, const symmem_share *share,
                             const share_bytes *bytes, int32_t device, cuda_mapping **mapping_p) {
    const cuda_driver *driver = &instance->driver;
    cuda_mapping *mapping = find_mapping(share, bytes);
    CUresult result = mapping != NULL ? cuda_mapping_allow(driver, mapping, device)
                                      : import_new(driver, share, bytes, device, &mapping);
    if (result == CUDA_SUCCESS)
        *mapping_p = mapping;
    else if (mapping != NULL)
        cuda_mapping_drop(driver, mapping);
    if (result == CUDA_SUCCESS && bytes->series != 0 && !cuda_mapping_is_of(bytes->from))
        cuda_imports_keep(instance, device, mapping);
    return result;
}

static symmem_status fail_import(const cuda_instance *instance, CUresult result,
                                 const symmem_share *share, int32_t device) {
    const symmem_host *host = instance->host;
    if (result == CUDA_ERROR_INVALID_DEVICE || result == CUDA_ERROR_PEER_ACCESS_UNSUPPORTED)
        return host->fail(host, SYMMEM_UNREACHABLE, 0, "import", "%s, seen from device %d",
                          share->fd < 0 ? "no common NVLink fabric" : "no access between devices",
                          (int)device);
    return cuda_fail(instance, result, "import");
}

symmem_status cuda_memory_map(void *opaque, int32_t device, const symmem_share *share, size_t bytes,
                              symmem_memory *memory) {
    cuda_instance *instance = opaque;
    cuda_mapping *mapping = NULL;
    share_bytes place;
    symmem_status status = cuda_failpoint(instance, "cuda.import");
    if (status != SYMMEM_OK)
        return status;
    memcpy(&place, share->bytes, sizeof place);
    if (place.offset > place.mapped_bytes || place.mapped_bytes - place.offset < bytes ||
        place.offset % CUDA_SUBALLOC_BYTES != 0 || share->mapped_bytes < bytes)
        return instance->host->fail_sizes(instance->host, SYMMEM_MISMATCH, 0, "import", bytes,
                                          share->mapped_bytes);
    status = cuda_enter(instance, device, "import");
    if (status != SYMMEM_OK)
        return status;
    CUresult result = import_share(instance, share, &place, device, &mapping);
    if (result == CUDA_SUCCESS)
        describe(memory, mapping, place.offset, device, bytes, 1);
    else
        status = fail_import(instance, result, share, device);
    cuda_leave(instance);
    return status;
}
