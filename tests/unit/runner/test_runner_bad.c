/* SPDX-License-Identifier: BSD-3-Clause */
/* The runner on cases that misbehave: each gets its verdict, with the words that say why. */
#include "runner_run.h"

#include <sys/socket.h>
#include <sys/un.h>

#include "../../conformance/kit_internal.h"

struct expectation {
    const char *test;
    const char *process; /* what the report must say; NULL: not planned */
    const char *thread;
    int exit_status;
};

static const struct expectation expectations[] = {
    {"bad.fails", "rank 3: a message with <&\"", "rank 3: a message with <&\"", 1},
    {"bad.fails_status", "expected TIMEOUT, got OUT_OF_RANGE: the record's message",
     "expected TIMEOUT, got OUT_OF_RANGE", 1},
    {"bad.fails_call", "rank 0: refuse(NULL): expected OK, got LIMIT", "refuse(NULL)", 1},
    {"bad.fails_call", ": refuse(NULL): expected OK, got", ": refuse(NULL): expected OK, got", 1},
    {"bad.fails_again", "and 6 more failed checks, next: test_bad.c:",
     "and 6 more failed checks, next: test_bad.c:", 1},
    {"bad.fails_again", ": expected 2, got 0", ": expected 2, got 0", 1},
    {"bad.out_of_bounds", "expected at least 5, got 3", "expected at least 5, got 3", 1},
    {"bad.out_of_bounds", ": expected less than 5, got 7", ": expected less than 5, got 7", 1},
    {"bad.record_without_the_words",
     ": the record has no \"other words\": \"the record's message\"",
     ": the record has no \"other words\": \"the record's message\"", 1},
    {"bad.vacuous", "made no check", "made no check", 1},
    {"bad.leaves_by_exit", "rank 3: left the test with exit status 0",
     "left the test with exit status 0", 1},
    {"bad.is_killed", "rank 3: killed by signal 9", "killed by signal 9", 1},
    {"bad.is_killed_announced", "rank 3: killed by signal 9", NULL, 1},
    {"bad.lacks_memory", "unresolved: needs 1 TiB", "unresolved: needs 1 TiB", 2},
    {"bad.leaks_descriptor", "ranks 0-3: leak: descriptor", "leak: descriptor", 1},
    {"bad.closes_descriptor", "rank 0: leak: descriptor closed", "leak: descriptor closed", 1},
    {"bad.leaks_mapping", "ranks 0-3: leak: mapping of 8192 bytes", "leak: mapping of 8192 bytes",
     1},
    {"bad.leaks_drivers_mapping", "ranks 0-3: leak: mapping of 8192 bytes",
     "leak: mapping of 8192 bytes", 1},
    {"bad.leaks_runtimes_mapping", "ranks 0-3: leak: mapping of 8192 bytes",
     "leak: mapping of 8192 bytes", 1},
    {"bad.leaks_librarys_mapping", "ranks 0-3: leak: mapping of 8192 bytes",
     "leak: mapping of 8192 bytes", 1},
    {"bad.leaks_process", "leak: 4 process(es) left behind", "leak: 4 process(es)", 1},
    {"bad.leaks_name", "leak: names left behind: /dev/shm/symmem-selfcheck-", NULL, 1},
    {"bad.leaks_held_name", "leak: names left behind: /dev/shm/symmem-selfcheck-held", NULL, 1},
    {"bad.leaks_held_name", "leak: shared memory descriptor", NULL, 1},
    {"bad.leaks_socket", "leak: names left behind: /tmp/selfcheck-0", "/tmp/selfcheck-3", 1},
    {"bad.leaks_socket", "leak: socket ", "leak: socket ", 1},
    {"bad.leaks_backends_socket", "rank 3: leak: socket ", "leak: socket ", 1},
    {"bad.leaks_temporary", "/tmp/any-name", "/tmp/any-name", 1},
    {"bad.leaks_thread", "ranks 0-3: leak: 1 thread left running", NULL, 1},
    {"bad.leaks_eventfd", "ranks 0-3: leak: eventfd ", "leak: eventfd ", 1},
    {"bad.leaks_timer", "ranks 0-3: leak: 1 timer", "leak: 4 timers", 1},
    {"bad.changes_directory", "leak: working directory changed to /",
     "leak: working directory changed to /", 1},
    {"bad.changes_umask", "leak: umask or signal mask changed", "umask or signal mask changed", 1},
    {"bad.changes_environment", "leak: environment variable set: SYMMEM_SELFCHECK=1",
     "environment variable set: SYMMEM_SELFCHECK=1", 1},
    {"bad.changes_limit", "leak: resource limit 7 changed", NULL, 1},
    {"bad.changes_signals", "leak: disposition of signal 10 changed",
     "leak: disposition of signal 10 changed", 1},
    {"bad.changes_mask", "leak: umask or signal mask changed", NULL, 1},
    {"bad.changes_locale", "leak: locale changed to C, the thread's", NULL, 1},
    {"bad.changes_flags", "leak: flags of descriptor 0 ", "leak: flags of descriptor 0 ", 1},
    {"bad.replaces_descriptor", "leak: descriptor 0 was ", "leak: descriptor 0 was ", 1},
#if KIT_OWNS_ALLOCATION /* sanitizers have an eye on the heap themselves */
    {"bad.leaks_heap",
     "ranks 0-3: leak: 1 heap block of 96 bytes together, asked for in "
     "libselfcheck_leaker.so",
     "leak: 4 heap blocks of 384 bytes", 1},
#ifdef SELFCHECK_IN_CXX
    {"bad.leaks_new",
     "ranks 0-3: leak: 1 heap block of 96 bytes together, asked for in libselfcheck_news.so",
     "leak: 4 heap blocks of 384 bytes", 1},
#endif
    {"bad.leaks_drivers_mapping", "asked for by libselfcheck_leaker.so", "libselfcheck_leaker.so",
     1},
    {"bad.leaks_reservation", "ranks 0-3: leak: 2 private mappings of ",
     "leak: 8 private mappings of ", 1},
#elif KIT_ADDRESS_SANITIZER /* a rank's process has one case: its leaks are found at its end */
    {"bad.leaks_heap", "SUMMARY: AddressSanitizer: 96 byte(s) leaked in 1 allocation(s).",
     "SUMMARY: AddressSanitizer: 384 byte(s) leaked in 4 allocation(s).", 1},
#endif
    {"bad.overwrites_before --seed 5",
     "rank 0: canary: byte 255 of 256 before the own buffer is 0x78, expected 0xa5 (test_bad.c:",
     "canary: byte 255 of 256 before the own buffer", 1},
    {"bad.overwrites_behind --seed 5",
     "ranks 0-3: canary: byte 0 of 256 behind the own buffer is 0x78, expected 0xa5 (test_bad.c:",
     "canary: byte 0 of 256 behind the own buffer", 1},
    {"bad.overwrites_pad", "canary: byte 5 of 128 of the own signal pad is 0x09, expected 0x00",
     "canary: byte 5 of 128 of the own signal pad", 1},
    {"bad.overwrites_table", "canary: entry 0 of the table of buffers is (nil), was 0x",
     "canary: entry 0 of the table of buffers is (nil), was 0x", 1},
    {"bad.overwrites_output", "symmem_handle_get_info wrote 0x01 3 bytes behind its output",
     "symmem_handle_get_info wrote 0x01 3 bytes behind its output", 1},
    {"bad.leaks_key", "leak: store keys left behind: forgotten-key", NULL, 1},
    {"bad.barrier_misses_one",
     "because rank 3 has ended (test_bad.c:", "because rank 3 has ended (test_bad.c:", 1},
    {"bad.child_fails", "the process in this rank's place ended with status 3", NULL, 1},
    {"bad.child_hangs", "the process in this rank's place hung for 100 ms", NULL, 1},
    {"bad.child_checks", "rank 1: seen in the child", NULL, 1},
    {"bad.follows_another",
     "s): rank 2: the cause (test_bad.c:", "s): rank 2: the cause (test_bad.c:", 1},
    {"bad.exit_status", "after its end (a sanitizer's report is in what the ranks printed)", NULL,
     1},
    {"bad.data_differs",
     "byte 150000 (of 200000 from offset 0): expected 0x00, got 0x78 (test_kit.c:", "byte 150000",
     1},
};
/* These take seconds: a limit passes, or the other ranks' time to end by themselves. */
static const struct expectation slow_expectations[] = {
    {"bad.crashes", "s): rank 3: killed by signal 11",
     "the process of all ranks: killed by signal 11", 1},
    {"bad.hangs", "s): rank 3: hang: no end within 3.0 s",
     "last seen: rank 3: body, checkpoint \"round 7\", last line test_bad.c:68\n", 1},
    {"bad.hangs_in_a_call",
     "last seen: rank 3: body, last line test_bad.c:85, last point some.point\n",
     "last seen: rank 3: body, last line test_bad.c:85, last point some.point\n", 1},
    {"bad.hangs_hard", "last seen: rank 3: body, checkpoint \"round 7\"",
     "the process of all ranks: hang", 1},
    {"bad.stops", "rank 3: hang", NULL, 1},
};
static void expect(const struct expectation *expected, const char *mode, const char *text) {
    int status = run("--backend fake --filter %s --rank-mode %s", expected->test, mode);
    if (text == NULL) {
        CU_ASSERT_EQUAL(status, 1);
        CU_ASSERT(says("0 cases planned, 1 not planned"));
        return;
    }
    CU_ASSERT_EQUAL(status, expected->exit_status);
    CU_ASSERT(says(text));
    if (!says(text))
        fprintf(stderr, "%s: does not say \"%s\":\n%s\n", expected->test, text, output);
    CU_ASSERT(says("last seen: rank"));
    CU_ASSERT(closes_with("0 passed, 1 failed, 0 skipped\n"));
}

