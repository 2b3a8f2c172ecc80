/* SPDX-License-Identifier: BSD-3-Clause */
/* What streams are given: copies, fills, host functions, kernels, graphs. */

#include "fake.h"

struct bytes_op {
    void *dst;
    const void *src;
    size_t count, width;
    uint32_t value;
    uint64_t wide;
};

static bool is_word(const struct bytes_op *op) {
    return op->count == 4 && ((uintptr_t)op->dst | (uintptr_t)op->src) % 4 == 0;
}

/* A copied word may be a flag that others wait for. */
static void run_copy(void *arg) {
    const struct bytes_op *op = arg;
    if (is_word(op))
        __atomic_store_n((uint32_t *)op->dst,
                         __atomic_load_n((const uint32_t *)op->src, __ATOMIC_ACQUIRE),
                         __ATOMIC_RELEASE);
    else
        memcpy(op->dst, op->src, op->count);
}

/* Gives whole pages back, which then read as zeros. Large fresh memory has no pages yet, and
 * writing it would take most of a test's time. */
static bool zero_pages(const struct bytes_op *op) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return op->width == 1 && op->value == 0 && (uintptr_t)op->dst % page == 0 &&
           op->count % page == 0 && madvise(op->dst, op->count, MADV_REMOVE) == 0;
}

/* A kernel that looks at a word meanwhile sees all of it or nothing, as on a device. */
static void fill_words(uint32_t *words, size_t count, uint32_t value) {
    for (size_t i = 0; i < count; i++)
        __atomic_store_n(&words[i], value, __ATOMIC_RELAXED);
}

static void run_fill(void *arg) {
    const struct bytes_op *op = arg;
    if (zero_pages(op))
        return;
    if (op->width != 1)
        fill_words(op->dst, op->count, op->value);
    else if (((uintptr_t)op->dst | op->count) % sizeof(uint32_t) == 0)
        fill_words(op->dst, op->count / sizeof(uint32_t),
                   (uint8_t)op->value * UINT32_C(0x01010101));
    else
        memset(op->dst, (int)op->value, op->count);
}

static void run_write(void *arg) {
    const struct bytes_op *op = arg;
    __atomic_store_n((uint32_t *)op->dst, op->value, __ATOMIC_RELEASE);
}

static CUresult enqueue(CUstream stream, void (*run)(void *arg), const void *arg, size_t bytes,
                        bool blocks) {
    FAKE_NEED_CONTEXT();
    fake_begin_enqueueing();
    CUresult result = fake_enqueue(stream, run, NULL, arg, bytes, blocks);
    if (blocks && !fake_is_capturing(stream))
        fake_wait_stream(stream);
    fake_end_enqueueing();
    fake_go_on(stream);
    return result;
}

FAKE(MemcpyAsync, CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream) {
    FAKE_CALL("cuMemcpyAsync");
    const struct bytes_op op = {.dst = fake_pointer(dst), .src = fake_pointer(src), .count = bytes};
    return enqueue(stream, run_copy, &op, sizeof op, !fake_is_known(dst) || !fake_is_known(src));
}

FAKE(MemsetD8Async, CUdeviceptr dst, unsigned char value, size_t count, CUstream stream) {
    FAKE_CALL("cuMemsetD8Async");
    const struct bytes_op op = {
        .dst = fake_pointer(dst), .count = count, .width = 1, .value = value};
    if (!fake_may_fill(count))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return fake_is_known(dst) ? enqueue(stream, run_fill, &op, sizeof op, false)
                              : CUDA_ERROR_INVALID_VALUE;
}

FAKE(MemsetD32Async, CUdeviceptr dst, unsigned int value, size_t count, CUstream stream) {
    FAKE_CALL("cuMemsetD32Async");
    const struct bytes_op op = {
        .dst = fake_pointer(dst), .count = count, .width = 4, .value = value};
    return fake_is_known(dst) ? enqueue(stream, run_fill, &op, sizeof op, false)
                              : CUDA_ERROR_INVALID_VALUE;
}

FAKE(StreamWriteValue32, CUstream stream, CUdeviceptr dst, cuuint32_t value, unsigned int flags) {
    FAKE_CALL("cuStreamWriteValue32");
    const struct bytes_op op = {.dst = fake_pointer(dst), .value = value};
    return fake_is_known(dst) ? enqueue(stream, run_write, &op, sizeof op, false)
                              : CUDA_ERROR_INVALID_VALUE;
}

static void run_write_wide(void *arg) {
    const struct bytes_op *op = arg;
    __atomic_store_n((uint64_t *)op->dst, op->wide, __ATOMIC_RELEASE);
}

FAKE(StreamWriteValue64, CUstream stream, CUdeviceptr dst, cuuint64_t value, unsigned int flags) {
    FAKE_CALL("cuStreamWriteValue64");
    const struct bytes_op op = {.dst = fake_pointer(dst), .wide = value};
    return fake_is_known(dst) ? enqueue(stream, run_write_wide, &op, sizeof op, false)
                              : CUDA_ERROR_INVALID_VALUE;
}

struct host_op {
    CUhostFn fn;
    void *arg;
};

static void run_host(void *arg) {
    const struct host_op *op = arg;
    op->fn(op->arg);
}

FAKE(LaunchHostFunc, CUstream stream, CUhostFn fn, void *arg) {
    FAKE_CALL("cuLaunchHostFunc");
    const struct host_op op = {fn, arg};
    return enqueue(stream, run_host, &op, sizeof op, false);
}

CUresult fake_cuda_enqueue(CUstream stream, void (*run)(void *arg), const void *arg, size_t bytes) {
    return enqueue(stream, run, arg, bytes, false);
}

struct kernel_op {
    const fake_kernel *kernel;
    _Alignas(16) char args[FAKE_MOST_ARGS];
};

static void run_kernel(void *arg) {
    const struct kernel_op *op = arg;
    fake_await_room();
    op->kernel->run(op->args);
}

FAKE(LaunchKernel, CUfunction function, unsigned int grid_x, unsigned int grid_y,
     unsigned int grid_z, unsigned int block_x, unsigned int block_y, unsigned int block_z,
     unsigned int shared, CUstream stream, void **args, void **extra) {
    FAKE_CALL("cuLaunchKernel");
    struct kernel_op op;
    if (grid_x == 0 || block_x == 0)
        return CUDA_ERROR_INVALID_VALUE;
    op.kernel = fake_kernel_of(function);
    if (op.kernel == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    if (op.kernel->args_bytes > sizeof op.args || block_x < op.kernel->least_threads)
        return CUDA_ERROR_INVALID_VALUE;
    if (op.kernel->take != NULL)
        op.kernel->take(op.kernel, op.args, args, stream);
    else
        memcpy(op.args, args[0], op.kernel->args_bytes);
    return enqueue(stream, run_kernel, &op, sizeof op, false);
}

FAKE(GraphLaunch, CUgraphExec executable, CUstream stream) {
    FAKE_CALL("cuGraphLaunch");
    FAKE_NEED_CONTEXT();
    fake_begin_enqueueing();
    CUresult result = fake_graph_launch(executable, stream);
    fake_end_enqueueing();
    fake_go_on(stream);
    return result;
}
