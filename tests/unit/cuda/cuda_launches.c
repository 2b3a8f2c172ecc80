/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The CUDA backend's collectives with kernels that run on the CPU. Each rank is a process; buffers
 * and signals are shared memory. The cases check how kernels follow each other, the barrier phases,
 * and failures with their effects. cuda_collective.cpp checks in detail what the loops compute.
 */
#include "cuda/product.h"
#include "cuda_host_kernels.h"
#include "cuda_lines.h"
#include "cuda_parts.h"
#include "cuda_ranks.h"
#include "reference/reduce.h"
#include "unit_main.h"
#include "collective/collective.h"
#include "driver/clock.h"
#include "signal/signal.h"

/* --- reductions --------------------------------------------------------------------- */

/* All ranks' `count` elements, reduced into `wanted`. */
static void expect(int round, size_t count, symmem_reduce_op op) {
    static float inputs[RANKS][RANKS * MOST];
    const void *srcs[RANKS];
    for (int32_t r = 0; r < RANKS; r++) {
        fill(inputs[r], r, round, count);
        srcs[r] = inputs[r];
    }
    (void)symmem_reference_reduce(wanted, srcs, RANKS, count, SYMMEM_FLOAT32, op);
}

/* Small ones are one kernel, large ones one a step; one after the other on one channel. */
static const size_t counts[] = {0, 1, 300, 20000, 7, MOST, 4097};
#define ROUNDS 14

static symmem_collective call_of(symmem_call_kind kind, size_t count) {
    return (symmem_collective){.size = sizeof(symmem_collective),
                               .name = "test",
                               .kind = kind,
                               .dtype = SYMMEM_FLOAT32,
                               .count = count};
}

static symmem_collective reduction(symmem_call_kind kind, int round) {
    symmem_collective call = call_of(kind, counts[round % 7]);
    call.op = (symmem_reduce_op)(round % SYMMEM_REDUCE_OP_COUNT);
    return call;
}

RANKS_TEST("all-reduces") {
    for (int round = 0; round < 3 * ROUNDS; round++) {
        symmem_collective call = reduction(round / 7 % 2 ? SYMMEM_CALL_ONE_SHOT_ALL_REDUCE
                                                         : SYMMEM_CALL_TWO_SHOT_ALL_REDUCE,
                                           round);
        fill(buffer(), rank, round, call.count);
        memset(out, MARK, sizeof out);
        call.out = out;
        expect(round, call.count, call.op);
        CHECK(run(&call, round % 2 != 0, LIMIT_MS) == SYMMEM_OK);
        CHECK(same(out, wanted, call.count));
        fill(wanted, rank, round, call.count); /* the input is kept */
        CHECK(same(buffer(), wanted, call.count));
    }
    return true;
}

RANKS_TEST("all-reduces in place") {
    for (int round = 0; round < ROUNDS; round++) {
        symmem_collective call = reduction(SYMMEM_CALL_TWO_SHOT_ALL_REDUCE, round);
        bool copies = round % 3 == 0 && call.count > 0;
        fill(copies ? in : buffer(), rank, round, call.count);
        call.in = copies ? in : NULL;
        expect(round, call.count, call.op);
        CHECK(run(&call, round % 2 != 0, LIMIT_MS) == SYMMEM_OK);
        CHECK(same(buffer(), wanted, call.count));
    }
    return true;
}

/* The last rank's shard is shorter than the others', and no more than what one block does. All
 * choose alike all the same. */
RANKS_TEST("all-reduces of uneven shards") {
    for (int round = 0; round < 4; round++) {
        symmem_collective call = reduction(SYMMEM_CALL_TWO_SHOT_ALL_REDUCE, round);
        call.count = 16390;
        fill(buffer(), rank, round, call.count);
        expect(round, call.count, call.op);
        CHECK(run(&call, round % 2 == 0, LIMIT_MS / 2) == SYMMEM_OK);
        CHECK(same(buffer(), wanted, call.count));
    }
    return true;
}

