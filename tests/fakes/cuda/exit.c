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
