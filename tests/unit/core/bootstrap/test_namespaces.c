/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two ranks of one machine, one of them in namespaces of its own: they reach each other, or both
 * are told within their limit, and neither hangs. Needs the right to make namespaces; without it
 * the cases say so and check nothing.
 */
#include <CUnit/Basic.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <symmem/backend.h>
#include <symmem/symmem.h>

#include "unit.h"

const symmem_backend *symmem_backend_entry(uint32_t abi);

enum { LIMIT_MS = 10000, LONGEST_S = 40 };

/* What a rank reports through its pipe. */
struct report {
    bool ran; /* namespaces could be made */
    symmem_status status;
    symmem_error_record record;
    uint64_t took_ms;
};

struct place {
    const char *directory; /* of the store */
    const char *socket_dir;
    bool hidden;   /* the second rank has a file system of its own there */
    bool of_first; /* the second rank's sockets have no file names */
    int flags[2];  /* CLONE_NEW... of each rank */
};

static uint64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* --- a rank ----------------------------------------------------------------------------------- */

static symmem_status life(const struct place *place, int32_t rank) {
    const symmem_backend *table = symmem_backend_entry(SYMMEM_BACKEND_ABI);
    symmem_context_options options;
    symmem_store *store = NULL;
    symmem_context *context = NULL;
    symmem_group *group = NULL;
    symmem_handle *handle = NULL;
    void *memory = NULL;
    symmem_context_options_init(&options);
    options.rank = rank;
    options.world_size = 2;
    options.socket_dir = place->of_first && rank != 0 ? NULL : place->socket_dir;
    symmem_status status = symmem_store_open_file(place->directory, &store);
    options.store = store;
    if (status == SYMMEM_OK)
        status = symmem_init(&options, &context);
    if (status == SYMMEM_OK)
        status = symmem_register_backend(context, table);
    if (status == SYMMEM_OK)
        status = symmem_set_backend(context, table->name);
    if (status == SYMMEM_OK)
        status = symmem_set_allow_overlapping_devices(context, 1);
    if (status == SYMMEM_OK)
        status = symmem_group_create(context, "all", NULL, 0, NULL, &group);
    if (status == SYMMEM_OK)
        status = symmem_alloc(context, 4096, 0, NULL, &memory);
    if (status == SYMMEM_OK)
        status = symmem_rendezvous(context, memory, group, LIMIT_MS, &handle);
    uint32_t mine = 0xB0000000u + (uint32_t)rank, seen = 0;
    if (status == SYMMEM_OK)
        status = symmem_put(handle, 1 - rank, 64, &mine, 4, NULL);
    if (status == SYMMEM_OK)
        status = symmem_barrier(handle, 0, LIMIT_MS, NULL);
    if (status == SYMMEM_OK)
        status = symmem_get(handle, rank, 64, &seen, 4, NULL);
    if (status == SYMMEM_OK && seen != 0xB0000000u + (uint32_t)(1 - rank))
        status = SYMMEM_CORRUPT;
    if (status == SYMMEM_OK)
        status = symmem_barrier(handle, 0, LIMIT_MS, NULL);
    symmem_handle_release(handle);
    symmem_context_free(context);
    symmem_store_close(store);
    return status;
}

/* In the process that is to be the rank. */
static void be_rank(const struct place *place, int32_t rank, int to) {
    struct report report = {.ran = true};
    uint64_t begin_ms = now_ms();
    report.status = life(place, rank);
    report.took_ms = now_ms() - begin_ms;
    symmem_last_error(&report.record);
    _exit(write(to, &report, sizeof(report)) == (ssize_t)sizeof(report) ? 0 : 1);
}

/* The child: leaves its namespaces and, for a pid namespace, has a child of its own in it. */
static void enter_and_be(const struct place *place, int32_t rank, int to) {
    const struct report none = {.ran = false};
    int flags = place->flags[rank];
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)alarm(LONGEST_S);
    if (flags != 0 && unshare(flags) != 0)
        _exit(write(to, &none, sizeof(none)) == (ssize_t)sizeof(none) ? 0 : 1);
    if (place->hidden && rank == 1 &&
        (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
         mount("tmpfs", place->socket_dir, "tmpfs", 0, "size=1m") != 0))
        _exit(write(to, &none, sizeof(none)) == (ssize_t)sizeof(none) ? 0 : 1);
    if ((flags & CLONE_NEWPID) == 0)
        be_rank(place, rank, to);
    pid_t pid = fork();
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)alarm(LONGEST_S);
        be_rank(place, rank, to);
    }
    int status = 1;
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        _exit(1);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

/* --- two ranks -------------------------------------------------------------------------------- */

static bool run_ranks(const struct place *place, struct report reports[2]) {
    pid_t pids[2];
    int pipes[2][2];
    bool good = true;
    (void)fflush(NULL);
    for (int32_t r = 0; r < 2; r++) {
        CU_ASSERT_EQUAL_FATAL(pipe(pipes[r]), 0);
        pids[r] = fork();
        CU_ASSERT_FATAL(pids[r] >= 0);
        if (pids[r] == 0)
            enter_and_be(place, r, pipes[r][1]);
        close(pipes[r][1]);
    }
    for (int32_t r = 0; r < 2; r++) {
        int status = 0;
        memset(&reports[r], 0, sizeof(reports[r]));
        ssize_t got = read(pipes[r][0], &reports[r], sizeof(reports[r]));
        good = good && got == (ssize_t)sizeof(reports[r]);
        close(pipes[r][0]);
        CU_ASSERT_EQUAL(waitpid(pids[r], &status, 0), pids[r]);
        good = good && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    CU_ASSERT(good); /* no crash, and no hang that the alarm had to end */
    return good && reports[0].ran && reports[1].ran;
}

/* A directory of the test's own with one for the store and one for sockets in it. */
struct room {
    char top[64], store[80], sockets[80];
};

static void room_make(struct room *room) {
    snprintf(room->top, sizeof(room->top), "/tmp/symm-ns-XXXXXX");
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(room->top));
    snprintf(room->store, sizeof(room->store), "%s/store", room->top);
    snprintf(room->sockets, sizeof(room->sockets), "%s/s", room->top);
    CU_ASSERT_EQUAL_FATAL(mkdir(room->sockets, 0700), 0);
}