/* Removes the names that the cases leave behind on purpose. */
static void remove_leaks(void) {
    static const char *const sockets[] = {"/tmp/selfcheck-0", "/tmp/selfcheck-1",
                                          "/tmp/selfcheck-2", "/tmp/selfcheck-3"};
    shm_unlink("/symmem-selfcheck-name");
    shm_unlink("/symmem-selfcheck-held");
    for (size_t i = 0; i < sizeof(sockets) / sizeof(sockets[0]); i++)
        unlink(sockets[i]);
}

/* Whether a run can have a private /dev/shm. Without one it does not find a leaked name that no
 * process has open any more. */
static bool shm_can_be_private(void) {
    int status = 1;
    pid_t child = fork();
    if (child == 0)
        _exit(private_shm_enter(NULL) ? 0 : 1);
    CU_ASSERT_FATAL(child > 1);
    CU_ASSERT_EQUAL(waitpid(child, &status, 0), child);
    return status == 0;
}

TEST("bad cases") {
    bool private_shm = shm_can_be_private();
    remove_leaks(); /* of a run that was cut off */
    for (size_t i = 0; i < sizeof(expectations) / sizeof(expectations[0]); i++) {
        if (!private_shm && strcmp(expectations[i].test, "bad.leaks_name") == 0)
            continue;
        if (KIT_THREAD_SANITIZER && (strcmp(expectations[i].test, "bad.leaks_socket") == 0 ||
                                     strcmp(expectations[i].test, "bad.leaks_held_name") == 0))
            continue; /* what is held is not looked at then, see kit_held.c */
        expect(&expectations[i], "process", expectations[i].process);
        expect(&expectations[i], "thread", expectations[i].thread);
    }
    remove_leaks();
}

