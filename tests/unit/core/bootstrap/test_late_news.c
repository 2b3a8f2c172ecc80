/* SPDX-License-Identifier: BSD-3-Clause */
/* What it costs many ranks that one of them has ended, and what a rank is told that comes late. */
#include "bootstrap/exit_record.h"
#include "bootstrap/session_cause.h"
#include "bootstrap/session_internal.h"
#include "session_ranks.h"
#include "session_store.h"
#include "unit.h"

/* --- few ranks tell all --------------------------------------------------------------------- */

enum { RANKS = 9, TELLERS = 4, VICTIM = RANKS - 1 };

static atomic_int *told; /* ranks that have failed, in memory that forked ranks share */

/* The ranks fail one after the other. The first ones tell the others; what they said is enough for
 * the rest. */
static int body_in_turn(test_rank *self) {
    uint64_t met[SYMMEM_MAX_WORLD_SIZE / 64] = {0};
    self->session->config.met = met;
    EXPECT(gather(self, "op", true, 10000) == SYMMEM_OK);
    if (self->rank == VICTIM)
        raise(SIGKILL);
    await_counter(told, self->rank + 1);
    memset(met, 0, sizeof(met));
    EXPECT(gather(self, "op", false, 10000) == SYMMEM_PEER_LOST);
    EXPECT(last_record().failed_rank == VICTIM && last_record().missing_count == 1);
    const int notes = __builtin_popcountll(met[0]);
    EXPECT(notes == (self->rank < TELLERS ? RANKS - 2 - self->rank : 0));
    leave_together(told, RANKS);
    return 0;
}

TEST("few tell all") {
    char path[FOLDER_BYTES];
    test_rank ranks[RANKS];
    pid_t pids[RANKS];
    told = shared_counters(1);
    CU_ASSERT_PTR_NOT_NULL_FATAL(told);
    CU_ASSERT_FATAL(fork_world(ranks, pids, RANKS, body_in_turn, NULL, path));
    CU_ASSERT_EQUAL(reap(pids[VICTIM]), 1000 + SIGKILL);
    atomic_store(told, 1);
    for (int i = 0; i < VICTIM; i++)
        CU_ASSERT_EQUAL(reap(pids[i]), 0);
    remove_tree(path);
    (void)munmap(told, sizeof(*told));
}

/* --- a rank that left for an earlier job ---------------------------------------------------- */

static sm_identity identity_of_the_dead(void) {
    sm_identity identity;
    int ends[2];
    memset(&identity, 0, sizeof(identity));
    CU_ASSERT_EQUAL_FATAL(pipe(ends), 0);
    const pid_t pid = fork();
    CU_ASSERT_FATAL(pid >= 0);
    if (pid == 0) {
        const bool is_told = sm_identity_self(&identity) == SYMMEM_OK &&
                             write(ends[1], &identity, sizeof(identity)) == sizeof(identity);
        _exit(is_told ? 0 : 1);
    }
    CU_ASSERT_EQUAL(read(ends[0], &identity, sizeof(identity)), sizeof(identity));
    close(ends[0]);
    close(ends[1]);
    CU_ASSERT_EQUAL(reap(pid), 0);
    return identity;
}

static sm_identity dead;
static bool is_earlier_jobs; /* what rank 2 has told in the store */

/* Rank 1 was there and has finalized. It left no record of its own, because rank 2 has. */
static int body_waits(test_rank *self) {
    const sm_world world = {
        .store = self->store, .prefix = "w", .identity = &dead, .rank = 2, .size = 3};
    char text[80];
    (void)snprintf(text, sizeof(text), "rank 0 ended (%s)", SM_MAY_BE_EARLIER);
    (void)sm_fail(is_earlier_jobs ? SYMMEM_PEER_LOST : SYMMEM_LIMIT, "op", "", "%s", text);
    const symmem_error_record record = last_record();
    sm_exit_record_leave(&world, &record);
    EXPECT(sm_exit_record_any_earlier(&world) == is_earlier_jobs);
    symmem_clear_error();
    sm_liveness_learn(self->liveness, 1, &dead);
    EXPECT(gather(self, "op", false, 10000) == SYMMEM_PEER_LOST);
    EXPECT(last_record().failed_rank == 1);
    EXPECT((strstr(last_record().message, SM_EARLIER_JOB) != NULL) == is_earlier_jobs);
    return 0;
}

TEST("a neighbor ended for an earlier job") {
    dead = identity_of_the_dead();
    is_earlier_jobs = true;
    CU_ASSERT_TRUE(run_first(1, 3, body_waits));
    is_earlier_jobs = false;
    CU_ASSERT_TRUE(run_first(1, 3, body_waits));
}

/* The store within is the ranks'. */
static void leave_open(void *self) {}

