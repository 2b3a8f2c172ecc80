// SPDX-License-Identifier: BSD-3-Clause
// Beside others in a process: a capture in global mode, as PyTorch's are, during which calls of
// this library are made; and a device that the program resets after the library's last context.
#include "check.cuh"

#include <cuda.h>
#include <dlfcn.h>

#include <cstdlib>
#include <thread>

static __global__ void count_up(uint32_t *word) {
    *word += 1;
}

static bool is_ok(symmem_status *first, symmem_status status) {
    if (*first == SYMMEM_OK)
        *first = status;
    return status == SYMMEM_OK;
}

static symmem_status use_stream(check &c) {
    symmem_status first = SYMMEM_OK;
    symmem_stream *stream = nullptr;
    symmem_event *event = nullptr;
    bool reached = false;
    if (!is_ok(&first, symmem_stream_create(c.context, c.device, &stream)))
        return first;
    if (is_ok(&first, symmem_event_create(c.context, c.device, &event))) {
        (void)is_ok(&first, symmem_barrier(c.handle, 0, LIMIT_MS, stream));
        (void)is_ok(&first, symmem_event_record(event, stream));
        (void)is_ok(&first, symmem_event_query(event, &reached));
        (void)is_ok(&first, symmem_stream_synchronize(stream, LIMIT_MS));
        symmem_event_destroy(event);
    }
    (void)is_ok(&first, symmem_stream_destroy(stream));
    return first;
}

static symmem_status use_memory(check &c) {
    symmem_status first = SYMMEM_OK;
    symmem_handle *handle = nullptr;
    void *memory = nullptr;
    uint32_t word = 7;
    if (!is_ok(&first, symmem_alloc(c.context, 8 << 20, c.device, nullptr, &memory)))
        return first;
    if (is_ok(&first, symmem_rendezvous(c.context, memory, c.group, LIMIT_MS, &handle))) {
        (void)is_ok(&first, symmem_copy(c.context, memory, &word, sizeof word, nullptr));
        (void)is_ok(&first, symmem_barrier(handle, 0, LIMIT_MS, nullptr));
        symmem_handle_release(handle);
    }
    (void)is_ok(&first, symmem_free(c.context, memory));
    return first;
}

static symmem_status use(check &c) {
    symmem_status first = SYMMEM_OK;
    (void)is_ok(&first, symmem_barrier(c.handle, 0, LIMIT_MS, nullptr));
    (void)is_ok(&first, use_stream(c));
    (void)is_ok(&first, use_memory(c));
    return first;
}

// Put back at once.
static cudaStreamCaptureMode mode_now() {
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    (void)cudaThreadExchangeStreamCaptureMode(&mode);
    cudaStreamCaptureMode found = mode;
    (void)cudaThreadExchangeStreamCaptureMode(&mode);
    return found;
}

// A capture of the calling thread's during which `during` is called. False: it was broken.
template <typename WORK> static bool survives(check &c, uint32_t *word, WORK during) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    need(c, "a capture",
         cudaStreamBeginCapture(c.stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
    count_up<<<1, 1, 0, c.stream>>>(word);
    during();
    const bool whole = cudaStreamEndCapture(c.stream, &graph) == cudaSuccess && graph != nullptr;
    (void)cudaGetLastError();
    if (!whole)
        return false;
    const bool runs = cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess &&
                      cudaGraphLaunch(executable, c.stream) == cudaSuccess &&
                      cudaStreamSynchronize(c.stream) == cudaSuccess;
    (void)cudaGraphExecDestroy(executable);
    (void)cudaGraphDestroy(graph);
    return runs;
}

static void beside(check &c, const char *what, uint32_t *word, bool other_thread) {
    symmem_status status = SYMMEM_UNSUPPORTED;
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    const auto call = [&] {
        (void)cudaSetDevice(c.device);
        status = use(c);
        mode = mode_now();
    };
    const bool whole = survives(c, word, [&] {
        if (other_thread)
            std::thread(call).join();
        else
            call();
    });
    expect(c, what, whole && status == SYMMEM_OK && mode == cudaStreamCaptureModeGlobal,
           "%s, the capture %s, the thread's mode %d", symmem_status_name(status),
           whole ? "is whole" : "is BROKEN", static_cast<int>(mode));
}

void check_elsewhere(check &c) {
    uint32_t *word = nullptr;
    cudaEvent_t event;
    need(c, "memory",
         cudaMalloc(&word, sizeof *word) == cudaSuccess &&
             cudaMemset(word, 0, sizeof *word) == cudaSuccess &&
             cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess &&
             cudaEventRecord(event, c.stream) == cudaSuccess);
    count_up<<<1, 1, 0, c.stream>>>(word); // loaded before anything is captured
    need(c, "a kernel", cudaStreamSynchronize(c.stream) == cudaSuccess);
    host_barrier(c);
    // What the rest is about; nothing of this library's.
    const bool kept = survives(c, word, [&] {
        std::thread([&] {
            (void)cudaSetDevice(c.device);
            (void)cudaEventQuery(event);
        }).join();
    });
    expect(c, "a query of another thread's", true, "%s a capture", kept ? "keeps" : "breaks");
    beside(c, "calls of another thread beside a capture", word, true);
    beside(c, "calls of the thread that captures", word, false);
    uint32_t count = 0;
    need(c, "the word",
         cudaMemcpy(&count, word, sizeof count, cudaMemcpyDeviceToHost) == cudaSuccess);
    expect(c, "the captured kernels", count == (kept ? 4 : 3), "ran %u times", count);
    (void)cudaEventDestroy(event);
    (void)cudaFree(word);
}

static unsigned long long context_id() {
    unsigned long long id = 0;
    (void)cudaFree(nullptr); // the primary context is current
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    void *symbol = driver != nullptr ? dlsym(driver, "cuCtxGetId") : nullptr;
    const auto get_id = reinterpret_cast<CUresult (*)(CUcontext, unsigned long long *)>(symbol);
    return get_id != nullptr && get_id(nullptr, &id) == CUDA_SUCCESS ? id : 0;
}

// A world of its own: the others may be gone.
void check_reset(check &c) {
    symmem_context_options options;
    symmem_context *context = nullptr;
    symmem_status first = SYMMEM_OK;
    void *memory = nullptr;
    uint32_t word = 7, found = 0;
    const unsigned long long before = context_id();
    need(c, "a device that is reset", cudaDeviceReset() == cudaSuccess);
    const unsigned long long after = context_id();
    expect(c, "a context's id", before != 0 && after != 0 && before != after,
           "%llu, and after a reset %llu", before, after);
    (void)unsetenv("SYMMEM_STORE");
    symmem_context_options_init(&options);
    options.rank = 0;
    options.world_size = 1;
    options.backend = "cuda";
    options.multicast = 0;
    if (is_ok(&first, symmem_init(&options, &context)) &&
        is_ok(&first, symmem_alloc(context, 4096, c.device, nullptr, &memory)) &&
        is_ok(&first, symmem_copy(context, memory, &word, sizeof word, nullptr)))
        (void)is_ok(&first, symmem_copy(context, &found, memory, sizeof found, nullptr));
    expect(c, "a context after a reset", first == SYMMEM_OK && found == word, "%s, holds %u",
           symmem_status_name(first), found);
    symmem_context_free(context);
}
