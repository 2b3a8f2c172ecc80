/* SPDX-License-Identifier: BSD-3-Clause */
/* Notes of why ranks leave: whose they are, and which of them is told. */
#include "bootstrap/session_internal.h"
#include "bootstrap/session_agree.h"
#include "bootstrap/session_cause.h"
#include "session_ranks.h"
#include "session_store.h"
#include "unit.h"
#include "last_record.h"

enum { STRANGER = 2 };

/* What a rank of another group, of that number in the world, says of a rank's group. */
static bool contradict(const sm_session *session, int32_t rank, int32_t global_rank,
                       const char *text) {
    /* As in session_cause.c. */
    struct {
        uint32_t kind;
        int32_t global_rank;
        sm_verdict verdict;
    } why;
    uint8_t note[SM_IPC_NOTE_BYTES] = {0};
    sm_ipc_tag tag;
    memset(&why, 0, sizeof(why));
    memset(&tag, 0, sizeof(tag));
    why.kind = 3;
    why.global_rank = global_rank;
    why.verdict.status = SYMMEM_MISMATCH;
    why.verdict.channel = why.verdict.failed_rank = -1;
    sm_copy_text(why.verdict.message, sizeof(why.verdict.message), text);
    memcpy(note, &why, sizeof(why));
    memcpy(tag.nonce, session->joins[rank].nonce, sizeof(tag.nonce));
    tag.source = global_rank;
    tag.kind = SM_IPC_CONTRADICTS;
    return sm_ipc_send_note(session->ipc, session->joins[rank].address,
                            session->joins[rank].address_bytes, &tag, note);
}

static atomic_int said;

/* While the session is up a contradiction is no news of its ranks, and hides none. */
static int body_up(test_rank *self) {
    sm_call call = sm_call_start("op", "step", sm_deadline_ns(10000));
    int32_t all[2];
    EXPECT(sm_session_ensure(self->session, "op", call.deadline_ns) == SYMMEM_OK);
    if (self->rank == 1) {
        EXPECT(contradict(self->session, 0, STRANGER, "another group's"));
        EXPECT(contradict(self->session, 0, 1, "another group's"));
        sm_sleep_ns(100000000);
        const symmem_status status = sm_fail(SYMMEM_NO_SPACE, "op", "step", "there is no room");
        EXPECT(sm_session_give_up(self->session, &call, status) == SYMMEM_NO_SPACE);
        atomic_store(&said, 1);
        return 0;
    }
    await_counter(&said, 1);
    EXPECT(sm_session_given_up_by(self->session) == 1);
    EXPECT(sm_session_all_gather(self->session, "op", "step", &self->rank, sizeof(self->rank), all,
                                 false, call.deadline_ns) == SYMMEM_NO_SPACE);
    EXPECT(last_record().failed_rank == 1);
    EXPECT(strcmp(last_record().message, "rank 1: there is no room") == 0);
    return 0;
}

static void run_two(rank_body body) {
    symmem_store *store = NULL;
    test_rank ranks[2];
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_memory(&store), SYMMEM_OK);
    atomic_store(&said, 0);
    prepare_ranks(ranks, 2, store, body, NULL);
    CU_ASSERT_TRUE(run_threads(ranks, 2));
    symmem_store_close(store);
}

TEST("another group's note hides no peer's") {
    run_two(body_up);
}

/* Gives up because those ranks have ended. */
static int body_loses(test_rank *self, const sm_call *call, uint64_t lost) {
    const uint64_t ranks[SYMMEM_MAX_WORLD_SIZE / 64] = {lost};
    const symmem_status status =
        sm_session_fail_ranks(self->session, call, SYMMEM_PEER_LOST, ranks, "ended");
    EXPECT(sm_session_give_up(self->session, call, status) == SYMMEM_PEER_LOST);
    atomic_store(&said, 1);
    return 0;
}

/* A peer may have taken this rank for an earlier process of its number, which has ended. */
static int body_lives(test_rank *self) {
    sm_call call = sm_call_start("op", "step", sm_deadline_ns(10000));
    int32_t all[2];
    EXPECT(sm_session_ensure(self->session, "op", call.deadline_ns) == SYMMEM_OK);
    if (self->rank == 1)
        return body_loses(self, &call, 1);
    await_counter(&said, 1);
    EXPECT(sm_session_all_gather(self->session, "op", "step", &self->rank, sizeof(self->rank), all,
                                 false, call.deadline_ns) == SYMMEM_TIMEOUT);
    EXPECT(last_record().failed_rank == 1 && last_record().missing_count == 1);
    EXPECT(strstr(last_record().message, "gave up after PEER_LOST in op: rank 0 ended") != NULL);
    return 0;
}

TEST("a rank that lives does not say that it has ended") {
    run_two(body_lives);
}

/* Of the two that the peer has lost, the other one is. */
static int body_two_lost(test_rank *self) {
    sm_call call = sm_call_start("op", "step", sm_deadline_ns(10000));
    int32_t all[3];
    EXPECT(sm_session_ensure(self->session, "op", call.deadline_ns) == SYMMEM_OK);
    if (self->rank == 1)
        return body_loses(self, &call, 1 | 4);
    await_counter(&said, 1);
    if (self->rank == 2)
        return 0;
    EXPECT(sm_session_all_gather(self->session, "op", "step", &self->rank, sizeof(self->rank), all,
                                 false, call.deadline_ns) == SYMMEM_PEER_LOST);
    EXPECT(last_record().missing_count == 1 && last_record().missing[0] == 4);
    return 0;
}

TEST("of several that are lost a rank that lives reports the others") {
    symmem_store *store = NULL;
    test_rank ranks[3];
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_memory(&store), SYMMEM_OK);
    atomic_store(&said, 0);
    prepare_ranks(ranks, 3, store, body_two_lost, NULL);
    CU_ASSERT_TRUE(run_threads(ranks, 3));
    symmem_store_close(store);
}

static symmem_status contradict_at_join(void *arg, const char *name) {
    const test_rank *self = arg;
    if (strcmp(name, "session.join.published") == 0 &&
        !contradict(self->session, self->rank, *(const int32_t *)self->arg, "another list"))
        return SYMMEM_SYSTEM;
    return SYMMEM_OK;
}

/* Its rank is in the world's numbers, and the record's in those of the group. */
static int body_alone(test_rank *self) {
    const int32_t of = *(const int32_t *)self->arg;
    EXPECT(reopen_with(self, contradict_at_join) == 0);
    self->global_ranks[0] = 5;
    self->global_ranks[1] = 3;
    self->global_ranks[2] = 1;
    EXPECT(sm_session_ensure(self->session, "op", sm_deadline_ns(10000)) == SYMMEM_MISMATCH);
    EXPECT(strcmp(last_record().message, "another list") == 0);
    EXPECT(last_record().failed_rank == (of == 1 ? 2 : of == 3 ? 1 : -1));
    return 0;
}

TEST("whose contradiction it is") {
    static int32_t numbers[] = {1, 3, 2, 0, SYMMEM_MAX_WORLD_SIZE - 1};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        symmem_store *store = NULL;
        test_rank ranks[3];
        CU_ASSERT_EQUAL_FATAL(symmem_store_open_memory(&store), SYMMEM_OK);
        prepare_ranks(ranks, 3, store, body_alone, &numbers[i]);
        CU_ASSERT_TRUE(run_threads(ranks, 1));
        symmem_store_close(store);
    }
}
