/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How backend_cuda asks cuBLASLt: the library is tests/fakes's, built with cuBLASLt's own
 * header, which without a driver computes at once and refuses what does not fit together.
 */
#include <stdarg.h>

#include "product/blas.h"

#define MOST 48
#include "../kernels/products.h"
#include "driver/context.h"
#include "driver/error.h"
#include "driver/exit.h"
#include "driver/kernels.h"

static int notices, planned;
static char last_notice[128];

static void notice(const symmem_host *host, const char *text) {
    notices++;
    snprintf(last_notice, sizeof last_notice, "%s", text);
}

static symmem_status host_fail(const symmem_host *host, symmem_status status, int system_errno,
                               const char *operation, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(last_notice, sizeof last_notice, format, args);
    va_end(args);
    return status;
}

static const symmem_host host = {.size = sizeof host, .notice = notice, .fail = host_fail};
static cuda_instance instance;
static bool shared;

/* The functions of the backend's other files that blas.c calls. */
bool cuda_reenter(const cuda_instance *own, int32_t device) {
    return true;
}

void cuda_leave(const cuda_instance *own) {}

void cuda_await_at_exit(void) {}

bool cuda_kernels_are_shared(int32_t device) {
    return shared;
}

symmem_status cuda_no_memory(const cuda_instance *own, const char *operation) {
    return SYMMEM_OUT_OF_MEMORY;
}

static void begin(const char *library) {
    memset(&instance, 0, sizeof instance);
    instance.host = &host;
    notices = planned = 0;
    setenv("SYMMEM_CUDA_BLAS", library, 1);
    CU_ASSERT_EQUAL_FATAL(cuda_blas_open(&instance), SYMMEM_OK);
}

/* --- one product ------------------------------------------------------------------------------ */

static _Alignas(256) double sums[MOST * MOST];
static _Alignas(256) char workspace[1 << 16];

/* In out's order, close together, not added to anything. */
static void check_sums(const symmem_matmul *p) {
    symmem_dtype dtype = p->dtype == SYMMEM_FLOAT64 ? SYMMEM_FLOAT64 : SYMMEM_FLOAT32;
    int64_t wrong = 0;
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < p->n; j++) {
            int64_t at = p->out_column == 1 ? i * p->n + j : j * p->m + i;
            double magnitude, expected = symmem_reference_matmul(p, i, j, &magnitude);
            wrong += symmem_reference_load(dtype, sums, at) != expected;
        }
    CU_ASSERT_EQUAL(wrong, 0);
}

static bool run(const symmem_matmul *product, bool apart) {
    cuda_blas_job job = {.product = product, .sums = apart ? sums : NULL};
    if (!cuda_blas_plan(&instance, 0, &job))
        return false;
    CU_ASSERT_FATAL(job.workspace_bytes <= sizeof workspace);
    job.workspace = job.workspace_bytes > 0 ? workspace : NULL;
    CU_ASSERT_EQUAL(cuda_blas_enqueue(&instance, 0, &job, NULL), 0);
    planned++;
    return true;
}

/* --- cases ------------------------------------------------------------------------------------ */

static void check_pair(symmem_dtype dtype, symmem_dtype out) {
    static const int64_t sides[][3] = {{1, 1, 1},  {16, 32, 3}, {17, 33, 20},
                                       {1, 40, 3}, {40, 1, 4},  {9, 10, 40}};
    for (size_t i = 0; i < sizeof sides / sizeof sides[0]; i++)
        for (unsigned layout = 0; layout < 16; layout++)
            for (size_t shift = 0; shift < 3; shift++) {
                symmem_matmul p =
                    make_shifted(dtype, out, sides[i][0], sides[i][1], sides[i][2], layout, shift);
                CU_ASSERT(run(&p, false));
                check(&p);
                p.accumulate = true;
                CU_ASSERT(run(&p, true));
                check_sums(&p);
            }
}

TEST("products") {
    begin(UNIT_FAKE_CUBLASLT);
    check_pair(SYMMEM_FLOAT32, SYMMEM_FLOAT32);
    check_pair(SYMMEM_FLOAT64, SYMMEM_FLOAT64);
    check_pair(SYMMEM_FLOAT16, SYMMEM_FLOAT16);
    check_pair(SYMMEM_FLOAT16, SYMMEM_FLOAT32);
    check_pair(SYMMEM_BFLOAT16, SYMMEM_BFLOAT16);
    check_pair(SYMMEM_BFLOAT16, SYMMEM_FLOAT32);
    CU_ASSERT_EQUAL(planned, 6 * 6 * 16 * 3 * 2);
    CU_ASSERT_EQUAL(notices, 0);
    cuda_blas_close(&instance);
}

