/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A backend over MPI-3 one-sided communication: a rank's heap is its part of a window. MPI calls
 * may wait for peers and know no limit, so those that do run in a thread of their own, which starts
 * MPI, makes the windows, completes what was put, and ends MPI when the process exits. Calls of the
 * backend wait for that thread with their limit.
 */
#include <errno.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <symmem/kit/collective.h>
#include <symmem/kit/helper.h>
#include <symmem/kit/host_memory.h>
#include <symmem/kit/quiet.h>
#include <symmem/kit/wait.h>

#define NS_PER_MS 1000000ull
#define PIECE ((size_t)1 << 20) /* bytes of one put or get */
#define WORD_BYTES (2 * sizeof(uint32_t))
#define SPARE 1024     /* words that can be under way without an allocation */
#define EXIT_MS 10000u /* for MPI_Finalize, which waits for all ranks */
#define CLOSE_MS 1000u /* for words that are under way */

/* A request that may outlast its call: the buffer is MPI's until it has ended. */
typedef struct request {
    struct request *next;
    MPI_Request mpi;
    symmem_kit_traffic *traffic; /* of a word that is under way, or NULL */
    int32_t rank;
    bool is_spare; /* of mpi.spare */
    unsigned char data[];
} request;

typedef struct place {
    int rank;     /* in MPI_COMM_WORLD */
    size_t shift; /* from the start of its part of the window to its heap */
} place;

/* To free a window takes all ranks. So it stays, and serves the next context that wants as much. */
typedef struct window {
    struct window *next;
    MPI_Win mpi;
    char *base;
    size_t bytes;
    int number;    /* from 1 in the order in which they were made, which all ranks share */
    int error;     /* of MPI's last call for it that all ranks took part in */
    bool used;     /* by a context */
    place *places; /* of each rank of the context; a flush that was given up may need them */
} window;

typedef struct engine {
    const symmem_host *host;
    int32_t rank, world_size;
    window *window; /* NULL: a world of one has no need of MPI */
    symmem_kit_traffic *traffic;
} engine;

/* --- MPI, which a process starts once -------------------------------------------------------- */

static struct {
    symmem_kit_helper helper;
    window *windows; /* that all ranks have, the newest first; the helper's */
    bool started;
    bool broken; /* a start or a window was given up halfway, or a rank has ended */
    int rank, size, provided, error;
    pthread_mutex_t lock;
    request *late;  /* words under way, and what calls have given up */
    request *spare; /* for words; those to ranks that have ended never come back */
} mpi = {.helper = SYMMEM_KIT_HELPER_INIT, .lock = PTHREAD_MUTEX_INITIALIZER};

static void make_spare(void) {
    for (int i = 0; i < SPARE; i++) {
        request *made = calloc(1, sizeof *made + WORD_BYTES);
        if (made == NULL)
            return;
        made->is_spare = true;
        made->next = mpi.spare;
        mpi.spare = made;
    }
}

static void start(void *none) {
    (void)none;
    make_spare();
    mpi.error = MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &mpi.provided);
    if (mpi.error != MPI_SUCCESS)
        return;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &mpi.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &mpi.size);
}

static void make_window(void *made_v) {
    window *made = made_v;
    made->error = MPI_Win_allocate((MPI_Aint)made->bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD,
                                   &made->base, &made->mpi);
    if (made->error != MPI_SUCCESS)
        return;
    MPI_Win_set_errhandler(made->mpi, MPI_ERRORS_RETURN);
    made->number = mpi.windows == NULL ? 1 : mpi.windows->number + 1;
    made->next = mpi.windows;
    mpi.windows = made;
    made->error = MPI_Win_lock_all(MPI_MODE_NOCHECK, made->mpi);
}

/* Behind it nothing of what a rank did with the window before is under way. */
static void clear_window(void *made_v) {
    window *made = made_v;
    made->error = MPI_Win_flush_all(made->mpi);
    if (made->error == MPI_SUCCESS)
        made->error = MPI_Barrier(MPI_COMM_WORLD);
}

static int flush_window(void *window_v, const int32_t *ranks, int count) {
    const window *own = window_v;
    int error = MPI_SUCCESS;
    for (int i = 0; i < count && error == MPI_SUCCESS; i++)
        error = MPI_Win_flush(own->places[ranks[i]].rank, own->mpi);
    return error;
}

/* All ranks free their windows in one order. */
static void end_all(void *none) {
    (void)none;
    for (const window *made = mpi.windows; made != NULL; made = made->next) {
        MPI_Win freed = made->mpi;
        MPI_Win_unlock_all(freed);
        MPI_Win_free(&freed);
    }
    MPI_Finalize();
}

