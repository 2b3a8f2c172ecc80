/* SPDX-License-Identifier: BSD-3-Clause */
/* Cases that must not pass; each name says which verdict they must get. */
#include "kit.h"

#include <locale.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>

static int last(const struct tk *t) {
    return t->world_size - 1;
}

TK_TEST(bad, fails, "SM-SELF-02", .timeout_s = 10) {
    tk_checkpoint(t, "before the check");
    TK_REQ(t, "SM-SELF-02");
    TK_CHECK_MSG(t, t->rank != last(t), "a message with <&\"\n]]> # \\ in it: \xff\x01");
    TK_REQUIRE(t, t->rank != last(t));
}

TK_TEST(bad, fails_status, "SM-SELF-02", .timeout_s = 10) {
    TK_STATUS(t, SYMMEM_TIMEOUT, SYMMEM_OUT_OF_RANGE);
}

static symmem_status refuse(const void *what) {
    return what == NULL ? SYMMEM_LIMIT : SYMMEM_OK;
}

/* Shown as it is written here. */
TK_TEST(bad, fails_call, "SM-SELF-02", .timeout_s = 10) {
    TK_OK(t, refuse(NULL));
    TK_REQUIRE_OK(t, refuse(NULL));
}

/* But for the first rank, with which the others' are put together. */
TK_TEST(bad, fails_again, "SM-SELF-02", .timeout_s = 10) {
    TK_CHECK_MSG(t, false, "the first");
    if (t->rank == 0)
        return;
    TK_EQ_INT(t, 2, t->world_size * 0);
    TK_CHECK_MSG(t, false, "number %d", 3);
}

TK_TEST(bad, out_of_bounds, "SM-SELF-02", .timeout_s = 10) {
    TK_AT_LEAST(t, 5, t->world_size * 0 + 3);
    TK_BELOW(t, 5, t->world_size * 0 + 7);
}

TK_TEST(bad, vacuous, "SM-SELF-02", .timeout_s = 10) {
    tk_checkpoint(t, "nothing to see");
}

TK_TEST(bad, crashes, "SM-SELF-02", .timeout_s = 30) {
    TK_CHECK(t, true);
    tk_checkpoint(t, "about to crash");
    if (t->rank == last(t)) {
        signal(SIGSEGV, SIG_DFL); /* past a sanitizer's handler */
        raise(SIGSEGV);
    }
    tk_sleep_ms(60000); /* the runner does not wait for it */
}

static void wait_forever(struct tk *t) {
    TK_CHECK(t, true);
    tk_checkpoint(t, "round %d", t->rank == last(t) ? 7 : 8);
    while (t->rank == last(t))
        pause();
}

TK_TEST(bad, hangs, "SM-SELF-02", .timeout_s = 3) {
    wait_forever(t);
}

TK_TEST(bad, hangs_hard, "SM-SELF-02", .timeout_s = 3) {
    signal(SIGTERM, SIG_IGN);
    wait_forever(t);
}

TK_TEST(bad, hangs_in_a_call, "SM-SELF-02", .timeout_s = 3) {
    symmem_context_options options = tk_options(t);
    TK_CHECK(t, options.point(options.point_arg, "some.point") == SYMMEM_OK);
    while (t->rank == last(t))
        pause();
}

TK_TEST(bad, stops, "SM-SELF-02", .timeout_s = 3, .flags = TK_PROCESS_ONLY) {
    TK_CHECK(t, true);
    if (t->rank == last(t))
        raise(SIGSTOP);
}

TK_TEST(bad, leaves_by_exit, "SM-SELF-02", .timeout_s = 10) {
    TK_CHECK(t, true);
    if (t->rank == last(t))
        exit(0);
}

TK_TEST(bad, is_killed, "SM-SELF-02", .timeout_s = 10, .flags = TK_MAY_DIE) {
    TK_CHECK(t, true);
    if (t->rank == last(t))
        raise(SIGKILL);
}

/* Announced, but the case has no TK_MAY_DIE. */
TK_TEST(bad, is_killed_announced, "SM-SELF-02", .timeout_s = 10, .flags = TK_PROCESS_ONLY) {
    TK_CHECK(t, true);
    if (t->rank == last(t))
        tk_kill_self(t);
}

TK_TEST(bad, lacks_memory, "SM-SELF-02", .timeout_s = 10) {
    TK_CHECK(t, true);
    tk_unresolved(t, "needs 1 TiB of memory");
}

TK_TEST(bad, leaks_descriptor, "SM-SELF-02", .timeout_s = 10) {
    TK_CHECK(t, open("/dev/null", O_RDONLY | O_CLOEXEC) >= 0);
}

TK_TEST(bad, closes_descriptor, "SM-SELF-02", .timeout_s = 10) {
    TK_CHECK(t, t->rank != 0 || close(STDIN_FILENO) == 0);
}

