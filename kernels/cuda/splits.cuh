// SPDX-License-Identifier: BSD-3-Clause
// All-to-alls whose splits lie in memory (splits.h), in one kernel. Each block reads this rank's
// splits, shows the table of its parts to the blocks of its number on the other ranks and gets
// theirs, by LL lines or through the signal state and a barrier. So every block knows all parts of
// all ranks, checks them, and finds the same result on every rank. Parts that fit have come by
// lines with the tables (split_lines.cuh; split_two.cuh has a faster way for two ranks). The others
// its warps fetch from the peers' buffers, and then a barrier of each block ends the operation.
//
// Tables that do not fit take some experts at a time, in one block: once to check, and once more to
// move. Channels without room for a table have their split table for that, one expert at a time.
//
// No word of a peer's is used before it is checked. A block reads each word once.
#ifndef SYMMEM_KERNELS_CUDA_SPLITS_CUH
#define SYMMEM_KERNELS_CUDA_SPLITS_CUH

#include "cuda/ll.cuh"
#include "cuda/splits.h"

namespace {

constexpr uint32_t SPLIT_HEADER = SYMMEM_CUDA_SPLIT_HEADER;
#ifdef SYMMEM_CUDA_LONE_LANE
constexpr uint32_t WARP_LANES = 1; // that share out the moves
#else
constexpr uint32_t WARP_LANES = LANES;
#endif

// How far a block has come: not at all, it has all tables, or it is done.
enum split_stage { SPLITS_NOT_BEGUN, SPLITS_EXCHANGED, SPLITS_DONE };

// A block's knowledge, in shared memory.
struct split_state {
    op_result result;
    symmem_cuda_split_check check;
    int32_t wrong; // the rank that `check` is about, or -1
    bool going, poisoned, wide;
    uint32_t fetches; // not 0: some rank does from another one's buffer
    uint32_t table_flag, flags[SYMMEM_CUDA_SPLIT_THREADS / LANES]; // of this round's lines
    // that go from one rank to another by lines, or FETCHED
    uint32_t units[SYMMEM_CUDA_SMALL_RANKS * SYMMEM_CUDA_SMALL_RANKS];
    uint64_t place[SYMMEM_CUDA_MAX_RANKS]; // at which row of out each part begins
    union {
        uint64_t words[SYMMEM_CUDA_SPLIT_SNAPSHOT];    // the tables of all ranks
        struct {                                       // or, with some experts at a time:
            uint64_t parts[SYMMEM_CUDA_PIECE_WORDS];   // where each part begins, and its rows
            uint64_t next[SYMMEM_CUDA_MAX_RANKS];      // the row of each rank's next part
            uint64_t own_begin[SYMMEM_CUDA_MAX_RANKS]; // the same of this rank's input
        } piece;
    };
};

__device__ uint64_t load_word(const uint64_t *word) {
    return *static_cast<const volatile uint64_t *>(word);
}

__device__ uint64_t *split_table_of(const symmem_cuda_splits_args &args, int32_t rank) {
    return reinterpret_cast<uint64_t *>(static_cast<char *>(args.signal.signals[rank]) +
                                        args.table_at);
}

__device__ uint32_t split_table_words(const symmem_cuda_splits_job &job) {
    return static_cast<uint32_t>(symmem_cuda_split_words(job.ranks, job.experts));
}

__device__ uint32_t part_count(const symmem_cuda_splits_job &job) {
    return static_cast<uint32_t>(job.ranks) * job.experts;
}

// The words of part (p, e) of `rank`, in the snapshot.
__device__ uint64_t *split_part(const symmem_cuda_splits_job &job, split_state *state, int32_t rank,
                                uint32_t p, uint32_t e) {
    return state->words + static_cast<uint32_t>(rank) * split_table_words(job) + SPLIT_HEADER +
           2 * (p * job.experts + e);
}

// --- failures ------------------------------------------------------------------------

// Called by all threads once every rank has found the same. Nothing is poisoned.
__device__ void fail_splits(const symmem_cuda_splits_args &args, split_state *state) {
    if (threadIdx.x != 0 || blockIdx.x != 0)
        return;
    const bool is_range = state->check.fault == SYMMEM_CUDA_SPLIT_BEYOND ||
                          state->check.fault == SYMMEM_CUDA_SPLIT_OFFSET_BEYOND ||
                          state->check.fault == SYMMEM_CUDA_SPLIT_OUT;
    op_result *result = &state->result;
    result->other[0] = 0;
    result->other[1] = static_cast<uint32_t>(state->check.fault);
    memcpy(&result->other[2], &state->check.found, sizeof state->check.found);
    memcpy(&result->other[4], &state->check.allowed, sizeof state->check.allowed);
    decide(result, is_range ? OUT_OF_RANGE : INVALID_ARGUMENT, state->wrong, 0);
    fail(args.signal, result);
}

// A rank published what cannot be, which perhaps no other rank has seen.
__device__ void fail_corrupt_part(const symmem_cuda_splits_args &args, split_state *state) {
    if (threadIdx.x != 0)
        return;
    decide(&state->result, CORRUPT, state->wrong, 0);
    fail(args.signal, &state->result);
}

// --- this rank's table ----------------------------------------------------------------

__device__ void begin_lines(const symmem_cuda_splits_args &args, split_state *state);

// Reads all splits at once, then places the parts one after the other.
__device__ void make_own_table(const symmem_cuda_splits_args &args, split_state *state) {
    const symmem_cuda_splits_job &job = args.job;
    const uint32_t parts = part_count(job), ranks = static_cast<uint32_t>(job.ranks);
    uint64_t *header = state->words + static_cast<uint32_t>(job.rank) * split_table_words(job);
    for (uint32_t i = threadIdx.x; i < parts; i += blockDim.x) {
        const bool by_experts = job.offsets != nullptr;
        const uint32_t p = by_experts ? i % ranks : i / job.experts;
        const uint32_t e = by_experts ? i / ranks : i % job.experts;
        uint64_t *part = split_part(job, state, job.rank, p, e);
        part[0] = by_experts ? static_cast<uint64_t>(job.offsets[i]) : 0;
        part[1] = static_cast<uint64_t>(job.splits[i]);
    }
    if (args.way == SYMMEM_CUDA_SPLIT_LINES)
        begin_lines(args, state);
    __syncthreads();
    if (threadIdx.x == 0) {
        const symmem_cuda_splits_job own = args.job; // in registers
        symmem_cuda_split_check check = {0, 0, 0};
        uint64_t end = 0, begin = 0;
        state->fetches = args.way != SYMMEM_CUDA_SPLIT_LINES;
        const uint32_t outer = own.offsets != nullptr ? own.experts : ranks;
        const uint32_t inner = own.offsets != nullptr ? ranks : own.experts;
        for (uint32_t a = 0; a < outer; a++)
            for (uint32_t b = 0; b < inner && check.fault == SYMMEM_CUDA_SPLIT_OK; b++) {
                uint64_t *part = own.offsets != nullptr ? split_part(own, state, own.rank, b, a)
                                                        : split_part(own, state, own.rank, a, b);
                check = symmem_cuda_place_own(&own, static_cast<int64_t>(part[1]),
                                              static_cast<int64_t>(part[0]), &end, &begin);
                part[0] = own.base + begin * own.row_bytes;
            }
        header[0] = check.fault;
        header[1] = check.allowed;
        header[2] = check.found;
        header[3] = job.out_rows;
    }
    __syncthreads();
    if (header[0] != SYMMEM_CUDA_SPLIT_OK) // who is wrong counts as sending nothing
        for (uint32_t i = threadIdx.x; i < parts; i += blockDim.x)
            header[SPLIT_HEADER + 2 * i + 1] = 0;
    __syncthreads();
}

} // namespace

