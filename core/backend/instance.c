/* SPDX-License-Identifier: BSD-3-Clause */
/* Who uses a context and its backend's instance, and the end of either with the last of them. */
#include <pthread.h>
#include <stdlib.h>

#include "backend/heap.h"
#include "backend/instance.h"

void sm_context_retain(symmem_context *context) {
    /* Relaxed: the caller holds a reference already. */
    (void)atomic_fetch_add_explicit(&context->references, 1, memory_order_relaxed);
}

void sm_context_release(symmem_context *context) {
    /* pairs with: the other holders' releases */
    if (atomic_fetch_sub_explicit(&context->references, 1, memory_order_acq_rel) == 1)
        context->free_memory(context);
}

void sm_instance_retain(symmem_context *context) {
    sm_context_retain(context);
    (void)atomic_fetch_add_explicit(&context->instance_users, 1, memory_order_relaxed);
}

/* Whether this was the last use of an open instance. */
static bool leave(symmem_context *context) {
    /* pairs with: the other users' releases; the closer sees all they did */
    if (atomic_fetch_sub_explicit(&context->instance_users, 1, memory_order_acq_rel) != 1)
        return false;
    /* Acquire pairs with: release in sm_context_use_backend */
    return atomic_load_explicit(&context->instance_open, memory_order_acquire);
}

static void close_instance(symmem_context *context) {
    sm_heap_destroy(context);
    context->backend->close(context->instance);
}

void sm_instance_leave(symmem_context *context) {
    if (leave(context))
        close_instance(context);
}

void sm_instance_release(symmem_context *context) {
    sm_instance_leave(context);
    sm_context_release(context);
}

/* --- the process's end ---------------------------------------------------------------------- */

/* Instances that close in detached threads. The process's exit takes back what they need, such as a
 * driver's memory, so it waits for those that run and lets none begin. */
#define EXIT_NS 5000000000ull
#define TABLES_MAX 8

static atomic_int closings;
static atomic_bool exiting;
/* This thread's part of closings: it may be the one that ends the process. */
static _Thread_local int own;
/* The last such: it is not lost, only of no use any more. */
static symmem_context *_Atomic given_up;

/* Registered several times, it waits once: until the first one's time is up. */
static void await_closings(void *unused) {
    static uint64_t end_ns;
    (void)unused;
    sm_clock_use(NULL); /* one that the program named may be no more */
    if (end_ns == 0)
        end_ns = sm_now_ns() + EXIT_NS;
    atomic_store(&exiting, true);
    while (atomic_load(&closings) > own && sm_now_ns() < end_ns)
        sm_sleep_ns(200000);
}

/* False: the process ends, and the instance with it. */
static bool begin_closing(void) {
    /* seq_cst; pairs with: await_closings. One of the two sees the other. */
    (void)atomic_fetch_add(&closings, 1);
    if (!atomic_load(&exiting))
        return true;
    (void)atomic_fetch_sub(&closings, 1);
    return false;
}

/* The others are the parent's. */
static void forked(void) {
    atomic_store(&closings, own);
    atomic_store(&exiting, false);
}

/* What atexit is in a library, which may be unloaded before the process ends. ThreadSanitizer takes
 * atexit itself for the program's. */
int __cxa_atexit(void (*function)(void *), void *argument, void *library);
extern void *__dso_handle __attribute__((visibility("hidden")));

void sm_instance_await_at_exit(const symmem_backend *table) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static const symmem_backend *tables[TABLES_MAX];
    int count = 0;
    (void)pthread_mutex_lock(&lock);
    while (count < TABLES_MAX && tables[count] != NULL && tables[count] != table)
        count++;
    if (count == 0 && tables[0] == NULL)
        (void)pthread_atfork(NULL, NULL, forked);
    /* What was registered last comes first. Where that fails a process may end less well. */
    if (count < TABLES_MAX && tables[count] == NULL &&
        __cxa_atexit(await_closings, NULL, &__dso_handle) == 0)
        tables[count] = table;
    (void)pthread_mutex_unlock(&lock);
}

/* --- references of work --------------------------------------------------------------------- */

/* Before a thread of the library's that goes by the clock is started, and as its last use of it. */
static void count_thread(const symmem_clock *clock, int change) {
    if (clock != NULL)
        clock->threads(clock->arg, change);
}

static void *close_late(void *argument) {
    symmem_context *context = argument;
    const symmem_clock *clock = context->clock;
    own = 1;
    close_instance(context);
    sm_context_release(context);
    count_thread(clock, -1);
    own = 0;
    (void)atomic_fetch_sub(&closings, 1);
    return NULL;
}

void sm_instance_release_work(symmem_context *context) {
    pthread_t closer;
    if (!leave(context)) {
        sm_context_release(context);
        return;
    }
    if (!begin_closing()) {
        atomic_store(&given_up, context);
        return;
    }
    const symmem_clock *clock = context->clock;
    count_thread(clock, 1);
    if (sm_thread_create(&closer, close_late, context) == 0) {
        (void)pthread_detach(closer);
        return;
    }
    /* Without a thread instance and context are given up: here close could wait for its caller. */
    count_thread(clock, -1);
    (void)atomic_fetch_sub(&closings, 1);
}

static void ref_retain(void *object) {
    sm_instance_retain(object);
}

static void ref_release(void *object) {
    sm_instance_release_work(object);
}

symmem_ref sm_instance_ref(symmem_context *context) {
    return (symmem_ref){.retain = ref_retain, .release = ref_release, .object = context};
}
