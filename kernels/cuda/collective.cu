// SPDX-License-Identifier: BSD-3-Clause
// Collectives on the device. collective_plan.h defines their steps.
//
// An operation that is barrier, step, barrier is one kernel of several blocks, unless it is very
// large or on a high channel. Each block synchronizes with the blocks of its number on the other
// ranks and waits for no other block of its own rank. All ranks have the same number of blocks,
// which follows from arguments that are the same on all ranks. If ranks compare those, a barrier
// kernel before has done it. All blocks of all ranks that share a device must fit there at once, or
// they wait for blocks that do not run. Hence the low limits on blocks and channels.
//
// Another large operation is a kernel for each step, in order on a stream. A barrier is the barrier
// kernel, with one block. A kernel that moves or reduces has as many blocks as it likes, because
// they wait for no other. A small operation, or one of many small pieces, is one kernel of one
// block that runs all steps. Ranks may choose differently between these two, because both have the
// same number of barriers.
//
// A small operation is a kernel in which ranks push their elements to all others with flags, round
// by round (ll.cuh). Each rank reduces or stores what arrives, and there is no barrier. A large
// operation of two ranks does the same by chunks, each with one flag (chunks.cuh). Here too all
// ranks have the same number of blocks.
//
// This file includes signal.cu, for the same barrier in all kernels, and at its end the fast
// reductions and product.cu. All kernels are one image.
#include "cuda/signal.cu"

#include "cuda/barrier_small.cuh"

#include "cuda/collective.h"
#include "cuda/reduce_loop.h"

namespace {

// A signed element has no more bits than its type.
template <typename Bits> __device__ uint64_t raw_bits(Bits element) {
    uint64_t raw = 0;
    memcpy(&raw, &element, sizeof element); // little-endian: the low bytes come first
    return raw;
}

} // namespace

namespace {

// Returns the index of this thread over all blocks. all_lanes returns the number of threads.
__device__ size_t own_lane() {
    return blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x;
}

__device__ size_t all_lanes() {
    return gridDim.x * static_cast<size_t>(blockDim.x);
}

} // namespace

#include "cuda/ll.cuh"

#include "cuda/chunks.cuh"

namespace {

// The parts of a kernel that not all kernels have. FETCHES_PARTS marks all-to-alls, whose ranks may
// have to agree on splits. Other kernels have no code for that.
struct bytes_only {
    static constexpr bool FETCHES_PARTS = true;

    static __device__ void run(const symmem_cuda_job &, const symmem_cuda_step &, size_t, size_t) {}

    static __device__ exchanging_ops exchange(const symmem_cuda_collective_args &args) {
        const symmem_cuda_exchange &moved = args.exchange;
        return {
            {args, {}, moved.push_bytes > moved.pull_bytes ? moved.push_bytes : moved.pull_bytes}};
    }

    static __device__ void run_chunks(const symmem_cuda_collective_args &args, uint64_t start_ns,
                                      op_result *result) {
        run_general_chunks(exchange(args), start_ns, result);
    }

