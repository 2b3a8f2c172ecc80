// SPDX-License-Identifier: BSD-3-Clause
// symmem/device.cuh and its example, compiled for the CPU: ranks are processes, a block is some
// threads. What it cannot show is the machine code's own: the accesses and their orders.
#include "unit_main.h"
#include "cuda_on_host.h"

#include <cstdio>
#include <cstring>
#include <functional>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

struct float2 {
    float x, y;
};

struct float4 {
    float x, y, z, w;
};

static inline float __uint_as_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t __float_as_uint(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

#include <symmem/device.cuh>

#include "cuda/device_example.cu"

static const int RANKS = 3, CHANNELS = 4, THREADS = 2, LIMIT_MS = 20000;
static const size_t MOST = 300; // times four floats
static const size_t BUFFER = MOST * sizeof(float4), PAD = 4096;

static char *arena; // of all processes, at one address
static void *buffers[RANKS], *pads[RANKS];
static float4 scratch[MOST];
static pthread_barrier_t *meeting; // of the ranks, without what is tested

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "rank %d: line %d: %s\n", rank, __LINE__, #condition);                 \
            return false;                                                                          \
        }                                                                                          \
    } while (0)

// --- launches ----------------------------------------------------------------------------------

using kernel = std::function<void()>;

struct block_thread {
    const kernel *run;
    unsigned int index;
};

static void *run_thread(void *opaque) {
    const block_thread *thread = static_cast<const block_thread *>(opaque);
    threadIdx.x = thread->index;
    (*thread->run)();
    return nullptr;
}

// One block after the other: each waits for those of its number only.
static void launch(const kernel &run, unsigned int blocks) {
    pthread_t handles[THREADS];
    block_thread states[THREADS];
    blockDim.x = THREADS;
    gridDim.x = blocks;
    pthread_barrier_init(&host_block, nullptr, THREADS);
    for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++) {
        for (unsigned int i = 0; i < THREADS; i++) {
            states[i] = block_thread{&run, i};
            pthread_create(&handles[i], nullptr, run_thread, &states[i]);
        }
        for (pthread_t handle : handles)
            pthread_join(handle, nullptr);
    }
    pthread_barrier_destroy(&host_block);
}

static void launch_sum(int rank, size_t count, uint32_t timeout_ms, uint32_t *late,
                       unsigned int blocks) {
    launch([=] { sum_of_all(buffers, pads, rank, RANKS, scratch, count, timeout_ms, late); },
           blocks);
}

// --- ranks -------------------------------------------------------------------------------------

static void run_ranks(bool (*scenario)(int rank)) {
    pid_t pids[RANKS];
    memset(arena, 0, RANKS * (BUFFER + PAD));
    for (int r = 0; r < RANKS; r++) {
        buffers[r] = arena + static_cast<size_t>(r) * (BUFFER + PAD);
        pads[r] = static_cast<char *>(buffers[r]) + BUFFER;
    }
    pthread_barrierattr_t shared;
    pthread_barrierattr_init(&shared);
    pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    meeting = reinterpret_cast<pthread_barrier_t *>(arena + RANKS * (BUFFER + PAD));
    pthread_barrier_init(meeting, &shared, RANKS);
    for (int r = 0; r < RANKS; r++) {
        pids[r] = fork();
        CU_ASSERT_FATAL(pids[r] >= 0);
        if (pids[r] == 0) {
            alarm(40);
            _exit(scenario(r) ? 0 : 1);
        }
    }
    for (pid_t pid : pids) {
        int status = -1;
        CU_ASSERT_EQUAL(waitpid(pid, &status, 0), pid);
        CU_ASSERT_EQUAL(status, 0);
    }
}

