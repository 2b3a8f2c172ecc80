/* SPDX-License-Identifier: BSD-3-Clause */
#include "shm_fake_host.h"

#include <dirent.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "shm.h"
#include "unit_clock.h"
#include "backend.h"

const symmem_backend *backend;

__attribute__((constructor)) static void find_backend(void) {
    backend = symmem_backend_entry(SYMMEM_BACKEND_ABI);
}

/* Of the world that has one; NULL: the machine's. */
static unit_clock *_Atomic clock_used; /* threads that outlive a test read it, and end unseen */

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            exit(2);                                                                               \
        }                                                                                          \
    } while (0)

__attribute__((format(printf, 5, 6))) static symmem_status
host_fail(const symmem_host *host, symmem_status status, int system_errno, const char *operation,
          const char *format, ...) {
    fake_host *self = host->self;
    pthread_mutex_lock(&self->lock);
    self->status = status;
    va_list args;
    va_start(args, format);
    vsnprintf(self->text, sizeof self->text, format, args);
    va_end(args);
    pthread_mutex_unlock(&self->lock);
    atomic_fetch_add(&self->fail_count, 1);
    return status;
}

static symmem_status host_fail_sizes(const symmem_host *host, symmem_status status,
                                     int system_errno, const char *operation, uint64_t expected,
                                     uint64_t actual) {
    fake_host *self = host->self;
    host_fail(host, status, system_errno, operation, "sizes");
    self->expected = expected;
    self->actual = actual;
    return status;
}

__attribute__((format(printf, 2, 3))) static void host_explain(const symmem_host *host,
                                                               const char *format, ...) {
    fake_host *self = host->self;
    const size_t used = strlen(self->text);
    va_list args;
    va_start(args, format);
    vsnprintf(self->text + used, sizeof self->text - used, format, args);
    va_end(args);
}

static void host_notice(const symmem_host *host, const char *text) {
    fake_host *self = host->self;
    snprintf(self->notice, sizeof self->notice, "%s", text);
    atomic_fetch_add(&self->notice_count, 1);
}

static symmem_status host_point(const symmem_host *host, const char *name) {
    fake_host *self = host->self;
    const char *fail_name = atomic_load(&self->fail_name);
    if (fail_name && strcmp(fail_name, name) == 0 &&
        atomic_fetch_sub(&self->fail_visit, 1) == 0) /* as the core does: the record is filled */
        return host_fail(host, self->fail_status, 0, "backend", "the failpoint %s failed", name);
    return SYMMEM_OK;
}

static void host_signal_failed(const symmem_peers *peers, const symmem_fault *fault,
                               symmem_error_record *record_p) {
    fake_host *self = peers->host->self;
    pthread_mutex_lock(&self->lock);
    self->fault = *fault;
    pthread_mutex_unlock(&self->lock);
    atomic_fetch_add(&self->fault_count, 1);
    atomic_store(&self->poisoned, true);
    memset(record_p, 0, sizeof *record_p);
    record_p->status = fault->status;
    record_p->channel = fault->channel;
    record_p->elapsed_ns = fault->elapsed_ns;
    memcpy(record_p->missing, fault->missing, sizeof record_p->missing);
    snprintf(record_p->operation, sizeof record_p->operation, "%s", fault->operation);
    fake_rank *rank = peers->self;
    backend->signal->poison(rank->instance, peers);
}

static symmem_peer_state host_peer_state(const symmem_peers *peers, int32_t rank) {
    fake_host *self = peers->host->self;
    if (!atomic_load(&self->gone[rank]))
        return SYMMEM_PEER_ALIVE;
    if (self->last_deed)
        atomic_store(self->last_deed, 1);
    return SYMMEM_PEER_GONE;
}

static bool host_is_poisoned(const symmem_peers *peers) {
    fake_host *self = peers->host->self;
    return atomic_load(&self->poisoned);
}

