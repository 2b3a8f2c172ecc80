/* SPDX-License-Identifier: BSD-3-Clause */
/* Threads, random bytes, checked arithmetic and text: what every file of the core needs. */
#include "base/base.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/random.h>

int sm_thread_create(pthread_t *thread_p, void *(*run)(void *), void *arg) {
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
    sigset_t others, before;
    (void)sigfillset(&others);
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
        (void)sigdelset(&others, faults[i]);
    int error = pthread_sigmask(SIG_BLOCK, &others, &before);
    if (error != 0)
        return error;
    error = pthread_create(thread_p, NULL, run, arg);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
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

bool sm_mul_size(size_t a, size_t b, size_t *product_p) {
    return sm_mul(a, b, product_p) && *product_p <= PTRDIFF_MAX;
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
