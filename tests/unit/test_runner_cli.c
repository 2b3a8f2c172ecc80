/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The conformance runner judged from outside: runner-selfcheck, which is the runner on cases that
 * misbehave on purpose, lies beside this program.
 */
#include <CUnit/Basic.h>
#include <dirent.h>
#include <fcntl.h>
#include <libgen.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../conformance/kit_internal.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HAS_SANITIZER 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HAS_SANITIZER 1
#endif

static char program[512];
static char output[1 << 20];

/* Runs the self-check under a limit; its exit status, with standard output (and error) in output.
 */
static int run(const char *arguments) {
    char command[1024];
    size_t used = 0, got;
    FILE *pipe_end;
    int status;

    snprintf(command, sizeof(command), "timeout -k 5 60 %s %s", program, arguments);
    output[0] = '\0';
    pipe_end = popen(command, "r");
    if (pipe_end == NULL)
        return -1;
    while ((got = fread(output + used, 1, sizeof(output) - 1 - used, pipe_end)) > 0)
        used += got;
    output[used] = '\0';
    status = pclose(pipe_end);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static bool says(const char *text) {
    bool found = strstr(output, text) != NULL;

    if (!found)
        fprintf(stderr, "not found: '%s' in:\n%s\n", text, output);
    return found;
}

static bool closes_with(const char *line) {
    size_t length = strlen(line), all = strlen(output);
    bool found = all >= length && strcmp(output + all - length, line) == 0 &&
                 (all == length || output[all - length - 1] == '\n');

    if (!found)
        fprintf(stderr, "does not close with: '%s':\n%s\n", line, output);
    return found;
}

static bool leaves_nothing_in(const char *directory, const char *prefix) {
    DIR *open_directory = opendir(directory);
    const struct dirent *entry;
    bool clean = true;

    while (open_directory != NULL && (entry = readdir(open_directory)) != NULL)
        clean = clean && strncmp(entry->d_name, prefix, strlen(prefix)) != 0;
    if (open_directory != NULL)
        closedir(open_directory);
    return clean;
}

/* --- verdicts ----------------------------------------------------------------------- */

static void test_good_cases_pass(void) {
    CU_ASSERT_EQUAL(run("--backend fake --filter 'good.*,kit.*' --seed 7"), 0);
    CU_ASSERT(says("seed 7"));
    CU_ASSERT(says("17 cases planned, 2 not planned"));
    CU_ASSERT(says("good.skipped (0.00 s): needs capability MULTICAST\n"));
    CU_ASSERT(says("needs a backend without capability STREAMS\n"));
    CU_ASSERT(says("not planned: good.many_ranks (needs 1024 ranks)\n"));
    CU_ASSERT(says("not planned: good.threads (needs ranks as threads)\n"));
    CU_ASSERT(closes_with("15 passed, 0 failed, 2 skipped\n"));
}

static void test_good_cases_pass_with_threads(void) {
    CU_ASSERT_EQUAL(run("--backend fake --filter 'good.*,kit.*' --rank-mode thread"), 0);
    CU_ASSERT(says("not planned: good.dies_as_announced (needs ranks as processes)\n"));
    CU_ASSERT(closes_with("15 passed, 0 failed, 2 skipped\n"));
}

static void test_many_and_few_ranks(void) {
    CU_ASSERT_EQUAL(run("--backend fake --ranks 128 --filter 'good.passes,kit.*'"), 0);
    CU_ASSERT(closes_with("10 passed, 0 failed, 0 skipped\n"));
    CU_ASSERT_EQUAL(run("--backend fake --ranks 1 --filter 'good.*,kit.*' --no-large"), 0);
    CU_ASSERT(says("not planned: good.large (large, left out by --no-large)\n"));
    CU_ASSERT(closes_with("12 passed, 0 failed, 2 skipped\n"));
}

/* Of cases that this rank mode can never run a line is enough. */
static void test_many_of_the_other_mode(void) {
    const char *arguments =
        "--backend fake --rank-mode thread --filter 'good.dies*,walk.ch*,bad.stops,"
        "bad.is_killed_*,bad.leaks_name,bad.leaks_held_*,bad.leaks_thread,bad.changes_limit,"
        "bad.changes_mask,good.passes'";
    char verbose[512];

    snprintf(verbose, sizeof(verbose), "%s --verbose", arguments);
    CU_ASSERT_EQUAL(run(arguments), 0);
    CU_ASSERT(says("not planned: 9 cases (needs ranks as processes), named by --verbose\n"));
    CU_ASSERT(strstr(output, "bad.stops") == NULL);
    CU_ASSERT_EQUAL(run(verbose), 0);
    CU_ASSERT(says("not planned: bad.stops (needs ranks as processes)\n"));
}

/* What the walks of test points are made of, and the line that they say. */
static void test_walks_tools(void) {
    CU_ASSERT_EQUAL(run("--backend fake --filter 'walk.*'"), 0);
    CU_ASSERT(says(" s): a line beside the verdict\n"));
    CU_ASSERT(closes_with("2 passed, 0 failed, 0 skipped\n"));
    CU_ASSERT_EQUAL(run("--backend fake --filter 'walk.*' --rank-mode thread"), 0);
    CU_ASSERT(says("not planned: walk.children_are_ranks (needs ranks as processes)\n"));
    CU_ASSERT(closes_with("1 passed, 0 failed, 0 skipped\n"));
}

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
    {"bad.vacuous", "made no check", "made no check", 1},
    {"bad.crashes", "s): rank 3: killed by signal 11",
     "the process of all ranks: killed by signal 11", 1},
    {"bad.hangs", "s): rank 3: hang: no end within 2.0 s",
     "last seen: rank 3: body, checkpoint \"round 7\", last check test_bad.c:50\n", 1},
    {"bad.hangs_in_a_call",
     "last seen: rank 3: body, last check test_bad.c:64, last point some.point\n",
     "last seen: rank 3: body, last check test_bad.c:64, last point some.point\n", 1},
    {"bad.hangs_hard", "last seen: rank 3: body, checkpoint \"round 7\"",
     "the process of all ranks: hang", 1},
    {"bad.stops", "rank 3: hang", NULL, 1},
    {"bad.leaves_by_exit", "rank 3: left the test with exit status 0",
     "left the test with exit status 0", 1},
    {"bad.is_killed", "rank 3: killed by signal 9", "killed by signal 9", 1},
    {"bad.is_killed_announced", "rank 3: killed by signal 9", NULL, 1},
    {"bad.lacks_memory", "unresolved: needs 1 TiB", "unresolved: needs 1 TiB", 2},
    {"bad.leaks_descriptor", "ranks 0-3: leak: descriptor", "leak: descriptor", 1},
    {"bad.closes_descriptor", "rank 0: leak: descriptor closed", "leak: descriptor closed", 1},
    {"bad.leaks_mapping", "ranks 0-3: leak: mapping of 8192 bytes", "leak: mapping of 8192 bytes",
     1},
    {"bad.leaks_process", "leak: 4 process(es) left behind", "leak: 4 process(es)", 1},
    {"bad.leaks_name", "leak: names left behind: /dev/shm/symmem-selfcheck-", NULL, 1},
    {"bad.leaks_held_name", "leak: names left behind: /dev/shm/symmem-selfcheck-held", NULL, 1},
    {"bad.leaks_held_name", "leak: shared memory descriptor", NULL, 1},
    {"bad.leaks_socket", "leak: names left behind: /tmp/selfcheck-0", "/tmp/selfcheck-3", 1},
    {"bad.leaks_socket", "leak: socket ", "leak: socket ", 1},
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
    {"bad.changes_flags", "leak: flags of descriptor 0 ", "leak: flags of descriptor 0 ", 1},
    {"bad.replaces_descriptor", "leak: descriptor 0 was ", "leak: descriptor 0 was ", 1},
#ifndef HAS_SANITIZER /* which have an eye on the heap themselves */
    {"bad.leaks_heap",
     "ranks 0-3: leak: 1 heap block of 96 bytes together, asked for in "
     "libselfcheck_leaker.so",
     "leak: 4 heap blocks of 384 bytes", 1},
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
    {"bad.exit_status", "exit status 66 after its end", NULL, 1},
    {"bad.data_differs",
     "byte 150000 (of 200000 from offset 0): expected 0x00, got 0x78 (test_kit.c:", "byte 150000",
     1},
};

