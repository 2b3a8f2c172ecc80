/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cuBLASLt for the fake driver, or for no driver: then a product runs at once. It computes with the
 * scalar reference and is as strict as the library may be: layouts that do not fit, addresses less
 * aligned than was said, another workspace than asked for, all are refused. Shapes of which a side
 * is a multiple of 7 it does not do at all, for the other way to be taken. As if each shape had
 * code of its own, which is loaded when it is first needed, it waits then for all that runs.
 */
#include <cublasLt.h>
#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "reference/matmul.h"

#define EXPORT __attribute__((visibility("default")))
#define WORKSPACE 4096

struct fake_desc {
    cublasComputeType_t compute;
    cudaDataType_t scale;
    cublasOperation_t a, b;
};

struct fake_layout {
    cudaDataType_t type;
    uint64_t rows, columns;
    int64_t leading;
};

struct fake_preference {
    uint64_t workspace;
    uint32_t reductions;
    uint32_t alignments[4];
};

/* In the algorithm's own bytes: what was planned for. */
struct fake_algo {
    uint32_t alignments[4];
    uint32_t workspace;
    uint32_t mark;
};

_Static_assert(sizeof(struct fake_algo) <= sizeof(cublasLtMatmulAlgo_t), "it has to fit");

#define MARK 0x1a7e5u

static void *object(const void *handle) {
    return (void *)(uintptr_t)handle;
}

static cublasStatus_t keep(void *handle_p, const void *from, size_t bytes) {
    void *made = malloc(bytes);
    if (made == NULL)
        return CUBLAS_STATUS_ALLOC_FAILED;
    memcpy(made, from, bytes);
    memcpy(handle_p, &made, sizeof made);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t drop(const void *handle) {
    free(object(handle));
    return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
    const int alive = 1;
    return keep(handle, &alive, sizeof alive);
}

EXPORT cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    return drop(handle);
}

EXPORT cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc,
                                               cublasComputeType_t compute, cudaDataType_t scale) {
    const struct fake_desc made = {.compute = compute, .scale = scale};
    return keep(desc, &made, sizeof made);
}

EXPORT cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
    return drop(desc);
}

EXPORT cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                                     cublasLtMatmulDescAttributes_t attribute,
                                                     const void *value, size_t bytes) {
    struct fake_desc *own = object(desc);
    int32_t number;
    if (bytes != sizeof number)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(&number, value, sizeof number);
    if (attribute == CUBLASLT_MATMUL_DESC_TRANSA)
        own->a = (cublasOperation_t)number;
    else if (attribute == CUBLASLT_MATMUL_DESC_TRANSB)
        own->b = (cublasOperation_t)number;
    else
        return CUBLAS_STATUS_INVALID_VALUE;
    return number == CUBLAS_OP_N || number == CUBLAS_OP_T ? CUBLAS_STATUS_SUCCESS
                                                          : CUBLAS_STATUS_INVALID_VALUE;
}

EXPORT cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout,
                                                 cudaDataType_t type, uint64_t rows,
                                                 uint64_t columns, int64_t leading) {
    const struct fake_layout made = {type, rows, columns, leading};
    return keep(layout, &made, sizeof made);
}

EXPORT cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
    return drop(layout);
}

EXPORT cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference) {
    const struct fake_preference made = {.reductions = CUBLASLT_REDUCTION_SCHEME_MASK,
                                         .alignments = {256, 256, 256, 256}};
    return keep(preference, &made, sizeof made);
}

EXPORT cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
    return drop(preference);
}