/* The buffers hold all of the data, a part, or next to nothing of it. */
RANKS_TEST("all-reduces by way of the buffers") {
    static const size_t ways[] = {MOST, 9000, 100, 40000};
    for (int round = 0; round < 2 * ROUNDS; round++) {
        symmem_collective call = reduction(round / 7 % 2 ? SYMMEM_CALL_ONE_SHOT_ALL_REDUCE
                                                         : SYMMEM_CALL_TWO_SHOT_ALL_REDUCE,
                                           round);
        fill(in, rank, round, call.count);
        call.in = call.count > 0 ? in : NULL;
        call.out = round % 5 == 0 ? in : out;
        call.in_row = ways[round / 3 % 4];
        if (call.count > 5000 && call.in_row == 100)
            call.in_row = 3000; /* each piece is a barrier phase of processes */
        expect(round, call.count, call.op);
        CHECK(run(&call, round % 2 != 0, LIMIT_MS) == SYMMEM_OK);
        CHECK(same(call.out, wanted, call.count));
    }
    return true;
}

RANKS_TEST("reduce-scatters") {
    for (int round = 0; round < ROUNDS; round++) {
        bool low = round % 2 != 0;
        symmem_collective call = reduction(
            low ? SYMMEM_CALL_LOW_CONTENTION_REDUCE_SCATTER : SYMMEM_CALL_REDUCE_SCATTER, round);
        size_t all = call.count * RANKS;
        bool push = low && round % 4 == 1 && call.count > 0;
        call.op = low ? SYMMEM_SUM : call.op;
        call.in_row = low ? 0 : all;
        call.out_row = low ? 0 : call.count;
        call.in = push ? in : NULL;
        call.out = out;
        fill(push ? in : buffer(), rank, round, all);
        expect(round, all, call.op);
        CHECK(run(&call, round % 3 == 0, LIMIT_MS) == SYMMEM_OK);
        CHECK(same(out, wanted + (size_t)rank * call.count, call.count));
        /* After a push, peers may still write to the buffer until the next barrier phase. */
        const symmem_collective meeting = {.name = "test", .kind = SYMMEM_CALL_BROADCAST};
        CHECK(run(&meeting, false, LIMIT_MS) == SYMMEM_OK);
    }
    return true;
}

/* --- moves -------------------------------------------------------------------------- */

RANKS_TEST("all-gathers and broadcasts") {
    for (int round = 0; round < 2 * ROUNDS; round++) {
        symmem_collective call =
            reduction(round / 7 % 2 ? SYMMEM_CALL_ALL_GATHER : SYMMEM_CALL_BROADCAST, round);
        bool push = call.kind == SYMMEM_CALL_ALL_GATHER && round % 2 && call.count > 0;
        float *result = call.kind == SYMMEM_CALL_BROADCAST || push ? buffer() : out;
        call.op = SYMMEM_SUM;
        call.root = call.kind == SYMMEM_CALL_BROADCAST ? round % RANKS : 0;
        fill(push ? in : buffer(), rank, round, call.count);
        call.in = push ? in : NULL;
        call.out = call.kind == SYMMEM_CALL_ALL_GATHER && !push ? out : NULL;
        CHECK(run(&call, round % 3 == 0, LIMIT_MS) == SYMMEM_OK);
        for (int32_t r = 0; r < RANKS && call.kind == SYMMEM_CALL_ALL_GATHER; r++)
            fill(wanted + (size_t)r * call.count, r, round, call.count);
        if (call.kind == SYMMEM_CALL_BROADCAST)
            fill(wanted, call.root, round, call.count);
        CHECK(same(result, wanted, call.count * (call.kind == SYMMEM_CALL_ALL_GATHER ? RANKS : 1)));
    }
    return true;
}

/* Part p of rank r in a round. */
static size_t part(int32_t r, int32_t p, int round) {
    size_t scale = round % 2 ? 3000 : 10;
    return ((size_t)r + 2 * (size_t)p + (size_t)round) % 4 * scale;
}

static symmem_collective exchange(int32_t rank, int round, size_t *in_splits, size_t *out_splits) {
    size_t all = 0;
    for (int32_t p = 0; p < RANKS; p++) {
        in_splits[p] = part(rank, p, round);
        out_splits[p] = part(p, rank, round);
        all += in_splits[p];
    }
    float *at = buffer() + 5 * rank;
    fill(at, rank, round, all);
    symmem_collective call = call_of(SYMMEM_CALL_ALL_TO_ALL, 0);
    call.in = all > 0 ? at : NULL;
    call.out = out;
    call.in_splits = in_splits;
    call.out_splits = out_splits;
    return call;
}

