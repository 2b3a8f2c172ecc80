/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks that come late, start over, stop or end. The waiting ranks learn of it, and a retry
 * works. */
#include "session_store.h"
#include "unit.h"
#include "last_record.h"

/* In memory that forked ranks share. */
static atomic_int *started, *through;

/* --- absent, then late -------------------------------------------------------------- */

/* Rank 2 misses the first round; the others' records must name exactly it. arg: rounds before. */
static int body_late(test_rank *self) {
    int before = self->arg == NULL ? 0 : *(const int *)self->arg;
    for (int i = 0; i < before; i++)
        EXPECT(gather(self, "op", true, 10000) == SYMMEM_OK);
    if (self->rank == 2) {
        sm_sleep_ns(1900000000);
    } else {
        /* Different limits: a rank that gives up first must not look like a missing rank. */
        uint64_t start_ns = sm_now_ns();
        const uint32_t before_it = (uint32_t)(self->rank < 2 ? self->rank : self->rank - 1);
        const uint32_t limit_ms = 400 + 300 * before_it;
        symmem_status status = gather(self, "op", true, limit_ms);
        EXPECT(status == SYMMEM_TIMEOUT);
        EXPECT(sm_now_ns() - start_ns <= limit_ms * UINT64_C(1000000) + 100000000); /* last looks */
        EXPECT(last_record().missing_count == 1 && last_is_missing(2));
        EXPECT(last_record().failed_rank == 2 &&
               last_record().elapsed_ns >= limit_ms * UINT64_C(1000000));
        EXPECT(strcmp(last_record().operation, "op") == 0);
    }
    EXPECT(gather(self, "op", true, 10000) == SYMMEM_OK);
    EXPECT(gather(self, "op", false, 10000) == SYMMEM_OK);
    return 0;
}

static void late(int before) {
    counting c;
    symmem_store *store = counting_store(&c);
    test_rank ranks[5];
    prepare_ranks(ranks, 5, store, body_late, &before);
    CU_ASSERT_TRUE(run_threads(ranks, 5));
    CU_ASSERT_EQUAL(keys_of(store, 5), 0);
    symmem_store_close(store);

    char path[FOLDER_BYTES];
    pid_t pids[5];
    CU_ASSERT_FATAL(fork_world(ranks, pids, 5, body_late, &before, path));
    for (int i = 0; i < 5; i++)
        CU_ASSERT_EQUAL(reap(pids[i]), 0);
    CU_ASSERT_EQUAL(count_files(path, 'k'), 5);
    remove_tree(path);
}

TEST("late at the bring-up") {
    late(0);
}

TEST("late at an exchange") {
    late(3);
}

/* --- a peer that started over in the middle --------------------------------------------- */

/* Two ranks wait. The first to find out reports it and starts over as well. The other one may see
 * only that, and then names the rank that the first one missed. */
static atomic_int found_out;

static int body_started_over(test_rank *self) {
    EXPECT(gather(self, "op", true, 10000) == SYMMEM_OK);
    if (self->rank == 0) {
        rank_close(self);
        EXPECT(rank_open(self) == 0);
        EXPECT(gather(self, "op", true, 10000) == SYMMEM_OK);
        return 0;
    }
    sm_sleep_ns(30000000);
    EXPECT(gather(self, "op", false, 5000) == SYMMEM_TIMEOUT);
    EXPECT(last_record().failed_rank == 0 && last_is_missing(0));
    EXPECT(last_record().elapsed_ns < 2500000000); /* far from the limit */
    bool saw = strstr(last_record().message, "started over") != NULL;
    EXPECT(saw || strstr(last_record().message, "did not arrive") != NULL);
    atomic_fetch_add(&found_out, saw);
    EXPECT(gather(self, "op", true, 10000) == SYMMEM_OK);
    return 0;
}

static int body_recreated(test_rank *self) {
    for (int i = 0; i < 10; i++) {
        if (i % 2 != 0)
            EXPECT(sm_session_ensure(self->session, "op", sm_deadline_ns(10000)) == SYMMEM_OK);
        EXPECT(gather(self, "op", true, 10000) == SYMMEM_OK);
        if (i % 3 == self->rank % 3) {
            rank_close(self);
            EXPECT(rank_open(self) == 0);
        }
    }
    return 0;
}

/* Rank 2 is late; rank 0 gives up first and starts over; rank 1 must name 2 all the same. */
static int body_names_the_absent(test_rank *self) {
    EXPECT(gather(self, "op", true, 10000) == SYMMEM_OK);
    if (self->rank == 2)
        sm_sleep_ns(1200000000);
    if (self->rank == 0)
        EXPECT(gather(self, "op", false, 400) == SYMMEM_TIMEOUT);
    if (self->rank == 1)
        EXPECT(gather(self, "op", false, 5000) == SYMMEM_TIMEOUT);
    EXPECT(self->rank == 2 || last_record().failed_rank == 2);
    EXPECT(gather(self, "op", true, 10000) == SYMMEM_OK);
    return 0;
}

