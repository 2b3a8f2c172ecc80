// SPDX-License-Identifier: BSD-3-Clause
// Large operations of two ranks. Each rank pushes all its data for the other one, chunk by chunk,
// and adds or stores the chunks that arrive. For an all-reduce that sends as much over the link as
// if each rank reduced half for both, and no rank waits for results. Ranks pass no barrier. A rank
// without data to push announces empty chunks all the same, which tells the other one what has been
// consumed.
//
// A block exchanges chunks with the peer's block of the same number, through slots that are reused
// in order. A word there says how many chunks have arrived, over all calls. Some chunks are pushed
// ahead of the one that is added, so that the link is not idle while a block waits. When the peer's
// chunk i is here, the peer has consumed chunk i - ahead - 1, because only then it pushed chunk i.
// A slot is free when its number comes up again, because there are at least twice as many as chunks
// under way, ahead + 1. The same holds from call to call, and if only one of them has more ahead.
// The number of the block's last chunk lies in memory.
//
// The word is written after a fence, which takes until all data that the block has in flight has
// arrived. So one warp of the block does only that. The other warps count in shared memory which of
// them have finished pushing a chunk.
#ifndef SYMMEM_KERNELS_CUDA_CHUNKS_CUH
#define SYMMEM_KERNELS_CUDA_CHUNKS_CUH

#include "cuda/ll.cuh"