void fake_host_init(fake_host *host) {
    memset(host, 0, sizeof *host);
    pthread_mutex_init(&host->lock, NULL);
    host->host = (symmem_host){.size = sizeof(symmem_host),
                               .self = host,
                               .fail = host_fail,
                               .fail_sizes = host_fail_sizes,
                               .notice = host_notice,
                               .point = host_point,
                               .has_points = true,
                               .signal_failed = host_signal_failed,
                               .peer_state = host_peer_state,
                               .is_poisoned = host_is_poisoned,
                               .explain = host_explain,
                               .clock = clock_used == NULL ? NULL : &clock_used->clock};
}

void fake_host_clear(fake_host *host) {
    atomic_store(&host->poisoned, false);
    atomic_store(&host->fault_count, 0);
    atomic_store(&host->fail_count, 0);
    atomic_store(&host->notice_count, 0);
    host->fail_name = NULL;
    host->last_deed = NULL;
    for (int i = 0; i < FAKE_MAX_RANKS; i++)
        atomic_store(&host->gone[i], false);
    memset(&host->fault, 0, sizeof host->fault);
    memset(host->text, 0, sizeof host->text);
}

static void *open_instance(fake_host *host, int32_t rank, int32_t world_size) {
    symmem_backend_config config = {.size = sizeof config,
                                    .rank = rank,
                                    .world_size = world_size,
                                    .local_rank = rank,
                                    .multicast_allowed = 1};
    void *instance = NULL;
    CHECK(backend->instance->open(&host->host, &config, &instance) == SYMMEM_OK);
    return instance;
}

void *fake_open(fake_host *host) {
    fake_host_init(host);
    return open_instance(host, 0, 1);
}

static void open_peers(fake_world *world, fake_rank *rank, int32_t index, bool same_process) {
    for (int32_t peer = 0; peer < world->size; peer++) {
        symmem_share buffer = world->buffer_shares[peer];
        symmem_share signal = world->signal_shares[peer];
        buffer.same_process = signal.same_process = same_process;
        CHECK(backend->memory->map(rank->instance, index, &buffer, world->bytes,
                                   &rank->peer_buffer[peer]) == SYMMEM_OK);
        CHECK(backend->memory->map(
                  rank->instance, index, &signal,
                  backend->signal->bytes(rank->instance, world->size, world->channels, 0),
                  &rank->peer_signal[peer]) == SYMMEM_OK);
        rank->buffers[peer] = rank->peer_buffer[peer].ptr;
        rank->signals[peer] = rank->peer_signal[peer].ptr;
        rank->global_ranks[peer] = peer;
    }
    rank->peers = (symmem_peers){
        .size = sizeof(symmem_peers),
        .host = &rank->host.host,
        .self = rank,
        .rank = index,
        .world_size = world->size,
        .device = index,
        .channel_count = world->channels,
        .buffers = rank->buffers,
        .buffer_bytes = world->bytes,
        .pads = rank->buffers,
        .signals = rank->signals,
        .signal_bytes = backend->signal->bytes(rank->instance, world->size, world->channels, 0),
        .global_ranks = rank->global_ranks,
        .local_rank_count = world->size};
    void *buffers_dev;
    void *pads_dev;
    CHECK(backend->signal->peers_open(rank->instance, &rank->peers, &buffers_dev, &pads_dev) ==
          SYMMEM_OK);
    CHECK(memcmp(buffers_dev, rank->buffers, sizeof(void *) * (size_t)world->size) == 0);
    CHECK(memcmp(pads_dev, rank->buffers, sizeof(void *) * (size_t)world->size) == 0);
}

static void close_peers(fake_world *world, fake_rank *rank) {
    backend->signal->peers_close(rank->instance, &rank->peers);
    for (int32_t peer = 0; peer < world->size; peer++) {
        backend->memory->release(rank->instance, &rank->peer_buffer[peer]);
        backend->memory->release(rank->instance, &rank->peer_signal[peer]);
    }
}