/* Rank 0 gives up. Rank 1 comes behind it with a failure of its own, which is the better news. */
static int body_fails_behind_it(test_rank *self) {
    EXPECT(gather(self, "op", true, 10000) == SYMMEM_OK);
    if (self->rank == 0) {
        EXPECT(gather(self, "op", false, 100) == SYMMEM_TIMEOUT);
        atomic_store(started, 1);
    } else {
        await_counter(started, 1);
        symmem_status own = sm_fail(SYMMEM_STALE, "op", "step", "the group was destroyed");
        EXPECT(sm_session_agree(self->session, "op", "step", own, sm_deadline_ns(10000)) == own);
        EXPECT(last_record().status == own && last_record().failed_rank == 1);
        EXPECT(strcmp(last_record().message, "the group was destroyed") == 0);
    }
    EXPECT(gather(self, "op", true, 10000) == SYMMEM_OK);
    return 0;
}

TEST("started over") {
    counting c;
    symmem_store *store = counting_store(&c);
    test_rank ranks[4];
    prepare_ranks(ranks, 3, store, body_started_over, NULL);
    CU_ASSERT_TRUE(run_threads(ranks, 3));
    CU_ASSERT(atomic_load(&found_out) > 0);
    prepare_ranks(ranks, 3, store, body_names_the_absent, NULL);
    CU_ASSERT_TRUE(run_threads(ranks, 3));
    atomic_store(started, 0);
    prepare_ranks(ranks, 2, store, body_fails_behind_it, NULL);
    CU_ASSERT_TRUE(run_threads(ranks, 2));
    prepare_ranks(ranks, 4, store, body_recreated, NULL);
    CU_ASSERT_TRUE(run_threads(ranks, 4));
    CU_ASSERT_EQUAL(keys_of(store, 4), 0);
    symmem_store_close(store);
}

/* --- processes that end ----------------------------------------------------------------- */

typedef struct kill_plan {
    int before; /* exchanges before the end */
    const char *point;
} kill_plan;

static symmem_status kill_point(void *arg, const char *name) {
    const kill_plan *plan = ((test_rank *)arg)->arg;
    if (plan->point != NULL && strcmp(name, plan->point) == 0)
        raise(SIGKILL);
    return SYMMEM_OK;
}

static int body_killed(test_rank *self) {
    const kill_plan *plan = self->arg;
    for (int i = 0; i < plan->before; i++)
        EXPECT(gather(self, "op", true, 10000) == SYMMEM_OK);
    if (self->rank == 1) {
        sm_sleep_ns(100000000); /* the others wait by now */
        if (plan->point == NULL)
            raise(SIGKILL);
        EXPECT(reopen_with(self, kill_point) == 0);
        gather(self, "op", true, 10000);
        EXPECT(false);
    }
    uint64_t start_ns = sm_now_ns();
    symmem_status status = SYMMEM_OK;
    while (status == SYMMEM_OK)
        status = gather(self, "op", true, 10000);
    EXPECT(status == SYMMEM_PEER_LOST);
    EXPECT(last_record().failed_rank == 1 && last_record().missing_count == 1);
    EXPECT(sm_now_ns() - start_ns < 3000000000); /* far from the limit; the suite has the bound */
    leave_together(through, 2);
    return 0;
}

static void killed(kill_plan plan) {
    char path[FOLDER_BYTES];
    test_rank ranks[3];
    pid_t pids[3];
    atomic_store(through, 0);
    CU_ASSERT_FATAL(fork_world(ranks, pids, 3, body_killed, &plan, path));
    CU_ASSERT_EQUAL(reap(pids[1]), 1000 + SIGKILL);
    int first = reap(pids[0]), last = reap(pids[2]);
    if (first != 0 || last != 0)
        fprintf(stderr, "killed at %s\n", plan.point == NULL ? "-" : plan.point);
    CU_ASSERT_EQUAL(first, 0);
    CU_ASSERT_EQUAL(last, 0);
    remove_tree(path);
}

TEST("killed") {
    killed((kill_plan){0, NULL});
    killed((kill_plan){2, NULL});
    static const char *const points[] = {"session.join.before",    "session.join.published",
                                         "session.join.done",      "exchange.publish.before",
                                         "exchange.publish.after", "exchange.done"};
    for (size_t i = 0; i < sizeof(points) / sizeof(points[0]); i++)
        killed((kill_plan){0, points[i]});
}

/* Rank 0 publishes its record and ends. Rank 1 has read it and waits for rank 2, which saw the end,
 * left, and will not come: rank 1 must see the end, too. */