    static __device__ void run_lines(const symmem_cuda_collective_args &args, uint64_t start_ns,
                                     op_result *result) {
        const gathering_ops gathers = {
            {args, symmem_cuda_pushed_of(&args.job), args.job.count * args.job.element}};
        if (args.job.world_size == 2)
            run_general(exchange(args), start_ns, result);
        else
            run_general(gathers, start_ns, result);
    }
};

template <typename Element> struct reduces {
    static constexpr bool FETCHES_PARTS = false;

    static __device__ void run_lines(const symmem_cuda_collective_args &args, uint64_t start_ns,
                                     op_result *result) {
        const reducing_ops<Element> ops = {
            {args, symmem_cuda_pushed_of(&args.job), args.job.count}};
        run_general(ops, start_ns, result);
    }

    static __device__ void run_chunks(const symmem_cuda_collective_args &args, uint64_t start_ns,
                                      op_result *result) {
        const reducing_ops<Element> ops = {
            {args, symmem_cuda_pushed_of(&args.job), args.job.count}};
        run_general_chunks(ops, start_ns, result);
    }

    static __device__ void run(const symmem_cuda_job &job, const symmem_cuda_step &step,
                               size_t lane, size_t lanes) {
        symmem_cuda_run_reduce<Element>(job, step, lane, lanes);
    }
};

template <typename Reduce>
__device__ void work(const symmem_cuda_job &job, const symmem_cuda_step &step, size_t lane,
                     size_t lanes) {
    if (step.kind == SYMMEM_CUDA_MOVE)
        symmem_cuda_run_move(job, step, lane, lanes);
    else if (step.kind == SYMMEM_CUDA_SWAP)
        symmem_cuda_run_swap(job, step, lane, lanes);
    else
        Reduce::run(job, step, lane, lanes);
}

// Fails the operation because `rank` published an invalid value.
__device__ bool fail_corrupt(const symmem_cuda_collective_args &args, int32_t rank, uint64_t value,
                             op_result *result) {
    if (threadIdx.x == 0) {
        decide(result, CORRUPT, rank, static_cast<uint32_t>(value));
        fail(args.signal, result);
    }
    return false;
}

// Returns false if a step would follow an invalid split table. A table that is changed after this
// check makes no step move anything.
__device__ __noinline__ bool splits_are_valid(const symmem_cuda_collective_args &args,
                                              op_result *result, uint64_t start_ns) {
    __shared__ int32_t wrong;
    begin(result, start_ns);
    if (threadIdx.x == 0)
        wrong = symmem_cuda_invalid_split(&args.job);
    __syncthreads();
    return wrong == args.job.world_size || fail_corrupt(args, wrong, 0, result);
}

template <typename Reduce> __device__ bool fetches_parts(const symmem_cuda_step &step) {
    return Reduce::FETCHES_PARTS && step.kind == SYMMEM_CUDA_MOVE &&
           step.route == SYMMEM_CUDA_FETCH_PARTS;
}

// Called by one block. No rank moves anything unless all splits fit. Every rank reaches the same
// conclusion.
__device__ __noinline__ bool agree(const symmem_cuda_collective_args &args, op_result *result,
                                   uint64_t start_ns) {
    __shared__ symmem_cuda_split_mismatch found;
    if (!splits_are_valid(args, result, start_ns))
        return false;
    if (threadIdx.x == 0)
        symmem_cuda_publish_split_check(&args.job);
    if (!sync_ranks(args.signal, channel_sync_words(args.signal), result, start_ns, false))
        return false;
    if (threadIdx.x == 0)
        found = symmem_cuda_find_split_mismatch(&args.job);
    __syncthreads();
    if (found.rank < 0)
        return true;
    if (found.corrupt)
        return fail_corrupt(args, found.rank, found.own, result);
    // All ranks must have read the tables before the next operation writes them.
    if (!sync_ranks(args.signal, channel_sync_words(args.signal), result, start_ns, false))
        return false;
    if (threadIdx.x == 0) {
        decide(result, MISMATCH, found.rank, found.own);
        for (int i = 0; i < SYMMEM_CUDA_CALL_WORDS; i++)
            result->other[i] = args.signal.call[i];
        memcpy(&result->other[2], &found.other, sizeof found.other); // symmem_call_id's count
        fail(args.signal, result);
    }
    return false;
}

template <typename Reduce> __device__ void run_all(const symmem_cuda_collective_args &args) {
    __shared__ op_result result;
    const uint64_t start_ns = now_ns();
    symmem_cuda_cursor place = {};
    symmem_cuda_step step;
    bool going = true;
    while (going && symmem_cuda_next(&args.job, &place, &step)) {
        if (step.kind == SYMMEM_CUDA_SYNC)
            going = sync_ranks(args.signal, channel_sync_words(args.signal), &result, start_ns,
                               step.first && args.signal.call[0] != CALL_NONE);
        else if (Reduce::FETCHES_PARTS && step.kind == SYMMEM_CUDA_AGREE)
            going = agree(args, &result, start_ns);
        else if (fetches_parts<Reduce>(step) && !splits_are_valid(args, &result, start_ns))
            going = false;
        else
            work<Reduce>(args.job, step, threadIdx.x, blockDim.x);
        __syncthreads(); // each step is complete before the next one
    }
}

__device__ void agree_alone(const symmem_cuda_collective_args &args) {
    __shared__ op_result result;
    __shared__ bool going;
    uint64_t start_ns;
    const bool joins = join(args.signal, &start_ns);
    if (threadIdx.x == 0) // one answer for all threads, as in a barrier
        going = joins;
    __syncthreads();
    if (going)
        (void)agree(args, &result, start_ns);
}

// For a kernel after the operation's first barrier. Another block may fail at this moment.
__device__ bool goes_on(const symmem_cuda_signal_args &args, uint64_t *start_ns) {
    const symmem_cuda_state *state = state_of(args);
    const bool going = is_unbroken(&state->failed);
    *start_ns = load_state(&state->start_ns);
    return going;
}

// Barrier, one step, barrier. If ranks compare their calls, a barrier kernel was the first one.
template <typename Reduce> __device__ void run_per_block(const symmem_cuda_collective_args &args) {
    __shared__ op_result result;
    const sync_words where = block_sync_words(args.signal);
    uint64_t start_ns = now_ns();
    if (args.algorithm == SYMMEM_CUDA_PER_BLOCK_AFTER_BARRIER) {
        if (!goes_on(args.signal, &start_ns))
            return;
    } else if (!sync_ranks(args.signal, where, &result, start_ns, false)) {
        return;
    }
    if (fetches_parts<Reduce>(args.step) && !splits_are_valid(args, &result, start_ns))
        return;
    work<Reduce>(args.job, args.step, own_lane(), all_lanes());
    (void)sync_ranks(args.signal, where, &result, start_ns, false);
}

template <typename Reduce> __device__ void run_ll(const symmem_cuda_collective_args &args) {
    __shared__ op_result result;
    uint64_t start_ns = 0;
    if ((args.algorithm == SYMMEM_CUDA_LL_AFTER_BARRIER ||
         args.algorithm == SYMMEM_CUDA_CHUNKS_AFTER_BARRIER) &&
        !goes_on(args.signal, &start_ns))
        return;
    if (args.algorithm >= SYMMEM_CUDA_CHUNKS)
        Reduce::run_chunks(args, start_ns, &result);
    else
        Reduce::run_lines(args, start_ns, &result);
}

// Like keep, with the tables of the job.
__device__ void keep_all(const symmem_cuda_collective_args &args,
                         symmem_cuda_collective_args *kept) {
    if (threadIdx.x != 0)
        return;
    *kept = args;
    if (args.signal.world_size > SYMMEM_CUDA_SMALL_RANKS)
        return;
    kept->signal.signals = kept->job.signals = kept->signal.small;
    kept->job.buffers = kept->small_buffers;
}

// Called by one thread. Returns whether the block is to do anything. A call without a stream may
// have been abandoned, and its caller's memory freed. The host first stops such calls, then checks
// whether as many blocks have ended as have begun. Each access follows the other side's fence. So
// the host finds every block that does not find the word.
__device__ bool begin_block(const symmem_cuda_signal_args &args) {
    if (args.stream != SYMMEM_CUDA_NO_STREAM)
        return true;
    symmem_cuda_state *state = state_of(args);
    atomicAdd(&state->begun, 1u);
    __threadfence_system();
    return load_volatile(&state->stopped) == 0;
}

// Called by all threads.
__device__ void end_block(const symmem_cuda_signal_args &args) {
    if (args.stream != SYMMEM_CUDA_NO_STREAM)
        return;
    __syncthreads();
    if (threadIdx.x != 0)
        return;
    __threadfence_system();
    atomicAdd(&state_of(args)->ended, 1u);
}

// One kernel of several.
template <typename Reduce> __device__ void run_step(const symmem_cuda_collective_args &args) {
    __shared__ op_result result;
    if (!fetches_parts<Reduce>(args.step) || splits_are_valid(args, &result, now_ns()))
        work<Reduce>(args.job, args.step, own_lane(), all_lanes());
}

template <typename Reduce> __device__ void run_algorithm(const symmem_cuda_collective_args &args) {
    if (args.algorithm >= SYMMEM_CUDA_LL)
        run_ll<Reduce>(args);
    else if (args.algorithm == SYMMEM_CUDA_ONE_BLOCK)
        run_all<Reduce>(args);
    else if (args.algorithm != SYMMEM_CUDA_ONE_STEP)
        run_per_block<Reduce>(args);
    else if (Reduce::FETCHES_PARTS && args.step.kind == SYMMEM_CUDA_AGREE)
        agree_alone(args);
    else if (args.step.first || is_unbroken(&state_of(args.signal)->failed))
        run_step<Reduce>(args);
}

template <typename Reduce> __device__ void run(const symmem_cuda_collective_args &given) {
    __shared__ symmem_cuda_collective_args args;
    __shared__ bool going;
    keep_all(given, &args);
    if (threadIdx.x == 0)
        going = begin_block(args.signal);
    __syncthreads();
    if (going)
        run_algorithm<Reduce>(args);
    end_block(args.signal);
}

} // namespace