/* Sides of one element have whatever stride they like. */
TEST("odd strides") {
    static const int64_t odd[] = {0, 1, 2, 1000000};
    begin(UNIT_FAKE_CUBLASLT);
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        symmem_matmul p = make(SYMMEM_FLOAT32, SYMMEM_FLOAT32, 1, 12, 5, 0);
        p.a_row = p.out_row = odd[i];
        CU_ASSERT(run(&p, false));
        check(&p);
        p = make(SYMMEM_FLOAT32, SYMMEM_FLOAT32, 12, 1, 5, 0);
        p.b_column = p.out_column = odd[i];
        CU_ASSERT(run(&p, false));
        check(&p);
        p = make(SYMMEM_FLOAT32, SYMMEM_FLOAT32, 6, 4, 1, 0);
        p.a_column = p.b_row = odd[i];
        CU_ASSERT(run(&p, false));
        check(&p);
        p = make(SYMMEM_FLOAT32, SYMMEM_FLOAT32, 1, 12, 5, 7); /* a row, five apart */
        p.a_row = p.out_row = odd[i];
        CU_ASSERT(run(&p, false));
        check(&p);
    }
    cuda_blas_close(&instance);
}

/* Those are the plain kernel's. */
TEST("others") {
    begin(UNIT_FAKE_CUBLASLT);
    symmem_matmul p = make(SYMMEM_INT8, SYMMEM_FLOAT32, 8, 8, 8, 0);
    CU_ASSERT_FALSE(run(&p, true));
    p = make(SYMMEM_UINT8, SYMMEM_FLOAT32, 8, 8, 8, 0);
    CU_ASSERT_FALSE(run(&p, true));
    p = make(SYMMEM_FLOAT32, SYMMEM_FLOAT32, 8, 8, 0, 0);
    CU_ASSERT_FALSE(run(&p, false));
    for (int i = 0; i < 2; i++) { /* and stays unknown to the library */
        p = make(SYMMEM_FLOAT32, SYMMEM_FLOAT32, 14, 8, 8, 0);
        CU_ASSERT_FALSE(run(&p, false));
    }
    CU_ASSERT_EQUAL(notices, 0);
    cuda_blas_close(&instance);
}

/* More shapes than plans, again and again. */
TEST("many shapes") {
    begin(UNIT_FAKE_CUBLASLT);
    for (int round = 0; round < 3; round++)
        for (int64_t m = 1; m <= 13; m++)
            for (int64_t n = 1; n <= 13; n++) {
                symmem_matmul p = make(SYMMEM_FLOAT32, SYMMEM_FLOAT32, m, n, 5, 0);
                bool wanted = m % 7 != 0 && n % 7 != 0;
                CU_ASSERT_EQUAL(run(&p, false), wanted);
                if (wanted)
                    check(&p);
            }
    cuda_blas_close(&instance);
}

/* A library that is named but unusable does not open. If none is wanted, nothing is reported. */
TEST("no library") {
    static const char *const wrong[] = {"libcublasLt-that-is-not-there.so", "libm.so.6",
                                        "nonsense"};
    symmem_matmul p = make(SYMMEM_FLOAT32, SYMMEM_FLOAT32, 8, 8, 8, 0);
    begin("0");
    CU_ASSERT_FALSE(run(&p, false));
    CU_ASSERT_EQUAL(notices, 0);
    cuda_blas_close(&instance);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        memset(&instance, 0, sizeof instance);
        instance.host = &host;
        setenv("SYMMEM_CUDA_BLAS", wrong[i], 1);
        CU_ASSERT_EQUAL(cuda_blas_open(&instance), SYMMEM_INVALID_ARGUMENT);
        CU_ASSERT_PTR_NULL(instance.blas);
        CU_ASSERT_PTR_NOT_NULL(strstr(last_notice, "SYMMEM_CUDA_BLAS"));
        CU_ASSERT_PTR_NOT_NULL(strstr(last_notice, wrong[i]));
    }
}

/* While another instance of the process uses the device, too. */
TEST("shared device") {
    symmem_matmul p = make(SYMMEM_FLOAT32, SYMMEM_FLOAT32, 8, 8, 8, 0);
    begin(UNIT_FAKE_CUBLASLT);
    shared = true;
    CU_ASSERT_FALSE(run(&p, false));
    CU_ASSERT_PTR_NOT_NULL(strstr(last_notice, "share a device"));
    shared = false;
    CU_ASSERT_TRUE(run(&p, false));
    check(&p);
    shared = true;
    CU_ASSERT_FALSE(run(&p, false));
    shared = false;
    cuda_blas_close(&instance);
}
