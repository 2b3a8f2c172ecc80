/* SPDX-License-Identifier: BSD-3-Clause */
#include "arena.h"

#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Sleepers look around this often, because a killed rank wakes no other. */
#define POLL_NS 10000000l
#define SERVE_NS 1000000l

static int world_size_of(struct arena *arena) {
    return (int)atomic_load_explicit(&arena->world_size, memory_order_relaxed);
}

uint64_t arena_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

int arena_descriptor(size_t bytes) {
    int fd = memfd_create("symmem-conformance", MFD_CLOEXEC);
    if (fd >= 0 && ftruncate(fd, (off_t)bytes) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

/* With an inaccessible stretch on either side: code that runs past the end of some other mapping
 * shall not end up here. */
struct arena *arena_create(int fd) {
    size_t whole = sizeof(struct arena) + 3 * ARENA_LARGEST_PAGE;
    char *reserved =
        mmap(NULL, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED)
        return NULL;
    char *base = reserved + ARENA_LARGEST_PAGE;
    base += (ARENA_LARGEST_PAGE - (uintptr_t)base % ARENA_LARGEST_PAGE) % ARENA_LARGEST_PAGE;
    void *memory = mmap(base, sizeof(struct arena), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_FIXED | (fd < 0 ? MAP_ANONYMOUS : 0), fd, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/* The stretches stay: they cost nothing. */
void arena_destroy(struct arena *arena) {
    if (arena != NULL)
        munmap(arena, sizeof(*arena));
}

void arena_seal_probe(struct arena *arena) {
    /* Should it fail, a protection less. */
    (void)mprotect(arena, offsetof(struct arena, guard), PROT_READ);
}

void arena_reset(struct arena *arena, int world_size, uint64_t guard) {
    memset((char *)arena + offsetof(struct arena, guard), 0,
           offsetof(struct arena, ranks) - offsetof(struct arena, guard) +
               (size_t)world_size * sizeof(struct arena_rank));
    arena->guard = guard;
    arena->last_guard = guard;
    for (int rank = 0; rank < world_size; rank++)
        arena->ranks[rank].guard = guard;
    atomic_store_explicit(&arena->world_size, (uint32_t)world_size, memory_order_relaxed);
}

#define END_TEXT(array) ((array)[sizeof(array) - 1] = '\0')

bool arena_check(struct arena *arena, int world_size, uint64_t guard) {
    bool whole =
        arena->guard == guard && arena->last_guard == guard && world_size_of(arena) == world_size;
    END_TEXT(arena->note);
    for (int i = 0; i < world_size; i++) {
        struct arena_rank *rank = &arena->ranks[i];
        whole = whole && rank->guard == guard;
        END_TEXT(rank->file);
        END_TEXT(rank->requirement);
        END_TEXT(rank->message);
        END_TEXT(rank->expected);
        END_TEXT(rank->got);
        END_TEXT(rank->next);
        END_TEXT(rank->checkpoint);
        END_TEXT(rank->unresolved_text);
        END_TEXT(rank->leak);
        END_TEXT(rank->held);
        END_TEXT(rank->inherited);
    }
    return whole;
}

void arena_put_word(struct arena_word *word, const char *text) {
    uint64_t parts[4] = {0};
    memcpy(parts, text, strnlen(text, sizeof(parts) - 1));
    for (int i = 0; i < 4; i++) /* relaxed: it is read when the rank has ended or hangs */
        atomic_store_explicit(&word->parts[i], parts[i], memory_order_relaxed);
}

void arena_get_word(struct arena_word *word, char text[static 32]) {
    uint64_t parts[4];
    for (int i = 0; i < 4; i++)
        parts[i] = atomic_load_explicit(&word->parts[i], memory_order_relaxed);
    memcpy(text, parts, sizeof(parts));
    text[sizeof(parts) - 1] = '\0';
}

static _Thread_local arena_serve_fn served;
static _Thread_local void *served_arg;

void arena_serve(arena_serve_fn serve, void *arg) {
    served = serve;
    served_arg = arg;
}

bool arena_serve_once(void) {
    if (served != NULL)
        served(served_arg);
    return served != NULL;
}

static void futex_sleep(struct arena *arena, uint32_t seen) {
    struct timespec poll = {.tv_nsec = served != NULL ? SERVE_NS : POLL_NS};
    (void)arena_serve_once();
    /* Any result is fine: the caller looks at the state again. */
    syscall(SYS_futex, &arena->epoch, FUTEX_WAIT, seen, &poll, NULL, 0);
}

static void wake_all(struct arena *arena) {
    atomic_fetch_add_explicit(&arena->epoch, 1, memory_order_release);
    syscall(SYS_futex, &arena->epoch, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

uint64_t arena_gone_ns(struct arena *arena, int rank) {
    /* pairs with: arena_set_gone */
    return atomic_load_explicit(&arena->ranks[rank].gone_ns, memory_order_acquire);
}

static bool is_gone(struct arena *arena, int rank) {
    return arena_gone_ns(arena, rank) != 0;
}

static uint32_t state_of(struct arena *arena, int rank) {
    /* pairs with: arena_enter */
    return atomic_load_explicit(&arena->ranks[rank].state, memory_order_acquire);
}

void arena_enter(struct arena *arena, int rank, enum arena_state state) {
    /* pairs with: state_of */
    atomic_store_explicit(&arena->ranks[rank].state, state, memory_order_release);
    /* pairs with: arena_meet */
    uint32_t count = atomic_fetch_add_explicit(&arena->reached[state], 1, memory_order_acq_rel) + 1;
    if (count == (uint32_t)world_size_of(arena))
        wake_all(arena);
}

static bool all_reached(struct arena *arena, enum arena_state state) {
    int world_size = world_size_of(arena);
    for (int rank = 0; rank < world_size; rank++)
        if (state_of(arena, rank) < (uint32_t)state && !is_gone(arena, rank))
            return false;
    return true;
}

bool arena_meet(struct arena *arena, enum arena_state state, uint32_t timeout_ms) {
    uint64_t deadline = arena_now_ns() + (uint64_t)timeout_ms * 1000000u;
    for (;;) {
        uint32_t seen = atomic_load_explicit(&arena->epoch, memory_order_acquire);
        /* pairs with: arena_enter */
        if (atomic_load_explicit(&arena->reached[state], memory_order_acquire) ==
                (uint32_t)world_size_of(arena) ||
            all_reached(arena, state))
            return true;
        if (arena_now_ns() > deadline)
            return false;
        futex_sleep(arena, seen);
    }
}

/* Whether all that can still arrive at barrier `number` have; else who ended without arriving. */
static bool all_arrived(struct arena *arena, uint64_t number, int *ended_p) {
    bool all = true;
    *ended_p = -1;
    for (int rank = 0; rank < world_size_of(arena); rank++) {
        struct arena_rank *other = &arena->ranks[rank];
        /* Looked at before the arrival count: a rank arrives first and ends later. */
        bool ended = is_gone(arena, rank) || state_of(arena, rank) >= ARENA_BODY_DONE;
        /* pairs with: arena_barrier */
        if (atomic_load_explicit(&other->arrived, memory_order_acquire) >= number)
            continue;
        bool expected = atomic_load_explicit(&other->death_expected, memory_order_acquire) != 0;
        if (is_gone(arena, rank) && expected)
            continue;
        all = false;
        if (ended && !expected)
            *ended_p = rank;
    }
    return all;
}

enum arena_wait arena_barrier(struct arena *arena, int rank, uint32_t timeout_ms, int *ended_p) {
    struct arena_rank *own = &arena->ranks[rank];
    uint64_t deadline = arena_now_ns() + (uint64_t)timeout_ms * 1000000u;
    uint64_t world_size = (uint64_t)world_size_of(arena);
    /* pairs with: all_arrived */
    uint64_t number = atomic_fetch_add_explicit(&own->arrived, 1, memory_order_acq_rel) + 1;
    enum arena_wait result = ARENA_MET;
    *ended_p = -1;
    atomic_store_explicit(&own->in_barrier, 1, memory_order_relaxed);
    /* pairs with: the load below; the chain of these carries every rank's writes to all */
    if (atomic_fetch_add_explicit(&arena->arrivals, 1, memory_order_acq_rel) + 1 ==
        number * world_size)
        wake_all(arena);
    for (;;) {
        uint32_t seen = atomic_load_explicit(&arena->epoch, memory_order_acquire);
        if (atomic_load_explicit(&arena->arrivals, memory_order_acquire) >= number * world_size ||
            all_arrived(arena, number, ended_p))
            break;
        result = *ended_p >= 0 ? ARENA_RANK_ENDED : ARENA_EXPIRED;
        if (result == ARENA_RANK_ENDED || arena_now_ns() > deadline)
            break;
        result = ARENA_MET;
        futex_sleep(arena, seen);
    }
    atomic_store_explicit(&own->in_barrier, 0, memory_order_relaxed);
    return result;
}

bool arena_wait_gone(struct arena *arena, int rank, uint32_t timeout_ms) {
    uint64_t deadline = arena_now_ns() + (uint64_t)timeout_ms * 1000000u;
    while (!is_gone(arena, rank)) {
        uint32_t seen = atomic_load_explicit(&arena->epoch, memory_order_acquire);
        if (arena_now_ns() > deadline)
            return false;
        futex_sleep(arena, seen);
    }
    return true;
}

void arena_set_gone(struct arena *arena, int rank) {
    /* pairs with: arena_gone_ns */
    atomic_store_explicit(&arena->ranks[rank].gone_ns, arena_now_ns(), memory_order_release);
    wake_all(arena);
}
