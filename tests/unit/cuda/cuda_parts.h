/* SPDX-License-Identifier: BSD-3-Clause */
/* Operations that the core composes, as far as barriers go. Of cuda_launches.c. */
#ifndef UNIT_CUDA_PARTS_H
#define UNIT_CUDA_PARTS_H

#include "cuda_ranks.h"
#include "signal/composite.h"
#include "driver/clock.h"
#include "inflight/inflight.h"
#include "driver/pinned.h"
#include "signal/signal.h"

#define PARTS 3

/* Barriers that alternate between two channels and two streams. The first one compares calls. */
static bool capture_parts(symmem_composite *composite, uint32_t parts, uint64_t detail,
                          uint32_t timeout_ms, cuda_signal_op *held) {
    static cuda_stream streams[2];
    static fake_node nodes[FAKE_MOST_NODES];
    fake.nodes = nodes;
    fake.node_count = 0;
    fake.capturing = true;
    for (uint32_t part = 0; part < parts; part++) {
        symmem_exec exec = {.stream = &streams[part % 2],
                            .timeout_ms = timeout_ms,
                            .operation = "test",
                            .composite = composite,
                            .step = part};
        if (part == 0)
            exec.call =
                (symmem_call_id){.kind = SYMMEM_CALL_FUSED_ALL_GATHER_MATMUL, .detail = detail};
        CHECK(cuda_barrier(&fake.instance, &fake.peers, (int32_t)(part % 2), &exec) == SYMMEM_OK);
        held[part] = fake.held;
    }
    fake.capturing = false;
    return true;
}

static void replay_parts(const cuda_signal_op *held, uint32_t parts, symmem_status *statuses) {
    symmem_error_record record;
    statuses[parts - 1] = fake_replay(); /* it looks for the last one's fault */
    for (uint32_t part = 0; part + 1 < parts; part++)
        statuses[part] = cuda_take_fault(&held[part], &record);
}

static void drop_parts(const cuda_signal_op *held, uint32_t parts) {
    for (uint32_t part = 0; part < parts; part++)
        cuda_small_block_give(held[part].fault);
    fake.node_count = 0;
}

/* After a mismatch the following parts do nothing, on the other channel and stream as well. The
 * rank that differs has no such parts, and no rank waits for it. The next operation begins anew. */
RANKS_TEST("parts that differ") {
    symmem_composite composite = {.peers = &fake.peers};
    const symmem_cuda_state *state = cuda_state_of(&composite);
    cuda_signal_op held[PARTS];
    for (uint64_t round = 0; round < 4; round++) {
        bool differs = round % 2 == 0;
        uint32_t parts = differs && rank == 1 ? 1 : PARTS;
        CHECK(capture_parts(&composite, parts, parts, 2000, held));
        for (int launch = 0; launch < 2; launch++) {
            symmem_status statuses[PARTS] = {SYMMEM_OK};
            replay_parts(held, parts, statuses);
            CHECK(statuses[0] == (differs ? SYMMEM_MISMATCH : SYMMEM_OK));
            CHECK(statuses[1] == SYMMEM_OK && statuses[2] == SYMMEM_OK);
            CHECK((state->failed != 0) == differs);
        }
        drop_parts(held, parts);
    }
    return true;
}

/* The stream that has not told of a peer that did not come says POISONED; the other says no more.
 */
RANKS_TEST("parts without a peer") {
    symmem_composite composite = {.peers = &fake.peers};
    cuda_signal_op held[PARTS];
    symmem_status statuses[PARTS];
    if (rank == 2)
        return true;
    uint64_t begin_ns = cuda_now_ns();
    CHECK(capture_parts(&composite, PARTS, 0, 300, held));
    replay_parts(held, PARTS, statuses);
    CHECK(statuses[0] == SYMMEM_TIMEOUT);
    CHECK(statuses[1] == SYMMEM_POISONED);
    CHECK(statuses[2] == SYMMEM_OK);
    CHECK(cuda_now_ns() - begin_ns < 5000 * CUDA_NS_PER_MS);
    drop_parts(held, PARTS);
    return true;
}

#endif
