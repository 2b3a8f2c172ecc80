/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory by the driver's virtual memory management: create, map, export, import.
 *
 * Ranks that are threads see one mapping of each rank's memory (SM-HANDLE-13). The importer finds
 * it in the list below by the number that the share carries; if its owner has given it up
 * meanwhile, the descriptor is imported as another process would.
 *
 * Importing costs milliseconds, whatever the size, and the driver gives memory by the granule. So
 * small memory, a buffer and what belongs to its signals, comes from one granule while there is
 * room in it, and whoever has imported that for the one has it for the other. No place is given
 * out twice: a peer that is late may still write to what it was.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "cuda_internal.h"

#define PLACE_BYTES ((size_t)4096) /* places in a granule begin at multiples */

/* Where memory is from: the process that made it, and its number there. */
typedef struct origin {
    uint64_t process, number;
} origin;

/* What a share's bytes hold. */
typedef struct share_bytes {
    origin from;
    uint64_t offset, mapped_bytes; /* of the whole mapping */
} share_bytes;

_Static_assert(sizeof(share_bytes) <= sizeof(((symmem_share *)0)->bytes), "it has to fit");

struct cuda_mapping {
    struct cuda_mapping *next;
    origin from;
    int32_t users;
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    size_t mapped_bytes;
    size_t used_bytes;     /* of own memory that is given out in places */
    cuda_mapping **opener; /* who would give out more of it; NULL: nobody */
    uint64_t devices;      /* bit d: device d has access */
    bool fabric;           /* own memory that other hosts may import */
};

static struct {
    pthread_mutex_t access_lock; /* over devices, and the calls that add one */
    pthread_mutex_t lock;        /* over what is below, and over users, used_bytes and opener */
    cuda_mapping *first;
    uint64_t process; /* 0: not chosen yet */
    uint64_t last_number;
} mappings = {.access_lock = PTHREAD_MUTEX_INITIALIZER, .lock = PTHREAD_MUTEX_INITIALIZER};

static CUmemAllocationProp allocation_property(int32_t device, bool fabric) {
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes =
            fabric ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC
                   : CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
    };
}

/* One thread at a time: of two that ask for the same at once, one is told ALREADY_MAPPED. */
static CUresult allow_access(const cuda_driver *driver, cuda_mapping *mapping, int32_t device) {
    const uint64_t bit = (uint64_t)1 << device;
    const CUmemAccessDesc access = {
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
    };
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&mappings.access_lock);
    if ((mapping->devices & bit) == 0)
        result = driver->MemSetAccess(mapping->address, mapping->mapped_bytes, &access, 1);
    if (result == CUDA_SUCCESS)
        mapping->devices |= bit;
    pthread_mutex_unlock(&mappings.access_lock);
    return result;
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

/* Another one in each process, a child that was forked too. lock held. */
static uint64_t own_process(void) {
    const uint32_t pid = (uint32_t)getpid();
    if ((uint32_t)mappings.process != pid) {
        uint64_t chance = 0;
        (void)!getrandom(&chance, sizeof chance,
                         GRND_NONBLOCK); /* a process may be on another host */
        mappings.process = chance << 32 | pid;
    }
    return mappings.process;
}

/* lock held */
static void add(cuda_mapping *mapping, origin from) {
    mapping->from = from;
    mapping->next = mappings.first;
    mappings.first = mapping;
}

static void enlist_own(cuda_mapping *mapping) {
    pthread_mutex_lock(&mappings.lock);
    add(mapping, (origin){own_process(), ++mappings.last_number});
    pthread_mutex_unlock(&mappings.lock);
}

static void enlist_imported(cuda_mapping *mapping, origin from) {
    pthread_mutex_lock(&mappings.lock);
    add(mapping, from);
    pthread_mutex_unlock(&mappings.lock);
}

/* Own memory for another rank of this process, or what was imported before. */
static cuda_mapping *find(origin from) {
    pthread_mutex_lock(&mappings.lock);
    cuda_mapping *mapping = mappings.first;
    while (mapping != NULL &&
           (mapping->from.process != from.process || mapping->from.number != from.number))
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
    if (last && mapping->opener != NULL)
        *mapping->opener = NULL;
    pthread_mutex_unlock(&mappings.lock);
    if (last)
        destroy(driver, mapping);
}

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
        result = cuda_wait_call(instance, lane->native);
    cuda_lane_give(instance, device, lane);
    return result;
}

static symmem_status fail_alloc(const cuda_instance *instance, CUresult result, size_t bytes) {
    size_t free_bytes = 0, total_bytes = 0;
    if (result != CUDA_ERROR_OUT_OF_MEMORY || cuda_descriptors_error() != 0)
        return cuda_fail(instance, result, "alloc");
    (void)instance->driver.MemGetInfo(&free_bytes, &total_bytes);
    return instance->host->fail_sizes(instance->host, SYMMEM_NO_SPACE, 0, "alloc", bytes,
                                      free_bytes);
}

