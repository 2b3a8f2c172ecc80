/* SPDX-License-Identifier: BSD-3-Clause */
/* Clocks, waits, sums without overflow, hashes, texts. */
#ifndef SYMMEM_CORE_UTIL_H
#define SYMMEM_CORE_UTIL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <symmem/backend.h>
#include <symmem/symmem.h>

/* True once a context has had a clock of its own. Before that, reading the time does not look for
 * one. */
extern atomic_bool sm_clocks_are_used;
void sm_clock_set(const symmem_clock *clock);
/* The thread goes by that clock from here on; NULL: the machine's, CLOCK_MONOTONIC. */
static inline void sm_clock_use(const symmem_clock *clock) {
    if (__builtin_expect(clock != NULL ||
                             atomic_load_explicit(&sm_clocks_are_used, memory_order_relaxed),
                         false))
        sm_clock_set(clock);
}
/* Tells the program's clocks that something changed. Call it after each change that may wake a
 * waiting thread. */
void sm_clock_changed(void);
uint64_t sm_now_ns(void);
/* A deadline `timeout_ms` from now on; 0 (none) for 0. */
uint64_t sm_deadline_ns(uint32_t timeout_ms);
bool sm_expired(uint64_t deadline_ns);
/* Milliseconds left, at least 1, at most `cap_ms`; `cap_ms` if there is no deadline. 0: expired. */
uint32_t sm_remaining_ms(uint64_t deadline_ns, uint32_t cap_ms);
/* The limit of a part of a call: milliseconds left, at least 1; 0 (none) if there is no deadline.
 */
uint32_t sm_limit_ms(uint64_t deadline_ns);
void sm_sleep_ns(uint64_t ns);
int sm_cond_init(pthread_cond_t *condition);
/* Waits until the condition is signaled; may return earlier for no reason. Returns false if
 * deadline_ns has passed (0 means no deadline). */
bool sm_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex, uint64_t deadline_ns);
/* While *word is `seen`, at most `ns`, or for no reason. */
void sm_futex_wait(_Atomic uint32_t *word, uint32_t seen, uint64_t ns);
/* Until there is something to read, at most `ms`, or for no reason. As poll. */
int sm_poll(int fd, uint32_t ms);
/* As pthread_create, for a thread of the library's: it blocks all signals but those of its own
 * faults. [SM-LIFE-11] */
int sm_thread_create(pthread_t *thread_p, void *(*run)(void *), void *arg);
/* Fills bytes from the kernel's random source. */
symmem_status sm_random(void *bytes, size_t count);
/* a * b and a + b, false on overflow. */
bool sm_mul(size_t a, size_t b, size_t *product_p);
/* The same of what memory can have: a product above PTRDIFF_MAX overflows, too. */
bool sm_mul_size(size_t a, size_t b, size_t *product_p);
static inline bool sm_add(size_t a, size_t b, size_t *sum_p) {
    size_t sum;
    if (__builtin_add_overflow(a, b, &sum))
        return false;
    *sum_p = sum;
    return true;
}
/* Rounds up to a power of two, false on overflow. */
bool sm_round_up(size_t value, size_t align, size_t *rounded_p);
/* FNV-1a 64. */
uint64_t sm_hash(const void *bytes, size_t count, uint64_t seed);
#define SM_HASH_SEED 14695981039346656037ull
/* Copies a string, cut to fit, always terminated. */
void sm_copy_text(char *to, size_t capacity, const char *from);

#endif
