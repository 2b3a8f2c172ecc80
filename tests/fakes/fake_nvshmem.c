/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A fake of NVSHMEM's host library, for tests/bench/peer_nvshmem.py and tests/plugins/nvshmem:
 * ranks are processes of one host, symmetric memory is a shared file, and what streams are given is
 * done by host functions. It is right and slow, and waits for ever for a rank that has ended.
 *
 * FAKE_NVSHMEM_ENDS: the broadcast ends the process, as the library does on errors.
 * FAKE_NVSHMEM_VERSION=MAJOR.MINOR: the library is of that one. FAKE_NVSHMEM_HANGS=RANK: that
 * rank's start does not return. FAKE_NVSHMEM_FAILS=RANK: it answers an error. FAKE_NVSHMEM_STARTED:
 * the program has started it before. NVSHMEM_DISABLE_P2P: the library's own; there are no pointers
 * to peers. NVSHMEM_DISABLE_NVLS has to be set. FAKE_NVSHMEM_DEFERS: it finds no device, and puts
 * its start off, as the library does.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cuda.h>

#define EXPORTED __attribute__((visibility("default")))
#define MOST_RANKS 8
#define PART_BYTES ((size_t)1 << 30) /* of each rank */
#define ID_BYTES 128
#define NAME_AT 4 /* in a unique id, behind its version */
#define WITH_UNIQUEID 8u
#define INTERNAL 7 /* an error */
#define BOOTSTRAPPED 1
#define INITIALIZED 2

typedef struct init_attr { /* as far as it is read */
    int version;
    void *mpi_comm;
    int args_version;
    int id_version;
    const char *id;
    int rank, ranks;
} init_attr;

typedef struct meeting {
    atomic_int arrived, round;
} meeting;

typedef struct job {
    void (*run)(const struct job *job);
    uint16_t *target;
    const uint16_t *source;
    size_t count;
    bool is_alone; /* no other rank takes part */
    uint32_t word;
} job;

static int own, ranks;
static char *memory;
static meeting *everybody;
static size_t used;
static bool is_put_off, is_inside; /* the start */
static int bootstrap = -1; /* the socket by which ranks reach each other outside of devices */

static void meet(void) {
    int round = atomic_load(&everybody->round);
    if (atomic_fetch_add(&everybody->arrived, 1) + 1 == ranks) {
        atomic_store(&everybody->arrived, 0);
        atomic_fetch_add(&everybody->round, 1);
    }
    while (atomic_load(&everybody->round) == round)
        nanosleep(&(struct timespec){.tv_nsec = 1000}, NULL);
}

/* --- what streams do ---------------------------------------------------------------- */

static const uint16_t *of_rank(int rank, const uint16_t *pointer) {
    ptrdiff_t offset = (const char *)pointer - (memory + (size_t)own * PART_BYTES);
    return (const uint16_t *)(const void *)(memory + (size_t)rank * PART_BYTES + offset);
}

static float number_of(uint16_t half) {
    uint32_t bits = (uint32_t)half << 16;
    float number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

static uint16_t half_of(float number) {
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static void sum(const job *self, size_t from) {
    uint16_t *sums = malloc(self->count * sizeof *sums);
    for (size_t i = 0; sums != NULL && i < self->count; i++) {
        float total = 0;
        for (int rank = 0; rank < ranks; rank++)
            total += number_of(of_rank(rank, self->source)[from + i]);
        sums[i] = half_of(total);
    }
    meet(); /* the source may be the target */
    if (sums != NULL)
        memcpy(self->target, sums, self->count * sizeof *sums);
    free(sums);
}

static void run_reduce(const job *self) {
    sum(self, 0);
}

static void run_reduce_scatter(const job *self) {
    sum(self, (size_t)own * self->count);
}

static void take(const job *self, int rank, size_t to, size_t from) {
    memmove(self->target + to, of_rank(rank, self->source) + from, self->count * sizeof(uint16_t));
}

static void run_fcollect(const job *self) {
    for (int rank = 0; rank < ranks; rank++)
        take(self, rank, (size_t)rank * self->count, 0);
}

static void run_alltoall(const job *self) {
    for (int rank = 0; rank < ranks; rank++)
        take(self, rank, (size_t)rank * self->count, (size_t)own * self->count);
}

static void run_broadcast(const job *self) {
    if (getenv("FAKE_NVSHMEM_ENDS") != NULL)
        _exit(255);
    take(self, 0, 0, 0);
}

static void run_move(const job *self) {
    memcpy(self->target, self->source, self->count);
}

static void run_word(const job *self) {
    atomic_store((_Atomic uint32_t *)(void *)self->target, self->word);
}

/* --- streams ------------------------------------------------------------------------ */

static void do_job(void *arg) {
    const job *self = arg;
    if (!self->is_alone)
        meet();
    if (self->run != NULL)
        self->run(self);
    if (!self->is_alone)
        meet();
}

/* What a graph may do again is kept until the process ends. */
static int enqueue(job what, void *stream) {
    static CUresult (*launch)(CUstream stream, CUhostFn function, void *arg);
    CUresult (*find)(const char *name, void *entry, int version, cuuint64_t flags, int *found);
    int found;
    if (launch == NULL) {
        void *symbol = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuGetProcAddress_v2");
        memcpy(&find, &symbol, sizeof find);
        if (find("cuLaunchHostFunc", &launch, 10000, 0, &found) != CUDA_SUCCESS)
            abort();
    }
    job *kept = malloc(sizeof *kept);
    if (kept == NULL)
        return 1;
    *kept = what;
    return launch(stream, do_job, kept) != CUDA_SUCCESS;
}

#define ON_STREAM(name, how)                                                                       \
    EXPORTED int nvshmemx_bfloat16_##name##_on_stream(                                             \
        int team, uint16_t *target, const uint16_t *source, size_t count, void *stream);           \
    int nvshmemx_bfloat16_##name##_on_stream(int team, uint16_t *target, const uint16_t *source,   \
                                             size_t count, void *stream) {                         \
        return enqueue((job){.run = how, .target = target, .source = source, .count = count},      \
                       stream);                                                                    \
    }