static bool came(int32_t rank, int round) {
    const float *at = out;
    for (int32_t p = 0; p < RANKS; p++) {
        size_t begin = 0;
        for (int32_t q = 0; q < rank; q++)
            begin += part(p, q, round);
        for (size_t i = 0; i < part(p, rank, round); i++)
            if (*at++ != value(p, round, begin + i))
                return false;
    }
    return true;
}

RANKS_TEST("all-to-alls") {
    size_t in_splits[RANKS], out_splits[RANKS];
    for (int round = 0; round < ROUNDS; round++) {
        const symmem_collective call = exchange(rank, round, in_splits, out_splits);
        CHECK(run(&call, round % 3 != 0, LIMIT_MS) == SYMMEM_OK);
        CHECK(came(rank, round));
    }
    return true;
}

/* Another stream's kernel fails while this kernel's block looks for a failure. Either all of the
 * block's threads take part in the barrier phase, or none does. */
RANKS_TEST("all-to-alls beside a failure") {
    const char *own = fake.peers.signals[rank];
    const symmem_cuda_state *state =
        (const symmem_cuda_state *)(const void *)(own + symmem_cuda_state_at(RANKS, CHANNELS, 1));
    size_t in_splits[RANKS], out_splits[RANKS];
    const symmem_collective call = exchange(rank, 1, in_splits, out_splits);
    alarm(20); /* they would wait for each other */
    host_fail_meanwhile(&state->failed);
    CHECK(run(&call, true, LIMIT_MS) == SYMMEM_OK);
    return true;
}

/* --- graphs ------------------------------------------------------------------------- */

static symmem_status capture(const symmem_collective *call, bool checking) {
    static cuda_stream stream;
    static fake_node nodes[FAKE_MOST_NODES];
    symmem_exec exec = {.stream = &stream, .timeout_ms = LIMIT_MS};
    if (checking)
        exec.call = (symmem_call_id){.kind = call->kind, .detail = 1};
    fake.nodes = nodes;
    fake.capturing = true;
    symmem_status status = cuda_collective(&fake.instance, &fake.peers, 1, call, &exec);
    fake.capturing = false;
    return status;
}

/* Each launch of a captured call does what the call does, with the data of that time. Eager
 * operations on the same channel run in between. */
RANKS_TEST("graphs of all-reduces") {
    for (int round = 0; round < ROUNDS; round++) {
        symmem_collective call = reduction(SYMMEM_CALL_TWO_SHOT_ALL_REDUCE, round);
        call.op = SYMMEM_SUM;
        call.out = out;
        CHECK(capture(&call, round % 2 != 0) == SYMMEM_OK);
        for (int launch = 0; launch < 3; launch++) {
            fill(buffer(), rank, round + launch, call.count);
            memset(out, MARK, sizeof out);
            expect(round + launch, call.count, call.op);
            CHECK(fake_replay() == SYMMEM_OK && same(out, wanted, call.count));
            CHECK(run(&call, false, LIMIT_MS) == SYMMEM_OK && same(out, wanted, call.count));
        }
        fake_drop_graph();
    }
    return true;
}

/* The splits were looked at when it was captured. */
RANKS_TEST("graphs of all-to-alls") {
    size_t in_splits[RANKS], out_splits[RANKS];
    for (int round = 0; round < ROUNDS; round++) {
        const symmem_collective call = exchange(rank, round, in_splits, out_splits);
        CHECK(capture(&call, round % 3 != 0) == SYMMEM_OK);
        memset(in_splits, MARK, sizeof in_splits);
        memset(out_splits, MARK, sizeof out_splits);
        for (int launch = 0; launch < 3; launch++) {
            memset(out, MARK, sizeof out);
            CHECK(fake_replay() == SYMMEM_OK && came(rank, round));
        }
        fake_drop_graph();
    }
    return true;
}

