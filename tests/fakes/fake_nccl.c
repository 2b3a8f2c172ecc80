/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A libnccl without GPUs, for unit tests of backend_nccl: communicators and windows that come up in
 * threads of its own once all ranks have called, and calls that fail as a test asks. It is strict:
 * a call while another is under way is refused, and counted.
 *
 * FAKE_VERSION decides what it offers: windows from 2.27 on, ncclTeamLsa from 2.28, the host's
 * query from 2.29 and then no windows on a communicator of more than one domain, ranks that share a
 * device from 2.30, if the environment asks for it.
 */
#include "fake_nccl_internal.h"

#include <cuda.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096u

fake_nccl_state fake_nccl = {.version = FAKE_VERSION};

static struct shared {
    atomic_int last_id;
    meeting meetings[MAX_MEETINGS];
} * shared;

static int count_roots(void) {
    int roots = 0;
    for (int i = 0; i < MAX_MEETINGS; i++)
        roots += atomic_load(&shared->meetings[i].root) == ROOT_WAITS;
    return roots;
}

__attribute__((constructor)) static void start(void) {
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
                  (getenv("FAKE_NCCL_THREADS") != NULL ? MAP_PRIVATE : MAP_SHARED) | MAP_ANONYMOUS,
                  -1, 0);
    if (shared == MAP_FAILED)
        abort();
    fake_nccl.roots = count_roots;
    fake_nccl.is_running = is_running;
}

/* Roots that have not ended look there. */
__attribute__((destructor)) static void stop(void) {
    for (int i = 0; i < MAX_MEETINGS; i++)
        if (atomic_load(&shared->meetings[i].root) != NO_ROOT)
            return;
    munmap(shared, sizeof *shared);
}

static void note_call(void) {
    if (fake_nccl.called)
        return;
    const char *nvls = getenv("NCCL_NVLS_ENABLE");
    fake_nccl.nvls_at_first = nvls == NULL || strcmp(nvls, "0") != 0;
    fake_nccl.called = true;
}

bool goes_wrong(fake_nccl_call call, int rank) {
    if (fake_nccl.call != call || fake_nccl.rank != rank)
        return false;
    return atomic_fetch_sub(&fake_nccl.skip, 1) == 0;
}

PUBLIC ncclResult_t ncclGetVersion(int *version) {
    *version = fake_nccl.version;
    return ncclSuccess;
}

PUBLIC const char *ncclGetErrorString(ncclResult_t result) {
    return result == ncclSuccess ? "no error" : "an error";
}

PUBLIC const char *ncclGetLastError(ncclComm_t comm) {
    return "of the fake";
}

/* A thread that is started now takes the program's signals, or loses those of its faults. */
static void note_mask(void) {
    sigset_t mask;
    (void)pthread_sigmask(SIG_SETMASK, NULL, &mask);
    if (!sigismember(&mask, SIGUSR1) || sigismember(&mask, SIGSEGV))
        atomic_fetch_add(&fake_nccl.takers, 1);
}

/* As NCCL's own: raises the limit of descriptors, and waits in accept, whose failure ends it, for
 * ranks that here come otherwise. */
typedef struct root {
    int fd;
    meeting *meeting;
} root;

static void *run_root(void *opaque) {
    root *r = opaque;
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
    atomic_fetch_add(&fake_nccl.root_threads, 1);
    atomic_store(&r->meeting->raised, true);
    struct pollfd listening = {.fd = r->fd, .events = POLLIN};
    while (atomic_load(&r->meeting->root) == ROOT_WAITS) {
        if (poll(&listening, 1, 1) <= 0)
            continue;
        int stranger = accept4(r->fd, NULL, NULL, SOCK_CLOEXEC);
        if (stranger >= 0)
            close(stranger);
        else
            atomic_store(&r->meeting->root, ROOT_ENDS);
    }
    meeting *its = r->meeting;
    close(r->fd);
    free(r);
    atomic_fetch_sub(&fake_nccl.root_threads, 1);
    atomic_store(&its->root, NO_ROOT);
    return NULL;
}

