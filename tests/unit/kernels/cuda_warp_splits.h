// SPDX-License-Identifier: BSD-3-Clause
// All-to-alls with splits in memory, by lines where those fit. A part of cuda_warps.cpp.
#ifndef UNIT_CUDA_WARP_SPLITS_H
#define UNIT_CUDA_WARP_SPLITS_H

// What all ranks bring, as every rank draws it.
struct exchange {
    int64_t rows[MOST_RANKS][MOST_RANKS]; // of each rank to each
    size_t begin[MOST_RANKS];             // of its input in its buffer, in floats
    size_t width;                         // floats of a row
    int32_t channel;
    unsigned int blocks;
};

// Few rows or many, some of which do not fit into the lines or begin between units.
static exchange some_exchange(dice &all) {
    exchange x = {};
    x.width = 4 * (1 + all(3));
    x.channel = static_cast<int32_t>(all(2));
    x.blocks = 1 + all(2);
    const bool many = all(3) == 0;
    for (int from = 0; from < ranks; from++) {
        x.begin[from] = 4 * all(5) + (all(4) == 0 ? 1 : 0);
        for (int to = 0; to < ranks; to++)
            x.rows[from][to] = all(3) == 0 ? 0 : many && all(2) == 0 ? 90 + all(10) : all(20);
    }
    return x;
}

// The same choices as the host's (backend_cuda/collective/splits.c), for blocks of two warps.
static symmem_cuda_splits_args splits_args(const exchange &x, const int64_t *splits,
                                           int64_t *results) {
    static void *buffers[MOST_RANKS];
    const call c = {COMM, x.channel, 0, x.blocks, {0, 0}, 0, false};
    const symmem_cuda_ll_choice rounds = {2 * x.blocks, SYMMEM_CUDA_ROUND_UNITS};
    symmem_cuda_splits_args args = {};
    args.signal = signal_args(c);
    args.way = SYMMEM_CUDA_SPLIT_LINES;
    args.rounds =
        symmem_cuda_ll_layout_of(rounds, ranks, CHANNELS, 0, x.channel, linked && own != unlinked);
    for (int r = 0; r < ranks; r++)
        args.small_buffers[r] = buffers[r] = shared->rank[r].buffer;
    args.job.buffers = buffers;
    args.job.splits = splits;
    args.job.results = results;
    args.job.out = reinterpret_cast<char *>(out);
    args.job.base = x.begin[own] * sizeof(float);
    args.job.row_bytes = x.width * sizeof(float);
    for (int r = 0; r < ranks; r++) {
        args.job.in_rows += static_cast<uint64_t>(x.rows[own][r]);
        args.job.out_rows += static_cast<uint64_t>(x.rows[r][own]);
    }
    args.job.buffer_bytes = BUFFER * sizeof(float);
    args.job.experts = 1;
    args.job.element = sizeof(float);
    args.job.rank = own;
    args.job.ranks = ranks;
    symmem_cuda_set_row_limits(&args);
    return args;
}

static bool has_come(const exchange &x, const int64_t *results, uint32_t round) {
    size_t at = 0;
    for (int from = 0; from < ranks; from++) {
        const size_t rows = static_cast<size_t>(x.rows[from][own]);
        size_t begin = x.begin[from];
        for (int to = 0; to < own; to++)
            begin += static_cast<size_t>(x.rows[from][to]) * x.width;
        CHECK(results[from] == x.rows[from][own]);
        CHECK(results[ranks + from] == static_cast<int64_t>(at));
        CHECK(is_of(out + at * x.width, from, round, begin, rows * x.width));
        at += rows;
    }
    return true;
}

// A rank that is done writes its input again, while others are late. Sums use the same slots.
static bool exchanges_in_a_row() {
    dice all = {static_cast<uint32_t>(40 + ranks)};
    for (uint32_t round = 1; round <= 24; round++) {
        const exchange x = some_exchange(all);
        const call sum = some_call(all);
        int64_t splits[MOST_RANKS], results[2 * MOST_RANKS];
        for (int r = 0; r < ranks; r++)
            splits[r] = x.rows[own][r];
        const symmem_cuda_splits_args args = splits_args(x, splits, results);
        fill(round);
        if (static_cast<int>(round) % (2 * ranks) == own)
            usleep(3000 * static_cast<useconds_t>(ranks));
        warp_launch(WARP_SPLITS, x.blocks, 2, &args);
        CHECK(own_fault().code == 0);
        CHECK(has_come(x, results, round));
        fill(round + 1000);
        if (all(2) != 0)
            continue;
        run(sum, true);
        CHECK(own_fault().code == 0);
        CHECK(is_right(sum, round + 1000));
    }
    return true;
}

TEST("exchanges of parts") {
    for (int count = 2; count <= 4; count++)
        for (const bool all : {false, true}) {
            linked = all;
            run_ranks(count, exchanges_in_a_row);
        }
    linked = true;
    unlinked = 1;
    run_ranks(3, exchanges_in_a_row);
    linked = false;
    unlinked = -1;
}

#endif
