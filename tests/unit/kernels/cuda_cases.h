// SPDX-License-Identifier: BSD-3-Clause
// The end of main of the tests that are C++: unit.h's is C.
#ifndef UNIT_CUDA_CASES_H
#define UNIT_CUDA_CASES_H

#include <CUnit/Basic.h>
#include <cstddef>

struct unit_case {
    const char *name;
    CU_TestFunc function;
};

// Runs the cases; the program's exit status.
template <size_t COUNT>
static int run_cases(const char *suite_name, const unit_case (&cases)[COUNT]) {
    if (CU_initialize_registry() != CUE_SUCCESS)
        return 1;
    CU_pSuite suite = CU_add_suite(suite_name, nullptr, nullptr);
    for (const unit_case &one : cases)
        if (suite == nullptr || CU_add_test(suite, one.name, one.function) == nullptr)
            return 1;
    CU_basic_set_mode(CU_BRM_VERBOSE);
    CU_basic_run_tests();
    const unsigned failures = CU_get_number_of_failures(), ran = CU_get_number_of_tests_run();
    CU_cleanup_registry();
    return failures == 0 && ran == COUNT ? 0 : 1;
}

#endif