/* In a process of its own, which the caller reaps: most of it is waiting. */
static pid_t start_expecting(const struct expectation *expected, const char *mode,
                             const char *text) {
    pid_t parent = getpid(), pid = fork();
    if (pid != 0)
        return pid;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent)
        _exit(2);
    expect(expected, mode, text);
    exit(CU_get_number_of_failure_records() == 0 ? 0 : 1);
}

TEST("slow cases") {
    enum { COUNT = sizeof(slow_expectations) / sizeof(slow_expectations[0]) };
    pid_t pids[2 * COUNT];
    fflush(stdout);
    for (int i = 0; i < COUNT; i++) {
        const struct expectation *expected = &slow_expectations[i];
        pids[2 * i] = start_expecting(expected, "process", expected->process);
        pids[2 * i + 1] = start_expecting(expected, "thread", expected->thread);
    }
    for (int i = 0; i < 2 * COUNT; i++) {
        int status = -1;
        CU_ASSERT_FATAL(pids[i] > 1 && waitpid(pids[i], &status, 0) == pids[i]);
        CU_ASSERT_EQUAL(status, 0);
    }
}

/* --- names that another program makes --------------------------------------------------------- */

static void make_names_of(int round) {
    char path[64];
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd;
    snprintf(path, sizeof(path), "/symmem-stranger-%d", round);
    fd = shm_open(path, O_CREAT | O_RDWR, 0600);
    if (fd >= 0)
        close(fd);
    snprintf(address.sun_path, sizeof(address.sun_path), "/tmp/symm-stranger-%d", round);
    fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    (void)bind(fd, (const struct sockaddr *)&address, sizeof(address));
    close(fd);
}

