/* SPDX-License-Identifier: BSD-3-Clause */
/* Threads of the CUDA backend's own at the process's end, SM-LIFE-08: see exit.c. */

#include "cuda_internal.h"
#include "unit.h"
#include "unit_child.h"
#include "driver/clock.h"
#include "driver/exit.h"

enum { PAGE = 4096 };

static char *drivers; /* memory that a driver takes back in the end */
static atomic_bool begun;

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

static void *use_driver(void *after_ms) {
    sleep_ms(*(const int *)after_ms);
    if (!cuda_busy_begin())
        return NULL;
    atomic_store(&begun, true);
    const uint64_t end_ns = cuda_now_ns() + 150 * CUDA_NS_PER_MS; /* naps may be long */
    while (cuda_now_ns() < end_ns) {
        sleep_ms(1);
        drivers[0]++;
    }
    cuda_busy_end();
    return NULL;
}

static void begin_after(int *ms) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, use_driver, ms) != 0 || pthread_detach(thread) != 0)
        _exit(NO_WORLD);
}

/* --- ways to end ------------------------------------------------------------------------------ */

static void under_way(void) {
    static int at_once = 0;
    begin_after(&at_once);
    while (!atomic_load(&begun))
        sleep_ms(1);
    exit(CHOSEN);
}

static void too_late(void) {
    static int later_ms = 100;
    begin_after(&later_ms);
    exit(CHOSEN);
}

/* Exits from inside a user's function that the thread calls. The exit does not wait for that
 * thread. */
static void by_who_is_busy(void) {
    if (!cuda_busy_begin())
        _exit(NO_WORLD);
    exit(CHOSEN);
}

/* The work of the parent's other threads does not count in the child, and the child's own count is
 * balanced. */
static void by_a_child(void) {
    static int at_once = 0;
    int status = 0;
    begin_after(&at_once);
    while (!atomic_load(&begun))
        sleep_ms(1);
    if (!cuda_busy_begin())
        _exit(NO_WORLD);
    pid_t pid = fork();
    cuda_busy_end();
    if (pid == 0)
        exit(cuda_busy_begin() ? CHOSEN : NO_WORLD);
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status) ||
        WEXITSTATUS(status) != CHOSEN)
        _exit(NO_WORLD);
    exit(CHOSEN);
}

static void (*wanted)(void);

static void with_handlers(void) {
    if (atexit(take_back) != 0)
        _exit(NO_WORLD);
    cuda_await_at_exit();
    cuda_await_at_exit(); /* as after another library */
    wanted();
}

/* In milliseconds; -1: not as it chose. */
static int end_by(void (*algorithm)(void)) {
    const uint64_t begin_ns = cuda_now_ns();
    drivers = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CU_ASSERT_PTR_NOT_EQUAL_FATAL(drivers, MAP_FAILED);
    wanted = algorithm;
    bool chosen = has_chosen(end_in_child(with_handlers));
    (void)munmap(drivers, PAGE);
    return chosen ? (int)((cuda_now_ns() - begin_ns) / CUDA_NS_PER_MS) : -1;
}

TEST("what is under way is waited for") {
    CU_ASSERT(end_by(under_way) >= 150);
}

TEST("nothing begins any more") {
    CU_ASSERT(end_by(too_late) >= 0);
}

/* A process that waits for itself takes three seconds each time. A busy machine is not slow each
 * time. */
static bool ends_soon(void (*algorithm)(void)) {
    int took_ms = 2500;
    for (int i = 0; i < 3 && took_ms >= 2500; i++)
        took_ms = end_by(algorithm);
    return took_ms >= 0 && took_ms < 2500;
}

TEST("who ends the process does not wait for itself") {
    CU_ASSERT(ends_soon(by_who_is_busy));
}

TEST("children") {
    CU_ASSERT(ends_soon(by_a_child));
}