// RANKS_TEST("what is checked") { ... }, by each of the ranks, whose number is `rank`.
#define RANKS_TEST(case_name) RANKS_TEST_(case_name, __COUNTER__)
#define RANKS_TEST_(case_name, place) RANKS_PLACED_TEST_(case_name, place)
#define RANKS_PLACED_TEST_(case_name, place)                                                       \
    static bool ranks_##place(int rank);                                                           \
    TEST(case_name) {                                                                              \
        run_ranks(ranks_##place);                                                                  \
    }                                                                                              \
    static bool ranks_##place(int rank)

// --- scenarios ---------------------------------------------------------------------------------

static float value(int rank, int round, size_t i) {
    return static_cast<float>((i * 7 + static_cast<size_t>(rank * 13 + round * 31)) % 1009);
}

static bool is_sum(const float *values, int round, size_t count) {
    for (size_t i = 0; i < 4 * count; i++)
        if (values[i] != value(0, round, i) + value(1, round, i) + value(2, round, i))
            return false;
    return true;
}

// Again and again. After it each rank finds the sums in all ranks' buffers, or, every other time,
// writes at once what is next.
RANKS_TEST("sums") {
    static const size_t counts[] = {0, 1, 4, 7, 60, MOST};
    float *own = static_cast<float *>(buffers[rank]);
    for (int round = 0; round < 60; round++) {
        const size_t count = counts[round % 6];
        uint32_t late = 0;
        for (size_t i = 0; i < 4 * count; i++)
            own[i] = value(rank, round, i);
        if (round % 7 == rank)
            usleep(2000);
        launch_sum(rank, count, LIMIT_MS, &late, 1 + static_cast<unsigned int>(round % CHANNELS));
        CHECK(late == 0 && is_sum(own, round, count));
        if (round % 2 != 0)
            continue;
        for (const void *buffer : buffers)
            CHECK(is_sum(static_cast<const float *>(buffer), round, count));
        pthread_barrier_wait(meeting);
    }
    return true;
}

RANKS_TEST("words go round") {
    for (uint32_t round = 1; round <= 200; round++) {
        const int previous = (rank + RANKS - 1) % RANKS;
        uint32_t received = 0, late = 0;
        if (round % 50 == static_cast<uint32_t>(rank))
            usleep(2000);
        hand_on(buffers, pads, rank, RANKS, static_cast<int32_t>(round % CHANNELS),
                round * 10 + static_cast<uint32_t>(rank), LIMIT_MS, &received, &late);
        CHECK(late == 0 && received == round * 10 + static_cast<uint32_t>(previous));
        // The word is read before the next one comes: the other way round, on another
        // channel.
        uint32_t *back = symmem::signal_slot(pads, previous, RANKS, CHANNELS, rank);
        CHECK(symmem::put(back, symmem::deadline_in_ms(LIMIT_MS)));
        uint32_t *here = symmem::signal_slot(pads, rank, RANKS, CHANNELS, (rank + 1) % RANKS);
        CHECK(symmem::wait(here, symmem::deadline_in_ms(LIMIT_MS)));
    }
    return true;
}

// A rank that does not come: the others say so at their limit, all threads of a block alike, and
// their buffers are as they were.
RANKS_TEST("one does not come") {
    float *own = static_cast<float *>(buffers[rank]);
    uint32_t late = 0;
    for (size_t i = 0; i < 4; i++)
        own[i] = value(rank, 1, i);
    if (rank == 1)
        return true;
    const uint64_t begin_ns = symmem::now_ns();
    launch_sum(rank, 1, 200, &late, 1);
    const uint64_t took_ms = (symmem::now_ns() - begin_ns) / 1000000;
    CHECK(late == 1);
    CHECK(took_ms >= 200 && took_ms < 5000);
    for (size_t i = 0; i < 4; i++)
        CHECK(own[i] == value(rank, 1, i));
    return true;
}

// A limit that is over does not keep from what is there already.
RANKS_TEST("what is there is taken") {
    uint32_t *slot = symmem::signal_slot(pads, rank, RANKS, 0, rank);
    const symmem::deadline over = {1};
    CHECK(!symmem::wait(slot, over));
    CHECK(symmem::put(slot, over) && *slot == 1);
    CHECK(!symmem::put(slot, over) && *slot == 1);
    CHECK(symmem::wait(slot, over) && *slot == 0);
    return true;
}

// Ranks do not synchronize in between.
RANKS_TEST("lines carry sums") {
    constexpr unsigned int BLOCKS = 3;
    constexpr size_t COUNT = BLOCKS * THREADS - 1; // a thread has none
    uint32_t rounds[BLOCKS] = {}, late = 0;
    rounds[0] = UINT32_MAX - 20; // each block counts for itself
    for (int round = 0; round < 100; round++) {
        float2 pairs[COUNT];
        for (size_t i = 0; i < COUNT; i++)
            pairs[i] = {value(rank, round, 2 * i), value(rank, round, 2 * i + 1)};
        if (round % 7 == rank)
            usleep(2000);
        launch([&] { sum_by_lines(buffers, rank, RANKS, pairs, COUNT, rounds, LIMIT_MS, &late); },
               BLOCKS);
        CHECK(late == 0 && is_sum(&pairs[0].x, round, COUNT / 2));
        CHECK(rounds[0] == UINT32_MAX - 20 + static_cast<uint32_t>(round) + 1);
    }
    return true;
}

// Parts of any size and place, by several blocks.
RANKS_TEST("parts are gathered") {
    static const size_t sizes[] = {0, 1, 15, 16, 33, 64, 257, 1000, 1441};
    alignas(16) char part[1500];
    for (int round = 0; round < 36; round++) {
        const size_t bytes = sizes[round % 9],
                     shift = round % 2 == 0 ? 0 : static_cast<size_t>(round);
        const char *own = static_cast<const char *>(buffers[rank]);
        uint32_t late = 0;
        for (size_t i = 0; i < bytes; i++)
            part[shift + i] = static_cast<char>(i * 3 + static_cast<size_t>(rank * 50 + round));
        launch(
            [&] { gather_parts(buffers, pads, rank, RANKS, part + shift, bytes, LIMIT_MS, &late); },
            1 + static_cast<unsigned int>(round % CHANNELS));
        CHECK(late == 0);
        for (size_t i = 0; i < RANKS * bytes; i++)
            CHECK(own[i] ==
                  static_cast<char>(i % bytes * 3 + i / bytes * 50 + static_cast<size_t>(round)));
        CHECK(own[RANKS * bytes] == 0 || round >= 9);
    }
    return true;
}

// No rank is through before all have come, across the wrap of the count, too.
RANKS_TEST("words are counted") {
    uint32_t rounds = 0, late = 0;
    uint32_t *entered = static_cast<uint32_t *>(pads[0]);
    for (uint32_t round = 1; round <= 100; round++) {
        if (round % 7 == static_cast<uint32_t>(rank))
            usleep(2000);
        __atomic_fetch_add(entered, 1, __ATOMIC_RELAXED);
        launch([&] { count_in(buffers, rank, RANKS, &rounds, LIMIT_MS, &late); }, 1);
        CHECK(late == 0 && rounds == round);
        CHECK(__atomic_load_n(entered, __ATOMIC_RELAXED) >= round * RANKS);
    }
    return true;
}

RANKS_TEST("values are compared") {
    using symmem::compare;
    const symmem::deadline over = {1};
    const struct {
        uint32_t found, wanted;
        bool is[7]; // eq, ne, gt, ge, lt, le, reached
    } rows[] = {
        {5, 5, {true, false, false, true, false, true, true}},
        {6, 5, {false, true, true, true, false, false, true}},
        {4, 5, {false, true, false, false, true, true, false}},
        {1, UINT32_MAX, {false, true, false, false, true, true, true}},
        {UINT32_MAX, 1, {false, true, true, true, false, false, false}},
    };
    for (const auto &row : rows) {
        const uint32_t *word = &row.found;
        CHECK(symmem::wait_until<compare::eq>(word, row.wanted, over) == row.is[0]);
        CHECK(symmem::wait_until<compare::ne>(word, row.wanted, over) == row.is[1]);
        CHECK(symmem::wait_until<compare::gt>(word, row.wanted, over) == row.is[2]);
        CHECK(symmem::wait_until<compare::ge>(word, row.wanted, over) == row.is[3]);
        CHECK(symmem::wait_until<compare::lt>(word, row.wanted, over) == row.is[4]);
        CHECK(symmem::wait_until<compare::le>(word, row.wanted, over) == row.is[5]);
        CHECK(symmem::wait_until<compare::reached>(word, row.wanted, over) == row.is[6]);
    }
    return true;
}

RANKS_TEST("half a line is none") {
    const symmem::deadline over = {1};
    const symmem::line whole = symmem::make_line(0x123456789abcdef0u, 7);
    uint64_t data = 1;
    for (int missing = 0; missing < 2; missing++) {
        symmem::line found = whole;
        (missing == 0 ? found.low : found.high) ^= uint64_t(1) << 32;
        CHECK(!symmem::await_line(&found, 7, over, &data) && data == 1);
    }
    CHECK(symmem::await_line(&whole, 7, over, &data) && data == 0x123456789abcdef0u);
    return true;
}

int unit_setup() {
    void *mapped = mmap(nullptr, RANKS * (BUFFER + PAD) + sizeof *meeting, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    arena = static_cast<char *>(mapped);
    return mapped == MAP_FAILED;
}
