// SPDX-License-Identifier: BSD-3-Clause
// Collectives on the device. collective_plan.h says what their steps are.
//
// One that is meeting, step, meeting is one kernel of several blocks, unless it is very large or on
// a high channel. Each block meets those of its number on the other ranks and waits for no other of
// its own rank. All ranks have as many blocks, which follows from what they pass alike; where ranks
// compare that, they have met and done so in a kernel before. All blocks of all ranks that share a
// device must fit there at once, or they wait for those that do not run: hence so few, and those
// channels only.
//
// Of the others a large one is a kernel for each step, one after the other on a stream: a meeting
// is the barrier's kernel, one block, and what moves and reduces has as many blocks as it likes,
// for they wait for nobody. A small one, or one of many small pieces, is one kernel of one block
// that does all of it. Of these ranks need not choose alike: they only meet as often.
//
// A small all-reduce is a kernel in which ranks meet, so that what peers wrote before is there,
// push their elements to all as lines (lines.cuh), and each reduces what came: no meeting follows,
// for nobody has read another one's memory. Again as many blocks on all ranks.
//
// This file takes in that of the signals, for the same meeting in all, and at its end the common
// reductions and that of the products: one image.
#include "cuda/signal.cu"

#include "cuda/near.cuh"

#include "cuda/collective.h"
#include "cuda/lines.cuh"
#include "cuda/reduce_loop.h"

