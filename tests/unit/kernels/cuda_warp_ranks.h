// SPDX-License-Identifier: BSD-3-Clause
// Ranks as processes, and what a rank's host passes to the kernels: as backend_cuda/ does, but that
// whether a call goes the plain way is the test's to say. Of cuda_warps.cpp.
#ifndef UNIT_CUDA_WARP_RANKS_H
#define UNIT_CUDA_WARP_RANKS_H

#include <csignal>
#include <cstdio>

#include "unit_main.h"
#include "cuda/collective.h"
#include "cuda/collective_job.h"
#include "cuda/splits.h"
#include "cuda_warp_kernels.h"

static const int MOST_RANKS = 8, CHANNELS = 3, LIMIT_S = 60;
static const uint32_t LIMIT_MS = 20000;
// Elements, and of those that go in chunks: three for one block.
static const size_t MOST = 2000, CHUNKED = 18000, BUFFER = 2 * CHUNKED, SIGNAL_BYTES = 4u << 20;

// In every process at the same address; peers change it.
struct rank_memory {
    alignas(64) char signals[SIGNAL_BYTES];
    alignas(64) float buffer[BUFFER];
    symmem_cuda_fault fault;
    symmem_cuda_control control;
    uint32_t round; // that it has begun
};

struct world {
    rank_memory rank[MOST_RANKS];
    pthread_barrier_t meeting; // of the ranks, without what is tested
};

static world *shared;
static int ranks, own;                // how many there are, and which one this process is
static bool linked;                   // all with all others
static int unlinked = -1;             // but for this one
static uint32_t limit_ms;             // of the next call
static uint32_t chunk_slots = 4;      // of a block
alignas(64) static float out[BUFFER]; // the rank's own

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "rank %d of %d: line %d: %s\n", own, ranks, __LINE__, #condition);     \
            return false;                                                                          \
        }                                                                                          \
    } while (0)

// --- calls -------------------------------------------------------------------------------------

// Those behind COMM and the sums are of two ranks. OWN_DIFFERS: an all-to-all of parts that are not
// alike.
enum kind { COMM, SUM_APART, SUM_IN_PLACE, SCATTERED, GATHERED, SENT, OWN_DIFFERS };

struct call {
    enum kind kind;
    int32_t channel;
    size_t count;
    unsigned int blocks;          // where there are no lines
    symmem_cuda_ll_choice rounds; // no warps: there are no lines
    uint32_t compared;            // with the peers', by who goes the general algorithm; 0: not
    bool chunked;                 // of two ranks, in blocks
};

static symmem_cuda_signal_args signal_args(const call &c) {
    static void *signals[MOST_RANKS];
    symmem_cuda_signal_args args = {};
    for (int r = 0; r < ranks; r++)
        args.small[r] = signals[r] = shared->rank[r].signals;
    args.signals = signals;
    args.fault = &shared->rank[own].fault;
    args.control = &shared->rank[own].control;
    args.rank = own;
    args.world_size = ranks;
    args.channel_count = CHANNELS;
    args.channel = c.channel;
    args.timeout_ms = limit_ms;
    args.stream = SYMMEM_CUDA_NO_STREAM + 1;
    return args;
}

static symmem_cuda_signal_args compared_args(const call &c) {
    symmem_cuda_signal_args args = signal_args(c);
    if (c.compared == 0)
        return args;
    args.call[0] = SYMMEM_CALL_BARRIER;
    args.call[1] = c.compared;
    return args;
}

static symmem_cuda_small_barrier small_barrier_args(int32_t channel) {
    symmem_cuda_small_barrier small = {};
    small.rank = static_cast<uint32_t>(own);
    small.ranks = static_cast<uint32_t>(ranks);
    small.arrivals_at = static_cast<uint32_t>(symmem_cuda_arrival_at(ranks, CHANNELS, channel, 0));
    small.epoch_at = static_cast<uint32_t>(symmem_cuda_epoch_at(ranks, CHANNELS, channel));
    small.blocks_at = static_cast<uint32_t>(symmem_cuda_block_at(ranks, CHANNELS, channel, 0));
    small.calls_at = static_cast<uint32_t>(symmem_cuda_call_at(ranks, CHANNELS, channel, 0));
    for (int turn = 0; turn < ranks; turn++)
        small.signals[turn] = shared->rank[(own + turn) % ranks].signals;
    return small;
}

