// SPDX-License-Identifier: BSD-3-Clause
// All-to-alls with splits in memory, by lines where those fit. A part of cuda_warps.cpp.
#ifndef UNIT_CUDA_WARP_SPLITS_H
#define UNIT_CUDA_WARP_SPLITS_H

static const int MOST_PARTS = 16; // of a rank

// What all ranks bring, as every rank draws it.
struct exchange {
    symmem_reference_splits shape;
    symmem_reference_rank rank[MOST_RANKS];
    int64_t splits[MOST_RANKS][MOST_PARTS], offsets[MOST_RANKS][MOST_PARTS];
    size_t begin[MOST_RANKS]; // of a rank's input in its buffer, in floats
    int32_t channel;
    unsigned int blocks;
    symmem_reference_fault expected;
};

static size_t parts_of(const exchange &x) {
    return x.shape.ranks * x.shape.experts;
}

// Few rows or many, some of which do not fit into the lines.
static int64_t some_rows(dice &all, bool many) {
    return all(3) == 0 ? 0 : many && all(2) == 0 ? 90 + all(10) : all(20);
}

static void draw_rank(dice &all, exchange &x, int r, bool many) {
    int64_t at = 0;
    x.begin[r] = 4 * all(5) + (all(4) == 0 ? 1 : 0); // the odd ones are between units
    for (size_t i = 0; i < parts_of(x); i++) {
        at += x.shape.by_experts ? all(3) : 0;
        x.offsets[r][i] = at;
        x.splits[r][i] = some_rows(all, many);
        at += x.splits[r][i];
    }
    x.rank[r].in_rows = static_cast<size_t>(at);
    x.rank[r].out_rows = MOST_PARTS * 100;
    x.rank[r].in_splits = x.splits[r];
    x.rank[r].in_offsets = x.shape.by_experts ? x.offsets[r] : nullptr;
}

// One rank's splits, or its out, are wrong; or they are not, as it falls.
static void draw_fault(dice &all, exchange &x) {
    const uint32_t rank = all(static_cast<uint32_t>(ranks));
    const uint32_t part = all(static_cast<uint32_t>(parts_of(x)));
    switch (all(8)) {
    case 0:
        x.splits[rank][part] = -1;
        break;
    case 1:
        x.rank[rank].in_rows /= 2;
        break;
    case 2:
        x.rank[rank].out_rows = all(20);
        break;
    case 3:
        x.offsets[rank][part] = all(2) == 0 ? -1 : 0;
        break;
    }
    x.expected = symmem_reference_check_splits(&x.shape, x.rank);
}

static exchange some_exchange(dice &all) {
    exchange x = {};
    x.shape.ranks = static_cast<size_t>(ranks);
    x.shape.experts = 1 + all(3);
    x.shape.row_bytes = sizeof(float) * 4 * (1 + all(3));
    x.shape.by_experts = all(2) != 0;
    x.shape.align = x.shape.by_experts ? 0 : all(3) * 8;
    x.channel = static_cast<int32_t>(all(2));
    x.blocks = 1 + all(2);
    const bool many = all(3) == 0;
    for (int r = 0; r < ranks; r++)
        draw_rank(all, x, r, many);
    draw_fault(all, x);
    return x;
}

// The same choices as the host's (backend_cuda/collective/splits.c), for blocks of two warps.
static symmem_cuda_splits_args splits_args(const exchange &x, int64_t *results) {
    static void *buffers[MOST_RANKS];
    const call c = {COMM, x.channel, 0, x.blocks, {0, 0}, 0, false};
    const symmem_cuda_ll_choice rounds = {2 * x.blocks, SYMMEM_CUDA_ROUND_UNITS};
    const symmem_reference_rank &mine = x.rank[own];
    symmem_cuda_splits_args args = {};
    args.signal = signal_args(c);
    args.way = SYMMEM_CUDA_SPLIT_LINES;
    args.rounds =
        symmem_cuda_ll_layout_of(rounds, ranks, CHANNELS, 0, x.channel, linked && own != unlinked);
    for (int r = 0; r < ranks; r++)
        args.small_buffers[r] = buffers[r] = shared->rank[r].buffer;
    args.job.buffers = buffers;
    args.job.splits = mine.in_splits;
    args.job.offsets = mine.in_offsets;
    args.job.results = results;
    args.job.out = reinterpret_cast<char *>(out);
    args.job.base = x.begin[own] * sizeof(float);
    args.job.align = x.shape.align;
    args.job.row_bytes = x.shape.row_bytes;
    args.job.in_rows = mine.in_rows;
    args.job.out_rows = mine.out_rows;
    args.job.buffer_bytes = BUFFER * sizeof(float);
    args.job.experts = static_cast<uint32_t>(x.shape.experts);
    args.job.element = sizeof(float);
    args.job.rank = own;
    args.job.ranks = ranks;
    symmem_cuda_set_row_limits(&args);
    return args;
}

