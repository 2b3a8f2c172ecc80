// SPDX-License-Identifier: BSD-3-Clause
// Kernels as a user would write them. symmem-cuda-check runs them, and times them beside the
// library's operations.
//
// The first one gives every rank the sum of all ranks' buffers, with the same bits everywhere. It
// shows the three ways to synchronize blocks with their peers. The host passes the two tables of
// the handle and launches the same number of blocks on every rank, at most info.channel_count and
// no more than run at once. It reads *late after it has synchronized the stream:
//
//     symmem_handle_info info;
//     void *buffers, *pads; // the tables, in memory that the device reads
//     if (symmem_handle_get_info(handle, &info) == SYMMEM_OK &&
//         symmem_handle_buffer_ptrs_dev(handle, &buffers) == SYMMEM_OK &&
//         symmem_handle_signal_pad_ptrs_dev(handle, &pads) == SYMMEM_OK)
//         sum_of_all<<<blocks, 256, 0, stream>>>(
//             static_cast<void *const *>(buffers), static_cast<void *const *>(pads), info.rank,
//             info.world_size, scratch, count, timeout_ms, late);
#include <symmem/device.cuh>

__device__ float4 as_floats(const symmem::vec16 &v) {
    return {__uint_as_float(v.words[0]), __uint_as_float(v.words[1]), __uint_as_float(v.words[2]),
            __uint_as_float(v.words[3])};
}

__device__ symmem::vec16 as_words(float4 f) {
    return {
        {__float_as_uint(f.x), __float_as_uint(f.y), __float_as_uint(f.z), __float_as_uint(f.w)}};
}

__device__ float4 sum_at(void *const *buffers, int32_t world_size, size_t at) {
    float4 sum = {0, 0, 0, 0};
    for (int32_t rank = 0; rank < world_size; rank++) {
        const float4 part =
            as_floats(symmem::load_vec16(static_cast<float4 *>(buffers[rank]) + at));
        sum.x += part.x;
        sum.y += part.y;
        sum.z += part.z;
        sum.w += part.w;
    }
    return sum;
}

// Adds `count` times four floats in place. A block reads from the peers' buffers and writes to its
// own buffer the same piece on every rank. So it needs to synchronize only with the blocks of its
// number.
extern "C" __global__ void sum_of_all(void *const *buffers, void *const *pads, int32_t rank,
                                      int32_t world_size, float4 *scratch, size_t count,
                                      uint32_t timeout_ms, uint32_t *late) {
    const symmem::peers all = {pads, rank, world_size, 0};
    const symmem::deadline limit = symmem::deadline_in_ms(timeout_ms);
    const size_t first = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    const size_t step = size_t(gridDim.x) * blockDim.x;

    // Earlier kernels have filled the buffers.
    bool came = symmem::sync_first(all, limit);
    for (size_t at = first; came && at < count; at += step)
        scratch[at] = sum_at(buffers, world_size, at);
    // No rank writes before all have read. The second half of the ordering would not be needed.
    came = came && symmem::sync_between(all, limit);
    for (size_t at = first; came && at < count; at += step)
        symmem::store_vec16(static_cast<float4 *>(buffers[rank]) + at, as_words(scratch[at]));
    // Peers' later kernels may read the sums here through their pointers.
    came = came && symmem::sync_last(all, limit);
    if (!came && threadIdx.x == 0)
        *late = 1; // host memory that the device can write, 0 before the launch
}

// One rank passes a word to the next: data, then the signal; signal, then the data. One thread.
extern "C" __global__ void hand_on(void *const *buffers, void *const *pads, int32_t rank,
                                   int32_t world_size, int32_t channel, uint32_t value,
                                   uint32_t timeout_ms, uint32_t *received, uint32_t *late) {
    const int32_t next = (rank + 1) % world_size;
    const int32_t previous = (rank + world_size - 1) % world_size;
    const symmem::deadline limit = symmem::deadline_in_ms(timeout_ms);

    symmem::store_relaxed(static_cast<uint32_t *>(buffers[next]), value);
    if (symmem::put(symmem::signal_slot(pads, next, world_size, channel, rank), limit) &&
        symmem::wait(symmem::signal_slot(pads, rank, world_size, channel, previous), limit))
        *received = symmem::load_relaxed(static_cast<const uint32_t *>(buffers[rank]));
    else
        *late = 1;
}

// A small sum of pairs of floats in place, one pair for each thread, in one trip. Each thread sends
// its pair to all peers as a line, and adds the lines that arrive, in the order of the ranks. A
// rank's buffer has two slots for each source, with one line for each thread. rounds: a word for
// each block, 0 at first, in the device's memory, so that a graph may be launched again.
extern "C" __global__ void sum_by_lines(void *const *buffers, int32_t rank, int32_t world_size,
                                        float2 *pairs, size_t count, uint32_t *rounds,
                                        uint32_t timeout_ms, uint32_t *late) {
    const symmem::deadline limit = symmem::deadline_in_ms(timeout_ms);
    const uint32_t round = rounds[blockIdx.x] + 1;
    const size_t at = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    const size_t places = size_t(gridDim.x) * blockDim.x, turn = round % 2 * size_t(world_size);
    float2 sum = {0, 0};
    bool came = true;
    if (at < count) {
        const uint64_t own =
            uint64_t(__float_as_uint(pairs[at].y)) << 32 | __float_as_uint(pairs[at].x);
        for (int32_t step = 1; step < world_size; step++)
            symmem::store_line(static_cast<symmem::line *>(buffers[(rank + step) % world_size]) +
                                   (turn + size_t(rank)) * places + at,
                               symmem::make_line(own, round));
        for (int32_t source = 0; source < world_size; source++) {
            uint64_t pair = own;
            if (source != rank)
                came = symmem::await_line(static_cast<const symmem::line *>(buffers[rank]) +
                                              (turn + size_t(source)) * places + at,
                                          round, limit, &pair) &&
                       came;
            sum.x += __uint_as_float(static_cast<uint32_t>(pair));
            sum.y += __uint_as_float(static_cast<uint32_t>(pair >> 32));
        }
        if (came)
            pairs[at] = sum;
    }
    __syncthreads(); // all threads have read the block's word
    if (threadIdx.x == 0)
        rounds[blockIdx.x] = round;
    if (!came)
        *late = 1;
}

