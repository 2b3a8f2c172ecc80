/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Multicast objects of the fake driver. An object is a page that processes share: which devices
 * were added, and where the memory that each has bound can be found. Its mapping is a range that
 * faults when touched. What the instructions on such an address would do, the kernels' CPU versions
 * do with the help of fake_multicast_find, which gives the bytes' places in the memory that is
 * bound.
 */

#include "fake.h"

#define MAGIC 0x6d756c7469636173ull
#define OBJECT_BYTES 4096 /* and no memory is so small */
#define GRANULARITY ((size_t)64 << 10)
#define MOST_DESCRIPTORS 4096
#define SLOTS 24 /* objects of a device, of all ranks that are threads of this process */

/* In the shared page. `ready` is set behind all else of an entry. */
typedef struct bound_memory {
    _Atomic uint32_t ready;
    uint64_t device, inode; /* of the file that the memory is */
} bound_memory;

typedef struct object {
    uint64_t magic;
    uint32_t device_count;
    _Atomic uint32_t added; /* bits */
    uint64_t bytes;
    bound_memory bound[FAKE_DEVICES];
} object;

_Static_assert(sizeof(object) <= OBJECT_BYTES, "one page");

typedef struct mapping {
    struct mapping *next;
    CUdeviceptr at;
    object *object;
    size_t bytes;
    char *memory[FAKE_DEVICES]; /* as mapped here; NULL: not yet */
} mapping;

/* A device was added through this handle, and has a slot until that is released. */
typedef struct member {
    struct member *next;
    int fd;
    CUdevice device;
} member;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static mapping *mappings;
static member *members;
static int32_t slots_used[FAKE_DEVICES];

bool fake_is_multicast(int fd) {
    struct stat info;
    return fstat(fd, &info) == 0 && info.st_size == OBJECT_BYTES;
}