static void expect(const struct expectation *expected, const char *mode, const char *text) {
    char arguments[256];
    int status;

    snprintf(arguments, sizeof(arguments), "--backend fake --filter %s --rank-mode %s",
             expected->test, mode);
    status = run(arguments);
    if (text == NULL) {
        CU_ASSERT_EQUAL(status, 0);
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

/* What the cases are there to leave behind. */
static void remove_leaks(void) {
    static const char *const sockets[] = {"/tmp/selfcheck-0", "/tmp/selfcheck-1",
                                          "/tmp/selfcheck-2", "/tmp/selfcheck-3"};

    shm_unlink("/symmem-selfcheck-name");
    shm_unlink("/symmem-selfcheck-held");
    for (size_t i = 0; i < sizeof(sockets) / sizeof(sockets[0]); i++)
        unlink(sockets[i]);
}

/* Where the run cannot have a /dev/shm of its own, a name that nobody holds any more is missed. */
static bool shm_can_be_private(void) {
    int status = 1;
    pid_t child = fork();

    if (child == 0)
        _exit(private_shm_enter() ? 0 : 1);
    CU_ASSERT_FATAL(child > 1);
    CU_ASSERT_EQUAL(waitpid(child, &status, 0), child);
    return status == 0;
}

static void test_bad_cases(void) {
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

/* --- names that somebody else makes ----------------------------------------------------------- */

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
    CU_ASSERT_EQUAL(run("--backend fake --filter bad.leaks_held_name"), 1);
    CU_ASSERT(says("names left behind: /dev/shm/symmem-selfcheck-held\n"));
    CU_ASSERT_EQUAL(run("--backend fake --filter bad.leaks_socket"), 1);
    CU_ASSERT(says("names left behind: /tmp/selfcheck-0 /tmp/selfcheck-1 /tmp/selfcheck-2 "
                   "/tmp/selfcheck-3\n"));
    remove_leaks();
}

static void test_strangers_names(void) {
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

/* Whatever it was overwritten with: zeros would look as if nothing had failed. */
static void test_overwritten_reports(void) {
    static const char *const filters[] = {"bad.overwrites_reports", "bad.clears_reports"};

    for (int i = 0; i < 4; i++) {
        char arguments[128];

        snprintf(arguments, sizeof(arguments), "--backend fake --filter %s --rank-mode %s",
                 filters[i / 2], i % 2 == 0 ? "process" : "thread");
        CU_ASSERT_EQUAL(run(arguments), 1);
        CU_ASSERT(says("the memory in which the ranks report was overwritten"));
        CU_ASSERT(strstr(output, "last seen") == NULL);
        CU_ASSERT(closes_with("0 passed, 1 failed, 0 skipped\n"));
    }
}

static void test_failure_quotes_requirement(void) {
    run("--backend fake --filter bad.fails");
    CU_ASSERT(says("SM-SELF-02: A bad case MUST NOT pass.\n"));
    CU_ASSERT(says("(test_bad.c:"));
    CU_ASSERT(says("\nfailed: bad.fails (4 ranks, "));
    CU_ASSERT(says("\nfailed: bad.fails: rank 3: a message with "));
    CU_ASSERT(says("last seen: ranks 0-3: done, checkpoint \"before the check\"\n"));
}

static void test_worst_exit_status_wins(void) {
    CU_ASSERT_EQUAL(run("--backend fake --filter 'bad.lacks_memory,bad.vacuous,good.passes'"), 1);
    CU_ASSERT(closes_with("1 passed, 2 failed, 0 skipped\n"));
    CU_ASSERT_EQUAL(run("--backend fake --filter 'bad.lacks_memory,good.passes'"), 2);
    CU_ASSERT(closes_with("1 passed, 1 failed, 0 skipped\n"));
}

/* --- backends and options
 * -------------------------------------------------------------------------
 */

static void test_backends(void) {
    CU_ASSERT_EQUAL(run("--backend unloadable 2>&1"), 3);
    CU_ASSERT(says("backend unloadable cannot be loaded: LOAD"));
    CU_ASSERT_EQUAL(run("--backend crashing 2>&1"), 3);
    CU_ASSERT(says("signal 11"));
    CU_ASSERT_EQUAL(run("--backend hanging --timeout 1 2>&1"), 3);
    CU_ASSERT(says("backend hanging cannot be loaded: opening it hangs: no end within 1.0 s"));
    CU_ASSERT_EQUAL(run("--backend processes --rank-mode thread 2>&1"), 3);
    CU_ASSERT(says("does not declare THREAD_RANKS: run it with --rank-mode process\n"));
    CU_ASSERT_EQUAL(run("--backend device --ranks 2 --filter 'good.passes,kit.try*'"), 2);
    CU_ASSERT(says("good.passes (0.00 s): needs 2 devices, the machine has 1"));
    CU_ASSERT(closes_with("1 passed, 1 failed, 0 skipped\n"));
    CU_ASSERT_EQUAL(run("--backend device --ranks 1 --filter good.passes"), 0);
}

static void test_profiles(void) {
    CU_ASSERT_EQUAL(run("--backend fake --profile core --filter 'good.*,kit.*'"), 0);
    CU_ASSERT(strstr(output, "good.skipped ") == NULL);
    CU_ASSERT(says("\nprofiles passed in part: core (15, "));
    CU_ASSERT(says("\nprofiles not declared: multicast\n"));
    CU_ASSERT(says("\nclaim: none, because profile core was run in part only\n"));
    CU_ASSERT(closes_with("15 passed, 0 failed, 1 skipped\n"));
    CU_ASSERT_EQUAL(run("--backend fake --filter bad.fails"), 1);
    CU_ASSERT(says("\nclaim: none, because profile core failed\n"));
    /* Not to have what was asked for is no pass. */
    CU_ASSERT_EQUAL(run("--backend fake --profile core,multicast 2>&1"), 1);
    CU_ASSERT(says("symmem-conformance: profile multicast: backend fake does not declare "
                   "MULTICAST\n"));
    CU_ASSERT(closes_with("0 passed, 1 failed, 0 skipped\n"));
    CU_ASSERT_EQUAL(run("--profile cores 2>&1"), 1);
    CU_ASSERT(says("unknown profile 'cores'; there are: core direct-access"));
    CU_ASSERT_EQUAL(run("--list-profiles"), 0);
    CU_ASSERT(says("\nmulticast\tMULTICAST\t1\n"));
    CU_ASSERT_EQUAL(run("--list --profile multicast"), 0);
    CU_ASSERT_STRING_EQUAL(output, "good.skipped\tSM-SELF-01,SM-SELF-02\tMULTICAST\n");
}

static void test_wrong_usage(void) {
    static const char *const wrong[] = {
        "--ranks 0",
        "--ranks 1025",
        "--ranks x",
        "--ranks -1",
        "--seed 1x",
        "--repeat 0",
        "--timeout 0",
        "--format xml",
        "--rank-mode y",
        "--frobnicate",
        "word",
        "--report json",
        "--report json=",
        "--report text=f",
        "--report xml=f",
        "--slowest 0",
        ("--report tap=a --report tap=b --report tap=c --report tap=d --report tap=e --report "
         "tap=f "
         "--report tap=g --report tap=h --report tap=i"),
        "--ranks",
    };

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        char arguments[256];

        snprintf(arguments, sizeof(arguments), "%s 2>&1", wrong[i]);
        CU_ASSERT_EQUAL(run(arguments), 1);
        CU_ASSERT(says("\nusage: symmem-conformance [options], all of them by --help\n"));
        CU_ASSERT(strlen(output) < 300); /* the whole list would hide what was wrong */
    }
    CU_ASSERT_EQUAL(run("--backend fake --filter nothing 2>&1"), 1);
    CU_ASSERT(says("no test matches"));
    CU_ASSERT(closes_with("0 passed, 1 failed, 0 skipped\n"));
    CU_ASSERT_EQUAL(run("--help"), 0);
    CU_ASSERT(says("usage: symmem-conformance"));
}

static void test_list_and_trace(void) {
    CU_ASSERT_EQUAL(run("--list --filter 'good.passes,good.skipped'"), 0);
    CU_ASSERT_STRING_EQUAL(output, "good.passes\tSM-SELF-01\t-\n"
                                   "good.skipped\tSM-SELF-01,SM-SELF-02\tMULTICAST\n");
    CU_ASSERT_EQUAL(run("--check-trace"), 0);
    CU_ASSERT_EQUAL(run("--trace"), 0);
    CU_ASSERT(says("SM-SELF-01\tgood.passes,"));
    CU_ASSERT(says("SM-SELF-03\t(withdrawn)\n"));
}

static void test_broken_trace(void) {
    static const char *const wanted[] = {
        "test untraced.twice is there 2 times",
        "test untraced.cites_nothing cites no requirement",
        "test untraced.unknown cites SM-SELF-99, which SPEC.md does not have",
        "test untraced.withdrawn cites SM-SELF-03, which is withdrawn",
        "test untraced.ranks wants at least 3 and at most 2 ranks",
        "test 'untraced two words' has no proper name or no body",
        "requirement SM-SELF-04 has no test",
    };

    strcat(program, "-trace");
    CU_ASSERT_EQUAL(run("--check-trace 2>&1"), 1);
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
        CU_ASSERT(says(wanted[i]));
    CU_ASSERT_EQUAL(run("--backend fake 2>&1"), 1);
    CU_ASSERT(strstr(output, "planned") == NULL);
    program[strlen(program) - strlen("-trace")] = '\0';
}

static void test_repeat_and_seed(void) {
    char first[65536];

    CU_ASSERT_EQUAL(run("--backend fake --filter good.passes --repeat 3 --verbose"), 0);
    CU_ASSERT(says("3 cases planned"));
    CU_ASSERT(says("[SM-SELF-01]"));
    CU_ASSERT(closes_with("3 passed, 0 failed, 0 skipped\n"));
    run("--backend fake --filter good.passes --seed 9 --format tap");
    snprintf(first, sizeof(first), "%.65000s", output);
    run("--backend fake --filter good.passes --seed 9 --format tap");
    CU_ASSERT_STRING_EQUAL(first, output);
}

static void test_timeout_option(void) {
    time_t start = time(NULL);

    CU_ASSERT_EQUAL(run("--backend fake --filter bad.hangs --timeout 1"), 1);
    CU_ASSERT(says("no end within 1.0 s"));
    CU_ASSERT(time(NULL) - start < 10);
    setenv("SYMMEM_TIMEOUT_SCALE", "1.5", 1);
    CU_ASSERT_EQUAL(run("--backend fake --filter bad.hangs --timeout 1"), 1);
    CU_ASSERT(says("no end within 1.5 s"));
    unsetenv("SYMMEM_TIMEOUT_SCALE");
}

/* A backend that hangs in every case costs only so much time. */
static void test_stop_after(void) {
    CU_ASSERT_EQUAL(run("--backend fake --stop-after 2 --filter "
                        "'bad.fails,bad.vacuous,bad.hangs,bad.stops,good.passes'"),
                    1);
    CU_ASSERT(says("error: 2 of 5 planned cases did not run, because of --stop-after\n"));
    CU_ASSERT(says("claim: none"));
    CU_ASSERT(closes_with("1 passed, 4 failed, 0 skipped\n"));
    CU_ASSERT_EQUAL(run("--backend fake --filter good.passes --stop-after 1"), 0);
    CU_ASSERT_EQUAL(run("--backend fake --filter bad.fails --stop-after 5"), 1);
    CU_ASSERT(strstr(output, "did not run") == NULL);
    CU_ASSERT_EQUAL(run("--stop-after 0 2>&1"), 1);
}

static void test_interrupt(void) {
    char command[700];
    int status;

    snprintf(
        command, sizeof(command),
        "timeout -k 5 -s TERM 1 %s --backend fake --filter bad.hangs --timeout 50 >/dev/null 2>&1",
        program);
    status = system(command);
    CU_ASSERT(WIFEXITED(status) && WEXITSTATUS(status) == 124);
}

/* --- formats
 * --------------------------------------------------------------------------------------
 */

#define MIXED                                                                                      \
    "--backend fake --filter 'good.passes,good.skipped,bad.fails,bad.lacks_memory' --seed 3 "

static void test_json(void) {
    CU_ASSERT_EQUAL(run(MIXED "--format json 2>/dev/null"), 1);
    CU_ASSERT(says("\"backend\": \"fake\""));
    CU_ASSERT(says("\"rank_mode\": \"process\""));
    CU_ASSERT(says("{\"test\": \"good.passes\", \"requirements\": [\"SM-SELF-01\"], "
                   "\"status\": \"passed\", \"reason\": \"\", \"seconds\": "));
    CU_ASSERT(says("\"requirements\": [\"SM-SELF-01\", \"SM-SELF-02\"], \"status\": \"skipped\""));
    CU_ASSERT(says("a message with <&\\\"\\n]]> # \\\\ in it: ?\\u0001"));
    CU_ASSERT(says("\"summary\": {\"passed\": 1, \"failed\": 1, \"skipped\": 1, \"errors\": 0, "
                   "\"unresolved\": 1}\n}\n"));
    CU_ASSERT(strstr(output, "1 passed, 2 failed") == NULL);
}

static void test_tap(void) {
    CU_ASSERT_EQUAL(run(MIXED "--format tap 2>/dev/null"), 1);
    CU_ASSERT(strncmp(output, "TAP version 14\n1..4\n", 20) == 0);
    CU_ASSERT(
        says("\nok 1 - good.passes\nok 2 - good.skipped # SKIP needs capability MULTICAST\n"));
    CU_ASSERT(says("\nnot ok 3 - bad.fails\n  ---\n  verdict: failed\n"));
    CU_ASSERT(says("  verdict: unresolved\n"));
}

static void test_junit(void) {
    CU_ASSERT_EQUAL(run(MIXED "--format junit 2>/dev/null"), 1);
    CU_ASSERT(says("tests=\"4\" failures=\"1\" errors=\"1\" skipped=\"1\""));
    CU_ASSERT(says("a message with &lt;&amp;&quot;&#10;]]&gt; # \\ in it: ??"));
    CU_ASSERT(says("<error type=\"unresolved\""));
}

static void test_html(void) {
    CU_ASSERT_EQUAL(run(MIXED "--format html 2>/dev/null"), 1);
    CU_ASSERT(says("A good case MUST pass, whatever &lt;characters&gt; &amp; &quot;signs&quot;"));
    CU_ASSERT(says("[brackets], back\\slashes and semicolons too."));
    CU_ASSERT(says("<span class=\"s failed\">failed</span> <code>bad.fails</code>"));
    CU_ASSERT(says("a message with &lt;&amp;&quot;"));
    CU_ASSERT(closes_with("</html>\n"));
}

static void test_output_file(void) {
    char directory[] = "/tmp/test-runner-XXXXXX";
    char arguments[256], path[64];
    FILE *report;
    char line[64] = "";

    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(directory));
    snprintf(path, sizeof(path), "%s/report", directory);
    snprintf(arguments, sizeof(arguments), MIXED "--format tap --output %s 2>/dev/null", path);
    CU_ASSERT_EQUAL(run(arguments), 1);
    CU_ASSERT_STRING_EQUAL(output, "1 passed, 2 failed, 1 skipped\n");
    report = fopen(path, "re");
    CU_ASSERT_PTR_NOT_NULL_FATAL(report);
    CU_ASSERT(fgets(line, sizeof(line), report) != NULL && strcmp(line, "TAP version 14\n") == 0);
    fclose(report);
    snprintf(arguments, sizeof(arguments), MIXED "--output %s", path);
    CU_ASSERT_EQUAL(run(arguments), 1);
    CU_ASSERT(closes_with("1 passed, 2 failed, 1 skipped\n"));
    CU_ASSERT_EQUAL(strlen(output), strlen("1 passed, 2 failed, 1 skipped\n"));
    unlink(path);
    rmdir(directory);
    /* A report that cannot be written fails a run that would have passed. */
    CU_ASSERT_EQUAL(run("--backend fake --filter good.passes --output /nowhere/report 2>&1"), 1);
    CU_ASSERT_EQUAL(
        run("--backend fake --filter good.passes --format json --output /nowhere/r 2>&1"), 1);
    CU_ASSERT_EQUAL(run("--backend fake --filter good.passes --format json >/dev/full 2>&1"), 1);
    CU_ASSERT_EQUAL(run("--backend fake --filter good.passes --report json=/nowhere/r 2>&1"), 1);
    CU_ASSERT(says("symmem-conformance: /nowhere/r: No such file"));
    CU_ASSERT(closes_with("1 passed, 0 failed, 0 skipped\n"));
    CU_ASSERT_EQUAL(run("--backend fake --filter good.passes --report tap=/dev/full 2>&1"), 1);
}

static void test_leaves_nothing(void) {
    char directory[] = "/tmp/test-runner-XXXXXX";

    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(directory));
    setenv("TMPDIR", directory, 1);
    run("--backend fake --filter 'bad.leaks_key,bad.hangs_hard,bad.crashes,good.*'");
    test_interrupt();
    unsetenv("TMPDIR");
    CU_ASSERT(leaves_nothing_in(directory, "symmem-"));
    CU_ASSERT_EQUAL(rmdir(directory), 0);
}