// A large sum of pairs by wide lines. A warp has 60 pairs: two for each lane, but one for the last
// of eight lanes. Buffers are as above, with four wide lines for each warp. Blocks consist of whole
// warps.
extern "C" __global__ void sum_by_wide_lines(void *const *buffers, int32_t rank, int32_t world_size,
                                             float2 *pairs, size_t count, uint32_t *rounds,
                                             uint32_t timeout_ms, uint32_t *late) {
    const symmem::deadline limit = symmem::deadline_in_ms(timeout_ms);
    const uint32_t round = rounds[blockIdx.x] + 1;
    const size_t warp = (size_t(blockIdx.x) * blockDim.x + threadIdx.x) / 32,
                 lane = threadIdx.x % 32;
    const size_t warps = size_t(gridDim.x) * blockDim.x / 32, turn = round % 2 * size_t(world_size);
    const size_t at = warp * 60 + lane * 2 - lane / 8; // the lane's first pair
    const bool has[2] = {at < count, lane % 8 != 7 && at + 1 < count};
    float2 sum[2] = {};
    symmem::line own = {};
    bool came = true;
    if (has[0])
        own.low = uint64_t(__float_as_uint(pairs[at].y)) << 32 | __float_as_uint(pairs[at].x);
    if (has[1])
        own.high =
            uint64_t(__float_as_uint(pairs[at + 1].y)) << 32 | __float_as_uint(pairs[at + 1].x);
    for (int32_t step = 1; step < world_size; step++)
        symmem::store_wide_line(static_cast<symmem::line *>(buffers[(rank + step) % world_size]) +
                                    ((turn + size_t(rank)) * warps + warp) * 32,
                                own, round);
    for (int32_t source = 0; source < world_size; source++) {
        symmem::line found = own;
        if (source != rank)
            came = symmem::await_wide_line(static_cast<const symmem::line *>(buffers[rank]) +
                                               ((turn + size_t(source)) * warps + warp) * 32,
                                           round, limit, &found) &&
                   came;
        sum[0].x += __uint_as_float(static_cast<uint32_t>(found.low));
        sum[0].y += __uint_as_float(static_cast<uint32_t>(found.low >> 32));
        sum[1].x += __uint_as_float(static_cast<uint32_t>(found.high));
        sum[1].y += __uint_as_float(static_cast<uint32_t>(found.high >> 32));
    }
    for (size_t i = 0; i < 2; i++)
        if (came && has[i])
            pairs[at + i] = sum[i];
    __syncthreads();
    if (threadIdx.x == 0)
        rounds[blockIdx.x] = round;
    if (!came)
        *late = 1;
}

// Every rank gets the ranks' parts of `bytes`, concatenated, in its buffer. Each block copies its
// piece of this rank's part to all ranks.
extern "C" __global__ void gather_parts(void *const *buffers, void *const *pads, int32_t rank,
                                        int32_t world_size, const void *part, size_t bytes,
                                        uint32_t timeout_ms, uint32_t *late) {
    const symmem::peers all = {pads, rank, world_size, 0};
    const symmem::deadline limit = symmem::deadline_in_ms(timeout_ms);
    const size_t piece = (bytes / gridDim.x + 15) / 16 * 16, from = blockIdx.x * piece;
    const bool is_last = blockIdx.x + 1 == gridDim.x;
    const size_t size = from >= bytes ? 0 : is_last || bytes - from < piece ? bytes - from : piece;

    // Earlier kernels on the peers' streams no longer access the buffers.
    bool came = symmem::sync_first_unfenced(all, limit);
    for (int32_t step = 0; came && step < world_size; step++)
        symmem::copy_by_block(static_cast<char *>(buffers[(rank + step) % world_size]) +
                                  size_t(rank) * bytes + from,
                              static_cast<const char *>(part) + from, size);
    came = came && symmem::sync_last(all, limit);
    if (!came && threadIdx.x == 0)
        *late = 1;
}

// A barrier of one block. It increments every rank's word and waits for its own word, which all
// ranks increment. The words are the first ones of the buffers, 0 at first. No rank counts for the
// next round before all have counted for this one.
extern "C" __global__ void count_in(void *const *buffers, int32_t rank, int32_t world_size,
                                    uint32_t *rounds, uint32_t timeout_ms, uint32_t *late) {
    const symmem::deadline limit = symmem::deadline_in_ms(timeout_ms);
    const uint32_t round = *rounds + 1;
    for (uint32_t peer = threadIdx.x; peer < static_cast<uint32_t>(world_size); peer += blockDim.x)
        symmem::add<symmem::order::release>(static_cast<uint32_t *>(buffers[peer]), 1);
    __syncthreads(); // all threads have read the round
    if (threadIdx.x != 0)
        return;
    *rounds = round;
    if (!symmem::wait_until<symmem::compare::reached>(static_cast<const uint32_t *>(buffers[rank]),
                                                      round * static_cast<uint32_t>(world_size),
                                                      limit))
        *late = 1;
}
