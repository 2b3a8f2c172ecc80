/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Whose end is asked for, and so whose failure is told: pending.c, on a driver that says what the
 * test sets, with all that it calls replaced.
 */

#include "../../quiet_host.h"
#include "cuda_internal.h"
#include "unit_main.h"
#include "driver/clock.h"
#include "driver/context.h"
#include "driver/error.h"
#include "inflight/inflight.h"
#include "driver/pinned.h"
#include "driver/staging.h"
#include "inflight/chunk_wait.h"
#include "stream/foreign_capture.h"
#include "stream/graph.h"
#include "stream/stream.h"

enum { MOST = 4 };

/* An event is its number from 1 on. */
static struct device {
    int events, queries, destroyed;
    bool over[MOST];
    cuda_pending *meanwhile; /* another thread's, marked and noted while the next mark returns */
} device;

static int told;

/* --- the driver ------------------------------------------------------------------------- */

static CUresult event_create(CUevent *event_p, unsigned int flags) {
    *event_p = (CUevent)(uintptr_t)++device.events;
    return CUDA_SUCCESS;
}

static CUresult event_record(CUevent event, CUstream stream) {
    cuda_pending *other = device.meanwhile;
    device.meanwhile = NULL;
    if (other != NULL)
        CU_ASSERT_EQUAL(cuda_pending_add(other, NULL, &(cuda_needs){.told = false}, "put"),
                        SYMMEM_OK);
    return CUDA_SUCCESS;
}

static CUresult event_query(CUevent event) {
    device.queries++;
    return device.over[(uintptr_t)event - 1] ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static CUresult event_destroy(CUevent event) {
    device.destroyed++;
    return CUDA_SUCCESS;
}

/* --- the backend's other files ---------------------------------------------------------- */

bool cuda_foreign_captures_check(cuda_instance *instance, uint64_t begin_ns) {
    return false;
}

symmem_status cuda_fail(const cuda_instance *instance, CUresult result, const char *operation) {
    return SYMMEM_BACKEND;
}

void cuda_graph_drop(cuda_instance *instance, cuda_graph *graph) {}

bool cuda_is_capture_error(CUresult result) {
    return false;
}

void cuda_leave(const cuda_instance *instance) {}

symmem_status cuda_no_memory(const cuda_instance *instance, const char *operation) {
    return SYMMEM_OUT_OF_MEMORY;
}

uint64_t cuda_now_ns(void) {
    return 0;
}

void cuda_small_block_give(void *piece) {}

bool cuda_reenter(const cuda_instance *instance, int32_t index) {
    return true;
}

void cuda_sleep_ns(uint64_t ns) {}

void cuda_staging_give(cuda_staging *staging) {}

void cuda_staging_give_up(cuda_staging *staging) {}

void cuda_stream_drop(cuda_stream *stream) {
    stream->users--;
}

symmem_status cuda_take_chunk_fault(const cuda_signal_op *signal, symmem_error_record *record_p) {
    return SYMMEM_OK;
}

CUresult cuda_wait_idle(cuda_instance *instance, CUstream native, uint32_t timeout_ms,
                        const cuda_signal_op *signal) {
    return CUDA_SUCCESS;
}

/* --- one stream, two handles ------------------------------------------------------------ */

static void signal_failed(const symmem_peers *peers, const symmem_fault *fault,
                          symmem_error_record *record_p) {
    told++;
    record_p->status = fault->status;
}

static const symmem_host host = {
    .size = sizeof host, .signal_failed = signal_failed, .is_poisoned = quiet_is_poisoned};
static const symmem_peers peers = {.size = sizeof peers, .host = &host, .world_size = 1};
static symmem_cuda_fault fault;
static cuda_instance instance;
static cuda_stream stream;

static cuda_pending *make_note(void) {
    cuda_pending *note = NULL;
    CU_ASSERT_EQUAL_FATAL(cuda_pending_make(&stream, "barrier", &note), SYMMEM_OK);
    return note;
}

/* What may fail. */
static void add(cuda_pending *note) {
    const cuda_signal_op signal = {.peers = &peers, .operation = "barrier", .fault = &fault};
    CU_ASSERT_EQUAL(cuda_pending_add(note, NULL, &(cuda_needs){.signal = &signal}, "barrier"),
                    SYMMEM_OK);
}

static void begin(void) {
    memset(&instance, 0, sizeof instance);
    memset(&stream, 0, sizeof stream);
    memset(&device, 0, sizeof device);
    memset(&fault, 0, sizeof fault);
    told = 0;
    instance.driver = (cuda_driver){.EventCreate = event_create,
                                    .EventRecord = event_record,
                                    .EventQuery = event_query,
                                    .EventDestroy = event_destroy};
    instance.pending_end = &instance.pending;
    stream.instance = &instance;
    (void)pthread_mutex_init(&instance.collecting, NULL);
    (void)pthread_mutex_init(&instance.lock, NULL);
    (void)pthread_cond_init(&instance.work, NULL);
}

static void expect_none_left(void) {
    memset(device.over, 1, sizeof device.over);
    cuda_collect(&instance);
    CU_ASSERT(instance.pending == NULL && instance.pending_count == 0 && stream.users == 0);
}

/* Work that comes later on the stream, and was noted first, does not hide a failure. */
TEST("noted in another order") {
    begin();
    cuda_pending *note = make_note();
    device.meanwhile = make_note();
    add(note);
    fault.code = -(uint32_t)SYMMEM_TIMEOUT;
    device.over[0] = true;
    cuda_collect(&instance);
    CU_ASSERT(told == 1 && instance.pending_count == 1 && stream.users == 1);
    expect_none_left();
}

/* Behind what is not over none of many is asked for. */
TEST("in order") {
    begin();
    for (int i = 0; i < MOST; i++)
        add(make_note());
    cuda_collect(&instance);
    CU_ASSERT(device.queries == 1 && told == 0 && instance.pending_count == MOST);
    expect_none_left();
}

/* The event of work that is over marks what comes next, until the device is closed. */
TEST("an event is used again") {
    begin();
    for (int i = 0; i < MOST; i++) {
        add(make_note());
        expect_none_left();
        memset(device.over, 0, sizeof device.over);
    }
    CU_ASSERT(device.events == 1 && device.destroyed == 0);
    cuda_kept_events_end(&instance, 0);
    CU_ASSERT(device.destroyed == 1);
}