/* mpirun takes a process that ends without MPI_Finalize for one that has failed. But that waits for
 * all ranks. */
static void end_mpi(void) {
    bool began;
    const uint64_t end_ns = symmem_kit_now_ns() + EXIT_MS * NS_PER_MS;
    if (!mpi.broken)
        (void)symmem_kit_helper_run(&mpi.helper, end_all, NULL, end_ns, NULL, NULL, &began);
}

/* Under the lock. */
static void give_back(request *one) {
    if (!one->is_spare) {
        free(one);
        return;
    }
    one->next = mpi.spare;
    mpi.spare = one;
}

/* Gives back what MPI is through with. */
static void test_late(void) {
    pthread_mutex_lock(&mpi.lock);
    for (request **at = &mpi.late; *at != NULL;) {
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
    pthread_mutex_unlock(&mpi.lock);
}

static void leave_to_mpi(request *one) {
    pthread_mutex_lock(&mpi.lock);
    one->next = mpi.late;
    mpi.late = one;
    pthread_mutex_unlock(&mpi.lock);
}

/* --- the instance --------------------------------------------------------------------------- */

static symmem_status fail_mpi(const engine *self, const char *operation, const char *step,
                              int error) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int length;
    MPI_Error_string(error, text, &length);
    return self->host->fail(self->host, SYMMEM_BACKEND, 0, operation, "%s: %s", step, text);
}

static symmem_status engine_probe(char *reason, size_t capacity) {
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    MPI_Get_library_version(text, &length);
    text[strcspn(text, "\n")] = '\0';
    snprintf(reason, capacity, "%s", text);
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
    *instance_p = self;
    return SYMMEM_OK;
}

static void engine_close(void *instance) {
    free(instance); /* requests that have not ended are MPI's until the process exits */
}

/* --- world ---------------------------------------------------------------------------------- */

/* A task that all ranks take part in. Given up halfway, MPI can do no other. */
static symmem_status together(const engine *self, const symmem_exchange *exchange,
                              symmem_kit_task_fn task, void *arg, const int *error,
                              const char *step) {
    symmem_status status = symmem_kit_together(self->host, exchange, &mpi.helper, task, arg, step);
    if (status != SYMMEM_OK)
        mpi.broken = true;
    else if (*error != MPI_SUCCESS)
        status = fail_mpi(self, "join", step, *error);
    return exchange->agree(exchange, status, step);
}

static symmem_status start_mpi(engine *self, const symmem_exchange *exchange) {
    const symmem_host *host = self->host;
    symmem_status status = SYMMEM_OK;
    const int error = symmem_kit_helper_start(&mpi.helper);
    if (error != 0)
        status = host->fail(host, SYMMEM_SYSTEM, error, "join", "a thread for MPI");
    else if (mpi.broken)
        status = host->fail(host, SYMMEM_BACKEND, 0, "join",
                            "MPI has lost a rank, or its start was given up");
    status = exchange->agree(exchange, status, "mpi.thread");
    if (status == SYMMEM_OK && !mpi.started) {
        mpi.started = true;
        status = together(self, exchange, start, NULL, &mpi.error, "MPI_Init_thread");
        if (status == SYMMEM_OK)
            atexit(end_mpi);
    }
    if (status != SYMMEM_OK)
        return status;
    if (mpi.provided != MPI_THREAD_MULTIPLE)
        status = host->fail(host, SYMMEM_BACKEND, 0, "join", "MPI has not MPI_THREAD_MULTIPLE");
    else if (mpi.size != self->world_size)
        status = host->fail(host, SYMMEM_BACKEND, 0, "join",
                            "MPI has %d ranks, the context %d: start the program by mpirun, one "
                            "process for each rank",
                            mpi.size, (int)self->world_size);
    return exchange->agree(exchange, status, "mpi.world");
}

/* The oldest window that serves, if that is the same on all ranks; NULL: there is none. */
static symmem_status find_window(const engine *self, const symmem_exchange *exchange, size_t bytes,
                                 window **found_p) {
    int own = 0;
    void *all = NULL;
    *found_p = NULL;
    for (window *made = mpi.windows; made != NULL; made = made->next)
        if (made->bytes >= bytes && !made->used && made->error == MPI_SUCCESS)
            *found_p = made;
    if (*found_p != NULL)
        own = (*found_p)->number;
    symmem_status status =
        symmem_kit_gather(self->host, exchange, &own, sizeof own, "mpi.numbers", &all);
    for (int32_t r = 0; r < self->world_size && status == SYMMEM_OK; r++)
        if (((const int *)all)[r] != own)
            *found_p = NULL;
    free(all);
    return status;
}

