// SPDX-License-Identifier: BSD-3-Clause
// The kernels of few ranks (kernels/cuda/barrier_small.cuh, allreduce_fast.cuh) with warps as on
// the device, of which the other tests' have one thread: what lanes share out, vote on and
// exchange, and what they find of each other's writes. Ranks go the plain way or the general one as
// they like.
#include <array>
#include <initializer_list>

#include "reference/splits.h"
#include "cuda_warp_ranks.h"

static const uint32_t TIMEOUT = -SYMMEM_TIMEOUT, POISONED = -SYMMEM_POISONED;

// A random generator that gives the same numbers in all runs.
struct dice {
    uint32_t state;

    uint32_t operator()(uint32_t sides) {
        state = state * 1664525u + 1013904223u;
        return (state >> 8) % sides;
    }
};

static float value(int rank, uint32_t round, size_t i) {
    return static_cast<float>((i * 7 + static_cast<size_t>(rank) * 13 + round * 31) % 1009);
}

static void fill(uint32_t round) {
    for (size_t i = 0; i < BUFFER; i++)
        shared->rank[own].buffer[i] = value(own, round, i);
}

static bool is_sum(const float *values, uint32_t round, size_t count) {
    for (size_t i = 0; i < count; i++) {
        float sum = 0;
        for (int r = 0; r < ranks; r++)
            sum += value(r, round, i);
        if (values[i] != sum)
            return false;
    }
    return true;
}

// Whether these are the values of rank `rank`, from its element `begin` on.
static bool is_of(const float *values, int rank, uint32_t round, size_t begin, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (values[i] != value(rank, round, begin + i))
            return false;
    return true;
}

static bool is_part_of_sum(const float *values, uint32_t round, size_t begin, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (values[i] != value(0, round, begin + i) + value(1, round, begin + i))
            return false;
    return true;
}

// Whether the parts of both ranks follow each other in out.
static bool is_dealt(const call &c, uint32_t round) {
    const size_t first = dealt_to(c, 0, own), second = dealt_to(c, 1, own);
    return is_of(out, 0, round, own == 0 ? 0 : dealt_to(c, 0, 0), first) &&
           is_of(out + first, 1, round, own == 0 ? 0 : dealt_to(c, 1, 0), second);
}

static bool is_right(const call &c, uint32_t round) {
    const float *buffer = shared->rank[own].buffer;
    switch (c.kind) {
    case SUM_APART:
        return is_sum(out, round, c.count);
    case SUM_IN_PLACE:
        return is_sum(buffer, round, c.count);
    case SCATTERED:
        return is_part_of_sum(out, round, static_cast<size_t>(own) * c.count, c.count);
    case GATHERED:
        return is_of(out, 0, round, 0, c.count) && is_of(out + c.count, 1, round, 0, c.count);
    case SENT:
        return is_of(buffer, 1, round, 0, c.count);
    case OWN_DIFFERS:
        return is_dealt(c, round);
    default:
        return true;
    }
}

static uint32_t *own_poison() {
    return reinterpret_cast<uint32_t *>(shared->rank[own].signals);
}

static const symmem_cuda_fault &own_fault() {
    return shared->rank[own].fault;
}

// --- calls without failures --------------------------------------------------------------------

// By lines, in one round and in several; on the last channel in blocks.
static call some_call(dice &all) {
    static const size_t counts[] = {4, 48, 128, 1004, MOST};
    call c = {};
    c.kind = static_cast<kind>(all(3));
    c.channel = static_cast<int32_t>(all(CHANNELS));
    c.count = counts[all(5)];
    c.blocks = 1 + all(2);
    if (c.channel == CHANNELS - 1 && symmem_cuda_has_fast_kernel(ranks))
        return c;
    c.rounds.units = all(2) != 0 ? SYMMEM_CUDA_SHORT_UNITS : SYMMEM_CUDA_ROUND_UNITS;
    c.rounds.warps = 1 + all(3);
    return c;
}

static bool all_have_begun(uint32_t round) {
    for (int r = 0; r < ranks; r++)
        if (__atomic_load_n(&shared->rank[r].round, __ATOMIC_RELAXED) < round)
            return false;
    return true;
}

