/* SPDX-License-Identifier: BSD-3-Clause */
/* Signals and barriers of the emulation, driven through its table. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shm.h"
#include "shm_fake_host.h"
#include "unit_main.h"

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

/* Of even and of odd epochs. */
static shm_word *arrival_word(fake_rank *rank, int32_t owner, int32_t channel, int32_t source,
                              uint32_t epoch) {
    return slot_word(rank, owner, channel, source) + (1 + (int32_t)(epoch % 2)) * table_words(rank);
}

static shm_word *epoch_word(fake_rank *rank, int32_t channel) {
    return slot_word(rank, rank->peers.rank, 0, 0) + 3 * table_words(rank) + channel;
}

/* As if all had met in as many barriers of the channel. */
static void set_epoch(fake_rank *rank, int32_t channel, uint32_t epoch) {
    atomic_store(epoch_word(rank, channel), epoch);
    for (int32_t p = 0; p < rank->peers.world_size; p++)
        for (uint32_t e = epoch - 1; e != epoch + 1; e++)
            atomic_store(arrival_word(rank, rank->peers.rank, channel, p, e), e);
}

/* Rank r writes its buffer, signals r + 1, which checks it and answers. */
static int message_passing(fake_rank *rank) {
    int32_t next = (rank->peers.rank + 1) % rank->peers.world_size;
    int32_t previous = (rank->peers.rank + rank->peers.world_size - 1) % rank->peers.world_size;
    uint64_t *own = rank->peers.buffers[rank->peers.rank];
    const uint64_t *seen = rank->peers.buffers[previous];
    for (uint64_t generation = 1; generation <= 100000; generation++) {
        for (int i = 0; i < 4; i++)
            own[i] = generation * 4 + (uint64_t)i;
        REQUIRE(fake_put(rank, next, 1, 20000, NULL) == SYMMEM_OK);
        REQUIRE(fake_wait(rank, previous, 1, 20000, NULL) == SYMMEM_OK);
        for (int i = 0; i < 4; i++)
            REQUIRE(seen[i] == generation * 4 + (uint64_t)i);
        REQUIRE(fake_put(rank, previous, 2, 20000, NULL) == SYMMEM_OK);
        REQUIRE(fake_wait(rank, next, 2, 20000, NULL) == SYMMEM_OK);
    }
    return 0;
}

TEST("message passing") {
    fake_world *world = fake_world_open(2, 3, 4096);
    CU_ASSERT_EQUAL(fake_run_threads(world, message_passing), 0);
    CU_ASSERT_EQUAL(fake_run_processes(world, message_passing), 0);
    fake_world_close(world);
}

/* Nobody may leave round k before all have entered it. */
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

static int many_rounds(fake_rank *rank) {
    return barrier_rounds(rank, 5000, true);
}

static int some_rounds(fake_rank *rank) {
    return barrier_rounds(rank, 500, true);
}

static int few_rounds(fake_rank *rank) {
    return barrier_rounds(rank, 3, false);
}

TEST("barrier") {
    static const int32_t sizes[] = {1, 2, 3, 8};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        fake_world *world = fake_world_open(sizes[i], 2, 4096);
        CU_ASSERT_EQUAL(fake_run_threads(world, sizes[i] == 3 ? many_rounds : some_rounds), 0);
        CU_ASSERT_EQUAL(fake_run_processes(world, some_rounds), 0);
        fake_world_close(world);
    }
}

TEST("barrier of 128") {
    fake_world *world = fake_world_open(128, 2, 4096);
    uint64_t start_ms = fake_now_ms();
    CU_ASSERT_EQUAL(fake_run_threads(world, few_rounds), 0);
    CU_ASSERT(fake_now_ms() - start_ms < 20000);
    fake_world_close(world);
}

