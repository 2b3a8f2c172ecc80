// SPDX-License-Identifier: BSD-3-Clause
// Large operations of two ranks: each pushes all it has for the other one, chunk by chunk, and each
// adds up or keeps what comes. For an all-reduce that is as much over the link as if each reduced a
// half for both, and nobody waits for results. Ranks do not sync_ranks. Who has nothing to push says so
// chunk by chunk all the same, by which the other one knows what has been taken.
//
// A block has places for its chunks with the peer's block of its number, which are used by turns. A
// word there says how many of them have come, over all calls. So that the link is not idle while a
// block waits, AHEAD chunks are pushed before the one that is added up. Who has the peer's chunk i
// knows that the peer was through with i - AHEAD - 1, for then it pushed that one; so with twice as
// many places as chunks under way a place is free when its turn has come again. From call to call
// it is the same. The number of the block's last chunk lies in memory.
//
// The word is told behind a fence, which takes as long as all that the block has under way takes to
// arrive. So one warp of the block does nothing but that: the others count, in shared memory, who
// is through with the pushing of a chunk.
#ifndef SYMMEM_KERNELS_CUDA_CHUNKS_CUH
#define SYMMEM_KERNELS_CUDA_CHUNKS_CUH

#include "cuda/ll.cuh"

#ifndef SYMMEM_CUDA_ON_HOST // tests/fakes/cuda has others for the CPU
namespace symmem {

// Of threads of one block, in shared memory.
__device__ inline void count_up(uint32_t *word) {
    asm volatile("red.release.cta.add.u32 [%0], 1;" : : "l"(word) : "memory");
}

__device__ inline uint32_t load_count(const uint32_t *word) {
    uint32_t value;
    asm volatile("ld.acquire.cta.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
}

} // namespace symmem
#endif

namespace {

constexpr uint32_t CHUNK_UNITS = SYMMEM_CUDA_CHUNK_BYTES / sizeof(symmem_cuda_unit);
constexpr uint32_t PLACES = SYMMEM_CUDA_CHUNK_SLOTS, AHEAD = PLACES / 2 - 1;
constexpr uint32_t UNDER_WAY = 4; // units of a thread
// OPS: how units are loaded, pushed and taken: allreduce_fast.cuh's and ll.cuh's.
static_assert(PLACES >= 2 && PLACES % 2 == 0, "a place is free when its turn has come");

// What a block has to do with, and what a thread of it has looked up.
struct chunk_slots {
    uint32_t *turn, *come; // the own words
    uint32_t *there;       // the peer's, which says what has come
    char *own_slots, *peer_slots;
};

struct chunk_walk {
    chunk_slots at;
    uint32_t turn; // before the call
    uint32_t count, units;
    uint32_t worker, workers; // threads that move and add
};

// `own`, `peer`: signal states.
__device__ chunk_slots chunk_slots_of_block(char *own, char *peer, uint32_t chunks_at) {
    const size_t words = chunks_at + blockIdx.x * size_t{2 * SYMMEM_CUDA_CHUNK_LINE};
    const size_t places = chunks_at + SYMMEM_CUDA_CHUNK_BLOCKS * 2 * SYMMEM_CUDA_CHUNK_LINE +
                          blockIdx.x * PLACES * SYMMEM_CUDA_CHUNK_BYTES;
    return {reinterpret_cast<uint32_t *>(own + words),
            reinterpret_cast<uint32_t *>(own + words + SYMMEM_CUDA_CHUNK_LINE),
            reinterpret_cast<uint32_t *>(peer + words + SYMMEM_CUDA_CHUNK_LINE), own + places,
            peer + places};
}

__device__ chunk_walk walk_of_block(const chunk_slots &at, uint32_t units) {
    chunk_walk walk = {at, load_volatile(at.turn), 0, units, 0, 1};
    const uint32_t chunks = (units + CHUNK_UNITS - 1) / CHUNK_UNITS;
    if (chunks > blockIdx.x)
        walk.count = (chunks - blockIdx.x + gridDim.x - 1) / gridDim.x;
#ifndef SYMMEM_CUDA_LONE_LANE
    walk.worker = threadIdx.x;
    walk.workers = blockDim.x - LANES;
#endif
    return walk;
}

// The chunk's first unit, and how many there are.
__device__ uint32_t chunk_begin(uint32_t chunk) {
    return (chunk * gridDim.x + blockIdx.x) * CHUNK_UNITS;
}

__device__ uint32_t chunk_units(const chunk_walk &walk, uint32_t chunk) {
    const uint32_t left = walk.units - chunk_begin(chunk);
    return left < CHUNK_UNITS ? left : CHUNK_UNITS;
}

__device__ symmem_cuda_unit *chunk_slot(const chunk_walk &walk, char *places, uint32_t chunk) {
    return reinterpret_cast<symmem_cuda_unit *>(places + (walk.turn + chunk) % PLACES *
                                                             SYMMEM_CUDA_CHUNK_BYTES);
}

// Of a thread's units of a chunk, UNDER_WAY at a time, visit those that there are.
template <typename Visit>
__device__ void for_each_unit(const chunk_walk &walk, uint32_t first, uint32_t units, Visit visit) {
#pragma unroll
    for (uint32_t u = 0; u < UNDER_WAY; u++)
        if (first + u * walk.workers < units)
            visit(u, first + u * walk.workers);
}

template <typename Ops>
__device__ void push_chunk(const Ops &ops, const chunk_walk &walk, uint32_t chunk) {
    const uint32_t begin = chunk_begin(chunk), all = ops.push_units();
    const uint32_t left = begin < all ? all - begin : 0, most = chunk_units(walk, chunk);
    const uint32_t units = left < most ? left : most;
    symmem_cuda_unit *to = chunk_slot(walk, walk.at.peer_slots, chunk);
    for (uint32_t i = walk.worker; i < units; i += UNDER_WAY * walk.workers) {
        symmem_cuda_unit own[UNDER_WAY];
        for_each_unit(walk, i, units,
                      [&](uint32_t u, uint32_t unit) { own[u] = ops.load(begin + unit); });
        for_each_unit(walk, i, units, [&](uint32_t u, uint32_t unit) { to[unit] = own[u]; });
    }
}

template <typename Ops>
__device__ void take_chunk(const Ops &ops, const chunk_walk &walk, uint32_t chunk) {
    const uint32_t begin = chunk_begin(chunk), units = chunk_units(walk, chunk);
    const symmem_cuda_unit *from = chunk_slot(walk, walk.at.own_slots, chunk);
    for (uint32_t i = walk.worker; i < units; i += UNDER_WAY * walk.workers) {
        symmem_cuda_unit own[UNDER_WAY], other[UNDER_WAY];
        for_each_unit(walk, i, units, [&](uint32_t u, uint32_t unit) {
            own[u] = ops.load_own(begin + unit);
            other[u] = from[unit];
        });
        for_each_unit(walk, i, units,
                      [&](uint32_t u, uint32_t unit) { ops.take(begin + unit, own[u], other[u]); });
    }
}

// --- what does not come soon -------------------------------------------------------------

// One thread looks for its warp: whether the word is as far.
__device__ bool chunk_comes(const uint32_t *word, uint32_t turn) {
    bool here = !is_first_lane();
#pragma unroll 1
    for (int i = 0; i < LOOKS_BETWEEN_CHECKS && !here; i++)
        here = static_cast<int32_t>(load_acquire(word) - turn) >= 0;
    const bool all = __all_sync(~0u, here);
    __syncwarp(); // what the first lane has seen orders the others' loads, which a vote does not
                  // say
    return all;
}

// As await_lines. What a peer did before it ended or was poisoned counts, so there is a last look.
__device__ __noinline__ uint64_t await_chunk(const symmem_cuda_signal_args &args,
                                             const uint32_t *word, uint32_t turn, uint64_t start_ns,
                                             op_result *result) {
    const int32_t peer = 1 - args.rank;
    const uint64_t start = start_ns != 0 ? start_ns : now_ns();
    while (!chunk_comes(word, turn)) {
        const bool checking = is_first_lane() && is_blocks_time_to_check(args, start, result);
        int32_t failed_rank = -1;
        const uint32_t code = why_give_up(args, peer, checking, start, result, &failed_rank);
        if (__all_sync(~0u, code == OK))
            continue;
        if (chunk_comes(word, turn))
            return start;
        if (is_first_lane() && (code == TIMEOUT || code == PEER_LOST))
            atomicOr(&result->missing[peer / 32], 1u << (peer % 32));
        if (is_first_lane() && code != DECIDED)
            decide_since(start, code, failed_rank, result);
        return 0;
    }
    return start;
}

// --- a block -----------------------------------------------------------------------------

#ifndef SYMMEM_CUDA_LONE_LANE
// `pushed`: for each place how many warps have pushed to it. A warp may be ahead of another one,
// but not by all places: before it comes to one again the peer has had all of what was there.
template <typename Ops>
__device__ void push_and_count(const Ops &ops, const chunk_walk &walk, uint32_t chunk,
                               uint32_t *pushed) {
    push_chunk(ops, walk, chunk);
    __syncwarp();
    if (is_first_lane())
        symmem::count_up(pushed + chunk % PLACES);
}

// The last warp's first lane, until all is told or the others have given up, who have a deadline.
__device__ void tell_chunks(const chunk_walk &walk, const uint32_t *pushed, const op_result *result) {
    const uint32_t warps = walk.workers / LANES;
    for (uint32_t i = 0; i < walk.count; i++) {
        while (symmem::load_count(pushed + i % PLACES) < (i / PLACES + 1) * warps)
            if (load_volatile(&result->code) != OK)
                return;
        store_release(walk.at.there, walk.turn + i + 1);
    }
}

template <typename Ops>
__device__ bool run_chunks_of(const Ops &ops, const symmem_cuda_signal_args &args,
                              const chunk_walk &walk, uint64_t start_ns, op_result *result) {
    __shared__ uint32_t pushed[PLACES];
    if (threadIdx.x < PLACES)
        pushed[threadIdx.x] = 0;
    begin_block_of_rounds(result, start_ns);
    if (walk.worker >= walk.workers) {
        if (is_first_lane())
            tell_chunks(walk, pushed, result);
        return true;
    }
    for (uint32_t i = 0; i < walk.count && i <= AHEAD; i++)
        push_and_count(ops, walk, i, pushed);
    for (uint32_t i = 0; i < walk.count; i++) {
        if (!chunk_comes(walk.at.come, walk.turn + i + 1)) {
            start_ns = await_chunk(args, walk.at.come, walk.turn + i + 1, start_ns, result);
            if (start_ns == 0)
                return false;
        }
        take_chunk(ops, walk, i);
        if (i + AHEAD + 1 < walk.count)
            push_and_count(ops, walk, i + AHEAD + 1, pushed);
    }
    return true;
}
#else
// One thread of the block does it all.
template <typename Ops>
__device__ bool run_chunks_of(const Ops &ops, const symmem_cuda_signal_args &args,
                              const chunk_walk &walk, uint64_t start_ns, op_result *result) {
    begin_block_of_rounds(result, start_ns);
    const auto push = [&](uint32_t i) {
        push_chunk(ops, walk, i);
        store_release(walk.at.there, walk.turn + i + 1);
    };
    const uint32_t count = threadIdx.x == 0 ? walk.count : 0;
    for (uint32_t i = 0; i < count && i <= AHEAD; i++)
        push(i);
    for (uint32_t i = 0; i < count; i++) {
        start_ns = await_chunk(args, walk.at.come, walk.turn + i + 1, start_ns, result);
        if (start_ns == 0)
            return false;
        take_chunk(ops, walk, i);
        if (i + AHEAD + 1 < count)
            push(i + AHEAD + 1);
    }
    return true;
}
#endif

// All threads of a block, and nothing after it. A rank that is poisoned pushes nothing.
template <typename Ops>
__device__ void run_chunks(const Ops &ops, const symmem_cuda_signal_args &args,
                           const chunk_slots &at, bool is_poisoned, uint64_t start_ns,
                           op_result *result) {
    const bool poisoned = !__all_sync(~0u, !is_poisoned); // for a warp the same
    chunk_walk walk = walk_of_block(at, ops.units());
    walk.count = poisoned ? 0 : walk.count;
    const bool came = run_chunks_of(ops, args, walk, start_ns, result);
    if (poisoned)
        decide_since(start_ns != 0 ? start_ns : now_ns(), POISONED, args.rank, result);
    if (came && !poisoned)
        ops.take_rest(own_lane(), all_lanes());
    const bool all_came = __syncthreads_and(came && !poisoned);
    if (threadIdx.x != 0)
        return;
    if (all_came)
        *walk.at.turn = walk.turn + walk.count;
    else
        fail(args, result);
}

// Of any elements.
template <typename Ops>
__device__ void run_general_chunks(const Ops &ops, uint64_t start_ns, op_result *result) {
    const symmem_cuda_signal_args &signal = ops.args.signal;
    const int32_t rank = signal.rank;
    const chunk_slots at =
        chunk_slots_of_block(static_cast<char *>(signal.signals[rank]),
                        static_cast<char *>(signal.signals[1 - rank]), ops.args.rounds.chunks_at);
    run_chunks(ops, signal, at, own_poisoned(signal), start_ns, result);
}

} // namespace

#endif