TK_TEST(bad, leaks_mapping, "SM-SELF-02", .timeout_s = 10) {
    TK_CHECK(t, mmap(NULL, 8192, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
}

TK_TEST(bad, leaks_drivers_mapping, "SM-SELF-02", .timeout_s = 10) {
    extern bool selfcheck_pin(size_t bytes, bool by_runtime);
    struct tk_mappings before, now;
    TK_CHECK(t, tk_shared_mappings(&before));
    TK_CHECK(t, selfcheck_pin(8192, false));
    if (!tk_shared_mappings(&now) || now.own <= before.own)
        abort(); /* not the end that is expected */
}

TK_TEST(bad, leaks_runtimes_mapping, "SM-SELF-02", .timeout_s = 10) {
    extern bool selfcheck_pin(size_t bytes, bool by_runtime);
    TK_CHECK(t, selfcheck_pin(8192, true));
}

TK_TEST(bad, leaks_librarys_mapping, "SM-SELF-02", .timeout_s = 10) {
    extern bool selfcheck_use_library(size_t bytes, bool asks);
    TK_CHECK(t, selfcheck_use_library(8192, false));
}

TK_TEST(bad, leaks_process, "SM-SELF-02", .timeout_s = 10) {
    pid_t pid = fork();
    TK_REQUIRE(t, pid >= 0);
    if (pid == 0) {
        for (;;)
            pause();
    }
}

/* The self-test removes the name afterwards. */
TK_TEST(bad, leaks_name, "SM-SELF-02", .timeout_s = 10, .flags = TK_PROCESS_ONLY) {
    int fd = shm_open("/symmem-selfcheck-name", O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    TK_REQUIRE(t, fd >= 0);
    close(fd);
}

/* Held at the end of the body, which is seen wherever it is. */
TK_TEST(bad, leaks_held_name, "SM-SELF-02", .timeout_s = 10, .flags = TK_PROCESS_ONLY) {
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

TK_TEST(bad, leaks_socket, "SM-SELF-02", .timeout_s = 10) {
    bind_socket(t, "/tmp");
}

TK_TEST(bad, leaks_backends_socket, "SM-SELF-02", .timeout_s = 10) {
    extern int selfcheck_socket(void);
    int fd = selfcheck_socket();
    TK_CHECK(t, fd >= 0);
    TK_CHECK(t, !tk_is_foreign_socket(fd));
}

TK_TEST(bad, leaks_temporary, "SM-SELF-02", .timeout_s = 10) {
    char path[400];
    TK_REQUIRE(t, getenv("TMPDIR") != NULL);
    snprintf(path, sizeof(path), "%s/any-name", getenv("TMPDIR"));
    int fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    TK_REQUIRE(t, fd >= 0);
    close(fd);
}

static void *sleep_on(void *arg) {
    for (;;)
        pause();
    return NULL;
}

TK_TEST(bad, leaks_thread, "SM-SELF-02", .timeout_s = 10, .flags = TK_PROCESS_ONLY) {
    pthread_t thread;
    TK_CHECK(t, pthread_create(&thread, NULL, sleep_on, NULL) == 0);
}

TK_TEST(bad, leaks_eventfd, "SM-SELF-02", .timeout_s = 10) {
    TK_CHECK(t, eventfd(0, EFD_CLOEXEC) >= 0);
}

/* More than a line holds. */
TK_TEST(bad, leaks_many, "SM-SELF-02", .timeout_s = 10) {
    for (int i = 0; i < 60; i++)
        TK_CHECK(t, eventfd(0, EFD_CLOEXEC) >= 0);
    TK_CHECK(t, fcntl(0, F_DUPFD_CLOEXEC, 200 + t->rank) == 200 + t->rank);
}

TK_TEST(bad, fails_and_leaks, "SM-SELF-02", .timeout_s = 10) {
    TK_CHECK(t, eventfd(0, EFD_CLOEXEC) >= 0);
    TK_CHECK_MSG(t, false, "and more");
}

TK_TEST(bad, leaks_timer, "SM-SELF-02", .timeout_s = 10) {
    struct sigevent event = {.sigev_notify = SIGEV_NONE};
    timer_t timer;
    TK_CHECK(t, timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
}

TK_TEST(bad, leaks_reservation, "SM-SELF-02", .timeout_s = 10) {
    extern bool selfcheck_reserve(bool all_back);
    TK_CHECK(t, selfcheck_reserve(true));
    TK_CHECK(t, selfcheck_reserve(false));
}

TK_TEST(bad, leaks_heap, "SM-SELF-02", .timeout_s = 10) {
    extern void *selfcheck_leak(size_t bytes);
    TK_CHECK(t, selfcheck_leak(96) != NULL);
}

#ifdef SELFCHECK_IN_CXX
/* By a backend in C++. */
TK_TEST(bad, leaks_new, "SM-SELF-02", .timeout_s = 10) {
    extern bool selfcheck_new_forgets(size_t bytes);
    TK_CHECK(t, selfcheck_new_forgets(96));
}
#endif

TK_TEST(bad, changes_directory, "SM-SELF-02", .timeout_s = 10) {
    TK_CHECK(t, chdir("/") == 0);
}

TK_TEST(bad, changes_umask, "SM-SELF-02", .timeout_s = 10) {
    TK_CHECK(t, true);
    (void)umask(0);
}

TK_TEST(bad, changes_environment, "SM-SELF-02", .timeout_s = 10) {
    TK_CHECK(t, setenv("SYMMEM_SELFCHECK", "1", 1) == 0);
}

TK_TEST(bad, changes_limit, "SM-SELF-02", .timeout_s = 10, .flags = TK_PROCESS_ONLY) {
    struct rlimit limit;
    TK_REQUIRE(t, getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur--;
    TK_CHECK(t, setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

TK_TEST(bad, changes_signals, "SM-SELF-02", .timeout_s = 10) {
    TK_CHECK(t, signal(SIGUSR1, SIG_IGN) != SIG_ERR);
}

TK_TEST(bad, changes_mask, "SM-SELF-02", .timeout_s = 10, .flags = TK_PROCESS_ONLY) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    TK_CHECK(t, pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
}

TK_TEST(bad, changes_locale, "SM-SELF-02", .timeout_s = 10, .flags = TK_PROCESS_ONLY) {
    TK_CHECK(t, uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0)) != (locale_t)0);
}

TK_TEST(bad, changes_flags, "SM-SELF-02", .timeout_s = 10) {
    TK_CHECK(t, fcntl(STDIN_FILENO, F_SETFD, FD_CLOEXEC) == 0);
}

TK_TEST(bad, replaces_descriptor, "SM-SELF-02", .timeout_s = 10) {
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

TK_TEST(bad, overwrites_before, "SM-SELF-02", .timeout_s = 10) {
    overwrite(t, (size_t)-1);
}

TK_TEST(bad, overwrites_behind, "SM-SELF-02", .timeout_s = 10) {
    overwrite(t, 64);
}

TK_TEST(bad, overwrites_pad, "SM-SELF-02", .timeout_s = 10) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    void *const *pads = NULL;
    TK_REQUIRE_OK(t, symmem_handle_signal_pad_ptrs(handle, &pads));
    ((unsigned char *)pads[0])[5] = 9;
}

TK_TEST(bad, overwrites_table, "SM-SELF-02", .timeout_s = 10) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    void *const *buffers = NULL;
    TK_REQUIRE_OK(t, symmem_handle_buffer_ptrs(handle, &buffers));
    *(void **)(uintptr_t)buffers = NULL;
}

TK_TEST(bad, overwrites_output, "SM-SELF-02", .timeout_s = 10) {
    extern int selfcheck_long_info;
    TK_CHECK(t, true);
    selfcheck_long_info = 1;
    tk_handle(t, 64, tk_world_group(t));
}

TK_TEST(bad, leaks_key, "SM-SELF-02", .timeout_s = 10, .flags = TK_PROCESS_ONLY) {
    char path[400];
    snprintf(path, sizeof(path), "%s/store/forgotten-key", t->scratch_dir);
    FILE *file = fopen(path, "we");
    TK_REQUIRE(t, file != NULL);
    fclose(file);
}

TK_TEST(bad, barrier_misses_one, "SM-SELF-02", .timeout_s = 10) {
    TK_CHECK(t, true);
    if (t->rank != last(t))
        tk_out_of_band_barrier(t);
}

TK_TEST(bad, follows_another, "SM-SELF-02", .timeout_s = 10) {
    TK_REQUIRE(t, true);
    if (t->rank == 2) {
        TK_CHECK_MSG(t, false, "the cause");
        tk_leave(t);
    }
    tk_out_of_band_barrier(t);
}

/* Byte by byte and unseen by ThreadSanitizer, which would end the process before the first. */
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

TK_TEST(bad, overwrites_reports, "SM-SELF-02", .timeout_s = 10) {
    fill_reports(t, 0xa5);
}

TK_TEST(bad, clears_reports, "SM-SELF-02", .timeout_s = 10) {
    fill_reports(t, 0);
}

TK_TEST(bad, exit_status, "SM-SELF-02", .timeout_s = 10, .flags = TK_PROCESS_ONLY) {
    extern int selfcheck_exit_status;
    TK_CHECK(t, true);
    selfcheck_exit_status = 66; /* as a sanitizer does at exit */
}

/* Whatever a broken backend may have written where a message is looked for. */
TK_TEST(bad, any_bytes, "SM-SELF-02", .timeout_s = 10) {
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

TK_TEST(bad, prints_much, "SM-SELF-02") {
    if (t->rank == 0) {
        for (int i = 0; i < 100000; i++)
            fputs("a line of which there are too many\n", stderr);
        fputs("the last words\n", stderr);
    }
    tk_out_of_band_barrier(t);
    TK_CHECK(t, false);
}

TK_TEST(bad, record_without_the_words, "SM-SELF-02", .timeout_s = 10) {
    TK_SAYS(t, "record's");
    TK_SAYS(t, "other words");
}
