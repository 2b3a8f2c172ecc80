/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Mappings by the driver's virtual memory management, and the process's register of them.
 *
 * Ranks that are threads see one mapping of each rank's memory (SM-HANDLE-13). The importer finds
 * it in the list by the number in the share. If its owner has released it meanwhile, the descriptor
 * is imported as another process would.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#include "memory/mapping.h"
#include "driver/context.h"
#include "driver/device.h"
#include "driver/fabric.h"
#include "inflight/inflight.h"
#include "stream/stream.h"

static struct {
    pthread_mutex_t driver_lock; /* over devices, fd and keeps_fd, and the calls that set them */
    pthread_mutex_t lock;        /* over the members below, users and used_bytes */
    sm_index by_origin;
    sm_treap by_address;
    uint64_t process; /* 0: not chosen yet */
    uint64_t last_number, last_series;
} mappings = {.driver_lock = PTHREAD_MUTEX_INITIALIZER, .lock = PTHREAD_MUTEX_INITIALIZER};

CUmemAllocationProp cuda_memory_property(int32_t device, bool fabric) {
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes =
            fabric ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC
                   : CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
    };
}

/* --- the driver's side -------------------------------------------------------------- */

/* One thread at a time, because of two equal requests at once one is answered ALREADY_MAPPED. */
CUresult cuda_mapping_allow(const cuda_driver *driver, cuda_mapping *mapping, int32_t device) {
    const uint64_t bit = (uint64_t)1 << device;
    const CUmemAccessDesc access = {
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
    };
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&mappings.driver_lock);
    if ((mapping->devices & bit) == 0)
        result = driver->MemSetAccess(mapping->address, mapping->mapped_bytes, &access, 1);
    if (result == CUDA_SUCCESS)
        mapping->devices |= bit;
    pthread_mutex_unlock(&mappings.driver_lock);
    return result;
}

/* Reserves addresses for mapping->handle and maps it for one device. A failure undoes only its own
 * part. */
static CUresult map_handle(const cuda_driver *driver, cuda_mapping *mapping, int32_t device) {
    CUresult result = driver->MemAddressReserve(&mapping->address, mapping->mapped_bytes, 0, 0, 0);
    if (result != CUDA_SUCCESS)
        return result;
    result = driver->MemMap(mapping->address, mapping->mapped_bytes, 0, mapping->handle, 0);
    if (result != CUDA_SUCCESS)
        goto free_address;
    mapping->devices = 0; /* those of an earlier attempt had access to an old mapping */
    result = cuda_mapping_allow(driver, mapping, device);
    if (result != CUDA_SUCCESS)
        goto unmap;
    mapping->users = 1;
    mapping->fd = -1;
    return CUDA_SUCCESS;
unmap:
    (void)driver->MemUnmap(mapping->address, mapping->mapped_bytes);
free_address:
    (void)driver->MemAddressFree(mapping->address, mapping->mapped_bytes);
    return result;
}

static void unmap(const cuda_driver *driver, const cuda_mapping *mapping) {
    (void)driver->MemUnmap(mapping->address, mapping->mapped_bytes);
    (void)driver->MemAddressFree(mapping->address, mapping->mapped_bytes);
    (void)driver->MemRelease(mapping->handle);
}

static CUresult create_handle(cuda_instance *instance, int32_t device, bool fabric,
                              cuda_mapping *mapping) {
    const CUmemAllocationProp property = cuda_memory_property(device, fabric);
    mapping->fabric = fabric;
    return instance->driver.MemCreate(&mapping->handle, mapping->mapped_bytes, &property, 0);
}

static CUresult create_shareable(cuda_instance *instance, int32_t device, bool fabric,
                                 cuda_mapping *mapping) {
    const CUresult result = create_handle(instance, device, fabric, mapping);
    if (fabric && result == CUDA_SUCCESS)
        cuda_fabric_was_granted(instance, device);
    if (!fabric || !cuda_fabric_may_be_why(result))
        return result;
    const CUresult without = create_handle(instance, device, false, mapping);
    cuda_fabric_was_why(instance, device, result, without);
    return without;
}

/* --- memory that a stream still writes to --------------------------------------------- */

typedef struct written {
    cuda_instance *instance;
    int32_t device;
    cuda_mapping *mapping;
} written;

static void written_retain(void *object) {
    (void)object; /* the user that was taken over */
}

