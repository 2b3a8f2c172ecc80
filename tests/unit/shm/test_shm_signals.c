/* SPDX-License-Identifier: BSD-3-Clause */
/* Signals and barriers of the emulation, driven through its table. */

#include <sched.h>

#include "shm.h"
#include "shm_fake_host.h"
#include "unit_main.h"
#include "signals.h"
#include "wait.h"

#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return __LINE__;                                                                       \
    } while (0)

static shm_word *slot_word(fake_rank *rank, int32_t owner, int32_t channel, int32_t source) {
    shm_word *words = (shm_word *)((shm_signal_header *)rank->peers.signals[owner] + 1);
    return words + channel * rank->peers.world_size + source;
}

static int32_t table_words(const fake_rank *rank) {
    return (rank->peers.world_size * rank->peers.channel_count + 15) / 16 * 16;
}

/* The word for arrivals of even or odd epochs. */
static shm_word *arrival_word(fake_rank *rank, int32_t owner, int32_t channel, int32_t source,
                              uint32_t epoch) {
    return slot_word(rank, owner, channel, source) + (1 + (int32_t)(epoch % 2)) * table_words(rank);
}

static shm_word *epoch_word(fake_rank *rank, int32_t channel) {
    return slot_word(rank, rank->peers.rank, 0, 0) + 3 * table_words(rank) + channel;
}

/* Sets the state after that many barriers of all ranks on the channel. */
static void set_epoch(fake_rank *rank, int32_t channel, uint32_t epoch) {
    atomic_store(epoch_word(rank, channel), epoch);
    for (int32_t p = 0; p < rank->peers.world_size; p++)
        for (uint32_t e = epoch - 1; e != epoch + 1; e++)
            atomic_store(arrival_word(rank, rank->peers.rank, channel, p, e), e);
}

/* No rank may leave round k before all have entered it. */
static int barrier_rounds(fake_rank *rank, uint32_t rounds, bool delays) {
    unsigned seed = (unsigned)rank->peers.rank + 1;
    uint32_t *own = rank->peers.buffers[rank->peers.rank];
    for (uint32_t round = 1; round <= rounds; round++) {
        if (delays && rand_r(&seed) % 512 == 0)
            fake_sleep_us((unsigned)rand_r(&seed) % 300);
        *own = round;
        REQUIRE(fake_barrier(rank, 0, 20000, NULL) == SYMMEM_OK);
        for (int32_t peer = 0; peer < rank->peers.world_size; peer++)
            REQUIRE(*(const uint32_t *)rank->peers.buffers[peer] == round);
        REQUIRE(fake_barrier(rank, 1, 20000, NULL) == SYMMEM_OK);
    }
    return 0;
}

static int some_rounds(fake_rank *rank) {
    return barrier_rounds(rank, 500, true);
}

static int few_rounds(fake_rank *rank) {
    return barrier_rounds(rank, 3, false);
}

WORLD_TEST("barrier of 128", 128, 2, 4096) {
    uint64_t start_ms = fake_now_ms();
    CU_ASSERT_EQUAL(fake_run_threads(world, few_rounds), 0);
    CU_ASSERT(fake_now_ms() - start_ms < 20000);
}

/* Ranks bound as launchers bind them. A rank that shares its processor sleeps at once. */
TEST("one processor for all") {
    cpu_set_t all, one;
    CU_ASSERT_EQUAL_FATAL(sched_getaffinity(0, sizeof all, &all), 0);
    CPU_ZERO(&one);
    CPU_SET((size_t)sched_getcpu(), &one);
    CU_ASSERT_EQUAL_FATAL(sched_setaffinity(0, sizeof one, &one), 0);
    fake_world *world = fake_world_open(3, 2, 4096);
    CU_ASSERT_EQUAL(fake_run_threads(world, few_rounds), 0);
    CU_ASSERT_EQUAL(fake_run_processes(world, few_rounds), 0);
    fake_world_close(world);
    CU_ASSERT_EQUAL(sched_setaffinity(0, sizeof all, &all), 0);
}