static symmem_call_kind kind_of(const call &c) {
    switch (c.kind) {
    case SUM_APART:
        return SYMMEM_CALL_ONE_SHOT_ALL_REDUCE;
    case SCATTERED:
        return SYMMEM_CALL_REDUCE_SCATTER;
    case GATHERED:
        return SYMMEM_CALL_ALL_GATHER;
    case SENT:
        return SYMMEM_CALL_BROADCAST;
    case OWN_DIFFERS:
        return SYMMEM_CALL_ALL_TO_ALL;
    default:
        return SYMMEM_CALL_TWO_SHOT_ALL_REDUCE;
    }
}

// The number of elements that rank `from` sends to rank `to`.
static size_t dealt_to(const call &c, int from, int to) {
    static const size_t few[2][2] = {{4, 0}, {8, 12}};
    return from == 0 && to == 1 ? c.count : few[from][to];
}

static symmem_collective collective_of(const call &c) {
    static size_t in_splits[2], out_splits[2];
    symmem_collective collective = {};
    collective.kind = kind_of(c);
    collective.dtype = SYMMEM_FLOAT32;
    collective.op = SYMMEM_SUM;
    collective.count = c.kind == OWN_DIFFERS ? 0 : c.count;
    collective.root = 1;
    collective.in_row = static_cast<size_t>(ranks) * c.count;
    collective.out_row = c.count;
    const bool apart = c.kind == SUM_APART || c.kind == SCATTERED || c.kind == GATHERED;
    collective.out = apart || c.kind == OWN_DIFFERS ? out : nullptr;
    for (int k = 0; k < 2 && c.kind == OWN_DIFFERS; k++) {
        in_splits[k] = dealt_to(c, own, k);
        out_splits[k] = dealt_to(c, k, own);
        collective.in = shared->rank[own].buffer;
    }
    collective.in_splits = in_splits;
    collective.out_splits = out_splits;
    return collective;
}

static symmem_cuda_job job_of(const call &c) {
    static void *buffers[MOST_RANKS], *signals[MOST_RANKS];
    const symmem_collective collective = collective_of(c);
    symmem_cuda_job job = symmem_cuda_job_of(&collective, own, ranks, sizeof(float), false);
    for (int r = 0; r < ranks; r++) {
        buffers[r] = shared->rank[r].buffer;
        signals[r] = shared->rank[r].signals;
    }
    job.buffers = buffers;
    job.signals = signals;
    return job;
}

static symmem_cuda_step step_of(const symmem_cuda_job &job) {
    symmem_cuda_cursor place = {};
    symmem_cuda_step step;
    (void)symmem_cuda_next(&job, &place, &step); // the barrier phase
    (void)symmem_cuda_next(&job, &place, &step);
    return step;
}

// With eight slots ranks have up to three chunks ahead, each as many as it likes.
static symmem_cuda_ll_layout places_of(const call &c) {
    symmem_cuda_ll_layout layout = symmem_cuda_ll_layout_of(c.rounds, ranks, CHANNELS, 0, c.channel,
                                                            linked && own != unlinked);
    layout.chunk_slots = chunk_slots;
    if (chunk_slots == SYMMEM_CUDA_CHUNK_SLOTS_MOST)
        layout.chunks_ahead = 1 + (static_cast<uint32_t>(own) + c.count / 4) % 3;
    return layout;
}

static symmem_cuda_exchange exchange_of(const call &c, const symmem_cuda_job &job) {
    const symmem_collective collective = collective_of(c);
    uint64_t words[SYMMEM_CUDA_SPLIT_TABLE_WORDS(2)] = {};
    if (c.kind == OWN_DIFFERS)
        symmem_cuda_fill_split_table(&job, &collective, shared->rank[own].buffer, words);
    return symmem_cuda_exchange_of(&job, words);
}

