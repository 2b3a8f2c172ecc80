/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks for the session tests: threads on a memory store or processes on a file store. They and the
 * test go by a clock on which nothing has to be waited for, and what follows from limits and sleeps
 * is exact.
 */
#ifndef SYMMEM_SESSION_RANKS_H
#define SYMMEM_SESSION_RANKS_H

#include "folder.h"
#include "bootstrap/bootstrap.h"
#include "unit_clock.h"
#include "last_record.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define RANKS_MAX 128

typedef struct test_rank test_rank;
typedef int (*rank_body)(test_rank *self); /* 0: fine */

struct test_rank {
    int32_t rank;
    int32_t world_size;
    symmem_store *store;
    sm_session *session;
    sm_liveness *liveness;
    sm_identity identity;
    int32_t global_ranks[RANKS_MAX];
    const char *socket_dir;
    rank_body body;
    void *arg;
    int result;
    /* The failpoint `point_name`, which fails once. */
    const char *point_name;
    symmem_status point_status;
    atomic_int point_hits;
};

/* Makes the rank's body fail and says where. */
#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "rank %d line %d: %s [%s %s: %s]\n", self->rank, __LINE__, #condition, \
                    symmem_status_name(last_record().status), last_record().stage,                 \
                    last_record().message);                                                        \
            return __LINE__ % 250 + 1;                                                             \
        }                                                                                          \
    } while (0)

static inline symmem_status rank_point(void *arg, const char *name) {
    test_rank *self = arg;
    if (self->point_name == NULL || strcmp(name, self->point_name) != 0 ||
        atomic_fetch_add(&self->point_hits, 1) != 0)
        return SYMMEM_OK;
    return self->point_status;
}

static inline int rank_open(test_rank *self) {
    EXPECT(sm_identity_self(&self->identity) == SYMMEM_OK);
    EXPECT(sm_liveness_create(self->world_size, &self->liveness) == SYMMEM_OK);
    for (int32_t i = 0; i < self->world_size; i++)
        self->global_ranks[i] = i;
    if (self->store != NULL) {
        char key[SYMMEM_STORE_KEY_MAX + 1];
        sm_identity_key("w", self->rank, key, sizeof(key));
        EXPECT(symmem_store_set(self->store, key, &self->identity, sizeof(self->identity), 0) ==
               SYMMEM_OK);
    }
    sm_session_config config = {
        .store = self->store,
        .prefix = "g/test",
        .world_prefix = "w",
        .group_name = "test",
        .socket_dir = self->socket_dir,
        .rank = self->rank,
        .world_size = self->world_size,
        .global_ranks = self->global_ranks,
        .liveness = self->liveness,
        .identity = &self->identity,
        .point = rank_point,
        .point_arg = self,
    };
    EXPECT(sm_session_create(&config, &self->session) == SYMMEM_OK);
    return 0;
}

static inline void rank_close(test_rank *self) {
    sm_session_destroy(self->session);
    sm_liveness_destroy(self->liveness);
    self->session = NULL;
    self->liveness = NULL;
}

static inline int rank_main(test_rank *self) {
    int result = rank_open(self);
    if (result == 0)
        result = self->body(self);
    rank_close(self);
    return result;
}

/* The program's clock, once it has prepared ranks. NULL: the machine's. */
static unit_clock *ranks_clock;

/* Called by the program's first thread. */
static inline void open_clock(void) {
    if (ranks_clock == NULL)
        ranks_clock = unit_clock_open();
    if (ranks_clock == NULL)
        abort();
    sm_clock_use(&ranks_clock->clock);
}

static inline void count_threads(int change) {
    if (ranks_clock != NULL)
        unit_clock_threads(ranks_clock, change);
}

static inline void *rank_thread(void *arg) {
    test_rank *self = arg;
    sm_clock_use(&ranks_clock->clock);
    self->result = rank_main(self);
    count_threads(-1);
    return NULL;
}

/* Runs prepared ranks as threads; true if all return 0. */
static inline bool run_threads(test_rank *ranks, int32_t count) {
    pthread_t threads[RANKS_MAX];
    bool fine = true;
    int32_t started = 0;
    count_threads(count);
    for (; started < count; started++)
        if (pthread_create(&threads[started], NULL, rank_thread, &ranks[started]) != 0)
            break;
    fine = started == count;
    count_threads(started - count - 1); /* this one only joins */
    for (int32_t i = 0; i < started; i++) {
        pthread_join(threads[i], NULL);
        fine = fine && ranks[i].result == 0;
    }
    count_threads(1);
    return fine;
}

