/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cuBLASLt. Its types and numbers are declared here, because its header is not everywhere and they
 * are the same in versions 12 and 13. tests/fakes builds a fake with the header, if there is one.
 *
 * Everything is column-major there. A row-major out is the product of the transposed matrices in
 * the other order.
 */
#include "product/blas.h"
#include "driver/context.h"
#include "driver/error.h"
#include "driver/exit.h"
#include "driver/kernels.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* SYMMEM_CUDA_BLAS is a library's name or path, or 0 for none. */
static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12",
                                    "/usr/local/cuda/lib64/libcublasLt.so"};

#define WORKSPACE_MOST ((uint64_t)32 << 20)
#define ALIGNMENT_MOST 256
#define PLANS 64

/* The library's numbers. */
enum { REAL_32 = 0, REAL_64 = 1, REAL_16 = 2, REAL_B16 = 14 };
enum { COMPUTE_32 = 68, COMPUTE_64 = 70 };
enum { AS_IS = 0, TRANSPOSED = 1 };
enum { DESC_TRANS_A = 3, DESC_TRANS_B = 4 };
enum { PREF_WORKSPACE = 1, PREF_REDUCTIONS = 3, PREF_ALIGNMENT_A = 5 }; /* then B, C, D */
enum { REDUCTION_IN_COMPUTE_TYPE = 2 };
enum { SUCCESS = 0 };

typedef struct lt_handle *lt_handle;
typedef struct lt_desc *lt_desc;
typedef struct lt_layout *lt_layout;
typedef struct lt_preference *lt_preference;

typedef struct lt_algo {
    uint64_t data[8];
} lt_algo;

typedef struct lt_result {
    lt_algo algo;
    size_t workspace_bytes;
    int status;
    float waves;
    int reserved[4];
} lt_result;

typedef struct lt_library {
    int (*create)(lt_handle *handle);
    int (*destroy)(lt_handle handle);
    int (*desc_create)(lt_desc *desc, int compute, int scale);
    int (*desc_destroy)(lt_desc desc);
    int (*desc_set)(lt_desc desc, int attribute, const void *value, size_t bytes);
    int (*layout_create)(lt_layout *layout, int type, uint64_t rows, uint64_t columns,
                         int64_t leading);
    int (*layout_destroy)(lt_layout layout);
    int (*preference_create)(lt_preference *preference);
    int (*preference_destroy)(lt_preference preference);
    int (*preference_set)(lt_preference preference, int attribute, const void *value, size_t bytes);
    int (*heuristic)(lt_handle handle, lt_desc desc, lt_layout a, lt_layout b, lt_layout c,
                     lt_layout d, lt_preference preference, int wanted, lt_result *results,
                     int *found);
    int (*matmul)(lt_handle handle, lt_desc desc, const void *alpha, const void *a, lt_layout a_in,
                  const void *b, lt_layout b_in, const void *beta, const void *c, lt_layout c_in,
                  void *d, lt_layout d_in, const lt_algo *algo, void *workspace,
                  size_t workspace_bytes, CUstream stream);
} lt_library;

/* A matrix as it is stored. */
typedef struct stored {
    int64_t rows, columns, leading;
    int32_t transposed, alignment;
} stored;

/* The key of a plan, without padding. */
typedef struct blas_shape {
    int64_t m, n, k; /* of the library's product */
    stored left, right, out;
    int32_t type, out_type;
    int32_t accumulate, reserved;
} blas_shape;

typedef struct blas_plan {
    blas_shape shape;
    bool known, usable, launched;
    lt_desc desc;
    lt_layout left, right, out;
    lt_algo algo;
    size_t workspace_bytes;
} blas_plan;

typedef struct blas_device {
    bool asked;
    lt_handle handle; /* NULL: none */
    blas_plan plans[PLANS];
    unsigned int next; /* to be replaced */
} blas_device;

struct cuda_blas {
    pthread_mutex_t lock; /* over all of it */
    bool asked, found;
    lt_library library;
    blas_device *devices[CUDA_MAX_DEVICES];
};

/* --- the library -------------------------------------------------------------------- */

