/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A backend over OpenSHMEM: a rank's heap is a piece of its symmetric heap. What OpenSHMEM's calls
 * have in common with those of other engines is in ../kit/engine.h.
 */
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <symmem/kit/engine.h>
#include <symmem/kit/host_memory.h>

#define HEAPS 4                /* of the first one's size, that the symmetric heap has room for */
#define MORE ((size_t)1 << 20) /* for what OpenSHMEM keeps there itself */

static unsigned *polled; /* nobody writes to it */

/* --- what runs in the helper's thread --------------------------------------------------------- */

/* What OpenSHMEM reads from the environment when it starts, unless the user has said it there. */
static struct variable {
    const char *name;
    char value[32];
    bool is_set;
} variables[] = {{.name = "SHMEM_SYMMETRIC_SIZE"},
                 {.name = "SHMEM_SYMMETRIC_HEAP_SIZE"}, /* Open MPI's name for it */
                 /* Else the end of Open MPI 4.1 is a fault: see defects/finalize.c. */
                 {.name = "OMPI_MCA_memory", .value = "^patcher"}};

#define VARIABLES (sizeof variables / sizeof *variables)

/* The symmetric heap has one size from the start on. */
static void set_variables(size_t heap_bytes) {
    const size_t bytes = HEAPS * (heap_bytes + SYMMEM_ALIGNMENT + MORE);
    const bool is_said = getenv("SMA_SYMMETRIC_SIZE") != NULL ||
                         getenv(variables[0].name) != NULL || getenv(variables[1].name) != NULL;
    for (size_t i = 0; i < VARIABLES; i++) {
        struct variable *one = &variables[i];
        const bool is_size = one->value[0] == '\0';
        if (is_size)
            snprintf(one->value, sizeof one->value, "%zu", bytes);
        one->is_set = is_size ? !is_said : getenv(one->name) == NULL;
        if (one->is_set)
            setenv(one->name, one->value, 1);
    }
}

static void unset_variables(void) {
    for (size_t i = 0; i < VARIABLES; i++)
        if (variables[i].is_set)
            unsetenv(variables[i].name);
}

static const char *start(symmem_kit_engine *engine) {
    int provided = SHMEM_THREAD_SINGLE;
    set_variables(engine->first_bytes);
    const int error = shmem_init_thread(SHMEM_THREAD_MULTIPLE, &provided);
    unset_variables();
    if (error != 0)
        return "shmem_init_thread failed";
    engine->rank = shmem_my_pe();
    engine->size = shmem_n_pes();
    polled = shmem_malloc(sizeof *polled);
    if (polled == NULL)
        return "its heap has no room for a word";
    *polled = 0;
    return provided == SHMEM_THREAD_MULTIPLE ? NULL : "it has not SHMEM_THREAD_MULTIPLE";
}

static int make_heap(symmem_kit_heap *heap) {
    heap->base = shmem_align(SYMMEM_ALIGNMENT, heap->bytes);
    return heap->base == NULL ? SYMMEM_KIT_FULL : 0;
}

static int clear_heap(symmem_kit_heap *heap) {
    (void)heap;
    shmem_barrier_all(); /* and quiet */
    return 0;
}

static int flush(void *heap, const int32_t *ranks, int count) {
    (void)heap, (void)ranks, (void)count;
    shmem_quiet();
    return 0;
}

/* Also when not all come, for Open MPI does it at the process's exit itself, unless it has begun.
 */
static void end(const symmem_kit_engine *engine) {
    (void)engine;
    shmem_finalize();
}

/* OpenSHMEM's calls say of no error. */
static void explain(int error, char *text, size_t capacity) {
    snprintf(text, capacity, "error %d", error);
}

static void progress(void *member) {
    (void)member;
    (void)shmem_uint_test(polled, SHMEM_CMP_NE, 0);
}

