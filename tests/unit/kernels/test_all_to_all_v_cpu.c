/* SPDX-License-Identifier: BSD-3-Clause */
/* An all-to-all with splits in memory on the CPU, with a peer that publishes what cannot be:
 * CORRUPT, naming it, and nothing beyond out. */
#include <stdio.h>
#include <string.h>

#include "all_to_all_v.h"
#include "cpu/comm.h"
#include "unit_main.h"

enum { ROWS = 4, ROW_BYTES = 4, BUFFER = 256, MEETS = 3, TRAY = 64 };

/* What rank 1 shows at a barrier: its part for rank 0, and its check. */
typedef struct shown {
    uint64_t begin, rows, check;
} shown;

typedef struct world {
    symmem_cpu_comm comm; /* first */
    uint64_t split_tables[2][SYMMEM_CPU_SPLIT_TABLE_WORDS(2)];
    uint64_t trays[2][2][TRAY / sizeof(uint64_t)];
    const shown *at_meeting;
    int meetings;
    int32_t blamed;
} world;

static symmem_status meet(symmem_cpu_comm *comm) {
    world *w = (world *)comm;
    const shown *now = &w->at_meeting[w->meetings++ % MEETS];
    uint64_t *parts = comm->eager_bytes > 0 ? w->trays[1][0] : w->split_tables[1] + 4;
    parts[0] = now->begin;
    parts[1] = now->rows;
    w->split_tables[1][0] = now->check;
    return SYMMEM_OK;
}

static uint64_t *split_table(const symmem_cpu_comm *comm, int32_t rank) {
    return ((world *)(uintptr_t)comm)->split_tables[rank];
}

static void *eager_buffer(const symmem_cpu_comm *comm, int32_t rank) {
    world *w = (world *)(uintptr_t)comm;
    return w->trays[rank][w->meetings % 2];
}

static symmem_status corrupt(symmem_cpu_comm *comm, int32_t rank, uint64_t value) {
    (void)value;
    ((world *)comm)->blamed = rank;
    return SYMMEM_CORRUPT;
}

static symmem_status wrong_splits(symmem_cpu_comm *comm, int32_t rank, symmem_status status,
                                  const char *stage, uint64_t allowed, uint64_t found) {
    (void)allowed;
    (void)found;
    ((world *)comm)->blamed = stage != NULL ? rank : -2;
    return status;
}

/* One row to each rank; the peer's row is 7s. */
static symmem_status run(const shown *at_meeting, bool eager, bool tells, int32_t *blamed_p) {
    static const int64_t splits[2] = {1, 1};
    int64_t results[4] = {-1, -1, -1, -1};
    char own[BUFFER] = {0}, theirs[BUFFER], out[(ROWS + 1) * ROW_BYTES];
    void *const buffers[2] = {own, theirs};
    memset(theirs, 7, BUFFER);
    memset(out, 9, sizeof out);
    world w = {.comm = {.world_size = 2,
                        .buffers = buffers,
                        .buffer_bytes = BUFFER,
                        .barrier = meet,
                        .split_table = split_table,
                        .eager_bytes = eager ? TRAY : 0,
                        .eager_buffer = eager_buffer,
                        .corrupt = tells ? corrupt : NULL,
                        .wrong_splits = tells ? wrong_splits : NULL},
               .at_meeting = at_meeting,
               .blamed = -1};
    const symmem_collective call = {
        .size = sizeof call,
        .kind = SYMMEM_CALL_ALL_TO_ALL_V,
        .dtype = SYMMEM_FLOAT32,
        .in = own,
        .out = out,
        .in_row = 1,
        .out_row = 1,
        .splits = {.in = splits, .out = results, .experts = 1, .in_rows = ROWS, .out_rows = ROWS}};
    symmem_status status = symmem_cpu_collective(&call, &w.comm);
    CU_ASSERT_EQUAL(out[ROWS * ROW_BYTES], 9);
    if (status == SYMMEM_OK) {
        CU_ASSERT_EQUAL(out[ROW_BYTES], 7);
        CU_ASSERT_EQUAL(results[1], 1);
        CU_ASSERT_EQUAL(results[3], 1);
    }
    *blamed_p = w.blamed;
    return status;
}

#define RIGHT                                                                                      \
    { 64, 1, 0 }

TEST("parts") {
    static const struct {
        shown at_meeting[MEETS];
        symmem_status status;
    } rows[] = {
        {{RIGHT, RIGHT, RIGHT}, SYMMEM_OK},
        {{{BUFFER - 4, 1, 0}, {BUFFER - 4, 1, 0}, RIGHT}, SYMMEM_OK},
        {{{BUFFER, 1, 0}, {BUFFER, 1, 0}, RIGHT}, SYMMEM_CORRUPT},
        {{{UINT64_MAX - 3, 1, 0}, {UINT64_MAX - 3, 1, 0}, RIGHT}, SYMMEM_CORRUPT},
        {{{66, 1, 0}, {66, 1, 0}, RIGHT}, SYMMEM_CORRUPT},
        {{RIGHT, {64, 1, SYMMEM_SPLIT_FAULT_COUNT}, RIGHT}, SYMMEM_CORRUPT},
        {{RIGHT, {64, 1, UINT64_MAX}, RIGHT}, SYMMEM_CORRUPT},
        {{RIGHT, {64, 1, SYMMEM_SPLIT_NEGATIVE}, RIGHT}, SYMMEM_INVALID_ARGUMENT},
        {{RIGHT, {64, 1, SYMMEM_SPLIT_OUT}, RIGHT}, SYMMEM_OUT_OF_RANGE},
        /* Changed once it was agreed on. */
        {{RIGHT, {64, ROWS, 0}, RIGHT}, SYMMEM_CORRUPT},
        {{RIGHT, {64, UINT64_MAX, 0}, RIGHT}, SYMMEM_CORRUPT},
        {{RIGHT, {BUFFER - 4, 2, 0}, RIGHT}, SYMMEM_CORRUPT},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (int eager = 0; eager < 2; eager++) {
            int32_t blamed;
            symmem_status wanted = rows[i].status;
            symmem_status status = run(rows[i].at_meeting, eager, true, &blamed);
            if (status != wanted || blamed != (wanted == SYMMEM_OK ? -1 : 1))
                printf("row %zu, eager %d: %d, rank %d\n", i, eager, (int)status, (int)blamed);
            CU_ASSERT_EQUAL(status, wanted);
            CU_ASSERT_EQUAL(blamed, wanted == SYMMEM_OK ? -1 : 1);
            CU_ASSERT_EQUAL(run(rows[i].at_meeting, eager, false, &blamed), wanted);
        }
    }
}

/* More rows than this rank has room for are its own fault, which every rank finds. */
TEST("too many rows") {
    static const shown many[][MEETS] = {{{0, ROWS, 0}, {0, ROWS, 0}, RIGHT},
                                        {{0, UINT64_MAX, 0}, {0, UINT64_MAX, 0}, RIGHT}};
    for (size_t i = 0; i < 2; i++)
        for (int eager = 0; eager < 2; eager++) {
            int32_t blamed;
            CU_ASSERT_EQUAL(run(many[i], eager, true, &blamed), SYMMEM_OUT_OF_RANGE);
            CU_ASSERT_EQUAL(blamed, 0);
        }
}