#define KERNEL(name, reduce)                                                                       \
    extern "C" __global__ void __launch_bounds__(SYMMEM_CUDA_COLLECTIVE_THREADS)                   \
        symmem_collective_##name(const __grid_constant__ symmem_cuda_collective_args args) {       \
        run<reduce>(args);                                                                         \
    }

KERNEL(bytes, bytes_only)
KERNEL(u8, reduces<symmem_cuda_unsigned<uint8_t>>)
KERNEL(i8, reduces<symmem_cuda_signed<int8_t>>)
KERNEL(i16, reduces<symmem_cuda_signed<int16_t>>)
KERNEL(u16, reduces<symmem_cuda_unsigned<uint16_t>>)
KERNEL(i32, reduces<symmem_cuda_signed<int32_t>>)
KERNEL(u32, reduces<symmem_cuda_unsigned<uint32_t>>)
KERNEL(i64, reduces<symmem_cuda_signed<int64_t>>)
KERNEL(u64, reduces<symmem_cuda_unsigned<uint64_t>>)
KERNEL(f16, reduces<symmem_cuda_f16>)
KERNEL(bf16, reduces<symmem_cuda_bf16>)
KERNEL(f32, reduces<symmem_cuda_f32>)
KERNEL(f64, reduces<symmem_cuda_f64>)

#undef KERNEL

extern "C" __global__ void
symmem_store_words(const __grid_constant__ symmem_cuda_store_words_args args) {
    for (uint32_t i = threadIdx.x; i < args.count; i += blockDim.x)
        args.to[i] = args.words[i];
}

// After one step has failed, the rest of the operation does nothing.
extern "C" __global__ void __launch_bounds__(SYMMEM_CUDA_COLLECTIVE_THREADS)
    symmem_composite_move(const __grid_constant__ symmem_cuda_composite_args args) {
    if (is_unbroken(&args.state->failed))
        symmem_cuda_move(args.segment, own_lane(), all_lanes());
}

#include "cuda/splits.cuh"

#include "cuda/allreduce_fast.cuh"

#include "cuda/product.cu"

#include "cuda/tile.cu"
