/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A backend whose engine starts on all ranks together and whose peers have no pointers: it has the
 * groups world and reach, and neither memory nor signal. So the suite shows without any engine what
 * the core does for those. A rank's heap is a memfd; the others open it through /proc.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <symmem/backend.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#define DEVICES 8
#define DLPACK_CPU 1

typedef _Atomic uint32_t word;

typedef struct engine {
    const symmem_host *host;
    int32_t rank, world_size, devices;
    size_t heap_bytes; /* of each heap, once opened */
    char **heaps;      /* of all ranks, as mapped here */
} engine;

static symmem_status fail_errno(const engine *self, const char *what) {
    const int error = errno;
    const symmem_status status = error == EMFILE || error == ENFILE ? SYMMEM_LIMIT
                                 : error == ENOMEM                  ? SYMMEM_OUT_OF_MEMORY
                                 : error == ENOSPC                  ? SYMMEM_NO_SPACE
                                                                    : SYMMEM_SYSTEM;
    return self->host->fail(self->host, status, error, "join", "%s: %s", what, strerror(error));
}

static symmem_status engine_probe(char *reason, size_t capacity) {
    (void)reason;
    (void)capacity;
    return SYMMEM_OK;
}

static symmem_status engine_open(const symmem_host *host, const symmem_backend_config *config,
                                 void **instance_p) {
    engine *self = calloc(1, sizeof *self);
    if (self == NULL)
        return host->fail(host, SYMMEM_OUT_OF_MEMORY, ENOMEM, "open", "no memory");
    self->host = host;
    self->rank = config->rank;
    self->world_size = config->world_size;
    self->devices = config->world_size > DEVICES ? config->world_size : DEVICES;
    *instance_p = self;
    return SYMMEM_OK;
}

static void engine_close(void *instance) {
    free(instance);
}

static symmem_status engine_devices(void *instance, int32_t *count_p) {
    *count_p = ((engine *)instance)->devices;
    return SYMMEM_OK;
}

static symmem_status engine_device(void *instance, int32_t device, symmem_device_info *info_p) {
    (void)instance;
    info_p->device_type = DLPACK_CPU;
    info_p->granularity = (size_t)sysconf(_SC_PAGESIZE);
    snprintf(info_p->name, sizeof info_p->name, "engine's device %d", (int)device);
    return SYMMEM_OK;
}

/* --- world -------------------------------------------------------------------------- */

typedef struct address {
    int64_t pid, fd;
} address;

static void unmap_all(engine *self) {
    for (int32_t r = 0; self->heaps != NULL && r < self->world_size; r++)
        if (self->heaps[r] != NULL)
            (void)munmap(self->heaps[r], self->heap_bytes);
    free(self->heaps);
    self->heaps = NULL;
}

/* A file of its own, that has its size for good. -1: failed, with a record. */
static int make_file(const engine *self, symmem_status *status_p) {
    struct sysinfo machine;
    *status_p = SYMMEM_OK;
    if (sysinfo(&machine) == 0 &&
        self->heap_bytes / machine.mem_unit > machine.totalram / 2) {
        *status_p = self->host->fail_sizes(self->host, SYMMEM_NO_SPACE, 0, "join", self->heap_bytes,
                                           (uint64_t)machine.totalram / 2 * machine.mem_unit);
        return -1;
    }
    int fd = memfd_create("symmem-reach", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int error = fd < 0 ? errno : posix_fallocate(fd, 0, (off_t)self->heap_bytes);
    if (error == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
        return fd;
    errno = error != 0 ? error : errno;
    *status_p = fail_errno(self, "making the heap");
    if (fd >= 0)
        close(fd);
    return -1;
}

static symmem_status map_heap(engine *self, int32_t rank, int fd) {
    void *mapped = mmap(NULL, self->heap_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED)
        return fail_errno(self, "mapping a heap");
    self->heaps[rank] = mapped;
    return SYMMEM_OK;
}

static symmem_status map_peer(engine *self, int32_t rank, const address *at) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)at->pid, (long long)at->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return fail_errno(self, path);
    symmem_status status = map_heap(self, rank, fd);
    close(fd);
    return status;
}

/* All ranks' heaps, or none. */
static symmem_status meet(engine *self, const symmem_exchange *exchange, int fd,
                          symmem_status own) {
    const address mine = {getpid(), fd};
    address *all = calloc((size_t)self->world_size, sizeof *all);
    if (all == NULL && own == SYMMEM_OK)
        own = self->host->fail(self->host, SYMMEM_OUT_OF_MEMORY, ENOMEM, "join", "no memory");
    symmem_status status = exchange->agree(exchange, own, "reach.heap");
    if (status == SYMMEM_OK)
        status = exchange->all_gather(exchange, &mine, sizeof mine, all);
    const bool met = status == SYMMEM_OK;
    for (int32_t r = 0; r < self->world_size && status == SYMMEM_OK; r++)
        if (r != self->rank)
            status = map_peer(self, r, &all[r]);
    free(all);
    /* Nobody closes its file before all have opened it. */
    return met ? exchange->agree(exchange, status, "reach.map") : status;
}

