/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * SM-TIMEOUT-16: a rank whose socket is gone. While the system is ending its process, who wants to
 * send it descriptors waits on, and is told PEER_LOST in the end; one that lives gave up.
 */
#include "bootstrap/session_fds.h"
#include "memory/group.h"
#include "session_ranks.h"
#include "unit_main.h"
#include "last_record.h"
#include "memory/group_calls.h"

#define MS 1000000u

/* --- what is said of rank 0's process, from the first question on ------------------------------
 */

static atomic_bool is_told;       /* this, in place of the truth */
static atomic_uint ends_in_ms;    /* 0: it lives */
static _Atomic uint64_t asked_ns; /* first */

symmem_peer_state __real_sm_liveness_ask(sm_liveness *liveness, int32_t rank);
symmem_peer_state __wrap_sm_liveness_ask(sm_liveness *liveness, int32_t rank);
symmem_peer_state __real_sm_liveness_ask_of(sm_liveness *liveness, int32_t rank,
                                            const sm_identity *identity);
symmem_peer_state __wrap_sm_liveness_ask_of(sm_liveness *liveness, int32_t rank,
                                            const sm_identity *identity);
symmem_peer_state __real_sm_liveness_seen_of(sm_liveness *liveness, int32_t rank,
                                             const sm_identity *identity);
symmem_peer_state __wrap_sm_liveness_seen_of(sm_liveness *liveness, int32_t rank,
                                             const sm_identity *identity);
bool __real_sm_liveness_is_ending(const sm_liveness *liveness, const sm_identity *identity);
bool __wrap_sm_liveness_is_ending(const sm_liveness *liveness, const sm_identity *identity);

static bool has_ended(void) {
    uint64_t never = 0, now_ns = sm_now_ns(), limit_ns = (uint64_t)atomic_load(&ends_in_ms) * MS;
    atomic_compare_exchange_strong(&asked_ns, &never, now_ns);
    return limit_ns != 0 && now_ns - atomic_load(&asked_ns) >= limit_ns;
}

symmem_peer_state __wrap_sm_liveness_ask(sm_liveness *liveness, int32_t rank) {
    if (!atomic_load(&is_told) || rank != 0)
        return __real_sm_liveness_ask(liveness, rank);
    return has_ended() ? SYMMEM_PEER_GONE : SYMMEM_PEER_ALIVE;
}

symmem_peer_state __wrap_sm_liveness_ask_of(sm_liveness *liveness, int32_t rank,
                                            const sm_identity *identity) {
    if (!atomic_load(&is_told) || rank != 0)
        return __real_sm_liveness_ask_of(liveness, rank, identity);
    return has_ended() ? SYMMEM_PEER_GONE : SYMMEM_PEER_ALIVE;
}

symmem_peer_state __wrap_sm_liveness_seen_of(sm_liveness *liveness, int32_t rank,
                                             const sm_identity *identity) {
    if (!atomic_load(&is_told) || rank != 0)
        return __real_sm_liveness_seen_of(liveness, rank, identity);
    return has_ended() ? SYMMEM_PEER_GONE : SYMMEM_PEER_ALIVE;
}

/* Then rank 1 asks for rank 0. */
bool __wrap_sm_liveness_is_ending(const sm_liveness *liveness, const sm_identity *identity) {
    if (!atomic_load(&is_told))
        return __real_sm_liveness_is_ending(liveness, identity);
    return atomic_load(&ends_in_ms) != 0 && !has_ended();
}

/* --- two ranks ----------------------------------------------------------------------------------
 */

typedef struct plan {
    atomic_int closed;
    uint32_t limit_ms; /* of rank 1's call */
    symmem_status wanted;
    uint64_t least_ms, most_ms; /* that it takes */
} plan;

static int body(test_rank *self) {
    plan *its = self->arg;
    EXPECT(sm_session_ensure(self->session, "op", sm_deadline_ns(10000)) == SYMMEM_OK);
    if (self->rank == 0) {
        sm_session_destroy(self->session);
        self->session = NULL;
        atomic_store(&its->closed, 1);
        return 0;
    }
    while (atomic_load(&its->closed) == 0)
        sm_sleep_ns(MS);
    atomic_store(&is_told, true);
    int own = -1, all[2];
    uint64_t start_ns = sm_now_ns();
    symmem_status status =
        sm_session_all_gather_fds(self->session, "op", &own, 1, all, sm_deadline_ns(its->limit_ms));
    uint64_t took_ms = (sm_now_ns() - start_ns) / MS;
    atomic_store(&is_told, false);
    EXPECT(status == its->wanted);
    EXPECT(last_record().failed_rank == 0);
    EXPECT(took_ms >= its->least_ms && took_ms < its->most_ms);
    return 0;
}

static void expect(unsigned its_end_ms, plan its) {
    symmem_store *store = NULL;
    test_rank ranks[2];
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_memory(&store), SYMMEM_OK);
    atomic_store(&ends_in_ms, its_end_ms);
    atomic_store(&asked_ns, 0);
    prepare_ranks(ranks, 2, store, body, &its);
    CU_ASSERT_TRUE(run_threads(ranks, 2));
    symmem_store_close(store);
}

TEST("its process is ending") {
    expect(900,
           (plan){.limit_ms = 10000, .wanted = SYMMEM_PEER_LOST, .least_ms = 850, .most_ms = 5000});
    expect(900,
           (plan){.limit_ms = 0, .wanted = SYMMEM_PEER_LOST, .least_ms = 850, .most_ms = 5000});
    /* It takes longer than there is time for. */
    expect(9000,
           (plan){.limit_ms = 700, .wanted = SYMMEM_TIMEOUT, .least_ms = 700, .most_ms = 5000});
}

/* As a backend asks for it, of ranks that there are. */
static int ask_by_exchange(test_rank *self) {
    EXPECT(sm_session_ensure(self->session, "op", sm_deadline_ns(10000)) == SYMMEM_OK);
    symmem_group group = {.session = self->session, .world_size = 2, .rank = self->rank};
    symmem_exchange exchange;
    sm_group_exchange(&group, 0, &exchange);
    EXPECT(sm_session_agree(self->session, "op", "step", SYMMEM_OK, sm_deadline_ns(10000)) ==
           SYMMEM_OK);
    if (self->rank == 1) {
        atomic_store(&is_told, true);
        EXPECT(exchange.peer_is_ending(&exchange, 0));
        EXPECT(!exchange.peer_is_ending(&exchange, -1));
        EXPECT(!exchange.peer_is_ending(&exchange, 2));
        atomic_store(&ends_in_ms, 0);
        EXPECT(!exchange.peer_is_ending(&exchange, 0));
        atomic_store(&is_told, false);
    }
    return sm_session_agree(self->session, "op", "step", SYMMEM_OK, sm_deadline_ns(10000));
}

TEST("a backend asks") {
    symmem_store *store = NULL;
    test_rank ranks[2];
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_memory(&store), SYMMEM_OK);
    atomic_store(&ends_in_ms, 60000);
    atomic_store(&asked_ns, 0);
    prepare_ranks(ranks, 2, store, ask_by_exchange, NULL);
    CU_ASSERT_TRUE(run_threads(ranks, 2));
    symmem_store_close(store);
}

TEST("its process lives") {
    expect(0,
           (plan){.limit_ms = 10000, .wanted = SYMMEM_TIMEOUT, .least_ms = 400, .most_ms = 5000});
}
