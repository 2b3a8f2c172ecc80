// SPDX-License-Identifier: BSD-3-Clause
// The meeting of few ranks, of calls that nobody compares: the barrier and the reductions for which
// time matters. They sync_ranks others as sync_ranks() does, and leave to it all that is not as usual.
//
// What takes time is what one thing has to wait for before the next: a look at the own state, a
// fence, the word's way to the peer. At a kernel's start there is none of its own writes to
// release. What kernels and copies before it in its stream have written is complete, on peers too,
// before it begins: that is what the order of a stream means, between devices as well, as an event
// behind the one kernel shows. PyTorch's meetings at a kernel's start rely on it likewise. So the
// word is told without a fence there, half a microsecond sooner. Behind the kernel's own writes it
// is released.
#ifndef SYMMEM_KERNELS_CUDA_BARRIER_SMALL_CUH
#define SYMMEM_KERNELS_CUDA_BARRIER_SMALL_CUH

#include "cuda/signal.h"

#ifndef SYMMEM_CUDA_ON_HOST // tests/fakes/cuda has others for the CPU
namespace symmem {

// Of a kernel that has written nothing yet. It pairs with load_acquire: here in comes(), and with
// that of the other kernels' meetings.
__device__ inline void tell_at_start(uint32_t *word, uint32_t value) {
    store_relaxed(word, value);
}

} // namespace symmem
#endif

namespace {

// The first warp of a block, and the number of the one that looks at the own state: there are two
// at least. The CPU's has one thread, but in the tests of what lanes do together.
#ifdef SYMMEM_CUDA_LONE_LANE
constexpr uint32_t SYNC_WARP = 1, POLL_WARP = 0;
#else
constexpr uint32_t SYNC_WARP = 32, POLL_WARP = 1;
static_assert(SYMMEM_CUDA_SMALL_BARRIER_THREADS >= (POLL_WARP + 1) * SYNC_WARP, "somebody looks");
#endif

// Two ranks' arrivals: the own one, there, and the peer's, here.
struct arrival_words {
    uint32_t *there;
    const uint32_t *here;
};

// As sync_words, in a kernel's own registers; and the words of the peer that this thread has to do with.
struct small_sync_place {
    uint32_t arrivals, epoch;
    arrival_words words;
};

// `turn`: how far from the own rank.
__device__ uint32_t *small_word(const symmem_cuda_small_barrier &small, uint32_t turn, uint32_t offset) {
    return reinterpret_cast<uint32_t *>(small.signals[turn] + offset);
}

__device__ uint32_t small_peer(const symmem_cuda_small_barrier &small, uint32_t turn) {
    const uint32_t rank = small.rank + turn;
    return rank < small.ranks ? rank : rank - small.ranks;
}

__device__ arrival_words arrival_words_of(const symmem_cuda_small_barrier &small, uint32_t arrivals,
                                    uint32_t turn) {
    return {small_word(small, turn, arrivals) + small.rank,
            small_word(small, 0, arrivals) + small_peer(small, turn)};
}

__device__ small_sync_place small_sync_of(const symmem_cuda_small_barrier &small) {
    small_sync_place where = {small.arrivals_at, small.epoch_at, {nullptr, nullptr}};
    if (blockIdx.x != 0) {
        const uint32_t words = static_cast<uint32_t>(sizeof(uint32_t)) * small.ranks;
        where.arrivals =
            small.blocks_at + blockIdx.x * (words + static_cast<uint32_t>(sizeof(uint32_t)));
        where.epoch = where.arrivals + words;
    }
    const uint32_t turn = 1 + threadIdx.x;
    where.words = arrival_words_of(small, where.arrivals, turn < small.ranks ? turn : 0);
    return where;
}

// Of the team, each peer by one thread.
template <typename Visit>
__device__ void for_each_peer(const symmem_cuda_small_barrier &small, const small_sync_place &where, Visit visit) {
#ifdef SYMMEM_CUDA_LONE_LANE
    for (uint32_t turn = 1; turn < small.ranks; turn++)
        visit(arrival_words_of(small, where.arrivals, turn));
#else
    if (1 + threadIdx.x < small.ranks)
        visit(where.words);
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
__device__ bool all_come(const symmem_cuda_small_barrier &small, const small_sync_place &where, uint32_t epoch) {
    bool came = true;
    for_each_peer(small, where, [&](arrival_words words) { came = comes(words.here, epoch) && came; });
    return __all_sync(~0u, came);
}

// Of all threads that are left, after what was not as usual: the same by what knows all cases.
__device__ __noinline__ bool small_sync_recover(const symmem_cuda_signal_args &args, op_result *result) {
    const sync_words where = block_sync_words(args);
    const bool entered = result->entered;
    const uint64_t start_ns = result->start_ns; // the meeting writes both anew
    __syncthreads();
    if (!entered)
        return sync_ranks(args, where, result, start_ns, false);
    if (threadIdx.x == 0)
        *word_at(args, args.rank, where.epoch) = result->epoch;
    return finish(args, where, result, false);
}

// Of the scouts: the next epoch, and whether the rank comes to it, for all threads. Who is poisoned
// or has left a call there that others may compare does not.
__device__ void poll_own_state(const symmem_cuda_small_barrier &small, const small_sync_place &where, op_result *result) {
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

// All threads. SYNC_WARP_ONLY: the others have nothing to do behind it, and end.
template <bool SYNC_WARP_ONLY>
__device__ bool small_sync(const symmem_cuda_small_barrier &small, const symmem_cuda_signal_args &args,
                          const small_sync_place &where, op_result *result) {
    if (threadIdx.x / SYNC_WARP == POLL_WARP)
        poll_own_state(small, where, result);
    __syncthreads();
    const uint32_t epoch = result->epoch;
    bool met = true;
    if (threadIdx.x < SYNC_WARP) {
        const bool enters = result->entered;
        if (enters)
            for_each_peer(small, where,
                          [&](arrival_words words) { symmem::tell_at_start(words.there, epoch); });
        met = enters && all_come(small, where, epoch);
    }
    if (!(SYNC_WARP_ONLY ? met : __syncthreads_and(met)))
        return small_sync_recover(args, result);
    if (threadIdx.x == 0)
        *small_word(small, 0, where.epoch) = epoch; // nobody else looks there
    return true;
}

// The team alone, after a __syncthreads() behind the block's work: the others may end. What they
// wrote is released with it, for that barrier and the release order all of it. `poisoned` was
// looked up before.
__device__ void small_sync_again(const symmem_cuda_small_barrier &small, const symmem_cuda_signal_args &args,
                                const small_sync_place &where, op_result *result, uint32_t poisoned) {
    const uint32_t epoch = result->epoch + 1;
    const bool enters = __all_sync(~0u, poisoned == 0);
    if (enters)
        for_each_peer(small, where, [&](arrival_words words) { store_release(words.there, epoch); });
    if (enters && threadIdx.x == 0)
        *small_word(small, 0, where.epoch) = epoch;
    if (enters && all_come(small, where, epoch))
        return;
    __syncwarp(); // all have read the epoch, which a vote does not say
    if (threadIdx.x == 0) {
        result->epoch = epoch;
        result->entered = enters;
    }
    __syncthreads(); // who is left: the team
    (void)small_sync_recover(args, result);
}

} // namespace

extern "C" __global__ void symmem_small_barrier(const __grid_constant__ symmem_cuda_small_barrier_args args) {
    __shared__ op_result result;
    (void)small_sync<true>(args.small, args.signal, small_sync_of(args.small), &result);
}

#endif
