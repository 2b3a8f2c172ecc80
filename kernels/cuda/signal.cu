// SPDX-License-Identifier: BSD-3-Clause
// Put, wait and barrier on the device: one small block each.
//
// A kernel that waits looks for what it waits for, then, every LOOKS_BETWEEN_CHECKS looks, for the
// deadline, for its host's word that the state is poisoned or a peer's process has ended, and for a
// peer's word in its own signal state that that is poisoned. A failure is written to host memory
// and the kernel ends: the context goes on working.
#ifndef SYMMEM_CUDA_ON_HOST // tests/fakes/cuda has the words and the clock of it for the CPU
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

// Of symmem_status, negated.
enum code : uint32_t {
    OK = 0,
    NOT_INITIALIZED = 2,
    TIMEOUT = 6,
    PEER_LOST = 7,
    MISMATCH = 8,
    POISONED = 13,
    CORRUPT = 28
};
enum look { READY, ABSENT, BROKEN };
enum operation { BARRIER, PUT, WAIT };

// What became of the block's operation; in shared memory.
struct op_result {
    uint32_t code;
    int32_t failed_rank;
    uint32_t actual;
    uint32_t epoch;
    bool entered;      // the meeting
    uint32_t checked;  // ll.cuh: when somebody of the block looked for failures
    uint64_t start_ns; // of one thread's clock, for all
    uint32_t missing[SYMMEM_CUDA_MAX_RANKS / 32];
    uint32_t other[SYMMEM_CUDA_CALL_WORDS];
};

#ifndef SYMMEM_CUDA_ON_HOST // tests/fakes/cuda has others for the CPU
__device__ uint32_t load_volatile(const uint32_t *word) {
    return *static_cast<const volatile uint32_t *>(word);
}
#endif

// A copy in shared memory, for thread 0 at once and for the others after a __syncthreads(). What a
// function that is called gets by reference is otherwise read from global memory, again and again,
// for an acquire empties the nearest cache; and so is the table, before a peer can be told
// anything.
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

// Where ranks sync_ranks, in each one's signal state: bytes.
struct sync_words {
    size_t arrivals; // a word for each rank
    size_t epoch;
};

__device__ sync_words channel_sync_words(const symmem_cuda_signal_args &args) {
    return {symmem_cuda_arrival_at(args.world_size, args.channel_count, args.channel, 0),
            symmem_cuda_epoch_at(args.world_size, args.channel_count, args.channel)};
}

// Of this block and those of its number. The first one's is the channel's own, so that a rank that
// comes with one block meets whoever comes with any.
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

// The word to look at for `rank`; of a barrier at `where`.
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

// The first failure of the block's is the operation's.
__device__ void decide(op_result *result, uint32_t code, int32_t failed_rank, uint32_t actual) {
    if (atomicCAS(&result->code, OK, code) == OK) {
        result->failed_rank = failed_rank;
        result->actual = actual;
    }
}

// As the device has it. The host writes it there too, before it says that it has; its own word is
// for who waits already, for a look at the host's memory takes as long as a meeting.
__device__ bool own_poisoned(const symmem_cuda_signal_args &args) {
    return load_volatile(word_at(args, args.rank, 0)) != 0;
}

// It may be another processor's clock that says when the operation began, and be ahead: no time
// then.
__device__ uint64_t elapsed_since(uint64_t start_ns) {
    const int64_t elapsed_ns = static_cast<int64_t>(now_ns() - start_ns);
    return elapsed_ns > 0 ? static_cast<uint64_t>(elapsed_ns) : 0;
}

__device__ bool is_late(uint64_t start_ns, uint32_t timeout_ms) {
    return timeout_ms != 0 && elapsed_since(start_ns) >= timeout_ms * NS_PER_MS;
}

// Whether it makes sense to go on waiting for `rank`; the caller looks once more before it acts.
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

// Of a thread that waits: whether check() is due, which looks at the host's memory. Such looks of
// many blocks come one after the other, a microsecond each: were all to look as soon as they wait,
// ranks would keep each other waiting for good.
__device__ bool is_time_to_check(const symmem_cuda_signal_args &args, uint64_t start_ns,
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
        if (code == OK && is_time_to_check(args, result->start_ns, &checked))
            code = check(args, rank, result->start_ns, &failed_rank);
        if (code == OK)
            continue;
        // What the peer did before it ended or was poisoned counts, so look again.
        if (seen != BROKEN && attempt<OP>(word, epoch, &value) == READY)
            return;
        if (code == TIMEOUT || code == PEER_LOST)
            atomicOr(&result->missing[rank / 32], 1u << (rank % 32));
        decide(result, code, failed_rank, code == CORRUPT ? value : 0);
        return;
    }
}

// As one of `threads`; what one of them writes is seen after the next __syncthreads().
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

// All threads.
__device__ void begin(op_result *result, uint64_t start_ns) {
    begin_among(result, start_ns, threadIdx.x, blockDim.x);
}

