// SPDX-License-Identifier: BSD-3-Clause
// The fast reductions: separate kernels for sums of few ranks whose addresses and sizes are all
// whole units. The host has checked that, so they have little code and hardly a stack. They
// synchronize and lay out their lines as the general kernels do. So the ranks of one operation may
// choose differently.
#ifndef SYMMEM_KERNELS_CUDA_ALLREDUCE_FAST_CUH
#define SYMMEM_KERNELS_CUDA_ALLREDUCE_FAST_CUH

#include "cuda/chunks.cuh"
#include "cuda/collective.h"
#include "cuda/device.cuh"
#include "cuda/barrier_small.cuh"
#include "cuda/reduce_loop.h"
#include "cuda/ll.cuh"

static_assert(SYMMEM_CUDA_COLLECTIVE_THREADS >= SYMMEM_CUDA_SMALL_BARRIER_THREADS &&
                  SYMMEM_CUDA_WIDE_THREADS >= SYMMEM_CUDA_SMALL_BARRIER_THREADS,
              "a thread polls");

namespace {

// Loads the poisoned word for the second barrier early, so that it is not waited for there.
__device__ uint32_t load_poisoned_early(const symmem_cuda_small_barrier &small) {
    return threadIdx.x < SYNC_WARP ? load_volatile(small_word(small, 0, 0)) : 0;
}

// --- LL ----------------------------------------------------------------------------

// Reduces one unit of each rank, in rank order, to the unit that is stored.
template <typename Element, int Most>
__device__ symmem_cuda_unit sum_of_units(const symmem_cuda_unit *units, uint32_t ranks,
                                         int32_t op) {
    constexpr int COUNT = sizeof(symmem_cuda_unit) / sizeof(typename Element::bits);
    typedef symmem_cuda_group<typename Element::bits, COUNT> group;
    group bits[Most], result;
    typename Element::value sums[COUNT];
#pragma unroll
    for (uint32_t k = 0; k < Most; k++)
        if (k < ranks)
            memcpy(&bits[k], &units[k], sizeof bits[k]);
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        sums[i] = Element::load(bits[0].at[i]);
#pragma unroll
        for (uint32_t k = 1; k < Most; k++)
            if (k < ranks)
                sums[i] = Element::combine(sums[i], Element::load(bits[k].at[i]), SYMMEM_CUDA_SUM);
    }
    symmem_cuda_end_all<Element, COUNT>(sums, static_cast<int32_t>(ranks), op, result.at);
    symmem_cuda_unit sum;
    memcpy(&sum, &result, sizeof sum);
    return sum;
}

