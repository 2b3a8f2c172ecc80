/* SPDX-License-Identifier: BSD-3-Clause */
/* Clock, random bytes, checked arithmetic and text: what every file of the core needs. */
#include "internal.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#define NS_PER_MS 1000000ull
#define NS_PER_S 1000000000ull

uint64_t sm_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

uint64_t sm_deadline_ns(uint32_t timeout_ms) {
    return timeout_ms == 0 ? 0 : sm_now_ns() + timeout_ms * NS_PER_MS;
}

bool sm_expired(uint64_t deadline_ns) {
    return deadline_ns != 0 && sm_now_ns() >= deadline_ns;
}

uint32_t sm_remaining_ms(uint64_t deadline_ns, uint32_t cap_ms) {
    if (deadline_ns == 0)
        return cap_ms;
    uint64_t now_ns = sm_now_ns();
    if (now_ns >= deadline_ns)
        return 0;
    /* Rounded up: a caller that sleeps this long has really reached the deadline. */
    uint64_t left_ms = (deadline_ns - now_ns + NS_PER_MS - 1) / NS_PER_MS;
    return left_ms < cap_ms ? (uint32_t)left_ms : cap_ms;
}

void sm_sleep_ns(uint64_t ns) {
    struct timespec left = {.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR)
        ;
}

symmem_status sm_random(void *bytes, size_t count) {
    size_t done = 0;
    while (done < count) {
        ssize_t got = getrandom((char *)bytes + done, count - done, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return sm_fail_errno(errno, "random", "", "the kernel's random source failed");
        done += (size_t)got;
    }
    return SYMMEM_OK;
}

bool sm_mul(size_t a, size_t b, size_t *product_p) {
    size_t product;
    if (__builtin_mul_overflow(a, b, &product))
        return false;
    *product_p = product;
    return true;
}

bool sm_add(size_t a, size_t b, size_t *sum_p) {
    size_t sum;
    if (__builtin_add_overflow(a, b, &sum))
        return false;
    *sum_p = sum;
    return true;
}

bool sm_round_up(size_t value, size_t align, size_t *rounded_p) {
    size_t sum;
    if (!sm_add(value, align - 1, &sum))
        return false;
    *rounded_p = sum & ~(align - 1);
    return true;
}

uint64_t sm_hash(const void *bytes, size_t count, uint64_t seed) {
    const unsigned char *byte = bytes;
    uint64_t hash = seed;
    for (size_t i = 0; i < count; i++) {
        hash ^= byte[i];
        hash *= 1099511628211ull;
    }
    return hash;
}

void sm_copy_text(char *to, size_t capacity, const char *from) {
    if (capacity == 0)
        return;
    size_t length = strnlen(from, capacity - 1);
    memmove(to, from, length);
    to[length] = '\0';
}