static void written_release(void *object) {
    written *memory = object;
    const bool entered = cuda_reenter(memory->instance, memory->device);
    cuda_mapping_drop(&memory->instance->driver, memory->mapping);
    if (entered)
        cuda_leave(memory->instance);
    free(memory);
}

bool cuda_mapping_leave(cuda_instance *instance, int32_t device, CUstream native,
                        cuda_mapping *mapping, const char *operation) {
    written *memory = malloc(sizeof *memory);
    cuda_pending *orphan = cuda_orphan_make(instance, device);
    if (memory == NULL || orphan == NULL) {
        cuda_orphan_drop(orphan);
        free(memory);
        return false;
    }
    *memory = (written){instance, device, mapping};
    const symmem_ref ref = {written_retain, written_release, memory};
    const symmem_exec exec = {.refs = &ref, .ref_count = 1};
    const cuda_needs needs = {.staging = NULL};
    cuda_orphan(orphan, native, &exec, &needs, operation);
    return true;
}

/* Memory that is not zeroed in time is released later, if an entry for that can be allocated.
 * Otherwise the device's memory stays allocated. The caller's private stream becomes NULL. */
static void orphan_zeroing(cuda_instance *instance, int32_t device, CUstream native,
                           const cuda_mapping *mapping) {
    cuda_mapping *late = malloc(sizeof *late);
    if (late == NULL)
        return;
    *late = *mapping;
    if (!cuda_mapping_leave(instance, device, native, late, "alloc"))
        free(late);
}

/* Waits for the zeroing, because no other thread knows the memory yet. */
static CUresult zero(cuda_instance *instance, const cuda_mapping *mapping, int32_t device) {
    cuda_private_stream *private_stream;
    CUresult result = cuda_private_stream_take(instance, device, &private_stream);
    if (result != CUDA_SUCCESS)
        return result;
    result = instance->driver.MemsetD8Async(mapping->address, 0, mapping->mapped_bytes,
                                            private_stream->native);
    if (result == CUDA_SUCCESS)
        result = cuda_wait_in_time(instance, private_stream->native);
    if (result == CUDA_ERROR_NOT_READY) {
        orphan_zeroing(instance, device, private_stream->native, mapping);
        cuda_private_stream_end(instance, device, private_stream);
        return result;
    }
    cuda_private_stream_give(instance, device, private_stream);
    return result;
}

CUresult cuda_mapping_create(cuda_instance *instance, int32_t device, bool fabric,
                             cuda_mapping *mapping) {
    const cuda_driver *driver = &instance->driver;
    CUresult result = create_shareable(instance, device, fabric, mapping);
    if (result != CUDA_SUCCESS)
        return result;
    result = map_handle(driver, mapping, device);
    if (result != CUDA_SUCCESS) {
        (void)driver->MemRelease(mapping->handle);
        return result;
    }
    result = zero(instance, mapping, device);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY)
        unmap(driver, mapping);
    return result;
}

CUresult cuda_mapping_import(const cuda_driver *driver, CUmemGenericAllocationHandle handle,
                             int32_t device, cuda_mapping *mapping) {
    mapping->handle = handle;
    return map_handle(driver, mapping, device);
}

/* --- descriptors -------------------------------------------------------------------- */

/* The driver takes 0.6 ms to make a descriptor, and 0.5 to close the last of several equal ones. So
 * an open granule keeps one. There are few granules. */
CUresult cuda_mapping_descriptor(const cuda_driver *driver, cuda_mapping *mapping, int *fd_p) {
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&mappings.driver_lock);
    int fd = mapping->fd;
    if (fd < 0) {
        result = driver->MemExportToShareableHandle(&fd, mapping->handle,
                                                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
        if (result == CUDA_SUCCESS)
            (void)fcntl(fd, F_SETFD, FD_CLOEXEC); /* the driver does not promise it */
    }
    if (result == CUDA_SUCCESS && mapping->keeps_fd) {
        mapping->fd = fd;
        fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    }
    pthread_mutex_unlock(&mappings.driver_lock);
    *fd_p = fd;
    return result == CUDA_SUCCESS && fd < 0 ? CUDA_ERROR_OPERATING_SYSTEM : result;
}

void cuda_mapping_forget_descriptor(cuda_mapping *mapping) {
    pthread_mutex_lock(&mappings.driver_lock);
    const int fd = mapping->fd;
    mapping->fd = -1;
    mapping->keeps_fd = false;
    pthread_mutex_unlock(&mappings.driver_lock);
    if (fd >= 0)
        close(fd);
}

/* --- the register ------------------------------------------------------------------- */

