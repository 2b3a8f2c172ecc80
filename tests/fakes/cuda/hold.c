/* SPDX-License-Identifier: BSD-3-Clause */
/* For tests: a device that does not begin kernels, as one whose room others' work takes, or
 * anything at all; calls of the driver that take long. */

#include "fake.h"

static atomic_int room = -1; /* for so many; -1: for all */
static atomic_bool still, slow;
static atomic_int kept, begun;

void fake_hold_kernels(int after) {
    atomic_store(&room, after);
}

void fake_hold_all(bool held) {
    atomic_store(&still, held);
}

void fake_await_motion(void) {
    while (atomic_load(&still))
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

void fake_hold_calls(bool held) {
    atomic_store(&slow, held);
}

int fake_calls_kept(void) {
    return atomic_load(&kept);
}

void fake_await_call(void) {
    atomic_fetch_add(&kept, 1);
    while (atomic_load(&slow))
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    atomic_fetch_sub(&kept, 1);
}

static bool take_room(void) {
    int left = atomic_load(&room);
    while (left > 0 && !atomic_compare_exchange_weak(&room, &left, left - 1))
        ;
    return left != 0;
}

void fake_await_room(void) {
    while (!take_room())
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    atomic_fetch_add(&begun, 1);
}

int fake_kernels_begun(void) {
    return atomic_load(&begun);
}
