/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Multicast objects, in the order that the driver's documentation gives. One rank creates the
 * object, all import it and add their devices, all agree, each binds its memory and maps the
 * object. Binding and mapping block until all devices were added, so the core's agreement comes
 * before. No rank uses the address before the next agreement. Written from that documentation,
 * never run on hardware.
 *
 * Every failure makes the group go without multicast. The statuses here are for the record.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "memory/multicast.h"
#include "driver/context.h"
#include "driver/device.h"
#include "driver/error.h"
#include "driver/module.h"
#include "memory/memory.h"

#define SINCE 12010 /* the interface version of all entry points here */

/* One rank's view of an object, or what create made. */
typedef struct cuda_multicast {
    struct cuda_multicast *next; /* of those that are mapped; under the instance's lock */
    int32_t device;
    bool bound;
    CUmemGenericAllocationHandle handle;
    size_t bytes;        /* of the object, and what each rank binds */
    CUdeviceptr address; /* 0: not mapped */
} cuda_multicast;

struct cuda_multicast_state {
    __typeof__(cuMulticastCreate) *Create;
    __typeof__(cuMulticastAddDevice) *AddDevice;
    __typeof__(cuMulticastBindMem) *BindMem;
    __typeof__(cuMulticastUnbind) *Unbind;
    __typeof__(cuMulticastGetGranularity) *GetGranularity;
    cuda_multicast *mapped; /* under the instance's lock */
    cuda_multimem_kernels kernels[CUDA_MAX_DEVICES];
};

typedef struct cuda_multicast_state multicast_state;

/* --- conditions -------------------------------------------------------------------- */

bool cuda_multicast_wanted(void) {
    const char *asked = getenv("SYMMEM_MULTICAST");
    const char *torch = getenv("TORCH_SYMM_MEM_DISABLE_MULTICAST");
    const char *nvls = getenv("NCCL_NVLS_ENABLE");
    if (asked == NULL || strcmp(asked, "1") != 0)
        return false;
    if (torch != NULL && torch[0] != '\0' && strcmp(torch, "0") != 0)
        return false;
    /* a text that is no number also forbids it */
    return nvls == NULL || strtol(nvls, NULL, 0) != 0;
}

int32_t cuda_multicast_now(const cuda_instance *instance, CUdevice device) {
    int value = 0;
    return cuda_multicast_wanted() && cuda_multicast_image() != NULL &&
           instance->driver.DeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED,
                                               device) == CUDA_SUCCESS &&
           value != 0;
}

static symmem_status fail_unwanted(const cuda_instance *instance) {
    return instance->host->fail(instance->host, SYMMEM_UNSUPPORTED, 0, "rendezvous",
                                "multicast is off unless SYMMEM_MULTICAST is 1, "
                                "TORCH_SYMM_MEM_DISABLE_MULTICAST is not, and NCCL_NVLS_ENABLE is "
                                "not 0");
}

/* The statuses that the documentation names for each step. */
static symmem_status fail(const cuda_instance *instance, CUresult result, const char *step) {
    symmem_status status = SYMMEM_BACKEND;
    const char *why = "";
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        status = SYMMEM_LIMIT;
        why = ": no multicast slot is free";
    } else if (result == CUDA_ERROR_NOT_SUPPORTED || result == CUDA_ERROR_NOT_PERMITTED) {
        status = SYMMEM_UNSUPPORTED;
    } else if (result == CUDA_ERROR_SYSTEM_NOT_READY || result == CUDA_ERROR_ILLEGAL_STATE) {
        status = SYMMEM_UNSUPPORTED;
        why = ": is the fabric manager running?";
    }
    return instance->host->fail(instance->host, status, 0, "rendezvous",
                                "multicast, %s: driver error %d%s", step, (int)result, why);
}

/* --- the instance's state ---------------------------------------------------------- */

/* ISO C has no cast from object to function pointers. */
static bool find(void *find_entry, const char *name, void *member) {
    CUresult (*get)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);
    CUdriverProcAddressQueryResult found;
    void *symbol = NULL;
    memcpy(&get, &find_entry, sizeof get);
    if (get(name, &symbol, SINCE, CU_GET_PROC_ADDRESS_DEFAULT, &found) != CUDA_SUCCESS)
        return false;
    memcpy(member, &symbol, sizeof symbol);
    return symbol != NULL;
}

