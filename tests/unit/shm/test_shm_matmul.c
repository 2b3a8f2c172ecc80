/* SPDX-License-Identifier: BSD-3-Clause */
/* Matrix products of the emulation as work of a stream: waiting, giving up, a user's own. */
#include <dlfcn.h>

#include "../../strange_floats.h"
#include "shm_instance.h"
#include "signals.h"

/* Four rows in two chunks. */
static float a[4] = {1, 2, 3, 4}, b[1] = {2}, out[4];
static uint32_t signals[2];

static void set_to(int chunk, uint32_t value) {
    atomic_store_explicit((shm_word *)&signals[chunk], value, memory_order_release);
}

static void set(int chunk) {
    set_to(chunk, 1);
}

static symmem_matmul arriving(void) {
    memset(out, 0, sizeof out);
    set_to(0, 0);
    set_to(1, 0);
    return (symmem_matmul){.size = sizeof(symmem_matmul),
                           .m = 4,
                           .n = 1,
                           .k = 1,
                           .a = a,
                           .a_row = 1,
                           .a_column = 1,
                           .b = b,
                           .b_row = 1,
                           .b_column = 1,
                           .out = out,
                           .out_row = 1,
                           .out_column = 1,
                           .dtype = SYMMEM_FLOAT32,
                           .out_dtype = SYMMEM_FLOAT32,
                           .signals = signals,
                           .signal_count = 2,
                           .signal_pivot = 1};
}

TEST("deadline") {
    symmem_matmul product = arriving();
    symmem_exec exec = {.timeout_ms = 20};
    set(1);
    CU_ASSERT_EQUAL(backend->matmul->multiply(instance, 0, &product, &exec), SYMMEM_TIMEOUT);
    CU_ASSERT(out[0] == 0 && out[1] == 0 && out[2] == 6 && out[3] == 8);
    set(0);
    CU_ASSERT_EQUAL(backend->matmul->multiply(instance, 0, &product, &exec), SYMMEM_OK);
    CU_ASSERT(out[0] == 2 && out[1] == 4);
}

/* Without a limit the wait ends when the stream is destroyed. */
TEST("destroyed") {
    symmem_matmul product = arriving();
    void *stream = NULL;
    /* With the first thread a sanitizer may start one of its own. */
    CU_ASSERT_EQUAL_FATAL(backend->stream->create(instance, 0, &stream), SYMMEM_OK);
    backend->stream->destroy(instance, stream);
    CU_ASSERT_EQUAL(backend->stream->device_synchronize(instance, 0, 10000), SYMMEM_OK);
    int threads = fake_count_threads();
    CU_ASSERT_EQUAL_FATAL(backend->stream->create(instance, 0, &stream), SYMMEM_OK);
    symmem_exec exec = {.stream = stream};
    CU_ASSERT_EQUAL(backend->matmul->multiply(instance, 0, &product, &exec), SYMMEM_OK);
    CU_ASSERT_EQUAL(backend->stream->device_synchronize(instance, 0, 10), SYMMEM_TIMEOUT);
    backend->stream->destroy(instance, stream);
    CU_ASSERT(fake_threads_settle(threads));
    CU_ASSERT(out[2] == 0);
}

static symmem_status refuse(void *arg, const symmem_matmul *product, void *native_stream) {
    CU_ASSERT(native_stream == NULL && product->signals == NULL && product->m == 2);
    ++*(int *)arg;
    return SYMMEM_LIMIT;
}