EXPORT cublasStatus_t cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
    const void *value, size_t bytes) {
    struct fake_preference *own = object(preference);
    int which = (int)attribute - (int)CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
    void *to = attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES     ? (void *)&own->workspace
               : attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK ? &own->reductions
               : which >= 0 && which < 4                                 ? &own->alignments[which]
                                                                         : NULL;
    if (to == NULL || bytes != (to == &own->workspace ? sizeof(uint64_t) : sizeof(uint32_t)))
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(to, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

/* --- products ------------------------------------------------------------------------ */

static bool dtype_of(cudaDataType_t type, symmem_dtype *dtype_p) {
    *dtype_p = type == CUDA_R_64F    ? SYMMEM_FLOAT64
               : type == CUDA_R_16F  ? SYMMEM_FLOAT16
               : type == CUDA_R_16BF ? SYMMEM_BFLOAT16
                                     : SYMMEM_FLOAT32;
    return type == CUDA_R_32F || type == CUDA_R_64F || type == CUDA_R_16F || type == CUDA_R_16BF;
}

/* The operand as the product sees it. */
static void strides_of(const struct fake_layout *layout, cublasOperation_t operation,
                       int64_t *rows_p, int64_t *columns_p, int64_t *row_p, int64_t *column_p) {
    const bool as_is = operation == CUBLAS_OP_N;
    *rows_p = (int64_t)(as_is ? layout->rows : layout->columns);
    *columns_p = (int64_t)(as_is ? layout->columns : layout->rows);
    *row_p = as_is ? 1 : layout->leading;
    *column_p = as_is ? layout->leading : 1;
}

static bool is_sound(const struct fake_layout *layout) {
    return layout->rows > 0 && layout->columns > 0 && layout->leading >= (int64_t)layout->rows;
}

/* False if the library has no such product. */
static bool read_product(const struct fake_desc *desc, const struct fake_layout *a,
                         const struct fake_layout *b, const struct fake_layout *d,
                         symmem_matmul *p) {
    int64_t depth, rows, columns;
    symmem_dtype other;
    memset(p, 0, sizeof *p);
    if (!is_sound(a) || !is_sound(b) || !is_sound(d) || !dtype_of(a->type, &p->dtype) ||
        !dtype_of(b->type, &other) || !dtype_of(d->type, &p->out_dtype) || other != p->dtype)
        return false;
    strides_of(a, desc->a, &p->m, &p->k, &p->a_row, &p->a_column);
    strides_of(b, desc->b, &depth, &p->n, &p->b_row, &p->b_column);
    strides_of(d, CUBLAS_OP_N, &rows, &columns, &p->out_row, &p->out_column);
    const bool wide = p->dtype == SYMMEM_FLOAT64;
    return depth == p->k && rows == p->m && columns == p->n && p->m % 7 != 0 && p->n % 7 != 0 &&
           p->k % 7 != 0 &&
           (p->out_dtype == p->dtype || (!wide && p->out_dtype == SYMMEM_FLOAT32)) &&
           desc->compute == (wide ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F) &&
           desc->scale == (wide ? CUDA_R_64F : CUDA_R_32F);
}

EXPORT cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
    cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
    cublasLtMatmulPreference_t preference, int wanted, cublasLtMatmulHeuristicResult_t *results,
    int *found) {
    const struct fake_preference *own = object(preference);
    struct fake_algo algo = {.mark = MARK};
    symmem_matmul product;
    *found = 0;
    if (handle == NULL || c != d || wanted != 1 ||
        !read_product(object(desc), object(a), object(b), object(d), &product))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    /* A result of 16 bits is rounded once: no partial sums in the output's type. */
    if (own->reductions != CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    memcpy(algo.alignments, own->alignments, sizeof algo.alignments);
    if (product.k > 3 && own->workspace >= WORKSPACE)
        algo.workspace = WORKSPACE;
    memset(results, 0, sizeof *results);
    memcpy(&results->algo, &algo, sizeof algo);
    results->workspaceSize = algo.workspace;
    results->state = CUBLAS_STATUS_SUCCESS;
    *found = 1;
    return CUBLAS_STATUS_SUCCESS;
}

struct fake_run {
    symmem_matmul product;
    double alpha, beta;
    void *workspace;
    size_t workspace_bytes;
};

static void run_product(void *arg) {
    struct fake_run *run = arg;
    const symmem_matmul *p = &run->product;
    if (run->workspace != NULL)
        memset(run->workspace, 0xab, run->workspace_bytes);
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < p->n; j++) {
            double magnitude, sum = run->alpha * symmem_reference_matmul(p, i, j, &magnitude);
            const int64_t at = i * p->out_row + j * p->out_column;
            if (run->beta != 0)
                sum += run->beta * symmem_reference_load(p->out_dtype, p->out, at);
            symmem_reference_store(p->out_dtype, p->out, at, sum);
        }
}

typedef CUresult (*enqueue_fn)(CUstream stream, void (*run)(void *arg), const void *arg,
                               size_t bytes);
typedef void (*quiet_fn)(void);

static bool find_entry(const char *name, void *entry_p) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    void *symbol = driver != NULL ? dlsym(driver, name) : NULL;
    if (driver != NULL)
        dlclose(driver);
    memcpy(entry_p, &symbol, sizeof symbol);
    return symbol != NULL;
}

