// SPDX-License-Identifier: BSD-3-Clause
// All-to-alls whose splits lie in memory, with tables that no block can hold: some experts at a
// time, in one block. splits.cuh includes it.
#ifndef SYMMEM_KERNELS_CUDA_SPLIT_PIECES_CUH
#define SYMMEM_KERNELS_CUDA_SPLIT_PIECES_CUH

namespace {

// Called by one thread.
__device__ symmem_cuda_split_check check_own_splits(const symmem_cuda_splits_job &job) {
    symmem_cuda_split_check check = {0, 0, 0};
    uint64_t end = 0, begin;
    const uint32_t parts = part_count(job);
    for (uint32_t i = 0; i < parts && check.fault == SYMMEM_CUDA_SPLIT_OK; i++)
        check = symmem_cuda_place_own(&job, job.splits[i],
                                      job.offsets != nullptr ? job.offsets[i] : 0, &end, &begin);
    return check;
}

// own_begin[p]: where the input's parts for rank p begin.
__device__ void begin_own_parts(const symmem_cuda_splits_job &job, split_state *state) {
    const uint32_t ranks = static_cast<uint32_t>(job.ranks);
    for (uint32_t p = threadIdx.x; p < ranks && job.offsets == nullptr; p += blockDim.x) {
        uint64_t sum = 0;
        for (uint32_t e = 0; e < job.experts; e++)
            sum += static_cast<uint64_t>(job.splits[p * job.experts + e]);
        state->piece.own_begin[p] = sum;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        uint64_t at = 0;
        for (uint32_t p = 0; p < ranks && job.offsets == nullptr; p++) {
            const uint64_t sum = state->piece.own_begin[p];
            state->piece.own_begin[p] = at;
            at += sum;
        }
    }
    __syncthreads();
}

// Experts that travel together.
struct split_piece {
    uint32_t first, count;
};

__device__ split_piece piece_from(const symmem_cuda_splits_args &args, uint32_t first) {
    const uint32_t left = args.job.experts - first;
    return {first, left < args.piece ? left : args.piece};
}

// The words of an arriving part of a piece: where it begins, and its rows.
__device__ uint64_t *arriving(const symmem_cuda_splits_job &job, split_state *state, uint32_t rank,
                              uint32_t index) {
    return state->piece.parts + 2 * (index * static_cast<uint32_t>(job.ranks) + rank);
}

// Publishes a piece's parts, and reads those that come to this rank.
__device__ bool exchange_piece(const symmem_cuda_splits_args &args, split_state *state,
                               const split_piece &piece, bool valid, uint64_t start_ns) {
    const symmem_cuda_splits_job &job = args.job;
    const uint32_t ranks = static_cast<uint32_t>(job.ranks);
    const uint32_t own = static_cast<uint32_t>(job.rank);
    uint64_t *table = split_table_of(args, job.rank) + SPLIT_HEADER;
    for (uint32_t p = threadIdx.x; p < ranks; p += blockDim.x)
        for (uint32_t i = 0; i < piece.count; i++) {
            const bool placed = job.offsets != nullptr;
            const uint32_t expert = piece.first + i;
            const uint32_t number = placed ? expert * ranks + p : p * job.experts + expert;
            const uint64_t rows = valid ? static_cast<uint64_t>(job.splits[number]) : 0;
            const uint64_t begin =
                placed ? static_cast<uint64_t>(job.offsets[number]) : state->piece.own_begin[p];
            table[2 * (i * ranks + p)] = job.base + begin * job.row_bytes;
            table[2 * (i * ranks + p) + 1] = rows;
            if (!placed)
                state->piece.own_begin[p] += rows;
        }
    __syncthreads();
    if (!sync_ranks(args.signal, channel_sync_words(args.signal), &state->result, start_ns, false))
        return false;
    for (uint32_t i = threadIdx.x; i < ranks * piece.count; i += blockDim.x) {
        const uint32_t rank = i % ranks, index = i / ranks;
        const uint64_t *from = split_table_of(args, static_cast<int32_t>(rank)) + SPLIT_HEADER +
                               2 * (index * ranks + own);
        arriving(job, state, rank, index)[0] = load_word(from);
        arriving(job, state, rank, index)[1] = load_word(from + 1);
    }
    __syncthreads();
    return true;
}

// Called by one thread. next[r] counts the rows from rank r; *at and *last are as in place_parts.
__device__ void count_piece(const symmem_cuda_splits_job &job, split_state *state,
                            const split_piece &piece, uint64_t *at, uint64_t *last) {
    for (uint32_t i = 0; i < piece.count; i++) {
        uint64_t sum = 0;
        for (uint32_t r = 0; r < static_cast<uint32_t>(job.ranks); r++) {
            const uint64_t rows = arriving(job, state, r, i)[1];
            state->piece.next[r] = symmem_cuda_add_capped(state->piece.next[r], rows);
            sum = symmem_cuda_add_capped(sum, rows);
        }
        if (sum > 0)
            *last = symmem_cuda_add_capped(*at, sum);
        *at = symmem_cuda_add_capped(*at, symmem_cuda_aligned_rows(sum, job.align));
    }
}

// Called by one thread. Places the parts of a piece.
__device__ void place_piece(const symmem_cuda_splits_job &job, split_state *state,
                            const split_piece &piece, uint64_t *at) {
    const uint32_t ranks = static_cast<uint32_t>(job.ranks);
    state->wrong = -1;
    for (uint32_t i = 0; i < piece.count; i++) {
        uint64_t sum = 0;
        for (uint32_t r = 0; r < ranks; r++) {
            const uint64_t *part = arriving(job, state, r, i);
            const uint64_t rows = part[1];
            const uint64_t place =
                job.offsets != nullptr ? state->piece.next[r] : symmem_cuda_add_capped(*at, sum);
            state->place[i * ranks + r] = place;
            state->piece.next[r] = symmem_cuda_add_capped(place, rows);
            sum = symmem_cuda_add_capped(sum, rows);
            if (!symmem_cuda_part_can_be(&job, part[0], rows) ||
                (rows > 0 && (place > job.out_rows || rows > job.out_rows - place)))
                state->wrong = static_cast<int32_t>(r);
        }
        *at = symmem_cuda_add_capped(*at, symmem_cuda_aligned_rows(sum, job.align));
    }
}

__device__ void move_piece(const symmem_cuda_splits_job &job, split_state *state,
                           const split_piece &piece) {
    const uint32_t ranks = static_cast<uint32_t>(job.ranks), parts = part_count(job);
    split_turn turn = own_turn();
    for (uint32_t k = 0; k < ranks * piece.count; k++) {
        const uint32_t r = k % ranks, expert = piece.first + k / ranks;
        const uint64_t *part = arriving(job, state, r, k / ranks);
        const uint32_t number =
            job.offsets != nullptr ? r * job.experts + expert : expert * ranks + r;
        if (part[1] > 0)
            turn.move(job.out + state->place[k] * job.row_bytes,
                      static_cast<const char *>(job.buffers[r]) + part[0], part[1] * job.row_bytes);
        if (k % blockDim.x == threadIdx.x) {
            job.results[number] = static_cast<int64_t>(part[1]);
            job.results[parts + number] = static_cast<int64_t>(state->place[k]);
        }
    }
}

__device__ bool sync_channel(const symmem_cuda_splits_args &args, split_state *state,
                             uint64_t start_ns) {
    return sync_ranks(args.signal, channel_sync_words(args.signal), &state->result, start_ns,
                      false);
}

// Ranks count what comes to them, and agree. Returns whether all are right.
__device__ bool agree_on_splits(const symmem_cuda_splits_args &args, split_state *state,
                                uint64_t start_ns) {
    const symmem_cuda_splits_job &job = args.job;
    const uint32_t ranks = static_cast<uint32_t>(job.ranks);
    uint64_t at = 0, last = 0; // of the first thread
    if (threadIdx.x == 0)
        state->check = check_own_splits(job);
    for (uint32_t r = threadIdx.x; r < ranks; r += blockDim.x)
        state->piece.next[r] = 0;
    __syncthreads();
    const bool valid = state->check.fault == SYMMEM_CUDA_SPLIT_OK;
    begin_own_parts(job, state);
    for (uint32_t e = 0; e < job.experts; e += args.piece) {
        const split_piece piece = piece_from(args, e);
        if (!exchange_piece(args, state, piece, valid, start_ns))
            return false;
        if (threadIdx.x == 0)
            count_piece(job, state, piece, &at, &last);
        if (!sync_channel(args, state, start_ns))
            return false;
    }
    if (threadIdx.x == 0) {
        uint64_t *table = split_table_of(args, job.rank);
        if (valid && last > job.out_rows)
            state->check = {SYMMEM_CUDA_SPLIT_OUT, job.out_rows, last};
        table[0] = state->check.fault;
        table[1] = state->check.allowed;
        table[2] = state->check.found;
    }
    __syncthreads();
    if (!sync_channel(args, state, start_ns))
        return false;
    if (threadIdx.x == 0) {
        state->wrong = -1;
        for (int32_t r = 0; r < job.ranks && state->wrong < 0; r++) {
            const uint64_t *table = split_table_of(args, r);
            state->check = {load_word(table), load_word(table + 1), load_word(table + 2)};
            if (state->check.fault != SYMMEM_CUDA_SPLIT_OK)
                state->wrong = r;
        }
    }
    __syncthreads();
    if (state->wrong < 0)
        return true;
    if (state->check.fault >= SYMMEM_CUDA_SPLIT_FAULTS)
        fail_corrupt_part(args, state);
    // All ranks must have read the tables before the next operation writes them.
    else if (sync_channel(args, state, start_ns))
        fail_splits(args, state);
    return false;
}

__device__ void run_splits_by_pieces(const symmem_cuda_splits_args &args, split_state *state,
                                     uint64_t start_ns) {
    const symmem_cuda_splits_job &job = args.job;
    uint64_t at = 0; // of the first thread
    if (!agree_on_splits(args, state, start_ns))
        return;
    if (threadIdx.x == 0) { // the numbers of rows become places
        uint64_t place = 0;
        for (int32_t r = 0; r < job.ranks; r++) {
            const uint64_t rows = state->piece.next[r];
            state->piece.next[r] = place;
            place = symmem_cuda_add_capped(place, rows);
        }
    }
    begin_own_parts(job, state);
    for (uint32_t e = 0; e < job.experts; e += args.piece) {
        const split_piece piece = piece_from(args, e);
        if (!exchange_piece(args, state, piece, true, start_ns))
            return;
        if (threadIdx.x == 0)
            place_piece(job, state, piece, &at);
        __syncthreads();
        if (state->wrong >= 0) {
            fail_corrupt_part(args, state);
            return;
        }
        move_piece(job, state, piece);
        __syncthreads();
        if (!sync_channel(args, state, start_ns))
            return;
    }
    if (job.experts == 0)
        (void)sync_channel(args, state, start_ns);
}

} // namespace

#endif
