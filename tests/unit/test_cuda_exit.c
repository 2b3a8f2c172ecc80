/* SPDX-License-Identifier: BSD-3-Clause */
/* Threads of the CUDA backend's own at the process's end, SM-LIFE-08: see exit.c. */
#include <CUnit/Basic.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cuda_internal.h"
#include "unit.h"

enum { CHOSEN = 37, NO_WORLD = 99, LONGEST_S = 20, PAGE = 4096 };

static char *drivers; /* memory that a driver takes back in the end */

uint64_t cuda_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void cuda_sleep_ns(uint64_t ns) {
    nanosleep(&(struct timespec){.tv_nsec = (long)ns}, NULL);
}

static void sleep_ms(long ms) {
    cuda_sleep_ns((uint64_t)ms * CUDA_NS_PER_MS);
}

/* The driver was loaded before. */
static void take_back(void) {
    (void)mprotect(drivers, PAGE, PROT_NONE);
    sleep_ms(300);
}

/* Begins after so many milliseconds. */
static void *use_driver(void *after_ms) {
    sleep_ms(*(const int *)after_ms);
    if (!cuda_busy_begin())
        return NULL;
    for (int i = 0; i < 150; i++) {
        sleep_ms(1);
        drivers[0]++;
    }
    cuda_busy_end();
    return NULL;
}

static int end_in_child(int after_ms, int wait_ms) {
    int status = -1;
    pthread_t thread;
    drivers = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CU_ASSERT_PTR_NOT_EQUAL_FATAL(drivers, MAP_FAILED);
    (void)fflush(NULL);
    pid_t pid = fork();
    CU_ASSERT_FATAL(pid >= 0);
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)alarm(LONGEST_S);
        if (atexit(take_back) != 0)
            _exit(NO_WORLD);
        cuda_await_at_exit();
        if (pthread_create(&thread, NULL, use_driver, &after_ms) != 0 ||
            pthread_detach(thread) != 0)
            _exit(NO_WORLD);
        sleep_ms(wait_ms);
        exit(CHOSEN);
    }
    CU_ASSERT_EQUAL_FATAL(waitpid(pid, &status, 0), pid);
    (void)munmap(drivers, PAGE);
    return status;
}

static void expect_chosen(int after_ms, int wait_ms) {
    int status = end_in_child(after_ms, wait_ms);
    CU_ASSERT(WIFEXITED(status) && WEXITSTATUS(status) == CHOSEN);
}

static void test_waits(void) {
    expect_chosen(0, 50);
}

static void test_begins_nothing(void) {
    expect_chosen(100, 0);
}

int main(void) {
    static const unit_case cases[] = {
        {"what is under way is waited for", test_waits},
        {"nothing begins any more", test_begins_nothing},
    };
    return UNIT_MAIN("cuda_exit", cases);
}