static symmem_status get_window(engine *self, const symmem_exchange *exchange, size_t bytes) {
    window *made;
    symmem_status status = find_window(self, exchange, bytes, &made);
    if (status != SYMMEM_OK)
        return status;
    if (made != NULL) {
        status = together(self, exchange, clear_window, made, &made->error, "MPI_Win_flush_all");
    } else {
        made = calloc(1, sizeof *made); /* the helper's from then on */
        if (made == NULL)
            status =
                self->host->fail(self->host, SYMMEM_OUT_OF_MEMORY, ENOMEM, "join", "no memory");
        else
            made->bytes = bytes;
        status = exchange->agree(exchange, status, "mpi.window");
        if (status != SYMMEM_OK)
            free(made);
        else
            status = together(self, exchange, make_window, made, &made->error, "MPI_Win_allocate");
    }
    if (status == SYMMEM_OK) {
        made->used = true;
        self->window = made;
    }
    return status;
}

/* Where each rank's heap lies. */
static symmem_status learn_places(engine *self, const symmem_exchange *exchange) {
    const size_t over = (uintptr_t)self->window->base % SYMMEM_ALIGNMENT;
    const place own = {mpi.rank, over == 0 ? 0 : SYMMEM_ALIGNMENT - over};
    void *all = NULL;
    symmem_status status = symmem_kit_traffic_open(self->host, exchange, &self->traffic);
    if (status == SYMMEM_OK)
        status = symmem_kit_gather(self->host, exchange, &own, sizeof own, "mpi.places", &all);
    if (status == SYMMEM_OK && self->window->places != NULL)
        memcpy(self->window->places, all, (size_t)self->world_size * sizeof own);
    else
        self->window->places = all;
    if (self->window->places != all)
        free(all);
    return status;
}

/* What MPI still has then tells of no end. */
static void forget_traffic(engine *self) {
    pthread_mutex_lock(&mpi.lock);
    for (request *one = mpi.late; one != NULL; one = one->next)
        if (one->traffic == self->traffic)
            one->traffic = NULL;
    pthread_mutex_unlock(&mpi.lock);
    symmem_kit_traffic_free(self->traffic);
    self->traffic = NULL;
}

/* Peers may write to the window still: it serves no other context before all ranks are through. */
static void world_close(void *instance, symmem_memory *heap) {
    engine *self = instance;
    symmem_kit_wait wait = symmem_kit_wait_begin(CLOSE_MS);
    if (self->window == NULL) {
        free(heap->ptr);
        return;
    }
    for (test_late(); mpi.late != NULL && !symmem_kit_traffic_has_lost(self->traffic);
         test_late()) {
        if (symmem_kit_now_ns() >= wait.deadline_ns)
            break;
        symmem_kit_pause(wait.turns++);
    }
    self->window->used = false;
    mpi.broken = mpi.broken || symmem_kit_traffic_has_lost(self->traffic);
    forget_traffic(self);
}

static symmem_status open_alone(const engine *self, size_t bytes, symmem_memory *heap) {
    void *at = aligned_alloc(SYMMEM_ALIGNMENT, bytes);
    if (at == NULL)
        return self->host->fail(self->host, SYMMEM_NO_SPACE, ENOMEM, "join", "no memory");
    *heap = (symmem_memory){.ptr = at, .bytes = bytes, .device = -1};
    return SYMMEM_OK;
}

static symmem_status world_open(void *instance, const symmem_exchange *exchange,
                                const symmem_world_config *config, symmem_memory *heap) {
    engine *self = instance;
    if (config->world_size == 1)
        return open_alone(self, config->heap_bytes, heap);
    symmem_status status = start_mpi(self, exchange);
    if (status == SYMMEM_OK)
        status = get_window(self, exchange, config->heap_bytes + SYMMEM_ALIGNMENT);
    if (status != SYMMEM_OK)
        return status;
    status = learn_places(self, exchange);
    if (status != SYMMEM_OK) {
        world_close(self, heap);
        return status;
    }
    *heap = (symmem_memory){.ptr = self->window->base + self->window->places[self->rank].shift,
                            .bytes = config->heap_bytes,
                            .device = -1};
    return SYMMEM_OK;
}

/* --- reach ---------------------------------------------------------------------------------- */

static void reach_progress(void *instance) {
    const engine *self = instance;
    int flag;
    if (self->window == NULL)
        return;
    test_late();
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    MPI_Win_sync(self->window->mpi);
}