static void remove_names_of(int round) {
    char path[64];
    snprintf(path, sizeof(path), "/symmem-stranger-%d", round);
    shm_unlink(path);
    snprintf(path, sizeof(path), "/tmp/symm-stranger-%d", round);
    unlink(path);
}

/* Each name stays for more than a second. */
static void be_a_stranger(void) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (int round = 0; round < 100000; round++) {
        struct timespec pause = {0, 10000000};
        make_names_of(round % 200);
        remove_names_of((round + 1) % 200);
        nanosleep(&pause, NULL);
    }
    _exit(0);
}

static void judge_beside_a_stranger(void) {
    CU_ASSERT_EQUAL(run("--backend fake --filter 'good.*,kit.*' --repeat 3"), 0);
    if (KIT_THREAD_SANITIZER)
        return; /* what is held is not looked at */
    RUN_SAYS(1, "--backend fake --filter bad.leaks_held_name",
             "names left behind: /dev/shm/symmem-selfcheck-held\n");
    RUN_SAYS(1, "--backend fake --filter bad.leaks_socket",
             "names left behind: /tmp/selfcheck-0 /tmp/selfcheck-1 /tmp/selfcheck-2 "
             "/tmp/selfcheck-3\n");
    remove_leaks();
}

TEST("strangers make names") {
    pid_t stranger = fork();
    if (stranger == 0)
        be_a_stranger();
    CU_ASSERT_FATAL(stranger > 1);
    judge_beside_a_stranger();
    setenv("SYMMEM_PRIVATE_SHM", "0", 1);
    judge_beside_a_stranger();
    unsetenv("SYMMEM_PRIVATE_SHM");
    kill(stranger, SIGKILL);
    waitpid(stranger, NULL, 0);
    for (int round = 0; round < 200; round++)
        remove_names_of(round);
}

/* Overwritten reports fail whatever the bytes are. Zeros would look as if nothing had failed. */
TEST("overwritten reports") {
    static const char *const filters[] = {"bad.overwrites_reports", "bad.clears_reports"};
    for (int i = 0; i < 4; i++) {
        CU_ASSERT_EQUAL(run("--backend fake --filter %s --rank-mode %s", filters[i / 2],
                            i % 2 == 0 ? "process" : "thread"),
                        1);
        CU_ASSERT(says("the memory in which the ranks report was overwritten"));
        CU_ASSERT(strstr(output, "last seen") == NULL);
        CU_ASSERT(closes_with("0 passed, 1 failed, 0 skipped\n"));
    }
}