/* Tests lower the limit as soon as an id is there, or count on its being raised. */
static void await_raised(meeting *its) {
    while (!atomic_load(&its->raised))
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

static bool start_root(meeting *its, struct sockaddr_in *address) {
    pthread_t thread;
    socklen_t length = sizeof *address;
    root *r = calloc(1, sizeof *r);
    if (r == NULL)
        return false;
    *address = (struct sockaddr_in){.sin_family = AF_INET};
    address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    r->meeting = its;
    r->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    atomic_store(&its->root, ROOT_WAITS);
    if (r->fd >= 0 && bind(r->fd, (struct sockaddr *)address, length) == 0 &&
        listen(r->fd, 16) == 0 && getsockname(r->fd, (struct sockaddr *)address, &length) == 0 &&
        pthread_create(&thread, NULL, run_root, r) == 0) {
        await_raised(its);
        return pthread_detach(thread) == 0;
    }
    atomic_store(&its->root, NO_ROOT);
    if (r->fd >= 0)
        close(r->fd);
    free(r);
    return false;
}

PUBLIC ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    struct sockaddr_in address;
    note_call();
    note_mask();
    if (goes_wrong(FAKE_UNIQUE_ID, 0))
        return fake_nccl.result;
    int index = atomic_fetch_add(&shared->last_id, 1) % MAX_MEETINGS;
    memset(id, 0, sizeof *id);
    memset(&shared->meetings[index], 0, sizeof shared->meetings[index]);
    if (!start_root(&shared->meetings[index], &address))
        return ncclSystemError;
    memcpy(id->internal, &index, sizeof index);
    memcpy(id->internal + 8, &address, sizeof address);
    return ncclSuccess;
}

/* --- what goes on in the background ------------------------------------------------- */

/* Of a fake driver that is loaded, which the backend keeps loaded; NULL: there is none. */
static void *driver_symbol(const char *name) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    void *found = driver != NULL ? dlsym(driver, name) : NULL;
    if (driver != NULL)
        dlclose(driver);
    return found;
}

void *driver_function(const char *name) {
    void *found = driver_symbol(name);
    return found != NULL ? found : dlsym(RTLD_DEFAULT, name);
}

/* It has to hear of memory that it did not map. */
static void tell_driver(const char *call, const void *at, size_t bytes) {
    void (*know)(unsigned long long at, size_t bytes) = NULL;
    void *found = driver_function(call);
    memcpy(&know, &found, sizeof know);
    if (know != NULL)
        know((uintptr_t)at, bytes);
}

static void *driver_entry(const char *name) {
    CUresult (*get)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *) =
        NULL;
    CUdriverProcAddressQueryResult how;
    void *found = driver_symbol("cuGetProcAddress_v2"), *entry = NULL;
    memcpy(&get, &found, sizeof get);
    return get != NULL && get(name, &entry, CUDA_VERSION, 0, &how) == CUDA_SUCCESS ? entry : NULL;
}

/* As NCCL has it for each communicator, so that its kernels see that it was aborted. */
static void *pin(void) {
    CUresult (*alloc)(void **, size_t, unsigned int) = NULL;
    void *found = driver_entry("cuMemHostAlloc"), *pinned = NULL;
    memcpy(&alloc, &found, sizeof alloc);
    return alloc != NULL && alloc(&pinned, sizeof(int), 0) == CUDA_SUCCESS ? pinned : NULL;
}

static void unpin(void *pinned) {
    CUresult (*release)(void *) = NULL;
    void *found = driver_entry("cuMemFreeHost");
    memcpy(&release, &found, sizeof release);
    if (pinned != NULL && release != NULL)
        (void)release(pinned);
}

/* As NCCL does, each rank has peers' memory at addresses of its own, for a peer may free it while a
 * kernel here still reads. A test's memory that is no mapping to share is given out as it is. */
static void *map_anew(void *at, size_t bytes, bool *is_own_p) {
    uintptr_t before = (uintptr_t)at % PAGE;
    void *anew = mremap((char *)at - before, 0, before + bytes, MREMAP_MAYMOVE);
    *is_own_p = anew != MAP_FAILED;
    if (anew == MAP_FAILED)
        return at;
    tell_driver("fake_know", anew, before + bytes);
    return (char *)anew + before;
}

