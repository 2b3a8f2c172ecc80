// SPDX-License-Identifier: BSD-3-Clause
// symmem/device.cuh, by its own example.
#include "check.cuh"

#include <vector>

#include "cuda/device_example.cu"

static float value(int rank, int round, size_t i) {
    return static_cast<float>((i * 7 + static_cast<size_t>(rank * 13 + round * 31)) % 1009);
}

static float sum(int world, int round, size_t i) {
    float sum = 0;
    for (int rank = 0; rank < world; rank++)
        sum += value(rank, round, i);
    return sum;
}

// This rank's buffer, and the memory for sums between two barriers.
struct summing {
    float4 *own, *scratch;
    std::vector<float> host;
};

static void fill(check &c, summing &s, int round, size_t count) {
    for (size_t i = 0; i < 4 * count; i++)
        s.host[i] = value(c.rank, round, i);
    need(c, "fill",
         cudaMemcpyAsync(s.own, s.host.data(), count * sizeof(float4), cudaMemcpyHostToDevice,
                         c.stream) == cudaSuccess);
}

static void launch(check &c, const summing &s, size_t count, unsigned int blocks,
                   uint32_t limit_ms) {
    sum_of_all<<<blocks, 256, 0, c.stream>>>(c.buffers, c.pads, c.info.rank, c.info.world_size,
                                             s.scratch, count, limit_ms, c.words_dev + LATE);
}

static bool is_good(check &c, summing &s, int round, size_t count) {
    if (cudaStreamSynchronize(c.stream) != cudaSuccess || c.words[LATE] != 0 ||
        cudaMemcpyAsync(s.host.data(), s.own, count * sizeof(float4), cudaMemcpyDeviceToHost,
                        c.stream) != cudaSuccess ||
        cudaStreamSynchronize(c.stream) != cudaSuccess)
        return false;
    for (size_t i = 0; i < 4 * count; i++)
        if (s.host[i] != sum(c.world, round, i))
            return false;
    return true;
}

static unsigned int blocks_for(const check &c, int round) {
    const int most = c.info.channel_count < 16 ? c.info.channel_count : 16;
    return 1 + static_cast<unsigned int>(round % most);
}

// The hosts do not synchronize: a rank that has finished writes its next values at once.
static void sums(check &c, summing &s) {
    static const size_t counts[] = {0, 1, 7, 1000, MOST};
    int good = 0;
    constexpr int ROUNDS = 60;
    for (int round = 0; round < ROUNDS; round++) {
        const size_t count = counts[round % 5];
        c.words[LATE] = 0;
        fill(c, s, round, count);
        launch(c, s, count, blocks_for(c, round), LIMIT_MS);
        good += is_good(c, s, round, count) ? 1 : 0;
    }
    expect(c, "sums", good == ROUNDS, "%d of %d rounds", good, ROUNDS);
}