ON_STREAM(sum_reduce, run_reduce)
ON_STREAM(sum_reducescatter, run_reduce_scatter)
ON_STREAM(fcollect, run_fcollect)
ON_STREAM(alltoall, run_alltoall)

EXPORTED int nvshmemx_bfloat16_broadcast_on_stream(int team, uint16_t *target,
                                                   const uint16_t *source, size_t count, int root,
                                                   void *stream);
int nvshmemx_bfloat16_broadcast_on_stream(int team, uint16_t *target, const uint16_t *source,
                                          size_t count, int root, void *stream) {
    return root != 0
               ? 1
               : enqueue(
                     (job){
                         .run = run_broadcast, .target = target, .source = source, .count = count},
                     stream);
}

EXPORTED void nvshmemx_barrier_all_on_stream(void *stream);
void nvshmemx_barrier_all_on_stream(void *stream) {
    (void)enqueue((job){.run = NULL}, stream);
}

EXPORTED void nvshmemx_sync_all_on_stream(void *stream);
void nvshmemx_sync_all_on_stream(void *stream) {
    (void)enqueue((job){.run = NULL}, stream);
}

EXPORTED void nvshmemx_putmem_on_stream(void *to, const void *from, size_t bytes, int pe,
                                        void *stream);
void nvshmemx_putmem_on_stream(void *to, const void *from, size_t bytes, int pe, void *stream) {
    uint16_t *there = (uint16_t *)(uintptr_t)of_rank(pe, to);
    (void)enqueue(
        (job){.run = run_move, .target = there, .source = from, .count = bytes, .is_alone = true},
        stream);
}

EXPORTED void nvshmemx_getmem_on_stream(void *to, const void *from, size_t bytes, int pe,
                                        void *stream);
void nvshmemx_getmem_on_stream(void *to, const void *from, size_t bytes, int pe, void *stream) {
    (void)enqueue((job){.run = run_move,
                        .target = to,
                        .source = of_rank(pe, from),
                        .count = bytes,
                        .is_alone = true},
                  stream);
}

EXPORTED void nvshmemx_uint32_p_on_stream(uint32_t *to, uint32_t value, int pe, void *stream);
void nvshmemx_uint32_p_on_stream(uint32_t *to, uint32_t value, int pe, void *stream) {
    uint16_t *there = (uint16_t *)(uintptr_t)of_rank(pe, (void *)to);
    (void)enqueue((job){.run = run_word, .target = there, .is_alone = true, .word = value}, stream);
}

EXPORTED void nvshmemx_quiet_on_stream(void *stream);
void nvshmemx_quiet_on_stream(void *stream) {
    (void)enqueue((job){.is_alone = true}, stream);
}

/* --- calls of the host -------------------------------------------------------------- */

EXPORTED int nvshmemx_get_uniqueid(char *id);
int nvshmemx_get_uniqueid(char *id) {
    (void)snprintf(id + NAME_AT, ID_BYTES - NAME_AT, "/symmem-fake-nvshmem-%ld", (long)getpid());
    return 0;
}

EXPORTED int nvshmemx_set_attr_uniqueid_args(int rank, int count, const char *id, init_attr *attr);
int nvshmemx_set_attr_uniqueid_args(int rank, int count, const char *id, init_attr *attr) {
    attr->id = id;
    attr->rank = rank;
    attr->ranks = count;
    return 0;
}

/* Whether the variable names this rank. */
static bool is_for(const char *variable, int rank) {
    const char *said = getenv(variable);
    return said != NULL && atoi(said) == rank;
}

