// SPDX-License-Identifier: BSD-3-Clause
// Put, wait and barrier on the device, by one small block each.
//
// A kernel that waits polls. Every LOOKS_BETWEEN_CHECKS polls it checks three things: the deadline,
// its host's word that the state is poisoned or a peer's process has ended, and a peer's word in
// its own signal state that the peer is poisoned. It writes a failure to host memory and ends, so
// the context stays usable.
#ifndef SYMMEM_CUDA_ON_HOST // tests/fakes/cuda has CPU versions of the words and the clock
#include "cuda/device.cuh"
#endif
#include "cuda/signal.h"
#include "cuda/state.cuh"

namespace {

using symmem::load_acquire;
using symmem::now_ns;
using symmem::store_release;

constexpr int LOOKS_BETWEEN_CHECKS = 64;
constexpr int CHECK_EVERY = 20; // a millisecond, as a power of two of nanoseconds
constexpr uint64_t NS_PER_MS = 1000000;
constexpr uint32_t CALL_NONE = 0;

// Negated symmem_status values.
enum code : uint32_t {
    OK = 0,
    INVALID_ARGUMENT = 1,
    NOT_INITIALIZED = 2,
    TIMEOUT = 6,
    PEER_LOST = 7,
    MISMATCH = 8,
    OUT_OF_RANGE = 10,
    POISONED = 13,
    CORRUPT = 28
};
enum look { READY, ABSENT, BROKEN };
enum operation { BARRIER, PUT, WAIT };

// The result of the block's operation, in shared memory.
struct op_result {
    uint32_t code;
    int32_t failed_rank;
    uint32_t actual;
    uint32_t epoch;
    bool entered;      // the barrier
    uint32_t checked;  // ll.cuh: when a warp of the block last checked for failures
    uint64_t start_ns; // of one thread's clock, for all
    uint32_t missing[SYMMEM_CUDA_MAX_RANKS / 32];
    uint32_t other[SYMMEM_CUDA_CALL_WORDS];
};

#ifndef SYMMEM_CUDA_ON_HOST // tests/fakes/cuda has CPU versions
__device__ uint32_t load_volatile(const uint32_t *word) {
    return *static_cast<const volatile uint32_t *>(word);
}
#endif

// Copies the arguments to shared memory, for thread 0 at once and for the others after a
// __syncthreads(). Otherwise a called function reads arguments passed by reference from global
// memory again and again, because an acquire invalidates the first-level cache. The same holds for
// the table, which is needed before the first word is sent to a peer.
__device__ void keep(const symmem_cuda_signal_args &args, symmem_cuda_signal_args *kept) {
    if (threadIdx.x != 0)
        return;
    *kept = args;
    if (args.world_size <= SYMMEM_CUDA_SMALL_RANKS)
        kept->signals = kept->small;
}

__device__ uint32_t *word_at(const symmem_cuda_signal_args &args, int32_t owner, size_t offset) {
    return reinterpret_cast<uint32_t *>(static_cast<char *>(args.signals[owner]) + offset);
}

// The words of a barrier in each rank's signal state: byte offsets.
struct sync_words {
    size_t arrivals; // one word for each rank
    size_t epoch;
};

__device__ sync_words channel_sync_words(const symmem_cuda_signal_args &args) {
    return {symmem_cuda_arrival_at(args.world_size, args.channel_count, args.channel, 0),
            symmem_cuda_epoch_at(args.world_size, args.channel_count, args.channel)};
}

// Returns the words of this block and the blocks of its number. Block 0 uses the channel's own
// words. So a rank that uses one block synchronizes with ranks that use any number.
__device__ sync_words block_sync_words(const symmem_cuda_signal_args &args) {
    if (blockIdx.x == 0)
        return channel_sync_words(args);
    const size_t at = symmem_cuda_block_at(args.world_size, args.channel_count, args.channel,
                                           static_cast<int32_t>(blockIdx.x));
    return {at, at + sizeof(uint32_t) * static_cast<size_t>(args.world_size)};
}

__device__ uint32_t *arrival(const symmem_cuda_signal_args &args, sync_words where, int32_t owner,
                             int32_t source) {
    return word_at(args, owner, where.arrivals) + source;
}

// Returns the word to poll for `rank`, for a barrier at `where`.
template <operation OP>
__device__ uint32_t *word_of(const symmem_cuda_signal_args &args, sync_words where, int32_t rank) {
    if (OP == BARRIER)
        return arrival(args, where, args.rank, rank);
    return OP == PUT
               ? word_at(args, rank, symmem_cuda_slot_at(args.world_size, args.channel, args.rank))
               : word_at(args, args.rank, symmem_cuda_slot_at(args.world_size, args.channel, rank));
}

template <operation OP> __device__ look attempt(uint32_t *slot, uint32_t epoch, uint32_t *value) {
    if (OP == BARRIER) {
        *value = load_acquire(slot);
        return static_cast<int32_t>(*value - epoch) >= 0 ? READY : ABSENT;
    }
    const uint32_t from = OP == PUT ? 0 : 1;
    *value = load_acquire(slot);
    if (*value == from) {
        *value = symmem::exchange_if<symmem::order::acq_rel>(slot, from, 1 - from);
        if (*value == from)
            return READY;
    }
    return *value <= 1 ? ABSENT : BROKEN;
}

// The block's first failure is the operation's.
__device__ void decide(op_result *result, uint32_t code, int32_t failed_rank, uint32_t actual) {
    if (atomicCAS(&result->code, OK, code) == OK) {
        result->failed_rank = failed_rank;
        result->actual = actual;
    }
}

// Returns the device's copy. The host writes it there too, before it sets its own word. The host's
// word is for threads that already wait, because reading host memory takes as long as a barrier.
__device__ bool own_poisoned(const symmem_cuda_signal_args &args) {
    return load_volatile(word_at(args, args.rank, 0)) != 0;
}

// Another processor's clock may have set the start and may be ahead. Then no time has elapsed.
__device__ uint64_t elapsed_since(uint64_t start_ns) {
    const int64_t elapsed_ns = static_cast<int64_t>(now_ns() - start_ns);
    return elapsed_ns > 0 ? static_cast<uint64_t>(elapsed_ns) : 0;
}

__device__ bool is_late(uint64_t start_ns, uint32_t timeout_ms) {
    return timeout_ms != 0 && elapsed_since(start_ns) >= timeout_ms * NS_PER_MS;
}

// Returns whether to go on waiting for `rank`. The caller polls once more before it acts on a
// failure.
__device__ uint32_t check(const symmem_cuda_signal_args &args, int32_t rank, uint64_t start_ns,
                          int32_t *failed_rank) {
    *failed_rank = rank;
    if ((load_volatile(&args.control->gone[rank / 32]) >> (rank % 32) & 1) != 0)
        return PEER_LOST;
    if (rank != args.rank && load_volatile(word_at(args, rank, 0)) != 0)
        return POISONED;
    *failed_rank = args.rank;
    if (load_volatile(&args.control->poisoned) != 0 || own_poisoned(args))
        return POISONED;
    *failed_rank = -1;
    return is_late(start_ns, args.timeout_ms) ? TIMEOUT : OK;
}

// Returns whether a waiting thread should call check(), which reads host memory. Such reads of many
// blocks are serialized, a microsecond each. If all blocks read as soon as they wait, ranks would
// delay each other without end.
__device__ bool is_check_due(const symmem_cuda_signal_args &args, uint64_t start_ns,
                             uint64_t *checked) {
    const uint64_t turn = now_ns() >> CHECK_EVERY;
    const bool is_due = turn != *checked;
    *checked = turn;
    return is_due || is_late(start_ns, args.timeout_ms) || own_poisoned(args);
}

template <operation OP>
__device__ void wait_for(const symmem_cuda_signal_args &args, sync_words where, int32_t rank,
                         op_result *result) {
    const uint32_t epoch = OP == BARRIER ? result->epoch : 0;
    uint32_t *word = word_of<OP>(args, where, rank);
    uint64_t checked = now_ns() >> CHECK_EVERY;
    for (;;) {
        uint32_t value = 0;
        look seen = ABSENT;
#pragma unroll 1
        for (int i = 0; i < LOOKS_BETWEEN_CHECKS && seen == ABSENT; i++)
            seen = attempt<OP>(word, epoch, &value);
        if (seen == READY || load_volatile(&result->code) != OK)
            return;
        int32_t failed_rank = rank;
        uint32_t code = seen == BROKEN ? CORRUPT : OK;
        if (code == OK && is_check_due(args, result->start_ns, &checked))
            code = check(args, rank, result->start_ns, &failed_rank);
        if (code == OK)
            continue;
        // Work that the peer finished before it ended or was poisoned counts, so poll again.
        if (seen != BROKEN && attempt<OP>(word, epoch, &value) == READY)
            return;
        if (code == TIMEOUT || code == PEER_LOST)
            atomicOr(&result->missing[rank / 32], 1u << (rank % 32));
        decide(result, code, failed_rank, code == CORRUPT ? value : 0);
        return;
    }
}

// Called by one of `threads`. Its writes are seen after the next __syncthreads().
__device__ void begin_among(op_result *result, uint64_t start_ns, uint32_t thread,
                            uint32_t threads) {
    for (uint32_t i = thread; i < SYMMEM_CUDA_MAX_RANKS / 32; i += threads)
        result->missing[i] = 0;
    if (thread == 0) {
        result->code = OK;
        result->failed_rank = -1;
        result->actual = 0;
        result->start_ns = start_ns;
    }
}

// Called by all threads.
__device__ void begin(op_result *result, uint64_t start_ns) {
    begin_among(result, start_ns, threadIdx.x, blockDim.x);
}

// If only one rank is late, it is named.
__device__ void name_late_rank(op_result *result) {
    int32_t count = 0, last = -1;
    for (int32_t i = 0; i < SYMMEM_CUDA_MAX_RANKS / 32; i++) {
        count += __popc(result->missing[i]);
        if (result->missing[i] != 0)
            last = 32 * i + 31 - __clz(result->missing[i]);
    }
    if (result->failed_rank < 0 && count == 1)
        result->failed_rank = last;
}

__device__ symmem_cuda_state *state_of(const symmem_cuda_signal_args &args) {
    if (args.phase == SYMMEM_CUDA_COMPOSITE_STEP)
        return args.state;
    return reinterpret_cast<symmem_cuda_state *>(word_at(
        args, args.rank, symmem_cuda_state_at(args.world_size, args.channel_count, args.channel)));
}

// Returns false for what every rank has found before anything was moved.
__device__ bool poisons(uint32_t code) {
    return code != MISMATCH && code != INVALID_ARGUMENT && code != OUT_OF_RANGE;
}

// Called by one thread after a failure. It tells the peers, then the host. With several blocks the
// first failure is the operation's. Its block claims the record before others see the poison that
// follows. If a graph was launched again before the host looked, the first failure stays.
__device__ void fail(const symmem_cuda_signal_args &args, op_result *result) {
    symmem_cuda_fault *fault = args.fault;
    const bool first = load_volatile(&fault->code) == OK && atomicCAS(&fault->claimed, 0, 1) == 0;
    if (args.phase != SYMMEM_CUDA_ALONE && load_state(&state_of(args)->failed) == 0)
        store_state(&state_of(args)->failed, args.stream);
    if (result->code == TIMEOUT || result->code == PEER_LOST)
        name_late_rank(result);
    if (poisons(result->code))
        store_release(word_at(args, args.rank, 0), 1);
    if (!first)
        return;
    fault->failed_rank = result->failed_rank;
    fault->elapsed_ns = elapsed_since(result->start_ns);
    fault->actual = result->actual;
    for (int32_t i = 0; i < SYMMEM_CUDA_MAX_RANKS / 32; i++)
        fault->missing[i] = result->missing[i];
    for (int32_t i = 0; i < SYMMEM_CUDA_CALL_WORDS; i++)
        fault->other[i] = result->other[i];
    __threadfence_system();
    *static_cast<volatile uint32_t *>(&fault->code) = result->code;
    __threadfence_system();
    store_release(&args.control->failed, 1); // other kernels of the handle may write it, too
    __threadfence_system();
}

// --- barrier ---------------------------------------------------------------------------

// Called after a __syncthreads(), so that it releases everything that the block wrote before.
__device__ void arrive(const symmem_cuda_signal_args &args, sync_words where, uint32_t epoch) {
    for (int32_t rank = threadIdx.x; rank < args.world_size; rank += blockDim.x)
        if (rank != args.rank)
            store_release(arrival(args, where, rank, args.rank), epoch);
}

// Adds the ranks that had not arrived when another thread gave up.
__device__ void collect_late(const symmem_cuda_signal_args &args, sync_words where,
                             op_result *result) {
    for (int32_t rank = threadIdx.x; rank < args.world_size; rank += blockDim.x) {
        uint32_t value;
        if (rank != args.rank &&
            attempt<BARRIER>(word_of<BARRIER>(args, where, rank), result->epoch, &value) != READY)
            atomicOr(&result->missing[rank / 32], 1u << (rank % 32));
    }
}

__device__ uint32_t *call_of(const symmem_cuda_signal_args &args, int32_t rank, uint32_t epoch) {
    return word_at(args, rank,
                   symmem_cuda_call_at(args.world_size, args.channel_count, args.channel, epoch));
}

// All ranks have arrived. Compares their calls. The lowest rank that differs is named.
__device__ void compare_calls(const symmem_cuda_signal_args &args, op_result *result) {
    for (int32_t rank = 0; rank < args.world_size; rank++) {
        const uint32_t *other = call_of(args, rank, result->epoch);
        bool same = true;
        for (int i = 0; i < SYMMEM_CUDA_CALL_WORDS; i++) {
            result->other[i] = load_volatile(other + i);
            same = same && result->other[i] == args.call[i];
        }
        if (!same && result->other[0] != CALL_NONE) {
            decide(result, MISMATCH, rank, 0);
            return;
        }
    }
}

// Called by one thread of block 0. Publishes this rank's call before it announces its arrival, if
// calls are compared. Otherwise it removes a call that is still there. The barriers of other blocks
// have no calls.
__device__ void show_call(const symmem_cuda_signal_args &args, uint32_t epoch, bool comparing,
                          bool shown) {
    uint32_t *call = call_of(args, args.rank, epoch);
    if (!comparing && shown)
        call[0] = CALL_NONE;
    for (int i = 0; comparing && i < SYMMEM_CUDA_CALL_WORDS; i++)
        call[i] = args.call[i];
}

// Completes a barrier for which `result` is initialized and, if it entered, the arrival is
// announced.
__device__ __noinline__ bool finish(const symmem_cuda_signal_args &args, sync_words where,
                                    op_result *result, bool comparing) {
    if (result->entered)
        for (int32_t rank = threadIdx.x; rank < args.world_size; rank += blockDim.x)
            if (rank != args.rank)
                wait_for<BARRIER>(args, where, rank, result);
    __syncthreads();
    if (result->code == TIMEOUT || result->code == PEER_LOST)
        collect_late(args, where, result);
    __syncthreads();
    if (threadIdx.x == 0) {
        if (result->code == OK && comparing)
            compare_calls(args, result);
        if (result->code != OK)
            fail(args, result);
    }
    __syncthreads();
    const bool met = result->code == OK;
    __syncthreads(); // before the next barrier begins
    return met;
}

// One block of each rank synchronizes at `where`. Returns false to every thread if the operation
// has failed; then peers and host know. Everything that the block wrote before is visible to all
// ranks after it, and so is what they wrote to it. No fence is needed for that: each thread's
// release and acquire come after and before a __syncthreads(), and the orders are transitive.
//
// A rank that is poisoned on the device does not arrive.
__device__ __noinline__ bool sync_ranks(const symmem_cuda_signal_args &args, sync_words where,
                                        op_result *result, uint64_t start_ns, bool comparing) {
    begin(result, start_ns);
    if (threadIdx.x == 0) {
        // All loads are issued before the first of them is used.
        const uint32_t poisoned = load_volatile(word_at(args, args.rank, 0));
        const uint32_t calls[2] = {load_volatile(call_of(args, args.rank, 0)),
                                   load_volatile(call_of(args, args.rank, 1))};
        result->epoch = load_volatile(word_at(args, args.rank, where.epoch)) + 1;
        result->entered = poisoned == 0;
        if (poisoned != 0)
            decide(result, POISONED, args.rank, 0);
        else if (blockIdx.x == 0)
            show_call(args, result->epoch, comparing, (calls[0] | calls[1]) != CALL_NONE);
    }
    __syncthreads();
    if (result->entered) {
        arrive(args, where, result->epoch);
        if (threadIdx.x == 0)
            *word_at(args, args.rank, where.epoch) = result->epoch; // only this thread reads it
    }
    return finish(args, where, result, comparing);
}

// Returns whether the composite operation of this kernel still runs, and when it began.
__device__ bool join(const symmem_cuda_signal_args &args, uint64_t *start_ns) {
    *start_ns = now_ns();
    if (args.phase == SYMMEM_CUDA_ALONE)
        return true;
    symmem_cuda_state *state = state_of(args);
    if (args.phase == SYMMEM_CUDA_COMPOSITE_STEP && threadIdx.x == 0 &&
        load_state(&state->start_ns) == 0)
        store_state(&state->start_ns, *start_ns);
    __syncthreads();
    if (args.phase != SYMMEM_CUDA_FIRST) {
        *start_ns = load_state(&state->start_ns);
        const uint64_t failed = load_state(&state->failed);
        // A stream that has not reported the failure does so now, if it concerns others.
        return failed == 0 || (args.phase == SYMMEM_CUDA_COMPOSITE_STEP && failed != args.stream &&
                               own_poisoned(args));
    }
    if (threadIdx.x == 0) {
        store_state(&state->start_ns, *start_ns);
        store_state(&state->failed, 0);
    }
    return true;
}

template <operation OP> __device__ void one_slot(const symmem_cuda_signal_args &args) {
    __shared__ op_result result;
    __shared__ symmem_cuda_signal_args kept;
    const uint64_t start_ns = now_ns();
    keep(args, &kept);
    begin(&result, start_ns);
    __syncthreads();
    if (threadIdx.x != 0)
        return;
    if (own_poisoned(kept))
        decide(&result, POISONED, args.rank, 0);
    __threadfence_system();
    if (result.code == OK)
        wait_for<OP>(kept, sync_words(), args.peer, &result);
    __threadfence_system();
    if (result.code != OK)
        fail(kept, &result);
}

} // namespace

extern "C" __global__ void symmem_put_signal(const symmem_cuda_signal_args args) {
    one_slot<PUT>(args);
}

extern "C" __global__ void symmem_wait_signal(const symmem_cuda_signal_args args) {
    one_slot<WAIT>(args);
}

#include "cuda/counts.cuh"
#include "cuda/value.cuh"

// Uses no more registers than a product that fills the device leaves for one warp, because fused
// operations run a barrier beside one.
extern "C" __global__ void __maxnreg__(SYMMEM_CUDA_BARRIER_REGISTERS)
    symmem_barrier(const __grid_constant__ symmem_cuda_signal_args args) {
    __shared__ op_result result;
    __shared__ symmem_cuda_signal_args kept;
    __shared__ bool going;
    uint64_t start_ns;
    keep(args, &kept);
    const bool comparing = args.phase != SYMMEM_CUDA_LATER && args.call[0] != CALL_NONE;
    const bool joins = join(args, &start_ns);
    // one answer for all threads, because another stream's step may fail at this moment
    if (threadIdx.x == 0)
        going = joins;
    __syncthreads();
    if (going)
        (void)sync_ranks(kept, channel_sync_words(args), &result, start_ns, comparing);
}
