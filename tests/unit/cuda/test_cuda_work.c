/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Work that another backend's library enqueues: what a call without a stream waits for, and what is
 * kept of work that is given up. work.c, with all that it calls replaced.
 */
#include "../../quiet_host.h"
#include "collective/work.h"
#include "driver/clock.h"
#include "driver/context.h"
#include "driver/device.h"
#include "driver/error.h"
#include "driver/pinned.h"
#include "driver/staging.h"
#include "inflight/chunk_wait.h"
#include "inflight/inflight.h"
#include "signal/composite.h"
#include "signal/signal.h"
#include "stream/foreign_capture.h"
#include "stream/graph.h"
#include "stream/stream.h"
#include "unit_main.h"

static char staging_memory, orphan_memory;
#define STAGING ((cuda_staging *)(void *)&staging_memory)
#define ORPHAN ((cuda_pending *)(void *)&orphan_memory)

static int looks_left; /* until the device is done */
static int waits, looks, staged, given_up, orphaned, ended, given_back, orphans, entered;
static uint64_t now_ns;
static symmem_status looked; /* what a look answers */
static symmem_status enqueued;
static cuuint64_t capture;
static const cuda_needs *kept;
static cuda_needs kept_needs;
static bool rest_is_over;

/* --- what the backend's other files would do ---------------------------------------- */

CUresult cuda_private_stream_take(cuda_instance *instance, int32_t device,
                                  cuda_private_stream **private_stream_p) {
    static cuda_private_stream own;
    (void)instance, (void)device;
    *private_stream_p = &own;
    return CUDA_SUCCESS;
}

void cuda_private_stream_give(cuda_instance *instance, int32_t device,
                              cuda_private_stream *private_stream) {
    (void)instance, (void)device, (void)private_stream;
    given_back++;
}

void cuda_private_stream_end(cuda_instance *instance, int32_t device,
                             cuda_private_stream *private_stream) {
    (void)instance, (void)device, (void)private_stream;
    ended++;
}