static bool find(void *library, lt_library *lt) {
    const struct {
        const char *name;
        void *entry;
    } entries[] = {
        {"cublasLtCreate", &lt->create},
        {"cublasLtDestroy", &lt->destroy},
        {"cublasLtMatmulDescCreate", &lt->desc_create},
        {"cublasLtMatmulDescDestroy", &lt->desc_destroy},
        {"cublasLtMatmulDescSetAttribute", &lt->desc_set},
        {"cublasLtMatrixLayoutCreate", &lt->layout_create},
        {"cublasLtMatrixLayoutDestroy", &lt->layout_destroy},
        {"cublasLtMatmulPreferenceCreate", &lt->preference_create},
        {"cublasLtMatmulPreferenceDestroy", &lt->preference_destroy},
        {"cublasLtMatmulPreferenceSetAttribute", &lt->preference_set},
        {"cublasLtMatmulAlgoGetHeuristic", &lt->heuristic},
        {"cublasLtMatmul", &lt->matmul},
    };
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
        void *symbol = dlsym(library, entries[i].name);
        if (symbol == NULL)
            return false;
        /* ISO C has no cast from object to function pointers, hence the copy. */
        memcpy(entries[i].entry, &symbol, sizeof symbol);
    }
    return true;
}

static void note_library(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, cuda_await_at_exit);
}

/* A usable library is never closed, because threads of its own may run its code. */
static bool load(const char *name, lt_library *lt) {
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return false;
    if (find(library, lt)) {
        note_library();
        return true;
    }
    dlclose(library);
    return false;
}

static bool load_any(const symmem_host *host, lt_library *lt) {
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (load(names[i], lt))
            return true;
    host->notice(host, "no cuBLASLt found: matrix products use a plain kernel, which is slow");
    return false;
}

static void open_handle(const cuda_instance *instance, const lt_library *lt, blas_device *device) {
    if (lt->create(&device->handle) != SUCCESS) {
        device->handle = NULL;
        instance->host->notice(instance->host,
                               "cuBLASLt does not start: matrix products use a plain kernel");
    }
    device->asked = true;
}

/* The library loads a kernel when it first needs it. Loading waits for everything that runs in the
 * context. With ranks as threads on one device that may be a peer's kernel, which may wait for this
 * rank. */
static bool may_load(const cuda_instance *instance, int32_t index) {
    if (!cuda_kernels_are_shared(index))
        return true;
    instance->host->notice(instance->host, "ranks of this process share a device: matrix products "
                                           "use a plain kernel, which is slow");
    return false;
}

/* Returns NULL if there is no library, or if it does not start here or may not. lock held. */
static blas_device *device_of(const cuda_instance *instance, int32_t index) {
    cuda_blas *blas = instance->blas;
    if (!blas->asked)
        blas->found = load_any(instance->host, &blas->library);
    blas->asked = true;
    if (!blas->found || !may_load(instance, index))
        return NULL;
    if (blas->devices[index] == NULL)
        blas->devices[index] = calloc(1, sizeof(blas_device));
    blas_device *device = blas->devices[index];
    if (device != NULL && !device->asked)
        open_handle(instance, &blas->library, device);
    return device != NULL && device->handle != NULL ? device : NULL;
}

/* A library that is requested by name is loaded now. If that fails, the backend does not open. */
static symmem_status read_setting(const symmem_host *host, cuda_blas *blas) {
    const char *wanted = secure_getenv("SYMMEM_CUDA_BLAS");
    if (wanted == NULL || *wanted == '\0')
        return SYMMEM_OK;
    blas->asked = true;
    if (strcmp(wanted, "0") == 0)
        return SYMMEM_OK;
    (void)dlerror();
    blas->found = load(wanted, &blas->library);
    if (blas->found)
        return SYMMEM_OK;
    const char *why = dlerror();
    return host->fail(host, SYMMEM_INVALID_ARGUMENT, 0, "open", "SYMMEM_CUDA_BLAS=%.60s: %.120s",
                      wanted, why != NULL ? why : "no cuBLASLt");
}

symmem_status cuda_blas_open(cuda_instance *instance) {
    instance->blas = calloc(1, sizeof *instance->blas);
    if (instance->blas == NULL)
        return cuda_no_memory(instance, "open");
    const symmem_status status = read_setting(instance->host, instance->blas);
    if (status != SYMMEM_OK) {
        free(instance->blas);
        instance->blas = NULL;
        return status;
    }
    (void)pthread_mutex_init(&instance->blas->lock, NULL); /* cannot fail on Linux */
    return SYMMEM_OK;
}

/* --- shapes ------------------------------------------------------------------------- */

/* For a matrix with one long stride. A dimension of one element may have any stride. Column-major
 * means that rows are contiguous. */
static bool is_row_major(int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride) {
    return (columns <= 1 || column_stride == 1) && (rows <= 1 || row_stride >= columns);
}