static symmem_cuda_ll_args lines_args(const call &c, const symmem_cuda_job &job) {
    const symmem_cuda_pushed pushed = symmem_cuda_pushed_of(&job);
    symmem_cuda_ll_args args = {};
    args.small = small_barrier_args(c.channel);
    args.rounds = places_of(c);
    args.signal = signal_args(c);
    args.op = job.op;
    args.from = pushed.src;
    args.own = pushed.own;
    args.to = pushed.dst;
    args.units = static_cast<uint32_t>(c.count * sizeof(float) / SYMMEM_CUDA_LL_LINE_BYTES);
    return args;
}

static symmem_cuda_fast_args blocks_args(const call &c, const symmem_cuda_job &job) {
    const symmem_cuda_step step = step_of(job);
    symmem_cuda_fast_args args = {};
    args.small = small_barrier_args(c.channel);
    args.signal = signal_args(c);
    args.op = static_cast<uint16_t>(job.op);
    args.units = static_cast<uint32_t>(step.count * sizeof(float) / 16);
    args.targets = static_cast<uint16_t>(symmem_cuda_targets(&job, &step));
    for (int k = 0; k < ranks; k++)
        args.from[k] = symmem_cuda_source(&job, &step, k);
    for (int k = 0; k < args.targets; k++)
        args.to[k] = symmem_cuda_target(&job, &step, k);
    return args;
}

static symmem_cuda_collective_args general_args(const call &c, const symmem_cuda_job &job,
                                                symmem_cuda_algorithm algorithm) {
    symmem_cuda_collective_args args = {};
    args.signal = compared_args(c);
    args.job = job;
    args.algorithm = algorithm;
    args.rounds = places_of(c);
    if (algorithm == SYMMEM_CUDA_PER_BLOCK)
        args.step = step_of(job);
    if (symmem_cuda_is_move(job.form))
        args.exchange = exchange_of(c, job);
    for (int r = 0; r < ranks; r++)
        args.small_buffers[r] = shared->rank[r].buffer;
    return args;
}

static bool is_move(const call &c) {
    return c.kind == GATHERED || c.kind == SENT || c.kind == OWN_DIFFERS;
}

static symmem_cuda_moves_args moves_args(const call &c, const symmem_cuda_job &job) {
    return {small_barrier_args(c.channel), places_of(c), exchange_of(c, job), signal_args(c)};
}

static void run_meeting(const call &c, bool plain) {
    const symmem_cuda_small_barrier_args args = {small_barrier_args(c.channel), signal_args(c)};
    const symmem_cuda_signal_args general = compared_args(c);
    if (plain)
        warp_launch(WARP_NEAR_BARRIER, 1, 2, &args);
    else
        warp_launch(WARP_BARRIER, 1, 1, &general);
}

static void run_lines(const call &c, const symmem_cuda_job &job, bool plain) {
    const symmem_cuda_ll_args args = lines_args(c, job);
    const symmem_cuda_collective_args general = general_args(c, job, SYMMEM_CUDA_LL);
    const bool is_short = c.rounds.units == SYMMEM_CUDA_SHORT_UNITS;
    const int size = ranks == 2 ? 0 : ranks <= 4 ? 1 : 2;
    const warp_kernel kernel = static_cast<warp_kernel>(
        c.kind == SCATTERED ? WARP_DEALT + is_short : WARP_LINES + 3 * is_short + size);
    const unsigned int blocks = (c.rounds.warps + 1) / 2;
    if (is_move(c)) {
        const symmem_cuda_moves_args moves = moves_args(c, job);
        const void *given = &moves;
        warp_launch(plain ? static_cast<warp_kernel>(WARP_MOVES + is_short) : WARP_BYTES, blocks, 2,
                    plain ? given : &general);
    } else if (plain)
        warp_launch(kernel, blocks, 2, &args);
    else
        warp_launch(WARP_COLLECTIVE, blocks, 2, &general);
}

