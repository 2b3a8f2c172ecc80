/* SPDX-License-Identifier: BSD-3-Clause */
/* The CPU's collectives as one of two ranks, whose peer is only memory. The cases check the number
 * of barrier phases, that a failed phase fails the call and is its last, and that nothing is
 * written before the first. */
#include <string.h>

#include "cpu/comm.h"
#include "unit_main.h"

#define BYTES ((size_t)1 << 16)
#define TRAY 1024
#define MARK 0x5a

static char buffers[2][BYTES] __attribute__((aligned(64)));
static char outputs[BYTES], inputs[BYTES];
static uint64_t split_tables[2][5], eager_buffers[2][TRAY / 8];
static int meetings, failing_one, mismatches;

static symmem_status meet(symmem_cpu_comm *comm) {
    (void)comm;
    return ++meetings == failing_one ? SYMMEM_POISONED : SYMMEM_OK;
}

static uint64_t *split_table(const symmem_cpu_comm *comm, int32_t rank) {
    (void)comm;
    return split_tables[rank];
}

static symmem_status mismatch(symmem_cpu_comm *comm, int32_t rank, uint64_t own, uint64_t other) {
    (void)comm;
    CU_ASSERT(rank == 1 && own == 2 && other == 0);
    mismatches++;
    return SYMMEM_MISMATCH;
}

static void *eager_buffer(const symmem_cpu_comm *comm, int32_t rank) {
    (void)comm;
    return eager_buffers[rank];
}

static const struct row {
    symmem_call_kind kind;
    size_t count, in_row;
    bool in, out, eager_buffers, checking;
    size_t wanted; /* of the peer, in an all-to-all: it has none */
    int meetings;
    symmem_status status;
} rows[] = {
    {.kind = SYMMEM_CALL_NONE, .count = 8, .status = SYMMEM_UNSUPPORTED},
    {SYMMEM_CALL_ONE_SHOT_ALL_REDUCE, 100, 100, .out = true, .meetings = 2},
    {SYMMEM_CALL_ONE_SHOT_ALL_REDUCE, 100, 100, true, true, .eager_buffers = true, .meetings = 1},
    {SYMMEM_CALL_ONE_SHOT_ALL_REDUCE, TRAY / 4, 512, true, true, true, true, .meetings = 1},
    {SYMMEM_CALL_ONE_SHOT_ALL_REDUCE, TRAY / 4 + 1, 512, true, true, true, true, .meetings = 3},
    {SYMMEM_CALL_ONE_SHOT_ALL_REDUCE, 100, 100, true, true, .meetings = 2},
    {SYMMEM_CALL_ONE_SHOT_ALL_REDUCE, 100, 40, true, true, .meetings = 6},
    {SYMMEM_CALL_ONE_SHOT_ALL_REDUCE, 101, 40, true, true, .checking = true, .meetings = 8},
    {SYMMEM_CALL_TWO_SHOT_ALL_REDUCE, 100, 100, .meetings = 2},
    {SYMMEM_CALL_TWO_SHOT_ALL_REDUCE, 100, 100, .out = true, .meetings = 3},
    {SYMMEM_CALL_TWO_SHOT_ALL_REDUCE, 12000, 12000, .out = true, .meetings = 4},
    {SYMMEM_CALL_TWO_SHOT_ALL_REDUCE, 0, 0, .out = true, .meetings = 2},
    {SYMMEM_CALL_TWO_SHOT_ALL_REDUCE, 100, 60, true, true, .meetings = 7},
    {SYMMEM_CALL_TWO_SHOT_ALL_REDUCE, 100, 60, true, true, .checking = true, .meetings = 8},
    {SYMMEM_CALL_REDUCE_SCATTER, 100, 100, .out = true, .meetings = 2},
    {SYMMEM_CALL_LOW_CONTENTION_REDUCE_SCATTER, 50, 0, .out = true, .meetings = 2},
    {SYMMEM_CALL_LOW_CONTENTION_REDUCE_SCATTER, 50, 0, true, true, .meetings = 2},
    {SYMMEM_CALL_ALL_GATHER, 50, 0, .out = true, .meetings = 2},
    {SYMMEM_CALL_ALL_GATHER, 50, 0, .in = true, .meetings = 2},
    {SYMMEM_CALL_ALL_GATHER, 0, 0, .meetings = 2},
    {SYMMEM_CALL_BROADCAST, 50, 0, .meetings = 2},
    {SYMMEM_CALL_MULTIMEM_ALL_REDUCE, 100, 100, .meetings = 2},
    {SYMMEM_CALL_MULTIMEM_ONE_SHOT_ALL_REDUCE, 100, 100, .out = true, .meetings = 2},
    {SYMMEM_CALL_MULTIMEM_ONE_SHOT_REDUCE, 100, 100, .out = true, .meetings = 2},
    {SYMMEM_CALL_MULTIMEM_ALL_GATHER, 50, 0, .in = true, .meetings = 2},
    {SYMMEM_CALL_ALL_TO_ALL, 6, 0, true, true, .meetings = 2},
    {SYMMEM_CALL_ALL_TO_ALL, 6, 0, true, true, .checking = true, .meetings = 3},
    {SYMMEM_CALL_ALL_TO_ALL, 6, 0, true, true, .checking = true, .wanted = 2, .meetings = 3,
     .status = SYMMEM_MISMATCH},
};