/* Rank 1 has finalized and rank 2 was killed. The first may have left because of the second. */
static int body_two_ended(test_rank *self) {
    counting c = {.inner = self->store};
    symmem_store_ops ops = counting_ops;
    symmem_store *counted;
    char key[SYMMEM_STORE_KEY_MAX + 1];
    sm_member killed;
    ops.close = leave_open;
    memset(&killed, 0, sizeof(killed));
    killed.identity = dead;
    killed.rank = 2;
    killed.world_size = self->world_size;
    killed.published_ns = sm_since_boot_ns() + 1000000000u; /* of this job */
    sm_identity_key("w", 2, key, sizeof(key));
    EXPECT(symmem_store_set(self->store, key, &killed, sizeof(killed), 0) == SYMMEM_OK);
    EXPECT(symmem_store_open_custom(&ops, &c, &counted) == SYMMEM_OK);
    symmem_store *const own = self->session->config.store;
    self->session->config.store = counted;
    sm_liveness_learn(self->liveness, 1, &dead);
    EXPECT(gather(self, "op", false, 10000) == SYMMEM_PEER_LOST);
    EXPECT(last_record().failed_rank == 2);
    EXPECT(atomic_load(&c.removes) == 0); /* its own record goes later */
    self->session->config.store = own;
    symmem_store_close(counted);
    return 0;
}

TEST("the killed one is named") {
    dead = identity_of_the_dead();
    CU_ASSERT_TRUE(run_first(1, 3, body_two_ended));
}

/* Others may come and go for this one's news before it finalizes, and leave nothing that tells why.
 */
static int body_finds_an_earlier_job(test_rank *self) {
    const sm_world world = {.store = self->store, .prefix = "w"};
    sm_member earlier;
    memset(&earlier, 0, sizeof(earlier));
    earlier.identity = dead;
    earlier.rank = 1;
    earlier.world_size = self->world_size;
    earlier.published_ns = 1;
    EXPECT(symmem_store_set(self->store, "w/id/1", &earlier, sizeof(earlier), 0) == SYMMEM_OK);
    EXPECT(gather(self, "op", false, 10000) == SYMMEM_PEER_LOST);
    EXPECT(strstr(last_record().message, SM_MAY_BE_EARLIER) != NULL);
    EXPECT(sm_exit_record_any_earlier(&world));
    return 0;
}

/* --- the next process comes while the earlier one is judged --------------------------------- */

enum { LOOKS_MOST = 200, NOT_THERE_YET_MS = 1000 };

static counting arriving_store;
static sm_member arriving;    /* rank 1's next process */
static atomic_int looks_till; /* looks at who rank 1 is, before that process is there */

static symmem_status arriving_get(void *self, const char *key, void *value, size_t capacity,
                                  size_t *bytes_p, uint32_t timeout_ms) {
    if (strcmp(key, "w/id/1") == 0 && atomic_fetch_sub(&looks_till, 1) == 1)
        (void)!symmem_store_set(arriving_store.inner, key, &arriving, sizeof(arriving), 0);
    return c_get(self, key, value, capacity, bytes_p, timeout_ms);
}

/* Rank 1 does not join in time. It has not ended. */
static int body_waits_for_the_next(test_rank *self) {
    symmem_store_ops ops = counting_ops;
    symmem_store *const own = self->session->config.store;
    symmem_store *store;
    ops.get = arriving_get;
    ops.close = leave_open;
    memset(&arriving_store, 0, sizeof(arriving_store));
    arriving_store.inner = self->store;
    memset(&arriving, 0, sizeof(arriving));
    arriving.rank = 1;
    arriving.world_size = self->world_size;
    sm_member earlier = arriving;
    earlier.identity = dead;
    earlier.published_ns = 1;
    arriving.identity = self->identity; /* a process that lives */
    arriving.published_ns = sm_since_boot_ns() + 1000000000u;
    EXPECT(symmem_store_set(self->store, "w/id/1", &earlier, sizeof(earlier), 0) == SYMMEM_OK);
    EXPECT(symmem_store_open_custom(&ops, &arriving_store, &store) == SYMMEM_OK);
    self->session->config.store = store;
    const symmem_status status = gather(self, "op", false, NOT_THERE_YET_MS);
    EXPECT(last_record().missing_count == 1);
    EXPECT(status == SYMMEM_TIMEOUT || (status == SYMMEM_PEER_LOST &&
                                        strstr(last_record().message, SM_MAY_BE_EARLIER) != NULL));
    self->session->config.store = own;
    symmem_store_close(store);
    return 0;
}

TEST("a process that comes while its predecessor is judged has not ended") {
    int looks = 1;
    dead = identity_of_the_dead();
    do {
        atomic_store(&looks_till, looks);
        const bool is_fine = run_first(1, 2, body_waits_for_the_next);
        if (!is_fine)
            printf("the next process came at look %d\n", looks);
        CU_ASSERT_TRUE(is_fine);
    } while (atomic_load(&looks_till) <= 0 && ++looks < LOOKS_MOST);
    CU_ASSERT_TRUE(looks > 3 && looks < LOOKS_MOST);
}

TEST("an earlier job is marked before others are told") {
    dead = identity_of_the_dead();
    CU_ASSERT_TRUE(run_first(1, 2, body_finds_an_earlier_job));
}

static const char *failing_group;
static atomic_int steps;