/* The epoch goes past 2^31, and wraps from 2^32 - 1 to 0. */
WORLD_TEST("barrier wraps", 3, 2, 4096) {
    const uint32_t near[] = {INT32_MAX - 3, UINT32_MAX - 3};
    for (int i = 0; i < 2; i++) {
        for (int32_t r = 0; r < 3; r++)
            for (int32_t channel = 0; channel < 2; channel++)
                set_epoch(&world->ranks[r], channel, near[i]);
        CU_ASSERT_EQUAL(fake_run_threads(world, some_rounds), 0);
    }
}

/* Each rank fills its eager buffer before a barrier, and all ranks find the values after it. There
 * is one barrier per round, and a rank is late now and then. */
static int tray_rounds(fake_rank *rank) {
    const symmem_peers *peers = &rank->peers;
    uint64_t *trays[FAKE_MAX_RANKS];
    size_t words = shm_eager_bytes(1) / sizeof(uint64_t);
    unsigned seed = (unsigned)peers->rank + 1;
    for (uint64_t round = 1; round <= 300; round++) {
        for (int32_t peer = 0; peer < peers->world_size; peer++)
            trays[peer] = shm_eager_buffer(peers, peer, 1);
        for (size_t i = 0; i < words; i++)
            trays[peers->rank][i] = round * 1000000 + (uint64_t)peers->rank * 10000 + i;
        REQUIRE(fake_barrier(rank, 1, 20000, NULL) == SYMMEM_OK);
        if (rand_r(&seed) % 16 == 0)
            fake_sleep_us(500);
        for (int32_t peer = 0; peer < peers->world_size; peer++)
            for (size_t i = 0; i < words; i++)
                REQUIRE(trays[peer][i] == round * 1000000 + (uint64_t)peer * 10000 + i);
    }
    return 0;
}

/* Across the wrap of the epoch, too. */
WORLD_TEST("trays", 3, 2, 4096) {
    for (int32_t r = 0; r < 3; r++)
        set_epoch(&world->ranks[r], 1, UINT32_MAX - 30);
    CU_ASSERT_EQUAL(fake_run_threads(world, tray_rounds), 0);
    fake_world_reset(world);
    CU_ASSERT_EQUAL(fake_run_processes(world, tray_rounds), 0);
}

/* The eager buffers take whole cache lines inside the state, apart from each other. */
TEST("places of trays") {
    for (int32_t channels = 1; channels <= 9; channels += 4) {
        fake_world *world = fake_world_open(2, channels, 4096);
        const symmem_peers *peers = &world->ranks[0].peers;
        char *begin = peers->signals[1], *end = begin + peers->signal_bytes, *last = begin;
        for (int32_t channel = 0; channel < channels; channel++) {
            size_t bytes = shm_eager_bytes(channel);
            for (uint32_t epoch = 1; bytes > 0 && epoch <= 2; epoch++) {
                atomic_store(epoch_word(&world->ranks[0], channel), epoch);
                char *eager_buffer = shm_eager_buffer(peers, 1, channel);
                CU_ASSERT(eager_buffer >= last && eager_buffer + bytes <= end);
                CU_ASSERT_EQUAL((eager_buffer - begin) % 64, 0);
                last = eager_buffer + bytes;
            }
        }
        CU_ASSERT(last > begin);
        fake_world_close(world);
    }
}

static void expect_fault(fake_rank *rank, symmem_status status, const char *operation,
                         int32_t channel, int32_t failed_rank) {
    CU_ASSERT_EQUAL(atomic_load(&rank->host.fault_count), 1);
    CU_ASSERT_EQUAL(rank->host.fault.status, status);
    CU_ASSERT_STRING_EQUAL(rank->host.fault.operation, operation);
    CU_ASSERT_EQUAL(rank->host.fault.channel, channel);
    CU_ASSERT_EQUAL(rank->host.fault.failed_rank, failed_rank);
}

