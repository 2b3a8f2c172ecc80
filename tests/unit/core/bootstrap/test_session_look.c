/* SPDX-License-Identifier: BSD-3-Clause */
/* The results of all join records and identities that a rank may find in the store. */
#include "bootstrap/session_internal.h"
#include "bootstrap/session_watch.h"
#include "session_ranks.h"
#include "session_store.h"
#include "unit.h"
#include "last_record.h"

static sm_join join_of(const test_rank *self) {
    const sm_join *own = &self->session->joins[self->rank];
    sm_join join;
    memset(&join, 0, sizeof(join));
    join.magic = own->magic;
    join.version = own->version;
    join.identity = self->identity; /* of a process that lives */
    join.count = self->world_size;
    join.list = sm_session_list(self->session);
    join.made_ns = sm_since_boot_ns();
    return join;
}

/* Reads what rank 1 has left there. */
static symmem_status read_left(test_rank *self, const void *value, size_t bytes) {
    const sm_call call = sm_call_start("op", "join", sm_deadline_ns(10000));
    char key[SM_SESSION_KEY_BYTES];
    sm_join found;
    sm_session_join_key(self->session, 1, key);
    if (symmem_store_set(self->store, key, value, bytes, 0) != SYMMEM_OK)
        return SYMMEM_SYSTEM;
    symmem_clear_error();
    return sm_session_read_join(self->session, &call, 1, &found);
}

static symmem_status read_join(test_rank *self, const sm_join *join) {
    return read_left(self, join, sizeof(*join));
}

static int body_versions(test_rank *self) {
    char large[sizeof(sm_join) + 1] = {0};
    sm_join *own = &self->session->joins[0];
    own->magic = SM_JOIN_MAGIC;
    own->version = SM_JOIN_VERSION;
    const sm_join good = join_of(self);
    EXPECT(read_join(self, &good) == SYMMEM_OK);
    sm_join odd[4] = {good, good, good, good};
    odd[0].magic++;
    odd[1].version++;
    odd[2].address_bytes = sizeof(good.address) + 1;
    for (int i = 0; i < 3; i++) {
        EXPECT(read_join(self, &odd[i]) == SYMMEM_MISMATCH);
        EXPECT(last_record().failed_rank == 1);
        EXPECT(strstr(last_record().message, "of another version of the library") != NULL);
    }
    EXPECT(read_left(self, &good, sizeof(good) - 1) == SYMMEM_MISMATCH);
    EXPECT(read_left(self, large, sizeof(large)) == SYMMEM_MISMATCH);
    odd[3].list++;
    EXPECT(read_join(self, &odd[3]) == SYMMEM_MISMATCH);
    EXPECT(strstr(last_record().message, "has the ranks") != NULL);
    odd[3] = good;
    odd[3].count++;
    EXPECT(read_join(self, &odd[3]) == SYMMEM_MISMATCH);
    self->session->id = 7; /* up: it waits for no other list, unless it is joining again */
    EXPECT(read_join(self, &odd[3]) == SYMMEM_NOT_FOUND);
    EXPECT(read_join(self, &good) == SYMMEM_OK);
    self->session->joining = true;
    EXPECT(read_join(self, &odd[3]) == SYMMEM_MISMATCH);
    self->session->joining = false;
    self->session->id = 0;
    return 0;
}

/* Rank 1's key in the world: what a look for it learns. */
static symmem_status look_up(test_rank *self, const void *value, size_t bytes) {
    const sm_call call = sm_call_start("op", "join", sm_deadline_ns(10000));
    char key[SYMMEM_STORE_KEY_MAX + 1];
    sm_identity_key("w", 1, key, sizeof(key));
    if (symmem_store_set(self->store, key, value, bytes, 0) != SYMMEM_OK)
        return SYMMEM_SYSTEM;
    return sm_session_look_up(self->session, &call, 1);
}