/* A launch that fails leaves nothing that the next one stumbles over. */
RANKS_TEST("graphs that fail") {
    symmem_collective call = reduction(SYMMEM_CALL_ONE_SHOT_ALL_REDUCE, 0);
    for (int round = 0; round < 2; round++) {
        call.count = round == 0 ? 10 : MOST;
        call.out = out;
        CHECK(capture(&call, true) == SYMMEM_OK);
        for (int launch = 0; launch < 4; launch++) {
            const symmem_collective other = {.name = "test", .kind = SYMMEM_CALL_BROADCAST};
            bool differs = launch % 2 == 0;
            fill(buffer(), rank, launch, call.count);
            memset(out, MARK, sizeof out);
            expect(launch, call.count, call.op);
            symmem_status status =
                differs && rank == 1 ? run(&other, true, LIMIT_MS) : fake_replay();
            CHECK(status == (differs ? SYMMEM_MISMATCH : SYMMEM_OK));
            CHECK(differs ? ((const char *)out)[0] == MARK : same(out, wanted, call.count));
        }
        fake_drop_graph();
    }
    return true;
}

/* --- failures ----------------------------------------------------------------------- */

RANKS_TEST("splits that differ") {
    size_t in_splits[RANKS], out_splits[RANKS];
    for (int round = 1; round < 7; round++) { /* small and large alternately */
        symmem_collective call = exchange(rank, round, in_splits, out_splits);
        if (rank == 1)
            out_splits[2]++;
        memset(out, MARK, sizeof out);
        CHECK(run(&call, true, LIMIT_MS) == SYMMEM_MISMATCH);
        CHECK(fake.fault.status == SYMMEM_MISMATCH);
        CHECK(fake.fault.failed_rank == (rank == 1 ? 2 : 1));
        CHECK(fake.fault.own.kind == SYMMEM_CALL_ALL_TO_ALL);
        CHECK(fake.fault.own.count == (rank == 1   ? part(2, 1, round) + 1
                                       : rank == 2 ? part(2, 1, round)
                                                   : 0));
        CHECK(fake.fault.other.count == (rank == 1   ? part(2, 1, round)
                                         : rank == 2 ? part(2, 1, round) + 1
                                                     : 0));
        for (size_t i = 0; i < sizeof out; i++)
            CHECK(((const char *)out)[i] == MARK);
        call = exchange(rank, round + 1, in_splits, out_splits); /* the channel goes on */
        CHECK(run(&call, true, LIMIT_MS) == SYMMEM_OK && came(rank, round + 1));
    }
    return true;
}

RANKS_TEST("calls that differ") {
    for (int round = 0; round < ROUNDS; round++) {
        symmem_collective call = reduction(SYMMEM_CALL_ONE_SHOT_ALL_REDUCE, round);
        fill(buffer(), rank, round, call.count);
        memset(out, MARK, sizeof out);
        call.out = out;
        if (rank == 2)
            call.count++;
        CHECK(run(&call, true, LIMIT_MS) == SYMMEM_MISMATCH);
        CHECK(fake.fault.failed_rank == (rank == 2 ? 0 : 2));
        CHECK(fake.fault.own.count == call.count && fake.fault.other.count != call.count);
        CHECK(((const char *)out)[0] == MARK);
        call.count = counts[round % 7];
        fill(buffer(), rank, round, call.count);
        expect(round, call.count, call.op);
        CHECK(run(&call, true, LIMIT_MS) == SYMMEM_OK && same(out, wanted, call.count));
    }
    return true;
}

/* One rank does not come, and no data is moved. */
static bool one_is_late(int32_t rank, size_t count) {
    symmem_collective call = call_of(SYMMEM_CALL_ONE_SHOT_ALL_REDUCE, count);
    call.out = out;
    memset(out, MARK, sizeof out);
    if (rank == 2)
        return true;
    uint64_t begin_ns = cuda_now_ns();
    CHECK(run(&call, false, AWAY_MS) == SYMMEM_TIMEOUT);
    CHECK(fake.fault.status == SYMMEM_TIMEOUT && strcmp(fake.fault.operation, "test") == 0);
    CHECK(fake.fault.missing[0] == 4 && fake.fault.failed_rank == 2);
    CHECK(fake.fault.elapsed_ns >= AWAY_MS * CUDA_NS_PER_MS);
    CHECK(cuda_now_ns() - begin_ns < 5000 * CUDA_NS_PER_MS);
    CHECK(((const char *)out)[0] == MARK);
    CHECK(run(&call, false, LIMIT_MS) == SYMMEM_POISONED); /* and stays so */
    return true;
}