// The data of up to `Most` ranks, with everything that a round needs in registers. OWN_DIFFERS:
// what is added here is not what is pushed.
template <typename Element, int Most, bool SHORT, bool OWN_DIFFERS> struct fast_ops {
    const symmem_cuda_ll_args &args;

    __device__ void overlapped_work() const {}

    __device__ uint32_t ranks() const {
        return Most == 2 ? 2 : args.small.ranks;
    }

    __device__ uint32_t units() const {
        return args.units;
    }

    __device__ bool is_short() const {
        return SHORT;
    }

    __device__ const symmem_cuda_ll_layout &layout() const {
        return args.rounds;
    }

    __device__ uint32_t *round_number_word(uint32_t warp) const {
        return small_word(args.small, 0, args.rounds.round_numbers_at) + warp;
    }

    __device__ symmem_cuda_unit load(uint32_t unit) const {
        return reinterpret_cast<const symmem_cuda_unit *>(args.from)[unit];
    }

    __device__ void store(uint32_t unit, const symmem_cuda_unit &value) const {
        reinterpret_cast<symmem_cuda_unit *>(args.to)[unit] = value;
    }

    __device__ uint32_t push_units() const {
        return args.units;
    }

    __device__ symmem_cuda_unit load_own(uint32_t unit) const {
        return reinterpret_cast<const symmem_cuda_unit *>(args.own)[unit];
    }

    // For two ranks.
    __device__ void take(uint32_t unit, const symmem_cuda_unit &own,
                         const symmem_cuda_unit &other) const {
        const symmem_cuda_unit units[2] = {args.small.rank == 0 ? own : other,
                                           args.small.rank == 0 ? other : own};
        const symmem_cuda_unit sum = sum_of_units<Element, 2>(units, 2, args.op);
        if (args.to == args.own)
            store(unit, sum);
        else // leaves the second-level cache to what is read again
            symmem::store_streaming(reinterpret_cast<symmem_cuda_unit *>(args.to) + unit, sum);
    }

    __device__ void take_rest(size_t, size_t) const {}

    __device__ carried own_of(const carried &pushed, uint32_t base, uint32_t lane) const {
        if (!OWN_DIFFERS)
            return pushed;
        carried own = {};
#pragma unroll
        for (uint32_t part = 0; part < 2; part++)
            if (has_unit(SHORT, lane, part) && base + unit_of(lane, part) < args.units)
                own.units[part] = load_own(base + unit_of(lane, part));
        return own;
    }

    template <bool WIDE>
    __device__ void push(const line_pair &lines, uint32_t at, uint32_t lane) const {
#pragma unroll
        for (uint32_t distance = 1; distance < Most; distance++)
            if (distance < ranks()) {
                const uint32_t index =
                    source_index(args.small.rank, small_peer(args.small, distance));
                store_pair<WIDE>(args.small.signals[distance] + at +
                                     index * args.rounds.source_bytes,
                                 lines, SHORT, lane);
            }
    }

    // Polls all sources whose lines have not arrived. Returns whether all lanes have theirs.
    template <bool WIDE>
    __device__ bool look(const char *from, uint32_t lane, uint32_t flag, line_pair *found) const {
        bool full = true;
        converge<WIDE>();
#pragma unroll
        for (uint32_t k = 0; k < Most; k++)
            if (k < ranks() && k != args.small.rank)
                found[k] = load_pair<WIDE>(from + source_index(k, args.small.rank) *
                                                      args.rounds.source_bytes,
                                           SHORT, lane, flag);
#pragma unroll
        for (uint32_t k = 0; k < Most; k++)
            if (k < ranks() && k != args.small.rank)
                full = full && found[k].full;
        return __all_sync(~0u, full);
    }

    template <bool WIDE>
    __device__ bool pull(const carried &pushed, uint32_t base, uint32_t part, uint32_t at,
                         uint32_t lane, uint32_t flag, uint64_t *start_ns, op_result *result,
                         carried *sums) const {
        const char *from = args.small.signals[0] + at;
        const carried own = own_of(pushed, base, lane);
        line_pair found[Most];
        bool came = false;
#pragma unroll 1
        for (int i = 0; i < LOOKS_BETWEEN_CHECKS && !came; i++)
            came = look<WIDE>(from, lane, flag, found);
        if (!came) {
            *start_ns = await_lines<WIDE>(args.signal, from, args.rounds.source_bytes, lane, flag,
                                          SHORT, *start_ns, result);
            if (*start_ns == 0)
                return false;
            (void)look<WIDE>(from, lane, flag, found);
        }
#pragma unroll
        for (uint32_t p = 0; p < 2; p++) {
            symmem_cuda_unit units[Most];
            if (WIDE && !SHORT ? false : p != part)
                continue;
#pragma unroll
            for (uint32_t k = 0; k < Most; k++)
                units[k] = k == args.small.rank ? own.units[p] : unit_in<WIDE>(found[k], p, lane);
            sums->units[p] = sum_of_units<Element, Most>(units, ranks(), args.op);
        }
        return true;
    }
};

template <typename Ops>
__device__ void fast_rounds(const Ops &ops, const symmem_cuda_signal_args &signal,
                            op_result *result) {
    const symmem_cuda_small_barrier &small = ops.args.small;
    const uint32_t warp = own_warp();
    beginning at;
    at.own = load_round(ops, warp * units_of_round(ops), own_lane_of_warp());
    at.sequence = load_volatile(ops.round_number_word(warp));
    at.poisoned = load_volatile(small_word(small, 0, 0)) != 0;
    at.wide = are_linked(small_word(small, 0, SYMMEM_CUDA_HEADER_BYTES), small.rank, ops.ranks(),
                         ops.args.rounds);
    at.start_ns = 0;
    run_rounds(ops, signal, at, result);
}

template <typename Element, int Most, bool SHORT, bool OWN_DIFFERS>
__device__ void fast_ll(const symmem_cuda_ll_args &args) {
    __shared__ op_result result;
    const fast_ops<Element, Most, SHORT, OWN_DIFFERS> ops = {args};
    fast_rounds(ops, args.signal, &result);
}

// --- moves -------------------------------------------------------------------------

