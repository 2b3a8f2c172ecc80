/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which product backend_cuda enqueues, in what order and where its sums go: product.c, with all
 * that it calls replaced by notes of what was asked for.
 */
#include <stdarg.h>

#include "../../quiet_host.h"
#include "product/blas.h"
#include "cuda/product.h"
#include "unit_main.h"
#include "collective/work.h"
#include "driver/context.h"
#include "driver/device.h"
#include "driver/error.h"
#include "driver/pinned.h"
#include "memory/scratch.h"
#include "product/product.h"
#include "signal/signal.h"

static char notes[1024];
static int taken; /* pieces of memory that were not given back */

__attribute__((format(printf, 1, 2))) static void note(const char *format, ...) {
    const size_t length = strlen(notes);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(notes + length, sizeof notes - length, format, arguments);
    va_end(arguments);
}

/* --- what the backend's other files would do ---------------------------------------- */

static bool can_plan, is_fresh, has_memory, capturing;
static size_t workspace;
static int blas_error;
static const uint64_t *failed; /* the word of a whole operation that this is a part of */
static int notices;

#define SUMS 0x10000 /* where memory of a stream is */

static char kernels[4]; /* addresses of these are kernels */

static CUfunction kernel(int i) {
    char *at = &kernels[i];
    CUfunction function;
    memcpy(&function, &at, sizeof function);
    return function;
}

enum { PLAIN, FINISH, FINISH_DOUBLE, AWAIT };

static void note_kernel(CUfunction which, const char *detail) {
    static const char *const names[] = {"plain", "finish", "finish_double", "await"};
    for (int i = 0; i < 4; i++)
        if (which == kernel(i))
            note("%s%s ", names[i], detail);
}

bool cuda_blas_plan(cuda_instance *instance, int32_t device, cuda_blas_job *job) {
    job->workspace_bytes = workspace;
    job->fresh = is_fresh;
    is_fresh = false;
    return can_plan;
}

int cuda_blas_enqueue(cuda_instance *instance, int32_t device, const cuda_blas_job *job,
                      CUstream native) {
    CU_ASSERT_EQUAL(job->workspace != NULL, workspace != 0);
    note("blas%s ", job->sums != NULL ? "_apart" : "");
    return blas_error;
}

CUresult cuda_scratch_take(cuda_instance *instance, int32_t device, size_t bytes, CUstream native,
                           CUdeviceptr *at_p) {
    CU_ASSERT(bytes > 0);
    if (!has_memory)
        return CUDA_ERROR_OUT_OF_MEMORY;
    taken++;
    *at_p = SUMS;
    return CUDA_SUCCESS;
}

void cuda_scratch_give(const cuda_instance *instance, CUdeviceptr at, CUstream native) {
    taken -= at != 0;
}

symmem_status cuda_work_launch(cuda_instance *instance, const cuda_work *work, CUfunction which,
                               uint64_t count, void *args, CUstream native) {
    const symmem_cuda_product *product = args;
    CU_ASSERT_EQUAL(count, (uint64_t)product->m * (uint64_t)product->n);
    CU_ASSERT_EQUAL(product->sums != NULL, which != kernel(PLAIN));
    note_kernel(which, product->failed != NULL ? "_part" : "");
    return SYMMEM_OK;
}

CUresult cuda_launch_kernel(const cuda_instance *instance, CUfunction which, unsigned int blocks,
                            unsigned int threads, void *args, CUstream native) {
    const symmem_cuda_await *await = args;
    char chunk[24];
    snprintf(chunk, sizeof chunk, "%d%s", (int)await->chunk, await->first ? "_first" : "");
    note_kernel(which, chunk);
    return CUDA_SUCCESS;
}

symmem_status cuda_work_run(cuda_instance *instance, cuda_work *work, const symmem_exec *exec) {
    work->capturing = capturing;
    work->failed = failed;
    return work->enqueue(instance, work, NULL);
}

CUresult cuda_small_block_take(const cuda_driver *driver, void **piece_p) {
    static symmem_cuda_fault fault;
    *piece_p = &fault;
    return CUDA_SUCCESS;
}

symmem_status cuda_enter(cuda_instance *instance, int32_t device, const char *operation) {
    return SYMMEM_OK;
}

void cuda_leave(const cuda_instance *instance) {}

symmem_status cuda_failpoint(const cuda_instance *instance, const char *name) {
    return SYMMEM_OK;
}

symmem_status cuda_fail(const cuda_instance *instance, CUresult result, const char *operation) {
    return SYMMEM_BACKEND;
}

static void notice(const symmem_host *host, const char *text) {
    notices++;
}

/* --- one call ----------------------------------------------------------------------- */

static const symmem_host host = {.size = sizeof host, .fail = quiet_fail, .notice = notice};
static cuda_instance instance;
static symmem_matmul product;
static float factors[64], scale = 2;