static CUresult create_handle(cuda_instance *instance, int32_t device, bool fabric,
                              cuda_mapping *mapping) {
    const CUmemAllocationProp property = allocation_property(device, fabric);
    mapping->fabric = fabric;
    return instance->driver.MemCreate(&mapping->handle, mapping->mapped_bytes, &property, 0);
}

/* Creates and maps mapping->mapped_bytes. */
static CUresult create(cuda_instance *instance, int32_t device, cuda_mapping *mapping) {
    const cuda_driver *driver = &instance->driver;
    const bool fabric = cuda_fabric_is_offered(instance, device);
    CUresult result = create_handle(instance, device, fabric, mapping);
    if (fabric && cuda_fabric_is_refused(instance, device, result))
        result = create_handle(instance, device, false, mapping);
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
                                   size_t granularity, cuda_mapping *mapping) {
    const cuda_driver *driver = &instance->driver;
    size_t rounded;
    if (__builtin_add_overflow(bytes, granularity - 1, &rounded))
        return fail_alloc(instance, CUDA_ERROR_OUT_OF_MEMORY, bytes);
    mapping->mapped_bytes = rounded / granularity * granularity;
    CUresult result = create(instance, device, mapping);
    if (result != CUDA_SUCCESS)
        return fail_alloc(instance, result, bytes);
    result = zero(instance, mapping, device);
    if (result == CUDA_SUCCESS)
        return SYMMEM_OK;
    (void)driver->MemUnmap(mapping->address, mapping->mapped_bytes);
    (void)driver->MemAddressFree(mapping->address, mapping->mapped_bytes);
    (void)driver->MemRelease(mapping->handle);
    return cuda_fail(instance, result, "alloc");
}

static symmem_status alloc_whole(cuda_instance *instance, int32_t device, size_t bytes,
                                 size_t granularity, cuda_mapping **mapping_p) {
    cuda_mapping *mapping = calloc(1, sizeof *mapping);
    if (mapping == NULL)
        return cuda_no_memory(instance, "alloc");
    mapping->users = 1;
    symmem_status status = alloc_rounded(instance, device, bytes, granularity, mapping);
    if (status != SYMMEM_OK) {
        free(mapping);
        return status;
    }
    enlist_own(mapping);
    *mapping_p = mapping;
    return SYMMEM_OK;
}

/* --- places in a granule ------------------------------------------------------------ */

/* Registered with others, or bound to multicast, memory has to be whole. */
static bool has_places(const cuda_instance *instance) {
#ifdef SYMMEM_CUDA_MULTICAST
    (void)instance;
    return false;
#else
    return instance->extension == NULL;
#endif
}

static size_t place_bytes(size_t bytes) {
    return (bytes + PLACE_BYTES - 1) / PLACE_BYTES * PLACE_BYTES;
}

/* In the granule that is open, if there is one with room; NULL: there is none. */
static cuda_mapping *take_place(cuda_device *device, size_t bytes, size_t *offset_p) {
    pthread_mutex_lock(&mappings.lock);
    cuda_mapping *mapping = device->open_granule;
    if (mapping != NULL && mapping->mapped_bytes - mapping->used_bytes < bytes)
        mapping = NULL;
    if (mapping != NULL) {
        *offset_p = mapping->used_bytes;
        mapping->used_bytes += place_bytes(bytes);
        mapping->users++;
    }
    pthread_mutex_unlock(&mappings.lock);
    return mapping;
}

/* Its first place is taken. Nobody else opens one meanwhile who would mind: the last one counts. */
static void open_granule(cuda_device *device, cuda_mapping *mapping, size_t bytes) {
    pthread_mutex_lock(&mappings.lock);
    if (device->open_granule != NULL)
        device->open_granule->opener = NULL;
    mapping->used_bytes = place_bytes(bytes);
    mapping->opener = &device->open_granule;
    device->open_granule = mapping;
    pthread_mutex_unlock(&mappings.lock);
}

void cuda_memory_close(cuda_instance *instance) {
    pthread_mutex_lock(&mappings.lock);
    for (int32_t i = 0; i < instance->device_count; i++)
        if (instance->devices[i].open_granule != NULL) /* kept by other ranks of this process */
            instance->devices[i].open_granule->opener = NULL;
    pthread_mutex_unlock(&mappings.lock);
}

