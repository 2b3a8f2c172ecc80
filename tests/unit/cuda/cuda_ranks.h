/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks of the CUDA backend as processes, and what their tests share. Of cuda_launches.c. */
#ifndef UNIT_CUDA_RANKS_H
#define UNIT_CUDA_RANKS_H

#include "unit_main.h"

#include "cuda_fake_device.h"
#include "collective/collective.h"
#include "driver/clock.h"

#define RANKS 3
#define CHANNELS 2
#define MOST 70000 /* elements */
#define BUFFER_BYTES ((size_t)RANKS * MOST * sizeof(float))
#define SIGNAL_BYTES ((size_t)2 << 20)
#define LIMIT_MS 20000
#define AWAY_MS 800 /* in which all come but the one that does not */
#define MARK 0x5a

/* In every process at the same addresses; peers change it. */
static char *arena;
static atomic_int *begun; /* ranks of a scenario */
static void *tables[3 * RANKS];
/* The rank's own. */
static float in[RANKS * MOST], out[RANKS * MOST], wanted[RANKS * MOST];

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "rank %d: line %d: %s\n", (int)fake.peers.rank, __LINE__, #condition); \
            return false;                                                                          \
        }                                                                                          \
    } while (0)

/* --- ranks -------------------------------------------------------------------------- */

/* Who starts late would rightly be called missing. */
static void begin_together(void) {
    atomic_fetch_add(begun, 1);
    for (int i = 0; i < 20000 && atomic_load(begun) < RANKS; i++)
        cuda_sleep_ns(CUDA_NS_PER_MS);
}

static int child(bool (*scenario)(int32_t rank), int32_t rank) {
    alarm(100);
    fake_open(tables, rank, RANKS, CHANNELS);
    fake.peers.buffer_bytes = BUFFER_BYTES;
    begin_together();
    bool right = scenario(rank) && fake.pieces == 0;
    return right ? 0 : 1;
}

static void run_ranks(bool (*scenario)(int32_t rank)) {
    pid_t pids[RANKS];
    size_t each = BUFFER_BYTES + SIGNAL_BYTES;
    memset(arena, 0, RANKS * each);
    atomic_store(begun, 0);
    for (int32_t r = 0; r < RANKS; r++) {
        tables[r] = arena + (size_t)r * each;
        tables[2 * RANKS + r] = arena + (size_t)r * each + BUFFER_BYTES;
    }
    for (int32_t r = 0; r < RANKS; r++) {
        pids[r] = fork();
        CU_ASSERT_FATAL(pids[r] >= 0);
        if (pids[r] == 0)
            _exit(child(scenario, r));
    }
    for (int32_t r = 0; r < RANKS; r++) {
        int status = -1;
        CU_ASSERT_EQUAL(waitpid(pids[r], &status, 0), pids[r]);
        CU_ASSERT_EQUAL(status, 0);
    }
}

/* What rank r has at i in a round. */
static float value(int32_t r, int round, size_t i) {
    return (float)((i * 7 + (size_t)r * 13 + (size_t)round * 31) % 1009) / 8.0f - 50.0f;
}

static void fill(float *at, int32_t r, int round, size_t count) {
    for (size_t i = 0; i < count; i++)
        at[i] = value(r, round, i);
}

static float *buffer(void) {
    return fake.peers.buffers[fake.peers.rank];
}

static symmem_call_id id_of(const symmem_collective *call) {
    return (symmem_call_id){.kind = call->kind,
                            .dtype = (uint16_t)call->dtype,
                            .op = (uint16_t)call->op,
                            .count = call->count,
                            .detail = 1};
}

static symmem_status run(const symmem_collective *call, bool checking, uint32_t timeout_ms) {
    symmem_exec exec = {.timeout_ms = timeout_ms};
    if (checking)
        exec.call = id_of(call);
    return cuda_collective(&fake.instance, &fake.peers, 1, call, &exec);
}

static bool same(const float *found, const float *expected, size_t count) {
    return memcmp(found, expected, count * sizeof *found) == 0;
}

/* RANKS_TEST("what is checked") { ... }, by each of the ranks, whose number is `rank`. */
#define RANKS_TEST(case_name) RANKS_TEST_(case_name, __COUNTER__)
#define RANKS_TEST_(case_name, place) RANKS_PLACED_TEST_(case_name, place)
#define RANKS_PLACED_TEST_(case_name, place)                                                       \
    static bool ranks_##place(int32_t rank);                                                       \
    TEST(case_name) {                                                                              \
        run_ranks(ranks_##place);                                                                  \
    }                                                                                              \
    static bool ranks_##place(int32_t rank)

#endif