static object *open_object(int fd) {
    object *shared = fake_is_multicast(fd)
                         ? mmap(NULL, OBJECT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                         : MAP_FAILED;
    if (shared != MAP_FAILED && shared->magic == MAGIC)
        return shared;
    if (shared != MAP_FAILED)
        munmap(shared, OBJECT_BYTES);
    return NULL;
}

FAKE(MulticastGetGranularity, size_t *bytes, const CUmulticastObjectProp *property,
     CUmulticastGranularity_flags option) {
    FAKE_CALL("cuMulticastGetGranularity");
    *bytes = GRANULARITY;
    return CUDA_SUCCESS;
}

FAKE(MulticastCreate, CUmemGenericAllocationHandle *handle, const CUmulticastObjectProp *property) {
    FAKE_CALL("cuMulticastCreate");
    if (property->size == 0 || property->size % GRANULARITY != 0 || property->flags != 0 ||
        property->numDevices < 2 || property->numDevices > FAKE_DEVICES ||
        property->handleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    int fd = memfd_create("fake-multicast", MFD_CLOEXEC);
    const object made = {
        .magic = MAGIC, .device_count = property->numDevices, .bytes = property->size};
    if (fd < 0 || ftruncate(fd, OBJECT_BYTES) != 0 ||
        pwrite(fd, &made, sizeof made, 0) != (ssize_t)sizeof made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *handle = fake_handle_of(fd);
    return CUDA_SUCCESS;
}

static CUresult take_slot(int fd, CUdevice device) {
    member *joined = malloc(sizeof *joined);
    if (joined == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&lock);
    bool free_slot = slots_used[device] < SLOTS;
    if (free_slot) {
        slots_used[device]++;
        *joined = (member){.next = members, .fd = fd, .device = device};
        members = joined;
    }
    pthread_mutex_unlock(&lock);
    if (!free_slot)
        free(joined);
    return free_slot ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

FAKE(MulticastAddDevice, CUmemGenericAllocationHandle handle, CUdevice device) {
    FAKE_CALL("cuMulticastAddDevice");
    int fd = fake_fd_of(handle);
    object *shared = open_object(fd);
    if (shared == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result =
        device >= 0 && device < FAKE_DEVICES ? take_slot(fd, device) : CUDA_ERROR_INVALID_DEVICE;
    if (result == CUDA_SUCCESS &&
        (atomic_fetch_or(&shared->added, 1u << device) >> device & 1) != 0)
        result = CUDA_ERROR_INVALID_DEVICE; /* twice */
    munmap(shared, OBJECT_BYTES);
    return result;
}

/* The driver would block; here that is a mistake of the caller's. */
static bool is_complete(object *shared) {
    return (uint32_t)__builtin_popcount(atomic_load(&shared->added)) == shared->device_count;
}

/* The device of the handle: the last that was added through it. */
static int device_of(int fd) {
    int device = -1;
    pthread_mutex_lock(&lock);
    for (const member *joined = members; joined != NULL && device < 0; joined = joined->next)
        device = joined->fd == fd ? joined->device : -1;
    pthread_mutex_unlock(&lock);
    return device;
}

FAKE(MulticastBindMem, CUmemGenericAllocationHandle handle, size_t at,
     CUmemGenericAllocationHandle memory, size_t memory_at, size_t bytes,
     unsigned long long flags) {
    FAKE_CALL("cuMulticastBindMem");
    struct stat info;
    object *shared = open_object(fake_fd_of(handle));
    if (shared == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    int device = device_of(fake_fd_of(handle));
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    if (device >= 0 && is_complete(shared) && at == 0 && memory_at == 0 && flags == 0 &&
        bytes == shared->bytes && fstat(fake_fd_of(memory), &info) == 0 &&
        (size_t)info.st_size >= bytes && atomic_load(&shared->bound[device].ready) == 0) {
        bound_memory *bound = &shared->bound[device];
        bound->device = (uint64_t)info.st_dev;
        bound->inode = (uint64_t)info.st_ino;
        /* pairs with: memory_of */
        atomic_store_explicit(&bound->ready, 1, memory_order_release);
        result = CUDA_SUCCESS;
    }
    munmap(shared, OBJECT_BYTES);
    return result;
}

FAKE(MulticastUnbind, CUmemGenericAllocationHandle handle, CUdevice device, size_t at,
     size_t bytes) {
    FAKE_CALL("cuMulticastUnbind");
    object *shared = open_object(fake_fd_of(handle));
    if (shared == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    bound_memory *bound = &shared->bound[device];
    bool right = at == 0 && bytes == shared->bytes && atomic_exchange(&bound->ready, 0) != 0;
    munmap(shared, OBJECT_BYTES);
    return right ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Of any handle. */
void fake_multicast_released(int fd) {
    pthread_mutex_lock(&lock);
    for (member **link = &members; *link != NULL;) {
        member *joined = *link;
        if (joined->fd != fd) {
            link = &joined->next;
            continue;
        }
        *link = joined->next;
        slots_used[joined->device]--;
        free(joined);
    }
    pthread_mutex_unlock(&lock);
}

/* --- mappings ----------------------------------------------------------------------------- */

CUresult fake_multicast_map(CUdeviceptr at, size_t bytes, int fd) {
    object *shared = open_object(fd);
    mapping *made = calloc(1, sizeof *made);
    if (shared == NULL || made == NULL || bytes != shared->bytes || !is_complete(shared)) {
        if (shared != NULL)
            munmap(shared, OBJECT_BYTES);
        free(made);
        return CUDA_ERROR_INVALID_VALUE;
    }
    *made = (mapping){.at = at, .object = shared, .bytes = bytes};
    pthread_mutex_lock(&lock);
    made->next = mappings;
    mappings = made;
    pthread_mutex_unlock(&lock);
    fake_know(at, bytes);
    return CUDA_SUCCESS;
}

void fake_multicast_unmap(CUdeviceptr at) {
    pthread_mutex_lock(&lock);
    mapping **link = &mappings;
    while (*link != NULL && (*link)->at != at)
        link = &(*link)->next;
    mapping *gone = *link;
    if (gone != NULL)
        *link = gone->next;
    pthread_mutex_unlock(&lock);
    if (gone == NULL)
        return;
    for (int i = 0; i < FAKE_DEVICES; i++)
        if (gone->memory[i] != NULL)
            munmap(gone->memory[i], gone->bytes);
    munmap(gone->object, OBJECT_BYTES);
    free(gone);
}

/* The handle that this process has of the memory: a user of an object has imported all ranks'
 * memory. -1 if it has none. */
static int descriptor_of(const bound_memory *bound) {
    struct stat info;
    for (int fd = 0; fd < MOST_DESCRIPTORS; fd++)
        if (fstat(fd, &info) == 0 && (uint64_t)info.st_dev == bound->device &&
            (uint64_t)info.st_ino == bound->inode)
            return fd;
    return -1;
}

/* lock held. NULL: nothing is bound. */
static char *memory_of(mapping *range, int device) {
    const bound_memory *bound = &range->object->bound[device];
    /* pairs with: fake_MulticastBindMem */
    if (range->memory[device] != NULL ||
        atomic_load_explicit(&bound->ready, memory_order_acquire) == 0)
        return range->memory[device];
    void *memory =
        mmap(NULL, range->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_of(bound), 0);
    if (memory == MAP_FAILED)
        abort();
    range->memory[device] = memory;
    return memory;
}

/* As many as there are devices that have bound memory; aborts at an address that is not mapped: the
 * GPU's context would be lost, too. */
int fake_multicast_find(const void *address, size_t bytes, char **places) {
    CUdeviceptr wanted = (CUdeviceptr)(uintptr_t)address;
    int count = 0;
    pthread_mutex_lock(&lock);
    mapping *found = mappings;
    while (found != NULL && (wanted < found->at || wanted - found->at > found->bytes - bytes))
        found = found->next;
    if (found == NULL || wanted % bytes != 0)
        abort();
    for (int i = 0; i < FAKE_DEVICES; i++) {
        char *memory = memory_of(found, i);
        if (memory != NULL)
            places[count++] = memory + (wanted - found->at);
    }
    pthread_mutex_unlock(&lock);
    return count;
}
