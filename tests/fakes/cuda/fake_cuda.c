/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A fake of the CUDA driver, for machines without one: memory of the host, streams that are
 * threads, the kernels from their own source (kernels.cpp). It lets the host code of backend_cuda
 * run, under ThreadSanitizer too. It shows nothing about GPUs: not their memory model, not their
 * time, not which of the driver's calls wait for what, but for two: a copy from the device to
 * ordinary memory holds the caller until it is over, and loading code, unloading it and freeing
 * pinned memory wait for all that runs in the context. As documented, or as the driver may; here
 * and there with the context's lock held, which keeps other threads from enqueueing.
 *
 * FAKE_CUDA_DEVICES: how many devices there are, at most and unless it is set 8.
 * FAKE_CUDA_FABRIC: the name of the NVLink fabric that they are on; unset: they say that they could
 * have one, and memory for it is refused, as seen on GPUs (FAKE_CUDA_REFUSAL: in other ways,
 * or, with one, the first time that it is asked for).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fake.h"

#define EXPORT __attribute__((visibility("default")))
#define DEVICES FAKE_DEVICES
#define GRANULARITY ((size_t)2 << 20)
#define MAX_BYTES ((size_t)8 << 30) /* of one allocation, and of all that a process may reserve */
#define ALL_BYTES ((size_t)1 << 40) /* of a device */
#define MAX_DEPTH 16

struct CUctx_st {
    _Atomic int references; /* changed under the lock */
    int stale;              /* references to what was reset, which are released all the same */
    unsigned long long resets;
    pthread_mutex_t enqueueing; /* held by every call that enqueues */
};