/* Returns NULL if the driver lacks an entry point, or without memory. */
static multicast_state *load_state(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    void *entry = library != NULL ? dlsym(library, "cuGetProcAddress_v2") : NULL;
    if (library != NULL)
        (void)dlclose(library); /* it stays loaded: NODELETE */
    multicast_state *state = entry != NULL ? calloc(1, sizeof *state) : NULL;
    if (state != NULL && find(entry, "cuMulticastCreate", &state->Create) &&
        find(entry, "cuMulticastAddDevice", &state->AddDevice) &&
        find(entry, "cuMulticastBindMem", &state->BindMem) &&
        find(entry, "cuMulticastUnbind", &state->Unbind) &&
        find(entry, "cuMulticastGetGranularity", &state->GetGranularity))
        return state;
    free(state);
    return NULL;
}

static symmem_status need_state(cuda_instance *instance) {
    pthread_mutex_lock(&instance->lock);
    if (instance->multicast == NULL)
        instance->multicast = load_state();
    bool there = instance->multicast != NULL;
    pthread_mutex_unlock(&instance->lock);
    return there ? SYMMEM_OK : fail(instance, CUDA_ERROR_NOT_SUPPORTED, "entry points");
}

static cuda_module modules[CUDA_MAX_DEVICES] = {
    [0 ... CUDA_MAX_DEVICES - 1] = CUDA_MODULE_NONE,
};

/* The instance's lock is held. */
static CUresult load_kernels(cuda_instance *instance, int32_t index) {
    const cuda_driver *driver = &instance->driver;
    const cuda_device *device = &instance->devices[index];
    cuda_multimem_kernels found = {.store = NULL};
    CUmodule module;
    CUresult result = cuda_module_take(driver, &modules[index], device->context, device->context_id,
                                       cuda_multicast_image(), &module, NULL);
    if (result != CUDA_SUCCESS)
        return result;
    result = driver->ModuleGetFunction(&found.store, module, "symmem_multicast_store");
    if (result == CUDA_SUCCESS)
        result = driver->ModuleGetFunction(&found.reduce, module, "symmem_multicast_reduce");
    if (result == CUDA_SUCCESS)
        instance->multicast->kernels[index] = found;
    else
        cuda_module_give(driver, &modules[index]);
    return result;
}

/* The device's context is current. */
static CUresult need_kernels(cuda_instance *instance, int32_t device) {
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&instance->lock);
    if (instance->multicast->kernels[device].store == NULL)
        result = load_kernels(instance, device);
    pthread_mutex_unlock(&instance->lock);
    return result;
}

const cuda_multimem_kernels *cuda_multimem_kernels_of(const cuda_instance *instance,
                                                      int32_t device) {
    return &instance->multicast->kernels[device];
}

void cuda_multicast_close(cuda_instance *instance) {
    for (int32_t i = 0; instance->multicast != NULL && i < instance->device_count; i++)
        if (instance->multicast->kernels[i].store != NULL)
            cuda_module_give_in(instance, i, &modules[i]);
    free(instance->multicast);
    instance->multicast = NULL;
}

/* For both steps that begin something: checks the conditions, and enters the device's context. */
static symmem_status enter(cuda_instance *instance, int32_t device, const char *point) {
    symmem_status status = cuda_failpoint(instance, point);
    if (status == SYMMEM_OK && !cuda_multicast_wanted())
        status = fail_unwanted(instance);
    if (status == SYMMEM_OK)
        status = need_state(instance);
    return status == SYMMEM_OK ? cuda_enter(instance, device, "rendezvous") : status;
}

static cuda_multicast *new_multicast(const cuda_instance *instance, int32_t device, size_t bytes) {
    cuda_multicast *multicast = calloc(1, sizeof *multicast);
    if (multicast == NULL) {
        (void)cuda_no_memory(instance, "rendezvous");
        return NULL;
    }
    multicast->device = device;
    multicast->bytes = bytes;
    return multicast;
}

/* --- create ------------------------------------------------------------------------- */

/* Returns the minimum size of an object for memory of `bytes` bytes. memory.c gives each rank as
 * much. */
static symmem_status object_size(const cuda_instance *instance, CUmulticastObjectProp *property,
                                 size_t bytes) {
    size_t granularity = 0, rounded;
    CUresult result = instance->multicast->GetGranularity(&granularity, property,
                                                          CU_MULTICAST_GRANULARITY_MINIMUM);
    if (result != CUDA_SUCCESS || granularity == 0)
        return fail(instance, result, "granularity");
    if (__builtin_add_overflow(bytes, granularity - 1, &rounded))
        return fail(instance, CUDA_ERROR_OUT_OF_MEMORY, "size");
    property->size = rounded / granularity * granularity;
    return SYMMEM_OK;
}

