/* SPDX-License-Identifier: BSD-3-Clause */
/* A peer's failure as a rank learns it while it waits for a resource, before the agreement in which
 * the peer has reported it: sm_session_peer_failure. */
#include "bootstrap/session_internal.h"
#include "session_store.h"
#include "unit.h"
#include "last_record.h"

#define LARGE 70 /* ranks: more than one look asks */

/* One rank fails; the other values are what its peers learn. */
typedef struct plan {
    int32_t world_size, failing;
    uint32_t give_up_ms; /* how long it waits for the others to come */
    bool behind_it;      /* they look only when it has given up */
    symmem_status wanted;
} plan;

static atomic_int heard; /* how many of the others have */
static atomic_int over;  /* it has given up, or all have heard */

static symmem_status look(test_rank *self, uint32_t limit_ms) {
    const uint64_t end_ns = sm_deadline_ns(limit_ms);
    symmem_status status = SYMMEM_OK;
    while (status == SYMMEM_OK && !sm_expired(end_ns)) {
        status = sm_session_peer_failure(self->session, "op", 0);
        if (status == SYMMEM_OK)
            sm_sleep_ns(1000000);
    }
    return status;
}

static int fail_alone(test_rank *self, const plan *p) {
    sm_sleep_ns(50000000);
    symmem_status own = sm_fail(SYMMEM_LIMIT, "op", "step", "nothing is left");
    symmem_status status =
        sm_session_agree(self->session, "op", "step", own, sm_deadline_ns(p->give_up_ms));
    EXPECT(status == SYMMEM_LIMIT);
    atomic_store(&over, 1);
    const uint64_t end_ns = sm_deadline_ns(10000);
    while (atomic_load(&heard) < p->world_size - 1 && !sm_expired(end_ns))
        sm_sleep_ns(1000000); /* its end would take away what it left in the store */
    return 0;
}

static int hear_of_it(test_rank *self, const plan *p) {
    const uint64_t end_ns = sm_deadline_ns(10000);
    while (p->behind_it && atomic_load(&over) == 0 && !sm_expired(end_ns))
        sm_sleep_ns(1000000);
    symmem_status status = look(self, 10000);
    atomic_fetch_add(&heard, 1);
    EXPECT(status == p->wanted);
    EXPECT(last_record().failed_rank == p->failing);
    EXPECT(p->wanted != SYMMEM_LIMIT || strstr(last_record().message, "nothing is left") != NULL);
    if (p->wanted != SYMMEM_LIMIT)
        return 0; /* the exchange is no more */
    EXPECT(sm_session_agree(self->session, "op", "step", p->wanted, sm_deadline_ns(10000)) ==
           SYMMEM_LIMIT);
    EXPECT(last_record().failed_rank == p->failing);
    return 0;
}

static int body(test_rank *self) {
    const plan *p = self->arg;
    EXPECT(gather(self, "op", true, 20000) == SYMMEM_OK);
    return self->rank == p->failing ? fail_alone(self, p) : hear_of_it(self, p);
}

static void run(plan p) {
    test_rank ranks[RANKS_MAX];
    symmem_store *store = NULL;
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_memory(&store), SYMMEM_OK);
    atomic_store(&heard, 0);
    atomic_store(&over, 0);
    prepare_ranks(ranks, p.world_size, store, body, &p);
    CU_ASSERT_TRUE(run_threads(ranks, p.world_size));
    symmem_store_close(store);
}

TEST("a peer's failure") {
    run((plan){.world_size = 4, .failing = 1, .give_up_ms = 10000, .wanted = SYMMEM_LIMIT});
}

TEST("in a large world") {
    run((plan){
        .world_size = LARGE, .failing = LARGE - 1, .give_up_ms = 10000, .wanted = SYMMEM_LIMIT});
}

/* The peer reported its failure and gave up before the others came. */
TEST("a peer that gave up") {
    run((plan){.world_size = 2,
               .failing = 1,
               .give_up_ms = 100,
               .behind_it = true,
               .wanted = SYMMEM_TIMEOUT});
}

/* --- no rank failed --------------------------------------------------------------------------- */

/* A peer that has come is none that has failed, nor is one that is late; the record stays. */
static int body_good(test_rank *self) {
    EXPECT(gather(self, "op", true, 10000) == SYMMEM_OK);
    if (self->rank == 0) {
        (void)sm_fail(SYMMEM_BUSY, "before", "", "an earlier failure");
        EXPECT(look(self, 150) == SYMMEM_OK);
        EXPECT(last_record().status == SYMMEM_BUSY);
    }
    EXPECT(sm_session_agree(self->session, "op", "step", SYMMEM_OK, sm_deadline_ns(10000)) ==
           SYMMEM_OK);
    return 0;
}

TEST("nobody failed") {
    test_rank ranks[RANKS_MAX];
    symmem_store *store = NULL;
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_memory(&store), SYMMEM_OK);
    prepare_ranks(ranks, 3, store, body_good, NULL);
    CU_ASSERT_TRUE(run_threads(ranks, 3));
    symmem_store_close(store);
}

/* --- a slow store ----------------------------------------------------------------------------- */

static _Thread_local bool slow;

static symmem_status slow_get(void *s, const char *k, void *v, size_t n, size_t *b, uint32_t t) {
    if (!slow)
        return c_get(s, k, v, n, b, t);
    sm_sleep_ns((uint64_t)t * 1000000);
    return SYMMEM_TIMEOUT;
}

/* A waiting rank also looks at other things, so one look is short. */
static int body_slow(test_rank *self) {
    EXPECT(gather(self, "op", true, 10000) == SYMMEM_OK);
    EXPECT(gather(self, "op", false, 10000) == SYMMEM_OK); /* all are done with the first */
    if (self->rank == 0) {
        slow = true;
        const uint64_t begin_ns = sm_now_ns();
        EXPECT(sm_session_peer_failure(self->session, "op", 0) == SYMMEM_OK);
        EXPECT(sm_now_ns() - begin_ns < 5000000000);
        slow = false;
    }
    return 0;
}

TEST("a slow store") {
    symmem_store_ops ops = counting_ops;
    test_rank ranks[RANKS_MAX];
    counting counts = {0};
    symmem_store *store = NULL;
    ops.get = slow_get;
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_memory(&counts.inner), SYMMEM_OK);
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_custom(&ops, &counts, &store), SYMMEM_OK);
    prepare_ranks(ranks, 3, store, body_slow, NULL);
    CU_ASSERT_TRUE(run_threads(ranks, 3));
    symmem_store_close(store);
}