/* Describes how the library stores what is (rows, columns) in its product. */
static stored store(int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride,
                    bool transpose_row_major) {
    const bool row_major = is_row_major(rows, columns, row_stride, column_stride);
    const int64_t inner = row_major ? columns : rows, outer = row_major ? rows : columns;
    const int64_t stride = row_major ? row_stride : column_stride;
    return (stored){.rows = inner,
                    .columns = outer,
                    .leading = outer > 1 && stride > inner ? stride : inner,
                    .transposed = row_major == transpose_row_major ? TRANSPOSED : AS_IS};
}

static int32_t alignment_of(const void *address) {
    uintptr_t bits = (uintptr_t)address | ALIGNMENT_MOST;
    return (int32_t)(bits & (~bits + 1));
}

static int32_t type_of(symmem_dtype dtype) {
    switch (dtype) {
    case SYMMEM_FLOAT32:
        return REAL_32;
    case SYMMEM_FLOAT64:
        return REAL_64;
    case SYMMEM_FLOAT16:
        return REAL_16;
    case SYMMEM_BFLOAT16:
        return REAL_B16;
    default:
        return -1;
    }
}

/* The operands in the library's order. A row-major out is seen transposed. */
static blas_shape shape_of(const cuda_blas_job *job, const void **left_p, const void **right_p) {
    const symmem_matmul *p = job->product;
    const bool turned = is_row_major(p->m, p->n, p->out_row, p->out_column);
    stored a = store(p->m, p->k, p->a_row, p->a_column, !turned);
    stored b = store(p->k, p->n, p->b_row, p->b_column, !turned);
    blas_shape s = {
        .m = turned ? p->n : p->m, .n = turned ? p->m : p->n, .k = p->k, .type = type_of(p->dtype)};
    a.alignment = alignment_of(p->a);
    b.alignment = alignment_of(p->b);
    s.left = turned ? b : a;
    s.right = turned ? a : b;
    *left_p = turned ? p->b : p->a;
    *right_p = turned ? p->a : p->b;
    if (job->sums == NULL) {
        s.out = store(p->m, p->n, p->out_row, p->out_column, !turned);
        s.out.transposed = AS_IS;
        s.out.alignment = alignment_of(p->out);
        s.out_type = type_of(p->out_dtype);
        s.accumulate = p->accumulate;
    } else {
        s.out = (stored){.rows = s.m, .columns = s.n, .leading = s.m, .alignment = ALIGNMENT_MOST};
        s.out_type = p->dtype == SYMMEM_FLOAT64 ? REAL_64 : REAL_32;
    }
    return s;
}

/* --- plans -------------------------------------------------------------------------- */

static void drop_plan(const lt_library *lt, blas_plan *plan) {
    if (plan->desc != NULL)
        (void)lt->desc_destroy(plan->desc);
    if (plan->left != NULL)
        (void)lt->layout_destroy(plan->left);
    if (plan->right != NULL)
        (void)lt->layout_destroy(plan->right);
    if (plan->out != NULL)
        (void)lt->layout_destroy(plan->out);
    memset(plan, 0, sizeof *plan);
}

static bool make_layout(const lt_library *lt, lt_layout *layout, int type, const stored *matrix) {
    return lt->layout_create(layout, type, (uint64_t)matrix->rows, (uint64_t)matrix->columns,
                             matrix->leading) == SUCCESS;
}

static bool describe(const lt_library *lt, blas_plan *plan) {
    const blas_shape *s = &plan->shape;
    const bool wide = s->type == REAL_64;
    return lt->desc_create(&plan->desc, wide ? COMPUTE_64 : COMPUTE_32, wide ? REAL_64 : REAL_32) ==
               SUCCESS &&
           lt->desc_set(plan->desc, DESC_TRANS_A, &s->left.transposed, sizeof(int32_t)) ==
               SUCCESS &&
           lt->desc_set(plan->desc, DESC_TRANS_B, &s->right.transposed, sizeof(int32_t)) ==
               SUCCESS &&
           make_layout(lt, &plan->left, s->type, &s->left) &&
           make_layout(lt, &plan->right, s->type, &s->right) &&
           make_layout(lt, &plan->out, s->out_type, &s->out);
}

/* Partial sums are combined in the type in which they were computed, so out is rounded once. */
static bool set_preference(const lt_library *lt, lt_preference preference, const blas_shape *s) {
    const uint64_t most = WORKSPACE_MOST;
    const uint32_t reductions = REDUCTION_IN_COMPUTE_TYPE;
    const int32_t alignments[] = {s->left.alignment, s->right.alignment, s->out.alignment,
                                  s->out.alignment};
    bool set =
        lt->preference_set(preference, PREF_WORKSPACE, &most, sizeof most) == SUCCESS &&
        lt->preference_set(preference, PREF_REDUCTIONS, &reductions, sizeof reductions) == SUCCESS;
    for (int i = 0; i < 4 && set; i++)
        set = lt->preference_set(preference, PREF_ALIGNMENT_A + i, &alignments[i],
                                 sizeof(uint32_t)) == SUCCESS;
    return set;
}