// For two ranks.
template <bool SHORT> struct moving_ops {
    const symmem_cuda_moves_args &args;

    __device__ uint32_t ranks() const {
        return 2;
    }

    static __device__ uint32_t units_in(size_t bytes) {
        return static_cast<uint32_t>(bytes / sizeof(symmem_cuda_unit));
    }

    __device__ uint32_t units() const {
        const uint32_t push = units_in(args.exchange.push_bytes);
        const uint32_t pull = units_in(args.exchange.pull_bytes);
        return push > pull ? push : pull;
    }

    __device__ bool is_short() const {
        return SHORT;
    }

    __device__ const symmem_cuda_ll_layout &layout() const {
        return args.rounds;
    }

    __device__ uint32_t *round_number_word(uint32_t warp) const {
        return small_word(args.small, 0, args.rounds.round_numbers_at) + warp;
    }

    __device__ symmem_cuda_unit load(uint32_t unit) const {
        if (unit >= units_in(args.exchange.push_bytes))
            return {0, 0};
        return reinterpret_cast<const symmem_cuda_unit *>(args.exchange.push)[unit];
    }

    __device__ void store(uint32_t unit, const symmem_cuda_unit &value) const {
        if (unit < units_in(args.exchange.pull_bytes))
            reinterpret_cast<symmem_cuda_unit *>(args.exchange.pull)[unit] = value;
    }

    __device__ void overlapped_work() const {
        take_from(0, own_lane(), all_lanes());
    }

    // Moves units within this rank's memory, starting at `begin`.
    __device__ void take_from(uint32_t begin, size_t lane, size_t lanes) const {
        const symmem_cuda_exchange &moved = args.exchange;
        const size_t at = begin * sizeof(symmem_cuda_unit);
        if (moved.own_from != moved.own_to && at < moved.own_bytes)
            symmem_cuda_move_units<symmem_cuda_unit>(moved.own_to + at, moved.own_from + at,
                                                     units_in(moved.own_bytes - at), lane, lanes);
    }

    __device__ uint32_t push_units() const {
        return units_in(args.exchange.push_bytes);
    }

    __device__ bool has_own(uint32_t unit) const {
        return args.exchange.own_from != args.exchange.own_to &&
               unit < units_in(args.exchange.own_bytes);
    }

    __device__ symmem_cuda_unit load_own(uint32_t unit) const {
        if (!has_own(unit))
            return {0, 0};
        return reinterpret_cast<const symmem_cuda_unit *>(args.exchange.own_from)[unit];
    }

    __device__ void take(uint32_t unit, const symmem_cuda_unit &own,
                         const symmem_cuda_unit &other) const {
        store(unit, other);
        if (has_own(unit))
            reinterpret_cast<symmem_cuda_unit *>(args.exchange.own_to)[unit] = own;
    }

    // Moves the units beyond those that go from rank to rank.
    __device__ void take_rest(size_t lane, size_t lanes) const {
        take_from(units(), lane, lanes);
    }

    template <bool WIDE>
    __device__ void push(const line_pair &lines, uint32_t at, uint32_t lane) const {
        store_pair<WIDE>(args.small.signals[1] + at, lines, SHORT, lane);
    }

    template <bool WIDE>
    __device__ bool pull(const carried &, uint32_t, uint32_t part, uint32_t at, uint32_t lane,
                         uint32_t flag, uint64_t *start_ns, op_result *result,
                         carried *kept) const {
        const char *from = args.small.signals[0] + at;
        line_pair found = {};
        bool came = false;
#pragma unroll 1
        for (int i = 0; i < LOOKS_BETWEEN_CHECKS && !came; i++) {
            converge<WIDE>();
            found = load_pair<WIDE>(from, SHORT, lane, flag);
            came = __all_sync(~0u, found.full);
        }
        if (!came) {
            *start_ns = await_lines<WIDE>(args.signal, from, args.rounds.source_bytes, lane, flag,
                                          SHORT, *start_ns, result);
            if (*start_ns == 0)
                return false;
            found = load_pair<WIDE>(from, SHORT, lane, flag);
        }
        kept->units[part] = unit_in<WIDE>(found, part, lane);
        if (WIDE && !SHORT)
            kept->units[1] = unit_in<WIDE>(found, 1, lane);
        return true;
    }
};

template <bool SHORT> __device__ void fast_moves(const symmem_cuda_moves_args &args) {
    __shared__ op_result result;
    const moving_ops<SHORT> ops = {args};
    fast_rounds(ops, args.signal, &result);
}

// --- chunks ------------------------------------------------------------------------

template <typename Ops, typename Args> __device__ void fast_chunks(const Args &args) {
    __shared__ op_result result;
    const Ops ops = {args};
    const chunk_slots at =
        chunk_slots_of_block(args.small.signals[0], args.small.signals[1], args.rounds);
    run_chunks(ops, args.signal, at, load_volatile(small_word(args.small, 0, 0)) != 0, 0, &result);
}

