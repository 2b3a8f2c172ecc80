/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A backend over NVSHMEM, on NVIDIA GPUs: a rank's heap is a piece of NVSHMEM's symmetric heap.
 * What works on pointers is the CUDA backend's, by its library for other backends; what the start
 * has in common with that of other engines is in ../kit/engine.h. See README.md.
 */
#include "state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <symmem/kit/collective.h>
#include <unistd.h>

#include "calls.h"
#include "forked.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define MORE ((size_t)256 << 20) /* of a device, for what NVSHMEM keeps there itself */

static symmem_kit_engine engine;

/* The process's, from its first joining on. The context is never given back. */
static struct {
    cuda_driver driver;
    CUcontext context; /* NULL: none yet */
    int32_t device, rank, ranks;
    bool one_host;
    atomic_bool is_inside; /* NVSHMEM, with a call that may wait for other ranks */
    nvshmemx_uniqueid_t id;
    int id_error;
} process;

/* --- the environment, which NVSHMEM reads when it starts -------------------------------------- */

static char size_text[32]; /* of the heap, where that does not grow */

static struct setting {
    const char *name, *value;
    bool of_one_host, stays;
    bool set_here;
} settings[] = {
    /* Else it makes multicast objects, and so may NCCL, whose collectives are not used here. */
    {"NVSHMEM_DISABLE_NVLS", "1", .stays = true},
    {"NVSHMEM_DISABLE_NCCL", "1", .stays = true},
    {"NVSHMEM_SYMMETRIC_SIZE", size_text, .stays = false},
    {"NVSHMEM_REMOTE_TRANSPORT", "none", .of_one_host = true},
    {"NVSHMEM_DISABLE_LOCAL_ONLY_PROXY", "1", .of_one_host = true}, /* a thread that never sleeps */
};

static void set_environment(const symmem_host *host) {
    snprintf(size_text, sizeof size_text, "%zu", engine.first_bytes + SYMMEM_ALIGNMENT);
    for (size_t i = 0; i < COUNT(settings); i++) {
        struct setting *one = &settings[i];
        if (getenv(one->name) != NULL || (one->of_one_host && !process.one_host))
            continue;
        setenv(one->name, one->value, 1);
        one->set_here = !one->stays;
        if (one->stays && i == 0)
            host->notice(host,
                         "NVSHMEM_DISABLE_NVLS=1 was set: NVSHMEM makes no multicast objects");
    }
}

static void unset_environment(void) {
    for (size_t i = 0; i < COUNT(settings); i++)
        if (settings[i].set_here)
            unsetenv(settings[i].name);
}

/* --- what runs in the helper's thread --------------------------------------------------------- */

static bool enter(void) {
    process.is_inside = cuda_push(&process.driver, process.context) == CUDA_SUCCESS;
    return process.is_inside;
}

static void leave(void) {
    cuda_pop(&process.driver);
    process.is_inside = false;
}

/* At the exit of a process with a call that goes on NVSHMEM finds its own lock taken, and gives the
 * process another status. So nothing of that runs any more. */
static void leave_out(int status, void *none) {
    (void)none;
    if (!process.is_inside || engine.process != getpid())
        return;
    fflush(NULL);
    _exit(status);
}

static void get_id(void *none) {
    (void)none;
    process.id = (nvshmemx_uniqueid_t)NVSHMEMX_UNIQUEID_INITIALIZER;
    process.id_error = nvshmemx_get_uniqueid(&process.id);
}

static void get_none(void *none) {
    (void)none;
}

static int start_by_id(symmem_kit_engine *self) {
    nvshmemx_init_attr_t attr = NVSHMEMX_INIT_ATTR_INITIALIZER;
    int error = nvshmemx_set_attr_uniqueid_args(process.rank, process.ranks, &process.id, &attr);
    if (error == 0)
        error = nvshmemx_hostlib_init_attr(CALLS_WITH_UNIQUEID, &attr);
    /* Without a device that it finds the start is put off, and a later call ends the process. */
    if (error == 0 && nvshmemx_init_status() < NVSHMEM_STATUS_IS_INITIALIZED)
        error = NVSHMEMX_ERROR_GPU_NOT_SELECTED;
    if (error != 0)
        return error;
    self->rank = nvshmem_my_pe();
    self->size = nvshmem_n_pes();
    return 0;
}

