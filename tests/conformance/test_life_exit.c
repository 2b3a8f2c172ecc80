/* SPDX-License-Identifier: BSD-3-Clause */
/* How a process may end, with everything alive; and that memory is there from the beginning. */
#include <dirent.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "kit.h"

#define LIMIT_MS 10000u
#define DEVICE_LIMIT_MS 25000u /* one may have to be opened, and to be left */
#define BYTES 4096
#define NO_CHILD 99 /* what a child says that did not get as far as ending */

/* --- a process that ends ------------------------------------------------------------ */

/* A world of one inside a child process, busy on a stream when the process ends. */
struct world {
    symmem_store *store;
    symmem_context *context;
    symmem_group *group;
    symmem_handle *handle;
    symmem_stream *stream;
    void *memory;
    bool by_host; /* the CPU may write the memory */
    atomic_bool busy;
};

static void write_for_ever(struct world *world) {
    volatile uint8_t *bytes = world->memory;
    for (;;) {
        for (size_t i = 0; i < BYTES; i++)
            bytes[i] = (uint8_t)(bytes[i] + 1);
        atomic_store(&world->busy, true);
    }
}

/* A device's driver may wait for its host functions when a process ends: then this one ends. */
static void keep_busy(void *arg) {
    struct world *world = arg;
    if (world->by_host)
        write_for_ever(world);
    atomic_store(&world->busy, true);
    tk_sleep_ms(500);
}

static bool world_begin(struct tk *t, struct world *world) {
    symmem_context_options options = tk_options(t);
    memset(world, 0, sizeof(*world));
    world->by_host = (t->capabilities & SYMMEM_CAP_HOST_ACCESS) != 0;
    options.rank = options.local_rank = 0;
    options.world_size = 1;
    options.point = NULL;
    if (symmem_store_open_memory(&world->store) != SYMMEM_OK)
        return false;
    options.store = world->store;
    return symmem_init(&options, &world->context) == SYMMEM_OK &&
           symmem_group_create(world->context, "one", NULL, 0, NULL, &world->group) == SYMMEM_OK &&
           symmem_alloc(world->context, BYTES, -1, NULL, &world->memory) == SYMMEM_OK &&
           symmem_rendezvous(world->context, world->memory, world->group, LIMIT_MS,
                             &world->handle) == SYMMEM_OK;
}

static bool world_work(struct world *world) {
    if (symmem_stream_create(world->context, -1, &world->stream) != SYMMEM_OK ||
        symmem_barrier(world->handle, 0, LIMIT_MS, world->stream) != SYMMEM_OK ||
        symmem_stream_host_fn(world->stream, keep_busy, world) != SYMMEM_OK)
        return false;
    uint64_t end_ms = tk_now_ms() + LIMIT_MS / 2;
    while (!atomic_load(&world->busy) && tk_now_ms() < end_ms)
        tk_sleep_ms(1);
    return atomic_load(&world->busy);
}

static void *exit_in_thread(void *arg) {
    exit(*(int *)arg);
}

static void end_by_exit(struct tk *t, int code) {
    struct world world;
    if (world_begin(t, &world) && world_work(&world))
        exit(code);
}

static void end_at_once(struct tk *t, int code) {
    struct world world;
    if (world_begin(t, &world) && world_work(&world))
        _exit(code);
}

static void end_by_a_thread(struct tk *t, int code) {
    struct world world;
    pthread_t thread;
    if (world_begin(t, &world) && world_work(&world) &&
        pthread_create(&thread, NULL, exit_in_thread, &code) == 0)
        (void)pthread_join(thread, NULL);
}

/* Finalized, but not everything given back. */
static void end_finalized(struct tk *t, int code) {
    struct world world;
    if (world_begin(t, &world) && symmem_finalize(world.context) == SYMMEM_OK)
        exit(code);
}

/* Its status as waitpid gives it; a child that does not end is ended. */
static int status_of(struct tk *t, pid_t child) {
    const bool by_host = (t->capabilities & SYMMEM_CAP_HOST_ACCESS) != 0;
    uint64_t end_ms = tk_now_ms() + tk_limit_ms(t, by_host ? LIMIT_MS : DEVICE_LIMIT_MS);
    int status = 0;
    for (;;) {
        pid_t ended = waitpid(child, &status, WNOHANG);
        if (ended == child)
            return status;
        if (ended < 0 || tk_now_ms() > end_ms)
            break;
        tk_sleep_ms(2);
    }
    TK_CHECK_MSG(t, false, "the process does not end");
    if (child > 1 && kill(child, SIGKILL) == 0)
        (void)waitpid(child, &status, 0);
    return status;
}

static void expect_end(struct tk *t, void (*end)(struct tk *t, int code), int code) {
    pid_t child = fork();
    TK_REQUIRE(t, child >= 0);
    if (child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        end(t, code);
        _exit(NO_CHILD);
    }
    int status = status_of(t, child);
    TK_CHECK_MSG(t, !WIFSIGNALED(status), "ended by signal %d", WTERMSIG(status));
    TK_CHECK_MSG(t, !WIFEXITED(status) || WEXITSTATUS(status) == code,
                 "ended with %d instead of %d", WEXITSTATUS(status), code);
}

TK_TEST(life_exit, ends_with_its_own_status, "SM-LIFE-08",
        .needs = SYMMEM_CAP_STREAMS | SYMMEM_CAP_HOST_FN, .max_ranks = 2,
        .flags = TK_PROCESS_ONLY | TK_NO_CONTEXT | TK_FORKS, .timeout_s = 120) {
    tk_checkpoint(t, "exit");
    expect_end(t, end_by_exit, 41);
    tk_checkpoint(t, "_exit");
    expect_end(t, end_at_once, 42);
    tk_checkpoint(t, "exit in another thread");
    expect_end(t, end_by_a_thread, 1);
    tk_checkpoint(t, "exit after finalize");
    expect_end(t, end_finalized, 0);
}

/* --- memory that is there --------------------------------------------------------------------- */

#define LARGE ((size_t)(8u << 20) + 3 * 4096)

/* Files behind this process's descriptors that are about that large, and those with holes. */
static int count_files(int *holes_p) {
    int count = 0;
    *holes_p = 0;
    for (int fd = 3; fd < 1024; fd++) {
        struct stat status;
        if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) || (size_t)status.st_size < LARGE ||
            (size_t)status.st_size > LARGE + 65536)
            continue;
        count++;
        *holes_p += (uint64_t)status.st_blocks * 512 < (uint64_t)status.st_size;
    }
    return count;
}

/* Where memory is a file, the file has no holes: pages that are not there yet may not be there when
 * they are touched, and that ends the process. */
TK_TEST(life_exit, memory_is_backed, "SM-ALLOC-13", .max_ranks = 2, .flags = TK_PROCESS_ONLY) {
    int holes = 0;
    symmem_handle *handle = tk_handle(t, LARGE, tk_world_group(t));
    tk_checkpoint(t, "%d files", count_files(&holes));
    TK_EQ_INT(t, 0, holes);
    tk_fill(t, handle, t->rank, LARGE - 1, 1, 7);
    tk_expect_bytes(t, handle, t->rank, 0, 1, 0);
}