static int corrupt_later(fake_rank *rank) {
    if (rank->peers.rank == 1) {
        fake_sleep_us(20000);
        atomic_store(slot_word(rank, 0, 0, 1), 9);
        shm_wake(&rank->peers, 0, slot_word(rank, 0, 0, 1));
        return 0;
    }
    REQUIRE(fake_wait(rank, 1, 0, 5000, NULL) == SYMMEM_CORRUPT);
    REQUIRE(rank->host.fault.actual == 9);
    return 0;
}

TIMED_TEST("corrupt slot", 2, 1, 4096) {
    fake_rank *rank = &world->ranks[0];
    atomic_store(slot_word(rank, 0, 0, 1), 7);
    CU_ASSERT_EQUAL(fake_wait(rank, 1, 0, 0, NULL), SYMMEM_CORRUPT);
    expect_fault(rank, SYMMEM_CORRUPT, "wait_signal", 0, 1);
    CU_ASSERT_EQUAL(rank->host.fault.actual, 7);
    fake_world_reset(world);
    atomic_store(slot_word(rank, 1, 0, 0), UINT32_MAX);
    CU_ASSERT_EQUAL(fake_put(rank, 1, 0, 0, NULL), SYMMEM_CORRUPT);
    expect_fault(rank, SYMMEM_CORRUPT, "put_signal", 0, 1);
    CU_ASSERT_EQUAL(rank->host.fault.actual, UINT32_MAX);
    fake_world_reset(world);
    CU_ASSERT_EQUAL(fake_run_threads(world, corrupt_later), 0);
}

TIMED_TEST("peer gone", 3, 1, 4096) {
    fake_rank *rank = &world->ranks[0];
    atomic_store(&rank->host.gone[2], true);
    uint64_t start_ms = fake_now_ms();
    CU_ASSERT_EQUAL(fake_barrier(rank, 0, 0, NULL), SYMMEM_PEER_LOST);
    CU_ASSERT(fake_now_ms() - start_ms <= 50); /* a tick */
    expect_fault(rank, SYMMEM_PEER_LOST, "barrier", 0, 2);
    CU_ASSERT_EQUAL(rank->host.fault.missing[0], 0x6u);
    fake_world_reset(world);
    atomic_store(&rank->host.gone[2], true);
    CU_ASSERT_EQUAL(fake_wait(rank, 2, 0, 0, NULL), SYMMEM_PEER_LOST);
    expect_fault(rank, SYMMEM_PEER_LOST, "wait_signal", 0, 2);
    fake_world_reset(world);
    atomic_store(&rank->host.gone[1], true);
    CU_ASSERT_EQUAL(fake_put(rank, 1, 0, 0, NULL), SYMMEM_OK);
    CU_ASSERT_EQUAL(fake_put(rank, 1, 0, 0, NULL), SYMMEM_PEER_LOST);
    expect_fault(rank, SYMMEM_PEER_LOST, "put_signal", 0, 1);
    fake_world_reset(world);
    /* What a rank did before it ended counts, even if it is seen only afterwards. */
    rank->host.last_deed = slot_word(rank, 0, 0, 2);
    atomic_store(&rank->host.gone[2], true);
    CU_ASSERT_EQUAL(fake_wait(rank, 2, 0, 0, NULL), SYMMEM_OK);
    rank->host.last_deed = arrival_word(rank, 0, 0, 2, 1);
    atomic_store(arrival_word(rank, 0, 0, 1, 1), 1);
    CU_ASSERT_EQUAL(fake_barrier(rank, 0, 0, NULL), SYMMEM_OK);
    fake_world_reset(world);
    CU_ASSERT_EQUAL(fake_put(&world->ranks[2], 0, 0, 0, NULL), SYMMEM_OK);
    atomic_store(&rank->host.gone[2], true);
    CU_ASSERT_EQUAL(fake_wait(rank, 2, 0, 0, NULL), SYMMEM_OK);
}