static const char *start(symmem_kit_engine *self) {
    static char text[64];
    if (!enter())
        return "the context of its device is lost";
    on_exit(leave_out, NULL);
    forked_look();
    const int error = start_by_id(self);
    if (error == 0)
        forked_guard();
    leave();
    unset_environment();
    snprintf(text, sizeof text, "nvshmemx_hostlib_init_attr answered %d", error);
    return error == 0 ? NULL : text;
}

static int make_heap(symmem_kit_heap *heap) {
    if (!enter())
        return CUDA_ERROR_INVALID_CONTEXT;
    heap->base = nvshmem_malloc(heap->bytes);
    leave();
    return heap->base == NULL ? SYMMEM_KIT_FULL : 0;
}

/* It waits for all ranks, and gives the heaps back. */
static void end(const symmem_kit_engine *self) {
    if (self->broken || !enter())
        return;
    nvshmemx_hostlib_finalize();
    leave();
}

/* NVSHMEM's calls say of no error. */
static void explain(int error, char *text, size_t capacity) {
    snprintf(text, capacity, "the driver answered %d", error);
}

/* --- the start -------------------------------------------------------------------------------- */

/* NVSHMEM works in the context that is current when it starts, and the process keeps that. */
static symmem_status keep_context(cuda_instance *instance) {
    const int32_t device = state_of(instance)->device;
    size_t free_bytes = 0, total_bytes = 0;
    symmem_status status = cuda_enter(instance, device, "join");
    if (status != SYMMEM_OK)
        return status;
    CUresult result = instance->driver.MemGetInfo(&free_bytes, &total_bytes);
    if (result == CUDA_SUCCESS && (process.context == NULL || process.device != device))
        result =
            instance->driver.DevicePrimaryCtxRetain(&process.context, instance->devices[device].id);
    cuda_leave(instance);
    if (result != CUDA_SUCCESS)
        return cuda_fail(instance, result, "join");
    process.driver = instance->driver;
    process.device = device;
    engine.room = free_bytes > MORE ? free_bytes - MORE : 1;
    return SYMMEM_OK;
}

/* Rank 0's, on all ranks. */
static symmem_status share_id(const symmem_kit_member *self, const symmem_exchange *exchange) {
    void *all = NULL;
    symmem_status status =
        symmem_kit_together(self->host, exchange, &engine.helper,
                            self->rank == 0 ? get_id : get_none, NULL, "NVSHMEM's id");
    engine.broken = engine.broken || status != SYMMEM_OK; /* that call goes on */
    if (status == SYMMEM_OK && process.id_error != 0)
        status = self->host->fail(self->host, SYMMEM_BACKEND, 0, "join",
                                  "nvshmemx_get_uniqueid answered %d", process.id_error);
    status = exchange->agree(exchange, status, "nvshmem.id");
    if (status == SYMMEM_OK)
        status = symmem_kit_gather(self->host, exchange, &process.id, sizeof process.id,
                                   "nvshmem.ids", &all);
    if (status == SYMMEM_OK)
        memcpy(&process.id, all, sizeof process.id);
    free(all);
    return status;
}

/* There is one start of a process, with one set of ranks and one device. */
static symmem_status prepare_rank(const symmem_kit_member *self) {
    return nvshmemx_init_status() == NVSHMEM_STATUS_NOT_INITIALIZED
               ? keep_context(self->extension)
               : self->host->fail(self->host, SYMMEM_BACKEND, 0, "join",
                                  "the program has started NVSHMEM itself");
}

static symmem_status introduce(const symmem_kit_member *self, const symmem_exchange *exchange) {
    symmem_status status = exchange->agree(exchange, prepare_rank(self), "nvshmem.context");
    if (status != SYMMEM_OK)
        return status;
    process.rank = self->rank;
    process.ranks = self->world_size;
    set_environment(self->host);
    status = share_id(self, exchange);
    if (status != SYMMEM_OK)
        unset_environment();
    return status;
}

static symmem_kit_engine engine = {.name = "NVSHMEM",
                                   .launcher = "symmem-run",
                                   .record_bytes = sizeof(symmem_kit_heap),
                                   .off_host = true,
                                   .introduce = introduce,
                                   .start = start,
                                   .make_heap = make_heap,
                                   .end = end,
                                   .explain = explain,
                                   .helper = SYMMEM_KIT_HELPER_INIT};