// Ranks are late in any order, and each chooses the plain or the general kernel. Some compare their
// calls. What they publish for that is soon outdated, so a rank that does not compare erases it.
static bool calls_in_a_row() {
    const uint32_t rounds = ranks <= 4 ? 24 : 16;
    dice all = {static_cast<uint32_t>(ranks)}, mine = {static_cast<uint32_t>(100 + own)};
    for (uint32_t round = 1; round <= rounds; round++) {
        call c = some_call(all);
        c.compared = mine(3) == 0 ? round : 0;
        fill(round);
        if (static_cast<int>(round) % (2 * ranks) == own)
            usleep(3000 * static_cast<useconds_t>(ranks)); // the others wait for it
        __atomic_store_n(&shared->rank[own].round, round, __ATOMIC_RELAXED);
        run(c, mine(3) != 0);
        CHECK(own_fault().code == 0);
        CHECK(all_have_begun(round));
        CHECK(is_right(c, round));
    }
    return true;
}

// A call of a kind that only two ranks do, mixed with sums.
static call some_call_of_two(dice &all) {
    static const size_t counts[] = {4, 48, 128, 1000};
    call c = {};
    c.kind = static_cast<kind>(SUM_APART + all(OWN_DIFFERS));
    c.chunked = all(2) != 0;
    c.count = c.chunked ? CHUNKED - 4 * (3 + all(3000)) : counts[all(4)];
    c.blocks = 1 + all(2);
    c.rounds.units = all(2) != 0 ? SYMMEM_CUDA_SHORT_UNITS : SYMMEM_CUDA_ROUND_UNITS;
    c.rounds.warps = 1 + all(3);
    return c;
}

static bool calls_of_two() {
    dice all = {7}, mine = {static_cast<uint32_t>(200 + own)};
    for (uint32_t round = 1; round <= 40; round++) {
        const call c = some_call_of_two(all);
        fill(round);
        if (static_cast<int>(round) % 4 == own)
            usleep(6000); // the other one waits for it
        run(c, mine(3) != 0);
        CHECK(own_fault().code == 0);
        CHECK(is_right(c, round));
    }
    return true;
}

template <int RANKS> static void test_calls() {
    for (const bool all : {false, true}) {
        linked = all;
        run_ranks(RANKS, calls_in_a_row);
    }
    linked = false;
}

// No rank uses wide lines then.
TEST("a rank is not linked") {
    linked = true;
    unlinked = 1;
    run_ranks(3, calls_in_a_row);
    linked = false;
    unlinked = -1;
}

// All ranks compare a call, then none compares one. What the first rank published of the first call
// must not be compared with the second rank's third call.
static bool old_call_is_taken_away() {
    call c = {COMM, 0, 0, 1, {0, 0}, 1, false};
    run(c, false);
    c.compared = 0;
    run(c, true);
    c.compared = own == 1 ? 3 : 0;
    run(c, own != 1);
    CHECK(own_fault().code == 0);
    return true;
}

TEST("an old call") {
    for (int count = 2; count <= 4; count++)
        run_ranks(count, old_call_is_taken_away);
}

// --- a rank stays away -------------------------------------------------------------------------

struct absence {
    int ranks, away;
    uint32_t limit_ms;            // in which all others come
    const call *wanted, *instead; // of the absent rank: `instead` ends sooner; nullptr: none
};

static const absence *absent;

static void meet_all() {
    (void)pthread_barrier_wait(&shared->meeting);
}

static bool is_away() {
    if (absent->instead != nullptr)
        run(*absent->instead, false);
    else
        meet_all();
    return own_fault().code == 0;
}

// Limits begin when all have their threads, which are long to make. The others are through with
// their limit and name it, and then are poisoned.
static bool one_is_away() {
    const int away = absent->away;
    fill(1);
    warp_when_ready(meet_all);
    if (own == away)
        return is_away();
    limit_ms = absent->limit_ms;
    run(*absent->wanted, true);
    CHECK(own_fault().code == TIMEOUT);
    CHECK(own_fault().failed_rank == away && own_fault().missing[0] == 1u << away);
    CHECK(own_fault().elapsed_ns >= limit_ms * UINT64_C(1000000));
    CHECK(*own_poison() == 1);
    shared->rank[own].fault = symmem_cuda_fault();
    limit_ms = LIMIT_MS;
    run(*absent->wanted, true);
    CHECK(own_fault().code == POISONED && own_fault().failed_rank == own);
    CHECK(own_fault().elapsed_ns < LIMIT_MS / 2 * UINT64_C(1000000));
    return true;
}