namespace {

struct bytes_only {
    static __device__ void run(const symmem_cuda_job &, const symmem_cuda_step &, size_t, size_t) {}
    static __device__ void run_lines(const symmem_cuda_collective_args &, verdict *) {}
};

// --- lines -----------------------------------------------------------------------------

__device__ symmem::line *line_of(const symmem_cuda_signal_args &signal, int32_t owner, size_t block,
                                 int32_t source, size_t lane) {
    char *lines = static_cast<char *>(signal.signals[owner]) +
                  symmem_cuda_line_at(signal.world_size, signal.channel_count, signal.channel,
                                      static_cast<int32_t>(block), source);
    return reinterpret_cast<symmem::line *>(lines) + lane;
}

// Visits the lines of this block: its number, the lane, and the first of the elements.
template <typename Visit>
__device__ bool for_each_line(const symmem_cuda_collective_args &args, Visit visit) {
    const size_t each = SYMMEM_CUDA_LINE_DATA / args.job.element;
    for (size_t block = blockIdx.x; block * SYMMEM_CUDA_LINES * each < args.job.count;
         block += gridDim.x)
        for (size_t lane = threadIdx.x; lane < SYMMEM_CUDA_LINES; lane += blockDim.x) {
            const size_t first = (block * SYMMEM_CUDA_LINES + lane) * each;
            if (first < args.job.count && !visit(block, lane, first))
                return false;
        }
    return true;
}

// Of a signed one no more than it has.
template <typename Bits> __device__ uint64_t raw_bits(Bits element) {
    uint64_t raw = 0;
    memcpy(&raw, &element, sizeof element); // the low bytes come first
    return raw;
}

// Up to a line's data; elements behind the last are zeros.
template <typename Bits>
__device__ uint64_t load_data(const char *from, size_t first, size_t count) {
    const size_t each = SYMMEM_CUDA_LINE_DATA / sizeof(Bits);
    const Bits *elements = reinterpret_cast<const Bits *>(from) + first;
    uint64_t data = 0;
    if (count - first >= each && reinterpret_cast<uintptr_t>(elements) % sizeof data == 0)
        return *reinterpret_cast<const uint64_t *>(elements);
    for (size_t i = 0; i < each && i < count - first; i++)
        data |= raw_bits(elements[i]) << (8 * sizeof(Bits) * i);
    return data;
}

template <typename Bits>
__device__ void store_data(char *to, size_t first, size_t count, uint64_t data) {
    const size_t each = SYMMEM_CUDA_LINE_DATA / sizeof(Bits);
    Bits *elements = reinterpret_cast<Bits *>(to) + first;
    if (count - first >= each && reinterpret_cast<uintptr_t>(elements) % sizeof data == 0) {
        *reinterpret_cast<uint64_t *>(elements) = data;
        return;
    }
    for (size_t i = 0; i < each && i < count - first; i++)
        elements[i] = static_cast<Bits>(data >> (8 * sizeof(Bits) * i));
}

// To all ranks, the own one too: what is pushed is read once, before anybody can be through.
template <typename Bits>
__device__ void push_lines(const symmem_cuda_collective_args &args, const char *src,
                           uint32_t flag) {
    (void)for_each_line(args, [&](size_t block, size_t lane, size_t first) {
        const symmem::line own =
            symmem::make_line(load_data<Bits>(src, first, args.job.count), flag);
        for (int32_t i = 0; i < args.job.world_size; i++) {
            const int32_t rank = symmem_cuda_turn_of(&args.job, i);
            symmem::store_line(line_of(args.signal, rank, block, args.job.rank, lane), own);
        }
        return true;
    });
}

// False: it does not come.
__device__ __noinline__ bool wait_for_line(const symmem_cuda_signal_args &args,
                                           const symmem::line *from, int32_t source, uint32_t flag,
                                           verdict *verdict, symmem::line *found) {
    for (;;) {
#pragma unroll 1
        for (int i = 0; i < LOOKS_BETWEEN_CHECKS; i++) {
            *found = symmem::load_line(from);
            if (symmem::is_full(*found, flag))
                return true;
        }
        if (load_volatile(&verdict->code) != OK)
            return false;
        int32_t failed_rank = source;
        const uint32_t code = check(args, source, verdict->start_ns, &failed_rank);
        if (code == OK)
            continue;
        *found = symmem::load_line(from);
        if (symmem::is_full(*found, flag))
            return true;
        if (code == TIMEOUT || code == PEER_LOST)
            atomicOr(&verdict->missing[source / 32], 1u << (source % 32));
        decide(verdict, code, failed_rank, 0);
        return false;
    }
}

// Ranks whose lines had not come when another thread gave up: their first one in this block.
__device__ void collect_late_lines(const symmem_cuda_signal_args &args, verdict *verdict) {
    const uint32_t flag = symmem::line_flag(verdict->epoch);
    for (int32_t rank = threadIdx.x; rank < args.world_size; rank += blockDim.x)
        if (rank != args.rank &&
            !symmem::is_full(symmem::load_line(line_of(args, args.rank, blockIdx.x, rank, 0)),
                             flag))
            atomicOr(&verdict->missing[rank / 32], 1u << (rank % 32));
}

// Of the elements of one line from all sources, in rank order. Some loads are under way before the
// first of them is looked at.
template <typename Element>
__device__ bool reduce_line(const symmem_cuda_collective_args &args, size_t block, size_t lane,
                            uint32_t flag, verdict *verdict, uint64_t *result) {
    typedef typename Element::bits bits;
    constexpr int EACH = SYMMEM_CUDA_LINE_DATA / sizeof(bits), AT_ONCE = 8;
    const symmem::line *from = line_of(args.signal, args.job.rank, block, 0, lane);
    typename Element::value sum[EACH] = {};
    for (int32_t begin = 0; begin < args.job.world_size; begin += AT_ONCE) {
        symmem::line found[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            if (begin + k < args.job.world_size)
                found[k] = symmem::load_line(from + (begin + k) * SYMMEM_CUDA_LINES);
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const int32_t source = begin + k;
            if (source >= args.job.world_size)
                continue;
            symmem::line own = found[k]; // so that `found` stays in registers
            if (!symmem::is_full(own, flag) &&
                !wait_for_line(args.signal, from + source * SYMMEM_CUDA_LINES, source, flag,
                               verdict, &own))
                return false;
            const uint64_t data = symmem::data_of(own);
#pragma unroll
            for (int i = 0; i < EACH; i++) {
                const typename Element::value next =
                    Element::load(static_cast<bits>(data >> (8 * sizeof(bits) * i)));
                sum[i] = source == 0 ? next : Element::combine(sum[i], next, args.job.op);
            }
        }
    }
    *result = 0;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const bits element =
            Element::store(Element::finish(sum[i], args.job.world_size, args.job.op));
        *result |= raw_bits(element) << (8 * sizeof(bits) * i);
    }
    return true;
}