static bool choose(const lt_library *lt, lt_handle handle, blas_plan *plan) {
    lt_preference preference = NULL;
    lt_result result;
    int found = 0;
    memset(&result, 0, sizeof result);
    if (lt->preference_create(&preference) != SUCCESS)
        return false;
    bool chosen = set_preference(lt, preference, &plan->shape) &&
                  lt->heuristic(handle, plan->desc, plan->left, plan->right, plan->out, plan->out,
                                preference, 1, &result, &found) == SUCCESS &&
                  found == 1 && result.status == SUCCESS;
    (void)lt->preference_destroy(preference);
    plan->algo = result.algo;
    plan->workspace_bytes = result.workspace_bytes;
    return chosen;
}

/* Returns the plan of the shape. A missing one is made, in place of the oldest. lock held. */
static blas_plan *plan_of(const lt_library *lt, blas_device *device, const blas_shape *s) {
    for (int i = 0; i < PLANS; i++)
        if (device->plans[i].known && memcmp(&device->plans[i].shape, s, sizeof *s) == 0)
            return &device->plans[i];
    blas_plan *plan = &device->plans[device->next++ % PLANS];
    drop_plan(lt, plan);
    plan->shape = *s;
    plan->known = true;
    plan->usable = describe(lt, plan) && choose(lt, device->handle, plan);
    return plan;
}

bool cuda_blas_plan(cuda_instance *instance, int32_t device, cuda_blas_job *job) {
    const symmem_matmul *p = job->product;
    const void *left, *right;
    if (type_of(p->dtype) < 0 || p->k == 0)
        return false;
    const blas_shape s = shape_of(job, &left, &right);
    pthread_mutex_lock(&instance->blas->lock);
    blas_device *own = device_of(instance, device);
    const blas_plan *plan = own != NULL ? plan_of(&instance->blas->library, own, &s) : NULL;
    const bool usable = plan != NULL && plan->usable;
    if (usable) {
        job->workspace_bytes = plan->workspace_bytes;
        job->fresh = !plan->launched;
    }
    pthread_mutex_unlock(&instance->blas->lock);
    return usable;
}

int cuda_blas_enqueue(cuda_instance *instance, int32_t device, const cuda_blas_job *job,
                      CUstream native) {
    static const float ones[] = {0, 1};
    static const double wide_ones[] = {0, 1};
    cuda_blas *blas = instance->blas;
    const void *left, *right;
    const blas_shape s = shape_of(job, &left, &right);
    void *out = job->sums != NULL ? job->sums : job->product->out;
    const bool wide = s.type == REAL_64;
    const void *alpha = wide ? (const void *)&wide_ones[1] : &ones[1];
    const void *beta =
        wide ? (const void *)&wide_ones[s.accumulate != 0] : &ones[s.accumulate != 0];
    pthread_mutex_lock(&blas->lock);
    blas_device *own = blas->devices[device];
    blas_plan *plan = plan_of(&blas->library, own, &s);
    int error =
        plan->usable && plan->workspace_bytes <= job->workspace_bytes
            ? blas->library.matmul(own->handle, plan->desc, alpha, left, plan->left, right,
                                   plan->right, beta, out, plan->out, out, plan->out, &plan->algo,
                                   job->workspace, job->workspace_bytes, native)
            : -1;
    plan->launched = plan->launched || error == SUCCESS;
    pthread_mutex_unlock(&blas->lock);
    return error;
}

static void close_device(const cuda_instance *instance, int32_t index, blas_device *device) {
    const lt_library *lt = &instance->blas->library;
    for (int i = 0; i < PLANS; i++)
        drop_plan(lt, &device->plans[i]);
    if (device->handle != NULL && cuda_reenter(instance, index)) {
        (void)lt->destroy(device->handle);
        cuda_leave(instance);
    }
    free(device);
}

void cuda_blas_close(cuda_instance *instance) {
    cuda_blas *blas = instance->blas;
    for (int32_t i = 0; i < CUDA_MAX_DEVICES; i++)
        if (blas->devices[i] != NULL)
            close_device(instance, i, blas->devices[i]);
    pthread_mutex_destroy(&blas->lock);
    free(blas);
}
