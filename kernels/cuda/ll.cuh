// SPDX-License-Identifier: BSD-3-Clause
// All-reduces and moves in rounds of LL lines, as in NCCL's LL protocol. In each round a warp
// pushes some of its rank's elements, with flags, to the warp of the same number on every other
// rank. Then it reduces what those have pushed here. No rank reads another rank's memory, passes a
// barrier, or fences. A flag says that the data beside it has arrived.
//
// A round has a slot for each source, and the next round has another one. The third round reuses
// the slots of the first. They are free by then. A rank that has a peer's lines of the second round
// knows that the peer finished the first, because each warp goes round by round. The same holds
// from call to call, because a rank's kernels of one channel run in order. The number of a warp's
// rounds follows from arguments that are the same on all ranks. The number of its last round lies
// in memory, so that a graph can be launched again. That number is the flag.
//
// Lines have two forms. If every pair of ranks has NVLink, eight lanes write 128 bytes, of which
// the last eight are the flag. No manual promises what this relies on, but NCCL's protocol LL128
// relies on it as well: what a warp stores at once to one aligned line of 128 bytes arrives over
// NVLink as a whole, and one load of the warp sees it as a whole. Everywhere else a line has 16
// bytes with a flag in each half (device.cuh), and there are twice as many lines.
#ifndef SYMMEM_KERNELS_CUDA_LL_CUH
#define SYMMEM_KERNELS_CUDA_LL_CUH

#include "cuda/collective.h"
#include "cuda/device.cuh"
#include "cuda/reduce_loop.h"