/* The epoch wraps from 2^32 - 1 to 0. */
TEST("barrier wraps") {
    fake_world *world = fake_world_open(3, 2, 4096);
    for (int32_t r = 0; r < 3; r++)
        for (int32_t channel = 0; channel < 2; channel++)
            set_epoch(&world->ranks[r], channel, UINT32_MAX - 3);
    CU_ASSERT_EQUAL(fake_run_threads(world, some_rounds), 0);
    fake_world_close(world);
}

/* What each rank puts on its tray before a barrier, all find there after it, with one barrier a
 * round and a late rank now and then. */
static int tray_rounds(fake_rank *rank) {
    const symmem_peers *peers = &rank->peers;
    uint64_t *trays[FAKE_MAX_RANKS];
    size_t words = shm_tray_bytes(1) / sizeof(uint64_t);
    unsigned seed = (unsigned)peers->rank + 1;
    for (uint64_t round = 1; round <= 300; round++) {
        for (int32_t peer = 0; peer < peers->world_size; peer++)
            trays[peer] = shm_tray(peers, peer, 1);
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
TEST("trays") {
    fake_world *world = fake_world_open(3, 2, 4096);
    for (int32_t r = 0; r < 3; r++)
        set_epoch(&world->ranks[r], 1, UINT32_MAX - 30);
    CU_ASSERT_EQUAL(fake_run_threads(world, tray_rounds), 0);
    fake_world_reset(world);
    CU_ASSERT_EQUAL(fake_run_processes(world, tray_rounds), 0);
    fake_world_close(world);
}

/* Whole lines inside the state, apart from each other. */
TEST("places of trays") {
    for (int32_t channels = 1; channels <= 9; channels += 4) {
        fake_world *world = fake_world_open(2, channels, 4096);
        const symmem_peers *peers = &world->ranks[0].peers;
        char *begin = peers->signals[1], *end = begin + peers->signal_bytes, *last = begin;
        for (int32_t channel = 0; channel < channels; channel++) {
            size_t bytes = shm_tray_bytes(channel);
            for (uint32_t epoch = 1; bytes > 0 && epoch <= 2; epoch++) {
                atomic_store(epoch_word(&world->ranks[0], channel), epoch);
                char *tray = shm_tray(peers, 1, channel);
                CU_ASSERT(tray >= last && tray + bytes <= end);
                CU_ASSERT_EQUAL((tray - begin) % 64, 0);
                last = tray + bytes;
            }
        }
        CU_ASSERT(last > begin);
        fake_world_close(world);
    }
}

static bool is_missing(const fake_rank *rank, int32_t peer) {
    return rank->host.fault.missing[peer / 64] >> (peer % 64) & 1;
}

/* Without `withheld` nobody passes, and each says who was missing. */
static atomic_int withheld, arrived;

/* Who came late would rightly be called missing, so nobody's limit begins before all others have
 * arrived. */
static symmem_status arrive_together(const symmem_host *host, const char *name) {
    (void)host;
    if (strcmp(name, "shm.barrier.after_arrive") != 0)
        return SYMMEM_OK;
    atomic_fetch_add(&arrived, 1);
    for (int i = 0; i < 20000 && atomic_load(&arrived) < 3; i++)
        fake_sleep_us(1000);
    return SYMMEM_OK;
}

static int barrier_withheld(fake_rank *rank) {
    int32_t absent = atomic_load(&withheld);
    if (rank->peers.rank == absent)
        return 0;
    symmem_host *host = &rank->host.host;
    symmem_status (*const point)(const symmem_host *, const char *) = host->point;
    host->point = arrive_together;
    symmem_status status = fake_barrier(rank, 0, 60, NULL);
    host->point = point;
    REQUIRE(status == SYMMEM_TIMEOUT);
    REQUIRE(atomic_load(&rank->host.fault_count) == 1);
    REQUIRE(rank->host.fault.status == SYMMEM_TIMEOUT);
    REQUIRE(strcmp(rank->host.fault.operation, "barrier") == 0);
    REQUIRE(rank->host.fault.channel == 0);
    for (int32_t peer = 0; peer < rank->peers.world_size; peer++)
        REQUIRE(is_missing(rank, peer) == (peer == absent));
    REQUIRE(rank->host.fault.failed_rank == absent);
    REQUIRE(rank->host.fault.elapsed_ns >= 59000000u);
    return 0;
}

TEST("barrier withheld") {
    fake_world *world = fake_world_open(4, 2, 4096);
    for (int32_t absent = 0; absent < 4; absent++) {
        atomic_store(&withheld, absent);
        atomic_store(&arrived, 0);
        CU_ASSERT_EQUAL(fake_run_threads(world, barrier_withheld), 0);
        fake_world_reset(world);
        CU_ASSERT_EQUAL(fake_run_threads(world, few_rounds), 0);
    }
    fake_world_close(world);
}

static void expect_fault(fake_rank *rank, symmem_status status, const char *operation,
                         int32_t channel, int32_t failed_rank) {
    CU_ASSERT_EQUAL(atomic_load(&rank->host.fault_count), 1);
    CU_ASSERT_EQUAL(rank->host.fault.status, status);
    CU_ASSERT_STRING_EQUAL(rank->host.fault.operation, operation);
    CU_ASSERT_EQUAL(rank->host.fault.channel, channel);
    CU_ASSERT_EQUAL(rank->host.fault.failed_rank, failed_rank);
}

TEST("timeouts") {
    fake_world *world = fake_world_open(4, 2, 4096);
    fake_rank *rank = &world->ranks[1];
    uint64_t start_ms = fake_now_ms();
    CU_ASSERT_EQUAL(fake_barrier(rank, 1, 30, NULL), SYMMEM_TIMEOUT);
    CU_ASSERT(fake_now_ms() - start_ms >= 29);
    CU_ASSERT(fake_now_ms() - start_ms < 2000);
    expect_fault(rank, SYMMEM_TIMEOUT, "barrier", 1, -1);
    CU_ASSERT_EQUAL(rank->host.fault.missing[0], 0xdu);
    CU_ASSERT(rank->host.fault.elapsed_ns >= 29000000u);

    fake_world_reset(world);
    CU_ASSERT_EQUAL(fake_wait(rank, 3, 0, 30, NULL), SYMMEM_TIMEOUT);
    expect_fault(rank, SYMMEM_TIMEOUT, "wait_signal", 0, 3);
    CU_ASSERT_EQUAL(rank->host.fault.missing[0], 0x8u);

    fake_world_reset(world);
    /* Satisfied at once: 1 ms is enough. The second finds the slot full and leaves it so. */
    CU_ASSERT_EQUAL(fake_put(rank, 2, 0, 1, NULL), SYMMEM_OK);
    CU_ASSERT_EQUAL(fake_put(rank, 2, 0, 30, NULL), SYMMEM_TIMEOUT);
    expect_fault(rank, SYMMEM_TIMEOUT, "put_signal", 0, 2);
    CU_ASSERT_EQUAL(rank->host.fault.missing[0], 0x4u);
    CU_ASSERT_EQUAL(atomic_load(slot_word(rank, 2, 0, 1)), 1);
    CU_ASSERT_EQUAL(fake_wait(&world->ranks[2], 1, 0, 1, NULL), SYMMEM_OK);
    CU_ASSERT_EQUAL(atomic_load(slot_word(rank, 2, 0, 1)), 0);
    fake_world_close(world);
}

/* A pending signal is no arrival, channels and sources do not mix. */
TEST("isolation") {
    fake_world *world = fake_world_open(3, 3, 4096);
    fake_rank *ranks = world->ranks;
    CU_ASSERT_EQUAL(fake_put(&ranks[0], 1, 2, 1, NULL), SYMMEM_OK);
    CU_ASSERT_EQUAL(fake_barrier(&ranks[1], 2, 10, NULL), SYMMEM_TIMEOUT);
    CU_ASSERT_EQUAL(ranks[1].host.fault.missing[0], 0x5u);
    atomic_store(&ranks[1].host.poisoned, false);
    CU_ASSERT_EQUAL(fake_wait(&ranks[1], 0, 1, 10, NULL), SYMMEM_TIMEOUT);
    atomic_store(&ranks[1].host.poisoned, false);
    CU_ASSERT_EQUAL(fake_wait(&ranks[1], 2, 2, 10, NULL), SYMMEM_TIMEOUT);
    atomic_store(&ranks[1].host.poisoned, false);
    CU_ASSERT_EQUAL(fake_wait(&ranks[1], 0, 2, 10, NULL), SYMMEM_OK);
    fake_world_reset(world);
    CU_ASSERT_EQUAL(fake_put(&ranks[2], 2, 0, 10, NULL), SYMMEM_OK);
    CU_ASSERT_EQUAL(fake_wait(&ranks[2], 2, 0, 10, NULL), SYMMEM_OK);
    const uint32_t *words = ranks[2].signal.ptr;
    bool zero = true;
    for (size_t i = 0; i < ranks[2].peers.signal_bytes / 4; i++)
        zero = zero && words[i] == 0;
    CU_ASSERT(zero);
    fake_world_close(world);
}

static int back_pressure(fake_rank *rank) {
    if (rank->peers.rank == 0) {
        for (int i = 0; i < 20; i++)
            REQUIRE(fake_put(rank, 1, 0, 0, NULL) == SYMMEM_OK);
        return 0;
    }
    for (int i = 0; i < 20; i++) {
        fake_sleep_us(2000);
        REQUIRE(fake_wait(rank, 0, 0, 5000, NULL) == SYMMEM_OK);
    }
    return 0;
}

/* The consumer wakes the producer, rather than the producer's tick, with which 20 rounds take a
 * second. What else runs on the machine may take as long, but not each time. */
TEST("back-pressure") {
    fake_world *world = fake_world_open(2, 1, 4096);
    bool ever_prompt = false;
    for (int attempt = 0; attempt < 10 && !ever_prompt; attempt++) {
        uint64_t start_ms = fake_now_ms();
        CU_ASSERT_EQUAL(fake_run_threads(world, back_pressure), 0);
        ever_prompt = fake_now_ms() - start_ms < 600;
    }
    CU_ASSERT(ever_prompt);
    fake_world_close(world);
}

static int corrupt_later(fake_rank *rank) {
    if (rank->peers.rank == 1) {
        fake_sleep_us(20000);
        atomic_store(slot_word(rank, 0, 0, 1), 9);
        shm_wake(rank->peers.signals[0], slot_word(rank, 0, 0, 1));
        return 0;
    }
    REQUIRE(fake_wait(rank, 1, 0, 5000, NULL) == SYMMEM_CORRUPT);
    REQUIRE(rank->host.fault.actual == 9);
    return 0;
}

TEST("corrupt slot") {
    fake_world *world = fake_world_open(2, 1, 4096);
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
    fake_world_close(world);
}

TEST("peer gone") {
    fake_world *world = fake_world_open(3, 1, 4096);
    fake_rank *rank = &world->ranks[0];
    atomic_store(&rank->host.gone[2], true);
    uint64_t start_ms = fake_now_ms();
    CU_ASSERT_EQUAL(fake_barrier(rank, 0, 0, NULL), SYMMEM_PEER_LOST);
    CU_ASSERT(fake_now_ms() - start_ms < 5000); /* the suite has the bound */
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
    fake_world_close(world);
}

static atomic_bool prompt;
static _Atomic uint64_t poisoned_ms;

/* It is about to sleep, or does: its next tick is nearly a whole one away. */
static bool falls_asleep(const fake_rank *rank, int32_t peer) {
    const shm_signal_header *header = rank->peers.signals[peer];
    for (int i = 0; i < 20000 && atomic_load(&header->sleepers) == 0; i++)
        fake_sleep_us(1000);
    return atomic_load(&header->sleepers) != 0;
}

static int poison_later(fake_rank *rank) {
    if (rank->peers.rank == 2) {
        const bool asleep = falls_asleep(rank, 0) && falls_asleep(rank, 1);
        fake_sleep_us(2000);
        atomic_store(&poisoned_ms, fake_now_ms());
        rank->world->backend->signal_poison(rank->instance, &rank->peers);
        REQUIRE(asleep);
        return 0;
    }
    uint64_t start_ms = fake_now_ms();
    REQUIRE(fake_wait(rank, 2, 0, 0, NULL) == SYMMEM_POISONED);
    REQUIRE(rank->host.fault.failed_rank == 2);
    uint64_t told_ms = fake_now_ms(), then_ms = atomic_load(&poisoned_ms);
    REQUIRE(told_ms - then_ms < 5000);
    /* The next tick found it, not the wake-up, or the machine is busy. */
    if (then_ms - start_ms > 25 || told_ms - then_ms > 15)
        atomic_store(&prompt, false);
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

TEST("poison") {
    fake_world *world = fake_world_open(3, 2, 4096);
    bool ever_prompt = false;
    for (int attempt = 0; attempt < 20 && !ever_prompt; attempt++) {
        atomic_store(&prompt, true);
        CU_ASSERT_EQUAL(fake_run_threads(world, poison_later), 0);
        ever_prompt = atomic_load(&prompt);
        fake_world_reset(world);
    }
    CU_ASSERT(ever_prompt);
    CU_ASSERT_EQUAL(fake_run_threads(world, poison_local), 0);
    /* Poisoned from the start: nothing is tried. */
    fake_world_reset(world);
    atomic_store(&world->ranks[0].host.poisoned, true);
    CU_ASSERT_EQUAL(fake_put(&world->ranks[0], 1, 0, 0, NULL), SYMMEM_POISONED);
    CU_ASSERT_EQUAL(atomic_load(slot_word(&world->ranks[0], 1, 0, 0)), 0);
    fake_world_close(world);
}

TEST("test points") {
    static const char *const names[] = {"shm.barrier.before_arrive", "shm.barrier.after_arrive",
                                        "shm.put.before", "shm.wait.before"};
    fake_world *world = fake_world_open(2, 1, 4096);
    fake_rank *rank = &world->ranks[0];
    for (int i = 0; i < 4; i++) {
        rank->host.fail_name = names[i];
        rank->host.fail_status = SYMMEM_BACKEND;
        atomic_store(&rank->host.fail_visit, 0);
        symmem_status status = i < 2    ? fake_barrier(rank, 0, 5, NULL)
                               : i == 2 ? fake_put(rank, 1, 0, 5, NULL)
                                        : fake_wait(rank, 1, 0, 5, NULL);
        CU_ASSERT_EQUAL(status, SYMMEM_BACKEND);
        CU_ASSERT_EQUAL(atomic_load(&rank->host.fault_count), 1);
        CU_ASSERT_EQUAL(atomic_load(arrival_word(rank, 1, 0, 0, 1)), i == 1 ? 1u : 0u);
        fake_world_reset(world);
    }
    fake_world_close(world);
}

/* A rank killed in a wait leaves its peers able to notice (the host says so) and to go on. */
static int killed_in_wait(fake_rank *rank) {
    if (rank->peers.rank == 1) {
        REQUIRE(fake_wait(rank, 0, 0, 200, NULL) != SYMMEM_OK);
        kill(getpid(), SIGKILL);
    }
    atomic_store(&rank->host.gone[1], true);
    REQUIRE(fake_barrier(rank, 0, 0, NULL) == SYMMEM_PEER_LOST);
    return 0;
}

TEST("killed rank") {
    fake_world *world = fake_world_open(2, 2, 4096);
    CU_ASSERT_EQUAL(fake_run_processes(world, killed_in_wait), 1);
    fake_world_reset(world);
    CU_ASSERT_EQUAL(fake_run_processes(world, few_rounds), 0);
    fake_world_close(world);
}
