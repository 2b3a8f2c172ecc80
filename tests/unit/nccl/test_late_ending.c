/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A communicator whose end takes longer than is waited for: ending.c of the NCCL backend alone,
 * under a clock that is behind by what a wait may take, with all that it calls replaced.
 */

#include "nccl_internal.h"
#include "unit_main.h"
#include "comm.h"
#include "comm_abort.h"
#include "driver/clock.h"
#include "driver/context.h"
#include "driver/exit.h"

static uint64_t behind_ns;
static atomic_bool may_end;
static atomic_int ended;
static int notices;

uint64_t cuda_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec - behind_ns;
}

void cuda_relax(const cuda_driver *driver) {}

void cuda_restore(const cuda_driver *driver) {}

static atomic_bool exiting;
static atomic_int busy, unguarded; /* unguarded: what the process's end does not wait for */

bool cuda_busy_begin(void) {
    if (!atomic_load(&exiting))
        atomic_fetch_add(&busy, 1);
    return !atomic_load(&exiting);
}

void cuda_busy_end(void) {
    atomic_fetch_sub(&busy, 1);
}

void cuda_signals_block(sigset_t *before) {
    (void)sigemptyset(before);
}

void cuda_signals_allow(const sigset_t *before) {}

void nccl_comm_end(cuda_instance *instance, nccl_comm *comm) {
    atomic_fetch_add(&unguarded, atomic_load(&busy) == 0);
    AWAIT(3000, atomic_load(&may_end));
    atomic_fetch_add(&ended, 1);
}

/* The user is told, and only then it ends. */
static void note(const symmem_host *host, const char *text) {
    notices++;
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "closing waits"));
    CU_ASSERT_EQUAL(atomic_load(&ended), 0);
    atomic_store(&may_end, true);
}

static void *let_go(void *unused) {
    usleep(50000);
    atomic_store(&may_end, true);
    return unused;
}

/* --- the cases ------------------------------------------------------------------------ */

static const symmem_host host = {.size = sizeof host, .notice = note};
static nccl_state state;
static cuda_instance instance;
static nccl_comm comm;

/* Begins an end for which no time is left: it goes on by itself. */
static void begin(void) {
    pthread_condattr_t attributes;
    CU_ASSERT_EQUAL_FATAL(pthread_condattr_init(&attributes), 0);
    CU_ASSERT_EQUAL_FATAL(pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC), 0);
    memset(&state, 0, sizeof state);
    CU_ASSERT_EQUAL_FATAL(pthread_cond_init(&state.ended, &attributes), 0);
    CU_ASSERT_EQUAL_FATAL(pthread_mutex_init(&state.lock, NULL), 0);
    (void)pthread_condattr_destroy(&attributes);
    instance.host = &host;
    instance.extension = &state;
    notices = 0;
    atomic_store(&ended, 0);
    atomic_store(&may_end, false);
    behind_ns = 3000 * CUDA_NS_PER_MS;
    nccl_comm_abort_begin(&instance, &comm, 1);
    CU_ASSERT_EQUAL(atomic_load(&ended), 0);
}

static void finish(void) {
    nccl_comm_aborts_finish(&instance);
    CU_ASSERT_PTR_NULL(state.endings);
    (void)pthread_cond_destroy(&state.ended);
    (void)pthread_mutex_destroy(&state.lock);
}

TEST("closing tells that it waits") {
    begin();
    behind_ns = 10000 * CUDA_NS_PER_MS;
    finish();
    CU_ASSERT(notices == 1 && atomic_load(&ended) == 1);
}

TEST("not where it is in time") {
    pthread_t letting_go;
    begin();
    behind_ns = 5000 * CUDA_NS_PER_MS;
    CU_ASSERT_EQUAL_FATAL(pthread_create(&letting_go, NULL, let_go, NULL), 0);
    finish();
    CU_ASSERT(notices == 0 && atomic_load(&ended) == 1);
    CU_ASSERT_EQUAL(pthread_join(letting_go, NULL), 0);
}

/* The driver and NCCL are at their end, too: nothing is asked of them. */
TEST("at the process's end") {
    begin();
    atomic_store(&may_end, true);
    finish();
    CU_ASSERT(atomic_load(&ended) == 1);
    CU_ASSERT(atomic_load(&busy) == 0 && atomic_load(&unguarded) == 0);
    atomic_store(&exiting, true);
    begin();
    finish();
    atomic_store(&exiting, false);
    CU_ASSERT(notices == 0 && atomic_load(&ended) == 0);
}

static bool is_listed(void) {
    pthread_mutex_lock(&state.lock);
    const bool listed = state.endings != NULL;
    pthread_mutex_unlock(&state.lock);
    return listed;
}

/* What was left to itself goes, once it is over, with a later one, and not with closing only. */
TEST("the next end takes it along") {
    int begun = 1;
    begin();
    CU_ASSERT(is_listed());
    atomic_store(&may_end, true);
    for (behind_ns = 0; begun < 5000 && is_listed(); begun++) {
        usleep(1000);
        nccl_comm_abort_begin(&instance, &comm, cuda_now_ns() + 3000 * CUDA_NS_PER_MS);
    }
    CU_ASSERT_FALSE(is_listed());
    CU_ASSERT_EQUAL(atomic_load(&ended), begun);
    finish();
    CU_ASSERT_EQUAL(notices, 0);
}
