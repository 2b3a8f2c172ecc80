/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Processes that end while work closes the instance that it was the last to use, SM-LIFE-08: what
 * closing needs, such as a driver's memory, is taken back meanwhile.
 */

#include <symmem/backend.h>
#include <symmem/symmem.h>

#include "unit.h"
#include "unit_child.h"

const symmem_backend *symmem_backend_entry(uint32_t abi);

enum { PAGE = 4096 };

static flat_backend table;
static void (*close_really)(void *instance);
static char *drivers; /* memory that a driver takes back in the end */
static atomic_bool closing, closed, given_up;

static void sleep_ms(int ms) {
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* A thread of the library's own: the program's signals are not for it, but those of its faults. */
static bool has_its_mask(void) {
    sigset_t mask;
    return pthread_sigmask(SIG_SETMASK, NULL, &mask) == 0 && sigismember(&mask, SIGTERM) == 1 &&
           sigismember(&mask, SIGSEGV) == 0;
}

/* The machine's time, as a clock that counts the library's threads. */
static atomic_int clock_threads;

static uint64_t clock_now_ns(void *arg) {
    (void)arg;
    return (uint64_t)(now_s() * 1e9);
}

static void clock_wait(void *arg, uint64_t until_ns) {
    (void)arg;
    (void)until_ns;
    sleep_ms(1);
}

static void clock_changed(void *arg) {
    (void)arg;
}

static void clock_count(void *arg, int change) {
    (void)arg;
    atomic_fetch_add(&clock_threads, change);
}

static const symmem_clock counting_clock = {.size = sizeof counting_clock,
                                            .now_ns = clock_now_ns,
                                            .wait = clock_wait,
                                            .changed = clock_changed,
                                            .threads = clock_count};

static void close_slowly(void *instance) {
    if (!has_its_mask())
        _exit(NO_WORLD);
    atomic_store(&closing, true);
    const double end_s = now_s() + 0.3; /* naps may be long: the process's end waits for 5 s */
    while (now_s() < end_s) {
        sleep_ms(1);
        drivers[0]++;
    }
    close_really(instance);
    atomic_store(&closed, true);
}

/* Registered before anything was opened, as a driver's that was loaded then. It takes its time. */
static void take_back(void) {
    (void)mprotect(drivers, PAGE, PROT_NONE);
    sleep_ms(600);
}

/* It is not over before its context is given up, however late that is. */
static void work_ms(void *ms) {
    for (int i = 0; i < 10000 && !atomic_load(&given_up); i++)
        sleep_ms(1);
    sleep_ms(*(const int *)ms);
}

/* A context that is given up under its work, which then goes on for so long. */
static void leave_work(int *ms) {
    symmem_context_options options;
    symmem_context *context = NULL;
    symmem_stream *stream = NULL;
    void *memory = NULL;
    static char byte;
    table = flat_of(symmem_backend_entry(SYMMEM_BACKEND_ABI));
    close_really = table.close;
    table.close = close_slowly;
    symmem_context_options_init(&options);
    options.rank = 0;
    options.world_size = 1;
    options.default_timeout_ms = 10;
    options.clock = &counting_clock;
    if (atexit(take_back) != 0 || symmem_init(&options, &context) != SYMMEM_OK ||
        symmem_register_backend(context, flat_table(&table)) != SYMMEM_OK ||
        symmem_set_backend(context, table.head.name) != SYMMEM_OK ||
        symmem_alloc(context, PAGE, -1, NULL, &memory) != SYMMEM_OK ||
        symmem_stream_create(context, -1, &stream) != SYMMEM_OK ||
        symmem_stream_host_fn(stream, work_ms, ms) != SYMMEM_OK ||
        symmem_copy(context, memory, &byte, 1, stream) != SYMMEM_OK ||
        symmem_stream_destroy(stream) != SYMMEM_TIMEOUT || symmem_finalize(context) != SYMMEM_OK)
        _exit(NO_WORLD);
    symmem_context_free(context);
    atomic_store(&given_up, true);
}

static int work;
static bool waits;

static void leave_and_end(void) {
    leave_work(&work);
    while (waits && !atomic_load(&closing))
        sleep_ms(1);
    exit(CHOSEN);
}

/* The clock is of use until all threads that may ask it have told of their end. */
static void leave_and_count(void) {
    leave_work(&work);
    for (int i = 0; i < 10000 && atomic_load(&clock_threads) != 0; i++)
        sleep_ms(1);
    _exit(atomic_load(&closed) && atomic_load(&clock_threads) == 0 ? CHOSEN : NO_WORLD);
}

static void expect_chosen(int its_work, bool it_waits) {
    work = its_work;
    waits = it_waits;
    drivers = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CU_ASSERT_PTR_NOT_EQUAL_FATAL(drivers, MAP_FAILED);
    CU_ASSERT(has_chosen(end_in_child(leave_and_end)));
    (void)munmap(drivers, PAGE);
}

/* Closing has begun: the process's end waits for it. */
TEST("closing is waited for") {
    expect_chosen(50, true);
}

TEST("closing is a thread of the clock's") {
    work = 0;
    drivers = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CU_ASSERT_PTR_NOT_EQUAL_FATAL(drivers, MAP_FAILED);
    CU_ASSERT(has_chosen(end_in_child(leave_and_count)));
    (void)munmap(drivers, PAGE);
}

/* Closing would begin when all is over: it does not. */
TEST("closing comes too late") {
    expect_chosen(150, false);
}
