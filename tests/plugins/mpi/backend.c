/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A backend over MPI-3 one-sided communication: a rank's heap is its part of a window. What MPI's
 * calls have in common with those of other engines is in ../kit/engine.h.
 */
#include <errno.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <symmem/kit/engine.h>
#include <symmem/kit/host_memory.h>
#include <symmem/kit/pmi.h>
#include <symmem/kit/pmix.h>
#include <symmem/kit/wait.h>

#define PIECE ((size_t)1 << 20) /* bytes of one put or get */
#define WORD_BYTES (2 * sizeof(uint32_t))
#define SPARE 1024 /* words that can be under way without an allocation */

/* A request that may outlast its call: the buffer is MPI's until it has ended. */
typedef struct request {
    struct request *next;
    MPI_Request mpi;
    symmem_kit_traffic *traffic; /* of a word that is under way, or NULL */
    int32_t rank;
    bool is_spare; /* of requests.spare */
    unsigned char data[];
} request;

typedef struct window {
    symmem_kit_heap heap; /* first: the kit knows it by this */
    MPI_Win mpi;
} window;

static struct {
    pthread_mutex_t lock;
    request *late;  /* words under way, and what calls have given up */
    request *spare; /* for words; those to ranks that have ended never come back */
} requests = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool is_programs; /* MPI: the program has started it, and ends it */

/* --- requests ------------------------------------------------------------------------------- */

static void make_spare(void) {
    for (int i = 0; i < SPARE; i++) {
        request *made = calloc(1, sizeof *made + WORD_BYTES);
        if (made == NULL)
            return;
        made->is_spare = true;
        made->next = requests.spare;
        requests.spare = made;
    }
}

/* Under the lock. */
static void give_back(request *one) {
    if (!one->is_spare) {
        free(one);
        return;
    }
    one->next = requests.spare;
    requests.spare = one;
}

/* Gives back what MPI is through with. */
static void test_late(void) {
    pthread_mutex_lock(&requests.lock);
    for (request **at = &requests.late; *at != NULL;) {
        request *one = *at;
        int flag = 0;
        if (MPI_Test(&one->mpi, &flag, MPI_STATUS_IGNORE) == MPI_SUCCESS && !flag) {
            at = &one->next;
            continue;
        }
        *at = one->next;
        if (one->traffic != NULL)
            symmem_kit_traffic_end(one->traffic, one->rank);
        give_back(one);
    }
    pthread_mutex_unlock(&requests.lock);
}

static void leave_to_mpi(request *one) {
    pthread_mutex_lock(&requests.lock);
    one->next = requests.late;
    requests.late = one;
    pthread_mutex_unlock(&requests.lock);
}

/* What MPI still has then tells of no end. */
static void forget(symmem_kit_traffic *traffic) {
    pthread_mutex_lock(&requests.lock);
    for (request *one = requests.late; one != NULL; one = one->next)
        if (one->traffic == traffic)
            one->traffic = NULL;
    pthread_mutex_unlock(&requests.lock);
}

/* --- what runs in the helper's thread --------------------------------------------------------- */

static void explain(int error, char *text, size_t capacity) {
    char whole[MPI_MAX_ERROR_STRING] = "";
    int length;
    MPI_Error_string(error, whole, &length);
    snprintf(text, capacity, "%s", whole);
}

static const symmem_backend table;

/* Where no launcher has started the ranks. Each MPI has its process manager. */
static symmem_status introduce(const symmem_kit_member *self, const symmem_exchange *exchange) {
#ifdef MPICH_VERSION
    return symmem_kit_pmi_open(self->host, exchange, self->rank, self->world_size);
#else
    return symmem_kit_pmix_open(self->host, exchange, self->rank, self->world_size, &table);
#endif
}

static const char *start(symmem_kit_engine *engine) {
    static char text[64];
    int ended = 0, provided = 0, started = 0;
    make_spare();
    MPI_Finalized(&ended);
    MPI_Initialized(&started);
    if (ended)
        return "the program has ended it, and there is no second start";
    is_programs = started;
    const int error = started ? MPI_Query_thread(&provided)
                              : MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided);
    symmem_kit_pmi_started();
    symmem_kit_pmix_started(error == MPI_SUCCESS);
    if (error != MPI_SUCCESS) { /* MPI explains none before it has started */
        snprintf(text, sizeof text, "MPI_Init_thread: error %d", error);
        return text;
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &engine->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &engine->size);
    if (!started)
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    return provided == MPI_THREAD_MULTIPLE ? NULL : "it has not MPI_THREAD_MULTIPLE";
}