static symmem_status create_object(const cuda_instance *instance,
                                   const CUmulticastObjectProp *property, cuda_multicast *multicast,
                                   symmem_share *share) {
    const cuda_driver *driver = &instance->driver;
    int fd = -1;
    CUresult result = instance->multicast->Create(&multicast->handle, property);
    if (result != CUDA_SUCCESS)
        return fail(instance, result, "create");
    result = driver->MemExportToShareableHandle(&fd, multicast->handle,
                                                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (result == CUDA_SUCCESS) {
        (void)fcntl(fd, F_SETFD, FD_CLOEXEC); /* the driver does not promise it */
        share->kind = SYMMEM_SHARE_FD;
        share->fd = fd;
        share->mapped_bytes = multicast->bytes;
        symmem_status status = cuda_failpoint(instance, "cuda.multicast.created");
        if (status == SYMMEM_OK)
            return SYMMEM_OK;
        cuda_memory_unshare(NULL, share);
        *share = (symmem_share){.fd = -1};
        (void)driver->MemRelease(multicast->handle);
        return status;
    }
    (void)driver->MemRelease(multicast->handle);
    return fail(instance, result, "export");
}

symmem_status cuda_multicast_create(void *opaque, int32_t device, int32_t world_size, size_t bytes,
                                    void **object_p, symmem_share *share) {
    cuda_instance *instance = opaque;
    CUmulticastObjectProp property = {.numDevices = (unsigned int)world_size,
                                      .size = bytes,
                                      .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
    symmem_status status = enter(instance, device, "cuda.multicast.create");
    if (status != SYMMEM_OK)
        return status;
    cuda_multicast *multicast = NULL;
    status = object_size(instance, &property, bytes);
    if (status == SYMMEM_OK) {
        multicast = new_multicast(instance, device, property.size);
        status = multicast != NULL ? create_object(instance, &property, multicast, share)
                                   : SYMMEM_OUT_OF_MEMORY;
    }
    cuda_leave(instance);
    if (status == SYMMEM_OK)
        *object_p = multicast;
    else
        free(multicast);
    return status;
}

/* --- attach ------------------------------------------------------------------------- */

static symmem_status attach(cuda_instance *instance, const symmem_share *share,
                            cuda_multicast *multicast) {
    const cuda_driver *driver = &instance->driver;
    CUresult result = need_kernels(instance, multicast->device);
    if (result != CUDA_SUCCESS)
        return fail(instance, result, "kernels");
    result = driver->MemImportFromShareableHandle(&multicast->handle, (void *)(uintptr_t)share->fd,
                                                  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    if (result != CUDA_SUCCESS)
        return fail(instance, result, "import");
    symmem_status status = SYMMEM_OK;
    result =
        instance->multicast->AddDevice(multicast->handle, instance->devices[multicast->device].id);
    if (result != CUDA_SUCCESS)
        status = fail(instance, result, "add device");
    if (status == SYMMEM_OK)
        status = cuda_failpoint(instance, "cuda.multicast.attached");
    if (status != SYMMEM_OK)
        (void)driver->MemRelease(multicast->handle);
    return status;
}

symmem_status cuda_multicast_attach(void *opaque, int32_t device, const symmem_share *share,
                                    size_t bytes, void **multicast_p) {
    cuda_instance *instance = opaque;
    symmem_status status = enter(instance, device, "cuda.multicast.attach");
    if (status != SYMMEM_OK)
        return status;
    cuda_multicast *multicast = NULL;
    if (share->mapped_bytes < bytes) {
        status = instance->host->fail_sizes(instance->host, SYMMEM_MISMATCH, 0, "rendezvous", bytes,
                                            share->mapped_bytes);
    } else {
        multicast = new_multicast(instance, device, share->mapped_bytes);
        status = multicast != NULL ? attach(instance, share, multicast) : SYMMEM_OUT_OF_MEMORY;
    }
    cuda_leave(instance);
    if (status == SYMMEM_OK)
        *multicast_p = multicast;
    else
        free(multicast);
    return status;
}

/* --- bind --------------------------------------------------------------------------- */

static CUresult map(const cuda_driver *driver, cuda_multicast *multicast) {
    const CUmemAccessDesc access = {
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = multicast->device},
    };
    CUdeviceptr address;
    CUresult result = driver->MemAddressReserve(&address, multicast->bytes, 0, 0, 0);
    if (result != CUDA_SUCCESS)
        return result;
    result = driver->MemMap(address, multicast->bytes, 0, multicast->handle, 0);
    if (result != CUDA_SUCCESS)
        goto free_address;
    result = driver->MemSetAccess(address, multicast->bytes, &access, 1);
    if (result != CUDA_SUCCESS)
        goto unmap;
    multicast->address = address;
    return CUDA_SUCCESS;
unmap:
    (void)driver->MemUnmap(address, multicast->bytes);
free_address:
    (void)driver->MemAddressFree(address, multicast->bytes);
    return result;
}

/* Undoes the steps that were done. The context is current. */
static void unbind(cuda_instance *instance, cuda_multicast *multicast) {
    const cuda_driver *driver = &instance->driver;
    if (multicast->address != 0) {
        (void)driver->MemUnmap(multicast->address, multicast->bytes);
        (void)driver->MemAddressFree(multicast->address, multicast->bytes);
    }
    if (multicast->bound)
        (void)instance->multicast->Unbind(
            multicast->handle, instance->devices[multicast->device].id, 0, multicast->bytes);
    multicast->address = 0;
    multicast->bound = false;
}

static symmem_status bind(cuda_instance *instance, cuda_multicast *multicast,
                          const symmem_memory *own) {
    if (cuda_memory_mapped_bytes(own) < multicast->bytes)
        return instance->host->fail(instance->host, SYMMEM_UNSUPPORTED, 0, "rendezvous",
                                    "memory of %zu bytes is not bound to multicast in units of %zu",
                                    cuda_memory_mapped_bytes(own), multicast->bytes);
    CUresult result = instance->multicast->BindMem(multicast->handle, 0, cuda_memory_handle(own), 0,
                                                   multicast->bytes, 0);
    if (result != CUDA_SUCCESS)
        return fail(instance, result, "bind");
    multicast->bound = true;
    result = map(&instance->driver, multicast);
    symmem_status status = result == CUDA_SUCCESS ? SYMMEM_OK : fail(instance, result, "map");
    if (status == SYMMEM_OK)
        status = cuda_failpoint(instance, "cuda.multicast.bound");
    if (status != SYMMEM_OK)
        unbind(instance, multicast);
    return status;
}

symmem_status cuda_multicast_bind(void *opaque, void *attached, symmem_memory *own,
                                  const symmem_peers *peers, void **address_p) {
    cuda_instance *instance = opaque;
    cuda_multicast *multicast = attached;
    (void)peers;
    symmem_status status = cuda_failpoint(instance, "cuda.multicast.bind");
    if (status == SYMMEM_OK)
        status = cuda_enter(instance, multicast->device, "rendezvous");
    if (status != SYMMEM_OK)
        return status;
    status = bind(instance, multicast, own);
    cuda_leave(instance);
    if (status != SYMMEM_OK)
        return status;
    pthread_mutex_lock(&instance->lock);
    multicast->next = instance->multicast->mapped;
    instance->multicast->mapped = multicast;
    pthread_mutex_unlock(&instance->lock);
    *address_p = (void *)(uintptr_t)multicast->address;
    return SYMMEM_OK;
}

bool cuda_multicast_offset(cuda_instance *instance, const void *address, size_t bytes,
                           size_t *offset_p) {
    const CUdeviceptr wanted = cuda_address(address);
    bool found = false;
    pthread_mutex_lock(&instance->lock);
    for (const cuda_multicast *multicast = instance->multicast->mapped; multicast != NULL && !found;
         multicast = multicast->next) {
        const size_t offset = (size_t)(wanted - multicast->address);
        found = wanted >= multicast->address && offset <= multicast->bytes &&
                bytes <= multicast->bytes - offset;
        if (found)
            *offset_p = offset;
    }
    pthread_mutex_unlock(&instance->lock);
    return found;
}

/* --- release ------------------------------------------------------------------------ */

static void forget(cuda_instance *instance, const cuda_multicast *multicast) {
    pthread_mutex_lock(&instance->lock);
    cuda_multicast **link = &instance->multicast->mapped;
    while (*link != NULL && *link != multicast)
        link = &(*link)->next;
    if (*link != NULL)
        *link = multicast->next;
    pthread_mutex_unlock(&instance->lock);
}

void cuda_multicast_release(void *opaque, void *multicast_or_object) {
    cuda_instance *instance = opaque;
    cuda_multicast *multicast = multicast_or_object;
    (void)cuda_failpoint(instance, "cuda.multicast.release*");
    forget(instance, multicast);
    if (cuda_enter(instance, multicast->device, "release") == SYMMEM_OK) {
        unbind(instance, multicast);
        (void)instance->driver.MemRelease(multicast->handle);
        cuda_leave(instance);
    }
    free(multicast);
}
