/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Whose end is asked for, and so whose failure is told: inflight.c, on a driver that says what the
 * test sets, with all that it calls replaced.
 */

#include "../../quiet_host.h"
#include "cuda_internal.h"
#include "unit_main.h"
#include "driver/clock.h"
#include "driver/context.h"
#include "driver/error.h"
#include "driver/device.h"
#include "inflight/inflight.h"
#include "inflight/spare.h"
#include "stream/event.h"
#include "driver/pinned.h"
#include "driver/staging.h"
#include "inflight/chunk_wait.h"
#include "stream/foreign_capture.h"
#include "stream/graph.h"
#include "stream/stream.h"

enum { FEW = 4, MOST = 300 };

/* An event is its number from 1 on. */
static struct device {
    int events, queries, destroyed, blocks, given, entered;
    bool over[2 * MOST];
    bool marks_none;
    cuda_pending *meanwhile; /* another thread's, marked and noted while the next mark returns */
} device;

static int told;

/* --- the driver ------------------------------------------------------------------------- */

static CUresult event_create(CUevent *event_p, unsigned int flags) {
    *event_p = (CUevent)(uintptr_t)++device.events;
    return CUDA_SUCCESS;
}

static CUresult event_record(CUevent event, CUstream stream) {
    if (device.marks_none)
        return CUDA_ERROR_UNKNOWN;
    cuda_pending *other = device.meanwhile;
    device.meanwhile = NULL;
    if (other != NULL)
        CU_ASSERT_EQUAL(cuda_pending_add(other, NULL, &(cuda_needs){.told = false}, "put"),
                        SYMMEM_OK);
    return CUDA_SUCCESS;
}

