// SPDX-License-Identifier: BSD-3-Clause
// Two operations of different handles on two streams, which ranks begin in different orders:
// neither may fill a device so that the other one's blocks, for which its peer waits, find no room.
#include "check.cuh"

#include <cstdio>
#include <cuda_bf16.h>

namespace {

constexpr int HANDLES = 2, ROUNDS = 10; // sums double each time, and stay exact
constexpr uint32_t SHORT_MS = 3000;     // a wait for a missing rank ends there
constexpr size_t SIZES[] = {1 << 20, 2 << 20, 4 << 20, 8 << 20, 16 << 20, 64 << 20};

struct side {
    void *memory;
    symmem_handle *handle;
    symmem_stream *stream;
    int64_t shape[1];
    DLTensor tensor;
};

struct kind {
    const char *name;
    DLDataType dtype;
    size_t element;
};

constexpr kind KINDS[] = {{"int32", {kDLInt, 32, 1}, 4}, {"bfloat16", {kDLBfloat, 16, 1}, 2}};

__global__ void fill(void *to, size_t count, bool whole) {
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < count && whole)
        static_cast<int32_t *>(to)[i] = 1;
    else if (i < count)
        static_cast<__nv_bfloat16 *>(to)[i] = __float2bfloat16(1);
}

void open_side(check &c, side &s) {
    const size_t most = SIZES[sizeof SIZES / sizeof SIZES[0] - 1];
    need(c, "memory", symmem_alloc(c.context, most, c.device, nullptr, &s.memory) == SYMMEM_OK);
    need(c, "rendezvous",
         symmem_rendezvous(c.context, s.memory, c.group, LIMIT_MS, &s.handle) == SYMMEM_OK);
    need(c, "stream", symmem_stream_create(c.context, c.device, &s.stream) == SYMMEM_OK);
}

void prepare(check &c, side &s, const kind &of, size_t bytes) {
    const size_t count = bytes / of.element;
    s.shape[0] = static_cast<int64_t>(count);
    s.tensor = {s.memory, {kDLCUDA, c.device}, 1, of.dtype, s.shape, nullptr, 0};
    fill<<<static_cast<unsigned int>((count + 255) / 256), 256>>>(s.memory, count, of.element == 4);
    need(c, "fill", cudaDeviceSynchronize() == cudaSuccess);
}

bool is_sum(const side &s, const kind &of, size_t bytes, float wanted) {
    const size_t places[] = {0, bytes / 2, bytes - of.element};
    for (size_t place : places) {
        int32_t whole = 0;
        __nv_bfloat16 part = __float2bfloat16(0);
        void *to = of.element == 4 ? static_cast<void *>(&whole) : &part;
        if (cudaMemcpy(to, static_cast<char *>(s.memory) + place, of.element, cudaMemcpyDefault) !=
                cudaSuccess ||
            (of.element == 4 ? static_cast<float>(whole) : __bfloat162float(part)) != wanted)
            return false;
    }
    return true;
}

// How many rounds both were over in time.
int meet_crosswise(check &c, side *sides) {
    int round = 0;
    for (bool good = true; good && round < ROUNDS; round += good) {
        for (int i = 0; good && i < HANDLES; i++) {
            const side &s = sides[(i + c.rank) % HANDLES];
            good = symmem_two_shot_all_reduce(s.handle, &s.tensor, SYMMEM_SUM, 0, SHORT_MS,
                                              s.stream) == SYMMEM_OK;
        }
        for (int i = 0; i < HANDLES; i++)
            good = symmem_stream_synchronize(sides[i].stream, LIMIT_MS) == SYMMEM_OK && good;
    }
    return round;
}

void check_one(check &c, side *sides, const kind &of, size_t bytes) {
    float wanted = 1;
    for (int i = 0; i < HANDLES; i++)
        prepare(c, sides[i], of, bytes);
    host_barrier(c);
    const double begin_s = now_s();
    const int rounds = meet_crosswise(c, sides);
    const double took_s = now_s() - begin_s;
    for (int i = 0; i < rounds; i++)
        wanted *= static_cast<float>(c.world);
    host_barrier(c);
    bool right = rounds == ROUNDS;
    for (int i = 0; right && i < HANDLES; i++)
        right = is_sum(sides[i], of, bytes, wanted);
    expect(c, "crosswise", right, "%s, %zu KiB: %d rounds in %.0f us each", of.name, bytes >> 10,
           rounds, took_s * 1e6 / (rounds > 0 ? rounds : 1));
    for (int i = 0; i < HANDLES; i++) // what failed before
        if (symmem_handle_status(sides[i].handle, nullptr) != SYMMEM_OK)
            need(c, "reset", symmem_handle_reset(sides[i].handle, LIMIT_MS) == SYMMEM_OK);
}

} // namespace

void check_crosswise(check &c) {
    side sides[HANDLES] = {};
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices < c.world) {
        printf("rank %d: SKIPPED: crosswise: ranks share a device\n", c.rank);
        return;
    }
    for (side &s : sides)
        open_side(c, s);
    for (const kind &of : KINDS)
        for (size_t bytes : SIZES)
            check_one(c, sides, of, bytes);
    for (side &s : sides) {
        need(c, "stream", symmem_stream_destroy(s.stream) == SYMMEM_OK);
        symmem_handle_release(s.handle);
        need(c, "free", symmem_free(c.context, s.memory) == SYMMEM_OK);
    }
}
