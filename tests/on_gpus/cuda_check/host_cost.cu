// SPDX-License-Identifier: BSD-3-Clause
// What the host pays for an operation on a stream: a small all-reduce and a barrier, eager and as a
// graph's launch, beside a bare launch of a kernel with as many arguments. Figures only: what they
// are depends on the host.
#include "check.cuh"

#include <algorithm>

namespace {

constexpr int CALLS = 200, REPEATS = 9; // so many launches fit into a queue

struct bytes_of_arguments {
    char bytes[256];
};

__global__ void nothing(const bytes_of_arguments) {}

// The median of microseconds a call, with the device idle before.
template <typename Call> double host_us(check &c, const Call &call) {
    double us[REPEATS];
    for (double &one : us) {
        need(c, "idle", cudaStreamSynchronize(c.stream) == cudaSuccess);
        host_barrier(c);
        const double begin_s = now_s();
        for (int i = 0; i < CALLS; i++)
            call();
        one = (now_s() - begin_s) * 1e6 / CALLS;
    }
    need(c, "idle", cudaStreamSynchronize(c.stream) == cudaSuccess);
    std::sort(us, us + REPEATS);
    return us[REPEATS / 2];
}

} // namespace

void check_host_cost(check &c) {
    symmem_stream *stream = nullptr;
    symmem_graph *graph = nullptr;
    int64_t count = 256;
    DLTensor tensor = {};
    tensor.data = c.memory;
    tensor.device = {kDLCUDA, c.device};
    tensor.ndim = 1;
    tensor.dtype = {kDLFloat, 32, 1};
    tensor.shape = &count;
    const auto reduce = [&] {
        need(c, "all-reduce",
             symmem_two_shot_all_reduce(c.handle, &tensor, SYMMEM_SUM, 0, LIMIT_MS, stream) ==
                 SYMMEM_OK);
    };
    need(c, "stream",
         symmem_stream_wrap(c.context, c.device, c.stream, &stream) == SYMMEM_OK &&
             cudaMemset(c.memory, 0, 4096) == cudaSuccess);
    need(c, "capture", symmem_stream_begin_capture(stream) == SYMMEM_OK);
    reduce();
    need(c, "graph", symmem_stream_end_capture(stream, &graph) == SYMMEM_OK);
    const double bare = host_us(c, [&] { nothing<<<8, 128, 0, c.stream>>>({}); });
    const double eager = host_us(c, reduce);
    const double barrier = host_us(
        c, [&] { need(c, "barrier", symmem_barrier(c.handle, 0, LIMIT_MS, stream) == SYMMEM_OK); });
    const double launch =
        host_us(c, [&] { need(c, "launch", symmem_graph_launch(graph, stream) == SYMMEM_OK); });
    expect(c, "the host's cost", true,
           "a bare launch %.2f us, an all-reduce %.2f, a barrier %.2f, a graph with one %.2f", bare,
           eager, barrier, launch);
    need(c, "end",
         symmem_graph_destroy(graph) == SYMMEM_OK && symmem_stream_destroy(stream) == SYMMEM_OK);
}
