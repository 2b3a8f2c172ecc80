// SPDX-License-Identifier: BSD-3-Clause
// Fast-path barrier for up to 8 ranks when calls are not compared, used by the barrier and by the
// latency-critical reductions. It uses the same words as sync_ranks(), so fast and general ranks
// interoperate. It falls back to the general code on any error or delay.
//
// The latency is a chain of waits: reading this rank's state, a fence, and the word's way to the
// peer. A kernel at its start has no writes of its own to release. The order of a stream says that
// everything which earlier kernels and copies wrote is complete before it begins. That includes
// writes to peers, and it holds between devices too, as an event after such a kernel shows.
// PyTorch's barriers at a kernel's start rely on it as well. So the first word is sent without a
// fence, half a microsecond sooner. After the kernel's own writes the word is sent with release.
#ifndef SYMMEM_KERNELS_CUDA_BARRIER_SMALL_CUH
#define SYMMEM_KERNELS_CUDA_BARRIER_SMALL_CUH

#include "cuda/signal.h"

#ifndef SYMMEM_CUDA_ON_HOST // tests/fakes/cuda has a CPU version
namespace symmem {

// For a kernel that has written nothing yet. Pairs with load_acquire in arrives_soon() and in the
// general barrier.
__device__ inline void signal_unfenced(uint32_t *word, uint32_t value) {
    store_relaxed(word, value);
}

} // namespace symmem
#endif

