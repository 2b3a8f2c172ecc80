/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Delays the process's end by exit for work on the backend's own threads or on a thread that closes
 * an instance. What that work uses, such as memory that the driver pinned, is freed at exit. The
 * end waits for it for a limited time, and the backend's threads begin no more work.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "driver/exit.h"
#include "driver/clock.h"

#define EXIT_NS (3000 * CUDA_NS_PER_MS)

/* Of all instances. */
static atomic_bool exiting;
static atomic_int busy;
/* This thread's share of busy, because it may be the thread that ends the process. */
static _Thread_local int own;

/* It is registered several times but waits once, until the first one's time is up. */
static void await(void) {
    static uint64_t end_ns;
    if (end_ns == 0)
        end_ns = cuda_now_ns() + EXIT_NS;
    atomic_store(&exiting, true);
    while (atomic_load(&busy) > own && cuda_now_ns() < end_ns)
        cuda_sleep_ns(CUDA_NS_PER_MS / 10);
}

/* The other counts are the parent's. */
static void forked(void) {
    atomic_store(&busy, own);
    atomic_store(&exiting, false);
}

static void note_forks(void) {
    (void)pthread_atfork(NULL, NULL, forked);
}

void cuda_await_at_exit(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, note_forks);
    (void)atexit(await); /* if that fails a process may end less cleanly */
}

bool cuda_busy_begin(void) {
    /* seq_cst; pairs with: await. One of the two sees the other. */
    atomic_fetch_add(&busy, 1);
    if (!atomic_load(&exiting)) {
        own++;
        return true;
    }
    atomic_fetch_sub(&busy, 1);
    return false;
}

void cuda_busy_end(void) {
    own--;
    atomic_fetch_sub(&busy, 1);
}
