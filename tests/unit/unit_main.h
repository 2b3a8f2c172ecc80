/* SPDX-License-Identifier: BSD-3-Clause */
/* A test program: one suite, of the cases that its file defines, in their order there. */
#ifndef UNIT_MAIN_H
#define UNIT_MAIN_H

#include <CUnit/Basic.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct unit_case unit_case;
struct unit_case {
    const char *name;
    CU_TestFunc function;
    int place; /* among the file's */
    unit_case *next;
};

void unit_add(unit_case *added);
/* Runs all of them; the program's exit status. unit_main.c has a main() that does only that. */
int unit_main(const char *suite_name);

/* Before the first case and after the last one; 0: well. A program may have its own. */
int unit_setup(void);
int unit_teardown(void);

#ifdef __cplusplus
}
#endif

/* TEST("what is checked") { ... } */
#define TEST(case_name) UNIT_CASE_(case_name, __COUNTER__)
#define UNIT_CASE_(case_name, place) UNIT_PLACED_CASE_(case_name, place)
#define UNIT_PLACED_CASE_(case_name, place)                                                        \
    static void test_##place(void);                                                                \
    __attribute__((constructor)) static void add_test_##place(void) {                              \
        static unit_case this_case = {case_name, test_##place, place, NULL};                       \
        unit_add(&this_case);                                                                      \
    }                                                                                              \
    static void test_##place(void)

#endif