TEST("own product") {
    int calls = 0;
    symmem_matmul product = arriving();
    symmem_error_record record;
    void *stream = NULL;
    product.fn = refuse;
    product.fn_arg = &calls;
    set(0);
    set(1);
    CU_ASSERT_EQUAL_FATAL(backend->stream->create(instance, 0, &stream), SYMMEM_OK);
    symmem_exec exec = {.stream = stream, .operation = "async_input_mm"};
    CU_ASSERT_EQUAL(backend->matmul->multiply(instance, 0, &product, &exec), SYMMEM_OK);
    memset(&record, 0, sizeof record);
    CU_ASSERT_EQUAL(backend->stream->synchronize(instance, stream, 5000, &record), SYMMEM_LIMIT);
    CU_ASSERT_EQUAL(record.status, SYMMEM_LIMIT);
    CU_ASSERT_STRING_EQUAL(record.operation, "async_input_mm");
    CU_ASSERT_EQUAL(calls, 1);
    backend->stream->destroy(instance, stream);
}

TEST("test points") {
    static const char *const names[] = {"shm.matmul", "shm.copy_strided", "shm.reduce_local"};
    symmem_matmul product = arriving();
    symmem_exec exec = {.stream = NULL};
    product.signals = NULL;
    const symmem_strided_copy copy = {.size = sizeof copy,
                                      .element = 4,
                                      .ndim = 1,
                                      .shape = {4},
                                      .src = a,
                                      .src_strides = {1},
                                      .dst = out,
                                      .dst_strides = {1}};
    const symmem_local_reduce reduce = {.size = sizeof reduce,
                                        .dtype = SYMMEM_FLOAT32,
                                        .op = SYMMEM_AVG,
                                        .src_count = 2,
                                        .count = 2,
                                        .src = a,
                                        .src_stride = 8,
                                        .dst = out};
    host.fail_status = SYMMEM_LIMIT;
    for (int i = 0; i < 4; i++) { /* the last time nothing fails */
        atomic_store(&host.fail_visit, 0);
        host.fail_name = i < 3 ? names[i] : NULL;
        symmem_status status = i == 1   ? backend->matmul->copy_strided(instance, 0, &copy, &exec)
                               : i == 2 ? backend->matmul->reduce_local(instance, 0, &reduce, &exec)
                                        : backend->matmul->multiply(instance, 0, &product, &exec);
        CU_ASSERT_EQUAL(status, i < 3 ? SYMMEM_LIMIT : SYMMEM_OK);
        CU_ASSERT(i < 3 ? out[0] == 0 : out[3] == 8);
    }
    CU_ASSERT_EQUAL(backend->matmul->copy_strided(instance, 0, &copy, &exec), SYMMEM_OK);
    CU_ASSERT(out[3] == 4);
    CU_ASSERT_EQUAL(backend->matmul->reduce_local(instance, 0, &reduce, &exec), SYMMEM_OK);
    CU_ASSERT(out[0] == 2 && out[1] == 3);
}

/* --- the caller's floating-point environment ---------------------------------------- */

/* The caller's or, which has what its creator had, a stream's. */
TEST("strange floats") {
    static const float tiny[2] = {1e-40f, 1}, parts[4] = {1, 1e-40f, 0x1p-24f, 1e-40f};
    for (int on_stream = 0; on_stream < 2; on_stream++) {
        float sums[2] = {0}, products[1] = {0};
        symmem_matmul product = arriving();
        symmem_exec exec = {.stream = NULL};
        symmem_error_record record;
        void *stream = NULL;
        const symmem_local_reduce reduce = {.size = sizeof reduce,
                                            .dtype = SYMMEM_FLOAT32,
                                            .op = SYMMEM_SUM,
                                            .src_count = 2,
                                            .count = 2,
                                            .src = parts,
                                            .src_stride = 8,
                                            .dst = sums};
        product.signals = NULL;
        product.m = 1;
        product.a = tiny;
        product.b = tiny + 1;
        product.out = products;
        uint32_t usual = strange_floats(STRANGE_UPWARDS);
        if (on_stream)
            CU_ASSERT_EQUAL_FATAL(backend->stream->create(instance, 0, &stream), SYMMEM_OK);
        exec.stream = stream;
        CU_ASSERT_EQUAL(backend->matmul->reduce_local(instance, 0, &reduce, &exec), SYMMEM_OK);
        CU_ASSERT_EQUAL(backend->matmul->multiply(instance, 0, &product, &exec), SYMMEM_OK);
        if (on_stream)
            CU_ASSERT_EQUAL(backend->stream->synchronize(instance, stream, 5000, &record),
                            SYMMEM_OK);
        CU_ASSERT(usual_floats(STRANGE_UPWARDS, usual));
        if (on_stream)
            backend->stream->destroy(instance, stream);
        CU_ASSERT(sums[0] == 1 && sums[1] == 1e-40f + 1e-40f);
        CU_ASSERT(products[0] == 1e-40f);
    }
}

