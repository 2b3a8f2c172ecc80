// SPDX-License-Identifier: BSD-3-Clause
// All-to-alls whose splits lie in memory, by LL lines: the ranks' tables, and behind them the parts
// that fit. splits.cuh includes it.
//
// A block's table goes through the slot of the block's number. The slots behind those of the blocks
// are for data: each belongs to a warp, has its own round number and takes ROUND_UNITS of what a
// rank sends to another. A rank pushes them with its table, so they arrive as early. It needs no
// place in the peer's out for that, because the peer puts them there, once all have found that the
// splits are right. What a pair of ranks has too much of for the slots, or has at odd addresses, is
// fetched from the sender's buffer. Tables say which pairs these are, so all ranks agree.
//
// Slots are free when they are used again (ll.cuh): a rank that has its peers' tables of one
// operation knows that those have finished the operation before.
#ifndef SYMMEM_KERNELS_CUDA_SPLIT_LINES_CUH
#define SYMMEM_KERNELS_CUDA_SPLIT_LINES_CUH

namespace {

// --- tables ----------------------------------------------------------------------------

// The lanes of a warp, in the order in which they store or load a line. On the CPU one thread is
// all of them: in a group the lane with the flags stores last and loads first.
template <typename Visit> __device__ bool for_lanes(bool loading, Visit visit) {
#ifdef SYMMEM_CUDA_LONE_LANE
    for (uint32_t i = 0; i < LANES; i++)
        if (!visit(loading ? i / GROUP * GROUP + (i + FLAG_LANE) % GROUP : i))
            return false;
    return true;
#else
    (void)loading;
    return visit(threadIdx.x % LANES);
#endif
}

// Called by all lanes. All lines are loaded before the first of them is looked at.
template <bool WIDE>
__device__ bool have_all_come(const char *here, const symmem_cuda_splits_args &args, uint32_t lane,
                              uint32_t flag) {
    bool full = true;
    converge<WIDE>();
#pragma unroll 4
    for (uint32_t source = 0; source + 1 < static_cast<uint32_t>(args.job.ranks); source++)
        full &= load_pair<WIDE>(here + source * args.rounds.source_bytes, true, lane, flag).full;
    return __all_sync(~0u, full);
}

template <bool WIDE>
__device__ void keep_tables(const symmem_cuda_splits_args &args, split_state *state,
                            const char *here, uint32_t lane, uint32_t flag) {
    const symmem_cuda_splits_job &job = args.job;
    const uint32_t words = split_table_words(job), unit = unit_of(lane, 0);
    for (int32_t rank = 0; rank < job.ranks; rank++) {
        if (rank == job.rank)
            continue;
        const char *from = here + source_index(rank, job.rank) * args.rounds.source_bytes;
        const symmem_cuda_unit found =
            unit_in<WIDE>(load_pair<WIDE>(from, true, lane, flag), 0, lane);
        uint64_t *to = state->words + static_cast<uint32_t>(rank) * words + 2 * unit;
        if (has_unit(true, lane, 0) && unit < (words + 1) / 2) {
            to[0] = found.low;
            to[1] = found.high;
        }
    }
}

// Called by the first warp: a short round in the slot of the block's number. Clocks are slow to
// read, so a warp that does not wait long reads none.
template <bool WIDE>
__device__ bool swap_lines(const symmem_cuda_splits_args &args, split_state *state, uint32_t flag,
                           uint64_t start_ns) {
    const symmem_cuda_splits_job &job = args.job;
    const uint32_t words = split_table_words(job), units = (words + 1) / 2;
    (void)for_lanes(false, [&](uint32_t lane) {
        carried own = {};
        const uint32_t unit = unit_of(lane, 0);
        const uint64_t *from = state->words + static_cast<uint32_t>(job.rank) * words + 2 * unit;
        if (has_unit(true, lane, 0) && unit < units)
            own.units[0] = {from[0], from[1]};
        const line_pair lines = lines_of<WIDE>(own, 0, lane, flag);
        for (int32_t rank = 0; rank < job.ranks; rank++)
            if (rank != job.rank)
                store_pair<WIDE>(static_cast<char *>(args.signal.signals[rank]) +
                                     warp_slot(args.rounds, blockIdx.x, lane, flag) +
                                     source_index(job.rank, rank) * args.rounds.source_bytes,
                                 lines, true, lane);
        return true;
    });
    return for_lanes(true, [&](uint32_t lane) {
        const char *here = static_cast<const char *>(args.signal.signals[job.rank]) +
                           warp_slot(args.rounds, blockIdx.x, lane, flag);
        bool came = false;
        for (int look = 0; look < LOOKS_BETWEEN_CHECKS && !came; look++)
            came = have_all_come<WIDE>(here, args, lane, flag);
        if (!came && await_lines<WIDE>(args.signal, here, args.rounds.source_bytes, lane, flag,
                                       true, start_ns, &state->result) == 0)
            return false;
        keep_tables<WIDE>(args, state, here, lane, flag);
        return true;
    });
}

// Called by all threads before they read what peers had written before their lines. The lines say
// that it is there, and an acquire that it is not read before.
__device__ void acquire_lines(const symmem_cuda_splits_args &args, const split_state *state) {
    const char *here = static_cast<const char *>(args.signal.signals[args.job.rank]) +
                       warp_slot(args.rounds, blockIdx.x, 0, state->table_flag);
    const uint32_t sources = static_cast<uint32_t>(args.job.ranks) - 1;
    for (uint32_t source = threadIdx.x; source < sources; source += blockDim.x)
        (void)load_acquire(
            reinterpret_cast<const uint32_t *>(here + source * args.rounds.source_bytes));
    __syncthreads();
}

// --- parts -----------------------------------------------------------------------------

constexpr uint32_t UNIT_BYTES = sizeof(symmem_cuda_unit);
constexpr uint32_t FETCHED = ~0u; // in place of a number of units

__device__ uint32_t *round_word(const symmem_cuda_splits_args &args, uint32_t slot) {
    return word_at(args.signal, args.job.rank, args.rounds.round_numbers_at) + slot;
}

// Loads what takes a while, before the splits have come. The caller synchronizes the threads.
__device__ void begin_lines(const symmem_cuda_splits_args &args, split_state *state) {
    const uint32_t rank = static_cast<uint32_t>(args.job.rank);
    if (is_first_lane() && own_warp() < args.rounds.warps)
        state->flags[threadIdx.x / LANES] =
            load_volatile(round_word(args, gridDim.x + own_warp())) + 1;
    if (threadIdx.x + 1 != blockDim.x)
        return;
    state->table_flag = load_volatile(round_word(args, blockIdx.x)) + 1;
    state->poisoned = own_poisoned(args.signal);
    state->wide = are_linked(word_at(args.signal, args.job.rank, SYMMEM_CUDA_HEADER_BYTES), rank,
                             static_cast<uint32_t>(args.job.ranks), args.rounds);
}

// The flag of a warp's slot for data.
__device__ uint32_t data_flag(const symmem_cuda_splits_args &args, const split_state *state,
                              uint32_t warp) {
#ifdef SYMMEM_CUDA_LONE_LANE
    (void)state;
    return load_volatile(round_word(args, gridDim.x + warp)) + 1;
#else
    (void)args, (void)warp;
    return state->flags[threadIdx.x / LANES];
#endif
}

__device__ uint32_t &units_of_pair(const symmem_cuda_splits_job &job, split_state *state,
                                   uint32_t from, uint32_t to) {
    return state->units[from * static_cast<uint32_t>(job.ranks) + to];
}

// Notes how many units of a pair of ranks go by lines, from the table of the one that sends.
__device__ void note_pair(const symmem_cuda_splits_args &args, split_state *state, uint32_t from,
                          uint32_t to) {
    const symmem_cuda_splits_job &job = args.job;
    uint32_t &units = units_of_pair(job, state, from, to);
    uint64_t rows = 0;
    units = FETCHED;
    if (!state->wide || from == to)
        return;
    for (uint32_t e = 0; e < job.experts; e++) {
        const uint64_t *part = split_part(job, state, static_cast<int32_t>(from), to, e);
        if (part[1] > args.line_rows - rows || (part[1] > 0 && part[0] % UNIT_BYTES != 0))
            return;
        rows += part[1];
    }
    units = static_cast<uint32_t>(rows * job.row_bytes / UNIT_BYTES);
}

// Returns where a unit of a pair lies: in bytes from the sender's buffer, or from the receiver's
// out.
__device__ uint64_t place_of_unit(const symmem_cuda_splits_job &job, split_state *state,
                                  uint32_t from, uint32_t to, uint64_t unit, bool in_out) {
    for (uint32_t e = 0; e < job.experts; e++) {
        const uint64_t *part = split_part(job, state, static_cast<int32_t>(from), to, e);
        const uint64_t units = part[1] * job.row_bytes / UNIT_BYTES;
        const uint32_t number = job.offsets != nullptr
                                    ? from * job.experts + e
                                    : e * static_cast<uint32_t>(job.ranks) + from;
        if (unit < units)
            return (in_out ? state->place[number] * job.row_bytes : part[0]) + unit * UNIT_BYTES;
        unit -= units;
    }
    return 0; // there are no more units than those of the parts
}

// Visits the lines that this warp has from `from` to `to`, if there are any.
template <typename Visit>
__device__ bool for_own_lines(const symmem_cuda_splits_args &args, split_state *state,
                              uint32_t from, uint32_t to, bool loading, Visit visit) {
    const uint32_t units = units_of_pair(args.job, state, from, to);
    const uint32_t all = static_cast<uint32_t>(all_lanes() / WARP_LANES);
    for (uint32_t warp = own_warp(); units != FETCHED && warp < args.rounds.warps; warp += all) {
        const uint32_t base = warp * SYMMEM_CUDA_ROUND_UNITS;
        const uint32_t flag = data_flag(args, state, warp);
        if (base < units && !for_lanes(loading, [&](uint32_t lane) {
                const uint32_t at = warp_slot(args.rounds, gridDim.x + warp, lane, flag) +
                                    source_index(from, to) * args.rounds.source_bytes;
                char *lines = static_cast<char *>(args.signal.signals[to]) + at;
                return visit(lines, base, units, lane, flag);
            }))
            return false;
    }
    return true;
}

__device__ void push_parts(const symmem_cuda_splits_args &args, split_state *state) {
    const symmem_cuda_splits_job &job = args.job;
    const uint32_t own = static_cast<uint32_t>(job.rank), ranks = static_cast<uint32_t>(job.ranks);
    const char *buffer = static_cast<const char *>(job.buffers[own]);
    for (uint32_t i = 1; i < ranks; i++) {
        const uint32_t to = (own + i) % ranks;
        (void)for_own_lines(
            args, state, own, to, false,
            [&](char *lines, uint32_t base, uint32_t units, uint32_t lane, uint32_t flag) {
                carried found = {};
                for (uint32_t part = 0; part < 2; part++) {
                    const uint32_t unit = base + unit_of(lane, part);
                    if (has_unit(false, lane, part) && unit < units)
                        found.units[part] = *reinterpret_cast<const symmem_cuda_unit *>(
                            buffer + place_of_unit(job, state, own, to, unit, false));
                }
                store_pair<true>(lines, lines_of<true>(found, 0, lane, flag), false, lane);
                return true;
            });
    }
}

// Called by all lanes. Like await_lines, but for one source. Others may send nothing.
__device__ bool await_part(const symmem_cuda_splits_args &args, split_state *state, int32_t from,
                           const awaited &lines) {
    while (true) {
        for (int look = 0; look < LOOKS_BETWEEN_CHECKS; look++)
            if (have_come<true>(lines, 0))
                return true;
        const bool checking =
            is_first_lane() && is_block_check_due(args.signal, lines.start_ns, &state->result);
        int32_t failed_rank = -1;
        const uint32_t code = wait_failure_code(args.signal, from, checking, lines.start_ns,
                                                &state->result, &failed_rank);
        if (__all_sync(~0u, code == OK))
            continue;
        if (have_come<true>(lines, 0))
            return true;
        if (is_first_lane() && (code == TIMEOUT || code == PEER_LOST))
            atomicOr(&state->result.missing[from / 32], 1u << (from % 32));
        if (is_first_lane() && code != DECIDED)
            decide_since(lines.start_ns, code, failed_rank, &state->result);
        return false;
    }
}

__device__ bool take_part(const symmem_cuda_splits_args &args, split_state *state, uint32_t from,
                          uint64_t start_ns) {
    const symmem_cuda_splits_job &job = args.job;
    const uint32_t own = static_cast<uint32_t>(job.rank);
    return for_own_lines(
        args, state, from, own, true,
        [&](const char *lines, uint32_t base, uint32_t units, uint32_t lane, uint32_t flag) {
            line_pair found = load_pair<true>(lines, false, lane, flag);
            if (!__all_sync(~0u, found.full)) {
                if (!await_part(args, state, static_cast<int32_t>(from),
                                {lines, 0, lane, flag, false, start_ns}))
                    return false;
                found = load_pair<true>(lines, false, lane, flag);
            }
            for (uint32_t part = 0; part < 2; part++) {
                const uint32_t unit = base + unit_of(lane, part);
                if (has_unit(false, lane, part) && unit < units)
                    general_ops<uint8_t>::store_to(
                        job.out + place_of_unit(job, state, from, own, unit, true), UNIT_BYTES, 0,
                        unit_in<true>(found, part, lane));
            }
            return true;
        });
}

// Every operation takes one round of every slot, whether or not there is something in it.
__device__ void end_lines(const symmem_cuda_splits_args &args, const split_state *state) {
    const uint32_t all = static_cast<uint32_t>(all_lanes() / WARP_LANES);
    for (uint32_t warp = own_warp(); is_first_lane() && warp < args.rounds.warps; warp += all)
        *round_word(args, gridDim.x + warp) = data_flag(args, state, warp);
}

// Called by all threads, as are those below. Returns false if lines did not come.
__device__ bool take_parts(const symmem_cuda_splits_args &args, split_state *state,
                           uint64_t start_ns) {
    const uint32_t own = static_cast<uint32_t>(args.job.rank);
    const uint32_t ranks = static_cast<uint32_t>(args.job.ranks);
    bool came = true;
    for (uint32_t i = 1; came && i < ranks; i++)
        came = take_part(args, state, (own + i) % ranks, start_ns);
    if (__syncthreads_and(came))
        return true;
    if (threadIdx.x == 0)
        fail(args.signal, &state->result);
    return false;
}

// --- both --------------------------------------------------------------------------------

__device__ bool swap_tables(const symmem_cuda_splits_args &args, split_state *state,
                            uint64_t start_ns) {
    const uint32_t flag = state->table_flag;
    const bool came = state->wide ? swap_lines<true>(args, state, flag, start_ns)
                                  : swap_lines<false>(args, state, flag, start_ns);
    if (came && threadIdx.x == 0)
        *round_word(args, blockIdx.x) = flag;
    return came;
}

// Pushes this rank's table and parts, and waits for the tables of the others.
__device__ bool exchange_by_lines(const symmem_cuda_splits_args &args, split_state *state,
                                  uint64_t start_ns) {
    const uint32_t own = static_cast<uint32_t>(args.job.rank);
    begin_block_of_rounds(&state->result, start_ns);
    if (state->poisoned && threadIdx.x == 0)
        decide_since(start_ns, POISONED, args.job.rank, &state->result);
    for (uint32_t p = threadIdx.x; p < static_cast<uint32_t>(args.job.ranks); p += blockDim.x)
        note_pair(args, state, own, p);
    __syncthreads();
    bool came = !state->poisoned;
    if (came)
        push_parts(args, state);
    if (came && threadIdx.x / LANES == 0)
        came = swap_tables(args, state, start_ns);
    if (__syncthreads_and(came))
        return true;
    if (threadIdx.x == 0)
        fail(args.signal, &state->result);
    return false;
}

} // namespace

#endif