// Without another meeting: that of the operation has been before, in a kernel of its own. The next
// one of this channel that compares calls shows its own where this operation's is. Nobody looks
// there any more: whoever is through has had a line from each rank's kernel behind the comparing one.
__device__ void begin_after(const symmem_cuda_signal_args &args, verdict *result,
                            uint64_t start_ns) {
    begin(result, start_ns);
    if (threadIdx.x == 0) {
        uint32_t *epoch = word_at(args, args.rank, block_spot(args).epoch);
        result->epoch = load_volatile(epoch) + 1;
        *epoch = result->epoch;
    }
    __syncthreads();
}

template <typename Element> struct reduces {
    static __device__ void run_lines(const symmem_cuda_collective_args &args, verdict *result) {
        typedef typename Element::bits bits;
        const symmem_cuda_pushed pushed = symmem_cuda_pushed_of(&args.job);
        const uint32_t flag = symmem::line_flag(result->epoch);
        push_lines<bits>(args, pushed.src, flag);
        (void)for_each_line(args, [&](size_t block, size_t lane, size_t first) {
            uint64_t data;
            if (!reduce_line<Element>(args, block, lane, flag, result, &data))
                return false;
            store_data<bits>(pushed.dst, first, args.job.count, data);
            return true;
        });
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

// One block: no rank moves anything unless all splits fit. Every rank comes to the same conclusion.
__device__ __noinline__ bool agree(const symmem_cuda_collective_args &args, verdict *result,
                                   uint64_t start_ns) {
    __shared__ symmem_cuda_dispute found;
    if (threadIdx.x == 0)
        symmem_cuda_show_verdict(&args.job);
    if (!meet(args.signal, channel_spot(args.signal), result, start_ns, false))
        return false;
    if (threadIdx.x == 0)
        found = symmem_cuda_find_dispute(&args.job);
    __syncthreads();
    if (found.rank < 0)
        return true;
    // Before the next operation writes the boards, all have read them.
    if (!meet(args.signal, channel_spot(args.signal), result, start_ns, false))
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
    __shared__ verdict result;
    const uint64_t start_ns = now_ns();
    symmem_cuda_place place = {};
    symmem_cuda_step step;
    bool going = true;
    while (going && symmem_cuda_next(&args.job, &place, &step)) {
        if (step.kind == SYMMEM_CUDA_MEET)
            going = meet(args.signal, channel_spot(args.signal), &result, start_ns,
                         step.first && args.signal.call[0] != CALL_NONE);
        else if (step.kind == SYMMEM_CUDA_AGREE)
            going = agree(args, &result, start_ns);
        else
            work<Reduce>(args.job, step, threadIdx.x, blockDim.x);
        __syncthreads(); // each step is complete before the next one
    }
}

__device__ void agree_alone(const symmem_cuda_collective_args &args) {
    __shared__ verdict result;
    __shared__ bool going;
    uint64_t start_ns;
    const bool joins = join(args.signal, &start_ns);
    if (threadIdx.x == 0) // for all, as in a barrier
        going = joins;
    __syncthreads();
    if (going)
        (void)agree(args, &result, start_ns);
}

// Of a kernel behind the operation's meeting; another block may fail just now.
__device__ bool goes_on(const symmem_cuda_signal_args &args, uint64_t *start_ns) {
    const symmem_cuda_state *state = state_of(args);
    const bool going = is_unbroken(&state->failed);
    *start_ns = load_state(&state->start_ns);
    return going;
}

// The lane of a thread and how many there are, over all blocks.
__device__ size_t own_lane() {
    return blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x;
}

__device__ size_t all_lanes() {
    return gridDim.x * static_cast<size_t>(blockDim.x);
}

// A meeting, one step, a meeting; but where ranks compare their calls, a barrier's kernel was the
// first one.
template <typename Reduce> __device__ void run_spread(const symmem_cuda_collective_args &args) {
    __shared__ verdict result;
    const spot where = block_spot(args.signal);
    uint64_t start_ns = now_ns();
    if (args.way == SYMMEM_CUDA_IN_BLOCKS_AFTER) {
        if (!goes_on(args.signal, &start_ns))
            return;
    } else if (!meet(args.signal, where, &result, start_ns, false)) {
        return;
    }
    work<Reduce>(args.job, args.step, own_lane(), all_lanes());
    (void)meet(args.signal, where, &result, start_ns, false);
}

template <typename Reduce> __device__ void run_by_lines(const symmem_cuda_collective_args &args) {
    __shared__ verdict result;
    const symmem_cuda_signal_args &signal = args.signal;
    const spot where = block_spot(signal);
    uint64_t start_ns = now_ns();
    if (args.way == SYMMEM_CUDA_BY_LINES_AFTER) {
        if (!goes_on(signal, &start_ns))
            return;
        begin_after(signal, &result, start_ns);
    } else if (!meet(signal, where, &result, start_ns, signal.call[0] != CALL_NONE)) {
        return;
    }
    Reduce::run_lines(args, &result);
    __syncthreads();
    if (result.code == TIMEOUT || result.code == PEER_LOST)
        collect_late_lines(signal, &result);
    __syncthreads();
    const bool failed = result.code != OK;
    if (failed && threadIdx.x == 0)
        fail(signal, &result);
    __syncthreads(); // before the next meeting begins
    if (!failed && symmem_cuda_pushed_of(&args.job).meets_after)
        (void)meet(signal, where, &result, start_ns, false);
}

// As keep, with the tables of the job.
__device__ void keep_all(const symmem_cuda_collective_args &args,
                         symmem_cuda_collective_args *kept) {
    if (threadIdx.x != 0)
        return;
    *kept = args;
    if (args.signal.world_size > SYMMEM_CUDA_NEAR_RANKS)
        return;
    kept->signal.signals = kept->job.signals = kept->signal.near;
    kept->job.buffers = kept->near_buffers;
}

// One thread: whether the block is to do anything. A call without a stream may have been withdrawn,
// and its caller's memory given back. The host stops such calls first and then looks whether as many
// blocks have ended as have begun: each comes after the fence of the other, so that a block which
// does not find the word is one that the host finds.
__device__ bool begin_block(const symmem_cuda_signal_args &args) {
    if (args.stream != SYMMEM_CUDA_NO_STREAM)
        return true;
    symmem_cuda_state *state = state_of(args);
    atomicAdd(&state->begun, 1u);
    __threadfence_system();
    return load_volatile(&state->stopped) == 0;
}

// All threads.
__device__ void end_block(const symmem_cuda_signal_args &args) {
    if (args.stream != SYMMEM_CUDA_NO_STREAM)
        return;
    __syncthreads();
    if (threadIdx.x != 0)
        return;
    __threadfence_system();
    atomicAdd(&state_of(args)->ended, 1u);
}

template <typename Reduce> __device__ void run_way(const symmem_cuda_collective_args &args) {
    if (args.way >= SYMMEM_CUDA_BY_LINES)
        run_by_lines<Reduce>(args);
    else if (args.way == SYMMEM_CUDA_ALL_STEPS)
        run_all<Reduce>(args);
    else if (args.way != SYMMEM_CUDA_ONE_STEP)
        run_spread<Reduce>(args);
    else if (args.step.kind == SYMMEM_CUDA_AGREE)
        agree_alone(args);
    else if (args.step.first || is_unbroken(&state_of(args.signal)->failed))
        work<Reduce>(args.job, args.step, own_lane(), all_lanes());
}

template <typename Reduce> __device__ void run(const symmem_cuda_collective_args &given) {
    __shared__ symmem_cuda_collective_args args;
    __shared__ bool going;
    keep_all(given, &args);
    if (threadIdx.x == 0)
        going = begin_block(args.signal);
    __syncthreads();
    if (going)
        run_way<Reduce>(args);
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

extern "C" __global__ void symmem_show_words(const __grid_constant__ symmem_cuda_show_args args) {
    for (uint32_t i = threadIdx.x; i < args.count; i += blockDim.x)
        args.to[i] = args.words[i];
}

// Once a part has failed, the rest of the operation does nothing.
extern "C" __global__ void __launch_bounds__(SYMMEM_CUDA_COLLECTIVE_THREADS)
    symmem_move_part(const __grid_constant__ symmem_cuda_part_args args) {
    if (is_unbroken(&args.state->failed))
        symmem_cuda_move(args.segment, own_lane(), all_lanes());
}

#include "cuda/plain.cuh"

#include "cuda/product.cu"