static int poison_later(fake_rank *rank) {
    if (rank->peers.rank == 2) {
        fake_sleep_us(2000); /* the others wait, and their next tick is nearly a whole one away */
        backend->signal->poison(rank->instance, &rank->peers);
        return 0;
    }
    uint64_t start_ms = fake_now_ms();
    REQUIRE(fake_wait(rank, 2, 0, 0, NULL) == SYMMEM_POISONED);
    REQUIRE(rank->host.fault.failed_rank == 2);
    REQUIRE(fake_now_ms() - start_ms == 2);
    return 0;
}

static int poison_local(fake_rank *rank) {
    if (rank->peers.rank == 0) {
        fake_sleep_us(30000);
        atomic_store(&rank->world->ranks[1].host.poisoned, true);
        return 0;
    }
    if (rank->peers.rank == 1) {
        REQUIRE(fake_barrier(rank, 0, 0, NULL) == SYMMEM_POISONED);
        REQUIRE(rank->host.fault.missing[0] == 0); /* of those who are late */
        REQUIRE(rank->host.fault.failed_rank == 1);
    }
    return 0;
}

TIMED_TEST("poison", 3, 2, 4096) {
    CU_ASSERT_EQUAL(fake_run_threads(world, poison_later), 0);
    fake_world_reset(world);
    CU_ASSERT_EQUAL(fake_run_threads(world, poison_local), 0);
    /* Poisoned from the start: nothing is tried. */
    fake_world_reset(world);
    atomic_store(&world->ranks[0].host.poisoned, true);
    CU_ASSERT_EQUAL(fake_put(&world->ranks[0], 1, 0, 0, NULL), SYMMEM_POISONED);
    CU_ASSERT_EQUAL(atomic_load(slot_word(&world->ranks[0], 1, 0, 0)), 0);
}

/* Ranks of the second word of a fault, too. */
WORLD_TEST("missing of many", 66, 1, 4096) {
    static const struct {
        int32_t rank;
        uint64_t missing[2];
    } rows[] = {{65, {~0ull, 1}}, {0, {~1ull, 3}}, {64, {~0ull, 2}}, {63, {~0ull >> 1, 3}}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        fake_rank *rank = &world->ranks[rows[i].rank];
        CU_ASSERT_EQUAL(fake_barrier(rank, 0, 5, NULL), SYMMEM_TIMEOUT);
        CU_ASSERT_EQUAL(rank->host.fault.missing[0], rows[i].missing[0]);
        CU_ASSERT_EQUAL(rank->host.fault.missing[1], rows[i].missing[1]);
        fake_world_reset(world);
    }
}

/* Peers may still be in the operation that failed: what they read of this rank's stays. */
WORLD_TEST("a poisoned rank publishes nothing", 2, 2, 65536) {
    static char before[1 << 20];
    static float in[16384], out[16384];
    const size_t splits[2] = {8, 8};
    fake_rank *rank = &world->ranks[0];
    const symmem_collective calls[] = {
        {.kind = SYMMEM_CALL_ONE_SHOT_ALL_REDUCE, .count = 16, .in_row = 16},
        {.kind = SYMMEM_CALL_ONE_SHOT_ALL_REDUCE, .count = 16384, .in_row = 16384},
        {.kind = SYMMEM_CALL_ALL_TO_ALL, .count = 16, .in_row = 8, .in_splits = splits}};
    CU_ASSERT_FATAL(rank->signal.bytes <= sizeof before);
    atomic_store(&rank->host.poisoned, true);
    CU_ASSERT_EQUAL(fake_barrier(rank, 1, 1000, NULL), SYMMEM_POISONED);
    memcpy(before, rank->signal.ptr, rank->signal.bytes);
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        symmem_collective call = calls[i];
        const symmem_exec exec = {.timeout_ms = 1000};
        call.size = sizeof call;
        call.name = "poisoned";
        call.in = in;
        call.out = out;
        in[0] = 1;
        call.dtype = SYMMEM_FLOAT32;
        CU_ASSERT_EQUAL(backend->collective->run(rank->instance, &rank->peers, 1, &call, &exec),
                        SYMMEM_POISONED);
        CU_ASSERT_EQUAL(rank->host.fault.failed_rank, 0);
        CU_ASSERT_STRING_EQUAL(rank->host.fault.operation, "poisoned");
        CU_ASSERT_EQUAL(*(const float *)rank->buffer.ptr, 0);
        CU_ASSERT_EQUAL(memcmp(before, rank->signal.ptr, rank->signal.bytes), 0);
    }
}