static int body_identities(test_rank *self) {
    const sm_call call = sm_call_start("op", "join", sm_deadline_ns(10000));
    char key[SYMMEM_STORE_KEY_MAX + 1];
    sm_member member;
    memset(&member, 0, sizeof(member));
    member.identity = self->identity;
    member.rank = 1;
    member.world_size = self->world_size;
    EXPECT(look_up(self, &member, sizeof(member) - 1) == SYMMEM_OK);
    EXPECT(!sm_liveness_knows(self->liveness, 1));
    EXPECT(!sm_session_has_left(self->session, &call, 1)); /* its key is there */
    sm_identity_key("w", 1, key, sizeof(key));
    EXPECT(symmem_store_remove(self->store, key, 0) == SYMMEM_OK);
    EXPECT(!sm_session_has_left(self->session, &call, 1)); /* it was never known */
    EXPECT(look_up(self, &self->identity, sizeof(self->identity)) == SYMMEM_OK);
    EXPECT(sm_liveness_knows(self->liveness, 1));
    EXPECT(look_up(self, &member, sizeof(member)) == SYMMEM_OK); /* known already */
    EXPECT(!sm_session_has_left(self->session, &call, 1));
    EXPECT(symmem_store_remove(self->store, key, 0) == SYMMEM_OK);
    EXPECT(sm_session_has_left(self->session, &call, 1));
    return 0;
}

static int body_members(test_rank *self) {
    sm_member member;
    memset(&member, 0, sizeof(member));
    member.identity = self->identity;
    member.rank = 1;
    member.world_size = self->world_size;
    EXPECT(look_up(self, &member, sizeof(member)) == SYMMEM_OK);
    EXPECT(sm_liveness_knows(self->liveness, 1));
    EXPECT(!sm_session_peer_is_ending(self->session, 1));
    EXPECT(sm_session_peer_state(self->session, 1) != SYMMEM_PEER_GONE);
    return 0;
}

/* A store that is out of time before the call is: whose failure that is. */
static int body_store_times_out(test_rank *self) {
    sm_call call = sm_call_start("op", "join", sm_deadline_ns(10000));
    (void)sm_fail(SYMMEM_TIMEOUT, "store_get", "", "deadline passed");
    EXPECT(sm_session_store_failed(self->session, &call, SYMMEM_TIMEOUT) == SYMMEM_TIMEOUT);
    EXPECT(last_record().failed_rank == 0);
    (void)sm_fail(SYMMEM_SYSTEM, "store_get", "", "broken");
    EXPECT(sm_session_store_failed(self->session, &call, SYMMEM_SYSTEM) == SYMMEM_SYSTEM);
    EXPECT(last_record().failed_rank == -1);
    call.deadline_ns = 1; /* long ago */
    (void)sm_fail(SYMMEM_TIMEOUT, "store_get", "", "deadline passed");
    EXPECT(sm_session_store_failed(self->session, &call, SYMMEM_TIMEOUT) == SYMMEM_TIMEOUT);
    EXPECT(last_record().failed_rank == -1);
    return 0;
}

