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
#include <symmem/kit/pmix.h>
#include <unistd.h>

#define NAMES (sizeof size_names / sizeof *size_names)
#define HEAPS 4                /* of the first one's size, that the symmetric heap has room for */
#define MORE ((size_t)1 << 20) /* for what OpenSHMEM keeps there itself */

static symmem_kit_engine openshmem;

/* --- what runs in the helper's thread --------------------------------------------------------- */

/* The symmetric heap's size, by OpenSHMEM 1.4 and 1.3 and by Open MPI. It is the process's from the
 * start on. */
static const char oldest_name[] = "SMA_SYMMETRIC_SIZE";
static const char *const size_names[] = {oldest_name, "SHMEM_SYMMETRIC_SIZE",
                                         "SHMEM_SYMMETRIC_HEAP_SIZE"};
static bool set_here[3], memory_set_here;

/* A number and perhaps a unit of 1024. 0: it is none. */
static size_t parse_size(const char *text) {
    static const char units[] = "KkMmGgTt";
    char *end;
    const double number = strtod(text, &end);
    const char *unit = *end == '\0' ? NULL : strchr(units, *end);
    if (!(number > 0 && number < 1e15) || (*end != '\0' && (unit == NULL || end[1] != '\0')))
        return 0;
    return (size_t)(number * (double)(1ull << (unit == NULL ? 0 : (unit - units) / 2 * 10 + 10)));
}

/* Asks for a heap, unless the user has said how large it is. Open MPI knows its own name of the
 * variable and the oldest one, and refuses two that differ. */
static const char *prepare(symmem_kit_engine *engine) {
    char text[64];
    const char *said = NULL;
    for (size_t i = 0; i < NAMES && said == NULL; i++)
        said = getenv(size_names[i]);
    engine->room = HEAPS * (engine->first_bytes + SYMMEM_ALIGNMENT);
    snprintf(text, sizeof text, "%zu", engine->room + MORE);
    if (said != NULL) {
        if (parse_size(said) <= MORE)
            return "the environment's size of its heap is too small, or none";
        engine->room = parse_size(said) - MORE;
        snprintf(text, sizeof text, "%s", said);
    }
    for (size_t i = 1; i < NAMES; i++) {
        set_here[i] = getenv(size_names[i]) == NULL && getenv(oldest_name) == NULL;
        if (set_here[i])
            setenv(size_names[i], text, 1);
    }
    /* Else the end of Open MPI 4.1 is a fault: see defects/finalize.c. */
    memory_set_here = getenv("OMPI_MCA_memory") == NULL;
    if (memory_set_here)
        setenv("OMPI_MCA_memory", "^patcher", 1);
    return NULL;
}

static void unset_variables(void) {
    for (size_t i = 0; i < NAMES; i++)
        if (set_here[i])
            unsetenv(size_names[i]);
    if (memory_set_here)
        unsetenv("OMPI_MCA_memory");
}

/* Open MPI calls shmem_finalize when a process exits, which waits for all PEs: for ever if one has
 * ended, or if this is a child. Nothing takes that back but to leave out what else is to come. */
static void leave(int status, void *none) {
    (void)none;
    if (!openshmem.broken && openshmem.process == getpid())
        return;
    symmem_kit_pmix_end(false);
    fflush(NULL);
    _exit(status);
}

static const symmem_backend table;

/* Where no launcher has started the ranks. */
static symmem_status introduce(const symmem_kit_member *self, const symmem_exchange *exchange) {
    return symmem_kit_pmix_open(self->host, exchange, self->rank, self->world_size, &table);
}

static const char *start(symmem_kit_engine *engine) {
    int provided = SHMEM_THREAD_SINGLE;
    const int error = shmem_init_thread(SHMEM_THREAD_MULTIPLE, &provided);
    unset_variables();
    symmem_kit_pmix_started(error == 0);
    on_exit(leave, NULL); /* runs before Open MPI's own */
    if (error != 0)
        return "shmem_init_thread failed";
    engine->rank = shmem_my_pe();
    engine->size = shmem_n_pes();
    return provided == SHMEM_THREAD_MULTIPLE ? NULL : "it has not SHMEM_THREAD_MULTIPLE";
}

static int make_heap(symmem_kit_heap *heap) {
    heap->base = shmem_align(SYMMEM_ALIGNMENT, heap->bytes);
    return heap->base == NULL ? SYMMEM_KIT_FULL : 0;
}

static int flush(void *heap, const int32_t *ranks, int count) {
    (void)heap, (void)ranks, (void)count;
    shmem_quiet();
    return 0;
}

static void end(const symmem_kit_engine *engine) {
    if (!engine->broken)
        shmem_finalize();
    symmem_kit_pmix_end(!engine->broken);
}

/* OpenSHMEM's calls say of no error. */
static void explain(int error, char *text, size_t capacity) {
    snprintf(text, capacity, "error %d", error);
}

static symmem_kit_engine openshmem = {.name = "OpenSHMEM",
                                      .launcher = "oshrun",
                                      .record_bytes = sizeof(symmem_kit_heap),
                                      .introduce = introduce,
                                      .prepare = prepare,
                                      .start = start,
                                      .make_heap = make_heap,
                                      .end = end,
                                      .flush = flush,
                                      .explain = explain,
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
                                       .quiet = symmem_kit_engine_quiet},
};

const symmem_backend *symmem_backend_entry(uint32_t abi) {
    return abi == SYMMEM_BACKEND_ABI ? &table : NULL;
}
