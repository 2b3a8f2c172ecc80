/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A fake of NVSHMEM's host library, for tests/bench/peer_nvshmem.py: ranks are processes of one
 * host, symmetric memory is a shared file, and what streams are given is done by host functions. It
 * is right and slow. FAKE_NVSHMEM_ENDS: the broadcast ends the process, as the library does on
 * errors.
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
#include <time.h>
#include <unistd.h>

#include <cuda.h>

#define EXPORTED __attribute__((visibility("default")))
#define MOST_RANKS 8
#define PART_BYTES ((size_t)1 << 30) /* of each rank */
#define ID_BYTES 128
#define NAME_AT 4 /* in a unique id, behind its version */

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
} job;

static int own, ranks;
static char *memory;
static meeting *everybody;
static size_t used;

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

/* --- streams ------------------------------------------------------------------------ */

static void do_job(void *arg) {
    const job *self = arg;
    meet();
    if (self->run != NULL)
        self->run(self);
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
        return enqueue((job){how, target, source, count}, stream);                                 \
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
    return root != 0 ? 1 : enqueue((job){run_broadcast, target, source, count}, stream);
}

EXPORTED void nvshmemx_barrier_all_on_stream(void *stream);
void nvshmemx_barrier_all_on_stream(void *stream) {
    (void)enqueue((job){.run = NULL}, stream);
}

EXPORTED void nvshmemx_sync_all_on_stream(void *stream);
void nvshmemx_sync_all_on_stream(void *stream) {
    (void)enqueue((job){.run = NULL}, stream);
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

EXPORTED int nvshmemx_hostlib_init_attr(unsigned flags, init_attr *attr);
int nvshmemx_hostlib_init_attr(unsigned flags, init_attr *attr) {
    size_t parts = MOST_RANKS * PART_BYTES, bytes = parts + sizeof *everybody;
    int file = shm_open(attr->id + NAME_AT, O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, (off_t)bytes) != 0 || attr->ranks > MOST_RANKS)
        return 1;
    memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    (void)close(file);
    if (memory == MAP_FAILED)
        return 1;
    everybody = (meeting *)(void *)(memory + parts);
    own = attr->rank;
    ranks = attr->ranks;
    meet(); /* all have it */
    if (own == 0)
        (void)shm_unlink(attr->id + NAME_AT);
    return 0;
}

EXPORTED void nvshmemx_vendor_get_version_info(int *major, int *minor, int *patch);
void nvshmemx_vendor_get_version_info(int *major, int *minor, int *patch) {
    *major = *minor = *patch = 0;
}

EXPORTED void *nvshmem_malloc(size_t bytes);
void *nvshmem_malloc(size_t bytes) {
    if (bytes > PART_BYTES - used)
        return NULL;
    used += bytes;
    return memory + (size_t)own * PART_BYTES + used - bytes;
}

EXPORTED void nvshmem_barrier_all(void);
void nvshmem_barrier_all(void) {
    meet();
}
