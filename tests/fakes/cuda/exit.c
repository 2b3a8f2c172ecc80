/* SPDX-License-Identifier: BSD-3-Clause */
/* The driver's end, at the process's. */

#include "fake.h"

#define MOST 256 /* later ones stay */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    void *at;
    size_t bytes;
} pinned[MOST];
static int count;

/* Kept to itself rather than unmapped: nothing else is to come there. The rest of the end takes its
 * time. */
static void take_back(void) {
    pthread_mutex_lock(&lock);
    for (int i = 0; i < count; i++)
        (void)mprotect(pinned[i].at, pinned[i].bytes, PROT_NONE);
    pthread_mutex_unlock(&lock);
    nanosleep(&(struct timespec){.tv_nsec = 30000000}, NULL);
}

void fake_take_back_at_exit(void) {
    (void)atexit(take_back);
}

void fake_unpinned(const void *at) {
    pthread_mutex_lock(&lock);
    for (int i = 0; i < count; i++)
        if (pinned[i].at == at)
            pinned[i] = pinned[--count];
    pthread_mutex_unlock(&lock);
}

void fake_pinned(void *at, size_t bytes) {
    pthread_mutex_lock(&lock);
    if (count < MOST) {
        pinned[count].at = at;
        pinned[count++].bytes = bytes;
    }
    pthread_mutex_unlock(&lock);
}

/* --- threads and the process leave devices ----------------------------------------------- */

/*
 * Checks that the library pops each context that it pushes. A thread that ends with a context on
 * its stack, or the thread in which the process ends, was left in it by a call of the library.
 * FAKE_CUDA_ALONE=1 switches the check off, for programs with contexts of their own.
 */

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