fake_world *fake_world_open(int32_t size, int32_t channels, size_t bytes) {
    fake_world *world = calloc(1, sizeof *world);
    CHECK(world);
    world->size = size;
    world->channels = channels;
    world->bytes = bytes;
    world->ranks = calloc((size_t)size, sizeof *world->ranks);
    CHECK(world->ranks);
    for (int32_t i = 0; i < size; i++) {
        fake_rank *rank = &world->ranks[i];
        rank->world = world;
        fake_host_init(&rank->host);
        rank->instance = open_instance(&rank->host, i, size);
        size_t signal_bytes = backend->signal->bytes(rank->instance, size, channels, 0);
        CHECK(backend->memory->alloc(rank->instance, i, bytes, &rank->buffer) == SYMMEM_OK);
        CHECK(backend->memory->alloc(rank->instance, i, signal_bytes, &rank->signal) == SYMMEM_OK);
        CHECK(backend->memory->share(rank->instance, &rank->buffer, &world->buffer_shares[i]) ==
              SYMMEM_OK);
        CHECK(backend->memory->share(rank->instance, &rank->signal, &world->signal_shares[i]) ==
              SYMMEM_OK);
    }
    for (int32_t i = 0; i < size; i++)
        open_peers(world, &world->ranks[i], i, true);
    return world;
}

fake_world *fake_world_open_timed(int32_t size, int32_t channels, size_t bytes) {
    clock_used = unit_clock_open();
    CHECK(clock_used);
    return fake_world_open(size, channels, bytes);
}

void fake_world_close(fake_world *world) {
    for (int32_t i = 0; i < world->size; i++) {
        fake_rank *rank = &world->ranks[i];
        close_peers(world, rank);
        backend->memory->unshare(rank->instance, &world->buffer_shares[i]);
        backend->memory->unshare(rank->instance, &world->signal_shares[i]);
        backend->memory->release(rank->instance, &rank->buffer);
        backend->memory->release(rank->instance, &rank->signal);
        backend->instance->close(rank->instance);
        pthread_mutex_destroy(&rank->host.lock);
    }
    free(world->ranks);
    free(world);
    if (clock_used)
        unit_clock_close(clock_used);
    clock_used = NULL;
}

void fake_world_reset(fake_world *world) {
    for (int32_t i = 0; i < world->size; i++) {
        fake_rank *rank = &world->ranks[i];
        CHECK(backend->signal->reset(rank->instance, &rank->peers) == SYMMEM_OK);
        fake_host_clear(&rank->host);
    }
}

typedef struct thread_call {
    fake_rank *rank;
    int (*fn)(fake_rank *rank);
    int result;
} thread_call;

static void count_threads(int change) {
    if (clock_used)
        unit_clock_threads(clock_used, change);
}

static void *run_thread(void *arg) {
    thread_call *call = arg;
    call->result = call->fn(call->rank);
    count_threads(-1);
    return NULL;
}

int fake_run_threads(fake_world *world, int (*fn)(fake_rank *rank)) {
    pthread_t threads[FAKE_MAX_RANKS];
    thread_call calls[FAKE_MAX_RANKS];
    int failed = 0;
    count_threads(world->size);
    for (int32_t i = 0; i < world->size; i++) {
        calls[i] = (thread_call){.rank = &world->ranks[i], .fn = fn};
        CHECK(pthread_create(&threads[i], NULL, run_thread, &calls[i]) == 0);
    }
    count_threads(-1); /* this one only joins */
    for (int32_t i = 0; i < world->size; i++) {
        pthread_join(threads[i], NULL);
        if (calls[i].result != 0) {
            printf("\n    rank %d: %d\n", (int)i, calls[i].result);
            failed++;
        }
    }
    count_threads(1);
    return failed;
}

