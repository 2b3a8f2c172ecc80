/* SPDX-License-Identifier: BSD-3-Clause */
/* The conformance runner on a machine that is late, or quiet, and with several cases at a time. */
#include "runner_run.h"

static const char *const modes[] = {"process", "thread"};

static int run_case(const char *test, const char *options) {
    return run("--backend fake --filter '%s' %s 2>&1", test, options);
}

#define CASE_SAYS(status, test, options, ...)                                                      \
    do {                                                                                           \
        CU_ASSERT_EQUAL(run_case(test, options), status);                                          \
        CU_ASSERT(says_all((const char *const[]){__VA_ARGS__, NULL}));                             \
    } while (0)

/* With one job and with several, ranks as processes and as threads. */
static void each_way(const char *test, int status, const char *text, bool again) {
    for (int i = 0; i < 4; i++) {
        char options[80];
        snprintf(options, sizeof(options), "--jobs %d --repeat 2 --rank-mode %s", 1 + i / 2,
                 modes[i % 2]);
        CU_ASSERT_EQUAL(run_case(test, options), status);
        CU_ASSERT(says(text));
        CU_ASSERT_EQUAL(strstr(output, "run again") != NULL, again);
    }
}

TEST("run again on a late machine") {
    each_way("late.once", 0, " s): run again: the machine ", true);
    each_way("late.always", 1, " (run again twice: the machine ", true);
    each_way("late.hangs_once", 0, " s): run again: the machine ", true);
}

/* With one job, for several would be in a crowd of each other. */
TEST("a crowd on the ranks' processor") {
    for (int i = 0; i < 2; i++) {
        char options[80];
        snprintf(options, sizeof(options), "--jobs 1 --rank-mode %s", modes[i]);
        CU_ASSERT_EQUAL(run_case("late.crowded*", options), 0);
        CU_ASSERT(says(" late.crowded_once ("));
        CU_ASSERT(says(" s): run again: the machine "));
    }
}

TEST("not run again") {
    each_way("late.quiet", 1, "a rank was kept from running (test_late.c:", false);
    each_way("late.another_check", 1, "a rank was kept from running (test_late.c:", false);
    each_way("late.another_rank", 1, "expected OK, got LIMIT", false);
    each_way("late.poison_alone", 1, "expected OK, got POISONED", false);
}

TEST("bounds ask for the lateness") {
    CU_ASSERT_EQUAL(run_case("late.late_bounds", ""), 0);
    CASE_SAYS(1, "late.quiet_bounds", "",
              "it takes no more than STOP_MS / 4: expected at most 30 ms, 0 of them for a late "
              "machine, got 120 ms (test_late.c:");
    CU_ASSERT_PTR_NULL(strstr(output, "more failed check"));
}

/* Without the lines that differ from run to run. */
static void strip_times(char *text, size_t capacity) {
    size_t used = 0;
    for (const char *line = output; *line != '\0'; line += strcspn(line, "\n") + 1)
        if (strncmp(line, "  duration_ms:", 14) != 0 && used < capacity)
            used += (size_t)snprintf(text + used, capacity - used, "%.*s",
                                     (int)strcspn(line, "\n") + 1, line);
}

TEST("several jobs make the same report") {
    const char *filter = "good.*,kit.*,bad.fails*,bad.crashes,bad.leaks_process,bad.leaks_name,bad."
                         "leaks_key,bad.leaks_timer,bad.is_killed,"
                         "bad.prints_much,bad.changes_*";
    static char reports[2][1 << 18];
    for (int i = 0; i < 2; i++) {
        CU_ASSERT_EQUAL(
            run("--backend fake --seed 5 --format tap --jobs %d --filter '%s' 2>/dev/null",
                i == 0 ? 1 : 7, filter),
            1);
        strip_times(reports[i], sizeof(reports[i]));
    }
    CU_ASSERT_STRING_EQUAL(reports[0], reports[1]);
}

TEST("a job that ends") {
    CASE_SAYS(1, "jobs.ends_its_job,good.*", "--jobs 2",
              "jobs.ends_its_job (0.00 s): the job that ran the case was ended by signal 9",
              LAST "6 passed, 1 failed, 1 skipped\n");
}

/* The end comes at the first of the plan that did not pass, whatever ended before it. */
TEST("the run stops in the plan's order") {
    CASE_SAYS(1, "bad.crashes,bad.leaves_by_exit", "--jobs 2 --stop-after 1",
              "[ 1/2] error      bad.crashes (", NOT "bad.leaves_by_exit (",
              LAST "0 passed, 2 failed, 0 skipped\n");
}

TEST("several jobs are interrupted") {
    char command[900];
    int status;
    snprintf(command, sizeof(command),
             "timeout --foreground -k 5 -s TERM 2 %s --backend fake --jobs 2 --timeout 50 "
             "--filter 'bad.hangs,bad.hangs_hard,bad.vacuous' 2>/dev/null | tail -n 1 | grep -qx "
             "'0 passed, 3 failed, 0 skipped'",
             program);
    status = system(command);
    CU_ASSERT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST("how many jobs") {
    CASE_SAYS(1, "good.*", "--jobs 0", "--jobs wants a number from 1 to 64, not '0'");
    CASE_SAYS(0, "good.passes,good.prints", "--jobs 5", ", 2 at a time\n");
    CASE_SAYS(0, "good.passes,good.prints", "--verbose", NOT " at a time\n");
    CASE_SAYS(0, "good.passes,good.prints", "--keep-ranks", NOT " at a time\n");
    RUN_SAYS(0, "--backend device --ranks 1 --filter 'good.passes,good.prints' 2>&1",
             NOT " at a time\n");
    CASE_SAYS(0, "good.passes,good.prints", "--keep-ranks --jobs 2", ", 2 at a time\n");
}
