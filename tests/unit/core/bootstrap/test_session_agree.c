/* SPDX-License-Identifier: BSD-3-Clause */
/* What ranks agree on when one has learnt of a loss from elsewhere, a library beneath the backend
 * for one, and does not know whose it is. */
#include "bootstrap/session_internal.h"
#include "session_store.h"
#include "unit.h"
#include "last_record.h"

#define WORLD 4
#define LAST 3

/* The victims end in an agreement, at a point or before it; rank 0 has a failure of its own. */
typedef struct plan {
    int victims; /* ranks 1 to `victims` */
    const char *point;
    uint32_t late_ms; /* without a point: they end so long after rank 0 has called */
    symmem_status own;
    bool restarted; /* rank 1 has a successor that has not joined */
} plan;

static atomic_int *calls, *successors, *through; /* in memory that the processes share */
static bool armed;                               /* in a victim's process */

static symmem_status kill_point(void *arg, const char *name) {
    const plan *p = ((test_rank *)arg)->arg;
    if (armed && strcmp(name, p->point) == 0)
        raise(SIGKILL);
    return SYMMEM_OK;
}

static void die(test_rank *self, const plan *p) {
    if (p->point == NULL) {
        if (p->late_ms != 0)
            await_counter(calls, 1);
        sm_sleep_ns((uint64_t)p->late_ms * 1000000);
        raise(SIGKILL);
    }
    armed = true;
    (void)!sm_session_agree(self->session, "op", "step", SYMMEM_OK, sm_deadline_ns(10000));
}

static void await_deaths(const test_rank *self, const plan *p) {
    uint64_t end_ns = sm_deadline_ns(10000);
    for (int32_t rank = 1; rank <= p->victims; rank++)
        while (sm_liveness_ask(self->liveness, rank) != SYMMEM_PEER_GONE && !sm_expired(end_ns))
            sm_sleep_ns(1000000);
    if (p->restarted)
        await_counter(successors, 1);
}

/* Who breaks off may have seen the first of them only; who had it told, or looked, knows all. */
static bool knows_all(const test_rank *self, const plan *p) {
    return self->rank == 0 || (p->point != NULL && strcmp(p->point, "exchange.publish.after") == 0);
}

static int body(test_rank *self) {
    const plan *p = self->arg;
    symmem_status own = SYMMEM_OK;
    const bool all = knows_all(self, p);
    EXPECT(reopen_with(self, kill_point) == 0);
    EXPECT(gather(self, "op", true, 10000) == SYMMEM_OK);
    if (self->rank >= 1 && self->rank <= p->victims) {
        die(self, p);
        EXPECT(false);
    }
    if (self->rank == 0) {
        if (p->late_ms == 0)
            await_deaths(self, p);
        own = sm_fail(p->own, "op", "step", "a connection broke");
        atomic_store(calls, 1);
    } else if (all && p->victims > 1) {
        await_deaths(self, p); /* lest it looks between one's end and another's */
    }
    uint64_t start_ns = sm_now_ns();
    symmem_status status =
        sm_session_agree(self->session, "op", "step", own, sm_deadline_ns(10000));
    EXPECT(sm_now_ns() - start_ns < 5000000000); /* far from the limit; the suite has the bound */
    /* Rank 0 has its own failure, which is the others' unless they see who has ended. */
    if (status != SYMMEM_PEER_LOST) {
        EXPECT(status == p->own && last_record().failed_rank == 0);
        EXPECT(last_record().missing_count == 0);
        EXPECT(strstr(last_record().message, "a connection broke") != NULL);
    } else {
        const uint64_t victims = (1ull << (p->victims + 1)) - 2, missing = last_record().missing[0];
        EXPECT(self->rank != 0 || p->own == SYMMEM_PEER_LOST);
        EXPECT(missing != 0 && (missing & ~victims) == 0 && (!all || missing == victims));
        EXPECT(last_record().missing_count == (uint32_t)__builtin_popcountll(missing));
        EXPECT(last_record().failed_rank ==
               (last_record().missing_count == 1 ? __builtin_ctzll(missing) : -1));
    }
    leave_together(through, WORLD - p->victims);
    return 0;
}

/* Publishes who it is, and does not come. */
static int body_successor(test_rank *self) {
    atomic_store(successors, 1);
    while (atomic_load(successors) != 0)
        unit_clock_wait(ranks_clock, UINT64_MAX);
    return 0;
}

static void run(plan p) {
    char path[FOLDER_BYTES];
    test_rank ranks[WORLD], successor[WORLD];
    pid_t pids[WORLD];
    atomic_store(calls, 0);
    atomic_store(successors, 0);
    atomic_store(through, 0);
    prepare_ranks(successor, WORLD, NULL, body_successor, &p);
    CU_ASSERT_FATAL(fork_world(ranks, pids, WORLD, body, &p, path));
    pid_t next = -1;
    for (int i = 1; i <= p.victims; i++)
        CU_ASSERT_EQUAL(reap(pids[i]), 1000 + SIGKILL);
    if (p.restarted)
        next = fork_rank(&successor[1], path);
    for (int i = 0; i < WORLD; i++)
        if (i == 0 || i > p.victims)
            CU_ASSERT_EQUAL(reap(pids[i]), 0);
    if (next > 1) {
        kill(next, SIGKILL);
        CU_ASSERT_EQUAL(reap(next), 1000 + SIGKILL);
    }
    remove_tree(path);
}

TEST("dead before") {
    run((plan){.victims = 1, .own = SYMMEM_PEER_LOST});
    run((plan){.victims = 1, .point = "exchange.publish.before", .own = SYMMEM_PEER_LOST});
    run((plan){.victims = 1, .point = "exchange.publish.after", .own = SYMMEM_PEER_LOST});
}

TEST("several") {
    run((plan){.victims = 2, .point = "exchange.publish.before", .own = SYMMEM_PEER_LOST});
    run((plan){.victims = 2, .point = "exchange.publish.after", .own = SYMMEM_PEER_LOST});
}

/* The library noticed before the process was gone. */
TEST("dead later") {
    run((plan){.victims = 1, .late_ms = 200, .own = SYMMEM_PEER_LOST});
    run((plan){.victims = 1, .late_ms = 200, .own = SYMMEM_LIMIT}); /* that stays */
}

TEST("restarted") {
    run((plan){.victims = 1, .own = SYMMEM_PEER_LOST, .restarted = true});
}

int unit_setup(void) {
    calls = shared_counters(3);
    if (calls == NULL)
        return 1;
    successors = calls + 1;
    through = calls + 2;
    return 0;
}
