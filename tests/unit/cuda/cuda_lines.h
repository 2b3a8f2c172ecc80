/* SPDX-License-Identifier: BSD-3-Clause */
/* Small all-reduces by lines, on kernels that run on the CPU. A part of cuda_launches.c. */
#ifndef UNIT_CUDA_LINES_H
#define UNIT_CUDA_LINES_H

#include "cuda_ranks.h"
#include "driver/clock.h"

#define LINE_ROUNDS 120

/* Counts for few warps and for all, for short rounds and for two long ones. They are mixed, so that
 * the remains of one call are in the way of the next. */
static const size_t line_counts[] = {1, 2, 1024, 1793, 3, 7680, 2049, 700, 5000, 1792};

static symmem_collective small_sum(int round, bool in_place) {
    return (symmem_collective){.size = sizeof(symmem_collective),
                               .name = "test",
                               .kind = round % 2  ? SYMMEM_CALL_TWO_SHOT_ALL_REDUCE
                                       : in_place ? SYMMEM_CALL_TWO_SHOT_ALL_REDUCE
                                                  : SYMMEM_CALL_ONE_SHOT_ALL_REDUCE,
                               .dtype = SYMMEM_FLOAT32,
                               .op = SYMMEM_SUM,
                               .count = line_counts[round % 10],
                               .out = in_place ? NULL : out};
}

/* Adds up all ranks' values of the round, in rank order. */
static void add_up(int round, size_t count) {
    for (size_t i = 0; i < count; i++) {
        wanted[i] = value(0, round, i);
        for (int32_t r = 1; r < RANKS; r++)
            wanted[i] += value(r, round, i);
    }
}

/* The ranks are late one after the other. */
static bool small_ones_in_a_row(int32_t rank) {
    for (int round = 0; round < LINE_ROUNDS; round++) {
        const bool in_place = round % 3 == 0;
        symmem_collective call = small_sum(round, in_place);
        if (round % 4 == 1 && !in_place) {
            call.in = in;
            call.in_row = MOST;
        }
        fill(call.in != NULL ? in : buffer(), rank, round, call.count);
        add_up(round, call.count);
        if (round % 7 == rank)
            cuda_sleep_ns(2 * CUDA_NS_PER_MS);
        CHECK(run(&call, round % 5 < 2, LIMIT_MS) == SYMMEM_OK);
        CHECK(same(in_place ? buffer() : out, wanted, call.count));
    }
    return true;
}

RANKS_TEST("small ones in a row") {
    return small_ones_in_a_row(rank);
}

/* A rank has no lines for the others. */
RANKS_TEST("lines do not come") {
    symmem_collective call = small_sum(0, false);
    call.count = 300;
    if (rank == 2)
        return true;
    const uint64_t begin_ns = cuda_now_ns();
    CHECK(run(&call, false, AWAY_MS) == SYMMEM_TIMEOUT);
    CHECK(fake.fault.missing[0] == 4 && fake.fault.failed_rank == 2);
    CHECK(fake.fault.elapsed_ns >= AWAY_MS * CUDA_NS_PER_MS);
    CHECK(cuda_now_ns() - begin_ns < 5000 * CUDA_NS_PER_MS);
    CHECK(run(&call, false, LIMIT_MS) == SYMMEM_POISONED);
    return true;
}

/* Each rank is linked with each other one, and has been told. */
RANKS_TEST("small ones in a row over NVLink") {
    uint32_t *links =
        (uint32_t *)(void *)((char *)fake.peers.signals[rank] + SYMMEM_CUDA_HEADER_BYTES);
    for (int32_t r = 0; r < RANKS; r++)
        links[r] = SYMMEM_CUDA_LINKED;
    fake.own.links.all_linked = true;
    return small_ones_in_a_row(rank);
}

/* Ranks have compared their calls, and the driver refuses one of them the kernel of the lines. */
RANKS_TEST("a launch of lines fails") {
    symmem_collective call = small_sum(0, false);
    call.count = 5000;
    fake.fail_launch = rank == 1 ? 1 : -1;
    if (rank == 1) {
        CHECK(run(&call, true, LIMIT_MS) == SYMMEM_BACKEND);
        CHECK(fake.launches == 1 && fake.control.poisoned == 1);
        return true;
    }
    CHECK(run(&call, true, AWAY_MS) == SYMMEM_TIMEOUT); /* rank 1's core tells no peer here */
    CHECK(fake.fault.missing[0] == 2 && fake.fault.failed_rank == 1);
    return true;
}

#endif
