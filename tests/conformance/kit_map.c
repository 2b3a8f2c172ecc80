/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Private mappings (address space reserved, guard pages, scratch memory) that the library or a
 * backend made and has not given back. /proc/self/maps cannot tell them from thread stacks and the
 * heap's arenas, which the C library keeps: so the runner's mmap and munmap stand before the C
 * library's and remember the ranges that other code than that of kit_heap.c asked for. Shared ones
 * are in kit_ledger.c. A sanitizer has functions of its own here: then nothing is remembered.
 */
#include "kit_internal.h"

#include <pthread.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#if !KIT_OWNS_ALLOCATION || !defined(SYS_mmap) || !defined(__LP64__)

void kit_map_begin(void) {}

void kit_map_end(struct kit_text *text) {
    (void)text;
}

#else

#define MAX_RANGES 4096
#define EXPORTED __attribute__((visibility("default")))

struct range {
    uintptr_t low, high;
    const void *caller;
};

/* A process-wide thing by nature: the address space is one. */
static struct {
    pthread_mutex_t lock;
    _Atomic int on;
    bool at_fork; /* the functions below are registered, which is for good */
    int count;
    struct range ranges[MAX_RANGES];
} map = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The lock is held. What does not fit is not missed. */
static void add(uintptr_t low, uintptr_t high, const void *caller) {
    if (low < high && map.count < MAX_RANGES)
        map.ranges[map.count++] = (struct range){low, high, caller};
}

/* The lock is held. A range of which the middle goes leaves two. */
static void cut(uintptr_t low, uintptr_t high) {
    for (int i = 0; i < map.count; i++) {
        struct range whole = map.ranges[i];

        if (whole.high <= low || whole.low >= high)
            continue;
        map.ranges[i--] = map.ranges[--map.count];
        add(whole.low, low, whole.caller);
        add(high, whole.high, whole.caller);
    }
}

static void note(void *at, size_t bytes, bool is_private, const void *caller) {
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t low = (uintptr_t)at, high = (low + bytes + page - 1) / page * page;

    if (atomic_load_explicit(&map.on, memory_order_acquire) == 0)
        return;
    pthread_mutex_lock(&map.lock);
    cut(low, high); /* what was there before is gone */
    if (is_private && !kit_heap_is_others(caller))
        add(low, high, caller);
    pthread_mutex_unlock(&map.lock);
}

/* --- in place of the C library's ----------------------------------------------------------------
 */

EXPORTED void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset) {
    void *got = (void *)syscall(SYS_mmap, at, bytes, protection, flags, fd, offset);

    if (got != MAP_FAILED)
        note(got, bytes, (flags & MAP_TYPE) == MAP_PRIVATE, __builtin_return_address(0));
    return got;
}

EXPORTED void *mmap64(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
    __attribute__((alias("mmap")));

EXPORTED int munmap(void *at, size_t bytes) {
    int result = (int)syscall(SYS_munmap, at, bytes);

    if (result == 0)
        note(at, bytes, false, NULL);
    return result;
}

/* --- the ledger
 * ----------------------------------------------------------------------------------- */

/* A child of fork must not find the lock taken by a thread that it does not have. */
static void lock_map(void) {
    pthread_mutex_lock(&map.lock);
}

static void unlock_map(void) {
    pthread_mutex_unlock(&map.lock);
}

/* Never twice at once, and after kit_heap_begin, which looks whose code is whose. */
void kit_map_begin(void) {
    if (!map.at_fork && pthread_atfork(lock_map, unlock_map, unlock_map) != 0)
        return;
    map.at_fork = true;
    map.count = 0;
    atomic_store_explicit(&map.on, 1, memory_order_release);
}

/* One line for each place that asked. */
void kit_map_end(struct kit_text *text) {
    atomic_store_explicit(&map.on, 0, memory_order_release);
    for (int i = 0; i < map.count; i++) {
        const void *caller = map.ranges[i].caller;
        size_t bytes = 0;
        int count = 0;

        for (int j = i; caller != NULL && j < map.count; j++)
            if (map.ranges[j].caller == caller) {
                bytes += map.ranges[j].high - map.ranges[j].low;
                count++;
                map.ranges[j].caller = NULL;
            }
        if (count > 0)
            kit_describe_asked(text, "private mapping", count, bytes, caller);
    }
}

#endif