/* --- world ------------------------------------------------------------------------------------ */

typedef struct place {
    CUuuid device;
    int32_t local_rank;
} place;

static symmem_status describe(const cuda_instance *instance, const symmem_world_config *config,
                              place *own) {
    const symmem_host *host = instance->host;
    if (engine.started && process.device != config->device)
        return host->fail(host, SYMMEM_BACKEND, 0, "join",
                          "NVSHMEM works on device %d of this process, not on %d",
                          (int)process.device, (int)config->device);
    own->local_rank = config->local_rank;
    const CUresult result = cuda_device_uuid(&instance->driver, config->device, &own->device);
    return result == CUDA_SUCCESS ? SYMMEM_OK : cuda_fail(instance, result, "join");
}

/* All ranks find the same. With one host their local ranks are all that there are. */
static symmem_status check_places(const symmem_host *host, const place *all, CUuuid *devices,
                                  int32_t ranks) {
    process.one_host = true;
    for (int32_t r = 0; r < ranks; r++) {
        devices[r] = all[r].device;
        process.one_host = process.one_host && all[r].local_rank == r;
        for (int32_t other = 0; other < r; other++)
            if (memcmp(&devices[r], &devices[other], sizeof *devices) == 0)
                return host->fail(host, SYMMEM_UNSUPPORTED, 0, "join",
                                  "ranks %d and %d have one device", (int)other, (int)r);
    }
    return SYMMEM_OK;
}

static symmem_status learn_places(cuda_instance *instance, const symmem_exchange *exchange,
                                  const symmem_world_config *config) {
    const symmem_host *host = instance->host;
    state *own = state_of(instance);
    place mine = {.local_rank = 0};
    void *all = NULL;
    free(own->devices);
    own->devices = calloc((size_t)config->world_size, sizeof *own->devices);
    symmem_status status =
        own->devices == NULL ? cuda_no_memory(instance, "join") : describe(instance, config, &mine);
    status = exchange->agree(exchange, status, "nvshmem.device");
    if (status == SYMMEM_OK)
        status = symmem_kit_gather(host, exchange, &mine, sizeof mine, "nvshmem.devices", &all);
    if (status == SYMMEM_OK)
        status = check_places(host, all, own->devices, config->world_size);
    free(all);
    return status;
}

static symmem_status world_open(void *opaque, const symmem_exchange *exchange,
                                const symmem_world_config *config, symmem_memory *heap) {
    cuda_instance *instance = opaque;
    state *own = state_of(instance);
    own->device = config->device;
    if (config->world_size == 1)
        return cuda_memory_alloc(instance, config->device, config->heap_bytes, heap);
    symmem_status status = learn_places(instance, exchange, config);
    if (status == SYMMEM_OK)
        status = symmem_kit_world_open(own->member, exchange, config, heap);
    if (status == SYMMEM_OK)
        heap->device = config->device;
    return status;
}

static void world_close(void *opaque, symmem_memory *heap) {
    symmem_kit_member *member = state_of(opaque)->member;
    if (member->heap == NULL)
        cuda_memory_release(opaque, heap);
    else
        symmem_kit_world_close(member, heap);
}

static void *world_address(void *opaque, const symmem_memory *heap, int32_t rank) {
    const symmem_kit_member *member = state_of(opaque)->member;
    if (member->heap == NULL || rank == member->rank)
        return heap->ptr;
    const symmem_kit_place *at = &member->heap->places[rank];
    char *base = nvshmem_ptr(member->heap->base, at->rank);
    return base == NULL ? NULL : base + at->shift;
}

/* --- the instance ----------------------------------------------------------------------------- */

/* Of one major version a later library serves what was built with an earlier one. */
static symmem_status check_version(char *reason, size_t capacity) {
    int major = 0, minor = 0, patch = 0;
    nvshmemx_vendor_get_version_info(&major, &minor, &patch);
    snprintf(reason, capacity, "NVSHMEM %d.%d.%d, built with %d.%d.%d", major, minor, patch,
             NVSHMEM_VENDOR_MAJOR_VERSION, NVSHMEM_VENDOR_MINOR_VERSION,
             NVSHMEM_VENDOR_PATCH_VERSION);
    const bool serves =
        major == NVSHMEM_VENDOR_MAJOR_VERSION && minor >= NVSHMEM_VENDOR_MINOR_VERSION;
    return serves ? SYMMEM_OK : SYMMEM_UNSUPPORTED;
}