/* The devices' primary ones, and behind them one more of each, for a program of its own. */
static struct CUctx_st contexts[2 * DEVICES] = {
    [0 ... 2 * DEVICES - 1] = {.enqueueing = PTHREAD_MUTEX_INITIALIZER},
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static __thread CUcontext stack[MAX_DEPTH];
static __thread int depth;
static atomic_int pushed; /* by all threads */

#define NEED_CONTEXT()                                                                             \
    do {                                                                                           \
        if (depth == 0 || stack[depth - 1]->references == 0)                                       \
            return CUDA_ERROR_INVALID_CONTEXT;                                                     \
    } while (0)

static void *pointer(CUdeviceptr at) {
    return (void *)(uintptr_t)at;
}

CUcontext fake_current(void) {
    return depth > 0 ? stack[depth - 1] : NULL;
}

bool fake_in_context(void) {
    return depth > 0 && stack[depth - 1]->references > 0;
}

unsigned long long fake_id_of(CUcontext context) {
    pthread_mutex_lock(&lock);
    unsigned long long id =
        context->resets * 2 * DEVICES + (unsigned long long)(context - contexts) + 1;
    pthread_mutex_unlock(&lock);
    return id;
}

void fake_reset_context(CUdevice device) {
    pthread_mutex_lock(&lock);
    contexts[device].stale += contexts[device].references;
    contexts[device].references = 0;
    contexts[device].resets++;
    pthread_mutex_unlock(&lock);
}

int fake_contexts_pushed(void) {
    return pushed;
}

void fake_cuda_quiet(void) {
    CUcontext context = fake_current();
    pthread_mutex_lock(&context->enqueueing);
    fake_wait_context(context);
    pthread_mutex_unlock(&context->enqueueing);
}

/* --- devices and contexts ------------------------------------------------------------- */

static CUresult fake_init(unsigned int flags) {
    FAKE_CALL("cuInit");
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (getenv("FAKE_CUDA_TAKES_BACK") != NULL)
        pthread_once(&once, fake_take_back_at_exit);
    return flags == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult fake_error_name(CUresult error, const char **name) {
    FAKE_CALL("cuGetErrorName");
    static __thread char text[32];
    snprintf(text, sizeof text, "FAKE_ERROR_%d", (int)error);
    *name = text;
    return CUDA_SUCCESS;
}

static CUresult fake_driver_version(int *version) {
    FAKE_CALL("cuDriverGetVersion");
    *version = 13000;
    return CUDA_SUCCESS;
}

static CUresult fake_device_count(int *count) {
    FAKE_CALL("cuDeviceGetCount");
    const char *wanted = getenv("FAKE_CUDA_DEVICES");
    int number = wanted != NULL ? atoi(wanted) : DEVICES;
    *count = number >= 1 && number <= DEVICES ? number : DEVICES;
    return CUDA_SUCCESS;
}

static CUresult fake_device_get(CUdevice *device, int index) {
    FAKE_CALL("cuDeviceGet");
    int count;
    (void)fake_device_count(&count);
    *device = index;
    return index >= 0 && index < count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult fake_device_name(char *name, int capacity, CUdevice device) {
    FAKE_CALL("cuDeviceGetName");
    snprintf(name, (size_t)capacity, "fake device %d, no GPU", device);
    return CUDA_SUCCESS;
}

static CUresult fake_device_bytes_in_all(size_t *bytes, CUdevice device) {
    FAKE_CALL("cuDeviceTotalMem");
    (void)device;
    *bytes = ALL_BYTES;
    return CUDA_SUCCESS;
}

static CUresult fake_device_uuid(CUuuid *uuid, CUdevice device) {
    FAKE_CALL("cuDeviceGetUuid");
    memset(uuid, device + 1, sizeof *uuid);
    return CUDA_SUCCESS;
}

/* PCI places as fake_nvml.c has them; all else that is asked for is there. */
static CUresult fake_attribute(int *value, CUdevice_attribute attribute, CUdevice device) {
    FAKE_CALL("cuDeviceGetAttribute");
    *value = attribute == CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID   ? 0
             : attribute == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID    ? 0x10 + device
             : attribute == CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID ? device
                                                              : 1;
    return CUDA_SUCCESS;
}

static CUresult fake_state(CUdevice device, unsigned int *flags, int *active) {
    FAKE_CALL("cuDevicePrimaryCtxGetState");
    pthread_mutex_lock(&lock);
    *active = contexts[device].references > 0;
    pthread_mutex_unlock(&lock);
    *flags = 0;
    return CUDA_SUCCESS;
}

/* Whether nobody else does. */
static bool refer_to(CUdevice device) {
    pthread_mutex_lock(&lock);
    bool is_first = contexts[device].references++ == 0;
    pthread_mutex_unlock(&lock);
    fake_count(1);
    return is_first;
}

void fake_use_devices(void) {
    for (CUdevice device = 0; device < DEVICES; device++)
        (void)refer_to(device);
}

/* FAKE_CUDA_SLOW_OPEN: how long a device takes to open, in milliseconds. */
static CUresult fake_retain(CUcontext *context, CUdevice device) {
    FAKE_CALL("cuDevicePrimaryCtxRetain");
    const char *slow = getenv("FAKE_CUDA_SLOW_OPEN");
    bool is_first = refer_to(device);
    if (slow != NULL && is_first)
        usleep((useconds_t)atoi(slow) * 1000);
    *context = &contexts[device];
    return CUDA_SUCCESS;
}

static CUresult fake_release(CUdevice device) {
    FAKE_CALL("cuDevicePrimaryCtxRelease");
    pthread_mutex_lock(&lock);
    CUcontext context = &contexts[device];
    bool stale = context->stale > 0, held = !stale && context->references > 0;
    context->stale -= stale;
    context->references -= held;
    context->resets += held && context->references == 0; /* the next one is another */
    pthread_mutex_unlock(&lock);
    fake_count(held || stale ? -1 : 0);
    return held || stale ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

static CUresult fake_push(CUcontext context) {
    FAKE_CALL("cuCtxPushCurrent");
    if (depth == MAX_DEPTH)
        return CUDA_ERROR_INVALID_VALUE;
    if (depth == 0)
        fake_first_pushed();
    fake_watch_end();
    stack[depth++] = context;
    pushed++;
    return CUDA_SUCCESS;
}

static CUresult fake_pop(CUcontext *context) {
    FAKE_CALL("cuCtxPopCurrent");
    if (depth == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    *context = stack[--depth];
    pushed--;
    if (depth == 0)
        fake_last_popped();
    return CUDA_SUCCESS;
}

static CUresult fake_current_device(CUdevice *device) {
    FAKE_CALL("cuCtxGetDevice");
    NEED_CONTEXT();
    *device = (CUdevice)(fake_current() - contexts) % DEVICES;
    return CUDA_SUCCESS;
}

static CUresult fake_get_current(CUcontext *context) {
    FAKE_CALL("cuCtxGetCurrent");
    *context = fake_current();
    return CUDA_SUCCESS;
}

/* By its name of old, for later ones take other arguments. It is the thread's current one then. */
EXPORT CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device);
CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device) {
    CUcontext own = &contexts[DEVICES + device];
    pthread_mutex_lock(&lock);
    const bool is_free = flags == 0 && own->references == 0;
    own->references += is_free;
    pthread_mutex_unlock(&lock);
    if (!is_free)
        return CUDA_ERROR_INVALID_VALUE; /* the fake has but one of them */
    *context = own;
    return fake_push(own);
}

static CUresult fake_context_destroy(CUcontext context) {
    FAKE_CALL("cuCtxDestroy");
    CUcontext popped;
    if (context < contexts + DEVICES)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (context == fake_current())
        (void)fake_pop(&popped);
    pthread_mutex_lock(&lock);
    context->references = 0;
    context->resets++;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

static CUresult fake_context_id(CUcontext context, unsigned long long *id) {
    FAKE_CALL("cuCtxGetId");
    NEED_CONTEXT();
    *id = fake_id_of(context != NULL ? context : fake_current());
    return CUDA_SUCCESS;
}

/* --- memory ----------------------------------------------------------------------------- */

static CUresult fake_memory_type(unsigned int count, CUpointer_attribute *attributes, void **data,
                                 CUdeviceptr at) {
    FAKE_CALL("cuPointerGetAttributes");
    NEED_CONTEXT();
    if (count != 1 || attributes[0] != CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
        return CUDA_ERROR_INVALID_VALUE;
    *(unsigned int *)data[0] = fake_is_known(at) ? CU_MEMORYTYPE_DEVICE : 0;
    return CUDA_SUCCESS;
}

/* Handles of memory that have not been given back, and what they are of. */
static _Atomic size_t handles_held, bytes_held, shared_made;
static atomic_int fabric_refusals;
static _Atomic size_t most_held = SIZE_MAX, most_filled = SIZE_MAX;

int fake_handles_held(void) {
    return (int)handles_held;
}

int fake_shared_made(void) {
    return (int)shared_made;
}

int fake_fabric_refusals(void) {
    return fabric_refusals;
}

void fake_run_short(size_t held_bytes, size_t fill_bytes) {
    most_held = held_bytes;
    most_filled = fill_bytes;
}

static size_t bytes_of(int fd) {
    struct stat info;
    return fstat(fd, &info) == 0 ? (size_t)info.st_size : 0;
}

/* Of each thing the least that there is, and the context. FAKE_CUDA_HIDES=1: what the driver keeps
 * of modules is not put down to the process. */
size_t fake_device_bytes(void) {
    const size_t kept = getenv("FAKE_CUDA_HIDES") == NULL ? fake_modules_kept() : 0;
    return (1 + handles_held + kept) * GRANULARITY;
}

/* FAKE_CUDA_OTHERS=1: another process uses the devices, and more of them each time. */
size_t fake_others_bytes(void) {
    static _Atomic size_t asked;
    return getenv("FAKE_CUDA_OTHERS") != NULL ? ++asked * GRANULARITY : 0;
}

static CUresult fake_memory_info(size_t *free_bytes, size_t *total_bytes) {
    FAKE_CALL("cuMemGetInfo");
    const size_t used = (1 + handles_held + fake_modules_kept()) * GRANULARITY;
    *total_bytes = ALL_BYTES;
    *free_bytes = ALL_BYTES - used - fake_others_bytes();
    return CUDA_SUCCESS;
}

/* NULL: none, as on machines whose devices could have one. */
static const char *fabric(void) {
    return getenv("FAKE_CUDA_FABRIC");
}

/* Nobody says that it is the same with a handle for the fabric. */
static size_t granularity_of(bool shared) {
    return shared && fabric() != NULL ? 2 * GRANULARITY : GRANULARITY;
}

/* Whether FAKE_CUDA_REFUSAL is this, and it is the first time. */
static bool passes(const char *what) {
    static atomic_int times;
    const char *wanted = getenv("FAKE_CUDA_REFUSAL");
    return wanted != NULL && strcmp(wanted, what) == 0 && atomic_fetch_add(&times, 1) == 0;
}

static CUresult fake_granularity(size_t *bytes, const CUmemAllocationProp *property,
                                 CUmemAllocationGranularity_flags option) {
    FAKE_CALL("cuMemGetAllocationGranularity");
    const char *wanted = getenv("FAKE_CUDA_REFUSAL");
    (void)option;
    *bytes = GRANULARITY;
    if ((property->requestedHandleTypes & CU_MEM_HANDLE_TYPE_FABRIC) == 0)
        return CUDA_SUCCESS;
    if (wanted != NULL && strcmp(wanted, "granularity") == 0) {
        fabric_refusals++;
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (passes("passing granularity"))
        return CUDA_ERROR_SYSTEM_NOT_READY;
    *bytes = granularity_of(true);
    return CUDA_SUCCESS;
}

/* As the driver has it: shared memory, which /proc/self/maps shows. Its size stands in a page
 * before it. */
#define PAGE ((size_t)4096)

static CUresult fake_host_alloc(void **memory, size_t bytes, unsigned int flags) {
    FAKE_UNSEEN_CALL("cuMemHostAlloc");
    NEED_CONTEXT();
    (void)flags;
    size_t whole = PAGE + (bytes + PAGE - 1) / PAGE * PAGE;
    void *at = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(at, &whole, sizeof whole);
    fake_pinned(at, whole);
    *memory = (char *)at + PAGE;
    fake_know((CUdeviceptr)(uintptr_t)*memory, bytes);
    return CUDA_SUCCESS;
}

static CUresult fake_host_free(void *memory) {
    FAKE_UNSEEN_CALL("cuMemFreeHost");
    NEED_CONTEXT();
    fake_cuda_quiet();
    fake_forget((CUdeviceptr)(uintptr_t)memory, 0);
    void *at = (char *)memory - PAGE;
    size_t whole;
    memcpy(&whole, at, sizeof whole);
    fake_unpinned(at);
    munmap(at, whole);
    return CUDA_SUCCESS;
}

/* FAKE_CUDA_REFUSAL: how memory for a fabric is refused; "granularity": where the size is asked
 * for; "passing", "passing granularity": likewise once, and not for good. */
static CUresult refusal(void) {
    const char *wanted = getenv("FAKE_CUDA_REFUSAL");
    fabric_refusals++;
    return wanted != NULL && strcmp(wanted, "value") == 0 ? CUDA_ERROR_INVALID_VALUE
                                                          : CUDA_ERROR_NOT_PERMITTED;
}

/* The files' names say how the memory may be shared. */
static const char *name_for(CUmemAllocationHandleType types) {
    if ((types & CU_MEM_HANDLE_TYPE_FABRIC) == 0)
        return "fake-cuda fd";
    return (types & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0 ? "fake-cuda fd fabric"
                                                                   : "fake-cuda fabric";
}

static bool may_be_shared(int fd, const char *way) {
    char path[64], name[64] = "";
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return readlink(path, name, sizeof name - 1) > 0 && strstr(name, way) != NULL;
}

/* In a fabric handle: the memory is a file of the process that made it. */
struct fabric_handle {
    char name[24];
    int pid, fd;
};
_Static_assert(sizeof(struct fabric_handle) <= sizeof(CUmemFabricHandle), "it has to fit");

static void hold_handle(size_t bytes) {
    handles_held++;
    bytes_held += bytes;
    fake_count(1);
}

static CUresult fake_create(CUmemGenericAllocationHandle *handle, size_t bytes,
                            const CUmemAllocationProp *property, unsigned long long flags) {
    FAKE_UNSEEN_CALL("cuMemCreate");
    const bool shared = (property->requestedHandleTypes & CU_MEM_HANDLE_TYPE_FABRIC) != 0;
    if (shared && fabric() == NULL)
        return refusal();
    if (shared && passes("passing"))
        return CUDA_ERROR_SYSTEM_NOT_READY;
    if (bytes == 0 || bytes % granularity_of(shared) != 0 || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    /* The driver takes long to find that out, and lets nobody else do anything meanwhile. */
    if (bytes > ALL_BYTES)
        return CUDA_ERROR_UNKNOWN;
    if (bytes > MAX_BYTES || bytes > most_held || bytes_held > most_held - bytes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    int fd = memfd_create(name_for(property->requestedHandleTypes), MFD_CLOEXEC);
    if (fd < 0 && errno == EMFILE)
        return CUDA_ERROR_OPERATING_SYSTEM;
    if (fd < 0 || fchmod(fd, 0600) != 0 || ftruncate(fd, (off_t)bytes) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *handle = (CUmemGenericAllocationHandle)fd + 1;
    shared_made += shared;
    hold_handle(bytes);
    return CUDA_SUCCESS;
}

static CUresult fake_release_memory(CUmemGenericAllocationHandle handle) {
    FAKE_UNSEEN_CALL("cuMemRelease");
    if (fake_is_multicast(fake_fd_of(handle))) {
        fake_multicast_released(fake_fd_of(handle));
    } else {
        handles_held--;
        bytes_held -= bytes_of(fake_fd_of(handle));
        fake_count(-1);
    }
    return close((int)handle - 1) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult fake_reserve(CUdeviceptr *at, size_t bytes, size_t alignment, CUdeviceptr wanted,
                             unsigned long long flags) {
    FAKE_UNSEEN_CALL("cuMemAddressReserve");
    (void)alignment, (void)wanted, (void)flags;
    void *reserved =
        mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *at = (CUdeviceptr)(uintptr_t)reserved;
    fake_count(1);
    return CUDA_SUCCESS;
}

static CUresult fake_free_address(CUdeviceptr at, size_t bytes) {
    FAKE_UNSEEN_CALL("cuMemAddressFree");
    if (munmap(pointer(at), bytes) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    fake_count(-1);
    return CUDA_SUCCESS;
}

static CUresult fake_map(CUdeviceptr at, size_t bytes, size_t offset,
                         CUmemGenericAllocationHandle handle, unsigned long long flags) {
    FAKE_UNSEEN_CALL("cuMemMap");
    struct stat info;
    int fd = (int)handle - 1;
    (void)flags;
    if (offset == 0 && fake_is_multicast(fd))
        return fake_multicast_map(at, bytes, fd);
    if (offset != 0 || fstat(fd, &info) != 0 || (size_t)info.st_size != bytes ||
        mmap(pointer(at), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
        return CUDA_ERROR_INVALID_VALUE;
    fake_know(at, bytes);
    return CUDA_SUCCESS;
}

static CUresult fake_unmap(CUdeviceptr at, size_t bytes) {
    FAKE_UNSEEN_CALL("cuMemUnmap");
    fake_forget(at, 0);
    fake_multicast_unmap(at);
    return mmap(pointer(at), bytes, PROT_NONE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED
               ? CUDA_ERROR_INVALID_VALUE
               : CUDA_SUCCESS;
}

static CUresult fake_access(CUdeviceptr at, size_t bytes, const CUmemAccessDesc *access,
                            size_t count) {
    FAKE_UNSEEN_CALL("cuMemSetAccess");
    const struct timespec pause = {.tv_nsec = 100000};
    (void)access;
    CUresult result = count == 1 ? fake_access_begin(at) : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) {
        nanosleep(&pause, NULL);
        if (mprotect(pointer(at), bytes, PROT_READ | PROT_WRITE) != 0)
            result = CUDA_ERROR_INVALID_VALUE;
        fake_access_end(at);
    }
    return result;
}

static CUresult export_to_fabric(CUmemFabricHandle *share, int fd) {
    struct fabric_handle handle = {.pid = getpid(), .fd = fd};
    if (!may_be_shared(fd, " fabric"))
        return CUDA_ERROR_INVALID_VALUE;
    snprintf(handle.name, sizeof handle.name, "%s", fabric());
    memset(share, 0, sizeof *share);
    memcpy(share, &handle, sizeof handle);
    return CUDA_SUCCESS;
}

static int import_from_fabric(const CUmemFabricHandle *share) {
    struct fabric_handle handle;
    char path[64];
    memcpy(&handle, share, sizeof handle);
    if (fabric() == NULL || strncmp(handle.name, fabric(), sizeof handle.name) != 0)
        return -1;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", handle.pid, handle.fd);
    return open(path, O_RDWR | O_CLOEXEC);
}

static CUresult fake_export(void *share, CUmemGenericAllocationHandle handle,
                            CUmemAllocationHandleType type, unsigned long long flags) {
    FAKE_UNSEEN_CALL("cuMemExportToShareableHandle");
    (void)flags;
    if (type == CU_MEM_HANDLE_TYPE_FABRIC)
        return export_to_fabric(share, fake_fd_of(handle));
    int fd = fake_fd_of(handle);
    bool allowed = type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR &&
                   (fake_is_multicast(fd) || may_be_shared(fd, " fd"));
    fd = allowed ? dup(fd) : -1;
    *(int *)share = fd;
    return fd >= 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult fake_import(CUmemGenericAllocationHandle *handle, void *share,
                            CUmemAllocationHandleType type) {
    FAKE_UNSEEN_CALL("cuMemImportFromShareableHandle");
    int fd = -1;
    if (type == CU_MEM_HANDLE_TYPE_FABRIC)
        fd = import_from_fabric(share);
    else if (type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        fd = fcntl((int)(intptr_t)share, F_DUPFD_CLOEXEC, 0);
    *handle = (CUmemGenericAllocationHandle)fd + 1;
    if (fd >= 0 && !fake_is_multicast(fd))
        hold_handle(bytes_of(fd));
    if (fd >= 0)
        return CUDA_SUCCESS;
    return type == CU_MEM_HANDLE_TYPE_FABRIC ? CUDA_ERROR_NOT_PERMITTED : CUDA_ERROR_INVALID_VALUE;
}

/* --- work --------------------------------------------------------------------------------- */

struct bytes_op {
    void *dst;
    const void *src;
    size_t count, width;
    uint32_t value;
};

static bool is_word(const struct bytes_op *op) {
    return op->count == 4 && ((uintptr_t)op->dst | (uintptr_t)op->src) % 4 == 0;
}

/* A copied word may be a flag that others wait for. */
static void run_copy(void *arg) {
    const struct bytes_op *op = arg;
    if (is_word(op))
        __atomic_store_n((uint32_t *)op->dst,
                         __atomic_load_n((const uint32_t *)op->src, __ATOMIC_ACQUIRE),
                         __ATOMIC_RELEASE);
    else
        memcpy(op->dst, op->src, op->count);
}

/* Of whole pages, which are zeros once they are given back: fresh memory, which is large, has none
 * yet, and to write it would take most of a test's time. */
static bool zero_pages(const struct bytes_op *op) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return op->width == 1 && op->value == 0 && (uintptr_t)op->dst % page == 0 &&
           op->count % page == 0 && madvise(op->dst, op->count, MADV_REMOVE) == 0;
}

static void run_fill(void *arg) {
    const struct bytes_op *op = arg;
    if (zero_pages(op))
        return;
    if (op->width == 1)
        memset(op->dst, (int)op->value, op->count);
    else
        for (size_t i = 0; i < op->count; i++)
            ((uint32_t *)op->dst)[i] = op->value;
}

static void run_write(void *arg) {
    const struct bytes_op *op = arg;
    __atomic_store_n((uint32_t *)op->dst, op->value, __ATOMIC_RELEASE);
}

static CUresult enqueue(CUstream stream, void (*run)(void *arg), const void *arg, size_t bytes,
                        bool blocks) {
    NEED_CONTEXT();
    pthread_mutex_lock(&fake_current()->enqueueing);
    CUresult result = fake_enqueue(stream, run, NULL, arg, bytes, blocks);
    if (blocks && !fake_is_capturing(stream))
        fake_wait_stream(stream);
    pthread_mutex_unlock(&fake_current()->enqueueing);
    return result;
}

static CUresult fake_copy(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream) {
    FAKE_CALL("cuMemcpyAsync");
    const struct bytes_op op = {.dst = pointer(dst), .src = pointer(src), .count = bytes};
    return enqueue(stream, run_copy, &op, sizeof op, !fake_is_known(dst) || !fake_is_known(src));
}

static CUresult fake_fill8(CUdeviceptr dst, unsigned char value, size_t count, CUstream stream) {
    FAKE_CALL("cuMemsetD8Async");
    const struct bytes_op op = {.dst = pointer(dst), .count = count, .width = 1, .value = value};
    if (count > most_filled)
        return CUDA_ERROR_OUT_OF_MEMORY;
    return fake_is_known(dst) ? enqueue(stream, run_fill, &op, sizeof op, false)
                              : CUDA_ERROR_INVALID_VALUE;
}

static CUresult fake_fill32(CUdeviceptr dst, unsigned int value, size_t count, CUstream stream) {
    FAKE_CALL("cuMemsetD32Async");
    const struct bytes_op op = {.dst = pointer(dst), .count = count, .width = 4, .value = value};
    return fake_is_known(dst) ? enqueue(stream, run_fill, &op, sizeof op, false)
                              : CUDA_ERROR_INVALID_VALUE;
}

static CUresult fake_write(CUstream stream, CUdeviceptr dst, cuuint32_t value, unsigned int flags) {
    FAKE_CALL("cuStreamWriteValue32");
    const struct bytes_op op = {.dst = pointer(dst), .value = value};
    (void)flags;
    return fake_is_known(dst) ? enqueue(stream, run_write, &op, sizeof op, false)
                              : CUDA_ERROR_INVALID_VALUE;
}

struct host_op {
    CUhostFn fn;
    void *arg;
};

static void run_host(void *arg) {
    const struct host_op *op = arg;
    op->fn(op->arg);
}

static CUresult fake_host_fn(CUstream stream, CUhostFn fn, void *arg) {
    FAKE_CALL("cuLaunchHostFunc");
    const struct host_op op = {fn, arg};
    return enqueue(stream, run_host, &op, sizeof op, false);
}

CUresult fake_cuda_enqueue(CUstream stream, void (*run)(void *arg), const void *arg, size_t bytes) {
    return enqueue(stream, run, arg, bytes, false);
}

struct kernel_op {
    const fake_kernel *kernel;
    _Alignas(16) char args[FAKE_MOST_ARGS];
};

static void run_kernel(void *arg) {
    const struct kernel_op *op = arg;
    fake_await_room();
    op->kernel->run(op->args);
}

static CUresult fake_launch(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                            unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                            unsigned int block_z, unsigned int shared, CUstream stream, void **args,
                            void **extra) {
    FAKE_CALL("cuLaunchKernel");
    struct kernel_op op;
    (void)grid_y, (void)grid_z, (void)block_y, (void)block_z, (void)shared, (void)extra;
    if (grid_x == 0 || block_x == 0)
        return CUDA_ERROR_INVALID_VALUE;
    op.kernel = fake_kernel_of(function);
    if (op.kernel == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    if (op.kernel->args_bytes > sizeof op.args || block_x < op.kernel->least_threads)
        return CUDA_ERROR_INVALID_VALUE;
    if (op.kernel->take != NULL)
        op.kernel->take(op.kernel, op.args, args, stream);
    else
        memcpy(op.args, args[0], op.kernel->args_bytes);
    return enqueue(stream, run_kernel, &op, sizeof op, false);
}

static CUresult fake_launch_graph(CUgraphExec executable, CUstream stream) {
    FAKE_CALL("cuGraphLaunch");
    NEED_CONTEXT();
    pthread_mutex_lock(&fake_current()->enqueueing);
    CUresult result = fake_graph_launch(executable, stream);
    pthread_mutex_unlock(&fake_current()->enqueueing);
    return result;
}

/* --- finding them ------------------------------------------------------------------------- */

#define ENTRY(name, function)                                                                      \
    { "cu" #name, (void (*)(void))function }

EXPORT CUresult cuGetProcAddress_v2(const char *name, void **entry, int version, cuuint64_t flags,
                                    CUdriverProcAddressQueryResult *found);

CUresult cuGetProcAddress_v2(const char *name, void **entry, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *found) {
    static const struct {
        const char *name;
        void (*function)(void);
    } entries[] = {
        ENTRY(Init, fake_init),
        ENTRY(GetErrorName, fake_error_name),
        ENTRY(DeviceGet, fake_device_get),
        ENTRY(DriverGetVersion, fake_driver_version),
        ENTRY(DeviceGetCount, fake_device_count),
        ENTRY(DeviceGetName, fake_device_name),
        ENTRY(DeviceTotalMem, fake_device_bytes_in_all),
        ENTRY(DeviceGetUuid, fake_device_uuid),
        ENTRY(DeviceGetAttribute, fake_attribute),
        ENTRY(DevicePrimaryCtxGetState, fake_state),
        ENTRY(DevicePrimaryCtxRetain, fake_retain),
        ENTRY(DevicePrimaryCtxRelease, fake_release),
        ENTRY(CtxPushCurrent, fake_push),
        ENTRY(CtxPopCurrent, fake_pop),
        ENTRY(CtxGetCurrent, fake_get_current),
        ENTRY(CtxDestroy, fake_context_destroy),
        ENTRY(CtxGetDevice, fake_current_device),
        ENTRY(CtxGetId, fake_context_id),
        ENTRY(ModuleLoadData, fake_load),
        ENTRY(ModuleUnload, fake_unload),
        ENTRY(ModuleGetFunction, fake_function),
        ENTRY(FuncLoad, fake_load_function),
        ENTRY(LaunchKernel, fake_launch),
        ENTRY(LaunchHostFunc, fake_host_fn),
        ENTRY(PointerGetAttributes, fake_memory_type),
        ENTRY(MemGetInfo, fake_memory_info),
        ENTRY(MemHostAlloc, fake_host_alloc),
        ENTRY(MemFreeHost, fake_host_free),
        ENTRY(MemFreeAsync, fake_free_async),
        ENTRY(MemPoolCreate, fake_pool_create),
        ENTRY(MemPoolDestroy, fake_pool_destroy),
        ENTRY(MemPoolSetAttribute, fake_pool_set),
        ENTRY(MemAllocFromPoolAsync, fake_alloc_from_pool),
        ENTRY(MemGetAllocationGranularity, fake_granularity),
        ENTRY(MemCreate, fake_create),
        ENTRY(MemRelease, fake_release_memory),
        ENTRY(MemAddressReserve, fake_reserve),
        ENTRY(MemAddressFree, fake_free_address),
        ENTRY(MemMap, fake_map),
        ENTRY(MemUnmap, fake_unmap),
        ENTRY(MemSetAccess, fake_access),
        ENTRY(MemExportToShareableHandle, fake_export),
        ENTRY(MemImportFromShareableHandle, fake_import),
        ENTRY(MulticastGetGranularity, fake_multicast_granularity),
        ENTRY(MulticastCreate, fake_multicast_create),
        ENTRY(MulticastAddDevice, fake_multicast_add),
        ENTRY(MulticastBindMem, fake_multicast_bind),
        ENTRY(MulticastUnbind, fake_multicast_unbind),
        ENTRY(MemcpyAsync, fake_copy),
        ENTRY(MemsetD8Async, fake_fill8),
        ENTRY(MemsetD32Async, fake_fill32),
        ENTRY(StreamCreate, fake_stream_create),
        ENTRY(CtxGetStreamPriorityRange, fake_priority_range),
        ENTRY(StreamCreateWithPriority, fake_stream_create_with),
        ENTRY(StreamDestroy, fake_stream_destroy),
        ENTRY(StreamQuery, fake_stream_query),
        ENTRY(StreamWaitEvent, fake_stream_wait_event),
        ENTRY(StreamWriteValue32, fake_write),
        ENTRY(StreamBeginCapture, fake_begin_capture),
        ENTRY(StreamEndCapture, fake_end_capture),
        ENTRY(StreamGetCaptureInfo, fake_capture_info),
        ENTRY(ThreadExchangeStreamCaptureMode, fake_exchange_mode),
        ENTRY(EventCreate, fake_event_create),
        ENTRY(EventDestroy, fake_event_destroy),
        ENTRY(EventRecord, fake_event_record),
        ENTRY(EventQuery, fake_event_query),
        ENTRY(EventElapsedTime, fake_event_elapsed),
        ENTRY(GraphInstantiateWithFlags, fake_instantiate),
        ENTRY(GraphDestroy, fake_graph_destroy),
        ENTRY(GraphRetainUserObject, fake_graph_retain),
        ENTRY(UserObjectCreate, fake_user_object),
        ENTRY(UserObjectRelease, fake_user_object_release),
        ENTRY(GraphLaunch, fake_launch_graph),
        ENTRY(GraphExecDestroy, fake_exec_destroy),
    };
    (void)version, (void)flags;
    if (strcmp(name, "cuCtxGetId") == 0 && getenv("FAKE_CUDA_NO_ID") != NULL)
        return CUDA_ERROR_NOT_FOUND;
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++)
        if (strcmp(entries[i].name, name) == 0) {
            memcpy(entry, &entries[i].function, sizeof *entry);
            *found = CU_GET_PROC_ADDRESS_SUCCESS;
            return CUDA_SUCCESS;
        }
    *found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return CUDA_ERROR_NOT_FOUND;
}
