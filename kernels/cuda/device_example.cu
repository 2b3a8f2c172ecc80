// SPDX-License-Identifier: BSD-3-Clause
// A kernel of a user's own: every rank gets the sum of all ranks' buffers, with the same bits
// everywhere. Shows the three ways in which blocks meet their peers. The host gives the two tables
// of the handle, launches as many blocks on every rank, at most info.channel_count and no more than
// run at once, and looks at *late when the stream has been synchronised:
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

// Adds up `count` times four floats in place. What a block reads of the peers' buffers and writes
// to its own is the same piece on every rank, so it need only meet the blocks of its number.
extern "C" __global__ void sum_of_all(void *const *buffers, void *const *pads, int32_t rank,
                                      int32_t world_size, float4 *scratch, size_t count,
                                      uint32_t timeout_ms, uint32_t *late) {
    const symmem::peers all = {pads, rank, world_size, 0};
    const symmem::deadline limit = symmem::deadline_in_ms(timeout_ms);
    const size_t first = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    const size_t step = size_t(gridDim.x) * blockDim.x;

    // Earlier kernels have filled the buffers.
    bool came = symmem::meet_first(all, limit);
    for (size_t at = first; came && at < count; at += step)
        scratch[at] = sum_at(buffers, world_size, at);
    // Nobody writes before all have read. It would do without the second half of the ordering.
    came = came && symmem::meet_between(all, limit);
    for (size_t at = first; came && at < count; at += step)
        symmem::store_vec16(static_cast<float4 *>(buffers[rank]) + at, as_words(scratch[at]));
    // Peers' later kernels may read the sums here by the pointers they have.
    came = came && symmem::meet_last(all, limit);
    if (!came && threadIdx.x == 0)
        *late = 1; // host memory that the device can write, 0 before the launch
}

// One rank hands a word to the next: data, then the signal; signal, then the data. One thread.
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
