/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A backend over MPI-3 one-sided communication: a rank's heap is its part of a window. MPI calls
 * may wait for peers and know no limit, so those that do run in a thread of their own, which starts
 * MPI, makes the windows, completes what was put, and ends MPI when the process exits. Calls of the
 * backend wait for that thread with their limit.
 */
#include <errno.h>
#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <symmem/backend.h>
#include <time.h>

#define NS_PER_MS 1000000ull
#define PIECE ((size_t)1 << 20) /* bytes of one put or get */
#define EXIT_MS 10000u          /* for MPI_Finalize, which waits for all ranks */
#define LOOK_MS 20u             /* between two questions whether a peer lives */

/* A request that may outlast its call: the buffer is MPI's until it has ended. */
typedef struct request {
    struct request *next;
    MPI_Request mpi;
    unsigned char data[];
} request;

typedef struct window {
    struct window *next;
    MPI_Win mpi;
    char *base;
    size_t bytes;
} window;

typedef struct engine {
    const symmem_host *host;
    int32_t rank, world_size;
    window window;
    int *ranks;     /* in MPI_COMM_WORLD, of each rank of the context */
    size_t *shifts; /* from the start of each rank's part of the window to its heap */
    pthread_mutex_t lock;
    request *late; /* words under way, and what a call has given up */
} engine;

/* --- the thread that may wait --------------------------------------------------------------- */

typedef enum job { NOTHING, START, WINDOW, FLUSH, END } job;

/* The process's: MPI starts once. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    job task;
    window *window;  /* of the task; heap's, so that it outlasts a call that gives up */
    window *windows; /* that all ranks have, the newest first */
    uint64_t asked, done;
    int error;
    bool running, broken; /* broken: a start or a window was given up halfway */
    int rank, size, provided;
} mpi = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static int start(void) {
    int error = MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &mpi.provided);
    if (error == MPI_SUCCESS) {
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        MPI_Comm_rank(MPI_COMM_WORLD, &mpi.rank);
        MPI_Comm_size(MPI_COMM_WORLD, &mpi.size);
    }
    return error;
}

static int make_window(window *made) {
    int error = MPI_Win_allocate((MPI_Aint)made->bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD,
                                 &made->base, &made->mpi);
    if (error != MPI_SUCCESS)
        return error;
    MPI_Win_set_errhandler(made->mpi, MPI_ERRORS_RETURN);
    made->next = mpi.windows;
    mpi.windows = made;
    return MPI_Win_lock_all(MPI_MODE_NOCHECK, made->mpi);
}

/* All ranks free their windows in one order. */
static int end_all(void) {
    for (const window *made = mpi.windows; made != NULL; made = made->next) {
        MPI_Win freed = made->mpi;
        MPI_Win_unlock_all(freed);
        MPI_Win_free(&freed);
    }
    return MPI_Finalize();
}

static int perform(job task, window *made) {
    switch (task) {
    case START:
        return start();
    case WINDOW:
        return make_window(made);
    case FLUSH:
        return MPI_Win_flush_all(made->mpi);
    default:
        return end_all();
    }
}

static void *serve(void *arg) {
    job task = NOTHING;
    while (task != END) {
        pthread_mutex_lock(&mpi.lock);
        while (mpi.task == NOTHING)
            pthread_cond_wait(&mpi.changed, &mpi.lock);
        task = mpi.task;
        window *made = mpi.window;
        pthread_mutex_unlock(&mpi.lock);
        int error = perform(task, made);
        pthread_mutex_lock(&mpi.lock);
        mpi.error = error;
        mpi.task = NOTHING;
        mpi.done++;
        pthread_mutex_unlock(&mpi.lock);
    }
    return arg;
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 * NS_PER_MS + (uint64_t)now.tv_nsec;
}

static void sleep_us(long us) {
    nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL);
}

/* False: the time is up, or over_fn says that it is. The thread goes on with the task. */
static bool ask(job task, window *made, uint64_t end_ns, bool (*over_fn)(void *), void *arg,
                int *error_p) {
    bool done = false, sent = false;
    uint64_t number = 0, look_ns = now_ns() + LOOK_MS * NS_PER_MS;
    for (unsigned turns = 0; !done; turns++) {
        pthread_mutex_lock(&mpi.lock);
        if (!sent && mpi.task == NOTHING && mpi.asked == mpi.done) {
            mpi.task = task;
            mpi.window = made;
            number = ++mpi.asked;
            sent = true;
            pthread_cond_signal(&mpi.changed);
        }
        done = sent && mpi.done >= number;
        if (done)
            *error_p = mpi.error;
        pthread_mutex_unlock(&mpi.lock);
        const uint64_t now = now_ns();
        if (!done &&
            ((end_ns != 0 && now >= end_ns) || (over_fn != NULL && now >= look_ns && over_fn(arg))))
            return false;
        if (!done && turns > 100)
            sleep_us(50);
        else if (!done)
            (void)sched_yield();
    }
    return true;
}