static symmem_status run(const struct row *row, int failing) {
    const size_t in_splits[2] = {3, 0}, out_splits[2] = {3, row->wanted};
    void *const places[2] = {buffers[0], buffers[1]};
    /* An all-to-all's is in the rank's buffer. */
    const void *in = row->kind == SYMMEM_CALL_ALL_TO_ALL ? buffers[0] : inputs;
    const symmem_collective call = {.size = sizeof call,
                                    .name = "call",
                                    .kind = row->kind,
                                    .dtype = SYMMEM_FLOAT32,
                                    .op = SYMMEM_SUM,
                                    .root = 1,
                                    .count = row->count,
                                    .in_row = row->in_row,
                                    .out_row = row->count / 2,
                                    .in = row->in ? in : NULL,
                                    .out = row->out ? outputs : NULL,
                                    .in_splits = in_splits,
                                    .out_splits = out_splits};
    symmem_cpu_comm comm = {.world_size = 2,
                            .buffers = places,
                            .buffer_bytes = BYTES,
                            .checking = row->checking,
                            .barrier = meet,
                            .split_table = split_table,
                            .mismatch = mismatch,
                            .eager_bytes = row->eager_buffers ? TRAY : 0,
                            .eager_buffer = eager_buffer};
    memset(outputs, MARK, sizeof outputs);
    memset(buffers, MARK, sizeof buffers);
    memset(split_tables, 0, sizeof split_tables);
    meetings = mismatches = 0;
    failing_one = failing;
    return symmem_cpu_collective(&call, &comm);
}

static bool is_marked(const char *bytes) {
    for (size_t i = 0; i < BYTES; i++)
        if (bytes[i] != MARK)
            return false;
    return true;
}

TEST("meetings") {
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        symmem_status status = run(&rows[i], 0);
        CU_ASSERT_EQUAL(status, rows[i].status);
        CU_ASSERT_EQUAL(meetings, rows[i].meetings);
        CU_ASSERT_EQUAL(mismatches, rows[i].status == SYMMEM_MISMATCH);
        if (status != rows[i].status || meetings != rows[i].meetings)
            printf("[row %zu: %d, %d meetings] ", i, (int)status, meetings);
        for (int n = 1; n <= rows[i].meetings; n++) {
            CU_ASSERT_EQUAL(run(&rows[i], n), SYMMEM_POISONED);
            CU_ASSERT_EQUAL(meetings, n);
            CU_ASSERT_EQUAL(mismatches, 0);
            if (n == 1) {
                CU_ASSERT(is_marked(outputs));
                CU_ASSERT(is_marked(buffers[1]));
            }
        }
    }
}
