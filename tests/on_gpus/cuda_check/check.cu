// SPDX-License-Identifier: BSD-3-Clause
// symmem-cuda-check [header, crosswise or starts]: what the conformance suite cannot know of the
// CUDA backend, on real devices: a user's own kernels by symmem/device.cuh, started by the CUDA
// runtime; what they store, and the library's signals after it, also many times beside a busy
// link; operations that ranks begin in different orders; the machine's float16; the links between
// devices; captures that the program itself begins; a device that has no room for the library's
// kernels, and one that is reset. With an argument that alone. Each rank is a process with RANK,
// WORLD_SIZE and SYMMEM_STORE set, as symmem-run starts them; ranks beyond the number of
// devices share them. Exit status: 0 good, 1 bad, 77 nothing to check here.
#include "check.cuh"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <ctime>

void expect(check &c, const char *what, bool good, const char *format, ...) {
    char text[300];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    printf("rank %d: %s: %s: %s\n", c.rank, good ? "good" : "BAD", what, text);
    fflush(stdout);
    c.failures += good ? 0 : 1;
}

void need(check &c, const char *what, bool good) {
    symmem_error_record record;
    if (good)
        return;
    symmem_last_error(&record);
    expect(c, what, false, "%s, %s: %s", cudaGetErrorString(cudaGetLastError()),
           symmem_status_name(record.status), record.message);
    exit(1);
}

void host_barrier(check &c) {
    need(c, "the hosts synchronize", symmem_group_barrier(c.group, LIMIT_MS) == SYMMEM_OK);
}

double now_s() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

void sleep_ms(int ms) {
    const timespec time = {ms / 1000, ms % 1000 * 1000000L};
    nanosleep(&time, nullptr);
}

static int number(const char *name, int otherwise) {
    const char *text = getenv(name);
    return text != nullptr ? static_cast<int>(strtol(text, nullptr, 10)) : otherwise;
}

static void open_device(check &c) {
    void *words = nullptr, *words_dev = nullptr;
    need(c, "device", cudaSetDevice(c.device) == cudaSuccess);
    need(c, "stream", cudaStreamCreateWithFlags(&c.stream, cudaStreamNonBlocking) == cudaSuccess);
    need(c, "host memory",
         cudaHostAlloc(&words, WORDS * sizeof(uint32_t), cudaHostAllocMapped) == cudaSuccess &&
             cudaHostGetDevicePointer(&words_dev, words, 0) == cudaSuccess);
    c.words = static_cast<uint32_t *>(words);
    c.words_dev = static_cast<uint32_t *>(words_dev);
}

static void open_handle(check &c) {
    symmem_context_options options;
    void *buffers = nullptr, *pads = nullptr;
    symmem_context_options_init(&options);
    options.backend = "cuda";
    options.multicast = 0;
    need(c, "context", symmem_init(&options, &c.context) == SYMMEM_OK);
    need(c, "group",
         symmem_group_create(c.context, "check", nullptr, 0, nullptr, &c.group) == SYMMEM_OK);
    need(c, "memory",
         symmem_alloc(c.context, MOST * sizeof(float4), c.device, nullptr, &c.memory) == SYMMEM_OK);
    need(c, "rendezvous",
         symmem_rendezvous(c.context, c.memory, c.group, LIMIT_MS, &c.handle) == SYMMEM_OK);
    need(c, "handle", symmem_handle_get_info(c.handle, &c.info) == SYMMEM_OK);
    need(c, "tables",
         symmem_handle_buffer_ptrs_dev(c.handle, &buffers) == SYMMEM_OK &&
             symmem_handle_signal_pad_ptrs_dev(c.handle, &pads) == SYMMEM_OK);
    c.buffers = static_cast<void *const *>(buffers);
    c.pads = static_cast<void *const *>(pads);
}

static void check_all(check &c) {
    check_topology(c);
    check_halves(c);
    check_header(c);
    check_plain(c);
    check_starts(c);
    check_crosswise(c);
    check_elsewhere(c);
    check_launch_timeout(c);
}

// By its name; all of them if it has none.
static void (*part_of(const char *name))(check &) {
    return strcmp(name, "header") == 0      ? check_header
           : strcmp(name, "crosswise") == 0 ? check_crosswise
           : strcmp(name, "starts") == 0    ? check_starts
                                            : nullptr;
}

int main(int count, char **arguments) {
    void (*const only)(check &) = count > 1 ? part_of(arguments[1]) : nullptr;
    check c = {};
    int devices = 0;
    c.rank = number("RANK", 0);
    c.world = number("WORLD_SIZE", 1);
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        printf("rank %d: nothing to check: no device\n", c.rank);
        return 77;
    }
    c.device = c.rank % devices;
    setenv("SYMMEM_ALLOW_OVERLAPPING_DEVICES", "1", 1);
    setenv("SYMMEM_CUDA_LATE_MS", "500", 0); // for launch_timeout.cu
    open_device(c);
    open_handle(c);
    if (only != nullptr)
        only(c);
    else
        check_all(c);
    host_barrier(c);
    symmem_handle_release(c.handle);
    expect(c, "free", symmem_free(c.context, c.memory) == SYMMEM_OK, "the buffer");
    symmem_context_free(c.context);
    expect(c, "the context", cudaDeviceSynchronize() == cudaSuccess, "goes on working");
    if (only == nullptr)
        check_reset(c);
    return c.failures == 0 ? 0 : 1;
}