/* mpirun takes a process that ends without MPI_Finalize for one that has failed. */
static void end_mpi(void) {
    int error;
    if (!mpi.broken)
        (void)ask(END, NULL, now_ns() + EXIT_MS * NS_PER_MS, NULL, NULL, &error);
}

static int start_thread(void) {
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
    sigset_t blocked, old;
    pthread_t thread;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        sigdelset(&blocked, faults[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, &old);
    int error = pthread_create(&thread, NULL, serve, NULL);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (error == 0)
        pthread_detach(thread);
    return error;
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
    pthread_mutex_init(&self->lock, NULL);
    *instance_p = self;
    return SYMMEM_OK;
}

static void engine_close(void *instance) {
    engine *self = instance;
    pthread_mutex_destroy(&self->lock);
    free(self); /* requests that have not ended are MPI's until the process exits */
}

static symmem_status engine_devices(void *instance, int32_t *count_p) {
    (void)instance;
    *count_p = SYMMEM_MAX_WORLD_SIZE;
    return SYMMEM_OK;
}

static symmem_status engine_device(void *instance, int32_t device, symmem_device_info *info_p) {
    (void)instance;
    info_p->device_type = 1; /* kDLCPU */
    info_p->granularity = SYMMEM_ALIGNMENT;
    snprintf(info_p->name, sizeof info_p->name, "window of rank %d", (int)device);
    return SYMMEM_OK;
}

/* --- world ---------------------------------------------------------------------------------- */

static bool someone_failed(void *exchange_v) {
    const symmem_exchange *exchange = exchange_v;
    for (int32_t r = 0; r < exchange->world_size; r++)
        if (exchange->peer_state(exchange, r) == SYMMEM_PEER_GONE)
            return true;
    return false;
}

/* A task that all ranks take part in. Given up halfway, MPI can do no other. */
static symmem_status together(engine *self, const symmem_exchange *exchange, job task, window *made,
                              const char *step) {
    int error = MPI_SUCCESS;
    if (ask(task, made, exchange->deadline_ns, someone_failed, (void *)(uintptr_t)exchange, &error))
        return error == MPI_SUCCESS ? SYMMEM_OK : fail_mpi(self, "join", step, error);
    mpi.broken = true;
    return self->host->fail(
        self->host, someone_failed((void *)(uintptr_t)exchange) ? SYMMEM_PEER_LOST : SYMMEM_TIMEOUT,
        0, "join", "%s was given up", step);
}

static symmem_status start_mpi(engine *self, const symmem_exchange *exchange) {
    const symmem_host *host = self->host;
    if (mpi.broken)
        return host->fail(host, SYMMEM_BACKEND, 0, "join", "MPI's start was given up before");
    if (!mpi.running) {
        int error = start_thread();
        if (error != 0)
            return host->fail(host, SYMMEM_SYSTEM, error, "join", "a thread for MPI");
        mpi.running = true;
        symmem_status status = together(self, exchange, START, NULL, "MPI_Init_thread");
        if (status != SYMMEM_OK)
            return status;
        atexit(end_mpi);
    }
    if (mpi.provided != MPI_THREAD_MULTIPLE)
        return host->fail(host, SYMMEM_BACKEND, 0, "join", "MPI has not MPI_THREAD_MULTIPLE");
    if (mpi.size != self->world_size)
        return host->fail(host, SYMMEM_BACKEND, 0, "join",
                          "MPI has %d ranks, the context %d: start the program by mpirun, one "
                          "process for each rank",
                          mpi.size, (int)self->world_size);
    return SYMMEM_OK;
}

static void forget_ranks(engine *self) {
    free(self->ranks);
    free(self->shifts);
    self->ranks = NULL;
    self->shifts = NULL;
}

/* Where each rank's heap lies. */
static symmem_status learn_ranks(engine *self, const symmem_exchange *exchange) {
    const size_t over = (uintptr_t)self->window.base % SYMMEM_ALIGNMENT;
    const uint64_t own[2] = {(uint64_t)mpi.rank, over == 0 ? 0 : SYMMEM_ALIGNMENT - over};
    const size_t count = (size_t)self->world_size;
    uint64_t *all = calloc(count, sizeof own);
    self->ranks = calloc(count, sizeof *self->ranks);
    self->shifts = calloc(count, sizeof *self->shifts);
    symmem_status status = SYMMEM_OK;
    if (all == NULL || self->ranks == NULL || self->shifts == NULL)
        status = self->host->fail(self->host, SYMMEM_OUT_OF_MEMORY, ENOMEM, "join", "no memory");
    status = exchange->agree(exchange, status, "mpi.ranks");
    if (status == SYMMEM_OK)
        status = exchange->all_gather(exchange, own, sizeof own, all);
    for (size_t r = 0; r < count && status == SYMMEM_OK; r++) {
        self->ranks[r] = (int)all[2 * r];
        self->shifts[r] = (size_t)all[2 * r + 1];
    }
    free(all);
    return status;
}

static symmem_status world_open(void *instance, const symmem_exchange *exchange,
                                const symmem_world_config *config, symmem_memory *heap) {
    engine *self = instance;
    symmem_status status = exchange->agree(exchange, start_mpi(self, exchange), "mpi.start");
    if (status != SYMMEM_OK)
        return status;
    window *made = calloc(1, sizeof *made); /* stays if the task is given up */
    if (made == NULL)
        status = self->host->fail(self->host, SYMMEM_OUT_OF_MEMORY, ENOMEM, "join", "no memory");
    status = exchange->agree(exchange, status, "mpi.window");
    if (status != SYMMEM_OK) {
        free(made);
        return status;
    }
    made->bytes = config->heap_bytes + SYMMEM_ALIGNMENT;
    status = exchange->agree(exchange, together(self, exchange, WINDOW, made, "MPI_Win_allocate"),
                             "mpi.allocate");
    if (status == SYMMEM_OK) {
        self->window = *made;
        status = learn_ranks(self, exchange);
    }
    if (status != SYMMEM_OK) {
        forget_ranks(self);
        return status;
    }
    *heap = (symmem_memory){.ptr = self->window.base + self->shifts[self->rank],
                            .bytes = config->heap_bytes,
                            .device = -1,
                            .priv = self};
    return SYMMEM_OK;
}

/* To free a window takes all ranks: it stays until the process ends, and peers may write to it. */
static void world_close(void *instance, symmem_memory *heap) {
    (void)heap;
    forget_ranks(instance);
}

/* --- reach ---------------------------------------------------------------------------------- */

static void reach_progress(void *instance) {
    engine *self = instance;
    int flag;
    pthread_mutex_lock(&self->lock);
    for (request **at = &self->late; *at != NULL;) {
        request *one = *at;
        flag = 0;
        if (MPI_Test(&one->mpi, &flag, MPI_STATUS_IGNORE) == MPI_SUCCESS && !flag) {
            at = &one->next;
            continue;
        }
        *at = one->next;
        free(one);
    }
    pthread_mutex_unlock(&self->lock);
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    MPI_Win_sync(self->window.mpi);
}

static void leave_to_mpi(engine *self, request *one) {
    pthread_mutex_lock(&self->lock);
    one->next = self->late;
    self->late = one;
    pthread_mutex_unlock(&self->lock);
}

static request *make_request(const engine *self, const char *operation, size_t bytes,
                             symmem_status *status_p) {
    request *made = malloc(sizeof *made + bytes);
    *status_p = SYMMEM_OK;
    if (made == NULL)
        *status_p =
            self->host->fail(self->host, SYMMEM_OUT_OF_MEMORY, ENOMEM, operation, "no memory");
    return made;
}

/* Waits for the request, which is MPI's after a failure and the caller's else. */
static symmem_status finish(engine *self, request *one, const symmem_place *place, uint64_t end_ns,
                            const char *operation) {
    uint64_t look_ns = now_ns() + LOOK_MS * NS_PER_MS;
    int flag = 0;
    for (unsigned turns = 0;; turns++) {
        int error = MPI_Test(&one->mpi, &flag, MPI_STATUS_IGNORE);
        symmem_status status = SYMMEM_OK;
        if (error != MPI_SUCCESS)
            return fail_mpi(self, operation, "MPI_Test", error);
        if (flag)
            return SYMMEM_OK;
        const uint64_t now = now_ns();
        if (now >= look_ns && place->peers != NULL &&
            self->host->peer_state(place->peers, place->peer) == SYMMEM_PEER_GONE)
            status = self->host->fail(self->host, SYMMEM_PEER_LOST, 0, operation, "it has ended");
        else if (end_ns != 0 && now >= end_ns)
            status = self->host->fail(self->host, SYMMEM_TIMEOUT, 0, operation, "MPI goes not on");
        if (status != SYMMEM_OK) {
            leave_to_mpi(self, one);
            return status;
        }
        look_ns = now >= look_ns ? now + LOOK_MS * NS_PER_MS : look_ns;
        if (turns > 1000)
            sleep_us(50);
    }
}

static symmem_status move(engine *self, const symmem_place *place, const char *src, char *dst,
                          size_t bytes, const symmem_exec *exec) {
    const char *operation = dst != NULL ? "get" : "put";
    const uint64_t end_ns = exec->timeout_ms == 0 ? 0 : now_ns() + exec->timeout_ms * NS_PER_MS;
    symmem_status status = SYMMEM_OK;
    request *one = make_request(self, operation, bytes < PIECE ? bytes : PIECE, &status);
    for (size_t done = 0, piece; done < bytes && status == SYMMEM_OK; done += piece) {
        piece = bytes - done < PIECE ? bytes - done : PIECE;
        const int target = self->ranks[place->rank], count = (int)piece;
        const MPI_Aint at = (MPI_Aint)(self->shifts[place->rank] + place->offset + done);
        if (dst == NULL)
            memcpy(one->data, src + done, piece);
        int error = dst != NULL ? MPI_Rget(one->data, count, MPI_BYTE, target, at, count, MPI_BYTE,
                                           self->window.mpi, &one->mpi)
                                : MPI_Rput(one->data, count, MPI_BYTE, target, at, count, MPI_BYTE,
                                           self->window.mpi, &one->mpi);
        status = error == MPI_SUCCESS ? finish(self, one, place, end_ns, operation)
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

/* MPI keeps the order of accumulates of one rank to one place. */
static symmem_status reach_write(void *instance, const symmem_place *to, uint32_t value,
                                 const symmem_exec *exec) {
    engine *self = instance;
    symmem_status status;
    (void)exec;
    request *one = make_request(self, "write_value32", sizeof value, &status);
    if (one == NULL)
        return status;
    memcpy(one->data, &value, sizeof value);
    int error = MPI_Raccumulate(one->data, 1, MPI_UINT32_T, self->ranks[to->rank],
                                (MPI_Aint)(self->shifts[to->rank] + to->offset), 1, MPI_UINT32_T,
                                MPI_REPLACE, self->window.mpi, &one->mpi);
    if (error != MPI_SUCCESS) {
        free(one);
        return fail_mpi(self, "write_value32", "MPI_Raccumulate", error);
    }
    leave_to_mpi(self, one);
    return SYMMEM_OK;
}

/* While this rank waits it lets its peers in. */
static bool let_in(void *instance) {
    reach_progress(instance);
    return false;
}

static symmem_status reach_quiet(void *instance, const symmem_peers *peers,
                                 const symmem_exec *exec) {
    engine *self = instance;
    const uint64_t end_ns = exec->timeout_ms == 0 ? 0 : now_ns() + exec->timeout_ms * NS_PER_MS;
    int error = MPI_SUCCESS;
    (void)peers;
    if (!ask(FLUSH, &self->window, end_ns, let_in, self, &error))
        return self->host->fail(self->host, SYMMEM_TIMEOUT, 0, "quiet", "MPI_Win_flush_all");
    return error == MPI_SUCCESS ? SYMMEM_OK : fail_mpi(self, "quiet", "MPI_Win_flush_all", error);
}

/* --- own memory ----------------------------------------------------------------------------- */

static symmem_status local_copy(void *instance, int32_t device, void *dst, const void *src,
                                size_t bytes, const symmem_exec *exec) {
    (void)instance, (void)device, (void)exec;
    if (bytes > 0)
        memmove(dst, src, bytes);
    return SYMMEM_OK;
}

static symmem_status local_fill(void *instance, int32_t device, void *dst, uint32_t value,
                                size_t count, const symmem_exec *exec) {
    uint32_t *words = dst;
    (void)instance, (void)device, (void)exec;
    for (size_t i = 0; i < count; i++)
        words[i] = value;
    return SYMMEM_OK;
}

static symmem_status local_write(void *instance, int32_t device, void *dst, uint32_t value,
                                 const symmem_exec *exec) {
    (void)instance, (void)device, (void)exec;
    /* release; pairs with: the load of the thread that polls the word */
    atomic_store_explicit((_Atomic uint32_t *)dst, value, memory_order_release);
    return SYMMEM_OK;
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
                                             .device_count = engine_devices,
                                             .device_info = engine_device},
    .copy = &(const symmem_copy_ops){.size = sizeof(symmem_copy_ops),
                                     .copy = local_copy,
                                     .memset32 = local_fill,
                                     .write_value32 = local_write},
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