/* Recommended: what a multicast object could be bound to as well. */
static CUresult ask_granularity(const cuda_driver *driver, int32_t device, bool fabric,
                                size_t *granularity_p) {
    const CUmemAllocationProp property = allocation_property(device, fabric);
    return driver->MemGetAllocationGranularity(granularity_p, &property,
                                               CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
}

static CUresult find_granularity(cuda_instance *instance, int32_t device, size_t *granularity_p) {
    const bool fabric = cuda_fabric_is_offered(instance, device);
    CUresult result = ask_granularity(&instance->driver, device, fabric, granularity_p);
    if (fabric && cuda_fabric_is_refused(instance, device, result))
        result = ask_granularity(&instance->driver, device, false, granularity_p);
    return result;
}

/* *mapping_p stays NULL if it fails. */
static symmem_status alloc(cuda_instance *instance, int32_t index, size_t bytes, size_t *offset_p,
                           cuda_mapping **mapping_p) {
    cuda_device *device = &instance->devices[index];
    size_t granularity = 0;
    CUresult result = find_granularity(instance, index, &granularity);
    if (result != CUDA_SUCCESS)
        return cuda_fail(instance, result, "alloc");
    const bool small = bytes <= granularity && has_places(instance);
    if (small)
        *mapping_p = take_place(device, bytes, offset_p);
    if (*mapping_p != NULL)
        return SYMMEM_OK;
    symmem_status status = alloc_whole(instance, index, bytes, granularity, mapping_p);
    if (status == SYMMEM_OK && small)
        open_granule(device, *mapping_p, bytes);
    return status;
}

symmem_status cuda_memory_alloc(void *opaque, int32_t device, size_t bytes, symmem_memory *memory) {
    cuda_instance *instance = opaque;
    cuda_mapping *mapping = NULL;
    size_t offset = 0;
    symmem_status status = cuda_enter(instance, device, "alloc");
    if (status != SYMMEM_OK)
        return status;
    status = cuda_point(instance, "cuda.alloc.create");
    if (status == SYMMEM_OK)
        status = alloc(instance, device, bytes, &offset, &mapping);
    if (status == SYMMEM_OK)
        status = cuda_point(instance, "cuda.alloc.done");
    if (status == SYMMEM_OK)
        describe(memory, mapping, offset, device, bytes, 0);
    else if (mapping != NULL)
        drop(&instance->driver, mapping);
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
    if (result == CUDA_SUCCESS) {
        share->kind = SYMMEM_SHARE_FD;
        if (mapping->fabric)
            cuda_fabric_export(&instance->driver, mapping->handle, share);
    }
    cuda_leave(instance);
    if (result != CUDA_SUCCESS)
        return cuda_fail(instance, result, "export");
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC); /* the driver does not promise it */
    const share_bytes bytes = {.from = mapping->from,
                               .offset = cuda_address(memory->ptr) - mapping->address,
                               .mapped_bytes = mapping->mapped_bytes};
    share->fd = fd;
    share->mapped_bytes = mapping->mapped_bytes - bytes.offset;
    memcpy(share->bytes, &bytes, sizeof bytes);
    return SYMMEM_OK;
}

void cuda_share_close(void *opaque, symmem_share *share) {
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
    cuda_mapping *mapping = calloc(1, sizeof *mapping);
    if (mapping == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    mapping->users = 1;
    mapping->mapped_bytes = bytes->mapped_bytes;
    CUresult result = import_handle(driver, share, &mapping->handle);
    if (result != CUDA_SUCCESS)
        goto free_mapping;
    result = map_handle(driver, mapping, device);
    if (result != CUDA_SUCCESS)
        goto release_handle;
    enlist_imported(mapping, bytes->from);
    *mapping_p = mapping;
    return CUDA_SUCCESS;
release_handle:
    (void)driver->MemRelease(mapping->handle);
free_mapping:
    free(mapping);
    return result;
}

static CUresult import_share(const cuda_driver *driver, const symmem_share *share,
                             const share_bytes *bytes, int32_t device, cuda_mapping **mapping_p) {
    cuda_mapping *mapping = find(bytes->from);
    if (mapping == NULL)
        return import_new(driver, share, bytes, device, mapping_p);
    CUresult result = allow_access(driver, mapping, device);
    if (result == CUDA_SUCCESS)
        *mapping_p = mapping;
    else
        drop(driver, mapping);
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

symmem_status cuda_memory_import(void *opaque, int32_t device, const symmem_share *share,
                                 size_t bytes, symmem_memory *memory) {
    cuda_instance *instance = opaque;
    cuda_mapping *mapping = NULL;
    share_bytes place;
    symmem_status status = cuda_point(instance, "cuda.import");
    if (status != SYMMEM_OK)
        return status;
    memcpy(&place, share->bytes, sizeof place);
    if (place.offset > place.mapped_bytes || place.mapped_bytes - place.offset < bytes ||
        share->mapped_bytes < bytes)
        return instance->host->fail_sizes(instance->host, SYMMEM_MISMATCH, 0, "import", bytes,
                                          share->mapped_bytes);
    status = cuda_enter(instance, device, "import");
    if (status != SYMMEM_OK)
        return status;
    CUresult result = import_share(&instance->driver, share, &place, device, &mapping);
    if (result == CUDA_SUCCESS)
        describe(memory, mapping, place.offset, device, bytes, 1);
    else
        status = fail_import(instance, result, share, device);
    cuda_leave(instance);
    return status;
}
