// SPDX-License-Identifier: BSD-3-Clause
// The meeting of few ranks, of calls that nobody compares: the barrier and the reductions for which
// time matters. They meet others as meet() does, and leave to it all that is not as usual.
//
// What takes time is what one thing has to wait for before the next: a look at the own state, the
// fence, the word's way to the peer. So the fence is under way beside the look, the first warp
// alone does what peers wait for, and the others use the arguments meanwhile: those come to a
// processor by lines of 64 bytes, at the first use of each.
#ifndef SYMMEM_KERNELS_CUDA_NEAR_CUH
#define SYMMEM_KERNELS_CUDA_NEAR_CUH

#include "cuda/signal.h"

#ifndef SYMMEM_CUDA_ON_HOST // tests/unit has others for the CPU
namespace symmem {

// The two halves of a release, with room between them.
__device__ inline void fence_before_telling() {
    asm volatile("fence.acq_rel.sys;" : : : "memory");
}

__device__ inline void tell(uint32_t *word, uint32_t value) {
    store_relaxed(word, value);
}

} // namespace symmem
#endif

namespace {

// The first warp of a block. The CPU's has one thread, but in the tests of what lanes do together.
#ifdef SYMMEM_CUDA_LONE_LANE
constexpr uint32_t TEAM = 1;
#else
constexpr uint32_t TEAM = 32;
#endif

// As spot, in a kernel's own registers.
struct near_spot {
    uint32_t arrivals, epoch;
};

__device__ near_spot near_spot_of(const symmem_cuda_near &near) {
    if (blockIdx.x == 0)
        return {near.arrivals_at, near.epoch_at};
    const uint32_t words = static_cast<uint32_t>(sizeof(uint32_t)) * near.ranks;
    const uint32_t at =
        near.blocks_at + blockIdx.x * (words + static_cast<uint32_t>(sizeof(uint32_t)));
    return {at, at + words};
}

// `turn`: how far from the own rank.
__device__ uint32_t *near_word(const symmem_cuda_near &near, uint32_t turn, uint32_t offset) {
    return reinterpret_cast<uint32_t *>(near.signals[turn] + offset);
}

__device__ uint32_t near_rank(const symmem_cuda_near &near, uint32_t turn) {
    const uint32_t rank = near.rank + turn;
    return rank < near.ranks ? rank : rank - near.ranks;
}

// Of the team, each peer by one thread.
template <typename Visit> __device__ void for_each_peer(const symmem_cuda_near &near, Visit visit) {
#ifdef SYMMEM_CUDA_LONE_LANE
    for (uint32_t turn = 1; turn < near.ranks; turn++)
        visit(turn);
#else
    if (1 + threadIdx.x < near.ranks)
        visit(1 + threadIdx.x);
#endif
}

// Whether it comes soon.
__device__ bool comes(const uint32_t *word, uint32_t epoch) {
#pragma unroll 1
    for (int i = 0; i < LOOKS_BETWEEN_CHECKS; i++)
        if (static_cast<int32_t>(load_acquire(word) - epoch) >= 0)
            return true;
    return false;
}

// Of the team: whether all peers come soon.
__device__ bool all_come(const symmem_cuda_near &near, near_spot where, uint32_t epoch) {
    bool came = true;
    for_each_peer(near, [&](uint32_t turn) {
        came = comes(near_word(near, 0, where.arrivals) + near_rank(near, turn), epoch) && came;
    });
    return __all_sync(~0u, came);
}

// Of all threads that are left, after what was not as usual: the same by what knows all cases.
__device__ __noinline__ bool near_recover(const symmem_cuda_signal_args &args, verdict *result) {
    const spot where = block_spot(args);
    const bool entered = result->entered;
    const uint64_t start_ns = result->start_ns; // the meeting writes both anew
    __syncthreads();
    if (!entered)
        return meet(args, where, result, start_ns, false);
    if (threadIdx.x == 0)
        *word_at(args, args.rank, where.epoch) = result->epoch;
    return finish(args, where, result, false);
}

// All threads. The fence stands before the look's values are used: both are under way together.
// `one_warp`: the block has no other.
template <bool ONE_WARP>
__device__ bool near_meet(const symmem_cuda_near &near, const symmem_cuda_signal_args &args,
                          near_spot where, verdict *result) {
    bool met = true;
    uint32_t epoch = 0;
    if (threadIdx.x < TEAM) {
        uint32_t words[4] = {
            load_volatile(near_word(near, 0, 0)), load_volatile(near_word(near, 0, near.calls_at)),
            load_volatile(near_word(near, 0, near.calls_at) + SYMMEM_CUDA_CALL_WORDS),
            load_volatile(near_word(near, 0, where.epoch))};
        symmem::fence_before_telling();
        // By exchange, which the compiler leaves behind the fence; so it does not wait before it.
#pragma unroll
        for (int i = 0; i < 4; i++)
            words[i] = __shfl_sync(~0u, words[i], 0);
        epoch = words[3] + 1;
        const bool enters = (words[0] | words[1] | words[2]) == 0;
        if (enters)
            for_each_peer(near, [&](uint32_t turn) {
                symmem::tell(near_word(near, turn, where.arrivals) + near.rank, epoch);
            });
        begin(result, now_ns());
        if (threadIdx.x == 0) {
            result->epoch = epoch;
            result->entered = enters;
        }
        __syncwarp(); // who does not enter asks nobody, and reads that at once
        met = enters && all_come(near, where, epoch);
    }
    if (!(ONE_WARP ? met : __syncthreads_and(met)))
        return near_recover(args, result);
    if (threadIdx.x == 0)
        *near_word(near, 0, where.epoch) = epoch; // nobody else looks there
    return true;
}

// The team alone, after a __syncthreads() behind the block's work: the others may end. What they
// wrote is released with it, for that barrier and the release order all of it. `poisoned` was
// looked up before.
__device__ void near_meet_again(const symmem_cuda_near &near, const symmem_cuda_signal_args &args,
                                near_spot where, verdict *result, uint32_t poisoned) {
    const uint32_t epoch = result->epoch + 1;
    const bool enters = __all_sync(~0u, poisoned == 0);
    if (enters)
        for_each_peer(near, [&](uint32_t turn) {
            store_release(near_word(near, turn, where.arrivals) + near.rank, epoch);
        });
    if (enters && threadIdx.x == 0)
        *near_word(near, 0, where.epoch) = epoch;
    if (enters && all_come(near, where, epoch))
        return;
    __syncwarp(); // all have read the epoch, which a vote does not say
    if (threadIdx.x == 0) {
        result->epoch = epoch;
        result->entered = enters;
    }
    __syncthreads(); // who is left: the team
    (void)near_recover(args, result);
}

} // namespace

extern "C" __global__ void symmem_near_barrier(const __grid_constant__ symmem_cuda_near_args args) {
    __shared__ verdict result;
    (void)near_meet<true>(args.near, args.signal, near_spot_of(args.near), &result);
}

#endif
