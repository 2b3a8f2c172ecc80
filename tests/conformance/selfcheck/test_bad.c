/* SPDX-License-Identifier: BSD-3-Clause */
/* Cases that must not pass; each name says which verdict they must get. */
#include "kit.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
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

static void hangs_in_a_call(struct tk *t) {
    symmem_context_options options = tk_options(t);

    TK_CHECK(t, options.point(options.point_arg, "some.point") == SYMMEM_OK);
    while (t->rank == last(t))
        pause();
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

static void leaks_drivers_mapping(struct tk *t) {
    extern bool selfcheck_pin(size_t bytes, bool by_runtime);
    struct tk_mappings before, now;

    TK_CHECK(t, tk_shared_mappings(&before));
    TK_CHECK(t, selfcheck_pin(8192, false));
    if (!tk_shared_mappings(&now) || now.own <= before.own)
        abort(); /* not the end that is expected */
}

static void leaks_runtimes_mapping(struct tk *t) {
    extern bool selfcheck_pin(size_t bytes, bool by_runtime);

    TK_CHECK(t, selfcheck_pin(8192, true));
}

static void leaks_librarys_mapping(struct tk *t) {
    extern bool selfcheck_use_library(size_t bytes, bool asks);

    TK_CHECK(t, selfcheck_use_library(8192, false));
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

/* Held at the end of the body, which is seen wherever it is. */
static void leaks_held_name(struct tk *t) {
    int fd = shm_open("/symmem-selfcheck-held", O_CREAT | O_RDWR | O_CLOEXEC, 0600);

    TK_REQUIRE(t, fd >= 0);
}

static void bind_socket(struct tk *t, const char *directory) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    TK_REQUIRE(t, fd >= 0);
    snprintf(address.sun_path, sizeof(address.sun_path), "%.80s/selfcheck-%d", directory, t->rank);
    (void)unlink(address.sun_path);
    TK_CHECK(t, bind(fd, (const struct sockaddr *)&address, sizeof(address)) == 0);
}

static void leaks_socket(struct tk *t) {
    bind_socket(t, "/tmp");
}

static void leaks_backends_socket(struct tk *t) {
    extern int selfcheck_socket(void);
    int fd = selfcheck_socket();

    TK_CHECK(t, fd >= 0);
    TK_CHECK(t, !tk_is_foreign_socket(fd));
}

static void leaks_temporary(struct tk *t) {
    char path[400];
    int fd;

    TK_REQUIRE(t, getenv("TMPDIR") != NULL);
    snprintf(path, sizeof(path), "%s/any-name", getenv("TMPDIR"));
    fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    TK_REQUIRE(t, fd >= 0);
    close(fd);
}

static void *sleep_on(void *arg) {
    (void)arg;
    for (;;)
        pause();
    return NULL;
}

static void leaks_thread(struct tk *t) {
    pthread_t thread;

    TK_CHECK(t, pthread_create(&thread, NULL, sleep_on, NULL) == 0);
}

static void leaks_eventfd(struct tk *t) {
    TK_CHECK(t, eventfd(0, EFD_CLOEXEC) >= 0);
}

static void leaks_timer(struct tk *t) {
    struct sigevent event = {.sigev_notify = SIGEV_NONE};
    timer_t timer;

    TK_CHECK(t, timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
}

static void leaks_reservation(struct tk *t) {
    extern bool selfcheck_reserve(bool all_back);

    TK_CHECK(t, selfcheck_reserve(true));
    TK_CHECK(t, selfcheck_reserve(false));
}

static void leaks_heap(struct tk *t) {
    extern void *selfcheck_leak(size_t bytes);

    TK_CHECK(t, selfcheck_leak(96) != NULL);
}

static void changes_directory(struct tk *t) {
    TK_CHECK(t, chdir("/") == 0);
}

static void changes_umask(struct tk *t) {
    TK_CHECK(t, true);
    (void)umask(0);
}

static void changes_environment(struct tk *t) {
    TK_CHECK(t, setenv("SYMMEM_SELFCHECK", "1", 1) == 0);
}

static void changes_limit(struct tk *t) {
    struct rlimit limit;

    TK_REQUIRE(t, getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur--;
    TK_CHECK(t, setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

static void changes_signals(struct tk *t) {
    TK_CHECK(t, signal(SIGUSR1, SIG_IGN) != SIG_ERR);
}

static void changes_mask(struct tk *t) {
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    TK_CHECK(t, pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
}

static void changes_flags(struct tk *t) {
    TK_CHECK(t, fcntl(STDIN_FILENO, F_SETFD, FD_CLOEXEC) == 0);
}

static void replaces_descriptor(struct tk *t) {
    int fd = open("/dev/full", O_RDONLY | O_CLOEXEC);

    TK_REQUIRE(t, fd >= 0 && dup2(fd, STDIN_FILENO) >= 0);
    close(fd);
}

/* The stand-in for the library looks at no range. With other seeds than the self-test's there are
 * no canaries, and these overwrite the heap. */
static void overwrite(struct tk *t, size_t offset) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));

    TK_OK(t, symmem_put(handle, 0, offset, "x", 1, NULL));
}

static void overwrites_before(struct tk *t) {
    overwrite(t, (size_t)-1);
}

static void overwrites_behind(struct tk *t) {
    overwrite(t, 64);
}

static void overwrites_pad(struct tk *t) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    void *const *pads = NULL;

    TK_REQUIRE_OK(t, symmem_handle_signal_pad_ptrs(handle, &pads));
    ((unsigned char *)pads[0])[5] = 9;
}

static void overwrites_table(struct tk *t) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    void *const *buffers = NULL;

    TK_REQUIRE_OK(t, symmem_handle_buffer_ptrs(handle, &buffers));
    *(void **)(uintptr_t)buffers = NULL;
}

static void overwrites_output(struct tk *t) {
    extern int selfcheck_long_info;

    TK_CHECK(t, true);
    selfcheck_long_info = 1;
    tk_handle(t, 64, tk_world_group(t));
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

/* Whatever a broken backend may have written where a message is looked for. */
static void any_bytes(struct tk *t) {
    char bytes[256];

    for (int i = 0; i < 255; i++)
        bytes[i] = (char)(i + 1);
    bytes[255] = '\0';
    if (t->rank == 0)
        fwrite(bytes, 1, sizeof(bytes), stderr);
    tk_checkpoint(t, "%s", bytes + 120);
    TK_EQ_STR(t, bytes, bytes + 1);
    TK_CHECK_MSG(t, false, "%s", bytes);
}

static void prints_much(struct tk *t) {
    if (t->rank == 0) {
        for (int i = 0; i < 100000; i++)
            fputs("a line of which there are too many\n", stderr);
        fputs("the last words\n", stderr);
    }
    tk_out_of_band_barrier(t);
    TK_CHECK(t, false);
}

/* But for the first rank, with which the others' are put together. */
static void fails_again(struct tk *t) {
    TK_CHECK_MSG(t, false, "the first");
    if (t->rank == 0)
        return;
    TK_EQ_INT(t, 2, t->world_size * 0);
    TK_CHECK_MSG(t, false, "number %d", 3);
}

static symmem_status refuse(const void *what) {
    return what == NULL ? SYMMEM_LIMIT : SYMMEM_OK;
}

/* Shown as it is written here. */
static void fails_call(struct tk *t) {
    TK_OK(t, refuse(NULL));
    TK_REQUIRE_OK(t, refuse(NULL));
}

static void out_of_bounds(struct tk *t) {
    TK_AT_LEAST(t, 5, t->world_size * 0 + 3);
    TK_BELOW(t, 5, t->world_size * 0 + 7);
}

#define BAD(test, body_fn)                                                                         \
    { .name = "bad." test, .requirements = "SM-SELF-02", .timeout_s = 10, .body = body_fn }
#define BAD_FLAGS(test, body_fn, case_flags)                                                       \
    {                                                                                              \
        .name = "bad." test, .requirements = "SM-SELF-02", .timeout_s = 10, .flags = case_flags,   \
        .body = body_fn                                                                            \
    }
/* These last as long as they may. */
#define HANGS(test, body_fn, case_flags)                                                           \
    {                                                                                              \
        .name = "bad." test, .requirements = "SM-SELF-02", .timeout_s = 3, .flags = case_flags,    \
        .body = body_fn                                                                            \
    }

static const struct tk_case cases[] = {
    BAD("fails", fails),
    BAD("fails_status", fails_status),
    BAD("fails_call", fails_call),
    BAD("fails_again", fails_again),
    BAD("out_of_bounds", out_of_bounds),
    BAD("vacuous", vacuous),
    TK_CASE("bad.crashes", crashes, "SM-SELF-02", .timeout_s = 30),
    HANGS("hangs", hangs, 0),
    HANGS("hangs_hard", hangs_hard, 0),
    HANGS("hangs_in_a_call", hangs_in_a_call, 0),
    HANGS("stops", stops, TK_PROCESS_ONLY),
    BAD("leaves_by_exit", leaves_by_exit),
    BAD_FLAGS("is_killed", is_killed, TK_MAY_DIE),
    BAD_FLAGS("is_killed_announced", is_killed_announced, TK_PROCESS_ONLY),
    BAD("lacks_memory", lacks_memory),
    BAD("leaks_descriptor", leaks_descriptor),
    BAD("closes_descriptor", closes_descriptor),
    BAD("leaks_mapping", leaks_mapping),
    BAD("leaks_drivers_mapping", leaks_drivers_mapping),
    BAD("leaks_runtimes_mapping", leaks_runtimes_mapping),
    BAD("leaks_librarys_mapping", leaks_librarys_mapping),
    BAD("leaks_process", leaks_process),
    BAD_FLAGS("leaks_name", leaks_name, TK_PROCESS_ONLY),
    BAD_FLAGS("leaks_held_name", leaks_held_name, TK_PROCESS_ONLY),
    BAD("leaks_socket", leaks_socket),
    BAD("leaks_backends_socket", leaks_backends_socket),
    BAD("leaks_temporary", leaks_temporary),
    BAD_FLAGS("leaks_thread", leaks_thread, TK_PROCESS_ONLY),
    BAD("leaks_eventfd", leaks_eventfd),
    BAD("leaks_timer", leaks_timer),
    BAD("leaks_heap", leaks_heap),
    BAD("leaks_reservation", leaks_reservation),
    BAD("changes_directory", changes_directory),
    BAD("changes_umask", changes_umask),
    BAD("changes_environment", changes_environment),
    BAD_FLAGS("changes_limit", changes_limit, TK_PROCESS_ONLY),
    BAD("changes_signals", changes_signals),
    BAD_FLAGS("changes_mask", changes_mask, TK_PROCESS_ONLY),
    BAD("changes_flags", changes_flags),
    BAD("replaces_descriptor", replaces_descriptor),
    BAD("overwrites_before", overwrites_before),
    BAD("overwrites_behind", overwrites_behind),
    BAD("overwrites_pad", overwrites_pad),
    BAD("overwrites_table", overwrites_table),
    BAD("overwrites_output", overwrites_output),
    BAD_FLAGS("leaks_key", leaks_key, TK_PROCESS_ONLY),
    BAD("barrier_misses_one", barrier_misses_one),
    BAD("follows_another", follows_another),
    BAD("overwrites_reports", overwrites_reports),
    BAD("clears_reports", clears_reports),
    BAD("any_bytes", any_bytes),
    TK_CASE("bad.prints_much", prints_much, "SM-SELF-02"),
    BAD_FLAGS("exit_status", exit_status, TK_PROCESS_ONLY),
};
TK_SUITE(bad, cases);