/* A library that can do it, and all the memory there is. */
static void begin(symmem_dtype dtype) {
    cuda_local_kernels *local = &instance.devices[0].kernels.local;
    instance.host = &host;
    for (int i = 0; i < SYMMEM_DTYPE_COUNT; i++)
        local->product[i] = kernel(PLAIN);
    local->finish = kernel(FINISH);
    local->finish_double = kernel(FINISH_DOUBLE);
    local->await_chunk = kernel(AWAIT);
    product = (symmem_matmul){.size = sizeof product,
                              .m = 4,
                              .n = 4,
                              .k = 4,
                              .a = factors,
                              .a_row = 4,
                              .a_column = 1,
                              .b = factors,
                              .b_row = 4,
                              .b_column = 1,
                              .out = factors,
                              .out_row = 4,
                              .out_column = 1,
                              .dtype = dtype,
                              .out_dtype = dtype};
    can_plan = has_memory = true;
    is_fresh = capturing = false;
    workspace = 0;
    blas_error = notices = 0;
    failed = NULL;
}

static void expect(symmem_status wanted, const char *wanted_notes) {
    const symmem_exec exec = {0};
    notes[0] = '\0';
    CU_ASSERT_EQUAL(cuda_matmul(&instance, 0, &product, &exec), wanted);
    CU_ASSERT_STRING_EQUAL(notes, wanted_notes);
    CU_ASSERT_EQUAL(taken, 0);
    if (strcmp(notes, wanted_notes) != 0)
        fprintf(stderr, "\"%s\", not \"%s\"\n", notes, wanted_notes);
}

/* --- cases -------------------------------------------------------------------------- */

TEST("the library's") {
    begin(SYMMEM_FLOAT32);
    expect(SYMMEM_OK, "blas ");
    workspace = 512;
    expect(SYMMEM_OK, "blas ");
    product.m = 0;
    expect(SYMMEM_OK, "");
}

/* The library's product cannot be skipped after a failure, and cannot scale both inputs. Such
 * products go through memory of the stream. */
TEST("sums apart") {
    const uint64_t word = 0;
    begin(SYMMEM_FLOAT32);
    product.a_scale = product.b_scale = &scale;
    expect(SYMMEM_OK, "blas_apart finish ");
    product.a_scale = product.b_scale = NULL;
    failed = &word;
    expect(SYMMEM_OK, "blas_apart finish_part ");
    workspace = 512;
    expect(SYMMEM_OK, "blas_apart finish_part ");
    begin(SYMMEM_FLOAT64);
    failed = &word;
    expect(SYMMEM_OK, "blas_apart finish_double_part ");
}

/* The backend's own product: without the library, or if the library refuses before anything is
 * enqueued. */
TEST("the plain one") {
    static const int before[] = {-1, 7, 8, 15};
    const uint64_t word = 0;
    begin(SYMMEM_FLOAT32);
    can_plan = false;
    expect(SYMMEM_OK, "plain ");
    failed = &word;
    expect(SYMMEM_OK, "plain_part ");
    begin(SYMMEM_FLOAT32);
    workspace = 512;
    has_memory = false;
    expect(SYMMEM_OK, "plain ");
    begin(SYMMEM_FLOAT32);
    for (size_t i = 0; i < sizeof before / sizeof before[0]; i++) {
        blas_error = before[i];
        expect(SYMMEM_OK, "blas plain ");
        CU_ASSERT_EQUAL(notices, (int)i + 1);
    }
}

/* Something may have been enqueued, and added to out: not once more. */
TEST("an error") {
    begin(SYMMEM_FLOAT32);
    blas_error = 13;
    expect(SYMMEM_BACKEND, "blas ");
    product.a_scale = product.b_scale = &scale;
    expect(SYMMEM_BACKEND, "blas_apart ");
}

static symmem_status own(void *arg, const symmem_matmul *p, void *native) {
    note("own ");
    return *(symmem_status *)arg;
}

TEST("the user's") {
    symmem_status answer = SYMMEM_OK;
    begin(SYMMEM_FLOAT32);
    product.fn = own;
    product.fn_arg = &answer;
    expect(SYMMEM_OK, "own ");
    answer = SYMMEM_PERMISSION;
    expect(SYMMEM_PERMISSION, "own ");
}

/* Each is waited for, from the pivot on; before the first the library loads its kernel, but nothing
 * of that is captured. */
TEST("chunks") {
    const uint32_t signals[2] = {0};
    begin(SYMMEM_FLOAT32);
    product.signals = signals;
    product.signal_count = 2;
    product.signal_pivot = 1;
    const char *all = "await1_first blas_apart finish_part await0 blas_apart finish_part ";
    expect(SYMMEM_OK, all);
    capturing = is_fresh = true;
    expect(SYMMEM_OK, all);
    capturing = false;
    is_fresh = true;
    expect(SYMMEM_OK,
           "blas_apart await1_first blas_apart finish_part await0 blas_apart finish_part ");
    can_plan = false;
    expect(SYMMEM_OK, "await1_first plain_part await0 plain_part ");
    has_memory = false; /* for the state that chunks have in common */
    expect(SYMMEM_BACKEND, "");
}