namespace {

constexpr uint32_t LANES = 32, GROUP = 8, FLAG_LANE = 7;
// another warp of the block decided; no symmem_status has this value
constexpr uint32_t DECIDED = ~0u;
// LINES_APART: the distance of a lane's two lines of a round. FIRST_UNITS: units for which all
// lanes have data in the first lines.
constexpr uint32_t LINES_APART = LANES * sizeof(symmem::line), FIRST_UNITS = 28;
static_assert(sizeof(symmem::line) == SYMMEM_CUDA_LL_LINE_BYTES, "lines as signal.h layout them");
static_assert(2 * LINES_APART == SYMMEM_CUDA_ROUND_BYTES, "two lines a lane");
static_assert(FIRST_UNITS == SYMMEM_CUDA_SHORT_UNITS, "a short round has one unit a lane");
static_assert(2 * FIRST_UNITS + LANES / GROUP == SYMMEM_CUDA_ROUND_UNITS, "and one for the flags");

// A lane's units of a round. A lane with flags has one unit, of which each of its lines holds half.
// In a short round it has none.
struct carried {
    symmem_cuda_unit units[2];
};

struct line_pair {
    symmem::line first, second;
    bool full; // wide: only a lane with flags knows; the warp has to vote
};

__device__ bool has_flags(uint32_t lane) {
    return lane % GROUP == FLAG_LANE;
}

__device__ uint32_t unit_of(uint32_t lane, uint32_t part) {
    const uint32_t group = lane / GROUP;
    return has_flags(lane) ? 2 * FIRST_UNITS + group
                           : FIRST_UNITS * part + FLAG_LANE * group + lane % GROUP;
}

__device__ bool has_unit(bool is_short, uint32_t lane, uint32_t part) {
    return part == 0 ? !is_short || !has_flags(lane) : !is_short && !has_flags(lane);
}

// Sources are counted without the owner.
__device__ uint32_t source_index(uint32_t source, uint32_t owner) {
    return source < owner ? source : source - 1;
}

// --- lines -------------------------------------------------------------------------------

// `part`: the index within a narrow round, which has one unit for each lane.
template <bool WIDE>
__device__ line_pair lines_of(const carried &own, uint32_t part, uint32_t lane, uint32_t flag) {
    if (!WIDE)
        return {symmem::make_line(own.units[part].low, flag),
                symmem::make_line(own.units[part].high, flag), true};
    if (has_flags(lane))
        return {{own.units[0].low, flag}, {own.units[0].high, flag}, true};
    return {{own.units[0].low, own.units[0].high}, {own.units[1].low, own.units[1].high}, true};
}

template <bool WIDE>
__device__ symmem_cuda_unit unit_in(const line_pair &found, uint32_t part, uint32_t lane) {
    if (!WIDE)
        return {symmem::data_of(found.first), symmem::data_of(found.second)};
    if (has_flags(lane))
        return {found.first.low, found.second.low};
    return part == 0 ? symmem_cuda_unit{found.first.low, found.first.high}
                     : symmem_cuda_unit{found.second.low, found.second.high};
}

// Makes the lanes of a warp converge, because they store and load a wide line at the same time.
template <bool WIDE> __device__ void converge() {
    if (WIDE)
        __syncwarp();
}

// Called by all lanes. A short wide round has no second lines.
template <bool WIDE>
__device__ void store_pair(char *to, const line_pair &lines, bool is_short, uint32_t lane) {
    converge<WIDE>();
    symmem::store_line_of<WIDE>(reinterpret_cast<symmem::line *>(to), lines.first, lane);
    if (!WIDE || !is_short)
        symmem::store_line_of<WIDE>(reinterpret_cast<symmem::line *>(to + LINES_APART),
                                    lines.second, lane);
}

// Lanes that have converged know whether all lines are full. A line that was full then stays valid.
template <bool WIDE>
__device__ line_pair load_pair(const char *from, bool is_short, uint32_t lane, uint32_t flag) {
    line_pair found = {};
    found.full = true;
    found.first = symmem::load_line_of<WIDE>(reinterpret_cast<const symmem::line *>(from), lane,
                                             flag, &found.full);
    if (!WIDE || !is_short)
        found.second = symmem::load_line_of<WIDE>(
            reinterpret_cast<const symmem::line *>(from + LINES_APART), lane, flag, &found.full);
    return found;
}

// --- slow waits --------------------------------------------------------------------

// One thread of a warp. On the CPU, where a thread is a warp, every thread.
__device__ bool is_first_lane() {
#ifdef SYMMEM_CUDA_LONE_LANE
    return true;
#else
    return threadIdx.x % LANES == 0;
#endif
}

// Called by all lanes. Returns whether all have their lines of a round from one source.
struct awaited {
    const char *from; // of the first source
    uint32_t source_bytes, lane, flag;
    bool is_short;
    uint64_t start_ns; // when the warp began to wait
};

template <bool WIDE> __device__ bool have_come(const awaited &lines, uint32_t source) {
    const char *from = lines.from + source * lines.source_bytes;
    converge<WIDE>();
    return __all_sync(~0u, load_pair<WIDE>(from, lines.is_short, lines.lane, lines.flag).full);
}

// Like is_check_due, but one warp checks for all warps of a block, because there are more blocks
// here than in other barriers. The first call only sets the clock, so that a warp that does not
// wait needs none.
constexpr int CHECK_SHIFT = 24; // 17 ms

__device__ bool is_block_check_due(const symmem_cuda_signal_args &args, uint64_t start_ns,
                                   op_result *result) {
    const uint64_t now = now_ns();
    const uint32_t sequence = static_cast<uint32_t>(now >> CHECK_SHIFT) | 1u << 31;
    const uint32_t last = load_volatile(&result->checked);
    if (last != sequence && atomicCAS(&result->checked, last, sequence) == last && last != 0)
        return true;
    return is_late(start_ns, args.timeout_ms) || own_poisoned(args);
}

// Returns why waiting for `source` is pointless, or OK.
__device__ uint32_t wait_failure_code(const symmem_cuda_signal_args &args, int32_t source,
                                      bool checking, uint64_t start_ns, const op_result *result,
                                      int32_t *failed_rank) {
    if (!is_first_lane())
        return OK;
    if (load_volatile(&result->code) != OK)
        return DECIDED;
    return checking ? check(args, source, start_ns, failed_rank) : OK;
}

// Like decide(), with the time of one warp. Only the first warp to decide writes it.
__device__ void decide_since(uint64_t start_ns, uint32_t code, int32_t failed_rank,
                             op_result *result) {
    if (atomicCAS(&result->code, OK, code) != OK)
        return;
    result->failed_rank = failed_rank;
    result->start_ns = start_ns;
}

// Called by all lanes. Names the ranks whose lines are missing.
template <bool WIDE>
__device__ void report_missing_lines(const symmem_cuda_signal_args &args, const awaited &lines,
                                     uint32_t code, int32_t failed_rank, op_result *result) {
    for (int32_t k = 0; k < args.world_size; k++)
        if (k != args.rank && !have_come<WIDE>(lines, source_index(k, args.rank)) &&
            is_first_lane() && (code == TIMEOUT || code == PEER_LOST))
            atomicOr(&result->missing[k / 32], 1u << (k % 32));
    if (is_first_lane() && code != DECIDED)
        decide_since(lines.start_ns, code, failed_rank, result);
}

enum waiting { HERE, NOT_YET, GAVE_UP };

// Called by all lanes. Work that a peer finished before it ended or was poisoned counts, so the
// lines are checked once more.
template <bool WIDE>
__device__ waiting await_source(const symmem_cuda_signal_args &args, const awaited &lines,
                                int32_t rank, bool checking, op_result *result) {
    const uint32_t source = source_index(rank, args.rank);
#pragma unroll 1
    for (int look = 0; look < LOOKS_BETWEEN_CHECKS; look++)
        if (have_come<WIDE>(lines, source))
            return HERE;
    int32_t failed_rank = -1;
    const uint32_t code =
        wait_failure_code(args, rank, checking, lines.start_ns, result, &failed_rank);
    if (__all_sync(~0u, code == OK))
        return NOT_YET;
    if (have_come<WIDE>(lines, source))
        return HERE;
    report_missing_lines<WIDE>(args, lines, code, failed_rank, result);
    return GAVE_UP;
}

// Called by all lanes. Polls source by source, repeatedly. Returns false if the lines do not
// arrive.
template <bool WIDE>
__device__ bool await_all(const symmem_cuda_signal_args &args, const awaited &lines,
                          op_result *result) {
    bool all = false;
    while (!all) {
        const bool checking = is_first_lane() && is_block_check_due(args, lines.start_ns, result);
        all = true;
        for (int32_t k = 0; k < args.world_size; k++) {
            const waiting found =
                k == args.rank ? HERE : await_source<WIDE>(args, lines, k, checking, result);
            if (found == GAVE_UP)
                return false;
            all = all && found == HERE;
        }
    }
    return true;
}

// Returns when the warp began to wait, which it passes next time, or 0 on failure. So a warp that
// does not wait reads no clock. Arguments passed by reference would lie on a stack, and a kernel
// with a stack starts later.
template <bool WIDE>
__device__ __noinline__ uint64_t await_lines(const symmem_cuda_signal_args &args, const char *from,
                                             uint32_t source_bytes, uint32_t lane, uint32_t flag,
                                             bool is_short, uint64_t start_ns, op_result *result) {
    const uint64_t start = start_ns != 0 ? start_ns : now_ns();
    return await_all<WIDE>(args, {from, source_bytes, lane, flag, is_short, start}, result) ? start
                                                                                            : 0;
}

// --- rounds --------------------------------------------------------------------------------
// OPS, from below or from allreduce_fast.cuh, loads, pushes, reduces and stores a rank's units.

template <typename Ops>
__device__ carried load_round(const Ops &ops, uint32_t base, uint32_t lane) {
    carried own = {};
#pragma unroll
    for (uint32_t part = 0; part < 2; part++)
        if (has_unit(ops.is_short(), lane, part) && base + unit_of(lane, part) < ops.units())
            own.units[part] = ops.load(base + unit_of(lane, part));
    return own;
}

template <typename Ops>
__device__ void store_round(const Ops &ops, uint32_t base, uint32_t lane, uint32_t part,
                            const symmem_cuda_unit &unit) {
    if (has_unit(ops.is_short(), lane, part) && base + unit_of(lane, part) < ops.units())
        ops.store(base + unit_of(lane, part), unit);
}

// Returns the offset of a warp's slot for a round.
__device__ uint32_t warp_slot(const symmem_cuda_ll_layout &layout, uint32_t warp, uint32_t lane,
                              uint32_t flag) {
    return layout.rounds_at + flag % 2 * layout.parity_bytes + warp * SYMMEM_CUDA_ROUND_BYTES +
           lane * static_cast<uint32_t>(sizeof(symmem::line));
}

// Returns the number of flags that a round uses.
template <bool WIDE, typename Ops> __device__ uint32_t flags_per_round(const Ops &ops) {
    return WIDE || ops.is_short() ? 1 : 2;
}

template <typename Ops> __device__ uint32_t units_of_round(const Ops &ops) {
    return ops.is_short() ? SYMMEM_CUDA_SHORT_UNITS : SYMMEM_CUDA_ROUND_UNITS;
}

template <bool WIDE, typename Ops>
__device__ void push_round(const Ops &ops, const carried &own, uint32_t warp, uint32_t lane,
                           uint32_t part, uint32_t flag) {
    ops.template push<WIDE>(lines_of<WIDE>(own, part, lane, flag),
                            warp_slot(ops.layout(), warp, lane, flag), lane);
}

template <bool WIDE, typename Ops>
__device__ bool pull_round(const Ops &ops, const carried &own, uint32_t base, uint32_t warp,
                           uint32_t lane, uint32_t part, uint32_t flag, uint64_t *start_ns,
                           op_result *result) {
    carried sums;
    if (!ops.template pull<WIDE>(own, base, part, warp_slot(ops.layout(), warp, lane, flag), lane,
                                 flag, start_ns, result, &sums))
        return false;
    store_round(ops, base, lane, part, sums.units[part]);
    if (WIDE && !ops.is_short())
        store_round(ops, base, lane, 1, sums.units[1]);
    return true;
}

// Returns whether every pair of ranks has NVLink. `links`: what the ranks have published here.
__device__ bool are_linked(const uint32_t *links, uint32_t rank, uint32_t ranks,
                           const symmem_cuda_ll_layout &layout) {
    bool all = layout.linked != 0;
    for (uint32_t k = 0; k < ranks; k++)
        all = all && (k == rank || load_volatile(links + k) == SYMMEM_CUDA_LINKED);
    return all;
}

// What a lane loads first, all at once. `own` is loaded before the form of the lines is known.
struct beginning {
    carried own;
    uint32_t sequence;
    bool poisoned, wide;
    uint64_t start_ns; // 0: the clock is read when a warp waits
};

// Called by all threads.
__device__ void begin_block_of_rounds(op_result *result, uint64_t start_ns) {
    begin(result, start_ns);
    if (threadIdx.x == 0)
        result->checked = 0;
    __syncthreads();
}

// The next round's own units are loaded while the peers' units are in flight.
#ifndef SYMMEM_CUDA_LONE_LANE
__device__ uint32_t own_warp() {
    return (blockIdx.x * blockDim.x + threadIdx.x) / LANES;
}

__device__ uint32_t own_lane_of_warp() {
    return threadIdx.x % LANES;
}

template <bool WIDE, typename Ops>
__device__ bool run_rounds_of(const Ops &ops, const beginning &at, op_result *result) {
    const uint32_t warp = own_warp(), lane = own_lane_of_warp();
    const uint32_t step = ops.layout().warps * units_of_round(ops);
    const bool pushes = __all_sync(~0u, !at.poisoned) && warp < ops.layout().warps;
    const uint32_t units = pushes ? ops.units() : 0;
    uint32_t sequence = at.sequence, base = warp * units_of_round(ops);
    carried next = at.own;
    uint64_t start_ns = at.start_ns;
    if (base < units)
        push_round<WIDE>(ops, next, warp, lane, 0, sequence + 1);
    begin_block_of_rounds(result, at.start_ns); // while those are in flight
    if (pushes || !at.poisoned)
        ops.overlapped_work();
    for (; base < units; base += step) {
        const carried own = next;
#pragma unroll
        for (uint32_t part = 0; part < flags_per_round<WIDE>(ops); part++) {
            sequence++;
            if (sequence != at.sequence + 1)
                push_round<WIDE>(ops, own, warp, lane, part, sequence);
            if (part + 1 == flags_per_round<WIDE>(ops) && base + step < units)
                next = load_round(ops, base + step, lane);
            if (!pull_round<WIDE>(ops, own, base, warp, lane, part, sequence, &start_ns, result))
                return false;
        }
    }
    if (sequence != at.sequence && lane == 0)
        *ops.round_number_word(warp) = sequence;
    return !at.poisoned;
}
#else
// A thread emulates several warps and their lanes. It pushes for all of them before it waits. In a
// group the lane with the flags stores last and loads first.
__device__ uint32_t own_warp() {
    return blockIdx.x * blockDim.x + threadIdx.x;
}

__device__ uint32_t own_lane_of_warp() {
    return 0;
}

template <bool WIDE, typename Ops, typename Visit>
__device__ bool for_own_warps(const Ops &ops, uint32_t round, Visit visit) {
    const uint32_t warps = ops.layout().warps, all = gridDim.x * blockDim.x;
    for (uint32_t warp = own_warp(); warp < warps; warp += all) {
        const uint32_t base =
            (round / flags_per_round<WIDE>(ops) * warps + warp) * units_of_round(ops);
        const uint32_t sequence = *ops.round_number_word(warp) + 1;
        for (uint32_t i = 0; base < ops.units() && i < LANES; i++)
            if (!visit(warp, i, base, sequence))
                return false;
    }
    return true;
}

template <bool WIDE, typename Ops>
__device__ bool run_rounds_of(const Ops &ops, const beginning &at, op_result *result) {
    const uint32_t step = ops.layout().warps * units_of_round(ops);
    const uint32_t rounds = (ops.units() + step - 1) / step * flags_per_round<WIDE>(ops);
    uint64_t start_ns = at.start_ns;
    bool came = !at.poisoned;
    begin_block_of_rounds(result, at.start_ns);
    if (came)
        ops.overlapped_work();
    for (uint32_t round = 0; came && round < rounds; round++) {
        const uint32_t part = round % flags_per_round<WIDE>(ops);
        (void)for_own_warps<WIDE>(
            ops, round, [&](uint32_t warp, uint32_t lane, uint32_t base, uint32_t sequence) {
                push_round<WIDE>(ops, load_round(ops, base, lane), warp, lane, part, sequence);
                return true;
            });
        came = for_own_warps<WIDE>(
            ops, round, [&](uint32_t warp, uint32_t i, uint32_t base, uint32_t sequence) {
                const uint32_t lane = i / GROUP * GROUP + (i + FLAG_LANE) % GROUP;
                if (!pull_round<WIDE>(ops, load_round(ops, base, lane), base, warp, lane, part,
                                      sequence, &start_ns, result))
                    return false;
                if (i == LANES - 1)
                    *ops.round_number_word(warp) = sequence;
                return true;
            });
    }
    return came;
}
#endif

// Called by all threads of a block as the last thing that they do. A poisoned rank pushes nothing.
template <typename Ops>
__device__ void run_rounds(const Ops &ops, const symmem_cuda_signal_args &args, const beginning &at,
                           op_result *result) {
    const bool came =
        at.wide ? run_rounds_of<true>(ops, at, result) : run_rounds_of<false>(ops, at, result);
    if (at.poisoned)
        decide_since(at.start_ns != 0 ? at.start_ns : now_ns(), POISONED, args.rank, result);
    if (!__syncthreads_and(came) && threadIdx.x == 0)
        fail(args, result);
}

// --- any elements ------------------------------------------------------------------

// With the tables of all ranks, and addresses of any alignment.
template <typename Bits> struct general_ops {
    static constexpr uint32_t COUNT = sizeof(symmem_cuda_unit) / sizeof(Bits);

    const symmem_cuda_collective_args &args;
    symmem_cuda_pushed ends;
    size_t count; // of Bits, that a rank has

    __device__ uint32_t units() const {
        return static_cast<uint32_t>((count + COUNT - 1) / COUNT);
    }

    __device__ bool is_short() const {
        return args.rounds.units == SYMMEM_CUDA_SHORT_UNITS;
    }

    __device__ const symmem_cuda_ll_layout &layout() const {
        return args.rounds;
    }

    __device__ uint32_t *round_number_word(uint32_t warp) const {
        return word_at(args.signal, args.job.rank, args.rounds.round_numbers_at) + warp;
    }

    // Work to be done while the lines are in flight.
    __device__ void overlapped_work() const {}

    // A last unit may be partial.
    static __device__ uint32_t elements_of(uint32_t unit, size_t count) {
        const size_t before = static_cast<size_t>(unit) * COUNT;
        const size_t left = before < count ? count - before : 0;
        return left < COUNT ? static_cast<uint32_t>(left) : COUNT;
    }

    // A unit that is partial or unaligned is loaded and stored slowly. A kernel has one copy of
    // these two functions. Inlined wherever a unit is loaded or stored, they would be a quarter of
    // it.
    static __device__ __noinline__ symmem_cuda_unit load_singly(const char *from,
                                                                uint32_t elements) {
        symmem_cuda_unit found = {0, 0};
        for (uint32_t i = 0; i < elements; i++) {
            const uint64_t raw = raw_bits(reinterpret_cast<const Bits *>(from)[i]);
            const uint32_t at = i * static_cast<uint32_t>(sizeof(Bits));
            (at < 8 ? found.low : found.high) |= raw << at % 8 * 8;
        }
        return found;
    }

    static __device__ __noinline__ void store_singly(char *to, uint32_t elements,
                                                     symmem_cuda_unit value) {
        for (uint32_t i = 0; i < elements; i++) {
            const uint32_t at = i * static_cast<uint32_t>(sizeof(Bits));
            reinterpret_cast<Bits *>(to)[i] =
                static_cast<Bits>((at < 8 ? value.low : value.high) >> at % 8 * 8);
        }
    }

    // Loads the unit from `count` elements at `begin`.
    static __device__ symmem_cuda_unit load_of(const char *begin, size_t count, uint32_t unit) {
        const char *from = begin + static_cast<size_t>(unit) * sizeof(symmem_cuda_unit);
        const uint32_t elements = elements_of(unit, count);
        if (elements == COUNT && reinterpret_cast<uintptr_t>(from) % sizeof(symmem_cuda_unit) == 0)
            return *reinterpret_cast<const symmem_cuda_unit *>(from);
        return load_singly(from, elements);
    }

    static __device__ void store_to(char *begin, size_t count, uint32_t unit,
                                    const symmem_cuda_unit &value) {
        char *to = begin + static_cast<size_t>(unit) * sizeof(symmem_cuda_unit);
        const uint32_t elements = elements_of(unit, count);
        if (elements == COUNT && reinterpret_cast<uintptr_t>(to) % sizeof(symmem_cuda_unit) == 0)
            *reinterpret_cast<symmem_cuda_unit *>(to) = value;
        else
            store_singly(to, elements, value);
    }

    __device__ symmem_cuda_unit load(uint32_t unit) const {
        return load_of(ends.src, count, unit);
    }

    template <bool WIDE>
    __device__ void push(const line_pair &lines, uint32_t at, uint32_t lane) const {
        for (int32_t i = 1; i < args.job.world_size; i++) {
            const int32_t rank = symmem_cuda_peer_at_step(&args.job, i);
            const uint32_t index = source_index(args.job.rank, rank);
            store_pair<WIDE>(static_cast<char *>(args.signal.signals[rank]) + at +
                                 index * args.rounds.source_bytes,
                             lines, is_short(), lane);
        }
    }

    template <bool WIDE>
    __device__ symmem_cuda_unit unit_from(int32_t rank, const carried &own, uint32_t part,
                                          const char *from, uint32_t lane, uint32_t flag) const {
        if (rank == args.job.rank)
            return own.units[part];
        const char *lines = from + source_index(rank, args.job.rank) * args.rounds.source_bytes;
        return unit_in<WIDE>(load_pair<WIDE>(lines, is_short(), lane, flag), part, lane);
    }

    // Called by all lanes. Waits until the round's lines have arrived from all ranks. *from_p gets
    // their address.
    template <bool WIDE>
    __device__ bool await_round(uint32_t at, uint32_t lane, uint32_t flag, uint64_t *start_ns,
                                op_result *result, const char **from_p) const {
        *from_p = static_cast<const char *>(args.signal.signals[args.job.rank]) + at;
        *start_ns = await_lines<WIDE>(args.signal, *from_p, args.rounds.source_bytes, lane, flag,
                                      is_short(), *start_ns, result);
        return *start_ns != 0;
    }
};

template <typename Element> struct reducing_ops : general_ops<typename Element::bits> {
    typedef typename Element::bits bits;
    static constexpr uint32_t COUNT = general_ops<bits>::COUNT;

    __device__ void store(uint32_t unit, const symmem_cuda_unit &value) const {
        this->store_to(this->ends.dst, this->count, unit, value);
    }

    // Reduces the units of all ranks, in rank order. unit_of returns a rank's unit.
    template <typename UnitOf> __device__ symmem_cuda_unit sum_of_all(UnitOf unit_of) const {
        const symmem_cuda_job &job = this->args.job;
        typedef symmem_cuda_group<bits, COUNT> group;
        typename Element::value sum[COUNT];
        group all;
        for (int32_t k = 0; k < job.world_size; k++) {
            const symmem_cuda_unit unit = unit_of(k);
            memcpy(&all, &unit, sizeof all);
            for (uint32_t i = 0; i < COUNT; i++)
                sum[i] = k == 0 ? Element::load(all.at[i])
                                : Element::combine(sum[i], Element::load(all.at[i]), job.op);
        }
        for (uint32_t i = 0; i < COUNT; i++)
            all.at[i] = Element::store(Element::finish(sum[i], job.world_size, job.op));
        symmem_cuda_unit result;
        memcpy(&result, &all, sizeof result);
        return result;
    }

    __device__ uint32_t push_units() const {
        return this->units();
    }

    __device__ symmem_cuda_unit load_own(uint32_t unit) const {
        return this->load_of(this->ends.own, this->count, unit);
    }

    // For two ranks: this rank's unit and the peer's.
    __device__ void take(uint32_t unit, const symmem_cuda_unit &own,
                         const symmem_cuda_unit &other) const {
        store(unit, sum_of_all([&](int32_t k) { return k == this->args.job.rank ? own : other; }));
    }

    __device__ void take_rest(size_t, size_t) const {}

    // Returns what is pushed, or another part of this rank's elements.
    __device__ carried own_of(const carried &pushed, uint32_t base, uint32_t lane) const {
        carried own = pushed;
        for (uint32_t part = 0; this->ends.own != this->ends.src && part < 2; part++)
            if (has_unit(this->is_short(), lane, part))
                own.units[part] =
                    this->load_of(this->ends.own, this->count, base + unit_of(lane, part));
        return own;
    }

    template <bool WIDE>
    __device__ symmem_cuda_unit reduce(const carried &own, uint32_t part, const char *from,
                                       uint32_t lane, uint32_t flag) const {
        return sum_of_all([&](int32_t k) {
            return this->template unit_from<WIDE>(k, own, part, from, lane, flag);
        });
    }

    template <bool WIDE>
    __device__ bool pull(const carried &pushed, uint32_t base, uint32_t part, uint32_t at,
                         uint32_t lane, uint32_t flag, uint64_t *start_ns, op_result *result,
                         carried *sums) const {
        const char *from;
        const carried own = own_of(pushed, base, lane);
        if (!this->template await_round<WIDE>(at, lane, flag, start_ns, result, &from))
            return false;
        sums->units[part] = reduce<WIDE>(own, part, from, lane, flag);
        if (WIDE && !this->is_short())
            sums->units[1] = reduce<WIDE>(own, 1, from, lane, flag);
        return true;
    }
};

// What is pushed goes to the source's chunk. Bytes that do not fill whole units are slow.
struct gathering_ops : general_ops<uint8_t> {
    __device__ char *chunk(int32_t rank) const {
        return ends.dst + static_cast<size_t>(rank) * count;
    }