static symmem_status world_open(void *instance, const symmem_exchange *exchange,
                                const symmem_world_config *config, symmem_memory *heap) {
    engine *self = instance;
    symmem_status status = SYMMEM_OK;
    self->heap_bytes = config->heap_bytes;
    self->heaps = calloc((size_t)self->world_size, sizeof *self->heaps);
    int fd = -1;
    if (self->heaps == NULL)
        status = self->host->fail(self->host, SYMMEM_OUT_OF_MEMORY, ENOMEM, "join", "no memory");
    if (status == SYMMEM_OK)
        fd = make_file(self, &status);
    if (status == SYMMEM_OK)
        status = map_heap(self, self->rank, fd);
    status = meet(self, exchange, fd, status);
    if (fd >= 0)
        close(fd);
    if (status != SYMMEM_OK) {
        unmap_all(self);
        return status;
    }
    *heap = (symmem_memory){.ptr = self->heaps[self->rank],
                            .bytes = self->heap_bytes,
                            .device = -1,
                            .priv = self};
    return SYMMEM_OK;
}

/* The others' mappings keep the memory for them. */
static void world_close(void *instance, symmem_memory *heap) {
    (void)heap;
    unmap_all(instance);
}

/* --- reach -------------------------------------------------------------------------- */

static char *find(const engine *self, const symmem_place *place) {
    return self->heaps[place->rank] + place->offset;
}

static symmem_status reach_put(void *instance, const symmem_place *to, const void *src,
                               size_t bytes, const symmem_exec *exec) {
    (void)exec;
    memcpy(find(instance, to), src, bytes);
    return SYMMEM_OK;
}

static symmem_status reach_get(void *instance, const symmem_place *from, void *dst, size_t bytes,
                               const symmem_exec *exec) {
    (void)exec;
    memcpy(dst, find(instance, from), bytes);
    return SYMMEM_OK;
}

static symmem_status reach_write(void *instance, const symmem_place *to, uint32_t value,
                                 const symmem_exec *exec) {
    (void)exec;
    /* release; pairs with: whoever polls the word */
    atomic_store_explicit((word *)(void *)find(instance, to), value, memory_order_release);
    return SYMMEM_OK;
}

static symmem_status reach_quiet(void *instance, const symmem_peers *peers,
                                 const symmem_exec *exec) {
    (void)instance;
    (void)peers;
    (void)exec;
    return SYMMEM_OK; /* stores are there */
}

/* --- own memory --------------------------------------------------------------------- */

static symmem_status local_copy(void *instance, int32_t device, void *dst, const void *src,
                                size_t bytes, const symmem_exec *exec) {
    (void)instance;
    (void)device;
    (void)exec;
    if (bytes > 0)
        memmove(dst, src, bytes);
    return SYMMEM_OK;
}

static symmem_status local_fill(void *instance, int32_t device, void *dst, uint32_t value,
                                size_t count, const symmem_exec *exec) {
    uint32_t *words = dst;
    (void)instance;
    (void)device;
    (void)exec;
    for (size_t i = 0; i < count; i++)
        words[i] = value;
    return SYMMEM_OK;
}

static symmem_status local_write(void *instance, int32_t device, void *dst, uint32_t value,
                                 const symmem_exec *exec) {
    (void)instance;
    (void)device;
    (void)exec;
    atomic_store_explicit((word *)dst, value, memory_order_release);
    return SYMMEM_OK;
}

static const symmem_instance_ops instance_ops = {.size = sizeof(symmem_instance_ops),
                                                 .probe = engine_probe,
                                                 .open = engine_open,
                                                 .close = engine_close,
                                                 .device_count = engine_devices,
                                                 .device_info = engine_device};
static const symmem_world_ops world_ops = {
    .size = sizeof(symmem_world_ops), .open = world_open, .close = world_close};
static const symmem_reach_ops reach_ops = {.size = sizeof(symmem_reach_ops),
                                           .put = reach_put,
                                           .get = reach_get,
                                           .write_value32 = reach_write,
                                           .quiet = reach_quiet};
static const symmem_copy_ops copy_ops = {.size = sizeof(symmem_copy_ops),
                                         .copy = local_copy,
                                         .memset32 = local_fill,
                                         .write_value32 = local_write};
static const symmem_backend table = {
    .size = sizeof(symmem_backend),
    .abi = SYMMEM_BACKEND_ABI,
    .name = "suite_reach",
    .description = "the suite's engine: peers by rank and offset",
    .flags = SYMMEM_CAP_HOST_ACCESS | SYMMEM_CAP_OVERLAP | SYMMEM_CAP_THREAD_RANKS |
             SYMMEM_CAP_PROCESS_RANKS | SYMMEM_CAP_POOL | SYMMEM_CAP_PASSIVE,
    .instance = &instance_ops,
    .copy = &copy_ops,
    .world = &world_ops,
    .reach = &reach_ops,
};

SYMMEM_API const symmem_backend *symmem_backend_entry(uint32_t abi);
const symmem_backend *symmem_backend_entry(uint32_t abi) {
    return abi == SYMMEM_BACKEND_ABI ? &table : NULL;
}
