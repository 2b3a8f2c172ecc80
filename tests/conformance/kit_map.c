/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Private mappings (address space reserved, guard pages, scratch memory) that the library or a
 * backend made and has not given back. /proc/self/maps cannot tell them from thread stacks and the
 * heap's arenas, which the C library keeps: so the runner's mmap and munmap stand before the C
 * library's and remember the ranges that other code than that of kit_heap.c asked for. Shared ones
 * are found in kit_ledger.c; here is remembered who asked for them. A sanitizer has functions of
 * its own here: then nothing is remembered.
 */
#include "kit_internal.h"

#include <stdarg.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#if !KIT_OWNS_ALLOCATION || !defined(SYS_mmap) || !defined(__LP64__)

void kit_map_begin(void) {}

void kit_map_end(struct kit_text *text) {
    (void)text;
}

bool kit_map_asked(uintptr_t low, uintptr_t high, struct kit_stack *asked) {
    (void)low, (void)high, (void)asked;
    return false;
}

#else

#define MAX_RANGES 4096
#define EXPORTED __attribute__((visibility("default")))

struct span {
    uintptr_t low, high;
};

struct range {
    bool is_private;
    struct kit_stack asked; /* the caller alone for a private one */
};

/* A process-wide thing by nature: the address space is one. */
static struct {
    pthread_mutex_t lock;
    _Atomic int on;
    bool at_fork; /* the functions below are registered, which is for good */
    int count;
    /* Apart, since each call of mmap and munmap looks through all of them. */
    struct span spans[MAX_RANGES];
    struct range ranges[MAX_RANGES];
} map = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The lock is held. A part of one that was asked for. What does not fit is not missed. */
static void add(const struct range *whole, uintptr_t low, uintptr_t high) {
    if (low >= high || map.count == MAX_RANGES)
        return;
    map.spans[map.count] = (struct span){low, high};
    map.ranges[map.count++] = *whole;
}

/* The lock is held. A range of which the middle goes leaves two. */
static void cut(uintptr_t low, uintptr_t high) {
    for (int i = 0; i < map.count; i++) {
        const struct span span = map.spans[i];
        if (span.high <= low || span.low >= high)
            continue;
        struct range whole = map.ranges[i];
        map.count--;
        map.spans[i] = map.spans[map.count];
        map.ranges[i--] = map.ranges[map.count];
        add(&whole, span.low, low);
        add(&whole, high, span.high);
    }
}

static uintptr_t end_of(const void *at, size_t bytes) {
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    return ((uintptr_t)at + bytes + page - 1) / page * page;
}

static bool is_on(void) {
    return atomic_load_explicit(&map.on, memory_order_acquire) != 0;
}

/* What was there before is gone. */
static void note(const void *at, size_t bytes, bool is_private, const void *caller) {
    struct range range = {.is_private = is_private, .asked = {.count = 1, .callers = {caller}}};
    const uintptr_t low = (uintptr_t)at, high = end_of(at, bytes);
    if (!is_on())
        return;
    if (!is_private)
        kit_stack_take(&range.asked, caller);
    pthread_mutex_lock(&map.lock);
    cut(low, high);
    if (!kit_heap_is_others(caller))
        add(&range, low, high);
    pthread_mutex_unlock(&map.lock);
}

EXPORTED void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset) {
    if (kit_is_short(__builtin_return_address(0)))
        return MAP_FAILED;
    void *got = (void *)syscall(SYS_mmap, at, bytes, protection, flags, fd, offset);
    if (got != MAP_FAILED)
        note(got, bytes, (flags & MAP_TYPE) == MAP_PRIVATE, __builtin_return_address(0));
    return got;
}

EXPORTED void *mmap64(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
    __attribute__((alias("mmap")));

/* Under the lock, or another thread's new mapping there might be taken for the one that went. */
EXPORTED int munmap(void *at, size_t bytes) {
    if (!is_on())
        return (int)syscall(SYS_munmap, at, bytes);
    pthread_mutex_lock(&map.lock);
    int result = (int)syscall(SYS_munmap, at, bytes);
    if (result == 0)
        cut((uintptr_t)at, end_of(at, bytes));
    pthread_mutex_unlock(&map.lock);
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
    kit_stack_prepare();
    map.count = 0;
    atomic_store_explicit(&map.on, 1, memory_order_release);
}

/* One line for each place that asked. */
void kit_map_end(struct kit_text *text) {
    atomic_store_explicit(&map.on, 0, memory_order_release);
    for (int i = 0; i < map.count; i++) {
        const void *caller = map.ranges[i].asked.callers[0];
        size_t bytes = 0;
        int count = 0;
        for (int j = i; caller != NULL && map.ranges[i].is_private && j < map.count; j++)
            if (map.ranges[j].is_private && map.ranges[j].asked.callers[0] == caller) {
                bytes += map.spans[j].high - map.spans[j].low;
                count++;
                map.ranges[j].asked.callers[0] = NULL;
            }
        if (count > 0)
            kit_describe_asked(text, "private mapping", count, bytes, caller);
    }
}

bool kit_map_asked(uintptr_t low, uintptr_t high, struct kit_stack *asked) {
    bool found = false;
    pthread_mutex_lock(&map.lock);
    for (int i = 0; i < map.count && !found; i++) {
        found = !map.ranges[i].is_private && low >= map.spans[i].low && high <= map.spans[i].high;
        if (found)
            *asked = map.ranges[i].asked;
    }
    pthread_mutex_unlock(&map.lock);
    return found;
}

#endif

/* --- shared mappings, and which of them a library beneath a backend keeps -------------------- */

static bool is_librarys(uintptr_t low, uintptr_t high) {
    struct kit_stack asked;
    return kit_map_asked(low, high, &asked) && kit_stack_is_librarys(&asked);
}

bool tk_shared_mappings(struct tk_mappings *found) {
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    *found = (struct tk_mappings){0};
    while (maps != NULL && fgets(line, (int)sizeof(line), maps) != NULL) {
        unsigned long low, high;
        char rights[5];
        if (sscanf(line, "%lx-%lx %4s", &low, &high, rights) != 3 || rights[3] != 's')
            continue;
        found->bytes += high - low;
        if (is_librarys(low, high))
            found->librarys++;
        else
            found->own++;
    }
    if (maps != NULL)
        fclose(maps);
    return maps != NULL;
}
