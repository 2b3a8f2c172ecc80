/* SPDX-License-Identifier: BSD-3-Clause */
/* The clock of deadlines. */
#include <time.h>

#include "driver/clock.h"

uint64_t cuda_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 * CUDA_NS_PER_MS + (uint64_t)now.tv_nsec;
}

void cuda_sleep_ns(uint64_t ns) {
    const struct timespec pause = {.tv_nsec = (long)ns};
    nanosleep(&pause, NULL);
}
