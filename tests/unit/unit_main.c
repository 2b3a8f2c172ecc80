/* SPDX-License-Identifier: BSD-3-Clause */
#include "unit_main.h"

#include <errno.h>

static unit_case *first_case; /* the others behind it, by their places */

void unit_add(unit_case *added) {
    unit_case **place = &first_case;
    while (*place != NULL && (*place)->place < added->place)
        place = &(*place)->next;
    added->next = *place;
    *place = added;
}

__attribute__((weak)) int unit_setup(void) {
    return 0;
}

__attribute__((weak)) int unit_teardown(void) {
    return 0;
}

int unit_main(const char *suite_name) {
    unsigned count = 0;
    if (CU_initialize_registry() != CUE_SUCCESS)
        return 2;
    CU_pSuite suite = CU_add_suite(suite_name, unit_setup, unit_teardown);
    for (const unit_case *each = first_case; each != NULL; each = each->next, count++)
        if (suite == NULL || CU_add_test(suite, each->name, each->function) == NULL)
            return 2;
    CU_basic_set_mode(CU_BRM_VERBOSE);
    CU_basic_run_tests();
    unsigned failures = CU_get_number_of_failures() + CU_get_number_of_tests_failed() +
                        CU_get_number_of_suites_failed();
    unsigned run = CU_get_number_of_tests_run();
    CU_cleanup_registry();
    return failures == 0 && run == count && count != 0 ? 0 : 1;
}

__attribute__((weak)) int main(void) {
    return unit_main(program_invocation_short_name);
}