/* Rank 1 finalizes because rank 2 has ended, as it says. */
static int body_left_for_a_loss(test_rank *self) {
    const bool is_of_this = strcmp(failing_group, "test") == 0;
    EXPECT(gather(self, "op", true, 10000) == SYMMEM_OK);
    if (self->rank == 1) {
        (void)sm_fail(SYMMEM_PEER_LOST, "op", "", "rank 2 ended");
        (void)sm_error_missing(2);
        symmem_error_record record = last_record();
        sm_copy_text(record.group, sizeof(record.group), failing_group);
        (void)sm_error_raise(&record);
        sm_session_tell_end(self->session, true);
        atomic_fetch_add(&steps, 1);
    } else if (self->rank == 0) {
        symmem_error_record record = {.status = SYMMEM_POISONED, .failed_rank = 1};
        await_counter(&steps, 1);
        sm_session_explain(self->session, -1, &record);
        EXPECT(strstr(record.message, "rank 1 finalized after PEER_LOST") != NULL);
        EXPECT(record.failed_rank == 1 && record.missing_count == (is_of_this ? 1 : 0));
        EXPECT(symmem_error_is_missing(&record, 2) == is_of_this);
        record = (symmem_error_record){.status = SYMMEM_PEER_LOST, .failed_rank = 1};
        record.missing_count = 1;
        record.missing[0] = 1u << 1;
        sm_session_explain(self->session, -1, &record);
        EXPECT(record.failed_rank == (is_of_this ? 2 : 1));
        EXPECT(record.missing[0] == (is_of_this ? 6 : 2));
        EXPECT(record.missing_count == (is_of_this ? 2 : 1));
        atomic_fetch_add(&steps, 1);
    }
    await_counter(&steps, 2);
    return 0;
}

TEST("who left for a loss names the lost") {
    static const char *const groups[] = {"test", "other"}; /* which has other numbers */
    for (int i = 0; i < 2; i++) {
        failing_group = groups[i];
        atomic_store(&steps, 0);
        CU_ASSERT_TRUE(run_first(3, 3, body_left_for_a_loss));
    }
}

#define AFTER_SOME_LOOKS_NS 220000000u

static symmem_status killed_before_it_is_met(void *arg, const char *name) {
    (void)arg;
    if (strcmp(name, "session.join.published") != 0)
        return SYMMEM_OK;
    sm_sleep_ns(AFTER_SOME_LOOKS_NS);
    raise(SIGKILL);
    return SYMMEM_OK;
}

/* Rank 0 waits for rank 1, and has read the record of rank 2. Between two of its looks rank 1
 * leaves in good order and rank 2 is killed. */
static int body_both_end(test_rank *self) {
    if (self->rank == 0) {
        EXPECT(gather(self, "op", false, 10000) == SYMMEM_PEER_LOST);
        EXPECT(last_record().failed_rank == 2 && last_record().missing_count == 1);
        return 0;
    }
    EXPECT(reopen_with(self, killed_before_it_is_met) == 0);
    if (self->rank == 2)
        (void)gather(self, "op", false, 10000);
    sm_sleep_ns(AFTER_SOME_LOOKS_NS);
    EXPECT(symmem_store_remove(self->store, "w/id/1", 0) == SYMMEM_OK);
    raise(SIGKILL); /* the key has gone: to the others it has finalized */
    return 0;
}

TEST("the killed one is named, and not one before it that left") {
    char path[FOLDER_BYTES];
    test_rank ranks[3];
    pid_t pids[3];
    CU_ASSERT_FATAL(fork_world(ranks, pids, 3, body_both_end, NULL, path));
    for (int i = 0; i < 3; i++)
        CU_ASSERT_EQUAL(reap(pids[i]), i == 0 ? 0 : 1000 + SIGKILL);
    remove_tree(path);
}

/* --- a word that an earlier job has left ---------------------------------------------------- */

typedef struct left_word { /* as in member.c */
    sm_identity identity;
    uint64_t made_ns;
} left_word;

static bool is_read(symmem_store *store, const sm_member *own, uint64_t made_ns, size_t bytes) {
    left_word word;
    sm_identity found;
    memset(&word, 0, sizeof(word));
    word.identity = own->identity;
    word.made_ns = made_ns;
    CU_ASSERT_EQUAL(symmem_store_set(store, "w/left/1", &word, bytes, 0), SYMMEM_OK);
    return sm_member_read_left(store, "w", own, 1, &found);
}

TEST("a word of an earlier job") {
    sm_member own;
    symmem_store *store = NULL;
    memset(&own, 0, sizeof(own));
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_memory(&store), SYMMEM_OK);
    CU_ASSERT_EQUAL_FATAL(sm_identity_self(&own.identity), SYMMEM_OK);
    own.published_ns = 1000;
    CU_ASSERT(is_read(store, &own, 1001, sizeof(left_word)));
    CU_ASSERT(!is_read(store, &own, 999, sizeof(left_word)));
    CU_ASSERT(!is_read(store, &own, 1001, sizeof(left_word) - 1));
    own.identity.boot_id = 0; /* by another clock nothing is known */
    CU_ASSERT(is_read(store, &own, 999, sizeof(left_word)));
    symmem_store_close(store);
}