static symmem_status probe(char *reason, size_t capacity) {
    char driver[200] = "", version[100];
    if (check_version(reason, capacity) != SYMMEM_OK)
        return SYMMEM_UNSUPPORTED;
    snprintf(version, sizeof version, "%.99s", reason);
    const symmem_status status = cuda_instance_ops.probe(driver, sizeof driver);
    if (status == SYMMEM_OK)
        snprintf(reason, capacity, "%s, %s", version, driver);
    else
        snprintf(reason, capacity, "%s", driver);
    return status;
}

/* The host may no longer exist. */
static void end_state(cuda_instance *instance) {
    state *own = state_of(instance);
    symmem_kit_member_close(own->member);
    free(own->devices);
    free(own);
}

static bool find_device(const cuda_instance *instance, int32_t rank, CUuuid *uuid_p) {
    const state *own = state_of(instance);
    if (own->devices == NULL)
        return false;
    *uuid_p = own->devices[rank];
    return true;
}

static symmem_status open_parts(const symmem_host *host, const symmem_backend_config *config,
                                state *own, cuda_instance **instance_p) {
    static const char *const steps[] = {CUDA_STEP_NAMES("nvshmem")};
    void *member = NULL, *opaque = NULL;
    char reason[100];
    if (check_version(reason, sizeof reason) != SYMMEM_OK)
        return host->fail(host, SYMMEM_UNSUPPORTED, 0, "open", "%s", reason);
    cuda_named_host_init(&own->host, host, steps);
    symmem_status status = symmem_kit_member_open(&engine, host, config, &member);
    if (status == SYMMEM_OK)
        status = cuda_instance_ops.open(&own->host.host, config, &opaque);
    own->member = member;
    *instance_p = opaque;
    return status;
}

static symmem_status open_instance(const symmem_host *host, const symmem_backend_config *config,
                                   void **instance_p) {
    cuda_instance *instance = NULL;
    state *own = calloc(1, sizeof *own);
    if (own == NULL)
        return host->fail(host, SYMMEM_OUT_OF_MEMORY, 0, "open", "no memory");
    const symmem_status status = open_parts(host, config, own, &instance);
    if (status != SYMMEM_OK) {
        symmem_kit_member_close(own->member);
        free(own);
        return status;
    }
    own->member->extension = instance;
    instance->extension = own;
    instance->end_extension = end_state;
    instance->find_device = find_device;
    *instance_p = instance;
    return SYMMEM_OK;
}

static symmem_backend table = {
    .size = sizeof(symmem_backend),
    .abi = SYMMEM_BACKEND_ABI,
    .name = "nvshmem",
    .description = "NVSHMEM's symmetric heap; signals and collectives by own kernels",
    .flags = SYMMEM_CAP_PROCESS_RANKS | SYMMEM_CAP_CROSS_HOST | SYMMEM_CAP_DIRECT_ACCESS |
             SYMMEM_CAP_POOL | SYMMEM_CAP_PASSIVE,
    .instance = &(const symmem_instance_ops){.size = sizeof(symmem_instance_ops),
                                             .probe = probe,
                                             .open = open_instance,
                                             .close = cuda_close_instance,
                                             .device_count = cuda_device_count,
                                             .device_info = cuda_device_info},
    .signal = &cuda_guarded_signal_ops,
    .copy = &cuda_copy_ops,
    .stream = &cuda_stream_ops,
    .graph = &cuda_graph_ops,
    .collective = &cuda_collective_ops,
    .matmul = &cuda_matmul_ops,
    .topology = &cuda_topology_ops,
    .world = &(const symmem_world_ops){.size = sizeof(symmem_world_ops),
                                       .open = world_open,
                                       .close = world_close,
                                       .address = world_address},
    .reach = &nvshmem_reach,
};

/* With NVSHMEM's own variable for that there are no pointers to peers. */
static void set_flags(void) {
    const char *said = getenv("NVSHMEM_DISABLE_P2P");
    if (said != NULL && strchr("0nNfF", *said) == NULL)
        table.flags &= ~SYMMEM_CAP_DIRECT_ACCESS;
}

const symmem_backend *symmem_backend_entry(uint32_t abi) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, set_flags);
    return abi == SYMMEM_BACKEND_ABI ? &table : NULL;
}
