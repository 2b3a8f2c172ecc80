/* SPDX-License-Identifier: BSD-3-Clause */
/* The TCP store: its threads' signals, servers that never come to an end, other jobs' addresses. */
#include "unit.h"

#include "store/in_time.h"
#include "store/store_tcp.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

static uint64_t limit(void) {
    return sm_tcp_deadline_ns(5000);
}

static symmem_store *serve(sm_tcp_place *place_p) {
    int listener = -1;
    symmem_store *store = NULL;
    CU_ASSERT_EQUAL_FATAL(sm_tcp_listen_anywhere(true, place_p, &listener), SYMMEM_OK);
    CU_ASSERT_EQUAL_FATAL(sm_store_open_tcp(place_p, listener, 0, 1, limit(), NULL, &store),
                          SYMMEM_OK);
    return store;
}

/* --- signals -----------------------------------------------------------------------------------
 */

static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};

typedef struct threads {
    int count;
    int ids[64];
    uint64_t blocked; /* by any that is not known */
} threads;

static uint64_t blocked_by(int id) {
    char name[64], line[200];
    uint64_t blocked = 0;
    snprintf(name, sizeof(name), "/proc/self/task/%d/status", id);
    FILE *file = fopen(name, "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        if (strncmp(line, "SigBlk:", 7) == 0)
            blocked = strtoull(line + 7, NULL, 16);
    if (file != NULL)
        fclose(file);
    return blocked;
}

/* A sanitizer has threads of its own, which are known. */
static threads look_at_threads(const threads *known) {
    threads found = {.count = 0};
    DIR *tasks = opendir("/proc/self/task");
    const struct dirent *entry;
    while (tasks != NULL && (entry = readdir(tasks)) != NULL && found.count < 64) {
        const int id = atoi(entry->d_name);
        bool is_known = id == 0;
        for (int i = 0; i < known->count; i++)
            is_known = is_known || known->ids[i] == id;
        if (id != 0)
            found.ids[found.count++] = id;
        if (!is_known)
            found.blocked |= blocked_by(id);
    }
    if (tasks != NULL)
        closedir(tasks);
    return found;
}

static void expect_mask(uint64_t blocked) {
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
        CU_ASSERT((blocked >> (faults[i] - 1) & 1) == 0);
    CU_ASSERT((blocked >> (SIGUSR2 - 1) & 1) != 0 && (blocked >> (SIGTERM - 1) & 1) != 0);
}

typedef struct asking {
    sm_task task;
    uint64_t blocked;
} asking;

static void ask_mask(sm_task *task) {
    sigset_t mask;
    uint64_t blocked = 0;
    CU_ASSERT(pthread_sigmask(SIG_BLOCK, NULL, &mask) == 0);
    for (int signal = 1; signal < 32; signal++)
        blocked |= (uint64_t)(sigismember(&mask, signal) == 1) << (signal - 1);
    ((asking *)task)->blocked = blocked;
}

static void keep(sm_task *task) {
    (void)task;
}

TEST("threads take no signals but those of their faults") {
    sm_tcp_place place;
    const threads before = look_at_threads(&(threads){.count = 0});
    symmem_store *store = serve(&place);
    const threads now = look_at_threads(&before);
    CU_ASSERT(now.count == before.count + 1);
    expect_mask(now.blocked);
    symmem_store_close(store);
    asking asked = {.task = {.run = ask_mask, .destroy = keep}};
    CU_ASSERT_TRUE(sm_task_run(&asked.task, limit()));
    expect_mask(asked.blocked);
    sm_task_release(&asked.task);
    AWAIT(5000, look_at_threads(&before).count == before.count);
}

/* --- servers that never come to an end ---------------------------------------------------------
 */

ssize_t __real_recv(int fd, void *bytes, size_t count, int flags);
ssize_t __wrap_recv(int fd, void *bytes, size_t count, int flags);

/* Of the thread: it receives answers to what nobody has asked, until then. 0: what is sent. */
static _Thread_local uint64_t flooded_until_ns;
static _Thread_local size_t flooded; /* bytes */
static _Thread_local bool flood_is_over;

ssize_t __wrap_recv(int fd, void *bytes, size_t count, int flags) {
    const sm_tcp_header other = {.kind = SM_TCP_REPLY, .id = 0x7fffffff};
    uint8_t header[SM_TCP_HEADER_BYTES];
    if (flooded_until_ns == 0)
        return __real_recv(fd, bytes, count, flags);
    flood_is_over = sm_tcp_now_ns() >= flooded_until_ns;
    if (flood_is_over) {
        errno = ECONNRESET;
        return -1;
    }
    sm_tcp_write_header(&other, header);
    for (size_t i = 0; i < count; i++)
        ((uint8_t *)bytes)[i] = header[flooded++ % sizeof(header)];
    return (ssize_t)count;
}

TEST("answers without end") {
    sm_tcp_place place;
    symmem_store *own = serve(&place), *store = NULL;
    char value[4];
    size_t count;
    CU_ASSERT_EQUAL_FATAL(sm_store_open_tcp(&place, -1, 1, 1, limit(), NULL, &store), SYMMEM_OK);
    flooded_until_ns = sm_tcp_deadline_ns(8000);
    EXPECT_FAIL(symmem_store_get(store, "k", value, sizeof(value), &count, 300), SYMMEM_TIMEOUT,
                "store_get");
    CU_ASSERT_FALSE(flood_is_over);
    flooded_until_ns = 0;
    symmem_store_close(store);
    symmem_store_close(own);
}

/* --- several addresses --------------------------------------------------------------------------
 */

/* Rank 0's loopback address is another machine's, too, where its port may be another job's. */
TEST("another job at the first address") {
    sm_tcp_place others, own, both;
    symmem_store *of_others = serve(&others), *of_own = serve(&own), *store = NULL;
    both = own;
    both.count = 2;
    both.addresses[0] = others.addresses[0];
    both.addresses[1] = own.addresses[0];
    CU_ASSERT_EQUAL(sm_store_open_tcp(&both, -1, 1, 1, limit(), NULL, &store), SYMMEM_OK);
    symmem_store_close(store);
    /* With nobody at the other one it is said at once, and not waited for. */
    symmem_store_close(of_own);
    EXPECT_FAIL(sm_store_open_tcp(&both, -1, 1, 1, limit(), NULL, &store), SYMMEM_AUTH,
                "store_open");
    symmem_store_close(of_others);
}

/* --- descriptors --------------------------------------------------------------------------------
 */

/* The first of the server's own: each that is lacking is a limit, and nothing is left behind. */
TEST("without descriptors for the server") {
    struct rlimit before, few;
    CU_ASSERT_EQUAL_FATAL(getrlimit(RLIMIT_NOFILE, &before), 0);
    for (rlim_t room = 0; room < 2; room++) {
        sm_tcp_place at;
        symmem_store *store = NULL;
        int fd = -1;
        CU_ASSERT_EQUAL_FATAL(sm_tcp_listen_anywhere(true, &at, &fd), SYMMEM_OK);
        const int next = dup(fd);
        close(next);
        few = before;
        few.rlim_cur = (rlim_t)next + room;
        CU_ASSERT_EQUAL_FATAL(setrlimit(RLIMIT_NOFILE, &few), 0);
        EXPECT_FAIL(sm_store_open_tcp(&at, fd, 0, 1, limit(), NULL, &store), SYMMEM_LIMIT,
                    "store_open");
        CU_ASSERT_EQUAL(setrlimit(RLIMIT_NOFILE, &before), 0);
    }
}