/* The driver's copies then know that it is a device's. */
static void tell_driver(size_t bytes) {
    void (*know)(CUdeviceptr at, size_t bytes);
    void *symbol = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "fake_know");
    memcpy(&know, &symbol, sizeof know);
    if (know != NULL)
        know((CUdeviceptr)(uintptr_t)memory, bytes);
}

static int map_memory(const char *name, size_t bytes) {
    int file = shm_open(name, O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, (off_t)bytes) != 0)
        return INTERNAL;
    memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    (void)close(file);
    return memory == MAP_FAILED ? INTERNAL : 0;
}

/* At the exit, as the library: also of a child that has the socket by a fork. */
static void end_bootstrap(void) {
    if (bootstrap < 0)
        return;
    (void)shutdown(bootstrap, SHUT_RDWR);
    (void)close(bootstrap);
    bootstrap = -1;
}

static int begin_bootstrap(void) {
    bootstrap = socket(AF_INET, SOCK_STREAM, 0);
    return bootstrap >= 0 && listen(bootstrap, 1) == 0 && atexit(end_bootstrap) == 0 ? 0 : INTERNAL;
}

/* The library would wait for other ranks on it for 20 s. */
static void need_bootstrap(void) {
    int listens = 0;
    socklen_t bytes = sizeof listens;
    if (getsockopt(bootstrap, SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) == 0 && listens != 0)
        return;
    (void)fprintf(stderr, "fake NVSHMEM: its bootstrap was shut down\n");
    _exit(255);
}

EXPORTED int nvshmemx_hostlib_init_attr(unsigned flags, init_attr *attr);
int nvshmemx_hostlib_init_attr(unsigned flags, init_attr *attr) {
    const size_t parts = MOST_RANKS * PART_BYTES;
    if (flags != WITH_UNIQUEID || attr->ranks > MOST_RANKS || memory != NULL ||
        is_for("FAKE_NVSHMEM_FAILS", attr->rank) || getenv("NVSHMEM_DISABLE_NVLS") == NULL)
        return INTERNAL;
    is_inside = true;
    while (is_for("FAKE_NVSHMEM_HANGS", attr->rank))
        nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
    is_put_off = getenv("FAKE_NVSHMEM_DEFERS") != NULL;
    is_inside = !is_put_off;
    if (is_put_off)
        return 0;
    if (begin_bootstrap() != 0 || map_memory(attr->id + NAME_AT, parts + sizeof *everybody) != 0)
        return INTERNAL;
    tell_driver(parts);
    everybody = (meeting *)(void *)(memory + parts);
    own = attr->rank;
    ranks = attr->ranks;
    meet(); /* all have it */
    if (own == 0)
        (void)shm_unlink(attr->id + NAME_AT);
    is_inside = false;
    return 0;
}

/* As the library, which finds its lock taken. */
__attribute__((destructor)) static void end_outside(void) {
    if (is_inside)
        _exit(255);
}

EXPORTED void nvshmemx_hostlib_finalize(void);
void nvshmemx_hostlib_finalize(void) {
    need_bootstrap();
    meet();
    end_bootstrap();
}

EXPORTED void nvshmemx_vendor_get_version_info(int *major, int *minor, int *patch);
void nvshmemx_vendor_get_version_info(int *major, int *minor, int *patch) {
    const char *said = getenv("FAKE_NVSHMEM_VERSION");
    *major = 3;
    *minor = 4;
    *patch = 5;
    if (said != NULL && sscanf(said, "%d.%d", major, minor) == 2)
        *patch = 0;
}

EXPORTED int nvshmemx_init_status(void);
int nvshmemx_init_status(void) {
    if (is_put_off)
        return BOOTSTRAPPED;
    return memory != NULL || getenv("FAKE_NVSHMEM_STARTED") != NULL ? INITIALIZED : 0;
}

EXPORTED int nvshmem_my_pe(void);
int nvshmem_my_pe(void) {
    return own;
}

EXPORTED int nvshmem_n_pes(void);
int nvshmem_n_pes(void) {
    return ranks;
}

EXPORTED void *nvshmem_malloc(size_t bytes);
void *nvshmem_malloc(size_t bytes) {
    if (is_put_off)
        exit(255);
    need_bootstrap();
    meet();
    if (bytes > PART_BYTES - used)
        return NULL;
    used += bytes;
    return memory + (size_t)own * PART_BYTES + used - bytes;
}

EXPORTED void *nvshmem_ptr(const void *symmetric, int pe);
void *nvshmem_ptr(const void *symmetric, int pe) {
    if (pe != own && getenv("NVSHMEM_DISABLE_P2P") != NULL)
        return NULL;
    return (void *)(uintptr_t)of_rank(pe, symmetric);
}

EXPORTED void nvshmem_barrier_all(void);
void nvshmem_barrier_all(void) {
    meet();
}