static CUresult stream_query(CUstream stream) {
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

symmem_status cuda_enter(cuda_instance *instance, int32_t device_index, const char *operation) {
    return SYMMEM_OK;
}

void cuda_leave(const cuda_instance *instance) {}

symmem_status cuda_no_memory(const cuda_instance *instance, const char *operation) {
    return SYMMEM_OUT_OF_MEMORY;
}

uint64_t cuda_now_ns(void) {
    return 0;
}

void cuda_small_block_give(void *piece) {
    device.given += piece != NULL;
}

CUresult cuda_small_block_take(const cuda_driver *driver, void **piece_p) {
    static char blocks[2 * MOST][CUDA_SMALL_BLOCK_BYTES];
    *piece_p = blocks[device.blocks++ % (2 * MOST)];
    return CUDA_SUCCESS;
}

bool cuda_reenter(const cuda_instance *instance, int32_t index) {
    device.entered++;
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
    return device.marks_none ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
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

/* The same with its own place for a fault, as launches have. */
static void add_at(cuda_pending *note) {
    CU_ASSERT_EQUAL_FATAL(cuda_spare_place_fault(note), CUDA_SUCCESS);
    const cuda_signal_op signal = {.peers = &peers, .operation = "barrier", .fault = note->block};
    CU_ASSERT_EQUAL(cuda_pending_add(note, NULL, &(cuda_needs){.signal = &signal}, "barrier"),
                    SYMMEM_OK);
}

/* As the ends of the stream and of the instance do. */
static void end_kept(void) {
    cuda_spare_leave(&stream);
    cuda_spares_end(&instance, 0);
    cuda_kept_events_end(&instance, 0);
}

static void begin(void) {
    end_kept();
    memset(&instance, 0, sizeof instance);
    memset(&stream, 0, sizeof stream);
    memset(&device, 0, sizeof device);
    memset(&fault, 0, sizeof fault);
    told = 0;
    instance.driver = (cuda_driver){.EventCreate = event_create,
                                    .EventRecord = event_record,
                                    .EventQuery = event_query,
                                    .EventDestroy = event_destroy,
                                    .StreamQuery = stream_query};
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

/* The newest is asked for, which may tell of all; behind what is not over none of many is. */
TEST("in order") {
    begin();
    for (int i = 0; i < FEW; i++)
        add(make_note());
    cuda_collect(&instance);
    CU_ASSERT(device.queries == 2 && told == 0 && instance.pending_count == FEW);
    expect_none_left();
}

/* One query tells that all is over. */
TEST("the newest first") {
    begin();
    for (int i = 0; i < FEW; i++)
        add(make_note());
    expect_none_left();
    CU_ASSERT(device.queries == 1);
}

/* The newest says nothing of what another thread may have put behind it. */
TEST("the newest of another order") {
    begin();
    cuda_pending *note = make_note();
    device.meanwhile = make_note();
    add(note);
    device.over[0] = true; /* its entry stands behind the other one's */
    cuda_collect(&instance);
    CU_ASSERT(instance.pending_count == 1 && instance.pending->done != NULL);
    expect_none_left();
}

/* Work without a mark, which may be over, says nothing of what comes after it. */
TEST("an entry without a mark") {
    begin();
    cuda_pending *unmarked = make_note();
    device.marks_none = true;
    CU_ASSERT_EQUAL(cuda_pending_add(unmarked, NULL, &(cuda_needs){.told = false}, "put"),
                    SYMMEM_BACKEND);
    device.marks_none = false;
    for (int i = 0; i < FEW; i++)
        add(make_note());
    memset(device.over, 1, 2 * sizeof device.over[0]);
    cuda_collect(&instance);
    CU_ASSERT(instance.pending == unmarked && instance.pending_count < FEW + 1);
    unmarked->ended = true;
    expect_none_left();
}

/* Before many have gathered none is asked for. Then one query tells of half of them, or none is
 * over for long. */
TEST("many of one stream") {
    begin();
    for (int i = 0; i < MOST; i++) {
        cuda_trim(&stream);
        add(make_note());
    }
    CU_ASSERT(device.queries == 4 && instance.pending_count == MOST);
    memset(device.over, 1, MOST * 2 / 3 * sizeof device.over[0]);
    for (int i = 0; i < MOST / 4 && device.queries == 4; i++) {
        add(make_note());
        cuda_trim(&stream);
    }
    CU_ASSERT(device.queries == 5);
    CU_ASSERT(instance.pending_count > MOST / 2 && instance.pending_count < MOST * 2 / 3);
    cuda_trim(&stream);
    CU_ASSERT(device.queries == 5);
    expect_none_left();
}

/* A failure whose work is not over stays to be told. */
TEST("a failure that is to be told") {
    const symmem_peers others = {.size = sizeof others, .world_size = 1};
    begin();
    add(make_note());
    CU_ASSERT_FALSE(cuda_has_failed_work(&instance, &peers));
    fault.code = -(uint32_t)SYMMEM_TIMEOUT;
    cuda_collect(&instance);
    CU_ASSERT(told == 0 && cuda_has_failed_work(&instance, &peers));
    CU_ASSERT_FALSE(cuda_has_failed_work(&instance, &others));
    expect_none_left();
    CU_ASSERT(told == 1 && !cuda_has_failed_work(&instance, &peers));
}

/* The core may wait for the event behind an operation after that is over and forgotten. */
TEST("the end of an operation") {
    void *end = NULL;
    begin();
    CU_ASSERT_EQUAL(cuda_pending_add(make_note(), NULL, &(cuda_needs){.end_p = &end}, "barrier"),
                    SYMMEM_OK);
    CU_ASSERT_PTR_NOT_NULL_FATAL(end);
    expect_none_left();
    memset(device.over, 0, sizeof device.over);
    add(make_note());
    CU_ASSERT_EQUAL(device.events, 2);
    cuda_event_give(&instance, end);
    add(make_note());
    CU_ASSERT(device.events == 2 && device.destroyed == 0);
    expect_none_left();
    end_kept();
}

/* The core has the end of the last operation, and gives back that of the one before it. None of
 * them enters the context for an event. */
TEST("one operation after the other") {
    void *end = NULL, *last = NULL;
    begin();
    for (int i = 0; i < 3 * FEW; i++) {
        const int before = device.entered;
        cuda_pending *note = make_note();
        CU_ASSERT(i < FEW || device.entered == before);
        CU_ASSERT_EQUAL(cuda_pending_add(note, NULL, &(cuda_needs){.end_p = &end}, "barrier"),
                        SYMMEM_OK);
        if (last != NULL)
            cuda_event_give(&instance, last);
        last = end;
        expect_none_left();
        memset(device.over, 0, sizeof device.over);
    }
    cuda_event_give(&instance, last);
    end_kept();
    CU_ASSERT(device.events <= 3 && device.destroyed == device.events);
}

static void expect_new_entries(int32_t wanted) {
    int32_t count = 0;
    for (const cuda_pending *next = instance.pending; next != NULL; next = next->next) {
        CU_ASSERT(next->block->code == 0 && next->block->actual == 0);
        CU_ASSERT(!next->told && !next->ended && !next->unordered && next->stream == &stream);
        count++;
    }
    CU_ASSERT_EQUAL(count, wanted);
}

/* What is used again begins anew: an entry that an earlier failure has used says nothing of it, and
 * is the last of the list. */
TEST("an entry is used again") {
    begin();
    for (int i = 0; i < FEW; i++)
        add_at(make_note());
    cuda_pending *first = instance.pending;
    first->block->code = -(uint32_t)SYMMEM_TIMEOUT;
    first->block->actual = 7;
    expect_none_left();
    CU_ASSERT_EQUAL(told, 1);
    memset(device.over, 0, sizeof device.over);
    add_at(make_note());
    add_at(make_note());
    expect_new_entries(2);
    for (int i = 2; i < FEW + 1; i++)
        add_at(make_note());
    CU_ASSERT(device.events == FEW + 1 && device.blocks == FEW + 1 && device.given == 0);
    expect_new_entries(FEW + 1);
    expect_none_left();
    CU_ASSERT_EQUAL(told, 1);
    add_at(make_note()); /* another one is at hand then */
    CU_ASSERT_PTR_NOT_NULL(atomic_load(&stream.ready));
    expect_none_left();
    end_kept();
    CU_ASSERT(device.destroyed == FEW + 1 && device.given == FEW + 1);
}

/* Not more than a burst needs. */
TEST("many entries are not kept") {
    begin();
    for (int i = 0; i < MOST; i++)
        add(make_note());
    expect_none_left();
    CU_ASSERT(instance.devices[0].spare_count == CUDA_KEPT_ENTRIES);
    end_kept();
    CU_ASSERT(instance.devices[0].spare == NULL && device.destroyed == device.events);
}

/* The event of work that is over marks what comes next, until the device is closed. */
TEST("an event is used again") {
    begin();
    for (int i = 0; i < FEW; i++) {
        add(make_note());
        expect_none_left();
        memset(device.over, 0, sizeof device.over);
    }
    CU_ASSERT(device.events == 1 && device.destroyed == 0);
    end_kept();
    CU_ASSERT(device.destroyed == 1);
}