/* Differs in each process, also in a forked child. lock held. */
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

bool cuda_mapping_is_of(cuda_origin from) {
    pthread_mutex_lock(&mappings.lock);
    bool own = from.process == own_process();
    pthread_mutex_unlock(&mappings.lock);
    return own;
}

uint64_t cuda_mapping_new_series(void) {
    pthread_mutex_lock(&mappings.lock);
    uint64_t series = ++mappings.last_series;
    pthread_mutex_unlock(&mappings.lock);
    return series;
}

static uint64_t key_of(cuda_origin from) {
    return from.process ^ from.number;
}

/* lock held */
static void add(cuda_mapping *mapping, cuda_origin from) {
    mapping->from = from;
    sm_index_add(&mappings.by_origin, &mapping->by_origin, key_of(from));
    sm_treap_add(&mappings.by_address, &mapping->by_address, mapping->address);
}

void cuda_mapping_add_own(cuda_mapping *mapping) {
    uint64_t secret = 0;
    (void)!getrandom(&secret, sizeof secret, 0);
    pthread_mutex_lock(&mappings.lock);
    add(mapping, (cuda_origin){own_process(), ++mappings.last_number, secret});
    pthread_mutex_unlock(&mappings.lock);
}

void cuda_mapping_add_imported(cuda_mapping *mapping, cuda_origin from) {
    pthread_mutex_lock(&mappings.lock);
    add(mapping, from);
    pthread_mutex_unlock(&mappings.lock);
}

static cuda_mapping *of_node(sm_index_node *node) {
    return (cuda_mapping *)((char *)node - offsetof(cuda_mapping, by_origin));
}

static cuda_mapping *mapping_of(sm_treap_node *node) {
    return (cuda_mapping *)((char *)node - offsetof(cuda_mapping, by_address));
}

static bool is_from(const cuda_mapping *mapping, cuda_origin from) {
    return mapping->from.process == from.process && mapping->from.number == from.number &&
           mapping->from.secret == from.secret;
}

cuda_mapping *cuda_mapping_find(cuda_origin from, size_t mapped_bytes) {
    cuda_mapping *mapping = NULL;
    pthread_mutex_lock(&mappings.lock);
    for (sm_index_node *node = sm_index_first(&mappings.by_origin, key_of(from));
         node != NULL && mapping == NULL; node = sm_index_next(node))
        if (is_from(of_node(node), from) && of_node(node)->mapped_bytes == mapped_bytes)
            mapping = of_node(node);
    if (mapping != NULL)
        mapping->users++;
    pthread_mutex_unlock(&mappings.lock);
    return mapping;
}

cuda_mapping *cuda_mapping_at(CUdeviceptr address) {
    pthread_mutex_lock(&mappings.lock);
    sm_treap_node *node = sm_treap_at_or_below(&mappings.by_address, address);
    cuda_mapping *mapping = node == NULL ? NULL : mapping_of(node);
    if (mapping != NULL && address - mapping->address >= mapping->mapped_bytes)
        mapping = NULL;
    if (mapping != NULL)
        mapping->users++;
    pthread_mutex_unlock(&mappings.lock);
    return mapping;
}

void cuda_mapping_hold(cuda_mapping *mapping) {
    pthread_mutex_lock(&mappings.lock);
    mapping->users++;
    pthread_mutex_unlock(&mappings.lock);
}

void cuda_mapping_drop(const cuda_driver *driver, cuda_mapping *mapping) {
    pthread_mutex_lock(&mappings.lock);
    bool last = --mapping->users == 0;
    if (last) { /* memory that was never listed is not found */
        sm_index_remove(&mappings.by_origin, &mapping->by_origin);
        sm_treap_remove(&mappings.by_address, &mapping->by_address);
    }
    pthread_mutex_unlock(&mappings.lock);
    if (!last)
        return;
    unmap(driver, mapping);
    free(mapping);
}

bool cuda_mapping_place(cuda_mapping *mapping, size_t bytes, size_t *offset_p) {
    pthread_mutex_lock(&mappings.lock);
    bool fits = mapping->mapped_bytes - mapping->used_bytes >= bytes;
    if (fits) {
        *offset_p = mapping->used_bytes;
        mapping->used_bytes +=
            (bytes + CUDA_SUBALLOC_BYTES - 1) / CUDA_SUBALLOC_BYTES * CUDA_SUBALLOC_BYTES;
        mapping->users++;
    }
    pthread_mutex_unlock(&mappings.lock);
    return fits;
}