static int make_window(symmem_kit_heap *heap) {
    window *made = (window *)heap;
    int class, error = MPI_Win_allocate((MPI_Aint)heap->bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD,
                                        &heap->base, &made->mpi);
    if (error != MPI_SUCCESS) {
        MPI_Error_class(error, &class);
        return class == MPI_ERR_NO_MEM ? SYMMEM_KIT_FULL : error;
    }
    MPI_Win_set_errhandler(made->mpi, MPI_ERRORS_RETURN);
    return MPI_Win_lock_all(MPI_MODE_NOCHECK, made->mpi);
}

static int flush_window(void *window_v, const int32_t *ranks, int count) {
    const window *own = window_v;
    int error = MPI_SUCCESS;
    for (int i = 0; i < count && error == MPI_SUCCESS; i++)
        error = MPI_Win_flush(own->heap.places[ranks[i]].rank, own->mpi);
    return error;
}

/* In a call that waits for all ranks each moves what others want of it. */
static void meet(void) {
    MPI_Barrier(MPI_COMM_WORLD);
}

/* All ranks free their windows in one order. */
static void end(const symmem_kit_engine *engine) {
    int ended = 0;
    MPI_Finalized(&ended);
    if (engine->broken || ended)
        return;
    for (const symmem_kit_heap *heap = engine->heaps; heap != NULL; heap = heap->next) {
        MPI_Win freed = ((const window *)heap)->mpi;
        MPI_Win_unlock_all(freed);
        MPI_Win_free(&freed);
    }
    if (!is_programs)
        MPI_Finalize();
    symmem_kit_pmi_end();
    symmem_kit_pmix_end(true);
}

static void progress(void *member) {
    const symmem_kit_member *self = member;
    int flag;
    test_late();
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    MPI_Win_sync(((window *)self->heap)->mpi);
}

static symmem_kit_engine mpi = {.name = "MPI",
                                .launcher = "mpirun",
                                .record_bytes = sizeof(window),
                                .introduce = introduce,
                                .start = start,
                                .make_heap = make_window,
                                .meet = meet,
                                .end = end,
                                .flush = flush_window,
                                .explain = explain,
                                .progress = progress,
                                .forget = forget,
                                .helper = SYMMEM_KIT_HELPER_INIT};

/* --- the instance --------------------------------------------------------------------------- */

static symmem_status engine_probe(char *reason, size_t capacity) {
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length, version, subversion;
    MPI_Get_library_version(text, &length);
    text[strcspn(text, "\n")] = '\0';
    snprintf(reason, capacity, "%s", text);
    MPI_Get_version(&version, &subversion);
    return version >= 3 ? SYMMEM_OK : SYMMEM_UNSUPPORTED;
}

static symmem_status engine_open(const symmem_host *host, const symmem_backend_config *config,
                                 void **instance_p) {
    return symmem_kit_member_open(&mpi, host, config, instance_p);
}

/* --- reach ---------------------------------------------------------------------------------- */

static MPI_Win window_of(const symmem_kit_member *self) {
    return ((const window *)self->heap)->mpi;
}

static request *make_request(const symmem_kit_member *self, const char *operation, size_t bytes,
                             symmem_status *status_p) {
    request *made = malloc(sizeof *made + bytes);
    *status_p = SYMMEM_OK;
    if (made != NULL)
        *made = (request){0};
    else
        *status_p =
            self->host->fail(self->host, SYMMEM_OUT_OF_MEMORY, ENOMEM, operation, "no memory");
    return made;
}

/* Waits for the request, which is MPI's after a failure and the caller's else. */
static symmem_status finish(const symmem_kit_member *self, request *one, const symmem_place *at,
                            symmem_kit_wait *wait, const char *operation) {
    int flag = 0;
    for (;;) {
        int error = MPI_Test(&one->mpi, &flag, MPI_STATUS_IGNORE);
        if (error != MPI_SUCCESS)
            return symmem_kit_engine_fail(self, operation, "MPI_Test", error);
        if (flag)
            return SYMMEM_OK;
        symmem_status status =
            symmem_kit_wait_turn(wait, self->host, at->peers, at->peer, operation);
        if (status != SYMMEM_OK) {
            leave_to_mpi(one);
            return status;
        }
    }
}

