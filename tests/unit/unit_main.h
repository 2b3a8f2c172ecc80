/* SPDX-License-Identifier: BSD-3-Clause */
/* A test program: one suite, whose cases run one after the other. */
#ifndef UNIT_MAIN_H
#define UNIT_MAIN_H

#include <CUnit/Basic.h>

typedef struct unit_case {
    const char *name;
    CU_TestFunc function;
} unit_case;

/* Runs the cases, between setup and teardown, which may be NULL; the program's exit status. */
__attribute__((unused)) static int unit_main(const char *suite_name, CU_InitializeFunc setup,
                                             CU_CleanupFunc teardown, const unit_case *cases,
                                             size_t count) {
    if (CU_initialize_registry() != CUE_SUCCESS)
        return 2;
    CU_pSuite suite = CU_add_suite(suite_name, setup, teardown);
    for (size_t i = 0; i < count; i++)
        if (suite == NULL || CU_add_test(suite, cases[i].name, cases[i].function) == NULL)
            return 2;
    CU_basic_set_mode(CU_BRM_VERBOSE);
    CU_basic_run_tests();
    unsigned failures = CU_get_number_of_failures() + CU_get_number_of_tests_failed() +
                        CU_get_number_of_suites_failed();
    unsigned run = CU_get_number_of_tests_run();
    CU_cleanup_registry();
    return failures == 0 && run == count ? 0 : 1;
}
#define UNIT_MAIN_WITHIN(suite_name, setup, teardown, cases)                                       \
    unit_main(suite_name, setup, teardown, cases, sizeof(cases) / sizeof((cases)[0]))
#define UNIT_MAIN(suite_name, cases) UNIT_MAIN_WITHIN(suite_name, NULL, NULL, cases)

#endif
