/* SPDX-License-Identifier: BSD-3-Clause */
/* What the programs on the fake driver that look at a rank from within have in common: what was
 * wrong is told and counted; and time. */
#ifndef FAKE_CUDA_CHECKS_H
#define FAKE_CUDA_CHECKS_H

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <symmem/symmem.h>
#include <time.h>
#include <unistd.h>

#include "cuda_control.h"

static struct {
    int rank;
    atomic_int bad;
} checks;

/* With the record of this thread's last failure. */
static inline void expect(bool good, const char *format, ...) __attribute__((format(printf, 2, 3)));
static inline void expect(bool good, const char *format, ...) {
    symmem_error_record record;
    char text[300];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    symmem_last_error(&record);
    if (good)
        return;
    printf("BAD: rank %d: %s; %s in %s, %s: %s\n", checks.rank, text,
           symmem_status_name(record.status), record.operation, record.stage, record.message);
    atomic_fetch_add(&checks.bad, 1);
}

static inline void expect_status(symmem_status got, symmem_status wanted, const char *text) {
    expect(got == wanted, "%s: %s and not %s", text, symmem_status_name(got),
           symmem_status_name(wanted));
}

static inline void expect_between(int got, int least, int most, const char *text) {
    expect(got >= least && got <= most, "%s: %d, not %d to %d", text, got, least, most);
}

static inline void expect_count(int got, int wanted, const char *text) {
    expect(got == wanted, "%s: %d and not %d", text, got, wanted);
}

/* Nothing that comes later would mean anything. */
static inline void need_status(symmem_status got, symmem_status wanted, const char *text) {
    expect_status(got, wanted, text);
    if (got != wanted)
        exit(1);
}

static inline void need(symmem_status status, const char *text) {
    need_status(status, SYMMEM_OK, text);
}

static inline int checks_end(void) {
    const int bad = atomic_load(&checks.bad);
    printf("rank %d: %d bad\n", checks.rank, bad);
    return bad == 0 ? 0 : 1;
}

static inline void sleep_ms(long ms) {
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000l}, NULL);
}

static inline double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

#endif