/* Ranks of its load/store domains. */
static int domain_of(const struct ncclComm *comm) {
    return fake_nccl.domain != 0 && fake_nccl.domain < comm->world ? fake_nccl.domain : comm->world;
}

/* As if its network took no part. */
static bool makes_windows(const struct ncclComm *comm) {
    return FAKE_VERSION < 22902 || domain_of(comm) == comm->world;
}

static void make_window(struct ncclComm *comm) {
    if (comm->no_window || !makes_windows(comm))
        return;
    fake_window *window = calloc(1, sizeof *window);
    if (window == NULL)
        abort();
    int step = comm->step - 1;
    int domain = domain_of(comm);
    int first = comm->rank / domain * domain;
    window->first = first;
    window->count = domain;
    window->bytes = comm->bytes;
    for (int i = 0; i < domain; i++) {
        window->pointers[i] = atomic_load(&comm->meeting->buffers[step][first + i]);
        if (first + i != comm->rank)
            window->pointers[i] = map_anew(window->pointers[i], window->bytes, &window->own[i]);
    }
    if (!comm->host_window)
        tell_driver("fake_know", window, sizeof *window);
    window->next = comm->windows;
    comm->windows = window;
    atomic_fetch_add(&fake_nccl.windows, 1);
    memcpy(comm->window_p, &window, sizeof window);
}

static void unmap(const fake_window *window) {
    for (int i = 0; i < window->count; i++) {
        uintptr_t before = (uintptr_t)window->pointers[i] % PAGE;
        if (!window->own[i])
            continue;
        tell_driver("fake_forget", (char *)window->pointers[i] - before, 0);
        munmap((char *)window->pointers[i] - before, before + window->bytes);
    }
}

static void drop_window(struct ncclComm *comm, fake_window *window) {
    fake_window **link = &comm->windows;
    while (*link != window)
        link = &(*link)->next;
    *link = window->next;
    tell_driver("fake_forget", window, 0);
    unmap(window);
    free(window);
}

static void tell_root(meeting *its) {
    int waits = ROOT_WAITS;
    (void)atomic_compare_exchange_strong(&its->root, &waits, ROOT_ENDS);
}

/* The root is done once all have come, and gives up on one that expects another number of ranks. */
static void check_in(const struct ncclComm *comm) {
    int announced = 0;
    if (!atomic_compare_exchange_strong(&comm->meeting->announced, &announced, comm->world) &&
        announced != comm->world)
        tell_root(comm->meeting);
    if (atomic_load(&comm->meeting->joined) >= comm->world)
        tell_root(comm->meeting);
}

/* Tests count descriptors as soon as a communicator is there. Its process may have ended. */
static void await_root(const struct ncclComm *comm) {
    const struct timespec pause = {.tv_nsec = 300000};
    check_in(comm); /* the last one may be about to */
    for (int i = 0; i < 10000 && atomic_load(&comm->meeting->root) != NO_ROOT; i++) {
        if (atomic_load(&comm->aborted))
            return;
        nanosleep(&pause, NULL);
    }
}

static int current_device(void) {
    CUresult (*get)(CUdevice *) = NULL;
    CUdevice device = 0;
    void *found = driver_entry("cuCtxGetDevice");
    memcpy(&get, &found, sizeof get);
    return get != NULL && get(&device) == CUDA_SUCCESS ? device : -1;
}

/* Once all have met. */
static bool must_not_share(const struct ncclComm *comm) {
    const char *asked = getenv("NCCL_MULTI_RANK_GPU_ENABLE");
    if (FAKE_VERSION >= 23000 && asked != NULL && strcmp(asked, "1") == 0)
        return false;
    for (int i = 0; i < comm->world; i++)
        for (int k = 0; k < i; k++)
            if (atomic_load(&comm->meeting->devices[i]) != 0 &&
                atomic_load(&comm->meeting->devices[i]) == atomic_load(&comm->meeting->devices[k]))
                return true;
    return false;
}