TEST("a rank stays away") {
    static const call meeting = {COMM, 0, 0, 1, {0, 0}, 0, false},
                      blocks = {SUM_IN_PLACE, 0, MOST, 1, {0, 0}, 0, false},
                      lines = {SUM_APART, 0, 128, 1, {2, SYMMEM_CUDA_SHORT_UNITS}, 0, false},
                      more = {SUM_IN_PLACE, 0, 1004, 1, {2, SYMMEM_CUDA_ROUND_UNITS}, 0, false},
                      fewer = {SUM_IN_PLACE, 0, 480, 1, {2, SYMMEM_CUDA_ROUND_UNITS}, 0, false},
                      sent = {SENT, 0, 128, 1, {2, SYMMEM_CUDA_SHORT_UNITS}, 0, false},
                      chunks = {SUM_IN_PLACE, 0, CHUNKED, 1, {0, 0}, 0, true},
                      sent_chunks = {SENT, 0, CHUNKED, 1, {0, 0}, 0, true};
    static const absence absences[] = {
        {8, 7, 2000, &meeting, nullptr},
        {2, 1, 800, &lines, nullptr},
        {2, 0, 800, &sent, nullptr}, // to the root, which is told that it has come
        {2, 1, 800, &chunks, nullptr},
        {3, 1, 1000, &more, &fewer}, // a first round, and no more
        {2, 0, 800, &sent_chunks, nullptr},
        {4, 2, 1000, &blocks, &meeting} // in blocks, without a second barrier phase
    };
    for (const absence &one : absences)
        for (const bool all : {false, true}) {
            linked = all;
            absent = &one;
            run_ranks(one.ranks, one_is_away);
        }
    linked = false;
}

// --- a state is poisoned ------------------------------------------------------------------------

// A poisoned rank does not run the next call, and all ranks learn of it.
static bool one_was_poisoned() {
    static const call calls[] = {{COMM, 0, 0, 1, {0, 0}, 0, false},
                                 {SUM_APART, 0, 128, 1, {2, SYMMEM_CUDA_SHORT_UNITS}, 0, false},
                                 {SUM_IN_PLACE, 0, CHUNKED, 1, {0, 0}, 0, true}};
    for (const call &c : calls) {
        if (c.chunked && ranks != 2)
            continue;
        fill(1);
        if (own == 1)
            *own_poison() = 1;
        run(c, true);
        CHECK(own_fault().code == POISONED && *own_poison() == 1);
        (void)pthread_barrier_wait(&shared->meeting);
        shared->rank[own].fault = symmem_cuda_fault();
        *own_poison() = own == 1;
        (void)pthread_barrier_wait(&shared->meeting);
    }
    return true;
}

TEST("a rank was poisoned") {
    for (int count = 2; count <= 4; count++)
        run_ranks(count, one_was_poisoned);
}

static uint32_t trapped_look;
static bool by_lines;

// Between the looks of lanes: those of which some have seen it decide alike.
static bool one_is_poisoned() {
    const symmem_cuda_ll_choice rounds = {by_lines ? 2u : 0u, SYMMEM_CUDA_SHORT_UNITS};
    const call c = {SUM_IN_PLACE, 0, 128, 1, rounds, 0, false};
    fill(1);
    if (own == 1)
        warp_trap(own_poison(), trapped_look);
    run(c, true);
    CHECK(own_fault().code == POISONED);
    CHECK(*own_poison() == 1);
    return true;
}

// The rank is poisoned before the first barrier phase, where one thread looks, or while all lanes
// look before the second one. With lines all lanes look at once.
TEST("a rank is poisoned meanwhile") {
    static const uint32_t looks[] = {1, 2, 17};
    static const int counts[] = {2, 3, 4};
    for (const int count : counts)
        for (const uint32_t look : looks) {
            trapped_look = look;
            by_lines = count == 3;
            run_ranks(count, one_is_poisoned);
        }
}

TEST("calls of 2 ranks") {
    test_calls<2>();
}

TEST("calls of 3 ranks") {
    test_calls<3>();
}

TEST("calls of 4 ranks") {
    test_calls<4>();
}

TEST("calls of 8 ranks") {
    test_calls<8>();
}

TEST("what two ranks do") {
    for (const bool all : {false, true}) {
        linked = all;
        chunk_slots = all ? SYMMEM_CUDA_CHUNK_SLOTS_MOST : 4;
        run_ranks(2, calls_of_two);
    }
    linked = false;
    chunk_slots = 4;
}

#include "cuda_warp_splits.h"

int unit_setup() {
    void *mapped =
        mmap(nullptr, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED)
        return 1;
    shared = static_cast<world *>(mapped);
    return 0;
}