// Some blocks have a warp without a part in the barrier phase. With many ranks that would take too
// many threads.
static void run_blocks(const call &c, const symmem_cuda_job &job, bool plain) {
    const unsigned int warps = ranks <= 4 && c.count == MOST ? 3 : 2;
    const symmem_cuda_fast_args args = blocks_args(c, job);
    const symmem_cuda_collective_args general = general_args(c, job, SYMMEM_CUDA_PER_BLOCK);
    if (plain && symmem_cuda_has_fast_kernel(ranks))
        warp_launch(ranks == 2        ? WARP_BLOCKS_OF_TWO
                    : c.count == MOST ? WARP_WIDE
                                      : WARP_BLOCKS,
                    c.blocks, warps, &args);
    else
        warp_launch(WARP_COLLECTIVE, c.blocks, warps, &general);
}

// With one thread or two beside the one that tells, which peers need not have alike.
static void run_chunks(const call &c, const symmem_cuda_job &job, bool plain) {
    const symmem_cuda_ll_args args = lines_args(c, job);
    const symmem_cuda_collective_args general = general_args(c, job, SYMMEM_CUDA_CHUNKS);
    if (is_move(c)) {
        const symmem_cuda_moves_args moves = moves_args(c, job);
        const void *given = &moves;
        warp_launch(plain ? WARP_CHUNKED_MOVES : WARP_BYTES, c.blocks, plain ? 3 : 2,
                    plain ? given : &general);
    } else if (plain)
        warp_launch(WARP_CHUNKS, c.blocks, 3, &args);
    else
        warp_launch(WARP_COLLECTIVE, c.blocks, 2, &general);
}

static void run(const call &c, bool plain) {
    const symmem_cuda_job job = job_of(c);
    if (c.kind == COMM)
        run_meeting(c, plain);
    else if (c.chunked)
        run_chunks(c, job, plain);
    else if (c.rounds.warps > 0)
        run_lines(c, job, plain);
    else
        run_blocks(c, job, plain);
}

// --- ranks -------------------------------------------------------------------------------------

static int child(bool (*scenario)(), pid_t parent) {
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent)
        return 1;
    alarm(LIMIT_S);
    limit_ms = LIMIT_MS;
    return scenario() ? 0 : 1;
}

static void prepare(int count) {
    ranks = count;
    CU_ASSERT_FATAL(symmem_cuda_signal_size(ranks, CHANNELS, 0) <= SIGNAL_BYTES);
    memset(static_cast<void *>(shared), 0, sizeof *shared);
    for (int r = 0; r < ranks; r++)
        for (int k = 0; linked && k < ranks; k++)
            if (k != unlinked)
                reinterpret_cast<uint32_t *>(shared->rank[r].signals +
                                             SYMMEM_CUDA_HEADER_BYTES)[k] = SYMMEM_CUDA_LINKED;
    pthread_barrierattr_t attributes;
    pthread_barrierattr_init(&attributes);
    pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&shared->meeting, &attributes, static_cast<unsigned int>(ranks));
}

// Waits for all ranks. After a failure it ends the others, which would wait until their limit.
static bool all_end_well(pid_t (&pids)[MOST_RANKS]) {
    bool right = true;
    for (int left = ranks; left > 0; left--) {
        int status = -1;
        const pid_t ended = waitpid(-1, &status, 0);
        right = right && ended > 0 && status == 0;
        for (pid_t &pid : pids)
            if (pid == ended)
                pid = 0;
            else if (!right && pid > 1)
                kill(pid, SIGKILL);
    }
    return right;
}

// After a failure the rest is left out.
static void run_ranks(int count, bool (*scenario)()) {
    static bool right = true;
    const pid_t parent = getpid();
    pid_t pids[MOST_RANKS] = {};
    CU_ASSERT_FATAL(right);
    prepare(count);
    for (own = 0; own < ranks; own++) {
        pids[own] = fork();
        CU_ASSERT_FATAL(pids[own] >= 0);
        if (pids[own] == 0)
            _exit(child(scenario, parent));
    }
    right = all_end_well(pids);
    CU_ASSERT_FATAL(right);
}

#endif