#ifndef SYMMEM_CUDA_ON_HOST // tests/fakes/cuda has a CPU version
namespace symmem {

// For threads of one block, in shared memory.
__device__ inline void count_up(uint32_t *word) {
    asm volatile("red.release.cta.add.u32 [%0], 1;" : : "l"(word) : "memory");
}

// Soon evicted from the caches.
__device__ inline void store_streaming(symmem_cuda_unit *to, const symmem_cuda_unit &unit) {
    __stcs(reinterpret_cast<ulonglong2 *>(to), make_ulonglong2(unit.low, unit.high));
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
constexpr uint32_t IN_FLIGHT = 4; // units of a thread
// OPS, from allreduce_fast.cuh or ll.cuh, loads, pushes and takes units.

// The words and slots of a block.
struct chunk_slots {
    uint32_t *sequence, *arrived; // this rank's words
    uint32_t *peer_arrived;       // the peer's word, which says what has arrived there
    char *own_slots, *peer_slots;
};

struct chunk_walk {
    chunk_slots at;
    uint32_t sequence; // before the call
    uint32_t count, units;
    uint32_t slots, ahead;    // as in symmem_cuda_ll_layout
    uint32_t worker, workers; // threads that move and add
};

// `own`, `peer`: signal states.
__device__ chunk_slots chunk_slots_of_block(char *own, char *peer,
                                            const symmem_cuda_ll_layout &layout) {
    const uint32_t chunks_at = layout.chunks_at;
    const size_t words = chunks_at + blockIdx.x * size_t{2 * SYMMEM_CUDA_CHUNK_LINE};
    const size_t slots = chunks_at + SYMMEM_CUDA_CHUNK_BLOCKS * 2 * SYMMEM_CUDA_CHUNK_LINE +
                         size_t{blockIdx.x} * layout.chunk_slots * SYMMEM_CUDA_CHUNK_BYTES;
    return {reinterpret_cast<uint32_t *>(own + words),
            reinterpret_cast<uint32_t *>(own + words + SYMMEM_CUDA_CHUNK_LINE),
            reinterpret_cast<uint32_t *>(peer + words + SYMMEM_CUDA_CHUNK_LINE), own + slots,
            peer + slots};
}

__device__ chunk_walk walk_of_block(const chunk_slots &at, const symmem_cuda_ll_layout &layout,
                                    uint32_t units) {
    chunk_walk walk = {
        at, load_volatile(at.sequence), 0, units, layout.chunk_slots, layout.chunks_ahead, 0, 1};
    const uint32_t chunks = (units + CHUNK_UNITS - 1) / CHUNK_UNITS;
    if (chunks > blockIdx.x)
        walk.count = (chunks - blockIdx.x + gridDim.x - 1) / gridDim.x;
#ifndef SYMMEM_CUDA_LONE_LANE
    walk.worker = threadIdx.x;
    walk.workers = blockDim.x - LANES;
#endif
    return walk;
}

// Returns the chunk's first unit. chunk_units returns how many units it has.
__device__ uint32_t chunk_begin(uint32_t chunk) {
    return (chunk * gridDim.x + blockIdx.x) * CHUNK_UNITS;
}

__device__ uint32_t chunk_units(const chunk_walk &walk, uint32_t chunk) {
    const uint32_t left = walk.units - chunk_begin(chunk);
    return left < CHUNK_UNITS ? left : CHUNK_UNITS;
}

__device__ symmem_cuda_unit *chunk_slot(const chunk_walk &walk, char *slots, uint32_t chunk) {
    return reinterpret_cast<symmem_cuda_unit *>(slots + (walk.sequence + chunk) % walk.slots *
                                                            SYMMEM_CUDA_CHUNK_BYTES);
}

// Visits a thread's units of a chunk, up to IN_FLIGHT at a time.
template <typename Visit>
__device__ void for_each_unit(const chunk_walk &walk, uint32_t first, uint32_t units, Visit visit) {
#pragma unroll
    for (uint32_t u = 0; u < IN_FLIGHT; u++)
        if (first + u * walk.workers < units)
            visit(u, first + u * walk.workers);
}

// A thread's first units of a chunk, of as many as there are.
struct chunk_units_of_thread {
    symmem_cuda_unit units[IN_FLIGHT];
};

// The units of a chunk that this rank pushes.
template <typename Ops>
__device__ uint32_t pushed_units(const Ops &ops, const chunk_walk &walk, uint32_t chunk) {
    const uint32_t begin = chunk_begin(chunk), all = ops.push_units();
    const uint32_t left = begin < all ? all - begin : 0, most = chunk_units(walk, chunk);
    return left < most ? left : most;
}

template <typename Ops>
__device__ void load_pushed(const Ops &ops, const chunk_walk &walk, uint32_t chunk, uint32_t first,
                            uint32_t units, chunk_units_of_thread *own) {
    for_each_unit(walk, first, units, [&](uint32_t u, uint32_t unit) {
        own->units[u] = ops.load(chunk_begin(chunk) + unit);
    });
}

template <typename Ops>
__device__ chunk_units_of_thread first_pushed(const Ops &ops, const chunk_walk &walk,
                                              uint32_t chunk) {
    chunk_units_of_thread own = {};
    load_pushed(ops, walk, chunk, walk.worker, pushed_units(ops, walk, chunk), &own);
    return own;
}

// `own` has what the thread pushes first.
template <typename Ops>
__device__ void push_chunk(const Ops &ops, const chunk_walk &walk, uint32_t chunk,
                           chunk_units_of_thread own) {
    const uint32_t units = pushed_units(ops, walk, chunk), step = IN_FLIGHT * walk.workers;
    symmem_cuda_unit *to = chunk_slot(walk, walk.at.peer_slots, chunk);
    for (uint32_t i = walk.worker; i < units; i += step) {
        if (i != walk.worker)
            load_pushed(ops, walk, chunk, i, units, &own);
        for_each_unit(walk, i, units, [&](uint32_t u, uint32_t unit) { to[unit] = own.units[u]; });
    }
}

template <typename Ops>
__device__ void load_taken(const Ops &ops, const chunk_walk &walk, uint32_t chunk, uint32_t first,
                           chunk_units_of_thread *own) {
    for_each_unit(walk, first, chunk_units(walk, chunk), [&](uint32_t u, uint32_t unit) {
        own->units[u] = ops.load_own(chunk_begin(chunk) + unit);
    });
}

// `own` has this rank's units of those that the thread takes first.
template <typename Ops>
__device__ void take_chunk(const Ops &ops, const chunk_walk &walk, uint32_t chunk,
                           chunk_units_of_thread own) {
    const uint32_t begin = chunk_begin(chunk), units = chunk_units(walk, chunk);
    const symmem_cuda_unit *from = chunk_slot(walk, walk.at.own_slots, chunk);
    for (uint32_t i = walk.worker; i < units; i += IN_FLIGHT * walk.workers) {
        symmem_cuda_unit other[IN_FLIGHT];
        if (i != walk.worker)
            load_taken(ops, walk, chunk, i, &own);
        for_each_unit(walk, i, units, [&](uint32_t u, uint32_t unit) { other[u] = from[unit]; });
        for_each_unit(walk, i, units, [&](uint32_t u, uint32_t unit) {
            ops.take(begin + unit, own.units[u], other[u]);
        });
    }
}

// --- slow waits --------------------------------------------------------------------

// One thread polls for its warp. Returns whether the word has reached `sequence`.
__device__ bool chunk_arrives(const uint32_t *word, uint32_t sequence) {
    bool here = !is_first_lane();
#pragma unroll 1
    for (int i = 0; i < LOOKS_BETWEEN_CHECKS && !here; i++)
        here = static_cast<int32_t>(load_acquire(word) - sequence) >= 0;
    const bool all = __all_sync(~0u, here);
    __syncwarp(); // the first lane's acquire must order the other lanes' loads, which a vote
                  // does not do
    return all;
}

// Like await_lines. Work that a peer finished before it ended or was poisoned counts, so the word
// is checked once more.
__device__ __noinline__ uint64_t await_chunk(const symmem_cuda_signal_args &args,
                                             const uint32_t *word, uint32_t sequence,
                                             uint64_t start_ns, op_result *result) {
    const int32_t peer = 1 - args.rank;
    const uint64_t start = start_ns != 0 ? start_ns : now_ns();
    while (!chunk_arrives(word, sequence)) {
        const bool checking = is_first_lane() && is_block_check_due(args, start, result);
        int32_t failed_rank = -1;
        const uint32_t code = wait_failure_code(args, peer, checking, start, result, &failed_rank);
        if (__all_sync(~0u, code == OK))
            continue;
        if (chunk_arrives(word, sequence))
            return start;
        if (is_first_lane() && (code == TIMEOUT || code == PEER_LOST))
            atomicOr(&result->missing[peer / 32], 1u << (peer % 32));
        if (is_first_lane() && code != DECIDED)
            decide_since(start, code, failed_rank, result);
        return 0;
    }
    return start;
}

// --- a block -----------------------------------------------------------------------

#ifndef SYMMEM_CUDA_LONE_LANE
// `pushed`: for each slot the number of warps that have pushed to it. A warp may be ahead of
// another one, but not by all slots. Before it reuses a slot the peer has received everything that
// was there. `own`: as push_chunk takes it.
template <typename Ops>
__device__ void push_and_count(const Ops &ops, const chunk_walk &walk, uint32_t chunk,
                               const chunk_units_of_thread &own, uint32_t *pushed) {
    push_chunk(ops, walk, chunk, own);
    __syncwarp();
    if (is_first_lane())
        symmem::count_up(pushed + chunk % walk.slots);
}

// The last warp's first lane announces chunks until all are announced, or until the others give up.
// Those have a deadline.
__device__ void announce_chunks(const chunk_walk &walk, const uint32_t *pushed,
                                const op_result *result) {
    const uint32_t warps = walk.workers / LANES;
    for (uint32_t i = 0; i < walk.count; i++) {
        while (symmem::load_count(pushed + i % walk.slots) < (i / walk.slots + 1) * warps)
            if (load_volatile(&result->code) != OK)
                return;
        store_release(walk.at.peer_arrived, walk.sequence + i + 1);
    }
}

template <typename Ops>
__device__ bool run_chunks_of(const Ops &ops, const symmem_cuda_signal_args &args,
                              const chunk_walk &walk, uint64_t start_ns, op_result *result) {
    __shared__ uint32_t pushed[SYMMEM_CUDA_CHUNK_SLOTS_MOST];
    if (threadIdx.x < SYMMEM_CUDA_CHUNK_SLOTS_MOST)
        pushed[threadIdx.x] = 0;
    chunk_units_of_thread own = {};
    if (walk.worker < walk.workers && walk.count > 0)
        own = first_pushed(ops, walk, 0);
    begin_block_of_rounds(result, start_ns); // while those are on their way
    if (walk.worker >= walk.workers) {
        if (is_first_lane())
            announce_chunks(walk, pushed, result);
        return true;
    }
    for (uint32_t i = 0; i < walk.count && i <= walk.ahead; i++) {
        if (i > 0)
            own = first_pushed(ops, walk, i);
        push_and_count(ops, walk, i, own, pushed);
    }
    for (uint32_t i = 0; i < walk.count; i++) {
        load_taken(ops, walk, i, walk.worker, &own); // while the chunk is on its way
        if (!chunk_arrives(walk.at.arrived, walk.sequence + i + 1)) {
            start_ns = await_chunk(args, walk.at.arrived, walk.sequence + i + 1, start_ns, result);
            if (start_ns == 0)
                return false;
        }
        take_chunk(ops, walk, i, own);
        if (i + walk.ahead + 1 < walk.count)
            push_and_count(ops, walk, i + walk.ahead + 1,
                           first_pushed(ops, walk, i + walk.ahead + 1), pushed);
    }
    return true;
}
#else
// One thread of the block does everything.
template <typename Ops>
__device__ bool run_chunks_of(const Ops &ops, const symmem_cuda_signal_args &args,
                              const chunk_walk &walk, uint64_t start_ns, op_result *result) {
    begin_block_of_rounds(result, start_ns);
    const auto push = [&](uint32_t i) {
        push_chunk(ops, walk, i, first_pushed(ops, walk, i));
        store_release(walk.at.peer_arrived, walk.sequence + i + 1);
    };
    const uint32_t count = threadIdx.x == 0 ? walk.count : 0;
    for (uint32_t i = 0; i < count && i <= walk.ahead; i++)
        push(i);
    for (uint32_t i = 0; i < count; i++) {
        start_ns = await_chunk(args, walk.at.arrived, walk.sequence + i + 1, start_ns, result);
        if (start_ns == 0)
            return false;
        chunk_units_of_thread own = {};
        load_taken(ops, walk, i, 0, &own);
        take_chunk(ops, walk, i, own);
        if (i + walk.ahead + 1 < count)
            push(i + walk.ahead + 1);
    }
    return true;
}
#endif

// Called by all threads of a block as the last thing that they do. A poisoned rank pushes nothing.
template <typename Ops>
__device__ void run_chunks(const Ops &ops, const symmem_cuda_signal_args &args,
                           const chunk_slots &at, bool is_poisoned, uint64_t start_ns,
                           op_result *result) {
    const bool poisoned = !__all_sync(~0u, !is_poisoned); // uniform within a warp
    chunk_walk walk = walk_of_block(at, ops.layout(), ops.units());
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
        *walk.at.sequence = walk.sequence + walk.count;
    else
        fail(args, result);
}

// For any elements.
template <typename Ops>
__device__ void run_general_chunks(const Ops &ops, uint64_t start_ns, op_result *result) {
    const symmem_cuda_signal_args &signal = ops.args.signal;
    const int32_t rank = signal.rank;
    const chunk_slots at =
        chunk_slots_of_block(static_cast<char *>(signal.signals[rank]),
                             static_cast<char *>(signal.signals[1 - rank]), ops.layout());
    run_chunks(ops, signal, at, own_poisoned(signal), start_ns, result);
}

} // namespace

#endif