/* A library's threads keep what it was loaded in. */
TEST("strange floats of a library") {
    fake_host other;
    symmem_matmul product = arriving();
    const symmem_exec exec = {.stream = NULL};
    product.signals = NULL;
    CU_ASSERT_EQUAL_FATAL(setenv("SYMMEM_SHM_BLAS", UNIT_BLAS, 1), 0);
    uint32_t usual = strange_floats(STRANGE_UPWARDS);
    void *own = fake_open(&other); /* which loads what is asked for by name */
    CU_ASSERT_EQUAL(backend->matmul->multiply(own, 0, &product, &exec), SYMMEM_OK);
    CU_ASSERT(usual_floats(STRANGE_UPWARDS, usual));
    backend->instance->close(own);
    CU_ASSERT_EQUAL(unsetenv("SYMMEM_SHM_BLAS"), 0);
    void *library = dlopen(UNIT_BLAS, RTLD_NOW | RTLD_NOLOAD);
    CU_ASSERT_FATAL(library != NULL);
    const int *as_usual = dlsym(library, "unit_blas_loaded_as_usual");
    CU_ASSERT(as_usual != NULL && *as_usual == 1);
    dlclose(library);
}

/* Hides BLAS libraries that the machine may have. */
static bool has_no_library;
static int loads;

void *__real_dlopen(const char *name, int flags);
void *__wrap_dlopen(const char *name, int flags);
void *__wrap_dlopen(const char *name, int flags) {
    loads++;
    return has_no_library ? NULL : __real_dlopen(name, flags);
}

/* A BLAS that is asked for and is none does not open. Where it is forbidden plain loops do its work
 * and nothing is said, where none is found, once. */
TEST("no BLAS") {
    static const char *const wrong[] = {"/nonexistent/libblas.so", "libm.so.6", "nonsense"};
    const symmem_backend_config config = {.size = sizeof config, .world_size = 1};
    fake_host other;
    symmem_matmul product = arriving();
    product.signals = NULL;
    for (int i = 0; i < 3; i++) {
        void *own = NULL;
        fake_host_init(&other);
        CU_ASSERT_EQUAL_FATAL(setenv("SYMMEM_SHM_BLAS", wrong[i], 1), 0);
        CU_ASSERT_EQUAL(backend->instance->open(&other.host, &config, &own),
                        SYMMEM_INVALID_ARGUMENT);
        CU_ASSERT_PTR_NULL(own);
    }
    has_no_library = true;
    for (int i = 0; i < 2; i++) {
        loads = 0;
        CU_ASSERT_EQUAL_FATAL(setenv("SYMMEM_SHM_BLAS", i == 0 ? "0" : "", 1), 0);
        void *own = fake_open(&other);
        for (int round = 0; round < 2; round++) {
            memset(out, 0, sizeof out);
            CU_ASSERT_EQUAL(backend->matmul->multiply(own, 0, &product, &(symmem_exec){0}),
                            SYMMEM_OK);
            CU_ASSERT(out[0] == 2 && out[1] == 4 && out[2] == 6 && out[3] == 8);
        }
        CU_ASSERT(i == 1 || loads == 0);
        CU_ASSERT_EQUAL(atomic_load(&other.notice_count), loads > 0 ? 1 : 0);
        backend->instance->close(own);
    }
    has_no_library = false;
    unsetenv("SYMMEM_SHM_BLAS");
}
