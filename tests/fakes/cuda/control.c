/* SPDX-License-Identifier: BSD-3-Clause */
/* What a test wants of the driver's calls, and what there is of its objects. */

#include "fake.h"

fake_hooks fake_cuda_hooks;

static fake_site *_Atomic sites;
static _Atomic int live;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool is_armed;
static struct {
    const char *name;
    int after, count, failed;
    CUresult result;
} wanted;

static void list(fake_site *site) {
    if (atomic_exchange(&site->listed, true))
        return;
    site->next = atomic_load(&sites);
    while (!atomic_compare_exchange_weak(&sites, &site->next, site))
        ;
}

static bool fails(const char *name, CUresult *answer) {
    pthread_mutex_lock(&lock);
    const bool meant = wanted.name != NULL && strcmp(wanted.name, name) == 0;
    const bool over = meant && wanted.after-- <= 0 && wanted.failed < wanted.count;
    wanted.failed += over;
    *answer = wanted.result;
    pthread_mutex_unlock(&lock);
    return over;
}

bool fake_call_fails(fake_site *site, CUresult *answer) {
    if (atomic_fetch_add(&site->calls, 1) == 0)
        list(site);
    return atomic_load(&is_armed) && fails(site->name, answer);
}

int fake_calls(const char *name) {
    int calls = 0;
    for (const fake_site *site = atomic_load(&sites); site != NULL; site = site->next)
        calls += strcmp(site->name, name) == 0 ? atomic_load(&site->calls) : 0;
    return calls;
}

void fake_fail_calls(const char *name, int after, int count, CUresult result) {
    pthread_mutex_lock(&lock);
    wanted.name = name;
    wanted.after = after;
    wanted.count = count;
    wanted.failed = 0;
    wanted.result = result;
    atomic_store(&is_armed, name != NULL);
    pthread_mutex_unlock(&lock);
}

int fake_calls_failed(void) {
    pthread_mutex_lock(&lock);
    const int failed = wanted.failed;
    pthread_mutex_unlock(&lock);
    return failed;
}

void fake_count(int change) {
    atomic_fetch_add(&live, change);
}

int fake_live(void) {
    return atomic_load(&live);
}

/* --- a device that does not begin kernels, calls that take long -------------------------- */

/* For tests: a device that does not begin kernels, as one whose room others' work takes, or
 * anything at all; calls of the driver that take long. */

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