static symmem_status move(symmem_kit_member *self, const symmem_place *at, const char *src,
                          char *dst, size_t bytes, const symmem_exec *exec) {
    const char *operation = dst != NULL ? "get" : "put";
    symmem_kit_wait wait = symmem_kit_wait_begin(exec->timeout_ms);
    symmem_status status = SYMMEM_OK;
    request *one = make_request(self, operation, bytes < PIECE ? bytes : PIECE, &status);
    for (size_t done = 0, piece; done < bytes && status == SYMMEM_OK; done += piece) {
        piece = bytes - done < PIECE ? bytes - done : PIECE;
        const int target = self->heap->places[at->rank].rank, count = (int)piece;
        const MPI_Aint from = (MPI_Aint)(self->heap->places[at->rank].shift + at->offset + done);
        if (dst == NULL)
            memcpy(one->data, src + done, piece);
        int error = dst != NULL ? MPI_Rget(one->data, count, MPI_BYTE, target, from, count,
                                           MPI_BYTE, window_of(self), &one->mpi)
                                : MPI_Rput(one->data, count, MPI_BYTE, target, from, count,
                                           MPI_BYTE, window_of(self), &one->mpi);
        if (dst == NULL)
            symmem_kit_traffic_put(self->traffic, at->rank);
        status = error == MPI_SUCCESS ? finish(self, one, at, &wait, operation)
                                      : symmem_kit_engine_fail(self, operation, "MPI", error);
        if (status == SYMMEM_OK && dst != NULL)
            memcpy(dst + done, one->data, piece);
    }
    if (status == SYMMEM_OK)
        free(one); /* else MPI may still use it */
    return status;
}

static symmem_status reach_put(void *instance, const symmem_place *to, const void *src,
                               size_t bytes, const symmem_exec *exec) {
    return move(instance, to, src, NULL, bytes, exec);
}

static symmem_status reach_get(void *instance, const symmem_place *from, void *dst, size_t bytes,
                               const symmem_exec *exec) {
    return move(instance, from, NULL, dst, bytes, exec);
}

static request *take_spare(void) {
    pthread_mutex_lock(&requests.lock);
    request *one = requests.spare;
    if (one != NULL)
        requests.spare = one->next;
    pthread_mutex_unlock(&requests.lock);
    return one;
}

/* MPI keeps the order of accumulates of one rank to one place. Of one that fetches what was there
 * the end says that the word is there. */
static symmem_status reach_write(void *instance, const symmem_place *to, uint32_t value,
                                 const symmem_exec *exec) {
    symmem_kit_member *self = instance;
    symmem_status status = SYMMEM_OK;
    (void)exec;
    request *one = take_spare();
    if (one == NULL)
        one = make_request(self, "write_value32", WORD_BYTES, &status);
    if (one == NULL)
        return status;
    one->traffic = self->traffic;
    one->rank = to->rank;
    memcpy(one->data, &value, sizeof value);
    const symmem_kit_place *peer = &self->heap->places[to->rank];
    int error = MPI_Rget_accumulate(one->data, 1, MPI_UINT32_T, one->data + sizeof value, 1,
                                    MPI_UINT32_T, peer->rank, (MPI_Aint)(peer->shift + to->offset),
                                    1, MPI_UINT32_T, MPI_REPLACE, window_of(self), &one->mpi);
    pthread_mutex_lock(&requests.lock);
    if (error == MPI_SUCCESS) {
        symmem_kit_traffic_begin(self->traffic, to->rank);
        one->next = requests.late;
        requests.late = one;
    } else {
        give_back(one);
    }
    pthread_mutex_unlock(&requests.lock);
    return error == MPI_SUCCESS
               ? status
               : symmem_kit_engine_fail(self, "write_value32", "MPI_Rget_accumulate", error);
}

static const symmem_backend table = {
    .size = sizeof(symmem_backend),
    .abi = SYMMEM_BACKEND_ABI,
    .name = "mpi",
    .description = "MPI-3 one-sided communication",
    .flags = SYMMEM_CAP_HOST_ACCESS | SYMMEM_CAP_PROCESS_RANKS | SYMMEM_CAP_POOL,
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