#include "cuda/split_lines.cuh"

namespace {

// --- through the signal state --------------------------------------------------------

// Every block of a rank writes the same words.
__device__ bool exchange_by_tables(const symmem_cuda_splits_args &args, split_state *state,
                                   uint64_t start_ns) {
    const symmem_cuda_splits_job &job = args.job;
    const uint32_t words = split_table_words(job), own = static_cast<uint32_t>(job.rank);
    uint64_t *table = split_table_of(args, job.rank);
    for (uint32_t i = threadIdx.x; i < words; i += blockDim.x)
        table[i] = state->words[own * words + i];
    __syncthreads();
    if (!sync_ranks(args.signal, block_sync_words(args.signal), &state->result, start_ns, false))
        return false;
    for (uint32_t i = threadIdx.x; i < words * static_cast<uint32_t>(job.ranks); i += blockDim.x)
        if (i / words != own)
            state->words[i] =
                load_word(split_table_of(args, static_cast<int32_t>(i / words)) + i % words);
    __syncthreads();
    return true;
}

// --- checks ---------------------------------------------------------------------------

// Returns the row at which the last part with rows that comes to `rank` ends. `place`: also notes
// where each part begins, by its number in out.
__device__ uint64_t place_parts(symmem_cuda_splits_job job, split_state *state, int32_t rank,
                                uint64_t *place) {
    const bool by_ranks = job.offsets != nullptr; // out
    const uint32_t ranks = static_cast<uint32_t>(job.ranks);
    const uint32_t outer = by_ranks ? ranks : job.experts, inner = by_ranks ? job.experts : ranks;
    uint64_t at = 0, last = 0;
    for (uint32_t a = 0; a < outer; a++) {
        uint64_t sum = 0;
        for (uint32_t b = 0; b < inner; b++) {
            const uint32_t from = by_ranks ? a : b, expert = by_ranks ? b : a;
            if (place != nullptr)
                place[a * inner + b] = symmem_cuda_add_capped(at, sum);
            sum = symmem_cuda_add_capped(sum, split_part(job, state, static_cast<int32_t>(from),
                                                         static_cast<uint32_t>(rank), expert)[1]);
        }
        if (sum > 0)
            last = symmem_cuda_add_capped(at, sum);
        at = symmem_cuda_add_capped(at, symmem_cuda_aligned_rows(sum, job.align));
    }
    return last;
}

// What every rank finds in the tables. UNREADABLE: a rank's fault is none that there is, or a part
// is not in its rank's buffer.
enum split_verdict { SPLITS_WRONG, SPLITS_UNREADABLE };

// Notes in the header of a rank's table that what comes to it does not fit into its out. Returns
// whether it is right.
__device__ bool is_rank_right(const symmem_cuda_splits_job &job, split_state *state, int32_t rank) {
    uint64_t *header = state->words + static_cast<uint32_t>(rank) * split_table_words(job);
    const uint64_t end = place_parts(job, state, rank, rank == job.rank ? state->place : nullptr);
    if (header[0] == SYMMEM_CUDA_SPLIT_OK && end > header[3]) {
        header[0] = SYMMEM_CUDA_SPLIT_OUT;
        header[1] = header[3];
        header[2] = end;
    }
    return header[0] == SYMMEM_CUDA_SPLIT_OK;
}

// Whether a part that comes to this rank lies in its rank's buffer.
__device__ bool is_part_there(const symmem_cuda_splits_job &job, split_state *state, uint32_t i) {
    const uint64_t *part = split_part(job, state, static_cast<int32_t>(i / job.experts),
                                      static_cast<uint32_t>(job.rank), i % job.experts);
    return symmem_cuda_part_can_be(&job, part[0], part[1]);
}

// Called by all threads. Returns whether all is as it should be, which is found at once, and notes
// what goes by lines.
__device__ bool all_is_right(const symmem_cuda_splits_args &args, split_state *state) {
    const symmem_cuda_splits_job &job = args.job;
    const uint32_t ranks = static_cast<uint32_t>(job.ranks), thread = threadIdx.x;
    const bool by_lines = args.way == SYMMEM_CUDA_SPLIT_LINES;
    bool right = true;
    for (uint32_t r = thread; r < ranks; r += blockDim.x)
        right = is_rank_right(job, state, static_cast<int32_t>(r)) && right;
    for (uint32_t i = thread; i < part_count(job); i += blockDim.x)
        right = is_part_there(job, state, i) && right;
    for (uint32_t i = thread; by_lines && i < ranks * ranks; i += blockDim.x) {
        note_pair(args, state, i / ranks, i % ranks);
        if (i / ranks != i % ranks && state->units[i] == FETCHED)
            atomicOr(&state->fetches, 1u);
    }
    return __syncthreads_and(right);
}

// Called by all threads after all_is_right. state->wrong is the first rank that is wrong. It may
// change once a thread is back, so all take their verdict from it before.
__device__ split_verdict find_wrong(const symmem_cuda_splits_job &job, split_state *state) {
    const uint32_t words = split_table_words(job);
    if (threadIdx.x == 0) {
        state->wrong = -1;
        for (int32_t r = job.ranks - 1; r >= 0; r--) {
            const uint64_t *header = state->words + static_cast<uint32_t>(r) * words;
            if (header[0] == SYMMEM_CUDA_SPLIT_OK)
                continue;
            state->wrong = r;
            state->check = {header[0], header[1], header[2]};
        }
        for (uint32_t i = part_count(job); state->wrong < 0 && i > 0; i--)
            if (!is_part_there(job, state, i - 1)) {
                state->wrong = static_cast<int32_t>((i - 1) / job.experts);
                state->check.fault = SYMMEM_CUDA_SPLIT_FAULTS;
            }
    }
    __syncthreads();
    const split_verdict verdict =
        state->check.fault < SYMMEM_CUDA_SPLIT_FAULTS ? SPLITS_WRONG : SPLITS_UNREADABLE;
    __syncthreads();
    return verdict;
}

// --- moves ----------------------------------------------------------------------------

// A share of the moves: of the items of all parts, each warp takes every warps-th one. The first
// warps are those that have lines, so the last ones begin.
struct split_turn {
    uint32_t warp, warps, first; // the first item of the next part