    __device__ void store(uint32_t unit, const symmem_cuda_unit &value) const {
        store_to(chunk(args.job.rank), count, unit, value);
    }

    template <bool WIDE>
    __device__ void store_part(const carried &own, uint32_t base, uint32_t part, const char *from,
                               uint32_t lane, uint32_t flag) const {
        const uint32_t unit = base + unit_of(lane, part);
        if (!has_unit(is_short(), lane, part) || unit >= units())
            return;
        for (int32_t k = 0; k < args.job.world_size; k++)
            if (k != args.job.rank)
                store_to(chunk(k), count, unit, unit_from<WIDE>(k, own, part, from, lane, flag));
    }

    template <bool WIDE>
    __device__ bool pull(const carried &own, uint32_t base, uint32_t part, uint32_t at,
                         uint32_t lane, uint32_t flag, uint64_t *start_ns, op_result *result,
                         carried *kept) const {
        const char *from;
        if (!await_round<WIDE>(at, lane, flag, start_ns, result, &from))
            return false;
        store_part<WIDE>(own, base, part, from, lane, flag);
        if (WIDE && !is_short())
            store_part<WIDE>(own, base, 1, from, lane, flag);
        *kept = own;
        return true;
    }
};

// What two ranks move. `count` is the larger of what goes and what comes. A rank with less to push
// pushes empty lines, which say that it is there.
struct exchanging_ops : general_ops<uint8_t> {
    __device__ symmem_cuda_unit load(uint32_t unit) const {
        return load_of(args.exchange.push, args.exchange.push_bytes, unit);
    }