/* Setting up takes a while, with FAKE_NCCL_LATE_MS a long one. An abort ends it. */
static bool gets_ready(const struct ncclComm *comm) {
    const struct timespec pause = {.tv_nsec = 300000};
    const char *late = comm->count == &comm->meeting->joined ? getenv("FAKE_NCCL_LATE_MS") : NULL;
    const int pauses = late == NULL ? 1 : atoi(late) * 3;
    for (int i = 0; i < pauses && !atomic_load(&comm->aborted); i++)
        nanosleep(&pause, NULL);
    return !atomic_load(&comm->aborted);
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void *work(void *opaque) {
    struct ncclComm *comm = opaque;
    const struct timespec pause = {.tv_nsec = 300000};
    ncclResult_t result = comm->result;
    if (gets_ready(comm) && !comm->fails && !comm->hangs)
        atomic_fetch_add(comm->count, 1);
    if (!comm->fails && !comm->hangs && comm->count == &comm->meeting->joined)
        check_in(comm);
    while (!comm->fails && !atomic_load(&comm->aborted) &&
           (comm->hangs || atomic_load(comm->count) < comm->world))
        nanosleep(&pause, NULL);
    if (!comm->fails && !atomic_load(&comm->aborted) && comm->count == &comm->meeting->joined) {
        comm->has_met = true;
        await_root(comm);
        result = must_not_share(comm) ? ncclInvalidUsage : result;
    }
    if (!comm->fails && atomic_load(&comm->aborted))
        result = ncclInternalError;
    else if (!comm->fails && comm->moves)
        result = move_all(comm);
    else if (!comm->fails && comm->window_p != NULL)
        make_window(comm);
    atomic_store(&comm->state, (int)result);
    if (comm->fails)
        atomic_store(&fake_nccl.failed_ns, now_ns());
    return NULL;
}

static void join(struct ncclComm *comm) {
    if (comm->has_thread && !comm->has_joined) {
        pthread_join(comm->thread, NULL);
        atomic_fetch_sub(&fake_nccl.threads, 1);
        comm->has_joined = true;
    }
}

ncclResult_t launch(struct ncclComm *comm, fake_nccl_call call, atomic_int *count) {
    bool wrong = goes_wrong(call, comm->rank);
    if (wrong && fake_nccl.way == FAKE_FAILS_AT_ONCE)
        return fake_nccl.result;
    join(comm);
    comm->count = count;
    comm->moves = call == FAKE_COLLECTIVE;
    comm->fails = wrong && fake_nccl.way == FAKE_FAILS_LATER;
    comm->hangs = wrong && fake_nccl.way == FAKE_NEVER_ENDS;
    comm->no_window = wrong && fake_nccl.way == FAKE_NO_WINDOW;
    comm->host_window = wrong && fake_nccl.way == FAKE_HOST_WINDOW;
    comm->result = comm->fails ? fake_nccl.result : ncclSuccess;
    atomic_store(&comm->state, ncclInProgress);
    comm->has_joined = false;
    note_mask();
    comm->has_thread = pthread_create(&comm->thread, NULL, work, comm) == 0;
    if (!comm->has_thread)
        return ncclSystemError;
    atomic_fetch_add(&fake_nccl.threads, 1);
    return ncclInProgress;
}

/* --- communicators ------------------------------------------------------------------ */

PUBLIC ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm_p, int world, ncclUniqueId id, int rank,
                                           ncclConfig_t *config) {
    int index;
    note_call();
    memcpy(&index, id.internal, sizeof index);
    *comm_p = NULL;
    if (config->blocking != 0 || config->magic != 0xcafebeef || index >= MAX_MEETINGS) {
        atomic_fetch_add(&fake_nccl.misuses, 1);
        return ncclInvalidArgument;
    }
    struct ncclComm *comm = calloc(1, sizeof *comm);
    if (comm == NULL)
        return ncclSystemError;
    comm->rank = rank;
    comm->world = world;
    comm->meeting = &shared->meetings[index];
    atomic_store(&comm->meeting->devices[rank], current_device() + 1);
    atomic_fetch_add(&fake_nccl.inits, 1);
    if (config->maxCTAs == NCCL_CONFIG_UNDEF_INT)
        atomic_fetch_add(&fake_nccl.wide, 1);
    ncclResult_t result = launch(comm, FAKE_INIT, &comm->meeting->joined);
    if (result != ncclInProgress) {
        free(comm);
        return result;
    }
    comm->pinned = pin();
    atomic_fetch_add(&fake_nccl.comms, 1);
    *comm_p = comm;
    return ncclInProgress;
}

