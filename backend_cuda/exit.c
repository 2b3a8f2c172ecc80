/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Threads of the backend's own at the process's end, by exit: what they use, such as memory that
 * the driver pinned, is taken back then. The end waits for what they are at, and they begin
 * nothing.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "cuda_internal.h"

#define EXIT_NS (5000 * CUDA_NS_PER_MS)

/* Of all instances. */
static atomic_bool exiting;
static atomic_int busy;

static void await(void) {
    const uint64_t end_ns = cuda_now_ns() + EXIT_NS;
    atomic_store(&exiting, true);
    while (atomic_load(&busy) != 0 && cuda_now_ns() < end_ns)
        cuda_sleep_ns(CUDA_NS_PER_MS / 10);
}

static void forked(void) {
    atomic_store(&busy, 0); /* the parent's */
}

static void note_forks(void) {
    (void)pthread_atfork(NULL, NULL, forked);
}

void cuda_await_at_exit(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, note_forks);
    (void)atexit(await); /* where that fails a process may end less well */
}

bool cuda_busy_begin(void) {
    /* seq_cst; pairs with: await. One of the two sees the other. */
    atomic_fetch_add(&busy, 1);
    if (!atomic_load(&exiting))
        return true;
    atomic_fetch_sub(&busy, 1);
    return false;
}

void cuda_busy_end(void) {
    atomic_fetch_sub(&busy, 1);
}