static const CU_TestInfo tests[] = {
    {"good cases pass", test_good_cases_pass},
    {"good cases pass with threads", test_good_cases_pass_with_threads},
    {"many and few ranks", test_many_and_few_ranks},
    {"many of the other mode", test_many_of_the_other_mode},
    {"tools of walks", test_walks_tools},
    {"bad cases", test_bad_cases},
    {"overwritten reports", test_overwritten_reports},
    {"strangers make names", test_strangers_names},
    {"failure quotes requirement", test_failure_quotes_requirement},
    {"worst exit status wins", test_worst_exit_status_wins},
    {"backends", test_backends},
    {"profiles", test_profiles},
    {"wrong usage", test_wrong_usage},
    {"list and trace", test_list_and_trace},
    {"broken trace", test_broken_trace},
    {"repeat and seed", test_repeat_and_seed},
    {"timeout option", test_timeout_option},
    {"stop after", test_stop_after},
    {"json", test_json},
    {"tap", test_tap},
    {"junit", test_junit},
    {"html", test_html},
    {"output file", test_output_file},
    {"leaves nothing", test_leaves_nothing},
};

int main(void) {
    char self[400] = "";
    CU_pSuite suite;
    unsigned failures;

    /* The limits of the self-check's cases are part of what is expected here, and its cases do no
     * work that a slow build makes slower. */
    if (unsetenv("SYMMEM_TIMEOUT_SCALE") != 0 ||
        readlink("/proc/self/exe", self, sizeof(self) - 1) < 0)
        return 1;
    snprintf(program, sizeof(program), "%s/runner-selfcheck", dirname(self));
    if (access(program, X_OK) != 0 || CU_initialize_registry() != CUE_SUCCESS)
        return 1;
    suite = CU_add_suite("runner", NULL, NULL);
    for (size_t i = 0; suite != NULL && i < sizeof(tests) / sizeof(tests[0]); i++)
        CU_add_test(suite, tests[i].pName, tests[i].pTestFunc);
    CU_basic_set_mode(CU_BRM_VERBOSE);
    CU_basic_run_tests();
    failures = CU_get_number_of_failures();
    if (CU_get_number_of_tests_run() != sizeof(tests) / sizeof(tests[0]))
        failures++;
    CU_cleanup_registry();
    return failures == 0 ? 0 : 1;
}