static symmem_status slow_kill_point(void *arg, const char *name) {
    if (strcmp(name, "session.join.published") != 0)
        return SYMMEM_OK;
    sm_sleep_ns(200000000);
    raise(SIGKILL);
    return SYMMEM_OK;
}

static int body_left_waiting(test_rank *self) {
    if (self->rank == 0) {
        EXPECT(reopen_with(self, slow_kill_point) == 0);
        gather(self, "op", true, 10000);
        EXPECT(false);
    }
    if (self->rank == 1) {
        uint64_t start_ns = sm_now_ns();
        EXPECT(gather(self, "op", true, 10000) == SYMMEM_PEER_LOST);
        EXPECT(last_record().failed_rank == 0 && last_record().missing_count == 1);
        EXPECT(sm_now_ns() - start_ns < 5000000000); /* at once as well */
        atomic_fetch_add(through, 1);
    } else {
        await_counter(through, 1);
    }
    return 0;
}

TEST("left waiting") {
    char path[FOLDER_BYTES];
    test_rank ranks[3];
    pid_t pids[3];
    atomic_store(through, 0);
    CU_ASSERT_FATAL(fork_world(ranks, pids, 3, body_left_waiting, NULL, path));
    for (int i = 0; i < 3; i++)
        CU_ASSERT_EQUAL(reap(pids[i]), i == 0 ? 1000 + SIGKILL : 0);
    remove_tree(path);
}

/* A process dies, its successor takes its place: the others follow it. */
static int body_successor(test_rank *self) {
    const int *generation = self->arg;
    if (*generation == 1) {
        EXPECT(gather(self, "op", true, 10000) == SYMMEM_OK);
        return 0;
    }
    EXPECT(gather(self, "op", true, 10000) == SYMMEM_OK);
    if (self->rank == 1)
        raise(SIGKILL);
    symmem_status status;
    uint64_t until_ns = sm_deadline_ns(8000);
    while ((status = gather(self, "op", true, 10000)) == SYMMEM_PEER_LOST && !sm_expired(until_ns))
        sm_sleep_ns(1000000); /* or the others' sleeps would not end */
    EXPECT(status == SYMMEM_OK);
    return 0;
}

TEST("successor") {
    char path[FOLDER_BYTES];
    test_rank ranks[3];
    pid_t pids[3];
    int generation = 0;
    CU_ASSERT_FATAL(fork_world(ranks, pids, 3, body_successor, &generation, path));
    CU_ASSERT_EQUAL(reap(pids[1]), 1000 + SIGKILL);
    sm_sleep_ns(200000000);
    generation = 1;
    pid_t next = fork_rank(&ranks[1], path);
    CU_ASSERT_EQUAL(reap(pids[0]), 0);
    CU_ASSERT_EQUAL(reap(pids[2]), 0);
    CU_ASSERT_EQUAL(reap(next), 0);
    CU_ASSERT_EQUAL(count_files(path, 'k'), 3);
    remove_tree(path);
}

/* --- killed with the value read, and its part not taken back -------------------------------- */

typedef struct clean_plan {
    int passes; /* exchanges that rank 1 cleans up after */
    size_t bytes;
    int generation;
} clean_plan;

static symmem_status kill_in_cleaning(void *arg, const char *name) {
    clean_plan *plan = ((test_rank *)arg)->arg;
    if (strcmp(name, "exchange.clean.before") == 0 && plan->passes-- == 0)
        raise(SIGKILL);
    return SYMMEM_OK;
}

static symmem_status gather_bytes(test_rank *self, size_t bytes) {
    unsigned char *in = calloc(1, bytes), *out = malloc(bytes * (size_t)self->world_size);
    symmem_status status = SYMMEM_OUT_OF_MEMORY;
    if (in != NULL && out != NULL)
        status = sm_session_all_gather(self->session, "op", "step", in, bytes, out, true,
                                       sm_deadline_ns(10000));
    free(in);
    free(out);
    return status;
}

static int body_cleaning(test_rank *self) {
    const clean_plan *plan = self->arg;
    if (self->rank == 1 && plan->generation == 0) {
        EXPECT(reopen_with(self, kill_in_cleaning) == 0);
        while (gather_bytes(self, plan->bytes) == SYMMEM_OK) {
        }
        EXPECT(false);
    }
    /* Until rank 1's successor is there, which comes when the others have missed it. */
    symmem_status status = SYMMEM_OK;
    while (status == SYMMEM_OK && plan->generation == 0)
        status = gather_bytes(self, plan->bytes);
    EXPECT(plan->generation == 1 || status == SYMMEM_PEER_LOST);
    leave_together(through, 2);
    const uint64_t until_ns = sm_deadline_ns(8000);
    while ((status = gather(self, "op", true, 10000)) == SYMMEM_PEER_LOST && !sm_expired(until_ns))
        sm_sleep_ns(1000000); /* or the others' sleeps would not end */
    EXPECT(status == SYMMEM_OK);
    return 0;
}

