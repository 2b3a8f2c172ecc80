// SPDX-License-Identifier: BSD-3-Clause
// All-to-alls whose splits lie in memory, of two ranks with NVLink, for the usual case: the splits
// are right, and all that goes from one rank to the other fits into the lines of split_lines.cuh.
// splits.cuh includes it.
//
// Small operations take as long as what their threads do one after the other. So each warp works
// by itself: it loads the splits, places the parts in its lanes, pushes its lines, and polls for
// the peer's table of the block. The block meets once to begin and once to agree on the tables.
// What is pushed, and where, is as in the general way. So when it does not find the usual case, the
// block goes on in the general way with the tables that it has.
#ifndef SYMMEM_KERNELS_CUDA_SPLIT_TWO_CUH
#define SYMMEM_KERNELS_CUDA_SPLIT_TWO_CUH

namespace {

#ifndef SYMMEM_CUDA_LONE_LANE

__device__ uint64_t of_lane(uint64_t own, uint32_t lane) {
    return __shfl_sync(~0u, own, static_cast<int>(lane));
}

// A rank's table: lane i has part i. All lanes have the header.
struct lane_table {
    uint64_t begin, rows;
    symmem_cuda_split_check check;
    uint64_t out_rows;
};

// What goes from one rank to the other: lane e has the part of expert e. `at` is in bytes from the
// sender's buffer, or from the receiver's out. `units` of all parts, or FETCHED.
struct lane_parts {
    uint64_t at, part_units;
    uint32_t units;
};

// Which part a split is about, in the order in which they lie in memory.
__device__ uint32_t part_of_split(const symmem_cuda_splits_job &job, uint32_t split) {
    return job.offsets != nullptr ? split % 2 * job.experts + split / 2 : split;
}

// The splits as they lie in memory, not yet checked.
__device__ lane_table load_splits(const symmem_cuda_splits_job &job, uint32_t lane) {
    lane_table own = {0, 0, {SYMMEM_CUDA_SPLIT_OK, 0, 0}, job.out_rows};
    if (lane >= 2 * job.experts)
        return own;
    const bool second = lane >= job.experts;
    const uint32_t split =
        job.offsets != nullptr ? 2 * lane - (second ? 2 * job.experts - 1 : 0) : lane;
    own.rows = static_cast<uint64_t>(job.splits[split]);
    if (job.offsets != nullptr)
        own.begin = static_cast<uint64_t>(job.offsets[split]);
    return own;
}

// Called by all lanes. A rank that is wrong counts as sending nothing.
__device__ void place_splits(const symmem_cuda_splits_job &job, uint32_t lane, lane_table *own) {
    uint64_t end = 0, begin = 0;
    for (uint32_t split = 0; split < 2 * job.experts; split++) {
        const uint32_t part = part_of_split(job, split);
        const uint64_t rows = of_lane(own->rows, part), offset = of_lane(own->begin, part);
        if (own->check.fault == SYMMEM_CUDA_SPLIT_OK)
            own->check = symmem_cuda_place_own(&job, static_cast<int64_t>(rows),
                                               static_cast<int64_t>(offset), &end, &begin);
        if (lane == part)
            own->begin = job.base + begin * job.row_bytes;
    }
    if (own->check.fault != SYMMEM_CUDA_SPLIT_OK)
        own->rows = 0;
}

// --- lines -----------------------------------------------------------------------------

__device__ char *state_of_rank(const symmem_cuda_splits_args &args, int32_t rank) {
    return static_cast<char *>(args.signal.small[rank]);
}

__device__ uint32_t *own_word(const symmem_cuda_splits_args &args, size_t at) {
    return reinterpret_cast<uint32_t *>(state_of_rank(args, args.job.rank) + at);
}

// What a warp loads first, all at once.
struct split_start {
    uint32_t flag, table_flag;
    bool wide, poisoned;
};

__device__ split_start load_start(const symmem_cuda_splits_args &args) {
    const symmem_cuda_ll_layout &rounds = args.rounds;
    const uint32_t warp = own_warp();
    uint32_t *numbers = own_word(args, rounds.round_numbers_at);
    split_start start = {0, load_volatile(numbers + blockIdx.x) + 1, false, false};
    if (warp < rounds.warps)
        start.flag = load_volatile(numbers + gridDim.x + warp) + 1;
    start.poisoned = load_volatile(own_word(args, 0)) != 0;
    start.wide = are_linked(own_word(args, SYMMEM_CUDA_HEADER_BYTES),
                            static_cast<uint32_t>(args.job.rank), 2, rounds);
    return start;
}

// The table's units: two for the header, then one for each part.
__device__ void push_table(const symmem_cuda_splits_args &args, const lane_table &own,
                           uint32_t lane, uint32_t flag) {
    const uint32_t unit = unit_of(lane, 0), part = unit - 2;
    carried table = {};
    const symmem_cuda_unit moved = {of_lane(own.begin, part), of_lane(own.rows, part)};
    if (unit == 0)
        table.units[0] = {own.check.fault, own.check.allowed};
    else if (unit == 1)
        table.units[0] = {own.check.found, own.out_rows};
    else if (has_unit(true, lane, 0) && part < 2 * args.job.experts)
        table.units[0] = moved;
    store_pair<true>(state_of_rank(args, 1 - args.job.rank) +
                         warp_slot(args.rounds, blockIdx.x, lane, flag),
                     lines_of<true>(table, 0, lane, flag), true, lane);
}

// Called by all lanes. Looks for a round's lines for a short while.
template <bool SHORT>
__device__ bool look_for_lines(const char *here, uint32_t lane, uint32_t flag, line_pair *found) {
    bool came = false;
#pragma unroll 1
    for (int look = 0; look < LOOKS_BETWEEN_CHECKS && !came; look++) {
        converge<true>();
        *found = load_pair<true>(here, SHORT, lane, flag);
        came = __all_sync(~0u, found->full);
    }
    return came;
}

// Called by all lanes. Waits for the peer's table. Returns false if it does not come.
__device__ bool take_table(const symmem_cuda_splits_args &args, uint32_t lane, uint32_t flag,
                           op_result *result, lane_table *peer) {
    const char *here =
        state_of_rank(args, args.job.rank) + warp_slot(args.rounds, blockIdx.x, lane, flag);
    line_pair found = {};
    if (!look_for_lines<true>(here, lane, flag, &found)) {
        if (await_lines<true>(args.signal, here, args.rounds.source_bytes, lane, flag, true, 0,
                              result) == 0)
            return false;
        found = load_pair<true>(here, true, lane, flag);
    }
    const symmem_cuda_unit unit = unit_in<true>(found, 0, lane);
    const uint32_t from = (lane + 2) / FLAG_LANE * GROUP + (lane + 2) % FLAG_LANE;
    *peer = {of_lane(unit.low, from),
             of_lane(unit.high, from),
             {of_lane(unit.low, 0), of_lane(unit.high, 0), of_lane(unit.low, 1)},
             of_lane(unit.high, 1)};
    if (lane >= 2 * args.job.experts)
        peer->begin = peer->rows = 0;
    return true;
}

// Returns how many units go by lines, as note_pair does.
__device__ uint32_t count_units(const symmem_cuda_splits_args &args, const lane_parts &parts) {
    const uint64_t most =
        args.line_rows * (args.job.row_bytes / UNIT_BYTES); // less than 2^32, unless rows are none
    uint64_t units = 0;
    bool fits = true;
    for (uint32_t e = 0; e < args.job.experts; e++) {
        const uint64_t more = of_lane(parts.part_units, e), at = of_lane(parts.at, e);
        fits = fits && more <= most - units && (more == 0 || at % UNIT_BYTES == 0);
        units += fits ? more : 0;
    }
    return fits ? static_cast<uint32_t>(units) : FETCHED;
}

// Called by all lanes. Returns where a lane's unit lies.
__device__ uint64_t place_in(const lane_parts &parts, uint32_t experts, uint64_t unit) {
    uint64_t place = 0;
    bool found = false;
    for (uint32_t e = 0; e < experts; e++) {
        const uint64_t units = of_lane(parts.part_units, e), at = of_lane(parts.at, e);
        if (!found && unit < units) {
            place = at + unit * UNIT_BYTES;
            found = true;
        }
        unit -= units;
    }
    return place;
}

__device__ bool has_lines(const symmem_cuda_splits_args &args, const lane_parts &parts) {
    const uint32_t warp = own_warp();
    return warp < args.rounds.warps && parts.units != FETCHED &&
           warp * SYMMEM_CUDA_ROUND_UNITS < parts.units;
}

__device__ void push_lines(const symmem_cuda_splits_args &args, const lane_parts &parts,
                           uint32_t lane, uint32_t flag) {
    const uint32_t warp = own_warp();
    const char *buffer = static_cast<const char *>(args.small_buffers[args.job.rank]);
    carried own = {};
    for (uint32_t part = 0; part < 2; part++) {
        const uint32_t unit = warp * SYMMEM_CUDA_ROUND_UNITS + unit_of(lane, part);
        const uint64_t at = place_in(parts, args.job.experts, unit);
        if (has_unit(false, lane, part) && unit < parts.units)
            own.units[part] = *reinterpret_cast<const symmem_cuda_unit *>(buffer + at);
    }
    store_pair<true>(state_of_rank(args, 1 - args.job.rank) +
                         warp_slot(args.rounds, gridDim.x + warp, lane, flag),
                     lines_of<true>(own, 0, lane, flag), false, lane);
}

__device__ bool take_lines(const symmem_cuda_splits_args &args, split_state *state,
                           const lane_parts &parts, uint32_t lane, uint32_t flag) {
    const uint32_t warp = own_warp();
    const char *lines =
        state_of_rank(args, args.job.rank) + warp_slot(args.rounds, gridDim.x + warp, lane, flag);
    line_pair found = {};
    if (!look_for_lines<false>(lines, lane, flag, &found)) {
        if (!await_part(args, state, 1 - args.job.rank, {lines, 0, lane, flag, false, now_ns()}))
            return false;
        found = load_pair<true>(lines, false, lane, flag);
    }
    for (uint32_t part = 0; part < 2; part++) {
        const uint32_t unit = warp * SYMMEM_CUDA_ROUND_UNITS + unit_of(lane, part);
        const uint64_t at = place_in(parts, args.job.experts, unit);
        if (has_unit(false, lane, part) && unit < parts.units)
            general_ops<uint8_t>::store_to(args.job.out + at, UNIT_BYTES, 0,
                                           unit_in<true>(found, part, lane));
    }
    return true;
}

// --- checks ----------------------------------------------------------------------------

// A rank's out: lane i has the rows of its part i and where they begin. The end is of all.
struct lane_out {
    uint64_t rows, place, end;
};

// As place_parts, for parts whose rows are few enough to be added.
__device__ lane_out place_out(const symmem_cuda_splits_job &job, const lane_table &own,
                              const lane_table &peer, int32_t rank, uint32_t lane) {
    const bool by_ranks = job.offsets != nullptr;
    lane_out out = {0, 0, 0};
    uint64_t at = 0, sum = 0;
    for (uint32_t i = 0; i < 2 * job.experts; i++) {
        const uint32_t from = by_ranks ? i >= job.experts : i % 2;
        const uint32_t expert = by_ranks ? i - from * job.experts : i / 2;
        const uint32_t part = static_cast<uint32_t>(rank) * job.experts + expert;
        const uint64_t rows =
            of_lane(from == static_cast<uint32_t>(job.rank) ? own.rows : peer.rows, part);
        if (i > 0 && (by_ranks ? expert : from) == 0) {
            at = symmem_cuda_add_capped(at, symmem_cuda_aligned_rows(sum, job.align));
            sum = 0;
        }
        if (lane == i)
            out = {rows, symmem_cuda_add_capped(at, sum), 0};
        sum += rows;
        if (sum > 0)
            out.end = symmem_cuda_add_capped(at, sum);
    }
    return out;
}

// Whether this lane's part of the peer's can be added, and lies in its buffer if it comes here.
__device__ bool is_lane_readable(const symmem_cuda_splits_job &job, const lane_table &peer,
                                 uint32_t lane) {
    const uint32_t first = static_cast<uint32_t>(job.rank) * job.experts;
    return peer.rows <= job.buffer_rows && (lane < first || lane >= first + job.experts ||
                                            symmem_cuda_part_can_be(&job, peer.begin, peer.rows));
}

// --- a block ---------------------------------------------------------------------------

__device__ lane_parts parts_to_peer(const symmem_cuda_splits_args &args, const lane_table &own,
                                    uint32_t lane) {
    const uint32_t first = static_cast<uint32_t>(1 - args.job.rank) * args.job.experts;
    const uint64_t units = own.rows * (args.job.row_bytes / UNIT_BYTES);
    lane_parts parts = {of_lane(own.begin, first + lane), of_lane(units, first + lane), 0};
    parts.units = count_units(args, parts);
    return parts;
}

// Units are counted as the sender counts them.
__device__ lane_parts parts_from_peer(const symmem_cuda_splits_args &args, const lane_table &peer,
                                      const lane_out &out, uint32_t lane) {
    const symmem_cuda_splits_job &job = args.job;
    const uint32_t first = static_cast<uint32_t>(job.rank) * job.experts;
    const uint32_t from = static_cast<uint32_t>(1 - job.rank);
    const uint64_t units = peer.rows * (job.row_bytes / UNIT_BYTES);
    lane_parts parts = {of_lane(peer.begin, first + lane), of_lane(units, first + lane), 0};
    parts.units = count_units(args, parts);
    parts.at = job.row_bytes * of_lane(out.place, job.offsets != nullptr ? from * job.experts + lane
                                                                         : 2 * lane + from);
    return parts;
}

__device__ void move_own_parts(const symmem_cuda_splits_args &args, const lane_table &own,
                               const lane_out &out) {
    const symmem_cuda_splits_job &job = args.job;
    const uint32_t rank = static_cast<uint32_t>(job.rank);
    const char *buffer = static_cast<const char *>(args.small_buffers[rank]);
    split_turn turn = own_turn();
    for (uint32_t e = 0; e < job.experts; e++) {
        const uint32_t part = rank * job.experts + e;
        const uint64_t from = of_lane(own.begin, part), rows = of_lane(own.rows, part);
        const uint64_t to = of_lane(out.place, job.offsets != nullptr ? part : 2 * e + rank);
        turn.move(job.out + to * job.row_bytes, buffer + from, rows * job.row_bytes);
    }
}

// For the general way: one warp writes a rank's table to the block's.
__device__ void keep_table(const symmem_cuda_splits_job &job, split_state *state, int32_t rank,
                           const lane_table &table, uint32_t lane) {
    uint64_t *words = state->words + static_cast<uint32_t>(rank) * split_table_words(job);
    if (lane == 0) {
        words[0] = table.check.fault;
        words[1] = table.check.allowed;
        words[2] = table.check.found;
        words[3] = table.out_rows;
    }
    if (lane < part_count(job)) {
        words[SPLIT_HEADER + 2 * lane] = table.begin;
        words[SPLIT_HEADER + 2 * lane + 1] = table.rows;
    }
}

// Called by all threads once all have the tables. Peers do the same.
__device__ void hand_over(const symmem_cuda_splits_args &args, split_state *state,
                          const split_start &start, const lane_table &own, const lane_table &peer) {
    const uint32_t lane = own_lane_of_warp();
    if (lane == 0)
        state->flags[threadIdx.x / LANES] = start.flag;
    if (threadIdx.x == 0) {
        state->table_flag = start.table_flag;
        state->poisoned = false;
        state->wide = true;
        state->fetches = 0;
        *round_word(args, blockIdx.x) = start.table_flag;
    }
    if (threadIdx.x / LANES == 0) {
        keep_table(args.job, state, args.job.rank, own, lane);
        keep_table(args.job, state, 1 - args.job.rank, peer, lane);
    }
    __syncthreads();
}

// Called by all threads. The last thing that a block does.
__device__ void end_two(const symmem_cuda_splits_args &args, split_state *state,
                        const split_start &start, bool came) {
    const uint32_t warp = own_warp();
    uint32_t *numbers = own_word(args, args.rounds.round_numbers_at);
    const bool all_came = __syncthreads_and(came);
    if (all_came && own_lane_of_warp() == 0 && warp < args.rounds.warps)
        numbers[gridDim.x + warp] = start.flag;
    if (threadIdx.x != 0)
        return;
    if (all_came)
        numbers[blockIdx.x] = start.table_flag;
    else
        fail(args.signal, &state->result);
}

// Called by all threads once the block has found that this is the usual case.
__device__ void move_two(const symmem_cuda_splits_args &args, split_state *state,
                         const split_start &start, const lane_table &own, const lane_out &out,
                         const lane_parts &parts) {
    const uint32_t lane = own_lane_of_warp(), count = part_count(args.job);
    const bool came = !has_lines(args, parts) || take_lines(args, state, parts, lane, start.flag);
    move_own_parts(args, own, out);
    if (blockIdx.x == 0 && threadIdx.x < count) {
        args.job.results[lane] = static_cast<int64_t>(out.rows);
        args.job.results[count + lane] = static_cast<int64_t>(out.place);
    }
    end_two(args, state, start, came);
}

// Called by all threads, with the kernel's own arguments, which need not be copied.
__device__ split_stage run_two(const symmem_cuda_splits_args &args, split_state *state) {
    const symmem_cuda_splits_job &job = args.job;
    const uint32_t lane = own_lane_of_warp();
    lane_table own = load_splits(job, lane), peer = {};
    const split_start start = load_start(args);
    const bool pushes = __all_sync(~0u, start.wide && !start.poisoned);
    place_splits(job, lane, &own);
    const lane_parts pushed = parts_to_peer(args, own, lane);
    if (pushes && threadIdx.x / LANES == 0)
        push_table(args, own, lane, start.table_flag);
    if (pushes && has_lines(args, pushed))
        push_lines(args, pushed, lane, start.flag);
    begin(&state->result, 0); // while those are in flight
    if (threadIdx.x == 0)
        state->result.checked = 0;
    if (!__syncthreads_and(start.wide))
        return SPLITS_NOT_BEGUN;
    if (!pushes)
        decide_since(now_ns(), POISONED, job.rank, &state->result);
    const bool came = pushes && take_table(args, lane, start.table_flag, &state->result, &peer);
    const lane_out out = place_out(job, own, peer, job.rank, lane);
    const lane_parts parts = parts_from_peer(args, peer, out, lane);
    const uint64_t peer_end = place_out(job, own, peer, 1 - job.rank, lane).end;
    const bool usual = came && own.check.fault == SYMMEM_CUDA_SPLIT_OK &&
                       peer.check.fault == SYMMEM_CUDA_SPLIT_OK &&
                       is_lane_readable(job, peer, lane) && out.end <= own.out_rows &&
                       peer_end <= peer.out_rows && pushed.units != FETCHED &&
                       parts.units != FETCHED;
    if (__syncthreads_and(usual)) {
        move_two(args, state, start, own, out, parts);
        return SPLITS_DONE;
    }
    if (__syncthreads_and(came)) {
        hand_over(args, state, start, own, peer);
        return SPLITS_EXCHANGED;
    }
    if (threadIdx.x == 0)
        fail(args.signal, &state->result);
    return SPLITS_DONE;
}

#endif

// Called by all threads. On the CPU one thread may be a warp, which has no lanes then.
__device__ split_stage run_usual_splits(const symmem_cuda_splits_args &args, split_state *state) {
#ifndef SYMMEM_CUDA_LONE_LANE
    if (args.of_two && !args.after_barrier && args.signal.stream != SYMMEM_CUDA_NO_STREAM)
        return run_two(args, state);
#endif
    (void)args, (void)state;
    return SPLITS_NOT_BEGUN;
}

} // namespace

#endif