    __device__ void store(uint32_t unit, const symmem_cuda_unit &value) const {
        store_to(args.exchange.pull, args.exchange.pull_bytes, unit, value);
    }

    __device__ void overlapped_work() const {
        take_from(0, own_lane(), all_lanes());
    }

    // Moves bytes within this rank's memory, starting at byte `begin`.
    __device__ void take_from(size_t begin, size_t lane, size_t lanes) const {
        const symmem_cuda_exchange &moved = args.exchange;
        if (begin < moved.own_bytes)
            symmem_cuda_move(
                {moved.own_to + begin, moved.own_from + begin, moved.own_bytes - begin}, lane,
                lanes);
    }

    __device__ uint32_t push_units() const {
        return static_cast<uint32_t>((args.exchange.push_bytes + COUNT - 1) / COUNT);
    }

    __device__ symmem_cuda_unit load_own(uint32_t unit) const {
        return load_of(args.exchange.own_from, args.exchange.own_bytes, unit);
    }

    __device__ void take(uint32_t unit, const symmem_cuda_unit &own,
                         const symmem_cuda_unit &other) const {
        store(unit, other);
        if (args.exchange.own_from != args.exchange.own_to)
            store_to(args.exchange.own_to, args.exchange.own_bytes, unit, own);
    }