/* In the child: everything anew, through descriptors. */
static int run_child(fake_world *world, int32_t index, int (*fn)(fake_rank *rank), pid_t parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        return 3;
    alarm(100);
    fake_rank *rank = calloc(1, sizeof *rank);
    CHECK(rank);
    rank->world = world;
    fake_host_init(&rank->host);
    rank->instance = open_instance(&rank->host, index, world->size);
    open_peers(world, rank, index, false);
    int result = fn(rank);
    close_peers(world, rank);
    backend->instance->close(rank->instance);
    free(rank);
    return result;
}

int fake_run_processes(fake_world *world, int (*fn)(fake_rank *rank)) {
    pid_t children[FAKE_MAX_RANKS];
    pid_t parent = getpid();
    fflush(NULL);
    for (int32_t i = 0; i < world->size; i++) {
        children[i] = fork();
        CHECK(children[i] >= 0);
        if (children[i] == 0)
            exit(run_child(world, i, fn, parent));
    }
    int failed = 0;
    for (int32_t i = 0; i < world->size; i++) {
        int status = 0;
        CHECK(waitpid(children[i], &status, 0) == children[i]);
        if (status != 0) {
            printf("\n    rank %d: wait status %x\n", (int)i, (unsigned)status);
            failed++;
        }
    }
    return failed;
}

symmem_status fake_barrier(fake_rank *rank, int32_t channel, uint32_t timeout_ms, void *stream) {
    symmem_exec exec = {.stream = stream, .timeout_ms = timeout_ms};
    return backend->signal->barrier(rank->instance, &rank->peers, channel, &exec);
}

symmem_status fake_put(fake_rank *rank, int32_t dst, int32_t channel, uint32_t timeout_ms,
                       void *stream) {
    symmem_exec exec = {.stream = stream, .timeout_ms = timeout_ms};
    return backend->signal->put(rank->instance, &rank->peers, dst, channel, &exec);
}

symmem_status fake_wait(fake_rank *rank, int32_t src, int32_t channel, uint32_t timeout_ms,
                        void *stream) {
    symmem_exec exec = {.stream = stream, .timeout_ms = timeout_ms};
    return backend->signal->wait(rank->instance, &rank->peers, src, channel, &exec);
}

uint64_t fake_now_ms(void) {
    struct timespec now;
    if (clock_used)
        return unit_clock_now_ns(clock_used) / 1000000;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void fake_sleep_us(unsigned microseconds) {
    struct timespec pause = {.tv_sec = (time_t)(microseconds / 1000000),
                             .tv_nsec = (long)(microseconds % 1000000) * 1000};
    if (clock_used) {
        unit_clock_sleep_ns(clock_used, microseconds * UINT64_C(1000));
        return;
    }
    nanosleep(&pause, NULL);
}

static int count_entries(const char *path) {
    DIR *directory = opendir(path);
    CHECK(directory);
    int count = 0;
    while (readdir(directory))
        count++;
    closedir(directory);
    return count;
}

int fake_count_descriptors(void) {
    return count_entries("/proc/self/fd");
}

/* Not what /proc/self/task lists: while one ends, a listing may lack another. */
int fake_count_threads(void) {
    FILE *file = fopen("/proc/self/status", "re");
    CHECK(file);
    int count = 0;
    char line[512];
    while (count == 0 && fgets(line, sizeof line, file))
        sscanf(line, "Threads: %d", &count);
    fclose(file);
    CHECK(count > 0);
    return count;
}

bool fake_threads_settle(int most) {
    for (int i = 0; i < 5000 && fake_count_threads() > most; i++)
        fake_sleep_us(1000);
    return fake_count_threads() <= most;
}

int fake_count_shared_mappings(void) {
    FILE *file = fopen("/proc/self/maps", "re");
    CHECK(file);
    int count = 0;
    char line[512];
    while (fgets(line, sizeof line, file))
        if (strstr(line, "symmem"))
            count++;
    fclose(file);
    return count;
}