RANKS_TEST("one is late, one kernel") {
    return one_is_late(rank, 10);
}

RANKS_TEST("one is late, several kernels") {
    return one_is_late(rank, MOST);
}

/* The limit holds for the whole operation. If a rank is late in the first barrier phase and absent
 * from the last, the call takes one limit. */
static bool limit_is_for_all_of(int32_t rank, symmem_call_kind kind, bool checking) {
    symmem_collective call = call_of(kind, MOST);
    call.out = out;
    if (rank == 2) {
        symmem_exec exec = {.timeout_ms = LIMIT_MS};
        if (checking)
            exec.call = id_of(&call);
        cuda_sleep_ns(900 * CUDA_NS_PER_MS);
        CHECK(cuda_barrier(&fake.instance, &fake.peers, 1, &exec) == SYMMEM_OK);
        return true;
    }
    uint64_t begin_ns = cuda_now_ns();
    CHECK(run(&call, checking, 1800) == SYMMEM_TIMEOUT);
    CHECK(fake.fault.missing[0] == 4);
    CHECK(fake.fault.elapsed_ns >= 1800 * CUDA_NS_PER_MS);
    CHECK(cuda_now_ns() - begin_ns < 2600 * CUDA_NS_PER_MS); /* a limit each would be 2700 */
    return true;
}

RANKS_TEST("one limit for all meetings") {
    return limit_is_for_all_of(rank, SYMMEM_CALL_TWO_SHOT_ALL_REDUCE, false);
}

/* The second barrier phase is each block's own. */
RANKS_TEST("one limit for all meetings of blocks") {
    return limit_is_for_all_of(rank, SYMMEM_CALL_ONE_SHOT_ALL_REDUCE, true);
}

/* The processor that began the operation was ahead of the one that waits for its next chunk. That
 * is found if it comes; if not, the limit ends when it has passed since then, and not at once. */
RANKS_TEST("a clock that is behind") {
    const uint64_t limit_ns = 50 * CUDA_NS_PER_MS;
    uint32_t *word = fake.peers.buffers[0], never = 0;
    symmem_cuda_state state = {.start_ns = cuda_now_ns() + 500 * CUDA_NS_PER_MS};
    symmem_cuda_fault fault = {.code = 0};
    symmem_cuda_await args = {
        .word = word, .state = &state, .fault = &fault, .timeout_ms = LIMIT_MS, .chunk = 1};
    if (rank == 1) {
        cuda_sleep_ns(100 * CUDA_NS_PER_MS);
        __atomic_store_n(word, 1, __ATOMIC_RELEASE);
    }
    if (rank != 0)
        return true;
    host_launch_kernel(HOST_AWAIT_CHUNK, 1, 1, &args);
    CHECK(fault.code == 0 && state.failed == 0);
    state.start_ns = cuda_now_ns() + 300 * CUDA_NS_PER_MS;
    args.word = &never;
    args.timeout_ms = 50;
    host_launch_kernel(HOST_AWAIT_CHUNK, 1, 1, &args);
    CHECK(fault.code == -(uint32_t)SYMMEM_TIMEOUT && fault.elapsed_ns >= limit_ns);
    CHECK(cuda_now_ns() >= state.start_ns + limit_ns);
    return true;
}

/* Runs a part that finds its rank poisoned. */
static void fail_part(symmem_cuda_state *state, symmem_cuda_fault *fault) {
    uint32_t *own = fake.peers.signals[fake.peers.rank];
    symmem_cuda_signal_args args = {.signals = fake.peers.signals,
                                    .fault = fault,
                                    .control = &fake.control,
                                    .rank = fake.peers.rank,
                                    .world_size = fake.peers.world_size,
                                    .channel_count = fake.peers.channel_count,
                                    .phase = SYMMEM_CUDA_COMPOSITE_STEP,
                                    .state = state,
                                    .stream = 2};
    memcpy(args.small, fake.peers.signals, sizeof(void *) * (size_t)fake.peers.world_size);
    *own = 1;
    host_launch_kernel(HOST_BARRIER, 1, 1, &args);
    *own = 0;
}

