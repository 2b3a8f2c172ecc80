/* SPDX-License-Identifier: BSD-3-Clause */
/* A test program: one suite, of the cases that its file defines, in their order there; and what
 * tests use of CUnit and of the system. */
#ifndef UNIT_MAIN_H
#define UNIT_MAIN_H

#include <CUnit/Basic.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#ifndef __cplusplus
#include <stdatomic.h>
#endif
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Waits until that is so, and so many milliseconds at the most. */
#define AWAIT(ms, condition)                                                                       \
    do {                                                                                           \
        for (unsigned awaited_ms = 0; awaited_ms < (ms) && !(condition); awaited_ms++)             \
            usleep(1000);                                                                          \
    } while (0)

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