CUresult cuda_wait_idle(cuda_instance *instance, CUstream native, uint32_t timeout_ms,
                        const cuda_signal_op *signal) {
    (void)instance, (void)native, (void)signal;
    waits++;
    CU_ASSERT(timeout_ms > 0 && timeout_ms <= 50);
    now_ns += timeout_ms * CUDA_NS_PER_MS;
    return looks_left-- > 0 ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

CUresult cuda_wait_call(cuda_instance *instance, CUstream native) {
    (void)instance, (void)native;
    return CUDA_SUCCESS;
}

uint64_t cuda_now_ns(void) {
    return now_ns;
}

cuda_pending *cuda_orphan_make(cuda_instance *instance, int32_t device) {
    (void)instance, (void)device;
    orphans++;
    return ORPHAN;
}

void cuda_orphan_drop(cuda_pending *orphan) {
    orphans -= orphan != NULL;
}

void cuda_orphan(cuda_pending *orphan, CUstream native, const symmem_exec *exec,
                 const cuda_needs *needs, const char *operation) {
    (void)native, (void)exec, (void)operation;
    CU_ASSERT(orphan == ORPHAN && needs->staging == STAGING);
    orphaned++;
}

void cuda_staging_give(cuda_staging *staging) {
    staged -= staging != NULL;
}

void cuda_staging_give_up(cuda_staging *staging) {
    CU_ASSERT(staging == STAGING);
    given_up++;
}

symmem_status cuda_fail(const cuda_instance *instance, CUresult result, const char *operation) {
    (void)instance, (void)result, (void)operation;
    return SYMMEM_BACKEND;
}

symmem_status cuda_fail_timeout(const cuda_instance *instance, const char *operation) {
    (void)instance, (void)operation;
    return SYMMEM_TIMEOUT;
}

symmem_status cuda_enter(cuda_instance *instance, int32_t device, const char *operation) {
    (void)instance, (void)device, (void)operation;
    entered++;
    return SYMMEM_OK;
}

void cuda_leave(const cuda_instance *instance) {
    (void)instance;
    entered--;
}

void cuda_collect(cuda_instance *instance) {
    (void)instance;
}

symmem_status cuda_capture_join(cuda_instance *instance, const symmem_exec *exec,
                                const char *operation, uint64_t *id_p) {
    (void)instance, (void)exec, (void)operation;
    *id_p = capture;
    return SYMMEM_OK;
}

symmem_status cuda_pending_make(cuda_stream *stream, const char *operation,
                                cuda_pending **pending_p) {
    (void)stream, (void)operation;
    *pending_p = ORPHAN;
    return SYMMEM_OK;
}

void cuda_pending_drop(cuda_instance *instance, cuda_pending *pending) {
    (void)instance;
    CU_ASSERT_PTR_EQUAL(pending, ORPHAN);
}

static symmem_status keep(const cuda_needs *needs) {
    kept_needs = *needs;
    kept = &kept_needs;
    return SYMMEM_OK;
}

symmem_status cuda_pending_add(cuda_pending *pending, const symmem_exec *exec,
                               const cuda_needs *needs, const char *operation) {
    (void)exec, (void)operation;
    CU_ASSERT_PTR_EQUAL(pending, ORPHAN);
    return keep(needs);
}

symmem_status cuda_captured_add(cuda_instance *instance, cuuint64_t id, const symmem_exec *exec,
                                const cuda_needs *needs, const char *operation) {
    (void)instance, (void)exec, (void)operation;
    CU_ASSERT_EQUAL(id, capture);
    return keep(needs);
}

void cuda_captured_rest(cuda_instance *instance, cuuint64_t id, const symmem_exec *exec) {
    (void)instance, (void)id, (void)exec;
}

bool cuda_pending_rest(cuda_pending *pending, const symmem_exec *exec, const cuda_needs *needs,
                       const char *operation) {
    (void)pending, (void)exec, (void)operation;
    CU_ASSERT_PTR_EQUAL(needs->staging, STAGING);
    return rest_is_over;
}

CUresult cuda_composite_begin(const cuda_instance *instance, const symmem_exec *exec,
                              CUstream native) {
    (void)instance, (void)exec, (void)native;
    return CUDA_SUCCESS;
}

symmem_cuda_state *cuda_state_of(const symmem_composite *composite) {
    (void)composite;
    return NULL;
}

symmem_status cuda_take_fault(const cuda_signal_op *signal, symmem_error_record *record_p) {
    (void)signal, (void)record_p;
    return SYMMEM_OK;
}

void cuda_cancel_chunk_waits(const cuda_signal_op *signal) {
    (void)signal;
}

void cuda_small_block_give(void *piece) {
    CU_ASSERT_PTR_NULL(piece);
}

CUresult cuda_launch_kernel(const cuda_instance *instance, CUfunction kernel, unsigned int blocks,
                            unsigned int threads, void *args, CUstream native) {
    (void)instance, (void)kernel, (void)blocks, (void)threads, (void)args, (void)native;
    return CUDA_SUCCESS;
}

/* --- the other backend --------------------------------------------------------------- */

static symmem_status enqueue(cuda_instance *instance, cuda_work *work, CUstream native) {
    (void)instance, (void)native;
    work->staging = STAGING;
    staged++;
    return enqueued;
}

static symmem_status look(cuda_instance *instance, const cuda_work *work) {
    (void)instance;
    CU_ASSERT_PTR_EQUAL(work->staging, STAGING);
    looks++;
    return looks < 3 ? SYMMEM_OK : looked;
}

static symmem_status run(int device_looks, uint32_t timeout_ms, void *stream) {
    static cuda_instance instance;
    cuda_work work = {.operation = "put", .enqueue = enqueue, .look = look};
    const symmem_exec exec = {.timeout_ms = timeout_ms, .stream = stream};
    looks_left = device_looks;
    waits = looks = staged = given_up = orphaned = ended = given_back = orphans = 0;
    kept = NULL;
    const symmem_status status = cuda_work_run(&instance, &work, &exec);
    CU_ASSERT_EQUAL(entered, 0);
    return status;
}

TEST("a call waits until its work is over, and gives back what that needed") {
    CU_ASSERT_EQUAL(run(5, 0, NULL), SYMMEM_OK);
    CU_ASSERT(waits == 6 && looks == 5 && given_back == 1);
    CU_ASSERT(staged == 0 && orphans == 0 && ended == 0);
}

TEST("a call whose limit has passed leaves its work what that needs") {
    CU_ASSERT_EQUAL(run(1000, 200, NULL), SYMMEM_TIMEOUT);
    CU_ASSERT(waits >= 4 && waits <= 20);
    CU_ASSERT(orphaned == 1 && ended == 1 && given_up == 1 && given_back == 0 && staged == 1);
}

TEST("a look ends a call that has no limit") {
    looked = SYMMEM_PEER_LOST;
    CU_ASSERT_EQUAL(run(1000, 0, NULL), SYMMEM_PEER_LOST);
    CU_ASSERT(looks == 3 && orphaned == 1 && staged == 1);
    CU_ASSERT_EQUAL(run(2, 0, NULL), SYMMEM_OK);
    looked = SYMMEM_OK;
}

TEST("work of a stream keeps what it needs, in a graph too") {
    static cuda_stream stream;
    for (capture = 0; capture < 2; capture++) {
        CU_ASSERT_EQUAL(run(0, 0, &stream), SYMMEM_OK);
        CU_ASSERT_PTR_NOT_NULL_FATAL(kept);
        CU_ASSERT(kept->staging == STAGING && waits == 0 && staged == 1);
    }
    capture = 0;
}

TEST("work that was enqueued in part keeps what it needs until it is over") {
    static cuda_stream stream;
    enqueued = SYMMEM_SYSTEM;
    rest_is_over = true;
    CU_ASSERT_EQUAL(run(0, 0, &stream), SYMMEM_SYSTEM);
    CU_ASSERT_EQUAL(staged, 0);
    rest_is_over = false;
    CU_ASSERT_EQUAL(run(0, 0, &stream), SYMMEM_SYSTEM);
    CU_ASSERT_EQUAL(staged, 1);
    enqueued = SYMMEM_OK;
}
