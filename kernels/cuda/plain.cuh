// SPDX-License-Identifier: BSD-3-Clause
// The common reductions: kernels of their own for sums of few ranks that lie in whole units
// everywhere. The host has found that out, and there is little code and hardly a stack. They
// meet, and put their lines, as the others do, so that of these ranks need not choose alike.
#ifndef SYMMEM_KERNELS_CUDA_PLAIN_CUH
#define SYMMEM_KERNELS_CUDA_PLAIN_CUH

#include "cuda/collective.h"
#include "cuda/lines.cuh"
#include "cuda/near.cuh"
#include "cuda/reduce_loop.h"

static_assert(SYMMEM_CUDA_COLLECTIVE_THREADS >= SYMMEM_CUDA_NEAR_THREADS &&
                  SYMMEM_CUDA_WIDE_THREADS >= SYMMEM_CUDA_NEAR_THREADS,
              "somebody looks");

namespace {

// The state of the second meeting, looked up beside what comes before that.
__device__ uint32_t look_ahead(const symmem_cuda_near &near) {
    return threadIdx.x < TEAM ? load_volatile(near_word(near, 0, 0)) : 0;
}

// --- lines -------------------------------------------------------------------------------

// Each thread has one at most: the host launches as many. A warp's one thread has them all.
template <typename Visit> __device__ bool for_own_lines(uint32_t lines, Visit visit) {
    const uint32_t first = blockIdx.x * SYMMEM_CUDA_LINES + threadIdx.x;
#ifdef SYMMEM_CUDA_LONE_LANE
    for (uint32_t line = first; line < lines; line++)
        if (!visit(line))
            return false;
    return true;
#else
    return first >= lines || visit(first);
#endif
}

// What a line's place in a rank's signal state is; from source to source it is LINES_APART further.
constexpr uint32_t LINES_APART = SYMMEM_CUDA_LINES * sizeof(symmem::line);

__device__ uint32_t place_of(const symmem_cuda_plain_args &args, uint32_t line) {
    const uint32_t block = line / SYMMEM_CUDA_LINES, lane = line % SYMMEM_CUDA_LINES;
    return args.lines_at + block * args.near.ranks * LINES_APART +
           lane * static_cast<uint32_t>(sizeof(symmem::line));
}

template <typename Element, int Most>
__device__ uint64_t sum_of_lines(const uint64_t *data, uint32_t ranks, int32_t op) {
    typedef typename Element::bits bits;
    constexpr int EACH = SYMMEM_CUDA_LINE_DATA / sizeof(bits);
    typename Element::value sums[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        sums[i] = Element::load(static_cast<bits>(data[0] >> (8 * sizeof(bits) * i)));
#pragma unroll
        for (uint32_t k = 1; k < Most; k++)
            if (k < ranks)
                sums[i] = Element::combine(
                    sums[i], Element::load(static_cast<bits>(data[k] >> (8 * sizeof(bits) * i))),
                    SYMMEM_CUDA_SUM);
    }
    bits ended[EACH];
    symmem_cuda_end_all<Element, EACH>(sums, static_cast<int32_t>(ranks), op, ended);
    uint64_t all = 0;
#pragma unroll
    for (int i = 0; i < EACH; i++)
        all |= raw_bits(ended[i]) << (8 * sizeof(bits) * i);
    return all;
}

// Lines that did not come soon, one after the other. False: one does not come at all.
template <int Most>
__device__ __noinline__ bool await_lines(const symmem_cuda_signal_args &args, const char *from,
                                         uint32_t flag, verdict *result, uint64_t *data) {
    for (int32_t k = 0; k < Most && k < args.world_size; k++) {
        symmem::line late;
        if (k == args.rank)
            continue;
        if (!wait_for_line(args, reinterpret_cast<const symmem::line *>(from + k * LINES_APART), k,
                           flag, result, &late))
            return false;
        data[k] = symmem::data_of(late);
    }
    return true;
}

// The own line goes to all peers; what they have for the same place is looked for at once.
template <typename Element, int Most>
__device__ bool plain_line(const symmem_cuda_plain_args &args, uint32_t line, uint32_t flag,
                           verdict *result) {
    const uint32_t rank = args.near.rank, ranks = Most == 2 ? 2 : args.near.ranks;
    const size_t at = static_cast<size_t>(line) * SYMMEM_CUDA_LINE_DATA;
    const uint64_t own = *reinterpret_cast<const uint64_t *>(args.from[0] + at);
    const symmem::line pushed = symmem::make_line(own, flag);
    const uint32_t place = place_of(args, line);
#pragma unroll
    for (uint32_t turn = 1; turn < Most; turn++)
        if (turn < ranks)
            symmem::store_line(reinterpret_cast<symmem::line *>(args.near.signals[turn] + place +
                                                                rank * LINES_APART),
                               pushed);
    const char *from = args.near.signals[0] + place;
    uint64_t data[Most];
    bool full = false;
#pragma unroll 1
    for (int look = 0; look < LOOKS_BETWEEN_CHECKS && !full; look++) {
        symmem::line found[Most];
#pragma unroll
        for (uint32_t k = 0; k < Most; k++)
            if (k < ranks && k != rank)
                found[k] = symmem::load_line(
                    reinterpret_cast<const symmem::line *>(from + k * LINES_APART));
        full = true;
#pragma unroll
        for (uint32_t k = 0; k < Most; k++) {
            full = full && (k >= ranks || k == rank || symmem::is_full(found[k], flag));
            data[k] = k == rank ? own : symmem::data_of(found[k]);
        }
    }
    if (!full) {
        uint64_t late[Most]; // so that `data` stays in registers
        if (!await_lines<Most>(args.signal, from, flag, result, late))
            return false;
#pragma unroll
        for (uint32_t k = 0; k < Most; k++)
            data[k] = k == rank ? own : late[k];
    }
    *reinterpret_cast<uint64_t *>(args.to[0] + at) =
        sum_of_lines<Element, Most>(data, ranks, args.op);
    return true;
}

template <typename Element, int Most>
__device__ bool plain_lines(const symmem_cuda_plain_args &args, verdict *result) {
    const uint32_t flag = symmem::line_flag(result->epoch);
    return for_own_lines(args.units, [&](uint32_t line) {
        return plain_line<Element, Most>(args, line, flag, result);
    });
}

// All threads, once not all lines have come.
__device__ __noinline__ void fail_lines(const symmem_cuda_signal_args &args, verdict *result) {
    if (result->code == TIMEOUT || result->code == PEER_LOST)
        collect_late_lines(args, result);
    __syncthreads();
    if (threadIdx.x == 0)
        fail(args, result);
}

template <typename Element, bool TWO>
__device__ void plain_by_lines(const symmem_cuda_plain_args &args) {
    __shared__ verdict result;
    const near_spot where = near_spot_of(args.near);
    if (!near_meet<false>(args.near, args.signal, where, &result))
        return;
    const uint32_t poisoned = args.meets_after ? look_ahead(args.near) : 0;
    bool came;
    if (TWO)
        came = plain_lines<Element, 2>(args, &result);
    else if (args.near.ranks <= 4)
        came = plain_lines<Element, 4>(args, &result);
    else
        came = plain_lines<Element, SYMMEM_CUDA_NEAR_RANKS>(args, &result);
    if (!__syncthreads_and(came))
        fail_lines(args.signal, &result);
    else if (args.meets_after && threadIdx.x < TEAM)
        near_meet_again(args.near, args.signal, where, &result, poisoned);
}

// --- blocks ------------------------------------------------------------------------------

// Of so many ranks and no fewer: then all loads are under way before the first sum, as no condition
// lies between them.
template <int Ranks>
__device__ symmem_cuda_ends<Ranks> plain_ends(const symmem_cuda_plain_args &args) {
    symmem_cuda_ends<Ranks> ends;
    ends.ranks = Ranks;
    ends.targets = args.targets;
    ends.op = args.op;
#pragma unroll
    for (int k = 0; k < Ranks; k++) {
        ends.from[k] = args.from[k];
        ends.to[k] = args.to[k];
    }
    return ends;
}

// Which units are a thread's, found out before the meeting. The compiler would rather do so anew
// behind it than keep two registers.
struct share {
    uint32_t lane, lanes;
};

__device__ share own_share() {
    share own = {static_cast<uint32_t>(own_lane()), static_cast<uint32_t>(all_lanes())};
#ifndef SYMMEM_CUDA_ON_HOST
    asm volatile("" : "+r"(own.lane), "+r"(own.lanes));
#endif
    return own;
}

template <typename Element, int Ranks, int Units>
__device__ void plain_units(const symmem_cuda_plain_args &args, share own) {
    symmem_cuda_reduce_between<Element, Ranks, Units>(plain_ends<Ranks>(args), args.units, own.lane,
                                                      own.lanes);
}

// Meeting, the step, meeting. SHAPE: of two ranks; of four or eight; or of those with twice the
// threads, each with half the registers.
enum shape { OF_TWO, OF_MORE, WIDE };

template <typename Element, shape SHAPE>
__device__ void plain_in_blocks(const symmem_cuda_plain_args &args) {
    __shared__ verdict result;
    const near_spot where = near_spot_of(args.near);
    const share own = own_share();
    if (!near_meet<false>(args.near, args.signal, where, &result))
        return;
    const uint32_t poisoned = look_ahead(args.near);
    if (SHAPE == OF_TWO)
        plain_units<Element, 2, 4>(args, own);
    else if (args.near.ranks == 4)
        plain_units<Element, 4, SHAPE == WIDE ? 1 : 2>(args, own);
    else
        plain_units<Element, 8, 1>(args, own);
    __syncthreads();
    if (threadIdx.x < TEAM)
        near_meet_again(args.near, args.signal, where, &result, poisoned);
}

} // namespace