// One rank late: it is named.
__device__ void name_late(op_result *result) {
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
    if (args.turn == SYMMEM_CUDA_COMPOSITE_STEP)
        return args.state;
    return reinterpret_cast<symmem_cuda_state *>(word_at(
        args, args.rank, symmem_cuda_state_at(args.world_size, args.channel_count, args.channel)));
}

// One thread, after a failure: peers are told, then the host. Of several blocks the first one's is
// the operation's: it has claimed the place before others see the poison that follows from it. In a
// graph that was launched again before the host looked, the first failure stays.
__device__ void fail(const symmem_cuda_signal_args &args, op_result *result) {
    symmem_cuda_fault *fault = args.fault;
    const bool first = load_volatile(&fault->code) == OK && atomicCAS(&fault->claimed, 0, 1) == 0;
    if (args.turn != SYMMEM_CUDA_ALONE && load_state(&state_of(args)->failed) == 0)
        store_state(&state_of(args)->failed, args.stream);
    if (result->code == TIMEOUT || result->code == PEER_LOST)
        name_late(result);
    if (result->code != MISMATCH)
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
}

// --- barrier ---------------------------------------------------------------------------

// After a __syncthreads(): the release is of what the whole block wrote before that.
__device__ void arrive(const symmem_cuda_signal_args &args, sync_words where, uint32_t epoch) {
    for (int32_t rank = threadIdx.x; rank < args.world_size; rank += blockDim.x)
        if (rank != args.rank)
            store_release(arrival(args, where, rank, args.rank), epoch);
}

// Ranks that had not come when another thread gave up.
__device__ void collect_late(const symmem_cuda_signal_args &args, sync_words where, op_result *result) {
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

// All have met: whether they came for the same. The lowest rank that differs is named.
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

// One thread of a first block: this rank's call, if that is to be compared, before anybody is told
// that it came; else that none is, if one is still there. Other blocks' meetings have none.
__device__ void show_call(const symmem_cuda_signal_args &args, uint32_t epoch, bool comparing,
                          bool shown) {
    uint32_t *call = call_of(args, args.rank, epoch);
    if (!comparing && shown)
        call[0] = CALL_NONE;
    for (int i = 0; comparing && i < SYMMEM_CUDA_CALL_WORDS; i++)
        call[i] = args.call[i];
}

// The rest of a meeting for which `result` is begun, and the arrival told if it entered.
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
    __syncthreads(); // before the next one begins
    return met;
}

// One block: all ranks sync_ranks at `where`. False, for every thread: the operation has failed, and
// peers and host know. What the block wrote before is visible to all ranks after it, and what they
// wrote to it. No fence is needed for that: the release and the acquire of each thread come after
// and before a __syncthreads(), and orders pass through.
//
// A rank that is poisoned on the device does not arrive.
__device__ __noinline__ bool sync_ranks(const symmem_cuda_signal_args &args, sync_words where, op_result *result,
                                  uint64_t start_ns, bool comparing) {
    begin(result, start_ns);
    if (threadIdx.x == 0) {
        // All loads before the first of them is used.
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
            *word_at(args, args.rank, where.epoch) = result->epoch; // nobody else looks there
    }
    return finish(args, where, result, comparing);
}

// Whether the operation that this kernel is a part of is still to be run, and when it began.
__device__ bool join(const symmem_cuda_signal_args &args, uint64_t *start_ns) {
    *start_ns = now_ns();
    if (args.turn == SYMMEM_CUDA_ALONE)
        return true;
    symmem_cuda_state *state = state_of(args);
    if (args.turn == SYMMEM_CUDA_COMPOSITE_STEP && threadIdx.x == 0 && load_state(&state->start_ns) == 0)
        store_state(&state->start_ns, *start_ns);
    __syncthreads();
    if (args.turn != SYMMEM_CUDA_FIRST) {
        *start_ns = load_state(&state->start_ns);
        const uint64_t failed = load_state(&state->failed);
        // A stream that has not told of the failure does so now, if that concerns others.
        return failed == 0 ||
               (args.turn == SYMMEM_CUDA_COMPOSITE_STEP && failed != args.stream && own_poisoned(args));
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

// No more registers than a product that fills the device leaves for one warp: fused operations sync_ranks
// beside one.
extern "C" __global__ void __maxnreg__(SYMMEM_CUDA_BARRIER_REGISTERS)
    symmem_barrier(const __grid_constant__ symmem_cuda_signal_args args) {
    __shared__ op_result result;
    __shared__ symmem_cuda_signal_args kept;
    __shared__ bool going;
    uint64_t start_ns;
    keep(args, &kept);
    const bool comparing = args.turn != SYMMEM_CUDA_LATER && args.call[0] != CALL_NONE;
    const bool joins = join(args, &start_ns);
    if (threadIdx.x == 0) // for all: another stream's part may fail just now
        going = joins;
    __syncthreads();
    if (going)
        (void)sync_ranks(kept, channel_sync_words(args), &result, start_ns, comparing);
}
