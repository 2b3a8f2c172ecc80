/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * When backend_cuda reports failures in graphs that the program captured itself, and when it
 * releases what they used. Tests foreign_capture.c with a clock that the test sets, and with
 * replacements of all that it calls.
 */
#include <stdarg.h>

#include "../../quiet_host.h"
#include "cuda_internal.h"
#include "unit_main.h"

#define MS CUDA_NS_PER_MS
#define CAPTURE 5u

static uint64_t now_ns;
static bool is_consequence;
static int told, freed, dropped;
static CUresult create_result, retain_result;
static uint64_t capture_id;
static cuda_instance instance;

uint64_t cuda_now_ns(void) {
    return now_ns;
}

/* --- the driver: one user object ---------------------------------------------------- */

static CUhostFn graph_is_gone;
static void *object_arg;

static CUresult capture_info(CUstream stream, CUstreamCaptureStatus *status_p, cuuint64_t *id_p,
                             CUgraph *graph_p, const CUgraphNode **nodes_p, size_t *count_p) {
    return CUDA_SUCCESS;
}

static CUresult object_create(CUuserObject *object_p, void *arg, CUhostFn destructor,
                              unsigned int count, unsigned int flags) {
    CU_ASSERT(count == 1 && flags == CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
    graph_is_gone = destructor;
    object_arg = arg;
    return create_result;
}

static CUresult object_release(CUuserObject object, unsigned int count) {
    CU_ASSERT_EQUAL(count, 1);
    graph_is_gone(object_arg);
    return CUDA_SUCCESS;
}

static CUresult retain(CUgraph graph, CUuserObject object, unsigned int count, unsigned int flags) {
    CU_ASSERT(count == 1 && flags == CU_GRAPH_USER_OBJECT_MOVE);
    return retain_result;
}

/* --- the backend's other files ------------------------------------------------------ */

symmem_status cuda_enter(cuda_instance *own, int32_t device, const char *operation) {
    return SYMMEM_OK;
}

void cuda_leave(const cuda_instance *own) {}

symmem_status cuda_fail(const cuda_instance *own, CUresult result, const char *operation) {
    return SYMMEM_BACKEND;
}

symmem_status cuda_no_memory(const cuda_instance *own, const char *operation) {
    return SYMMEM_OUT_OF_MEMORY;
}

CUresult cuda_capture_ask(const cuda_driver *driver, CUstream native, uint64_t *id_p) {
    *id_p = capture_id;
    return CUDA_SUCCESS;
}

cuda_capture *cuda_capture_find(const cuda_instance *own, cuuint64_t id) {
    return own->foreign_captures != NULL && own->foreign_captures->id == id ? own->foreign_captures
                                                                            : NULL;
}

bool cuda_is_consequence(const cuda_signal_op *signal) {
    return is_consequence;
}

/* The report of a failure may call back into the check. */
void cuda_check_fault(cuda_stream *stream, const cuda_signal_op *signal) {
    told++;
    signal->fault->code = 0;
    CU_ASSERT_PTR_EQUAL(stream, instance.foreign_captures->stream);
    CU_ASSERT_FALSE(cuda_foreign_captures_check(&instance, now_ns));
}

void cuda_captured_free(cuda_captured *held) {
    freed += held != NULL;
}

void cuda_stream_drop(cuda_stream *stream) {
    dropped++;
    stream->users--;
}

/* --- one capture, of one operation -------------------------------------------------- */

static const symmem_host host = {.size = sizeof host, .fail = quiet_fail};
static symmem_cuda_fault fault;
static cuda_captured held;
static cuda_stream stream;

static symmem_status join(void) {
    const symmem_exec exec = {.stream = &stream};
    uint64_t id;
    return cuda_capture_join(&instance, &exec, "barrier", &id);
}

static void begin(void) {
    memset(&instance, 0, sizeof instance);
    memset(&stream, 0, sizeof stream);
    instance.host = &host;
    instance.driver = (cuda_driver){.StreamGetCaptureInfo = capture_info,
                                    .UserObjectCreate = object_create,
                                    .UserObjectRelease = object_release,
                                    .GraphRetainUserObject = retain};
    (void)pthread_mutex_init(&instance.lock, NULL);
    (void)pthread_cond_init(&instance.work, NULL);
    fault.code = 0;
    held = (cuda_captured){.signal = {.fault = &fault}};
    is_consequence = false;
    told = freed = dropped = 0;
    create_result = retain_result = CUDA_SUCCESS;
    capture_id = CAPTURE;
    now_ns = 1000 * MS;
}

static void begin_held(void) {
    begin();
    CU_ASSERT_EQUAL(join(), SYMMEM_OK);
    CU_ASSERT_PTR_NOT_NULL_FATAL(instance.foreign_captures);
    instance.foreign_captures->held = instance.foreign_captures->held_last = &held;
}

static bool look_at(uint64_t at_ns) {
    now_ns = 1000 * MS + at_ns;
    return cuda_foreign_captures_check(&instance, now_ns);
}

static void expect_gone(void) {
    CU_ASSERT(instance.foreign_captures == NULL && atomic_load(&instance.foreign_count) == 0);
    CU_ASSERT(dropped == 1 && stream.users == 0);
}

/* --- cases -------------------------------------------------------------------------- */

TEST("join") {
    begin();
    CU_ASSERT(join() == SYMMEM_OK && join() == SYMMEM_OK);
    CU_ASSERT(atomic_load(&instance.foreign_count) == 1 && stream.users == 1);
    (void)look_at(0);
    CU_ASSERT_EQUAL(dropped, 0);
    graph_is_gone(object_arg);
    (void)look_at(0);
    expect_gone();
    capture_id = 0; /* no capture */
    CU_ASSERT(join() == SYMMEM_OK && instance.foreign_captures == NULL);
    capture_id = CUDA_BROKEN_CAPTURE;
    CU_ASSERT(join() == SYMMEM_CAPTURE && instance.foreign_captures == NULL);
}

/* The driver would not report the graph's end. */
TEST("refused") {
    begin();
    create_result = CUDA_ERROR_NOT_SUPPORTED;
    CU_ASSERT(join() == SYMMEM_BACKEND && instance.foreign_captures == NULL);
    create_result = CUDA_SUCCESS;
    retain_result = CUDA_ERROR_INVALID_VALUE;
    CU_ASSERT(join() == SYMMEM_BACKEND && instance.foreign_captures == NULL && stream.users == 0);
}

/* Once its kernel cannot write any more; in each launch. */
TEST("failures") {
    begin_held();
    for (int launch = 1; launch <= 2; launch++) {
        const uint64_t at_ns = (uint64_t)launch * 100 * MS;
        fault.code = 1;
        CU_ASSERT(look_at(at_ns) && told == launch - 1);
        CU_ASSERT(!look_at(at_ns + MS) && told == launch);
    }
    fault.code = 1;
    graph_is_gone(object_arg); /* so none of its kernels runs */
    CU_ASSERT(!look_at(300 * MS) && told == 3 && freed == 1);
    expect_gone();
}

/* A caller that waits for what is known by now does not wait for later failures. */
TEST("patience") {
    begin_held();
    fault.code = 1;
    now_ns += 10 * MS;
    CU_ASSERT_FALSE(cuda_foreign_captures_check(&instance, now_ns - 5 * MS));
    CU_ASSERT(look_at(10 * MS) && told == 0);
    graph_is_gone(object_arg);
    (void)look_at(10 * MS);
    expect_gone();
}

/* A consequence waits longer, for its cause. So does its capture, though the graph is gone. */
TEST("consequences") {
    begin_held();
    is_consequence = true;
    fault.code = 1;
    CU_ASSERT(look_at(0) && look_at(10 * MS) && told == 0);
    graph_is_gone(object_arg);
    CU_ASSERT(look_at(11 * MS) && told == 0 && freed == 0);
    CU_ASSERT(!look_at(20 * MS) && told == 1 && freed == 1); /* no cause was reported */
    expect_gone();
    begin_held();
    is_consequence = true;
    fault.code = 1;
    graph_is_gone(object_arg);
    CU_ASSERT(look_at(0) && freed == 0);
    is_consequence = false; /* the cause has been told */
    CU_ASSERT(!look_at(1) && told == 1);
    expect_gone();
}

TEST("close") {
    begin_held();
    cuda_foreign_captures_close(&instance);
    expect_gone();
    graph_is_gone(object_arg); /* later than the instance */
}