static void graph(check &c, summing &s) {
    constexpr size_t COUNT = 1000;
    constexpr int LAUNCHES = 20;
    cudaGraph_t captured = nullptr;
    cudaGraphExec_t executable = nullptr;
    need(c, "capture",
         cudaStreamBeginCapture(c.stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    launch(c, s, COUNT, blocks_for(c, 3), LIMIT_MS);
    need(c, "graph",
         cudaStreamEndCapture(c.stream, &captured) == cudaSuccess &&
             cudaGraphInstantiate(&executable, captured, 0) == cudaSuccess);
    int good = 0;
    for (int round = 0; round < LAUNCHES; round++) {
        fill(c, s, round, COUNT);
        need(c, "launch", cudaGraphLaunch(executable, c.stream) == cudaSuccess);
        good += is_good(c, s, round, COUNT) ? 1 : 0;
    }
    expect(c, "a graph of it", good == LAUNCHES, "%d of %d launches", good, LAUNCHES);
    (void)cudaGraphExecDestroy(executable);
    (void)cudaGraphDestroy(captured);
}

static void words(check &c) {
    constexpr int ROUNDS = 200;
    const int previous = (c.rank + c.world - 1) % c.world;
    int good = 0;
    host_barrier(c); // a peer may still be looking at its sums, where a word is to come
    for (int round = 0; round < ROUNDS; round++) {
        c.words[LATE] = c.words[RECEIVED] = 0;
        hand_on<<<1, 1, 0, c.stream>>>(c.buffers, c.pads, c.info.rank, c.info.world_size,
                                       round % c.info.channel_count,
                                       static_cast<uint32_t>(1000 * round + c.rank), LIMIT_MS,
                                       c.words_dev + RECEIVED, c.words_dev + LATE);
        const bool ended = cudaStreamSynchronize(c.stream) == cudaSuccess;
        good += ended && c.words[LATE] == 0 &&
                        c.words[RECEIVED] == static_cast<uint32_t>(1000 * round + previous)
                    ? 1
                    : 0;
        host_barrier(c); // the next word may come to the same place
    }
    expect(c, "words that are handed on", good == ROUNDS, "%d of %d", good, ROUNDS);
}

// --- beside the library's operations
// ----------------------------------------------------------------

constexpr int IN_GRAPH = 50;

// Ranks that share a device run one after the other, slowly.
static int launches_for(const check &c) {
    int devices = 0;
    return cudaGetDeviceCount(&devices) == cudaSuccess && devices >= c.world ? 20 : 1;
}

// Microseconds of one of those that `enqueue` puts into a graph.
template <typename Enqueue> static double time_of(check &c, const Enqueue &enqueue) {
    cudaGraph_t captured = nullptr;
    cudaGraphExec_t graph = nullptr;
    cudaEvent_t events[2] = {};
    float ms = 0;
    need(c, "capture",
         cudaStreamBeginCapture(c.stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    for (int i = 0; i < IN_GRAPH; i++)
        enqueue();
    need(c, "graph",
         cudaStreamEndCapture(c.stream, &captured) == cudaSuccess &&
             cudaGraphInstantiate(&graph, captured, 0) == cudaSuccess &&
             cudaEventCreate(&events[0]) == cudaSuccess &&
             cudaEventCreate(&events[1]) == cudaSuccess);
    host_barrier(c);
    need(c, "launch",
         cudaGraphLaunch(graph, c.stream) == cudaSuccess &&
             cudaEventRecord(events[0], c.stream) == cudaSuccess);
    const int launches = launches_for(c);
    for (int i = 0; i < launches; i++)
        need(c, "launch", cudaGraphLaunch(graph, c.stream) == cudaSuccess);
    need(c, "time",
         cudaEventRecord(events[1], c.stream) == cudaSuccess &&
             cudaStreamSynchronize(c.stream) == cudaSuccess &&
             cudaEventElapsedTime(&ms, events[0], events[1]) == cudaSuccess);
    (void)cudaGraphExecDestroy(graph);
    (void)cudaGraphDestroy(captured);
    (void)cudaEventDestroy(events[0]);
    (void)cudaEventDestroy(events[1]);
    return ms * 1e3 / (launches * IN_GRAPH);
}

struct beside {
    float2 *pairs; // symmetric, of another handle
    symmem_handle *handle;
    symmem_stream *stream;
    uint32_t *rounds;
};

static DLTensor floats_at(const check &c, void *data, int64_t *count) {
    DLTensor tensor = {};
    tensor.data = data;
    tensor.device = {kDLCUDA, c.device};
    tensor.ndim = 1;
    tensor.dtype = {kDLFloat, 32, 1};
    tensor.shape = count;
    return tensor;
}

// Sums by lines of both kinds: right at first, then timed.
static void lines(check &c, const beside &b, bool wide) {
    constexpr size_t PAIRS = 2048; // 16 KiB
    constexpr unsigned int THREADS = 128;
    const unsigned int blocks = (PAIRS + (wide ? 239 : 127)) / (wide ? 240 : 128);
    std::vector<float> host(2 * PAIRS);
    int64_t count = 2 * PAIRS;
    const DLTensor tensor = floats_at(c, b.pairs, &count);
    int good = 0;
    const auto enqueue = [&] {
        (wide ? sum_by_wide_lines : sum_by_lines)<<<blocks, THREADS, 0, c.stream>>>(
            c.buffers, c.info.rank, c.info.world_size, b.pairs, PAIRS, b.rounds, LIMIT_MS,
            c.words_dev + LATE);
    };
    host_barrier(c); // who is behind may still read what another kernel left in the buffers
    need(c, "zeros",
         cudaMemset(c.memory, 0, MOST * sizeof(float4)) == cudaSuccess &&
             cudaMemset(b.rounds, 0, 4096) == cudaSuccess &&
             cudaDeviceSynchronize() == cudaSuccess);
    host_barrier(c);
    for (int round = 0; round < 30; round++) {
        for (size_t i = 0; i < host.size(); i++)
            host[i] = value(c.rank, round, i);
        c.words[LATE] = 0;
        (void)cudaMemcpyAsync(b.pairs, host.data(), 8 * PAIRS, cudaMemcpyDefault, c.stream);
        enqueue();
        (void)cudaMemcpyAsync(host.data(), b.pairs, 8 * PAIRS, cudaMemcpyDefault, c.stream);
        bool right = cudaStreamSynchronize(c.stream) == cudaSuccess && c.words[LATE] == 0;
        for (size_t i = 0; i < host.size(); i++)
            right = right && host[i] == sum(c.world, round, i);
        good += right ? 1 : 0;
    }
    const double own = time_of(c, enqueue);
    const double library = time_of(c, [&] {
        need(c, "all-reduce",
             symmem_two_shot_all_reduce(b.handle, &tensor, SYMMEM_SUM, 0, LIMIT_MS, b.stream) ==
                 SYMMEM_OK);
    });
    expect(c, wide ? "sums by wide lines" : "sums by lines", good == 30,
           "%d of 30 rounds; 16 KiB in %.2f us, the library in %.2f", good, own, library);
}

static void parts(check &c, const beside &b) {
    constexpr size_t BYTES = 64 << 10;
    std::vector<unsigned char> host(BYTES * static_cast<size_t>(c.world), 0);
    int64_t count = BYTES / 4, all = count * c.world;
    void *out = nullptr;
    need(c, "out", cudaMalloc(&out, host.size()) == cudaSuccess);
    const DLTensor in = floats_at(c, b.pairs, &count), to = floats_at(c, out, &all);
    const unsigned int blocks = blocks_for(c, 15);
    const auto enqueue = [&] {
        gather_parts<<<blocks, 512, 0, c.stream>>>(c.buffers, c.pads, c.info.rank,
                                                   c.info.world_size, b.pairs, BYTES, LIMIT_MS,
                                                   c.words_dev + LATE);
    };
    c.words[LATE] = 0;
    need(c, "part",
         cudaMemset(b.pairs, c.rank + 1, BYTES) == cudaSuccess &&
             cudaDeviceSynchronize() == cudaSuccess);
    host_barrier(c);
    enqueue();
    bool good = cudaStreamSynchronize(c.stream) == cudaSuccess && c.words[LATE] == 0 &&
                cudaMemcpy(host.data(), c.memory, host.size(), cudaMemcpyDefault) == cudaSuccess;
    for (size_t i = 0; i < host.size(); i++)
        good = good && host[i] == i / BYTES + 1;
    const double own = time_of(c, enqueue);
    const double library = time_of(c, [&] {
        need(c, "all-gather",
             symmem_all_gather_out(b.handle, &in, &to, 0, LIMIT_MS, b.stream) == SYMMEM_OK);
    });
    expect(c, "parts that blocks copy", good && c.words[LATE] == 0,
           "64 KiB in %.2f us, the library in %.2f", own, library);
    (void)cudaFree(out);
}

static void counts(check &c, const beside &b) {
    const auto enqueue = [&] {
        count_in<<<1, 32, 0, c.stream>>>(c.buffers, c.info.rank, c.info.world_size, b.rounds,
                                         LIMIT_MS, c.words_dev + LATE);
    };
    c.words[LATE] = 0;
    host_barrier(c);
    need(c, "zeros",
         cudaMemset(c.memory, 0, 4096) == cudaSuccess &&
             cudaMemset(b.rounds, 0, 4) == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess);
    host_barrier(c);
    const double own = time_of(c, enqueue);
    const double library = time_of(c, [&] {
        need(c, "barrier", symmem_barrier(b.handle, 0, LIMIT_MS, b.stream) == SYMMEM_OK);
    });
    uint32_t found[2] = {};
    const bool good = cudaMemcpy(found, c.memory, 4, cudaMemcpyDefault) == cudaSuccess &&
                      cudaMemcpy(found + 1, b.rounds, 4, cudaMemcpyDefault) == cudaSuccess &&
                      found[1] == static_cast<uint32_t>(IN_GRAPH * (launches_for(c) + 1)) &&
                      found[0] >= found[1] * static_cast<uint32_t>(c.world);
    expect(c, "words that are counted", good && c.words[LATE] == 0,
           "a barrier in %.2f us, the library's in %.2f", own, library);
}

static void beside_the_library(check &c) {
    beside b = {};
    void *memory = nullptr;
    need(c, "memory",
         symmem_alloc(c.context, 1 << 20, c.device, nullptr, &memory) == SYMMEM_OK &&
             symmem_rendezvous(c.context, memory, c.group, LIMIT_MS, &b.handle) == SYMMEM_OK &&
             symmem_stream_wrap(c.context, c.device, c.stream, &b.stream) == SYMMEM_OK &&
             cudaMalloc(&b.rounds, 4096) == cudaSuccess);
    b.pairs = static_cast<float2 *>(memory);
    lines(c, b, false);
    if (launches_for(c) > 1)
        lines(c, b, true); // wide ones need NVLink between devices
    parts(c, b);
    counts(c, b);
    host_barrier(c);
    (void)cudaFree(b.rounds);
    need(c, "end", symmem_stream_destroy(b.stream) == SYMMEM_OK);
    symmem_handle_release(b.handle);
    need(c, "free", symmem_free(c.context, memory) == SYMMEM_OK);
}

// The last rank stays away: the others' kernels end by themselves, and after their pads have been
// zeroed all is as before.
static void missing(check &c, summing &s) {
    constexpr uint32_t SHORT_MS = 300;
    void *pad = nullptr;
    if (c.world == 1)
        return;
    host_barrier(c);
    if (c.rank != c.world - 1) {
        const double begin_s = now_s();
        c.words[LATE] = 0;
        launch(c, s, 1000, blocks_for(c, 3), SHORT_MS);
        const bool ended = cudaStreamSynchronize(c.stream) == cudaSuccess;
        const double took_s = now_s() - begin_s;
        expect(c, "a rank that does not come",
               ended && c.words[LATE] == 1 && took_s >= SHORT_MS * 1e-3 && took_s < 5,
               "%s after %.3f s", c.words[LATE] == 1 ? "told" : "not told", took_s);
    }
    host_barrier(c);
    need(c, "own pad",
         cudaMemcpy(&pad, c.pads + c.rank, sizeof pad, cudaMemcpyDeviceToHost) == cudaSuccess &&
             cudaMemset(pad, 0, c.info.signal_pad_size) == cudaSuccess &&
             cudaDeviceSynchronize() == cudaSuccess);
    host_barrier(c);
    sums(c, s);
}

void check_header(check &c) {
    summing s = {static_cast<float4 *>(c.memory), nullptr, std::vector<float>(4 * MOST)};
    need(c, "scratch", cudaMalloc(&s.scratch, MOST * sizeof(float4)) == cudaSuccess);
    sums(c, s);
    graph(c, s);
    words(c);
    beside_the_library(c);
    missing(c, s);
    host_barrier(c);
    (void)cudaFree(s.scratch);
}