static void killed_in_cleaning(int passes, size_t bytes) {
    char path[FOLDER_BYTES];
    test_rank ranks[3];
    pid_t pids[3];
    clean_plan plan = {.passes = passes, .bytes = bytes};
    atomic_store(through, 0);
    CU_ASSERT_FATAL(fork_world(ranks, pids, 3, body_cleaning, &plan, path));
    CU_ASSERT_EQUAL(reap(pids[1]), 1000 + SIGKILL);
    await_counter(through, 2);
    plan.generation = 1;
    pid_t next = fork_rank(&ranks[1], path);
    CU_ASSERT_EQUAL(reap(pids[0]), 0);
    CU_ASSERT_EQUAL(reap(pids[2]), 0);
    CU_ASSERT_EQUAL(reap(next), 0);
    CU_ASSERT_EQUAL(count_files(path, 'k'), 3); /* the identities */
    remove_tree(path);
}

TEST("killed in cleaning") {
    killed_in_cleaning(0, 8); /* of the bring-up */
    killed_in_cleaning(2, 8);
    killed_in_cleaning(2, 500000); /* read one by one */
}

/* No process comes in their place, and the others give the group up: the last of them leaves
 * nothing of its exchanges in the store. */
typedef struct end_plan {
    const char *point;
    int passes;
    int killed; /* ranks 1 and following */
} end_plan;

static symmem_status kill_in_passing(void *arg, const char *name) {
    end_plan *plan = ((test_rank *)arg)->arg;
    if (strcmp(name, plan->point) == 0 && plan->passes-- == 0)
        raise(SIGKILL);
    return SYMMEM_OK;
}

static int body_given_up(test_rank *self) {
    const end_plan *plan = self->arg;
    const bool dies = self->rank >= 1 && self->rank <= plan->killed;
    if (dies)
        EXPECT(reopen_with(self, kill_in_passing) == 0);
    symmem_status status = SYMMEM_OK;
    while (status == SYMMEM_OK)
        status = gather(self, "op", true, 10000);
    EXPECT(!dies && status == SYMMEM_PEER_LOST);
    leave_together(through, self->world_size - plan->killed);
    return 0;
}

static void given_up(end_plan plan) {
    char path[FOLDER_BYTES];
    test_rank ranks[4];
    pid_t pids[4];
    atomic_store(through, 0);
    CU_ASSERT_FATAL(fork_world(ranks, pids, 4, body_given_up, &plan, path));
    for (int i = 0; i < 4; i++)
        CU_ASSERT_EQUAL(reap(pids[i]), i >= 1 && i <= plan.killed ? 1000 + SIGKILL : 0);
    CU_ASSERT_EQUAL(count_files(path, 'k'), 4); /* the identities */
    remove_tree(path);
}

TEST("given up when one was killed") {
    given_up((end_plan){"exchange.clean.before", 1, 1}); /* behind the bring-up's own exchange */
    given_up((end_plan){"exchange.clean.before", 2, 1});
}

TEST("killed together") {
    given_up((end_plan){"exchange.publish.after", 2, 2});
    given_up((end_plan){"exchange.clean.before", 2, 2});
}

/* A stopped process is not a dead one. */
static int body_stopped(test_rank *self) {
    EXPECT(gather(self, "op", true, 10000) == SYMMEM_OK);
    if (self->rank == 1)
        raise(SIGSTOP);
    else {
        EXPECT(gather(self, "op", true, 500) == SYMMEM_TIMEOUT);
        EXPECT(last_record().failed_rank == 1);
        atomic_fetch_add(through, 1);
    }
    EXPECT(gather(self, "op", true, 10000) == SYMMEM_OK);
    leave_together(through, 5);
    return 0;
}

TEST("stopped") {
    char path[FOLDER_BYTES];
    test_rank ranks[3];
    pid_t pids[3];
    int status = 0;
    atomic_store(through, 0);
    CU_ASSERT_FATAL(fork_world(ranks, pids, 3, body_stopped, NULL, path));
    count_threads(-1);
    const bool stopped =
        pids[1] > 1 && waitpid(pids[1], &status, WUNTRACED) == pids[1] && WIFSTOPPED(status);
    CU_ASSERT_TRUE(stopped);
    await_counter(through, 2); /* in place of the one that stopped, which does not count */
    count_threads(1);
    if (stopped)
        kill(pids[1], SIGCONT);
    for (int i = 0; i < 3; i++)
        CU_ASSERT_EQUAL(reap(pids[i]), 0);
    remove_tree(path);
}

int unit_setup(void) {
    started = shared_counters(2);
    if (started == NULL)
        return 1;
    through = started + 1;
    return 0;
}
