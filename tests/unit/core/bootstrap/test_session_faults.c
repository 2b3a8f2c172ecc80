/* SPDX-License-Identifier: BSD-3-Clause */
/* Exchanges in which something fails on one rank: all learn of it, and the session goes on. */
#include "session_store.h"
#include "unit.h"
#include "last_record.h"

#ifndef SYMMEM_INSTRUMENTED /* a sanitizer's own memory cannot be limited */
/* No memory for the buffers: still only an agreed failure. The first case: what others freed would
 * serve it. */
static int body_no_memory(test_rank *self) {
    enum { BYTES = 400000 };
    static uint8_t in[BYTES], out[3 * BYTES];
    EXPECT(gather(self, "op", true, 10000) == SYMMEM_OK);
    uint64_t id = sm_session_id(self->session);
    if (self->rank == *(const int *)self->arg)
        sm_sleep_ns(30000000); /* the others wait for it */
    struct rlimit before, none;
    EXPECT(getrlimit(RLIMIT_AS, &before) == 0);
    none = before;
    none.rlim_cur = 1;
    if (self->rank == 1)
        EXPECT(setrlimit(RLIMIT_AS, &none) == 0);
    symmem_status status = sm_session_all_gather(self->session, "op", "s", in, BYTES, out, false,
                                                 sm_deadline_ns(10000));
    EXPECT(setrlimit(RLIMIT_AS, &before) == 0);
    EXPECT(status == SYMMEM_OUT_OF_MEMORY && last_record().failed_rank == 1);
    EXPECT(strcmp(last_record().stage, "s") == 0 && sm_session_id(self->session) == id);
    EXPECT(gather(self, "op", false, 10000) == SYMMEM_OK);
    return 0;
}

TEST("no memory") {
    for (int late = 0; late < 3; late++) {
        char path[FOLDER_BYTES];
        test_rank ranks[3];
        pid_t pids[3];
        CU_ASSERT_FATAL(fork_world(ranks, pids, 3, body_no_memory, &late, path));
        for (int i = 0; i < 3; i++)
            CU_ASSERT_EQUAL(reap(pids[i]), 0);
        CU_ASSERT_EQUAL(count_files(path, 'k'), 3);
        remove_tree(path);
    }
}
#endif

/* --- one that has nothing to give ------------------------------------------------------- */

typedef struct failing {
    int32_t first, second; /* ranks that fail; -1: none */
    int32_t late;          /* comes last */
} failing;

static int body_nothing_to_give(test_rank *self) {
    const failing *plan = self->arg;
    static const char point[] = "exchange.publish.before";
    EXPECT(gather(self, "op", true, 10000) == SYMMEM_OK);
    uint64_t id = sm_session_id(self->session);
    if (self->rank == plan->late)
        sm_sleep_ns(30000000);
    if (self->rank == plan->first || self->rank == plan->second) {
        self->point_status = self->rank == plan->first ? SYMMEM_LIMIT : SYMMEM_BACKEND;
        atomic_store(&self->point_hits, 0);
        self->point_name = point;
    }
    uint64_t in = 1, out[RANKS_MAX] = {77}, start_ns = sm_now_ns();
    EXPECT(sm_session_all_gather(self->session, "op", "step", &in, sizeof(in), out, false,
                                 sm_deadline_ns(10000)) == SYMMEM_LIMIT);
    const symmem_error_record last = last_record(), *record = &last;
    EXPECT(record->status == SYMMEM_LIMIT && record->failed_rank == plan->first);
    EXPECT(strcmp(record->stage, point) == 0 && strcmp(record->operation, "op") == 0);
    EXPECT(record->rank == self->rank && record->world_size == self->world_size);
    EXPECT(strcmp(record->group, "test") == 0 && strstr(record->message, point) != NULL);
    EXPECT(out[0] == 77 && sm_now_ns() - start_ns < 2000000000);
    EXPECT(sm_session_id(self->session) == id); /* agreed: the session stays */
    self->point_name = NULL;
    EXPECT(gather(self, "op", false, 10000) == SYMMEM_OK);
    EXPECT(sm_session_id(self->session) == id);
    return 0;
}

TEST("nothing to give") {
    static const failing plans[] = {{0, -1, 0}, {0, -1, 2}, {1, -1, 1}, {1, -1, 0}, {2, -1, 2},
                                    {2, -1, 0}, {0, 2, 2},  {0, 1, 0},  {1, 2, 2},  {1, 2, 0}};
    for (size_t i = 0; i < sizeof(plans) / sizeof(plans[0]); i++) {
        counting c;
        symmem_store *store = counting_store(&c);
        test_rank ranks[3];
        failing plan = plans[i];
        prepare_ranks(ranks, 3, store, body_nothing_to_give, &plan);
        bool fine = run_threads(ranks, 3);
        if (!fine)
            fprintf(stderr, "ranks %d and %d fail, rank %d comes last\n", plan.first, plan.second,
                    plan.late);
        CU_ASSERT_TRUE(fine);
        CU_ASSERT_EQUAL(atomic_load(&c.adds), 0); /* no rank's write waits for another's */
        symmem_store_close(store);
    }
}

/* --- a store that fails ----------------------------------------------------------------- */

static int body_store_fails(test_rank *self) {
    EXPECT(gather(self, "op", true, 10000) == SYMMEM_OK);
    if (self->rank == 0) {
        fail_sets = 1;
        EXPECT(gather(self, "op", true, 10000) == SYMMEM_SYSTEM);
        EXPECT(last_record().rank == 0 && strcmp(last_record().operation, "op") == 0);
        EXPECT(sm_session_id(self->session) == 0);
        EXPECT(gather(self, "op", true, 10000) == SYMMEM_OK);
        EXPECT(gather(self, "op", true, 10000) == SYMMEM_OK);
    } else {
        /* Later than rank 0's failure, and then it follows without noticing. */
        sm_sleep_ns(50000000);
        EXPECT(gather(self, "op", true, 10000) == SYMMEM_OK);
        sm_sleep_ns(200000000);
        EXPECT(gather(self, "op", true, 10000) == SYMMEM_OK);
    }
    return 0;
}

TEST("store fails") {
    counting c;
    symmem_store *store = counting_store(&c);
    test_rank ranks[2];
    prepare_ranks(ranks, 2, store, body_store_fails, NULL);
    CU_ASSERT_TRUE(run_threads(ranks, 2));
    symmem_store_close(store);
}