/* Takes part in rank 0's all-to-all with a table of parts that cannot be. */
static int publish_nonsense(fake_rank *rank) {
    uint64_t *parts = shm_split_table(&rank->peers, 1, 1);
    parts[0] = 1 << 30;
    parts[1] = parts[2] = (1 << 30) + 32;
    REQUIRE(fake_barrier(rank, 1, 5000, NULL) == SYMMEM_OK);
    const symmem_status status = fake_barrier(rank, 1, 5000, NULL);
    REQUIRE(status == SYMMEM_POISONED && rank->host.fault.failed_rank == 0);
    return 0;
}

static int exchange_with_nonsense(fake_rank *rank) {
    static float in[16], out[16];
    const size_t splits[2] = {8, 8};
    const symmem_collective call = {.size = sizeof call,
                                    .name = "odd",
                                    .kind = SYMMEM_CALL_ALL_TO_ALL,
                                    .dtype = SYMMEM_FLOAT32,
                                    .count = 16,
                                    .in_row = 8,
                                    .in = in,
                                    .out = out,
                                    .in_splits = splits,
                                    .out_splits = splits};
    const symmem_exec exec = {.timeout_ms = 5000};
    if (rank->peers.rank == 1)
        return publish_nonsense(rank);
    memcpy(rank->buffer.ptr, in, sizeof in);
    symmem_collective own = call;
    own.in = rank->buffer.ptr;
    const symmem_status status =
        backend->collective->run(rank->instance, &rank->peers, 1, &own, &exec);
    backend->signal->poison(rank->instance, &rank->peers);
    REQUIRE(status == SYMMEM_CORRUPT);
    REQUIRE(rank->host.fault.status == SYMMEM_CORRUPT && rank->host.fault.failed_rank == 1);
    REQUIRE(rank->host.fault.actual == 1 << 30);
    return 0;
}

/* What a peer publishes is no address before it has been looked at. */
WORLD_TEST("parts outside a peer's buffer", 2, 2, 4096) {
    CU_ASSERT_EQUAL(fake_run_threads(world, exchange_with_nonsense), 0);
}

/* A kind without a kernel fails before any barrier phase, and the fault names the rank. */
WORLD_TEST("unknown collective", 2, 2, 4096) {
    fake_rank *rank = &world->ranks[1];
    const symmem_collective call = {
        .size = sizeof call, .name = "unknown", .kind = SYMMEM_CALL_NONE, .count = 1};
    const symmem_exec exec = {.timeout_ms = 1000};
    CU_ASSERT_EQUAL(backend->collective->run(rank->instance, &rank->peers, 1, &call, &exec),
                    SYMMEM_UNSUPPORTED);
    CU_ASSERT_EQUAL(rank->host.fault.status, SYMMEM_UNSUPPORTED);
    CU_ASSERT_EQUAL(rank->host.fault.failed_rank, 1);
    CU_ASSERT_EQUAL(rank->host.fault.channel, 1);
    CU_ASSERT_STRING_EQUAL(rank->host.fault.operation, "unknown");
}