/* A store whose server has gone names the rank that ran it, by its number in the group. */
static int body_server_is_lost(test_rank *self) {
    const sm_call call = sm_call_start("op", "join", sm_deadline_ns(10000));
    (void)sm_fail(SYMMEM_PEER_LOST, "store_get", SM_STORE_SERVER_STAGE, "the server has gone");
    EXPECT(sm_session_describe(self->session, &call, SYMMEM_PEER_LOST) == SYMMEM_PEER_LOST);
    EXPECT(last_record().failed_rank == 0 && last_record().missing_count == 1);
    EXPECT(last_is_missing(0));
    self->global_ranks[0] = 5; /* it is no member */
    (void)sm_fail(SYMMEM_PEER_LOST, "store_get", SM_STORE_SERVER_STAGE, "the server has gone");
    EXPECT(sm_session_describe(self->session, &call, SYMMEM_PEER_LOST) == SYMMEM_PEER_LOST);
    EXPECT(last_record().failed_rank == -1 && last_record().missing_count == 0);
    /* One that does not answer is no failure of this rank's, however early it is noticed. */
    (void)sm_fail(SYMMEM_TIMEOUT, "store_get", SM_STORE_SERVER_STAGE, "no answer");
    EXPECT(sm_session_store_failed(self->session, &call, SYMMEM_TIMEOUT) == SYMMEM_TIMEOUT);
    EXPECT(last_record().failed_rank == -1 && last_record().missing_count == 0);
    self->global_ranks[0] = 0;
    (void)sm_fail(SYMMEM_TIMEOUT, "store_get", SM_STORE_SERVER_STAGE, "no answer");
    EXPECT(sm_session_store_failed(self->session, &call, SYMMEM_TIMEOUT) == SYMMEM_TIMEOUT);
    EXPECT(last_record().failed_rank == 0 && last_record().missing_count == 1);
    (void)sm_fail(SYMMEM_PEER_LOST, "store_get", "elsewhere", "a rank has gone");
    (void)sm_error_failed_rank(1);
    EXPECT(sm_session_describe(self->session, &call, SYMMEM_PEER_LOST) == SYMMEM_PEER_LOST);
    EXPECT(last_record().failed_rank == 1);
    (void)sm_fail(SYMMEM_SYSTEM, "store_get", SM_STORE_SERVER_STAGE, "broken");
    EXPECT(sm_session_describe(self->session, &call, SYMMEM_SYSTEM) == SYMMEM_SYSTEM);
    EXPECT(last_record().failed_rank == -1);
    return 0;
}

enum { AS_IT_IS = -1 };
static atomic_int answer = AS_IT_IS; /* to who asks for any rank */

symmem_peer_state __real_sm_liveness_ask_of(sm_liveness *liveness, int32_t rank,
                                            const sm_identity *identity);
symmem_peer_state __wrap_sm_liveness_ask_of(sm_liveness *liveness, int32_t rank,
                                            const sm_identity *identity);
symmem_peer_state __wrap_sm_liveness_ask_of(sm_liveness *liveness, int32_t rank,
                                            const sm_identity *identity) {
    const int given = atomic_load(&answer);
    return given == AS_IT_IS ? __real_sm_liveness_ask_of(liveness, rank, identity)
                             : (symmem_peer_state)given;
}

/* What rank 1 has left: its key in the world and its join record. 0 bytes: none. */
typedef struct traces {
    size_t member_bytes, join_bytes;
    bool is_recent, has_ended;
    bool may_be_earlier, member_stays, join_stays;
} traces;

static bool is_there(const test_rank *self, const char *key) {
    char value[sizeof(sm_join)];
    size_t bytes;
    return symmem_store_get(self->store, key, value, sizeof value, &bytes, 1) == SYMMEM_OK;
}

static int leave(const test_rank *self, const char *key, const void *value, size_t bytes) {
    if (bytes == 0)
        (void)!symmem_store_remove(self->store, key, 0);
    else if (symmem_store_set(self->store, key, value, bytes, 0) != SYMMEM_OK)
        return 1;
    return 0;
}

static int check_traces(test_rank *self, const traces *row) {
    const sm_call call = sm_call_start("op", "join", sm_deadline_ns(10000));
    char member_key[SYMMEM_STORE_KEY_MAX + 1], join_key[SM_SESSION_KEY_BYTES];
    sm_member member;
    sm_join join = join_of(self);
    memset(&member, 0, sizeof(member));
    member.identity = self->identity;
    member.identity.start_time++; /* another process's, by the same clock */
    member.rank = 1;
    member.world_size = self->world_size;
    member.published_ns = row->is_recent ? sm_since_boot_ns() + 1000000000u : 1;
    join.identity = member.identity;
    join.made_ns = member.published_ns;
    sm_identity_key("w", 1, member_key, sizeof(member_key));
    sm_session_join_key(self->session, 1, join_key);
    EXPECT(leave(self, member_key, &member, row->member_bytes) == 0);
    EXPECT(leave(self, join_key, &join, row->join_bytes) == 0);
    atomic_store(&answer, row->has_ended ? SYMMEM_PEER_GONE : SYMMEM_PEER_ALIVE);
    EXPECT(sm_session_may_be_earlier(self->session, &call, 1) == row->may_be_earlier);
    sm_session_remove_traces(self->session, &call, 1);
    atomic_store(&answer, AS_IT_IS);
    EXPECT(is_there(self, member_key) == row->member_stays);
    EXPECT(is_there(self, join_key) == row->join_stays);
    return 0;
}