#define KERNEL(name, threads, body)                                                                \
    extern "C" __global__ void __launch_bounds__(threads, 1)                                       \
        symmem_plain_##name(const __grid_constant__ symmem_cuda_plain_args args) {                 \
        body(args);                                                                                \
    }

#define KERNELS(name, element)                                                                     \
    KERNEL(lines_of_two_##name, SYMMEM_CUDA_COLLECTIVE_THREADS, (plain_by_lines<element, true>))   \
    KERNEL(lines_##name, SYMMEM_CUDA_COLLECTIVE_THREADS, (plain_by_lines<element, false>))         \
    KERNEL(blocks_of_two_##name, SYMMEM_CUDA_COLLECTIVE_THREADS,                                   \
           (plain_in_blocks<element, OF_TWO>))                                                     \
    KERNEL(blocks_##name, SYMMEM_CUDA_COLLECTIVE_THREADS, (plain_in_blocks<element, OF_MORE>))     \
    KERNEL(wide_##name, SYMMEM_CUDA_WIDE_THREADS, (plain_in_blocks<element, WIDE>))

KERNELS(f16, symmem_cuda_f16)
KERNELS(bf16, symmem_cuda_bf16)
KERNELS(f32, symmem_cuda_f32)

#undef KERNELS
#undef KERNEL

#endif