static void room_end(const struct room *room) {
    char command[160];
    CU_ASSERT_EQUAL(rmdir(room->sockets), 0); /* no socket is left in it */
    snprintf(command, sizeof(command), "rm -rf -- '%s'", room->top);
    CU_ASSERT_EQUAL(system(command), 0);
}

/* Both work, or both are told that the other is out of reach. */
static void expect_clear(const char *name, const struct report reports[2]) {
    printf("\n    %s: %s, %s %s", name, symmem_status_name(reports[0].status),
           symmem_status_name(reports[1].status), reports[0].record.message);
    CU_ASSERT_EQUAL(reports[0].status, reports[1].status);
    for (int32_t r = 0; r < 2; r++) {
        CU_ASSERT(reports[r].took_ms < LIMIT_MS);
        if (reports[r].status == SYMMEM_OK)
            continue;
        CU_ASSERT_EQUAL(reports[r].status, SYMMEM_UNREACHABLE);
        CU_ASSERT_EQUAL(reports[r].record.status, SYMMEM_UNREACHABLE);
        /* What the lowest rank found goes to all. */
        CU_ASSERT_EQUAL(reports[r].record.failed_rank, 1);
        CU_ASSERT(symmem_error_is_missing(&reports[r].record, 1));
        CU_ASSERT_PTR_NOT_NULL(strstr(reports[r].record.message, "namespace"));
    }
}

enum sockets { WITHOUT_NAMES = 0, IN_A_DIRECTORY, IN_A_HIDDEN_DIRECTORY, FIRST_IN_A_DIRECTORY };

static void apart(const char *name, int first, int second, enum sockets sockets,
                  symmem_status expected) {
    struct room room;
    struct report reports[2];
    room_make(&room);
    const struct place place = {.directory = room.store,
                                .socket_dir = sockets == WITHOUT_NAMES ? NULL : room.sockets,
                                .hidden = sockets == IN_A_HIDDEN_DIRECTORY,
                                .of_first = sockets == FIRST_IN_A_DIRECTORY,
                                .flags = {first, second}};
    if (run_ranks(&place, reports)) {
        expect_clear(name, reports);
        CU_ASSERT_EQUAL(reports[0].status, expected);
    } else {
        printf("\n    %s: not permitted here, not checked", name);
    }
    room_end(&room);
}

TEST("in one place") {
    struct room room;
    struct report reports[2];
    room_make(&room);
    const struct place place = {.directory = room.store, .socket_dir = NULL, .flags = {0, 0}};
    CU_ASSERT_FATAL(run_ranks(&place, reports));
    expect_clear("together", reports);
    CU_ASSERT_EQUAL(reports[0].status, SYMMEM_OK);
    room_end(&room);
}

TEST("one rank elsewhere") {
    for (enum sockets sockets = WITHOUT_NAMES; sockets <= IN_A_DIRECTORY; sockets++) {
        apart("ipc", 0, CLONE_NEWIPC, sockets, SYMMEM_OK);
        apart("uts", 0, CLONE_NEWUTS, sockets, SYMMEM_OK);
        apart("mount", 0, CLONE_NEWNS, sockets, SYMMEM_OK);
        apart("pid", 0, CLONE_NEWPID, sockets, SYMMEM_OK);
        apart("pid, other rank", CLONE_NEWPID, 0, sockets, SYMMEM_OK);
    }
}

/* Sockets without a file name end at the network namespace, those with one do not. */
TEST("other networks and file systems") {
    apart("net", 0, CLONE_NEWNET, WITHOUT_NAMES, SYMMEM_UNREACHABLE);
    apart("net, other rank", CLONE_NEWNET, 0, WITHOUT_NAMES, SYMMEM_UNREACHABLE);
    apart("net, sockets in a directory", 0, CLONE_NEWNET, IN_A_DIRECTORY, SYMMEM_OK);
    /* The second would reach the first, which does not reach it. */
    apart("net, sockets of one in a directory", 0, CLONE_NEWNET, FIRST_IN_A_DIRECTORY,
          SYMMEM_UNREACHABLE);
    apart("sockets in a hidden directory", 0, CLONE_NEWNS, IN_A_HIDDEN_DIRECTORY,
          SYMMEM_UNREACHABLE);
}

/* Both are process 1 of their namespaces: a pid says nothing. */
TEST("both elsewhere, with one number") {
    apart("both pid", CLONE_NEWPID, CLONE_NEWPID, WITHOUT_NAMES, SYMMEM_OK);
    apart("both pid and net", CLONE_NEWPID | CLONE_NEWNET, CLONE_NEWPID | CLONE_NEWNET,
          IN_A_DIRECTORY, SYMMEM_OK);
}