    // Moves the bytes beyond those that go from rank to rank.
    __device__ void take_rest(size_t lane, size_t lanes) const {
        take_from(static_cast<size_t>(units()) * COUNT, lane, lanes);
    }

    template <bool WIDE>
    __device__ bool pull(const carried &pushed, uint32_t, uint32_t part, uint32_t at, uint32_t lane,
                         uint32_t flag, uint64_t *start_ns, op_result *result,
                         carried *kept) const {
        const int32_t peer = 1 - args.job.rank;
        const char *from;
        if (!await_round<WIDE>(at, lane, flag, start_ns, result, &from))
            return false;
        kept->units[part] = unit_from<WIDE>(peer, pushed, part, from, lane, flag);
        if (WIDE && !is_short())
            kept->units[1] = unit_from<WIDE>(peer, pushed, 1, from, lane, flag);
        return true;
    }
};

template <typename Ops>
__device__ void run_general(const Ops &ops, uint64_t start_ns, op_result *result) {
    const symmem_cuda_signal_args &signal = ops.args.signal;
    const uint32_t warp = own_warp();
    beginning at;
    at.own = load_round(ops, warp * units_of_round(ops), own_lane_of_warp());
    at.sequence = load_volatile(ops.round_number_word(warp));
    at.poisoned = own_poisoned(signal);
    at.wide = are_linked(word_at(signal, signal.rank, SYMMEM_CUDA_HEADER_BYTES),
                         static_cast<uint32_t>(signal.rank),
                         static_cast<uint32_t>(signal.world_size), ops.args.rounds);
    at.start_ns = start_ns;
    run_rounds(ops, signal, at, result);
}

} // namespace

#endif
