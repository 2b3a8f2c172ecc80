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

// The own buffer, and the place for sums between two meetings.
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

// No meeting of the hosts: a rank that is through writes its next values at once.
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
    need(c, "graph", cudaStreamEndCapture(c.stream, &captured) == cudaSuccess &&
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
    meet(c); // a peer may still be looking at its sums, where a word is to come
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
        meet(c); // the next word may come to the same place
    }
    expect(c, "words that are handed on", good == ROUNDS, "%d of %d", good, ROUNDS);
}

// The last rank stays away: the others' kernels end by themselves, and after their pads have been
// zeroed all is as before.
static void missing(check &c, summing &s) {
    constexpr uint32_t SHORT_MS = 300;
    void *pad = nullptr;
    if (c.world == 1)
        return;
    meet(c);
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
    meet(c);
    need(c, "own pad", cudaMemcpy(&pad, c.pads + c.rank, sizeof pad, cudaMemcpyDeviceToHost) ==
                               cudaSuccess &&
                           cudaMemset(pad, 0, c.info.signal_pad_size) == cudaSuccess &&
                           cudaDeviceSynchronize() == cudaSuccess);
    meet(c);
    sums(c, s);
}

void check_header(check &c) {
    summing s = {static_cast<float4 *>(c.memory), nullptr, std::vector<float>(4 * MOST)};
    need(c, "scratch", cudaMalloc(&s.scratch, MOST * sizeof(float4)) == cudaSuccess);
    sums(c, s);
    graph(c, s);
    words(c);
    missing(c, s);
    meet(c);
    (void)cudaFree(s.scratch);
}