namespace {

// SYNC_WARP is the size of the first warp, which synchronizes. POLL_WARP is the index of the warp
// that polls this rank's state. A block has at least two warps. On the CPU a warp is one thread,
// except in the tests of warp-level code.
#ifdef SYMMEM_CUDA_LONE_LANE
constexpr uint32_t SYNC_WARP = 1, POLL_WARP = 0;
#else
constexpr uint32_t SYNC_WARP = 32, POLL_WARP = 1;
static_assert(SYMMEM_CUDA_SMALL_BARRIER_THREADS >= (POLL_WARP + 1) * SYNC_WARP, "a thread polls");
#endif

// Two ranks' arrival words: this rank's word at the peer, and the peer's word here.
struct arrival_words {
    uint32_t *there;
    const uint32_t *here;
};

// Like sync_words, in a kernel's registers, and with the words of the peer that this thread
// handles.
struct small_sync_place {
    uint32_t arrivals, epoch;
    arrival_words words;
};

// `distance`: from this rank, with wrap-around.
__device__ uint32_t *small_word(const symmem_cuda_small_barrier &small, uint32_t distance,
                                uint32_t offset) {
    return reinterpret_cast<uint32_t *>(small.signals[distance] + offset);
}

__device__ uint32_t small_peer(const symmem_cuda_small_barrier &small, uint32_t distance) {
    const uint32_t rank = small.rank + distance;
    return rank < small.ranks ? rank : rank - small.ranks;
}

__device__ arrival_words arrival_words_of(const symmem_cuda_small_barrier &small, uint32_t arrivals,
                                          uint32_t distance) {
    return {small_word(small, distance, arrivals) + small.rank,
            small_word(small, 0, arrivals) + small_peer(small, distance)};
}

__device__ small_sync_place small_sync_of(const symmem_cuda_small_barrier &small) {
    small_sync_place where = {small.arrivals_at, small.epoch_at, {nullptr, nullptr}};
    if (blockIdx.x != 0) {
        const uint32_t words = static_cast<uint32_t>(sizeof(uint32_t)) * small.ranks;
        where.arrivals =
            small.blocks_at + blockIdx.x * (words + static_cast<uint32_t>(sizeof(uint32_t)));
        where.epoch = where.arrivals + words;
    }
    const uint32_t distance = 1 + threadIdx.x;
    where.words = arrival_words_of(small, where.arrivals, distance < small.ranks ? distance : 0);
    return where;
}

// Called by the sync warp. One thread visits each peer.
template <typename Visit>
__device__ void for_each_peer(const symmem_cuda_small_barrier &small, const small_sync_place &where,
                              Visit visit) {
#ifdef SYMMEM_CUDA_LONE_LANE
    for (uint32_t distance = 1; distance < small.ranks; distance++)
        visit(arrival_words_of(small, where.arrivals, distance));
#else
    if (1 + threadIdx.x < small.ranks)
        visit(where.words);
#endif
}

// Returns whether the peer arrives soon.
__device__ bool arrives_soon(const uint32_t *word, uint32_t epoch) {
#pragma unroll 1
    for (int i = 0; i < LOOKS_BETWEEN_CHECKS; i++)
        if (static_cast<int32_t>(load_acquire(word) - epoch) >= 0)
            return true;
    return false;
}

// Called by the sync warp. Returns whether all peers arrive soon.
__device__ bool all_arrive_soon(const symmem_cuda_small_barrier &small,
                                const small_sync_place &where, uint32_t epoch) {
    bool came = true;
    for_each_peer(small, where,
                  [&](arrival_words words) { came = arrives_soon(words.here, epoch) && came; });
    return __all_sync(~0u, came);
}

// Called by all remaining threads after an error or a delay. Continues with the general code.
__device__ __noinline__ bool small_sync_recover(const symmem_cuda_signal_args &args,
                                                op_result *result) {
    const sync_words where = block_sync_words(args);
    const bool entered = result->entered;
    const uint64_t start_ns = result->start_ns; // the general barrier writes both again
    __syncthreads();
    if (!entered)
        return sync_ranks(args, where, result, start_ns, false);
    if (threadIdx.x == 0)
        *word_at(args, args.rank, where.epoch) = result->epoch;
    return finish(args, where, result, false);
}

// Called by the poll warp. Finds the next epoch, and whether the rank enters it, for all threads. A
// rank does not enter if it is poisoned, or if it has left a call that others may compare.
__device__ void poll_own_state(const symmem_cuda_small_barrier &small,
                               const small_sync_place &where, op_result *result) {
    const uint32_t lane = threadIdx.x % SYNC_WARP;
    begin_among(result, now_ns(), lane, SYNC_WARP);
    if (lane != 0)
        return;
    const uint32_t poisoned = load_volatile(small_word(small, 0, 0));
    const uint32_t *calls = small_word(small, 0, small.calls_at);
    const uint32_t kinds[2] = {load_volatile(calls), load_volatile(calls + SYMMEM_CUDA_CALL_WORDS)};
    result->epoch = load_volatile(small_word(small, 0, where.epoch)) + 1;
    result->entered = (poisoned | kinds[0] | kinds[1]) == 0;
}

// Called by all threads. SYNC_WARP_ONLY: the other threads have no work after it and return at
// once.
template <bool SYNC_WARP_ONLY>
__device__ bool small_sync(const symmem_cuda_small_barrier &small,
                           const symmem_cuda_signal_args &args, const small_sync_place &where,
                           op_result *result) {
    if (threadIdx.x / SYNC_WARP == POLL_WARP)
        poll_own_state(small, where, result);
    __syncthreads();
    const uint32_t epoch = result->epoch;
    bool met = true;
    if (threadIdx.x < SYNC_WARP) {
        const bool enters = result->entered;
        if (enters)
            for_each_peer(small, where, [&](arrival_words words) {
                symmem::signal_unfenced(words.there, epoch);
            });
        met = enters && all_arrive_soon(small, where, epoch);
    }
    if (!(SYNC_WARP_ONLY ? met : __syncthreads_and(met)))
        return small_sync_recover(args, result);
    if (threadIdx.x == 0)
        *small_word(small, 0, where.epoch) = epoch; // only this thread reads it
    return true;
}

// Called by the sync warp alone, after a __syncthreads() that follows the block's work. The other
// threads may return. Their writes are released too, because that __syncthreads() orders them.
// `poisoned` was loaded before.
__device__ void small_sync_again(const symmem_cuda_small_barrier &small,
                                 const symmem_cuda_signal_args &args, const small_sync_place &where,
                                 op_result *result, uint32_t poisoned) {
    const uint32_t epoch = result->epoch + 1;
    const bool enters = __all_sync(~0u, poisoned == 0);
    if (enters)
        for_each_peer(small, where,
                      [&](arrival_words words) { store_release(words.there, epoch); });
    if (enters && threadIdx.x == 0)
        *small_word(small, 0, where.epoch) = epoch;
    if (enters && all_arrive_soon(small, where, epoch))
        return;
    __syncwarp(); // all lanes have read the epoch; a vote does not order that
    if (threadIdx.x == 0) {
        result->epoch = epoch;
        result->entered = enters;
    }
    __syncthreads(); // only the sync warp is left
    (void)small_sync_recover(args, result);
}

} // namespace

extern "C" __global__ void
symmem_small_barrier(const __grid_constant__ symmem_cuda_small_barrier_args args) {
    __shared__ op_result result;
    (void)small_sync<true>(args.small, args.signal, small_sync_of(args.small), &result);
}

#endif
