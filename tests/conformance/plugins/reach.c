/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A backend whose engine starts on all ranks together and whose peers have no pointers: it has the
 * groups world and reach, and neither memory nor signal. So the suite shows without any engine what
 * the core does for those. A rank's heap is a file, whose name goes once all have opened it.
 *
 * With SUITE_INSIDE it is an engine that makes progress inside calls only, see inside/inside.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <symmem/backend.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "cpu/float_mode.h"
#include "cpu/reduce.h"
#include "inside/inside.h"

#ifdef SUITE_INSIDE
#define NAME "suite_reach_inside"
#define DESCRIPTION "the suite's engine: peers by rank and offset, progress inside calls only"
#define PASSIVE 0
#else
#define NAME "suite_reach"
#define DESCRIPTION "the suite's engine: peers by rank and offset"
#define PASSIVE SYMMEM_CAP_PASSIVE
#endif

#define DEVICES 8
#define DLPACK_CPU 1

typedef _Atomic uint32_t word;

typedef struct engine {
    const symmem_host *host;
    int32_t rank, world_size, devices;
    size_t heap_bytes; /* of each heap, once opened */
    size_t file_bytes; /* of each heap's file, with the queues behind */
    char **heaps;      /* of all ranks, as mapped here */
    inside *queues;    /* NULL: peers' heaps are stored to and loaded from */
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

/* Of a rank's heap, until all have it. */
typedef struct heap_name {
    char text[64];
} heap_name;

static heap_name name_of(const symmem_world_config *config, int32_t rank) {
    heap_name name;
    snprintf(name.text, sizeof name.text, "/tmp/symmem-reach-%016llx-%d",
             (unsigned long long)config->job, (int)rank);
    return name;
}

/* All of them: one that has ended cannot take its own away. */
static void unlink_names(const symmem_world_config *config) {
    for (int32_t r = 0; r < config->world_size; r++)
        (void)unlink(name_of(config, r).text);
}

static void unmap_all(engine *self) {
    inside_close(self->queues);
    self->queues = NULL;
    for (int32_t r = 0; self->heaps != NULL && r < self->world_size; r++)
        if (self->heaps[r] != NULL)
            (void)munmap(self->heaps[r], self->file_bytes);
    free(self->heaps);
    self->heaps = NULL;
}

/* -1: failed, with a record. */
static int make_file(const engine *self, const symmem_world_config *config,
                     symmem_status *status_p) {
    struct sysinfo machine;
    *status_p = SYMMEM_OK;
    if (sysinfo(&machine) == 0 && self->heap_bytes / machine.mem_unit > machine.totalram / 2) {
        *status_p = self->host->fail_sizes(self->host, SYMMEM_NO_SPACE, 0, "join", self->heap_bytes,
                                           (uint64_t)machine.totalram / 2 * machine.mem_unit);
        return -1;
    }
    int fd = open(name_of(config, self->rank).text, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    int error =
        fd < 0 || fchmod(fd, 0600) != 0 ? errno : posix_fallocate(fd, 0, (off_t)self->file_bytes);
    if (error == 0)
        return fd;
    errno = error;
    *status_p = fail_errno(self, "making the heap");
    if (fd >= 0)
        close(fd);
    return -1;
}

static symmem_status map_heap(engine *self, int32_t rank, int fd) {
    void *mapped = mmap(NULL, self->file_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED)
        return fail_errno(self, "mapping a heap");
    self->heaps[rank] = mapped;
    return SYMMEM_OK;
}

static symmem_status map_peer(engine *self, const symmem_world_config *config, int32_t rank) {
    int fd = open(name_of(config, rank).text, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return fail_errno(self, "opening a peer's heap");
    symmem_status status = map_heap(self, rank, fd);
    close(fd);
    return status;
}

/* All ranks' heaps, or none. */
static symmem_status meet(engine *self, const symmem_exchange *exchange,
                          const symmem_world_config *config, symmem_status own) {
    symmem_status status = exchange->agree(exchange, own, "reach.heap");
    const bool met = status == SYMMEM_OK;
    for (int32_t r = 0; r < self->world_size && status == SYMMEM_OK; r++)
        if (r != self->rank)
            status = map_peer(self, config, r);
    /* No rank takes a name away before all have opened it. */
    if (met)
        status = exchange->agree(exchange, status, "reach.map");
    unlink_names(config);
    return status;
}

static size_t queue_bytes(int32_t world_size) {
#ifdef SUITE_INSIDE
    return inside_bytes(world_size);
#else
    (void)world_size;
    return 0;
#endif
}

static symmem_status open_queues(engine *self) {
#ifdef SUITE_INSIDE
    self->queues =
        inside_open(self->host, self->rank, self->world_size, self->heaps, self->heap_bytes);
    if (self->queues == NULL)
        return self->host->fail(self->host, SYMMEM_OUT_OF_MEMORY, ENOMEM, "join", "no memory");
#else
    (void)self;
#endif
    return SYMMEM_OK;
}

static symmem_status world_open(void *instance, const symmem_exchange *exchange,
                                const symmem_world_config *config, symmem_memory *heap) {
    engine *self = instance;
    symmem_status status = SYMMEM_OK;
    self->heap_bytes = config->heap_bytes;
    self->file_bytes = config->heap_bytes + queue_bytes(self->world_size);
    self->heaps = calloc((size_t)self->world_size, sizeof *self->heaps);
    int fd = -1;
    if (self->heaps == NULL)
        status = self->host->fail(self->host, SYMMEM_OUT_OF_MEMORY, ENOMEM, "join", "no memory");
    if (status == SYMMEM_OK)
        fd = make_file(self, config, &status);
    if (status == SYMMEM_OK)
        status = map_heap(self, self->rank, fd);
    status = meet(self, exchange, config, status);
    if (fd >= 0)
        close(fd);
    if (status == SYMMEM_OK)
        status = open_queues(self);
    if (status != SYMMEM_OK) {
        unmap_all(self);
        return status;
    }
    *heap = (symmem_memory){
        .ptr = self->heaps[self->rank], .bytes = self->heap_bytes, .device = -1, .priv = self};
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
    engine *self = instance;
    if (self->queues != NULL)
        return inside_put(self->queues, to, src, bytes, exec);
    memcpy(find(self, to), src, bytes);
    return SYMMEM_OK;
}

static symmem_status reach_get(void *instance, const symmem_place *from, void *dst, size_t bytes,
                               const symmem_exec *exec) {
    engine *self = instance;
    if (self->queues != NULL)
        return inside_get(self->queues, from, dst, bytes, exec);
    memcpy(dst, find(self, from), bytes);
    return SYMMEM_OK;
}

static symmem_status reach_write(void *instance, const symmem_place *to, uint32_t value,
                                 const symmem_exec *exec) {
    engine *self = instance;
    (void)exec;
    if (self->queues != NULL)
        return inside_write(self->queues, to, value);
    /* release; pairs with: the load of the rank that polls the word */
    atomic_store_explicit((word *)(void *)find(self, to), value, memory_order_release);
    return SYMMEM_OK;
}

static symmem_status reach_quiet(void *instance, const symmem_peers *peers,
                                 const symmem_exec *exec) {
    engine *self = instance;
    if (self->queues != NULL)
        return inside_quiet(self->queues, peers, exec);
    return SYMMEM_OK; /* stores are there */
}

#ifdef SUITE_INSIDE
static void reach_progress(void *instance) {
    inside_progress(((engine *)instance)->queues);
}
#else
#define reach_progress NULL
#endif

static symmem_status reduce_local(void *instance, int32_t device, const symmem_local_reduce *reduce,
                                  const symmem_exec *exec) {
    const void *srcs[SYMMEM_MAX_WORLD_SIZE];
    void *dst = reduce->dst;
    (void)instance;
    (void)device;
    (void)exec;
    for (int32_t s = 0; s < reduce->src_count; s++)
        srcs[s] = (const char *)reduce->src + (size_t)s * reduce->src_stride;
    const symmem_cpu_reduce_args args = {.dsts = &dst,
                                         .dst_count = 1,
                                         .srcs = srcs,
                                         .src_count = reduce->src_count,
                                         .count = reduce->count};
    const uint64_t mode = symmem_cpu_float_begin();
    symmem_cpu_reduce_find(SYMMEM_CPU_PORTABLE, reduce->dtype, reduce->op)(&args);
    symmem_cpu_float_end(mode);
    return SYMMEM_OK;
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
                                           .quiet = reach_quiet,
                                           .progress = reach_progress,
                                           .reduce_local = reduce_local};
static const symmem_copy_ops copy_ops = {.size = sizeof(symmem_copy_ops),
                                         .copy = local_copy,
                                         .memset32 = local_fill,
                                         .write_value32 = local_write};
static const symmem_backend table = {
    .size = sizeof(symmem_backend),
    .abi = SYMMEM_BACKEND_ABI,
    .name = NAME,
    .description = DESCRIPTION,
    .flags = SYMMEM_CAP_HOST_ACCESS | SYMMEM_CAP_OVERLAP | SYMMEM_CAP_THREAD_RANKS |
             SYMMEM_CAP_PROCESS_RANKS | SYMMEM_CAP_POOL | PASSIVE,
    .instance = &instance_ops,
    .copy = &copy_ops,
    .world = &world_ops,
    .reach = &reach_ops,
};

SYMMEM_API const symmem_backend *symmem_backend_entry(uint32_t abi);
const symmem_backend *symmem_backend_entry(uint32_t abi) {
    return abi == SYMMEM_BACKEND_ABI ? &table : NULL;
}