/* The same for an operation that fails: it took no time, and not 500 years. */
RANKS_TEST("what fails behind its clock") {
    uint32_t word = 0;
    symmem_cuda_state state = {.start_ns = cuda_now_ns() + LIMIT_MS * CUDA_NS_PER_MS};
    symmem_cuda_fault fault = {.missing = {1}}, part_fault = {.code = 0};
    const symmem_cuda_await args = {.word = &word, .state = &state, .fault = &fault, .chunk = 1};
    if (rank != 0)
        return true;
    fail_part(&state, &part_fault);
    CHECK(part_fault.code == -(uint32_t)SYMMEM_POISONED && part_fault.elapsed_ns == 0);
    state.failed = 0;
    host_launch_kernel(HOST_AWAIT_CHUNK, 1, 1, &args);
    CHECK(fault.code != 0 && fault.elapsed_ns == 0);
    return true;
}

/* Launches are what small messages cost: one kernel, and one more where calls are compared first.
 */
RANKS_TEST("kernels of a call") {
    static const struct {
        symmem_call_kind kind;
        bool out, checking;
        size_t count;
        int launches;
    } calls[] = {
        {SYMMEM_CALL_ONE_SHOT_ALL_REDUCE, true, false, 10, 1},
        {SYMMEM_CALL_ONE_SHOT_ALL_REDUCE, true, true, 10, 2},
        {SYMMEM_CALL_ONE_SHOT_ALL_REDUCE, true, false, 5000, 1}, /* by lines */
        {SYMMEM_CALL_ONE_SHOT_ALL_REDUCE, true, true, 5000, 2},
        {SYMMEM_CALL_TWO_SHOT_ALL_REDUCE, true, false, 5000, 1},
        {SYMMEM_CALL_TWO_SHOT_ALL_REDUCE, false, true, 300, 2},
        {SYMMEM_CALL_ONE_SHOT_ALL_REDUCE, true, false, MOST, 1},
        {SYMMEM_CALL_ONE_SHOT_ALL_REDUCE, true, true, MOST, 2},
        {SYMMEM_CALL_TWO_SHOT_ALL_REDUCE, false, false, MOST, 1},
        {SYMMEM_CALL_TWO_SHOT_ALL_REDUCE, true, false, MOST, 7},
        {SYMMEM_CALL_ALL_GATHER, true, false, MOST / RANKS, 1},
    };
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        symmem_collective call = call_of(calls[i].kind, calls[i].count);
        call.out = calls[i].out ? out : NULL;
        int before = fake.launches;
        CHECK(run(&call, calls[i].checking, LIMIT_MS) == SYMMEM_OK);
        CHECK(fake.launches - before == calls[i].launches);
    }
    return true;
}

/* The driver refuses the second kernel: the rank says so and is poisoned. */
RANKS_TEST("a launch fails") {
    symmem_collective call = call_of(SYMMEM_CALL_TWO_SHOT_ALL_REDUCE, MOST);
    call.out = out;
    fake.fail_launch = rank == 1 ? 1 : -1;
    if (rank != 1) /* the first barrier phase is over, and rank 1's core tells no peer */
        return run(&call, false, 500) == SYMMEM_TIMEOUT || fake.fault.status == SYMMEM_POISONED;
    CHECK(run(&call, false, LIMIT_MS) == SYMMEM_BACKEND);
    CHECK(fake.fault.status == SYMMEM_BACKEND && fake.fault.failed_rank == 1);
    CHECK(fake.launches == 1 && fake.control.poisoned == 1);
    return true;
}

RANKS_TEST("unknown kinds") {
    for (int kind = 0; kind < SYMMEM_CALL_KIND_COUNT; kind++) {
        const symmem_collective call = {.name = "test", .kind = (symmem_call_kind)kind};
        bool known = (kind >= SYMMEM_CALL_ONE_SHOT_ALL_REDUCE && kind <= SYMMEM_CALL_ALL_TO_ALL) ||
                     kind == SYMMEM_CALL_LOW_CONTENTION_REDUCE_SCATTER;
        if (!known)
            CHECK(run(&call, false, LIMIT_MS) == SYMMEM_UNSUPPORTED);
    }
    CHECK(fake.launches == 0);
    return true;
}

int unit_setup(void) {
    arena = mmap(NULL, RANKS * (BUFFER_BYTES + SIGNAL_BYTES), PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    begun = mmap(NULL, sizeof *begun, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return arena == MAP_FAILED || begun == MAP_FAILED;
}