static int body_traces(test_rank *self) {
    const size_t member = sizeof(sm_member), identity = sizeof(sm_identity), join = sizeof(sm_join);
    const traces rows[] = {
        {member, 0, false, true, true, false, false},
        {member, 0, true, true, false, false, false}, /* made after this process has begun */
        {member, 0, false, false, false, true, false},
        {identity, 0, true, true, true, true, false}, /* without a time */
        {member - 1, 0, false, true, false, true, false},
        {member - 1, join, false, true, true, true, false},
        {0, join, false, true, true, false, false},
        {0, join, true, true, false, false, false},
        {0, join, false, false, false, false, true},
        {0, join - 1, false, true, false, false, true},
        {0, 0, false, true, false, false, false},
    };
    sm_join *own = &self->session->joins[0];
    own->magic = SM_JOIN_MAGIC;
    own->version = SM_JOIN_VERSION;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const int line = check_traces(self, &rows[i]);
        if (line != 0)
            fprintf(stderr, "row %zu\n", i);
        EXPECT(line == 0);
    }
    return 0;
}

TEST("what is in the store") {
    static const rank_body bodies[] = {body_versions,        body_identities,     body_members,
                                       body_store_times_out, body_server_is_lost, body_traces};
    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++)
        CU_ASSERT_TRUE(run_first(1, 2, bodies[i]));
}

/* The session's own report when it cannot be created. */
TEST("a session that cannot be") {
    char prefix[SYMMEM_STORE_KEY_MAX + 1];
    sm_session *session = NULL;
    sm_session_config config = {.prefix = prefix, .world_size = 2};
    memset(prefix, 'p', sizeof(prefix) - 1);
    prefix[sizeof(prefix) - 1] = '\0';
    EXPECT_FAIL(sm_session_create(&config, &session), SYMMEM_INVALID_ARGUMENT, "group_create");
    config.world_size = 1; /* it has no keys */
    EXPECT_OK(sm_session_create(&config, &session));
    sm_session_destroy(session);
    sm_session_destroy(NULL);
}

/* --- the cost of the news ------------------------------------------------------------------- */

#define GETS_IN_FAILING 3 /* also for a world of hundreds of ranks */

static atomic_int *through; /* in memory that forked ranks share */

/* Rank 0 calls when all others have ended. */
static int body_last(test_rank *self) {
    static counting c; /* the store is closed after this function */
    c.inner = self->store;
    EXPECT(gather(self, "op", true, 10000) == SYMMEM_OK);
    if (self->rank != 0)
        raise(SIGKILL);
    await_counter(through, 1);
    symmem_store *const own = self->store;
    EXPECT(symmem_store_open_custom(&counting_ops, &c, &self->store) == SYMMEM_OK);
    self->session->config.store = self->store;
    EXPECT(gather(self, "op", false, 10000) == SYMMEM_PEER_LOST);
    EXPECT(last_record().missing_count == (uint32_t)self->world_size - 1);
    EXPECT(atomic_load(&c.gets) <= GETS_IN_FAILING);
    self->session->config.store = own;
    return 0; /* the counting store stays open: its end would be that of the other one */
}

TEST("many have ended") {
    char path[FOLDER_BYTES];
    enum { RANKS = 12 };
    test_rank ranks[RANKS];
    pid_t pids[RANKS];
    through = shared_counters(1);
    CU_ASSERT_PTR_NOT_NULL_FATAL(through);
    CU_ASSERT_FATAL(fork_world(ranks, pids, RANKS, body_last, NULL, path));
    for (int i = 1; i < RANKS; i++)
        CU_ASSERT_EQUAL(reap(pids[i]), 1000 + SIGKILL);
    atomic_store(through, 1);
    CU_ASSERT_EQUAL(reap(pids[0]), 0);
    remove_tree(path);
    (void)munmap(through, sizeof(*through));
}
