/* SPDX-License-Identifier: BSD-3-Clause */
/* All-to-all on the CPU with a peer that shows on its split_table what cannot be: CORRUPT, naming
 * it. */
#include <stdio.h>
#include <string.h>

#include "cpu/comm.h"
#include "unit_main.h"

enum { COUNT = 4, BYTES = COUNT * 4, BUFFER = 256, MEETS = 3 };

/* The entries of rank 1's split_table after a barrier phase: the begin and the end of its part for
 * rank 0, and its check. */
typedef struct shown {
    uint64_t begin, end, check;
} shown;

typedef struct world {
    symmem_cpu_comm comm; /* first */
    uint64_t split_tables[2][SYMMEM_CPU_SPLIT_TABLE_WORDS(2)];
    const shown *at_meeting;
    int meetings;
    int32_t blamed;
} world;

static symmem_status meet(symmem_cpu_comm *comm) {
    world *w = (world *)comm;
    const shown *now = &w->at_meeting[w->meetings++ % MEETS];
    w->split_tables[1][0] = now->begin;
    w->split_tables[1][1] = now->end;
    w->split_tables[1][3] = now->check;
    return SYMMEM_OK;
}

static uint64_t *split_table(const symmem_cpu_comm *comm, int32_t rank) {
    return ((world *)(uintptr_t)comm)->split_tables[rank];
}

static symmem_status mismatch(symmem_cpu_comm *comm, int32_t rank, uint64_t own, uint64_t other) {
    ((world *)comm)->blamed = own == other ? -2 : rank;
    return SYMMEM_MISMATCH;
}

static symmem_status corrupt(symmem_cpu_comm *comm, int32_t rank, uint64_t value) {
    (void)value;
    ((world *)comm)->blamed = rank;
    return SYMMEM_CORRUPT;
}

static symmem_status run(const shown *at_meeting, bool checking, bool tells, int32_t *blamed_p) {
    static const size_t splits[2] = {COUNT, COUNT};
    char own[BUFFER] = {0}, theirs[BUFFER] = {0}, out[2 * BYTES];
    void *const buffers[2] = {own, theirs};
    memset(theirs + 64, 7, BYTES);
    world w = {.comm = {.world_size = 2,
                        .buffers = buffers,
                        .buffer_bytes = BUFFER,
                        .checking = checking,
                        .barrier = meet,
                        .split_table = split_table,
                        .mismatch = mismatch,
                        .corrupt = tells ? corrupt : NULL},
               .at_meeting = at_meeting,
               .blamed = -1};
    const symmem_collective call = {.size = sizeof call,
                                    .kind = SYMMEM_CALL_ALL_TO_ALL,
                                    .dtype = SYMMEM_FLOAT32,
                                    .in = own,
                                    .out = out,
                                    .in_splits = splits,
                                    .out_splits = splits};
    symmem_status status = symmem_cpu_collective(&call, &w.comm);
    CU_ASSERT(status != SYMMEM_OK || (out[BYTES] == 7 && out[2 * BYTES - 1] == 7));
    *blamed_p = w.blamed;
    return status;
}

#define RIGHT                                                                                      \
    { 64, 64 + BYTES, 0 }

TEST("split_tables") {
    static const struct {
        shown at_meeting[MEETS];
        symmem_status checked, unchecked; /* with check_collectives, and without */
    } rows[] = {
        {{RIGHT, RIGHT, RIGHT}, SYMMEM_OK, SYMMEM_OK},
        {{{BUFFER - BYTES + 4, BUFFER + 4, 0}, RIGHT, RIGHT}, SYMMEM_CORRUPT, SYMMEM_CORRUPT},
        {{{UINT64_MAX - 63, UINT64_MAX - 63 + BYTES, 0}, RIGHT, RIGHT},
         SYMMEM_CORRUPT,
         SYMMEM_CORRUPT},
        {{{64 + BYTES, 64, 0}, RIGHT, RIGHT}, SYMMEM_CORRUPT, SYMMEM_CORRUPT},
        {{{64, 64 + BYTES - 1, 0}, RIGHT, RIGHT}, SYMMEM_CORRUPT, SYMMEM_CORRUPT},
        {{{64, 64 + BYTES + 4, 0}, {64, 64 + BYTES + 4, 0}, RIGHT}, SYMMEM_MISMATCH, SYMMEM_OK},
        {{RIGHT, {64, 64 + BYTES, 3}, RIGHT}, SYMMEM_CORRUPT, SYMMEM_OK},
        {{RIGHT, {64, 64 + BYTES, UINT64_MAX}, RIGHT}, SYMMEM_CORRUPT, SYMMEM_OK},
        /* Changed once it was agreed on. */
        {{RIGHT, {64, 64 + BYTES + 4, 0}, RIGHT}, SYMMEM_CORRUPT, SYMMEM_OK},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (int checking = 0; checking < 2; checking++) {
            int32_t blamed;
            symmem_status wanted = checking ? rows[i].checked : rows[i].unchecked;
            symmem_status status = run(rows[i].at_meeting, checking, true, &blamed);
            if (status != wanted || blamed != (wanted == SYMMEM_OK ? -1 : 1))
                printf("row %zu, checking %d: %d, rank %d\n", i, checking, (int)status,
                       (int)blamed);
            CU_ASSERT_EQUAL(status, wanted);
            CU_ASSERT_EQUAL(blamed, wanted == SYMMEM_OK ? -1 : 1);
            CU_ASSERT_EQUAL(run(rows[i].at_meeting, checking, false, &blamed), wanted);
        }
    }
}