static symmem_kit_engine openshmem = {.name = "OpenSHMEM",
                                      .launcher = "oshrun",
                                      .record_bytes = sizeof(symmem_kit_heap),
                                      .start = start,
                                      .make_heap = make_heap,
                                      .clear_heap = clear_heap,
                                      .end = end,
                                      .flush = flush,
                                      .explain = explain,
                                      .progress = progress,
                                      .helper = SYMMEM_KIT_HELPER_INIT};

/* --- the instance --------------------------------------------------------------------------- */

static symmem_status engine_probe(char *reason, size_t capacity) {
    char name[SHMEM_MAX_NAME_LEN] = "";
    int major, minor;
    shmem_info_get_name(name);
    shmem_info_get_version(&major, &minor);
    snprintf(reason, capacity, "OpenSHMEM %d.%d, %s; built for %d.%d", major, minor, name,
             SHMEM_MAJOR_VERSION, SHMEM_MINOR_VERSION);
    const bool serves = major == SHMEM_MAJOR_VERSION && minor >= SHMEM_MINOR_VERSION;
    return serves ? SYMMEM_OK : SYMMEM_UNSUPPORTED;
}

static symmem_status engine_open(const symmem_host *host, const symmem_backend_config *config,
                                 void **instance_p) {
    return symmem_kit_member_open(&openshmem, host, config, instance_p);
}

/* --- reach ---------------------------------------------------------------------------------- */

/* A peer's place by this rank's address for it. */
static void *find(const symmem_kit_member *self, const symmem_place *at) {
    return self->heap->base + self->heap->places[at->rank].shift + at->offset;
}

static int pe_of(const symmem_kit_member *self, const symmem_place *at) {
    return self->heap->places[at->rank].rank;
}

static symmem_status reach_put(void *instance, const symmem_place *to, const void *src,
                               size_t bytes, const symmem_exec *exec) {
    const symmem_kit_member *self = instance;
    (void)exec;
    shmem_putmem(find(self, to), src, bytes, pe_of(self, to));
    symmem_kit_traffic_put(self->traffic, to->rank);
    return SYMMEM_OK;
}

static symmem_status reach_get(void *instance, const symmem_place *from, void *dst, size_t bytes,
                               const symmem_exec *exec) {
    const symmem_kit_member *self = instance;
    (void)exec;
    shmem_getmem(dst, find(self, from), bytes, pe_of(self, from));
    return SYMMEM_OK;
}

static symmem_status reach_write(void *instance, const symmem_place *to, uint32_t value,
                                 const symmem_exec *exec) {
    const symmem_kit_member *self = instance;
    (void)exec;
    shmem_uint_atomic_set(find(self, to), value, pe_of(self, to));
    symmem_kit_traffic_put(self->traffic, to->rank);
    return SYMMEM_OK;
}

static const symmem_backend table = {
    .size = sizeof(symmem_backend),
    .abi = SYMMEM_BACKEND_ABI,
    .name = "openshmem",
    .description = "OpenSHMEM: puts, gets and atomics on its symmetric heap",
    .flags =
        SYMMEM_CAP_HOST_ACCESS | SYMMEM_CAP_PROCESS_RANKS | SYMMEM_CAP_POOL | SYMMEM_CAP_PASSIVE,
    .instance = &(const symmem_instance_ops){.size = sizeof(symmem_instance_ops),
                                             .probe = engine_probe,
                                             .open = engine_open,
                                             .close = symmem_kit_member_close,
                                             .device_count = symmem_kit_host_devices,
                                             .device_info = symmem_kit_host_device},
    .copy = &symmem_kit_host_copy,
    .world = &(const symmem_world_ops){.size = sizeof(symmem_world_ops),
                                       .open = symmem_kit_world_open,
                                       .close = symmem_kit_world_close},
    .reach = &(const symmem_reach_ops){.size = sizeof(symmem_reach_ops),
                                       .put = reach_put,
                                       .get = reach_get,
                                       .write_value32 = reach_write,
                                       .quiet = symmem_kit_engine_quiet,
                                       .progress = symmem_kit_engine_progress},
};

const symmem_backend *symmem_backend_entry(uint32_t abi) {
    return abi == SYMMEM_BACKEND_ABI ? &table : NULL;
}
