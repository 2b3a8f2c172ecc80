/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * CUnit registers, orders and counts the cases. It stays in the controller: an assertion of CUnit
 * in a forked child is silently lost and a fatal one would run the remaining tests there.
 */
#include "runner.h"

#include <CUnit/CUnit.h>
#include <CUnit/TestDB.h>
#include <CUnit/TestRun.h>

/* A CUnit test function has no argument, so this is the one way to the plan. */
static struct {
    struct runner *runner;
    struct runner_jobs *jobs; /* NULL: one case at a time */
    int next;                 /* entry that runs next: CUnit keeps the order of registration */
} current;

static bool enough_bad(const struct runner *runner) {
    return runner->options.stop_after > 0 && runner->bad_count >= runner->options.stop_after;
}

static void trampoline(void) {
    struct runner *runner = current.runner;
    const CU_pTest test = CU_get_current_test();
    const struct runner_entry *entry = &runner->entries[current.next++];
    struct runner_result *result = &runner->results[runner->result_count];
    int index = runner->result_count; /* as planned: nothing is left out before the end */
    if (runner->interrupted != 0 || test == NULL || enough_bad(runner))
        return; /* the shortfall fails the run */
    report_start(runner, entry);
    if (!(current.jobs != NULL ? jobs_await(current.jobs, index) : runner_run_alone(runner, index)))
        return;
    runner->result_count++;
    bool good = runner_verdict_is_good(result->verdict);
    runner->bad_count += !good;
    CU_assertImplementation(good ? CU_TRUE : CU_FALSE, 0,
                            result->reason == NULL ? "passed" : result->reason, entry->test->name,
                            "", CU_FALSE);
    report_case(runner, result);
}

static bool register_cases(struct runner *runner) {
    const char *area = "";
    CU_pSuite suite = NULL;
    for (int i = 0; i < runner->entry_count; i++) {
        if (strcmp(runner->entries[i].area, area) != 0) {
            area = runner->entries[i].area;
            suite = CU_add_suite(area, NULL, NULL);
            if (suite == NULL)
                return false;
        }
        if (CU_add_test(suite, runner->entries[i].test->name, trampoline) == NULL)
            return false;
    }
    return true;
}

bool runner_run_cunit(struct runner *runner, struct runner_jobs *jobs) {
    if (CU_initialize_registry() != CUE_SUCCESS)
        return false;
    current.runner = runner;
    current.jobs = jobs;
    bool good = register_cases(runner);
    for (int repeat = 0; good && repeat < runner->options.repeat; repeat++) {
        current.next = 0;
        CU_run_all_tests();
        good = CU_get_number_of_tests_run() == (unsigned)runner->entry_count;
    }
    CU_cleanup_registry();
    return good;
}