static request *make_request(const engine *self, const char *operation, size_t bytes,
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
static symmem_status finish(const engine *self, request *one, const symmem_place *at,
                            symmem_kit_wait *wait, const char *operation) {
    int flag = 0;
    for (;;) {
        int error = MPI_Test(&one->mpi, &flag, MPI_STATUS_IGNORE);
        if (error != MPI_SUCCESS)
            return fail_mpi(self, operation, "MPI_Test", error);
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

static symmem_status move(engine *self, const symmem_place *at, const char *src, char *dst,
                          size_t bytes, const symmem_exec *exec) {
    const char *operation = dst != NULL ? "get" : "put";
    symmem_kit_wait wait = symmem_kit_wait_begin(exec->timeout_ms);
    symmem_status status = SYMMEM_OK;
    request *one = make_request(self, operation, bytes < PIECE ? bytes : PIECE, &status);
    for (size_t done = 0, piece; done < bytes && status == SYMMEM_OK; done += piece) {
        piece = bytes - done < PIECE ? bytes - done : PIECE;
        const int target = self->window->places[at->rank].rank, count = (int)piece;
        const MPI_Aint from = (MPI_Aint)(self->window->places[at->rank].shift + at->offset + done);
        if (dst == NULL)
            memcpy(one->data, src + done, piece);
        int error = dst != NULL ? MPI_Rget(one->data, count, MPI_BYTE, target, from, count,
                                           MPI_BYTE, self->window->mpi, &one->mpi)
                                : MPI_Rput(one->data, count, MPI_BYTE, target, from, count,
                                           MPI_BYTE, self->window->mpi, &one->mpi);
        if (dst == NULL)
            symmem_kit_traffic_put(self->traffic, at->rank);
        status = error == MPI_SUCCESS ? finish(self, one, at, &wait, operation)
                                      : fail_mpi(self, operation, "MPI", error);
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
    pthread_mutex_lock(&mpi.lock);
    request *one = mpi.spare;
    if (one != NULL)
        mpi.spare = one->next;
    pthread_mutex_unlock(&mpi.lock);
    return one;
}

/* MPI keeps the order of accumulates of one rank to one place. Of one that fetches what was there
 * the end says that the word is there. */
static symmem_status reach_write(void *instance, const symmem_place *to, uint32_t value,
                                 const symmem_exec *exec) {
    engine *self = instance;
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
    const place *peer = &self->window->places[to->rank];
    int error = MPI_Rget_accumulate(one->data, 1, MPI_UINT32_T, one->data + sizeof value, 1,
                                    MPI_UINT32_T, peer->rank, (MPI_Aint)(peer->shift + to->offset),
                                    1, MPI_UINT32_T, MPI_REPLACE, self->window->mpi, &one->mpi);
    pthread_mutex_lock(&mpi.lock);
    if (error == MPI_SUCCESS) {
        symmem_kit_traffic_begin(self->traffic, to->rank);
        one->next = mpi.late;
        mpi.late = one;
    } else {
        give_back(one);
    }
    pthread_mutex_unlock(&mpi.lock);
    return error == MPI_SUCCESS ? status
                                : fail_mpi(self, "write_value32", "MPI_Rget_accumulate", error);
}

static symmem_status reach_quiet(void *instance, const symmem_peers *peers,
                                 const symmem_exec *exec) {
    const engine *self = instance;
    const symmem_kit_quiet quiet = {&mpi.helper, flush_window, self->window, reach_progress,
                                    instance};
    int error;
    if (self->window == NULL)
        return SYMMEM_OK;
    symmem_status status =
        symmem_kit_quiet_run(&quiet, self->traffic, self->host, peers, exec, &error);
    return error == MPI_SUCCESS ? status : fail_mpi(self, "quiet", "MPI_Win_flush", error);
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
                                             .close = engine_close,
                                             .device_count = symmem_kit_host_devices,
                                             .device_info = symmem_kit_host_device},
    .copy = &symmem_kit_host_copy,
    .world = &(const symmem_world_ops){.size = sizeof(symmem_world_ops),
                                       .open = world_open,
                                       .close = world_close},
    .reach = &(const symmem_reach_ops){.size = sizeof(symmem_reach_ops),
                                       .put = reach_put,
                                       .get = reach_get,
                                       .write_value32 = reach_write,
                                       .quiet = reach_quiet,
                                       .progress = reach_progress},
};

const symmem_backend *symmem_backend_entry(uint32_t abi) {
    return abi == SYMMEM_BACKEND_ABI ? &table : NULL;
}