PUBLIC ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state_p) {
    *state_p = (ncclResult_t)atomic_load(&comm->state);
    if (*state_p != ncclInProgress)
        join(comm);
    return ncclSuccess;
}

/* As NCCL does, it keeps the memory of one that is given up before its ranks have met. */
PUBLIC ncclResult_t ncclCommAbort(ncclComm_t comm) {
    stop_running(comm);
    for (int i = 0; i < 6000 && atomic_load(&fake_nccl.held) != 0; i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    atomic_store(&comm->aborted, true);
    join(comm);
    while (comm->windows != NULL) /* those that it should have given back are still counted */
        drop_window(comm, comm->windows);
    if (comm->has_met)
        unpin(comm->pinned);
    atomic_fetch_sub(&fake_nccl.comms, 1);
    atomic_fetch_add(&fake_nccl.aborts, 1);
    free(comm);
    return ncclSuccess;
}

PUBLIC ncclResult_t ncclCommCount(const ncclComm_t comm, int *count_p) {
    *count_p = comm->world;
    return ncclSuccess;
}

PUBLIC ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank_p) {
    *rank_p = comm->rank;
    return ncclSuccess;
}

PUBLIC ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device_p) {
    *device_p = comm->rank; /* as the tests place their ranks */
    return ncclSuccess;
}

/* --- windows ------------------------------------------------------------------------ */

#if FAKE_VERSION >= 22700
static bool is_busy(struct ncclComm *comm) {
    if (atomic_load(&comm->state) != ncclInProgress)
        return false;
    atomic_fetch_add(&fake_nccl.misuses, 1);
    return true;
}

PUBLIC ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *buffer, size_t bytes,
                                           ncclWindow_t *window_p, int flags) {
    if (is_busy(comm) || bytes == 0 || flags != NCCL_WIN_DEFAULT || comm->step == MAX_STEPS)
        return ncclInvalidArgument;
    int step = comm->step++;
    comm->window_p = window_p;
    comm->bytes = bytes;
    atomic_store(&comm->meeting->buffers[step][comm->rank], buffer);
    atomic_fetch_add(&fake_nccl.registrations, 1);
    return launch(comm, FAKE_REGISTER, &comm->meeting->registered[step]);
}

PUBLIC ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t opaque) {
    fake_window *window;
    memcpy(&window, &opaque, sizeof window);
    if (is_busy(comm))
        return ncclInvalidArgument;
    drop_window(comm, window);
    atomic_fetch_sub(&fake_nccl.windows, 1);
    atomic_fetch_add(&fake_nccl.deregistrations, 1);
    return ncclSuccess;
}
#endif

#if FAKE_VERSION >= 22800
typedef struct team {
    int rank_count, rank, stride;
} team;

PUBLIC team ncclTeamLsa(ncclComm_t comm);
PUBLIC team ncclTeamLsa(ncclComm_t comm) {
    const int *told = comm->rank == 0 ? fake_nccl.nonsense : NULL;
    if (told != NULL)
        return (team){told[0], told[1], told[2]};
    return (team){domain_of(comm), comm->rank % domain_of(comm), 1};
}
#endif

#if FAKE_VERSION >= 22900
PUBLIC ncclResult_t ncclGetPeerDevicePointer(ncclWindow_t opaque, size_t offset, int peer,
                                             void **pointer_p);
PUBLIC ncclResult_t ncclGetPeerDevicePointer(ncclWindow_t opaque, size_t offset, int peer,
                                             void **pointer_p) {
    fake_window *window;
    memcpy(&window, &opaque, sizeof window);
    if (offset != 0 || peer < 0 || peer >= FAKE_NCCL_RANKS)
        return ncclInvalidArgument;
    if (goes_wrong(FAKE_POINTER, fake_nccl.rank))
        return fake_nccl.result;
    int place = peer - window->first;
    *pointer_p = place >= 0 && place < window->count ? window->pointers[place] : NULL;
    return ncclSuccess;
}
#endif