static bool has_come(exchange &x, const int64_t *results, uint32_t round) {
    static float in[MOST_RANKS][BUFFER], expected[BUFFER];
    std::array<int64_t, 2 *MOST_PARTS> wanted = {};
    for (int r = 0; r < ranks; r++) {
        for (size_t i = x.begin[r]; i < BUFFER; i++)
            in[r][i] = value(r, round, i);
        x.rank[r].in = in[r] + x.begin[r];
    }
    memset(expected, 0, sizeof expected);
    symmem_reference_all_to_all_v(&x.shape, x.rank, static_cast<size_t>(own), expected,
                                  wanted.data());
    CHECK(memcmp(results, wanted.data(), 2 * parts_of(x) * sizeof *results) == 0);
    CHECK(memcmp(out, expected, sizeof out) == 0);
    return true;
}

// All ranks learn of it, nothing is written, and the next call works.
static bool was_refused(const exchange &x, const int64_t *results) {
    static const float nothing[BUFFER] = {};
    const symmem_cuda_fault &fault = own_fault();
    CHECK(fault.code == static_cast<uint32_t>(-symmem_split_status(x.expected.fault)));
    CHECK(fault.failed_rank == static_cast<int32_t>(x.expected.rank));
    CHECK(fault.other[1] == static_cast<uint32_t>(x.expected.fault));
    CHECK(results[0] == -7 && memcmp(out, nothing, sizeof out) == 0);
    shared->rank[own].fault = symmem_cuda_fault();
    return true;
}

static bool exchange_once(exchange &x, uint32_t round, bool of_two) {
    std::array<int64_t, 2 * MOST_PARTS> results;
    results.fill(-7);
    memset(out, 0, sizeof out);
    symmem_cuda_splits_args args = splits_args(x, results.data());
    args.of_two = of_two;
    warp_launch(WARP_SPLITS, x.blocks, 2, &args);
    if (x.expected.fault != SYMMEM_SPLIT_OK)
        return was_refused(x, results.data());
    CHECK(own_fault().code == 0);
    return has_come(x, results.data(), round);
}

// A rank that is done writes its input again, while others are late. Sums use the same slots. Of
// two ranks each takes the faster way or not.
static bool exchanges_in_a_row() {
    const uint32_t rounds = ranks == 2 && linked ? 96 : 16; // the faster way needs many draws
    dice all = {static_cast<uint32_t>(40 + ranks)}, mine = {static_cast<uint32_t>(300 + own)};
    for (uint32_t round = 1; round <= rounds; round++) {
        exchange x = some_exchange(all);
        const call sum = some_call(all);
        fill(round);
        if (static_cast<int>(round) % (2 * ranks) == own)
            usleep(3000 * static_cast<useconds_t>(ranks));
        if (!exchange_once(x, round, ranks == 2 && mine(4) != 0))
            return false;
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
    run_ranks(2, exchanges_in_a_row);
    run_ranks(3, exchanges_in_a_row);
    linked = false;
    unlinked = -1;
}

// --- a rank stays away -------------------------------------------------------------------------

static exchange plain_exchange() {
    exchange x = {};
    x.shape.ranks = static_cast<size_t>(ranks);
    x.shape.experts = 1;
    x.shape.row_bytes = 16;
    x.blocks = 1;
    for (int r = 0; r < ranks; r++) {
        for (int to = 0; to < ranks; to++)
            x.splits[r][to] = 3;
        x.rank[r].in_splits = x.splits[r];
        x.rank[r].in_rows = x.rank[r].out_rows = 3 * static_cast<size_t>(ranks);
    }
    return x;
}

static bool peer_is_away() {
    int64_t results[2 * MOST_RANKS];
    const exchange x = plain_exchange();
    warp_when_ready(meet_all);
    fill(1);
    if (own == 1) {
        meet_all();
        return true;
    }
    limit_ms = 800;
    symmem_cuda_splits_args args = splits_args(x, results);
    args.of_two = true;
    warp_launch(WARP_SPLITS, 1, 2, &args);
    CHECK(own_fault().code == TIMEOUT && own_fault().failed_rank == 1);
    CHECK(*own_poison() == 1);
    shared->rank[own].fault = symmem_cuda_fault();
    warp_launch(WARP_SPLITS, 1, 2, &args);
    CHECK(own_fault().code == POISONED && own_fault().failed_rank == 0);
    return true;
}

TEST("no parts come") {
    linked = true;
    run_ranks(2, peer_is_away);
    linked = false;
}

#endif