    __device__ void move(char *dst, const char *src, uint64_t bytes) {
        const uint32_t items =
            static_cast<uint32_t>((bytes + SYMMEM_CUDA_SPLIT_ITEM - 1) / SYMMEM_CUDA_SPLIT_ITEM);
        uint32_t item = warp >= first ? warp - first : warp + warps - first;
        for (; item < items; item += warps) {
            const uint64_t at = static_cast<uint64_t>(item) * SYMMEM_CUDA_SPLIT_ITEM;
            const uint64_t left = bytes - at;
            move_item(dst + at, src + at,
                      left < SYMMEM_CUDA_SPLIT_ITEM ? left : SYMMEM_CUDA_SPLIT_ITEM);
        }
        first = (first + items) % warps;
    }

    // The usual case without the divisions of the general one.
    static __device__ void move_item(char *dst, const char *src, uint64_t bytes) {
        constexpr uint64_t unit = sizeof(symmem_cuda_unit);
        if ((reinterpret_cast<uint64_t>(dst) | reinterpret_cast<uint64_t>(src) | bytes) % unit == 0)
            symmem_cuda_move_units<symmem_cuda_unit>(dst, src, bytes / unit, own_lane_of_warp(),
                                                     WARP_LANES);
        else
            symmem_cuda_move({dst, src, bytes}, own_lane_of_warp(), WARP_LANES);
    }
};

__device__ split_turn own_turn() {
    const uint32_t warps = static_cast<uint32_t>(all_lanes() / WARP_LANES);
    return {warps - 1 - own_warp(), warps, 0};
}

// place has where each part begins. Parts that come by lines are left out.
__device__ void move_parts(const symmem_cuda_splits_args &args, split_state *state) {
    const symmem_cuda_splits_job &job = args.job;
    const bool by_ranks = job.offsets != nullptr, by_lines = args.way == SYMMEM_CUDA_SPLIT_LINES;
    const uint32_t own = static_cast<uint32_t>(job.rank);
    const uint32_t ranks = static_cast<uint32_t>(job.ranks), parts = part_count(job);
    split_turn turn = own_turn();
    for (uint32_t i = 0; i < parts; i++) {
        const uint32_t from = by_ranks ? i / job.experts : i % ranks;
        const uint32_t expert = by_ranks ? i % job.experts : i / ranks;
        const uint64_t *part = split_part(job, state, static_cast<int32_t>(from),
                                          static_cast<uint32_t>(job.rank), expert);
        if (part[1] > 0 && (!by_lines || units_of_pair(job, state, from, own) == FETCHED))
            turn.move(job.out + state->place[i] * job.row_bytes,
                      static_cast<const char *>(job.buffers[from]) + part[0],
                      part[1] * job.row_bytes);
        if (blockIdx.x == 0 && i % blockDim.x == threadIdx.x) {
            job.results[i] = static_cast<int64_t>(part[1]);
            job.results[parts + i] = static_cast<int64_t>(state->place[i]);
        }
    }
}

// Called once all ranks have found the splits right. Returns whether ranks still have to meet,
// because some rank fetches from another one's buffer.
__device__ bool move_all(const symmem_cuda_splits_args &args, split_state *state,
                         uint64_t start_ns) {
    const bool by_lines = args.way == SYMMEM_CUDA_SPLIT_LINES, fetches = state->fetches != 0;
    if (by_lines && fetches)
        acquire_lines(args, state);
    move_parts(args, state);
    return (!by_lines || take_parts(args, state, start_ns)) && fetches;
}

__device__ bool exchange_tables(const symmem_cuda_splits_args &args, split_state *state,
                                uint64_t start_ns) {
    make_own_table(args, state);
    return args.way == SYMMEM_CUDA_SPLIT_LINES ? exchange_by_lines(args, state, start_ns)
                                               : exchange_by_tables(args, state, start_ns);
}

__device__ void run_splits_at_once(const symmem_cuda_splits_args &args, split_state *state,
                                   uint64_t start_ns, split_stage stage) {
    if (stage == SPLITS_NOT_BEGUN && !exchange_tables(args, state, start_ns))
        return;
    const bool right = all_is_right(args, state);
    if (!right && find_wrong(args.job, state) == SPLITS_UNREADABLE) {
        fail_corrupt_part(args, state);
        return;
    }
    const bool meets = !right || move_all(args, state, start_ns);
    if (args.way == SYMMEM_CUDA_SPLIT_LINES)
        end_lines(args, state);
    __syncthreads();
    if (meets &&
        sync_ranks(args.signal, block_sync_words(args.signal), &state->result, start_ns, false) &&
        !right)
        fail_splits(args, state);
}

} // namespace

