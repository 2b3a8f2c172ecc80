/* SPDX-License-Identifier: BSD-3-Clause */
#include "fake_cuda.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

fake_cuda_state fake_cuda;

/* The main program in place of the driver. */
void *__real_dlopen(const char *name, int flags);
void *__wrap_dlopen(const char *name, int flags);
void *__wrap_dlopen(const char *name, int flags) {
    if (name == NULL || strcmp(name, "libcuda.so.1") != 0)
        return __real_dlopen(name, flags);
    return __real_dlopen(fake_cuda.absent ? "libcuda-that-is-not-there.so" : NULL, flags);
}

static bool fails(const char *name, CUresult *result_p) {
    const char *failing = atomic_load(&fake_cuda.fails);
    if (failing == NULL || strcmp(failing, name) != 0 || atomic_fetch_sub(&fake_cuda.skip, 1) != 0)
        return false;
    *result_p = fake_cuda.result;
    return true;
}

#define MAY_FAIL(name)                                                                             \
    do {                                                                                           \
        CUresult answer_;                                                                          \
        if (fails(name, &answer_))                                                                 \
            return answer_;                                                                        \
    } while (0)

static void count(int change) {
    atomic_fetch_add(&fake_cuda.live, change);
}

/* An object that is nothing but alive. */
static CUresult make(void *object_p, size_t bytes) {
    void *object = calloc(1, bytes);
    if (object == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    count(1);
    memcpy(object_p, &object, sizeof object);
    return CUDA_SUCCESS;
}

static CUresult drop(void *object) {
    free(object);
    count(-1);
    return CUDA_SUCCESS;
}

static void *at(CUdeviceptr address) {
    return (void *)(uintptr_t)address;
}

/* --- devices ------------------------------------------------------------------------ */

static CUresult init(unsigned int flags) {
    (void)flags;
    return fake_cuda.init;
}

static CUresult error_name(CUresult result, const char **name_p) {
    (void)result;
    *name_p = "FAKE_ERROR";
    return CUDA_SUCCESS;
}

static CUresult device_get(CUdevice *device_p, int ordinal) {
    *device_p = ordinal;
    return CUDA_SUCCESS;
}

static CUresult driver_version(int *version_p) {
    *version_p = 13000;
    return CUDA_SUCCESS;
}

static CUresult device_count(int *count_p) {
    *count_p = FAKE_CUDA_DEVICES;
    return CUDA_SUCCESS;
}

static CUresult device_name(char *name, int capacity, CUdevice device) {
    snprintf(name, (size_t)capacity, "fake %d", device);
    return CUDA_SUCCESS;
}

static CUresult device_total(size_t *bytes, CUdevice device) {
    (void)device;
    *bytes = (size_t)1 << 40;
    return CUDA_SUCCESS;
}

static CUresult device_uuid(CUuuid *uuid_p, CUdevice device) {
    memset(uuid_p, device + 1, sizeof *uuid_p);
    return CUDA_SUCCESS;
}

static CUresult device_attribute(int *value_p, CUdevice_attribute attribute, CUdevice device) {
    (void)attribute;
    (void)device;
    *value_p = 1;
    return CUDA_SUCCESS;
}

static CUresult context_retain(CUcontext *context_p, CUdevice device) {
    static char contexts[FAKE_CUDA_DEVICES];
    char *context = &contexts[device];
    MAY_FAIL("DevicePrimaryCtxRetain");
    memcpy(context_p, &context, sizeof context);
    count(1);
    return CUDA_SUCCESS;
}

/* Somebody else uses the device already, so that the backend keeps no reference of its own. */
static CUresult context_state(CUdevice device, unsigned int *flags_p, int *active_p) {
    (void)device;
    *flags_p = 0;
    *active_p = 1;
    return CUDA_SUCCESS;
}

static CUresult context_release(CUdevice device) {
    (void)device;
    count(-1);
    return CUDA_SUCCESS;
}

static _Thread_local int pushed; /* by this thread */

static CUresult context_push(CUcontext context) {
    (void)context;
    MAY_FAIL("CtxPushCurrent");
    atomic_fetch_add(&fake_cuda.contexts, 1);
    pushed++;
    return CUDA_SUCCESS;
}

static CUresult context_pop(CUcontext *context_p) {
    *context_p = NULL;
    atomic_fetch_sub(&fake_cuda.contexts, 1);
    pushed--;
    return CUDA_SUCCESS;
}

static CUresult context_id(CUcontext context, unsigned long long *id_p) {
    (void)context;
    *id_p = fake_cuda.context_id;
    return fake_cuda.context_id != 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult context_device(CUdevice *device_p) {
    *device_p = 0;
    return CUDA_SUCCESS;
}

/* --- kernels ------------------------------------------------------------------------ */

static CUresult module_load(CUmodule *module_p, const void *image) {
    (void)image;
    MAY_FAIL("ModuleLoadData");
    if (fake_cuda.loading != NULL)
        fake_cuda.loading();
    atomic_fetch_add(&fake_cuda.loads, 1);
    return make(module_p, 1);
}

static CUresult module_unload(CUmodule module) {
    return drop(module);
}

static CUresult module_function(CUfunction *function_p, CUmodule module, const char *name) {
    (void)module;
    MAY_FAIL("ModuleGetFunction");
    memcpy(function_p, &name, sizeof name); /* string constants of the backend */
    return CUDA_SUCCESS;
}

static CUresult function_load(CUfunction function) {
    (void)function;
    return CUDA_SUCCESS;
}

static CUresult launch_kernel(CUfunction function, unsigned int gx, unsigned int gy,
                              unsigned int gz, unsigned int bx, unsigned int by, unsigned int bz,
                              unsigned int shared, CUstream stream, void **arguments,
                              void **extra) {
    const char *name;
    (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)stream;
    (void)extra;
    MAY_FAIL("LaunchKernel");
    memcpy(&name, &function, sizeof name);
    fake_cuda.launch(name, arguments);
    return CUDA_SUCCESS;
}

/* --- memory ------------------------------------------------------------------------- */

typedef struct physical {
    int fd;
} physical;

static CUresult mem_info(size_t *free_p, size_t *total_p) {
    *free_p = *total_p = (size_t)1 << 30;
    return CUDA_SUCCESS;
}

static CUresult pointer_attributes(unsigned int count, CUpointer_attribute *attributes, void **data,
                                   CUdeviceptr address) {
    const unsigned int type = fake_cuda.is_device(at(address)) ? CU_MEMORYTYPE_DEVICE : 0;
    if (count != 1 || attributes[0] != CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(data[0], &type, sizeof type);
    return CUDA_SUCCESS;
}

static CUresult host_alloc(void **pointer_p, size_t bytes, unsigned int flags) {
    (void)flags;
    MAY_FAIL("MemHostAlloc");
    return make(pointer_p, bytes);
}

static CUresult host_free(void *pointer) {
    return drop(pointer);
}

static CUresult pool_create(CUmemoryPool *pool_p, const CUmemPoolProps *properties) {
    (void)properties;
    MAY_FAIL("MemPoolCreate");
    return make(pool_p, 1);
}

static CUresult pool_destroy(CUmemoryPool pool) {
    return drop(pool);
}

static CUresult pool_set(CUmemoryPool pool, CUmemPool_attribute attribute, void *value) {
    (void)pool, (void)attribute, (void)value;
    MAY_FAIL("MemPoolSetAttribute");
    return CUDA_SUCCESS;
}

static CUresult alloc_from_pool(CUdeviceptr *address_p, size_t bytes, CUmemoryPool pool,
                                CUstream stream) {
    void *pointer;
    (void)pool, (void)stream;
    MAY_FAIL("MemAllocFromPoolAsync");
    CUresult result = make(&pointer, bytes);
    if (result == CUDA_SUCCESS)
        *address_p = (CUdeviceptr)(uintptr_t)pointer;
    return result;
}

static CUresult free_async(CUdeviceptr address, CUstream stream) {
    (void)stream;
    return drop(at(address));
}

/* As where devices could have fabric handles and no service for them runs. */
static bool refuses(const char *name, const CUmemAllocationProp *property) {
    if ((property->requestedHandleTypes & CU_MEM_HANDLE_TYPE_FABRIC) == 0 ||
        fake_cuda.refuses_fabric == NULL || strcmp(fake_cuda.refuses_fabric, name) != 0)
        return false;
    atomic_fetch_add(&fake_cuda.refusals, 1);
    return true;
}

static CUresult granularity(size_t *bytes_p, const CUmemAllocationProp *property,
                            CUmemAllocationGranularity_flags option) {
    (void)option;
    if (refuses("MemGetAllocationGranularity", property))
        return CUDA_ERROR_INVALID_VALUE;
    *bytes_p = 65536;
    return CUDA_SUCCESS;
}

static CUresult mem_create(CUmemGenericAllocationHandle *handle_p, size_t bytes,
                           const CUmemAllocationProp *property, unsigned long long flags) {
    physical *memory;
    (void)flags;
    MAY_FAIL("MemCreate");
    if (refuses("MemCreate", property))
        return CUDA_ERROR_NOT_PERMITTED;
    CUresult result = make(&memory, sizeof *memory);
    if (result != CUDA_SUCCESS)
        return result;
    memory->fd = memfd_create("fake-cuda", MFD_CLOEXEC);
    if (memory->fd < 0 || ftruncate(memory->fd, (off_t)bytes) != 0)
        abort();
    *handle_p = (CUmemGenericAllocationHandle)(uintptr_t)memory;
    return CUDA_SUCCESS;
}

static CUresult mem_release(CUmemGenericAllocationHandle handle) {
    physical *memory = at(handle);
    close(memory->fd);
    return drop(memory);
}

static CUresult address_reserve(CUdeviceptr *address_p, size_t bytes, size_t alignment,
                                CUdeviceptr wanted, unsigned long long flags) {
    (void)alignment;
    (void)wanted;
    (void)flags;
    MAY_FAIL("MemAddressReserve");
    void *place = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (place == MAP_FAILED)
        abort();
    count(1);
    *address_p = (CUdeviceptr)(uintptr_t)place;
    return CUDA_SUCCESS;
}

static CUresult address_free(CUdeviceptr address, size_t bytes) {
    munmap(at(address), bytes);
    count(-1);
    return CUDA_SUCCESS;
}

static CUresult mem_map(CUdeviceptr address, size_t bytes, size_t offset,
                        CUmemGenericAllocationHandle handle, unsigned long long flags) {
    const physical *memory = at(handle);
    (void)flags;
    MAY_FAIL("MemMap");
    if (mmap(at(address), bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memory->fd,
             (off_t)offset) == MAP_FAILED)
        abort();
    count(1);
    return CUDA_SUCCESS;
}

static CUresult mem_unmap(CUdeviceptr address, size_t bytes) {
    if (mmap(at(address), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
        MAP_FAILED)
        abort();
    count(-1);
    return CUDA_SUCCESS;
}

static CUresult set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access,
                           size_t count_of) {
    (void)address;
    (void)bytes;
    (void)access;
    (void)count_of;
    MAY_FAIL("MemSetAccess");
    return CUDA_SUCCESS;
}

static CUresult copy_async(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    (void)stream;
    MAY_FAIL("MemcpyAsync");
    memcpy(at(to), at(from), bytes);
    return CUDA_SUCCESS;
}

static CUresult set8_async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream) {
    (void)stream;
    memset(at(to), value, bytes);
    return CUDA_SUCCESS;
}

static CUresult set32_async(CUdeviceptr to, unsigned int value, size_t words, CUstream stream) {
    uint32_t *place = at(to);
    (void)stream;
    for (size_t i = 0; i < words; i++)
        place[i] = value;
    return CUDA_SUCCESS;
}

/* --- streams and events ------------------------------------------------------------- */

static CUresult stream_create(CUstream *stream_p, unsigned int flags) {
    (void)flags;
    MAY_FAIL("StreamCreate");
    return make(stream_p, 1);
}

static CUresult priority_range(int *lowest_p, int *highest_p) {
    *lowest_p = 0;
    *highest_p = -1;
    return CUDA_SUCCESS;
}

static CUresult stream_create_with(CUstream *stream_p, unsigned int flags, int priority) {
    (void)priority;
    return stream_create(stream_p, flags);
}

static CUresult write_value(CUstream stream, CUdeviceptr to, cuuint32_t value, unsigned int flags) {
    (void)flags;
    return set32_async(to, value, 1, stream);
}

static CUresult stream_destroy(CUstream stream) {
    return drop(stream);
}

/* Callbacks behind work that is not over. */
static struct {
    pthread_mutex_t lock;
    pthread_mutex_t calling; /* one after the other, whoever looks; taken before the lock */
    struct deferred {
        CUstream stream;
        CUhostFn function;
        void *argument;
    } calls[64];
    int count;
} deferred = {.lock = PTHREAD_MUTEX_INITIALIZER, .calling = PTHREAD_MUTEX_INITIALIZER};

static bool is_busy(CUstream stream) {
    return fake_cuda.is_busy != NULL && fake_cuda.is_busy(stream);
}

static bool take_deferred(CUstream stream, struct deferred *call) {
    bool found = false;
    pthread_mutex_lock(&deferred.lock);
    for (int i = 0; !found && i < deferred.count; i++)
        if (deferred.calls[i].stream == stream) {
            *call = deferred.calls[i];
            memmove(&deferred.calls[i], &deferred.calls[i + 1],
                    sizeof deferred.calls[0] * (size_t)(--deferred.count - i));
            found = true;
        }
    pthread_mutex_unlock(&deferred.lock);
    return found;
}

static CUresult look(CUstream stream) {
    struct deferred call;
    if (fake_cuda.is_lost != NULL && fake_cuda.is_lost(stream)) /* no callback comes either */
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    if (is_busy(stream))
        return CUDA_ERROR_NOT_READY;
    pthread_mutex_lock(&deferred.calling);
    while (take_deferred(stream, &call))
        call.function(call.argument);
    pthread_mutex_unlock(&deferred.calling);
    return CUDA_SUCCESS;
}

static CUresult stream_query(CUstream stream) {
    MAY_FAIL("StreamQuery");
    return look(stream);
}

static CUresult launch_host(CUstream stream, CUhostFn function, void *argument) {
    MAY_FAIL("LaunchHostFunc");
    if (look(stream) == CUDA_SUCCESS) {
        function(argument);
        return CUDA_SUCCESS;
    }
    pthread_mutex_lock(&deferred.lock);
    if (deferred.count == (int)(sizeof deferred.calls / sizeof deferred.calls[0]))
        abort();
    deferred.calls[deferred.count++] = (struct deferred){stream, function, argument};
    pthread_mutex_unlock(&deferred.lock);
    return CUDA_SUCCESS;
}

static CUresult capture_info(CUstream stream, CUstreamCaptureStatus *status_p, cuuint64_t *id_p,
                             CUgraph *graph_p, const CUgraphNode **nodes_p, size_t *count_p) {
    (void)stream, (void)id_p, (void)graph_p, (void)nodes_p, (void)count_p;
    MAY_FAIL("StreamGetCaptureInfo");
    *status_p =
        fake_cuda.captures ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    if (id_p != NULL)
        *id_p = 7;
    return CUDA_SUCCESS;
}

/* Of captures only that they begin and end: all streams take part, as far as they are asked. */
static CUresult begin_capture(CUstream stream, CUstreamCaptureMode mode) {
    (void)stream, (void)mode;
    count(1);
    fake_cuda.captures = true;
    return CUDA_SUCCESS;
}

/* Here whoever ends one is in a context, as with all that a driver is to do in relaxed mode. */
static CUresult end_capture(CUstream stream, CUgraph *graph_p) {
    (void)stream;
    if (pushed == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    count(-1);
    fake_cuda.captures = false;
    return make(graph_p, 1);
}

static CUresult graph_destroy(CUgraph graph) {
    return drop(graph);
}

/* An event is the stream that it was recorded on, as that is when one asks. */
static CUresult event_create(CUevent *event_p, unsigned int flags) {
    (void)flags;
    MAY_FAIL("EventCreate");
    return make(event_p, sizeof(CUstream));
}

static CUresult event_destroy(CUevent event) {
    return drop(event);
}

static CUresult event_record(CUevent event, CUstream stream) {
    MAY_FAIL("EventRecord");
    memcpy(event, &stream, sizeof stream);
    return CUDA_SUCCESS;
}

static CUresult event_query(CUevent event) {
    CUstream stream;
    memcpy(&stream, event, sizeof stream);
    return look(stream);
}

static CUresult wait_event(CUstream stream, CUevent event, unsigned int flags) {
    (void)stream, (void)event, (void)flags;
    return CUDA_SUCCESS;
}

static CUresult capture_mode(CUstreamCaptureMode *mode) {
    (void)mode;
    return CUDA_SUCCESS;
}

static CUresult not_here(void) {
    return CUDA_ERROR_NOT_SUPPORTED;
}

/* --- finding them ------------------------------------------------------------------- */

typedef struct entry {
    const char *name;
    void (*function)(void);
} entry;

#define ENTRY(name, function)                                                                      \
    { "cu" name, (void (*)(void))(function) }

#pragma GCC diagnostic ignored "-Wcast-function-type"
static const entry entries[] = {
    ENTRY("Init", init),
    ENTRY("GetErrorName", error_name),
    ENTRY("DeviceGet", device_get),
    ENTRY("DriverGetVersion", driver_version),
    ENTRY("DeviceGetCount", device_count),
    ENTRY("DeviceGetName", device_name),
    ENTRY("DeviceTotalMem", device_total),
    ENTRY("DeviceGetUuid", device_uuid),
    ENTRY("DeviceGetAttribute", device_attribute),
    ENTRY("DevicePrimaryCtxGetState", context_state),
    ENTRY("DevicePrimaryCtxRetain", context_retain),
    ENTRY("DevicePrimaryCtxRelease", context_release),
    ENTRY("CtxPushCurrent", context_push),
    ENTRY("CtxPopCurrent", context_pop),
    ENTRY("CtxGetDevice", context_device),
    ENTRY("CtxGetId", context_id),
    ENTRY("ModuleLoadData", module_load),
    ENTRY("ModuleUnload", module_unload),
    ENTRY("ModuleGetFunction", module_function),
    ENTRY("FuncLoad", function_load),
    ENTRY("LaunchKernel", launch_kernel),
    ENTRY("MemGetInfo", mem_info),
    ENTRY("PointerGetAttributes", pointer_attributes),
    ENTRY("MemHostAlloc", host_alloc),
    ENTRY("MemFreeHost", host_free),
    ENTRY("MemFreeAsync", free_async),
    ENTRY("MemPoolCreate", pool_create),
    ENTRY("MemPoolDestroy", pool_destroy),
    ENTRY("MemPoolSetAttribute", pool_set),
    ENTRY("MemAllocFromPoolAsync", alloc_from_pool),
    ENTRY("MemGetAllocationGranularity", granularity),
    ENTRY("MemCreate", mem_create),
    ENTRY("MemRelease", mem_release),
    ENTRY("MemAddressReserve", address_reserve),
    ENTRY("MemAddressFree", address_free),
    ENTRY("MemMap", mem_map),
    ENTRY("MemUnmap", mem_unmap),
    ENTRY("MemSetAccess", set_access),
    ENTRY("MemcpyAsync", copy_async),
    ENTRY("MemsetD8Async", set8_async),
    ENTRY("MemsetD32Async", set32_async),
    ENTRY("StreamCreate", stream_create),
    ENTRY("CtxGetStreamPriorityRange", priority_range),
    ENTRY("StreamCreateWithPriority", stream_create_with),
    ENTRY("StreamWriteValue32", write_value),
    ENTRY("StreamDestroy", stream_destroy),
    ENTRY("StreamQuery", stream_query),
    ENTRY("StreamGetCaptureInfo", capture_info),
    ENTRY("StreamBeginCapture", begin_capture),
    ENTRY("StreamEndCapture", end_capture),
    ENTRY("GraphDestroy", graph_destroy),
    ENTRY("StreamWaitEvent", wait_event),
    ENTRY("LaunchHostFunc", launch_host),
    ENTRY("EventCreate", event_create),
    ENTRY("EventDestroy", event_destroy),
    ENTRY("EventRecord", event_record),
    ENTRY("EventQuery", event_query),
    ENTRY("ThreadExchangeStreamCaptureMode", capture_mode),
};

CUresult cuGetProcAddress_v2(const char *name, void **pointer_p, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *found_p);
__attribute__((visibility("default"), used)) CUresult
cuGetProcAddress_v2(const char *name, void **pointer_p, int version, cuuint64_t flags,
                    CUdriverProcAddressQueryResult *found_p) {
    void (*function)(void) = (void (*)(void))not_here;
    (void)version;
    (void)flags;
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++)
        if (strcmp(entries[i].name, name) == 0)
            function = entries[i].function;
    memcpy(pointer_p, &function, sizeof function);
    *found_p = CU_GET_PROC_ADDRESS_SUCCESS;
    return CUDA_SUCCESS;
}