/* Whether a shape comes for the first time; of the last so many. */
static bool is_new(const symmem_matmul *p) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static int64_t seen[256][4];
    static unsigned int next;
    const int64_t shape[4] = {p->m, p->n, p->k, (int64_t)p->dtype};
    unsigned int at = 0;
    pthread_mutex_lock(&lock);
    while (at < 256 && memcmp(seen[at], shape, sizeof shape) != 0)
        at++;
    if (at == 256)
        memcpy(seen[next++ % 256], shape, sizeof shape);
    pthread_mutex_unlock(&lock);
    return at == 256;
}

static cublasStatus_t start(struct fake_run *run, cudaStream_t stream) {
    enqueue_fn enqueue;
    quiet_fn quiet;
    if (!find_entry("fake_cuda_enqueue", &enqueue) || !find_entry("fake_cuda_quiet", &quiet)) {
        run_product(run);
        return CUBLAS_STATUS_SUCCESS;
    }
    if (is_new(&run->product))
        quiet();
    return enqueue((CUstream)stream, run_product, run, sizeof *run) == CUDA_SUCCESS
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_EXECUTION_FAILED;
}

static bool is_aligned(const void *address, uint32_t alignment) {
    return (uintptr_t)address % alignment == 0;
}

static double number(const void *at, cudaDataType_t type) {
    return type == CUDA_R_64F ? *(const double *)at : (double)*(const float *)at;
}

EXPORT cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                     const void *alpha, const void *a, cublasLtMatrixLayout_t a_in,
                                     const void *b, cublasLtMatrixLayout_t b_in, const void *beta,
                                     const void *c, cublasLtMatrixLayout_t c_in, void *d,
                                     cublasLtMatrixLayout_t d_in, const cublasLtMatmulAlgo_t *algo,
                                     void *workspace, size_t workspace_bytes, cudaStream_t stream) {
    const struct fake_desc *own = object(desc);
    struct fake_algo planned;
    struct fake_run run;
    memcpy(&planned, algo, sizeof planned);
    if (handle == NULL || c != d || c_in != d_in || planned.mark != MARK ||
        !read_product(own, object(a_in), object(b_in), object(d_in), &run.product))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!is_aligned(a, planned.alignments[0]) || !is_aligned(b, planned.alignments[1]) ||
        !is_aligned(c, planned.alignments[2]) || !is_aligned(d, planned.alignments[3]) ||
        !is_aligned(workspace, 256) || workspace_bytes < planned.workspace ||
        (planned.workspace > 0 && workspace == NULL))
        return CUBLAS_STATUS_EXECUTION_FAILED;
    run.product.a = a;
    run.product.b = b;
    run.product.out = d;
    run.alpha = number(alpha, own->scale);
    run.beta = number(beta, own->scale);
    run.workspace = planned.workspace > 0 ? workspace : NULL;
    run.workspace_bytes = planned.workspace;
    return start(&run, stream);
}