#include "cuda/split_pieces.cuh"
#include "cuda/split_two.cuh"

namespace {

// As keep_all, by all threads.
__device__ void keep_splits(const symmem_cuda_splits_args &args, symmem_cuda_splits_args *kept) {
    constexpr uint32_t words = sizeof(args) / sizeof(uint64_t);
    static_assert(sizeof(args) % sizeof(uint64_t) == 0, "it is copied word by word");
    for (uint32_t i = threadIdx.x; i < words; i += blockDim.x)
        reinterpret_cast<uint64_t *>(kept)[i] = reinterpret_cast<const uint64_t *>(&args)[i];
    __syncthreads();
    if (threadIdx.x != 0 || args.signal.world_size > SYMMEM_CUDA_SMALL_RANKS)
        return;
    kept->signal.signals = kept->signal.small;
    kept->job.buffers = kept->small_buffers;
}

__device__ void run_splits(const symmem_cuda_splits_args &args, split_state *state,
                           split_stage stage) {
    uint64_t start_ns = now_ns();
    if (args.after_barrier && !goes_on(args.signal, &start_ns))
        return;
    if (args.way == SYMMEM_CUDA_SPLIT_PIECES)
        run_splits_by_pieces(args, state, start_ns);
    else
        run_splits_at_once(args, state, start_ns, stage);
}

} // namespace

extern "C" __global__ void __launch_bounds__(SYMMEM_CUDA_SPLIT_THREADS)
    symmem_all_to_all_v(const __grid_constant__ symmem_cuda_splits_args given) {
    __shared__ symmem_cuda_splits_args args;
    __shared__ split_state state;
    const split_stage stage = run_usual_splits(given, &state);
    if (stage == SPLITS_DONE)
        return;
    keep_splits(given, &args);
    if (threadIdx.x == 0)
        state.going = begin_block(args.signal);
    __syncthreads();
    if (state.going)
        run_splits(args, &state, stage);
    end_block(args.signal);
}

#endif
