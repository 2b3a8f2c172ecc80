/* SPDX-License-Identifier: BSD-3-Clause */
/* Cases that must not pass; each name says which verdict they must get. */
#include "kit.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int last(const struct tk *t) {
    return t->world_size - 1;
}

static void fails(struct tk *t) {
    tk_checkpoint(t, "before the check");
    TK_REQ(t, "SM-SELF-02");
    TK_CHECK_MSG(t, t->rank != last(t), "a message with <&\"\n]]> # \\ in it: \xff\x01");
    TK_REQUIRE(t, t->rank != last(t));
}

static void fails_status(struct tk *t) {
    TK_STATUS(t, SYMMEM_TIMEOUT, SYMMEM_OUT_OF_RANGE);
}

static void vacuous(struct tk *t) {
    tk_checkpoint(t, "nothing to see");
}

static void crashes(struct tk *t) {
    TK_CHECK(t, true);
    tk_checkpoint(t, "about to crash");
    if (t->rank == last(t)) {
        signal(SIGSEGV, SIG_DFL); /* past a sanitizer's handler */
        raise(SIGSEGV);
    }
    tk_sleep_ms(60000); /* the runner does not wait for it */
}

static void hangs(struct tk *t) {
    TK_CHECK(t, true);
    tk_checkpoint(t, "round %d", t->rank == last(t) ? 7 : 8);
    while (t->rank == last(t))
        pause();
}

static void hangs_hard(struct tk *t) {
    signal(SIGTERM, SIG_IGN);
    hangs(t);
}

static void stops(struct tk *t) {
    TK_CHECK(t, true);
    if (t->rank == last(t))
        raise(SIGSTOP);
}

static void leaves_by_exit(struct tk *t) {
    TK_CHECK(t, true);
    if (t->rank == last(t))
        exit(0);
}

static void is_killed(struct tk *t) {
    TK_CHECK(t, true);
    if (t->rank == last(t))
        raise(SIGKILL);
}

/* Announced, but the case has no TK_MAY_DIE. */
static void is_killed_announced(struct tk *t) {
    TK_CHECK(t, true);
    if (t->rank == last(t))
        tk_kill_self(t);
}

static void lacks_memory(struct tk *t) {
    TK_CHECK(t, true);
    tk_unresolved(t, "needs 1 TiB of memory");
}

static void leaks_descriptor(struct tk *t) {
    TK_CHECK(t, open("/dev/null", O_RDONLY | O_CLOEXEC) >= 0);
}

static void closes_descriptor(struct tk *t) {
    TK_CHECK(t, t->rank != 0 || close(STDIN_FILENO) == 0);
}

static void leaks_mapping(struct tk *t) {
    TK_CHECK(t, mmap(NULL, 8192, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
}

static void leaks_process(struct tk *t) {
    pid_t pid = fork();

    TK_REQUIRE(t, pid >= 0);
    if (pid == 0) {
        for (;;)
            pause();
    }
}

/* The self-test removes the name afterwards. */
static void leaks_name(struct tk *t) {
    int fd = shm_open("/symmem-selfcheck-name", O_CREAT | O_RDWR | O_CLOEXEC, 0600);

    TK_REQUIRE(t, fd >= 0);
    close(fd);
}

static void leaks_key(struct tk *t) {
    char path[400];
    FILE *file;

    snprintf(path, sizeof(path), "%s/store/forgotten-key", t->scratch_dir);
    file = fopen(path, "we");
    TK_REQUIRE(t, file != NULL);
    fclose(file);
}

static void barrier_misses_one(struct tk *t) {
    TK_CHECK(t, true);
    if (t->rank != last(t))
        tk_out_of_band_barrier(t);
}

static void follows_another(struct tk *t) {
    TK_REQUIRE(t, true);
    if (t->rank == 2) {
        TK_CHECK_MSG(t, false, "the cause");
        tk_leave(t);
    }
    tk_out_of_band_barrier(t);
}

/* Byte by byte and unseen by ThreadSanitizer, which would end the process before a byte is written.
 */
__attribute__((no_sanitize("thread"))) static void fill(unsigned long start, unsigned long end,
                                                        int byte) {
    for (volatile char *at = (char *)start; at < (volatile char *)end; at++)
        *at = (char)byte;
}

/* Fills the memory that the ranks share with the runner, as a backend that runs wild might. */
static void fill_reports(struct tk *t, int byte) {
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512], permissions[8];
    unsigned long start, end;

    TK_REQUIRE(t, maps != NULL);
    while (t->rank == last(t) && fgets(line, sizeof(line), maps) != NULL)
        if (sscanf(line, "%lx-%lx %7s", &start, &end, permissions) == 3 &&
            strcmp(permissions, "rw-s") == 0 && strstr(line, "/dev/zero") != NULL)
            fill(start, end, byte);
    fclose(maps);
}

static void overwrites_reports(struct tk *t) {
    fill_reports(t, 0xa5);
}

static void clears_reports(struct tk *t) {
    fill_reports(t, 0);
}

static void exit_status(struct tk *t) {
    extern int selfcheck_exit_status;

    TK_CHECK(t, true);
    selfcheck_exit_status = 66; /* as a sanitizer does at exit */
}

#define BAD(test, body_fn)                                                                         \
    { .name = "bad." test, .requirements = "SM-SELF-02", .timeout_s = 2, .body = body_fn }
#define BAD_FLAGS(test, body_fn, case_flags)                                                       \
    {                                                                                              \
        .name = "bad." test, .requirements = "SM-SELF-02", .timeout_s = 2, .flags = case_flags,    \
        .body = body_fn                                                                            \
    }

static const struct tk_case cases[] = {
    BAD("fails", fails),
    BAD("fails_status", fails_status),
    BAD("vacuous", vacuous),
    {.name = "bad.crashes", .requirements = "SM-SELF-02", .timeout_s = 30, .body = crashes},
    BAD("hangs", hangs),
    BAD("hangs_hard", hangs_hard),
    BAD_FLAGS("stops", stops, TK_PROCESS_ONLY),
    BAD("leaves_by_exit", leaves_by_exit),
    BAD_FLAGS("is_killed", is_killed, TK_MAY_DIE),
    BAD_FLAGS("is_killed_announced", is_killed_announced, TK_PROCESS_ONLY),
    BAD("lacks_memory", lacks_memory),
    BAD("leaks_descriptor", leaks_descriptor),
    BAD("closes_descriptor", closes_descriptor),
    BAD("leaks_mapping", leaks_mapping),
    BAD("leaks_process", leaks_process),
    BAD_FLAGS("leaks_name", leaks_name, TK_PROCESS_ONLY),
    BAD_FLAGS("leaks_key", leaks_key, TK_PROCESS_ONLY),
    BAD("barrier_misses_one", barrier_misses_one),
    BAD("follows_another", follows_another),
    BAD("overwrites_reports", overwrites_reports),
    BAD("clears_reports", clears_reports),
    BAD_FLAGS("exit_status", exit_status, TK_PROCESS_ONLY),
};
TK_SUITE(bad, cases);