static inline void prepare_ranks(test_rank *ranks, int32_t count, symmem_store *store,
                                 rank_body body, void *arg) {
    open_clock();
    memset(ranks, 0, (size_t)count * sizeof(*ranks));
    for (int32_t i = 0; i < count; i++) {
        ranks[i].rank = i;
        ranks[i].world_size = count;
        ranks[i].store = store;
        ranks[i].body = body;
        ranks[i].arg = arg;
    }
}

/* A child that runs one rank on the file store at `path`. Returns its pid, or -1. */
static inline pid_t fork_rank(test_rank *self, const char *path) {
    pid_t parent = getpid();
    count_threads(1);
    pid_t pid = fork();
    if (pid < 0)
        count_threads(-1);
    if (pid != 0)
        return pid;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent)
        _exit(99);
    int result = 98;
    if (symmem_store_open_file(path, &self->store) == SYMMEM_OK)
        result = rank_main(self);
    symmem_store_close(self->store);
    count_threads(-1);
    exit(result);
}

typedef struct ended_rank {
    pid_t pid;
    int status;
} ended_rank;

/* The next child that ends, whichever it is: one that was killed must not hold the time. */
static inline bool await_end(ended_rank *ended) {
    count_threads(-1); /* this one only waits */
    ended->pid = waitpid(-1, &ended->status, 0);
    count_threads(1);
    if (ranks_clock != NULL && ended->pid > 0 && !WIFEXITED(ended->status))
        unit_clock_lost(ranks_clock);
    return ended->pid > 0;
}

/* Exit status of a child, or 1000 + signal. */
static inline int reap(pid_t pid) {
    static ended_rank ended[RANKS_MAX];
    static int count;
    int at = 0;
    while (at < count && ended[at].pid != pid)
        at++;
    while (at == count && count < RANKS_MAX && await_end(&ended[count]))
        at = ended[count++].pid == pid ? at : at + 1;
    if (pid < 2 || at == count)
        return 2000;
    const int status = ended[at].status;
    ended[at] = ended[--count];
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/* Starts the ranks of a world as processes on a file store in a new folder, whose path is returned.
 * False if there is no folder. */
static inline bool fork_world(test_rank *ranks, pid_t *pids, int32_t count, rank_body body,
                              void *arg, char path[FOLDER_BYTES]) {
    if (!make_folder(path))
        return false;
    prepare_ranks(ranks, count, NULL, body, arg);
    for (int32_t i = 0; i < count; i++)
        pids[i] = fork_rank(&ranks[i], path);
    return true;
}

/* Runs the first `count` ranks of a world as threads on a memory store; true if all return 0. */
static inline bool run_first(int32_t count, int32_t world_size, rank_body body) {
    symmem_store *store = NULL;
    test_rank ranks[RANKS_MAX];
    if (symmem_store_open_memory(&store) != SYMMEM_OK)
        return false;
    prepare_ranks(ranks, world_size, store, body, NULL);
    const bool fine = run_threads(ranks, count);
    symmem_store_close(store);
    return fine;
}

/* Makes counters in memory that ranks forked from now on share. NULL if there is no memory. */
static inline atomic_int *shared_counters(size_t count) {
    void *shared = mmap(NULL, count * sizeof(atomic_int), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return shared == MAP_FAILED ? NULL : shared;
}

/* Waits for a limited time, because the awaited rank may have failed. */
static inline void await_counter(const atomic_int *counter, int least) {
    uint64_t end_ns = sm_deadline_ns(20000);
    while (atomic_load(counter) < least && !sm_expired(end_ns))
        sm_sleep_ns(1000000);
}

/* Waits until all ranks have checked what they had to check, so that none sees another one end. */
static inline void leave_together(atomic_int *through, int ranks) {
    atomic_fetch_add(through, 1);
    await_counter(through, ranks);
}

/* Counts this process's open descriptors. */
static inline int open_fds(void) {
    return count_files("/proc/self/fd", '\0');
}

#endif
