/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory: files that several processes may map, and what is known of it. */
#include <errno.h>
#include <fcntl.h>

#include "fake.h"

#define GRANULARITY ((size_t)2 << 20)
#define MAX_BYTES ((size_t)8 << 30) /* of one allocation, and of all that a process may reserve */

FAKE(PointerGetAttributes, unsigned int count, CUpointer_attribute *attributes, void **data,
     CUdeviceptr at) {
    FAKE_CALL("cuPointerGetAttributes");
    FAKE_NEED_CONTEXT();
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

bool fake_may_fill(size_t bytes) {
    return bytes <= most_filled;
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

FAKE(MemGetInfo, size_t *free_bytes, size_t *total_bytes) {
    FAKE_CALL("cuMemGetInfo");
    const size_t used = (1 + handles_held + fake_modules_kept()) * GRANULARITY;
    *total_bytes = FAKE_DEVICE_BYTES;
    *free_bytes = FAKE_DEVICE_BYTES - used - fake_others_bytes();
    return CUDA_SUCCESS;
}

/* NULL: none, as on machines whose devices could have one. */
static const char *fabric(void) {
    return getenv("FAKE_CUDA_FABRIC");
}

/* The granularity may differ for memory with a fabric handle. */
static size_t granularity_of(bool shared) {
    return shared && fabric() != NULL ? 2 * GRANULARITY : GRANULARITY;
}

/* Whether FAKE_CUDA_REFUSAL is this, and it is the first time. */
static bool passes(const char *what) {
    static atomic_int times;
    const char *wanted = getenv("FAKE_CUDA_REFUSAL");
    return wanted != NULL && strcmp(wanted, what) == 0 && atomic_fetch_add(&times, 1) == 0;
}

FAKE(MemGetAllocationGranularity, size_t *bytes, const CUmemAllocationProp *property,
     CUmemAllocationGranularity_flags option) {
    FAKE_CALL("cuMemGetAllocationGranularity");
    const char *wanted = getenv("FAKE_CUDA_REFUSAL");
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

FAKE(MemHostAlloc, void **memory, size_t bytes, unsigned int flags) {
    FAKE_UNSEEN_CALL("cuMemHostAlloc");
    FAKE_NEED_CONTEXT();
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

FAKE(MemFreeHost, void *memory) {
    FAKE_UNSEEN_CALL("cuMemFreeHost");
    FAKE_NEED_CONTEXT();
    fake_cuda_quiet();
    fake_forget((CUdeviceptr)(uintptr_t)memory, 0);
    void *at = (char *)memory - PAGE;
    size_t whole;
    memcpy(&whole, at, sizeof whole);
    fake_unpinned(at);
    munmap(at, whole);
    return CUDA_SUCCESS;
}

/* FAKE_CUDA_REFUSAL says how memory for a fabric is refused. "granularity" refuses the query of the
 * granularity. "passing" and "passing granularity" refuse only the first time. */
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

static bool may_be_shared(int fd, const char *algorithm) {
    char path[64], name[64] = "";
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return readlink(path, name, sizeof name - 1) > 0 && strstr(name, algorithm) != NULL;
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

FAKE(MemCreate, CUmemGenericAllocationHandle *handle, size_t bytes,
     const CUmemAllocationProp *property, unsigned long long flags) {
    FAKE_UNSEEN_CALL("cuMemCreate");
    const bool shared = (property->requestedHandleTypes & CU_MEM_HANDLE_TYPE_FABRIC) != 0;
    if (shared && fabric() == NULL)
        return refusal();
    if (shared && passes("passing"))
        return CUDA_ERROR_SYSTEM_NOT_READY;
    if (bytes == 0 || bytes % granularity_of(shared) != 0 || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    /* The driver takes long to find that out, and blocks all other calls meanwhile. */
    if (bytes > FAKE_DEVICE_BYTES)
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

FAKE(MemRelease, CUmemGenericAllocationHandle handle) {
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

FAKE(MemAddressReserve, CUdeviceptr *at, size_t bytes, size_t alignment, CUdeviceptr wanted,
     unsigned long long flags) {
    FAKE_UNSEEN_CALL("cuMemAddressReserve");
    void *reserved =
        mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *at = (CUdeviceptr)(uintptr_t)reserved;
    fake_count(1);
    return CUDA_SUCCESS;
}

FAKE(MemAddressFree, CUdeviceptr at, size_t bytes) {
    FAKE_UNSEEN_CALL("cuMemAddressFree");
    if (munmap(fake_pointer(at), bytes) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    fake_count(-1);
    return CUDA_SUCCESS;
}

FAKE(MemMap, CUdeviceptr at, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
     unsigned long long flags) {
    FAKE_UNSEEN_CALL("cuMemMap");
    struct stat info;
    int fd = (int)handle - 1;
    if (offset == 0 && fake_is_multicast(fd))
        return fake_multicast_map(at, bytes, fd);
    if (offset != 0 || fstat(fd, &info) != 0 || (size_t)info.st_size != bytes ||
        mmap(fake_pointer(at), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
        return CUDA_ERROR_INVALID_VALUE;
    fake_know(at, bytes);
    return CUDA_SUCCESS;
}

FAKE(MemUnmap, CUdeviceptr at, size_t bytes) {
    FAKE_UNSEEN_CALL("cuMemUnmap");
    fake_forget(at, 0);
    fake_multicast_unmap(at);
    return mmap(fake_pointer(at), bytes, PROT_NONE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED
               ? CUDA_ERROR_INVALID_VALUE
               : CUDA_SUCCESS;
}

FAKE(MemSetAccess, CUdeviceptr at, size_t bytes, const CUmemAccessDesc *access, size_t count) {
    FAKE_UNSEEN_CALL("cuMemSetAccess");
    const struct timespec pause = {.tv_nsec = 100000};
    CUresult result = count == 1 ? fake_access_begin(at) : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) {
        nanosleep(&pause, NULL);
        if (mprotect(fake_pointer(at), bytes, PROT_READ | PROT_WRITE) != 0)
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

FAKE(MemExportToShareableHandle, void *share, CUmemGenericAllocationHandle handle,
     CUmemAllocationHandleType type, unsigned long long flags) {
    FAKE_UNSEEN_CALL("cuMemExportToShareableHandle");
    if (type == CU_MEM_HANDLE_TYPE_FABRIC)
        return export_to_fabric(share, fake_fd_of(handle));
    int fd = fake_fd_of(handle);
    bool allowed = type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR &&
                   (fake_is_multicast(fd) || may_be_shared(fd, " fd"));
    fd = allowed ? dup(fd) : -1;
    *(int *)share = fd;
    return fd >= 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

FAKE(MemImportFromShareableHandle, CUmemGenericAllocationHandle *handle, void *share,
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
