/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The conformance runner judged from outside: runner-selfcheck, which is the runner on cases that
 * misbehave on purpose, lies beside this program.
 */
#include <CUnit/Basic.h>
#include <dirent.h>
#include <libgen.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

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
     "last seen: rank 3: body, checkpoint \"round 7\"", 1},
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
    {"bad.leaks_key", "leak: store keys left behind: forgotten-key", NULL, 1},
    {"bad.barrier_misses_one",
     "because rank 3 has ended (test_bad.c:", "because rank 3 has ended (test_bad.c:", 1},
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
    CU_ASSERT(says("last seen: rank"));
    CU_ASSERT(closes_with("0 passed, 1 failed, 0 skipped\n"));
}

static void test_bad_cases(void) {
    for (size_t i = 0; i < sizeof(expectations) / sizeof(expectations[0]); i++) {
        expect(&expectations[i], "process", expectations[i].process);
        expect(&expectations[i], "thread", expectations[i].thread);
    }
    shm_unlink("/symmem-selfcheck-name"); /* what bad.leaks_name is there to leave behind */
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
    CU_ASSERT_EQUAL(run("--backend processes --rank-mode thread 2>&1"), 3);
    CU_ASSERT(says("does not declare THREAD_RANKS"));
    CU_ASSERT_EQUAL(run("--backend device --ranks 2 --filter 'good.passes,kit.try*'"), 2);
    CU_ASSERT(says("good.passes (0.00 s): needs 2 devices, the machine has 1"));
    CU_ASSERT(closes_with("1 passed, 1 failed, 0 skipped\n"));
    CU_ASSERT_EQUAL(run("--backend device --ranks 1 --filter good.passes"), 0);
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
        "--report tap=a --report tap=b --report tap=c --report tap=d --report tap=e --report tap=f "
        "--report tap=g --report tap=h --report tap=i",
        "--ranks",
    };

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        char arguments[256];

        snprintf(arguments, sizeof(arguments), "%s 2>&1", wrong[i]);
        CU_ASSERT_EQUAL(run(arguments), 1);
        CU_ASSERT(says("usage: symmem-conformance"));
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
    CU_ASSERT_STRING_EQUAL(output, "1 passed, 2 failed, 1 skipped\n");
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
    {"bad cases", test_bad_cases},
    {"failure quotes requirement", test_failure_quotes_requirement},
    {"worst exit status wins", test_worst_exit_status_wins},
    {"backends", test_backends},
    {"wrong usage", test_wrong_usage},
    {"list and trace", test_list_and_trace},
    {"broken trace", test_broken_trace},
    {"repeat and seed", test_repeat_and_seed},
    {"timeout option", test_timeout_option},
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
