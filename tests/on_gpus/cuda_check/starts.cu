// SPDX-License-Identifier: BSD-3-Clause
// A barrier's kernel has no fence at its start: what kernels before it in its stream stored into a
// peer's memory is there for the peer's kernels behind the barrier. In a graph, many times, while
// copies in both directions keep the link busy.
#include "check.cuh"

namespace {

constexpr size_t WORDS_STORED = 1 << 16, BUSY_BYTES = 64 << 20; // behind the words
constexpr unsigned int BLOCKS = 32, THREADS = 256;
constexpr int IN_GRAPH = 100, LAUNCHES = 1000, COPIES = 4; // beside a launch

struct link {
    void *memory;
    symmem_handle *handle;
    void *const *buffers;
    unsigned int *round, *wrong; // on the device
    symmem_stream *stream;
    symmem_graph *graph;
    cudaStream_t busy;
};

__device__ unsigned int word_of(unsigned int round, size_t i) {
    return round * 2654435761u ^ static_cast<unsigned int>(i) * 40503u;
}

__global__ void store(unsigned int *to, const unsigned int *round) {
    for (size_t i = size_t(blockIdx.x) * THREADS + threadIdx.x; i < WORDS_STORED;
         i += size_t(BLOCKS) * THREADS)
        to[i] = word_of(*round, i);
}

__global__ void compare(const unsigned int *from, const unsigned int *round, unsigned int *wrong) {
    for (size_t i = size_t(blockIdx.x) * THREADS + threadIdx.x; i < WORDS_STORED;
         i += size_t(BLOCKS) * THREADS)
        if (from[i] != word_of(*round, i))
            atomicAdd(wrong, 1);
}

__global__ void count(unsigned int *round) {
    ++*round;
}

void open_link(check &c, link &l) {
    void *words = nullptr;
    need(c, "memory",
         symmem_alloc(c.context, WORDS_STORED * 4 + BUSY_BYTES, c.device, nullptr, &l.memory) ==
             SYMMEM_OK);
    need(c, "rendezvous",
         symmem_rendezvous(c.context, l.memory, c.group, LIMIT_MS, &l.handle) == SYMMEM_OK);
    need(c, "pointers", symmem_handle_buffer_ptrs(l.handle, &l.buffers) == SYMMEM_OK);
    need(c, "words",
         cudaMalloc(&words, 8) == cudaSuccess && cudaMemset(words, 0, 8) == cudaSuccess);
    l.round = static_cast<unsigned int *>(words);
    l.wrong = l.round + 1;
    need(c, "streams",
         cudaStreamCreateWithFlags(&l.busy, cudaStreamNonBlocking) == cudaSuccess &&
             symmem_stream_wrap(c.context, c.device, c.stream, &l.stream) == SYMMEM_OK);
}

// The second barrier keeps the peer from storing the next round's before this one is compared.
void capture(check &c, link &l) {
    unsigned int *own = static_cast<unsigned int *>(l.memory);
    unsigned int *next = static_cast<unsigned int *>(l.buffers[(c.rank + 1) % c.world]);
    need(c, "capture", symmem_stream_begin_capture(l.stream) == SYMMEM_OK);
    for (int i = 0; i < IN_GRAPH; i++) {
        store<<<BLOCKS, THREADS, 0, c.stream>>>(next, l.round);
        need(c, "barrier", symmem_barrier(l.handle, 0, LIMIT_MS, l.stream) == SYMMEM_OK);
        compare<<<BLOCKS, THREADS, 0, c.stream>>>(own, l.round, l.wrong);
        count<<<1, 1, 0, c.stream>>>(l.round);
        need(c, "barrier", symmem_barrier(l.handle, 0, LIMIT_MS, l.stream) == SYMMEM_OK);
    }
    need(c, "capture", symmem_stream_end_capture(l.stream, &l.graph) == SYMMEM_OK);
}

void launch(check &c, link &l) {
    char *own = static_cast<char *>(l.memory) + WORDS_STORED * 4;
    char *next = static_cast<char *>(l.buffers[(c.rank + 1) % c.world]) + WORDS_STORED * 4;
    need(c, "launch", symmem_graph_launch(l.graph, l.stream) == SYMMEM_OK);
    for (int i = 0; i < COPIES; i++)
        need(c, "copy",
             cudaMemcpyAsync(next, own, BUSY_BYTES, cudaMemcpyDefault, l.busy) == cudaSuccess);
}

void close_link(check &c, link &l) {
    need(c, "copies", cudaStreamSynchronize(l.busy) == cudaSuccess);
    host_barrier(c);
    need(c, "end",
         symmem_graph_destroy(l.graph) == SYMMEM_OK &&
             symmem_stream_destroy(l.stream) == SYMMEM_OK &&
             cudaStreamDestroy(l.busy) == cudaSuccess && cudaFree(l.round) == cudaSuccess);
    symmem_handle_release(l.handle);
    need(c, "free", symmem_free(c.context, l.memory) == SYMMEM_OK);
}

} // namespace

void check_starts(check &c) {
    link l = {};
    int devices = 0;
    unsigned int seen[2] = {};
    need(c, "devices", cudaGetDeviceCount(&devices) == cudaSuccess);
    const int launches = devices < c.world ? 1 : LAUNCHES; // on a shared device they run one after
                                                           // the other, slowly
    open_link(c, l);
    capture(c, l);
    host_barrier(c);
    const double begin_s = now_s();
    for (int i = 0; i < launches; i++)
        launch(c, l);
    const bool over = symmem_stream_synchronize(l.stream, 4 * LIMIT_MS) == SYMMEM_OK;
    const double took_s = now_s() - begin_s;
    need(c, "words", cudaMemcpy(seen, l.round, sizeof seen, cudaMemcpyDefault) == cudaSuccess);
    expect(c, "starts without a fence",
           over && seen[0] == static_cast<unsigned int>(launches * IN_GRAPH) && seen[1] == 0,
           "%u rounds, %u words wrong, %.1f us a round beside a busy link", seen[0], seen[1],
           took_s * 1e6 / (seen[0] > 0 ? seen[0] : 1));
    close_link(c, l);
}
