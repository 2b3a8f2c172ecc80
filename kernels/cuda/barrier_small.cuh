// SPDX-License-Identifier: BSD-3-Clause
// The meeting of few ranks, of calls that nobody compares: the barrier and the reductions for which
// time matters. They meet others as meet() does, and leave to it all that is not as usual.
//
// What takes time is what one thing has to wait for before the next: a look at the own state, a
// fence, the word's way to the peer. At a kernel's start there is none of its own writes to
// release. What kernels and copies before it in its stream have written is complete, on peers too,
// before it begins: that is what the order of a stream means, between devices as well, as an event
// behind the one kernel shows. PyTorch's meetings at a kernel's start rely on it likewise. So the
// word is told without a fence there, half a microsecond sooner. Behind the kernel's own writes it
// is released.
#ifndef SYMMEM_KERNELS_CUDA_NEAR_CUH
#define SYMMEM_KERNELS_CUDA_NEAR_CUH

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
constexpr uint32_t TEAM = 1, SCOUTS = 0;
#else
constexpr uint32_t TEAM = 32, SCOUTS = 1;
static_assert(SYMMEM_CUDA_NEAR_THREADS >= (SCOUTS + 1) * TEAM, "somebody looks");
#endif

// Two ranks' arrivals: the own one, there, and the peer's, here.
struct near_words {
    uint32_t *there;
    const uint32_t *here;
};

// As spot, in a kernel's own registers; and the words of the peer that this thread has to do with.
struct near_spot {
    uint32_t arrivals, epoch;
    near_words words;
};

// `turn`: how far from the own rank.
__device__ uint32_t *near_word(const symmem_cuda_near &near, uint32_t turn, uint32_t offset) {
    return reinterpret_cast<uint32_t *>(near.signals[turn] + offset);
}

__device__ uint32_t near_rank(const symmem_cuda_near &near, uint32_t turn) {
    const uint32_t rank = near.rank + turn;
    return rank < near.ranks ? rank : rank - near.ranks;
}

__device__ near_words near_words_of(const symmem_cuda_near &near, uint32_t arrivals,
                                    uint32_t turn) {
    return {near_word(near, turn, arrivals) + near.rank,
            near_word(near, 0, arrivals) + near_rank(near, turn)};
}

__device__ near_spot near_spot_of(const symmem_cuda_near &near) {
    near_spot where = {near.arrivals_at, near.epoch_at, {nullptr, nullptr}};
    if (blockIdx.x != 0) {
        const uint32_t words = static_cast<uint32_t>(sizeof(uint32_t)) * near.ranks;
        where.arrivals =
            near.blocks_at + blockIdx.x * (words + static_cast<uint32_t>(sizeof(uint32_t)));
        where.epoch = where.arrivals + words;
    }
    const uint32_t turn = 1 + threadIdx.x;
    where.words = near_words_of(near, where.arrivals, turn < near.ranks ? turn : 0);
    return where;
}

// Of the team, each peer by one thread.
template <typename Visit>
__device__ void for_each_peer(const symmem_cuda_near &near, const near_spot &where, Visit visit) {
#ifdef SYMMEM_CUDA_LONE_LANE
    for (uint32_t turn = 1; turn < near.ranks; turn++)
        visit(near_words_of(near, where.arrivals, turn));
#else
    if (1 + threadIdx.x < near.ranks)
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
__device__ bool all_come(const symmem_cuda_near &near, const near_spot &where, uint32_t epoch) {
    bool came = true;
    for_each_peer(near, where, [&](near_words words) { came = comes(words.here, epoch) && came; });
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

// Of the scouts: the next epoch, and whether the rank comes to it, for all threads. Who is poisoned
// or has left a call there that others may compare does not.
__device__ void scout(const symmem_cuda_near &near, const near_spot &where, verdict *result) {
    const uint32_t lane = threadIdx.x % TEAM;
    begin_among(result, now_ns(), lane, TEAM);
    if (lane != 0)
        return;
    const uint32_t poisoned = load_volatile(near_word(near, 0, 0));
    const uint32_t *calls = near_word(near, 0, near.calls_at);
    const uint32_t kinds[2] = {load_volatile(calls), load_volatile(calls + SYMMEM_CUDA_CALL_WORDS)};
    result->epoch = load_volatile(near_word(near, 0, where.epoch)) + 1;
    result->entered = (poisoned | kinds[0] | kinds[1]) == 0;
}

// All threads. TEAM_ONLY: the others have nothing to do behind it, and end.
template <bool TEAM_ONLY>
__device__ bool near_meet(const symmem_cuda_near &near, const symmem_cuda_signal_args &args,
                          const near_spot &where, verdict *result) {
    if (threadIdx.x / TEAM == SCOUTS)
        scout(near, where, result);
    __syncthreads();
    const uint32_t epoch = result->epoch;
    bool met = true;
    if (threadIdx.x < TEAM) {
        const bool enters = result->entered;
        if (enters)
            for_each_peer(near, where,
                          [&](near_words words) { symmem::tell_at_start(words.there, epoch); });
        met = enters && all_come(near, where, epoch);
    }
    if (!(TEAM_ONLY ? met : __syncthreads_and(met)))
        return near_recover(args, result);
    if (threadIdx.x == 0)
        *near_word(near, 0, where.epoch) = epoch; // nobody else looks there
    return true;
}

// The team alone, after a __syncthreads() behind the block's work: the others may end. What they
// wrote is released with it, for that barrier and the release order all of it. `poisoned` was
// looked up before.
__device__ void near_meet_again(const symmem_cuda_near &near, const symmem_cuda_signal_args &args,
                                const near_spot &where, verdict *result, uint32_t poisoned) {
    const uint32_t epoch = result->epoch + 1;
    const bool enters = __all_sync(~0u, poisoned == 0);
    if (enters)
        for_each_peer(near, where, [&](near_words words) { store_release(words.there, epoch); });
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
