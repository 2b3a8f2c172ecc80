/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Checks that the library pops each context that it pushes. A thread that ends with a context on
 * its stack, or the thread in which the process ends, was left in it by a call of the library.
 * FAKE_CUDA_ALONE=1 switches the check off, for programs with contexts of their own.
 */

#include "fake.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;

static void expect_none(const char *what) {
    if (fake_current() == NULL || getenv("FAKE_CUDA_ALONE") != NULL)
        return;
    fprintf(stderr, "%s ends with a context that nobody has popped\n", what);
    abort();
}

static void at_thread_end(void *unused) {
    expect_none("a thread");
}

static void make_key(void) {
    if (pthread_key_create(&key, at_thread_end) != 0)
        abort();
}

void fake_watch_end(void) {
    pthread_once(&once, make_key);
    (void)pthread_setspecific(key, &key); /* any value but NULL */
}

__attribute__((destructor)) static void at_process_end(void) {
    expect_none("a process");
}