template <typename Element> __device__ void fast_sums_by_chunks(const symmem_cuda_ll_args &args) {
    fast_chunks<fast_ops<Element, 2, false, false>>(args);
}

// --- per block ---------------------------------------------------------------------

// For exactly `Ranks` ranks. No condition lies between the loads, so all are in flight before the
// first sum.
template <int Ranks>
__device__ symmem_cuda_ends<Ranks> fast_ends(const symmem_cuda_fast_args &args) {
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

// The units of a thread, computed before the barrier. Otherwise the compiler would compute them
// again after it to save two registers.
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
__device__ void fast_units(const symmem_cuda_fast_args &args, share own) {
    symmem_cuda_reduce_between<Element, Ranks, Units>(fast_ends<Ranks>(args), args.units, own.lane,
                                                      own.lanes);
}

// Barrier, one step, barrier. SHAPE: two ranks; four or eight; or four or eight with twice the
// threads, each with half the registers.
enum shape { TWO_RANKS, MORE_RANKS, MORE_RANKS_WIDE };

template <typename Element, shape SHAPE>
__device__ void fast_per_block(const symmem_cuda_fast_args &args) {
    __shared__ op_result result;
    const small_sync_place where = small_sync_of(args.small);
    const share own = own_share();
    if (!small_sync<false>(args.small, args.signal, where, &result))
        return;
    const uint32_t poisoned = load_poisoned_early(args.small);
    if (SHAPE == TWO_RANKS)
        fast_units<Element, 2, 4>(args, own);
    else if (args.small.ranks == 4)
        fast_units<Element, 4, SHAPE == MORE_RANKS_WIDE ? 1 : 2>(args, own);
    else
        fast_units<Element, 8, 1>(args, own);
    __syncthreads();
    if (threadIdx.x < SYNC_WARP)
        small_sync_again(args.small, args.signal, where, &result, poisoned);
}

} // namespace

#define KERNEL(name, given, threads, body)                                                         \
    extern "C" __global__ void __launch_bounds__(threads, 1)                                       \
        symmem_fast_##name(const __grid_constant__ given args) {                                   \
        body(args);                                                                                \
    }

#define LINES(name, most, is_short, dealt, element)                                                \
    KERNEL(ll_##name, symmem_cuda_ll_args, SYMMEM_CUDA_LL_THREADS,                                 \
           (fast_ll<element, most, is_short, dealt>))

#define BLOCKS(name, threads, body) KERNEL(name, symmem_cuda_fast_args, threads, body)

#define KERNELS(name, element)                                                                     \
    LINES(of_two_##name, 2, false, false, element)                                                 \
    LINES(of_four_##name, 4, false, false, element)                                                \
    LINES(of_eight_##name, 8, false, false, element)                                               \
    LINES(short_of_two_##name, 2, true, false, element)                                            \
    LINES(short_of_four_##name, 4, true, false, element)                                           \
    LINES(short_of_eight_##name, 8, true, false, element)                                          \
    LINES(scatter_##name, 2, false, true, element)                                                 \
    LINES(short_scatter_##name, 2, true, true, element)                                            \
    KERNEL(chunks_##name, symmem_cuda_ll_args, SYMMEM_CUDA_CHUNK_THREADS,                          \
           (fast_sums_by_chunks<element>))                                                         \
    BLOCKS(blocks_of_two_##name, SYMMEM_CUDA_COLLECTIVE_THREADS,                                   \
           (fast_per_block<element, TWO_RANKS>))                                                   \
    BLOCKS(blocks_##name, SYMMEM_CUDA_COLLECTIVE_THREADS, (fast_per_block<element, MORE_RANKS>))   \
    BLOCKS(wide_##name, SYMMEM_CUDA_WIDE_THREADS, (fast_per_block<element, MORE_RANKS_WIDE>))

KERNELS(f16, symmem_cuda_f16)
KERNELS(bf16, symmem_cuda_bf16)
KERNELS(f32, symmem_cuda_f32)
KERNEL(ll_moves, symmem_cuda_moves_args, SYMMEM_CUDA_LL_THREADS, fast_moves<false>)
KERNEL(chunks_moves, symmem_cuda_moves_args, SYMMEM_CUDA_CHUNK_THREADS,
       fast_chunks<moving_ops<false>>)
KERNEL(ll_short_moves, symmem_cuda_moves_args, SYMMEM_CUDA_LL_THREADS, fast_moves<true>)

#undef KERNELS
#undef BLOCKS
#undef LINES
#undef KERNEL

#endif
