/* SPDX-License-Identifier: BSD-3-Clause */
/* The results of all notes that a peer may send. */
#include "session_note.h"
#include "unit.h"
#include "last_record.h"

#include <sys/resource.h>

static atomic_int said, heard;

/* Rank 1 sends the note to rank 0, which looks at it with `look`; the others stay meanwhile. */
typedef struct plan {
    note sent;
    int (*look)(test_rank *self, const struct plan *p);
    symmem_status own, wanted; /* rank 0's failure, and what becomes of it */
    int32_t failed_rank;       /* of rank 0's failure; expected in the end: `wanted_rank` */
    int32_t wanted_rank, named;
    uint64_t missing, wanted_missing;
    const char *text; /* the message has it; NULL: nothing was appended */
} plan;

static int body(test_rank *self) {
    const plan *p = self->arg;
    int result = 0;
    EXPECT(sm_session_ensure(self->session, "op", sm_deadline_ns(10000)) == SYMMEM_OK);
    if (self->rank == 1) {
        EXPECT(send(self->session, 0, &p->sent));
        atomic_store(&said, 1);
    }
    if (self->rank == 0) {
        await_counter(&said, 1);
        result = p->look(self, p);
        atomic_store(&heard, 1);
    }
    await_counter(&heard, 1);
    return result;
}

static void run(int32_t count, plan p) {
    symmem_store *store = NULL;
    test_rank ranks[RANKS_MAX];
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_memory(&store), SYMMEM_OK);
    atomic_store(&said, 0);
    atomic_store(&heard, 0);
    prepare_ranks(ranks, count, store, body, &p);
    CU_ASSERT_TRUE(run_threads(ranks, count));
    symmem_store_close(store);
}

/* --- which notes are believed ------------------------------------------------------------------
 */

static int look_who(test_rank *self, const plan *p) {
    EXPECT(sm_session_given_up_by(self->session) == p->wanted_rank);
    return 0;
}

static void expect_believed(note sent, bool believed) {
    run(2, (plan){.sent = sent, .look = look_who, .wanted_rank = believed ? sent.source : -1});
}

TEST("a verdict is one that the group could have made") {
    const sm_verdict good = verdict(SYMMEM_TIMEOUT, 0, 1);
    const note sent = {.tag_kind = SM_IPC_GAVE_UP, .kind = GAVE_UP, .source = 1, .verdict = good};
    note odd[9];
    for (size_t i = 0; i < 9; i++)
        odd[i] = sent;
    expect_believed(sent, true);
    odd[0].source = 2; /* no member */
    odd[1].verdict.status = SYMMEM_OK;
    odd[2].verdict.status = 12345;
    odd[3].verdict.missing[0] = 1 << 2; /* no member */
    odd[4].verdict.missing_count = 2;
    odd[5].verdict.channel = -2;
    odd[6].verdict.failed_rank = -2;
    odd[7].verdict.failed_rank = 2;
    odd[8].verdict.missing[SYMMEM_MAX_WORLD_SIZE / 64 - 1] = 1;
    for (size_t i = 0; i < 9; i++)
        expect_believed(odd[i], false);
}

/* --- which are appended ------------------------------------------------------------------------
 */

static int look_explained(test_rank *self, const plan *p) {
    symmem_error_record record;
    memset(&record, 0, sizeof(record));
    record.failed_rank = p->failed_rank;
    record.missing[0] = p->missing;
    sm_copy_text(record.message, sizeof(record.message), "mine");
    sm_session_explain(self->session, p->named, &record);
    if (p->text == NULL)
        EXPECT(strcmp(record.message, "mine") == 0);
    else
        EXPECT(strstr(record.message, p->text) != NULL);
    sm_session_forget_remarks(self->session);
    sm_copy_text(record.message, sizeof(record.message), "mine");
    sm_session_explain(self->session, p->named, &record);
    EXPECT(p->sent.tag_kind != SM_IPC_REMARK || strcmp(record.message, "mine") == 0);
    return 0;
}

static void expect_appended(uint32_t tag_kind, uint32_t kind, int32_t named, const char *text) {
    const note sent = {tag_kind, kind, 1, verdict(SYMMEM_NO_SPACE, -1, 0)};
    run(2,
        (plan){
            .sent = sent, .look = look_explained, .named = named, .failed_rank = 1, .text = text});
}

TEST("why a rank went") {
    for (int32_t named = -1; named <= 1; named += 2) {
        expect_appended(SM_IPC_GAVE_UP, GAVE_UP, named,
                        "; rank 1 gave up after NO_SPACE in theirs");
        expect_appended(SM_IPC_GAVE_UP, FINALIZED, named, "; rank 1 finalized after NO_SPACE");
        expect_appended(SM_IPC_GAVE_UP, DESTROYED, named, "destroyed the group after NO_SPACE");
        expect_appended(SM_IPC_GAVE_UP, 0, named, NULL);
        expect_appended(SM_IPC_GAVE_UP, REMARKED, named, NULL);
        expect_appended(SM_IPC_REMARK, REMARKED, named, "; rank 1 failed with NO_SPACE in theirs");
    }
    expect_appended(SM_IPC_GAVE_UP, GAVE_UP, 0, NULL); /* it is asked about another one */
    expect_appended(SM_IPC_REMARK, REMARKED, 0, NULL);
}

/* A loss that the record shares with the note: the note's ranks are added, but for this one. */
static int look_who_ended(test_rank *self, const plan *p) {
    symmem_error_record record;
    memset(&record, 0, sizeof(record));
    record.status = p->own;
    record.failed_rank = p->failed_rank;
    record.missing[0] = p->missing;
    sm_session_explain(self->session, p->named, &record);
    EXPECT(record.missing[0] == p->wanted_missing);
    EXPECT(record.failed_rank == p->wanted_rank);
    return 0;
}

static void expect_named(symmem_status own, sm_verdict said_, int32_t wanted_rank,
                         uint64_t wanted_missing) {
    const note sent = {SM_IPC_GAVE_UP, FINALIZED, 1, said_};
    run(3, (plan){.sent = sent,
                  .look = look_who_ended,
                  .named = -1,
                  .own = own,
                  .failed_rank = 1,
                  .missing = 2,
                  .wanted_rank = wanted_rank,
                  .wanted_missing = wanted_missing});
}

TEST("who ended before the peer left") {
    const symmem_status lost = SYMMEM_PEER_LOST, poisoned = SYMMEM_POISONED;
    expect_named(lost, verdict(lost, 2, 4), 2, 6);
    expect_named(lost, verdict(lost, 0, 5), 1, 6); /* this rank lives */
    expect_named(poisoned, verdict(lost, 2, 4), 1, 6);
    expect_named(lost, verdict(poisoned, 2, 4), 2, 6);
    expect_named(lost, verdict(lost, 2, 0), 1, 2);
    expect_named(lost, verdict(SYMMEM_TIMEOUT, 2, 4), 1, 2);
    expect_named(SYMMEM_TIMEOUT, verdict(lost, 2, 4), 1, 2);
}

TEST("a remark is of whom the record names") {
    note sent = {SM_IPC_REMARK, REMARKED, 1, verdict(SYMMEM_NO_SPACE, -1, 0)};
    plan p = {.sent = sent, .look = look_explained, .named = -1, .failed_rank = -1};
    run(2, p); /* the failure names no rank */
    p.missing = 2;
    p.text = "failed with";
    run(2, p);
    p.missing = 1; /* another one */
    p.text = NULL;
    run(2, p);
    p.failed_rank = 1;
    p.sent.source = 2; /* no member */
    run(2, p);
    p.sent.source = 1;
    p.sent.verdict.channel = -2;
    run(2, p);
}

/* --- notes that replace this rank's failure --------------------------------------------------- */

static int look_given_up(test_rank *self, const plan *p) {
    const sm_call call = sm_call_start("op", "step", sm_deadline_ns(10000));
    uint64_t missing[SYMMEM_MAX_WORLD_SIZE / 64] = {p->missing};
    sm_session_fail_ranks(self->session, &call, p->own, missing, "did not arrive");
    if (p->missing == 0)
        (void)sm_error_failed_rank(p->failed_rank);
    EXPECT(sm_session_give_up(self->session, &call, p->own) == p->wanted);
    const symmem_error_record last = last_record(), *record = &last;
    EXPECT(record->status == p->wanted);
    EXPECT(record->failed_rank == p->wanted_rank);
    EXPECT(record->missing[0] == p->wanted_missing);
    EXPECT(strstr(record->message, p->text) != NULL);
    return 0;
}

/* Rank 0 of four fails with `own` and the missing ranks of the bits `missing`, and looks by `look`.
 * Rank 1's note says `said_`. The other arguments are the expected record. */
static void expect_look(int (*look)(test_rank *, const plan *), symmem_status own, uint64_t missing,
                        sm_verdict said_, symmem_status wanted, int32_t wanted_rank,
                        uint64_t wanted_missing, const char *text) {
    const note sent = {SM_IPC_GAVE_UP, GAVE_UP, 1, said_};
    run(4, (plan){.sent = sent,
                  .look = look,
                  .own = own,
                  .missing = missing,
                  .failed_rank = -1,
                  .wanted = wanted,
                  .wanted_rank = wanted_rank,
                  .wanted_missing = wanted_missing,
                  .text = text});
}

static void expect_taken(symmem_status own, uint64_t missing, sm_verdict said_,
                         symmem_status wanted, int32_t wanted_rank, uint64_t wanted_missing,
                         const char *text) {
    expect_look(look_given_up, own, missing, said_, wanted, wanted_rank, wanted_missing, text);
}

TEST("what was first counts") {
    const symmem_status late = SYMMEM_TIMEOUT, lost = SYMMEM_PEER_LOST, full = SYMMEM_NO_SPACE;
    /* Another failure explains whom this rank misses. */
    expect_taken(late, 4, verdict(full, -1, 0), full, 1, 0, "rank 1: what they say");
    expect_taken(lost, 2, verdict(full, 3, 0), full, 3, 0, "rank 1: what they say");
    /* An absent rank stays absent, even if other ranks have left because of it. */
    expect_taken(late, 4, verdict(late, -1, 4), late, 2, 4, "rank 2 did not arrive");
    expect_taken(late, 6, verdict(late, -1, 4), late, 2, 4, "rank 2 did not arrive");
    expect_taken(late, 2, verdict(late, -1, 4), late, 2, 4, "rank 2 did not arrive");
    expect_taken(late, 2, verdict(late, -1, 1), late, 1, 2, "did not arrive"); /* I am here */
    expect_taken(lost, 2, verdict(late, -1, 12), late, -1, 12, "ranks 2, 3 did not arrive");
    /* Unless it is told why. */
    expect_taken(late, 4, verdict(late, 2, 0), late, 2, 0, "rank 1: what they say");
    expect_taken(late, 4, verdict(late, 3, 0), late, 2, 4, "rank 2 did not arrive");
    expect_taken(late, 4, verdict(late, -1, 0), late, 2, 4, "rank 2 did not arrive");
    expect_taken(late, 12, verdict(late, 2, 0), late, -1, 12, "ranks 2, 3 did not arrive");
    expect_taken(late, 2, verdict(late, -1, 0), late, 1, 0, "rank 1: what they say");
    expect_taken(late, 4, verdict(lost, 2, 4), lost, 2, 4, "what they say");
    expect_taken(lost, 2, verdict(late, -1, 1), lost, 1, 2, "did not arrive");
}

/* The cause of the peer that this rank has followed, once its note is no more. */
static int look_recalled(test_rank *self, const plan *p) {
    sm_session_keep_cause(self->session);
    EXPECT(self->session->left_by == 1);
    sm_ipc_destroy(self->session->ipc);
    self->session->ipc = NULL;
    return look_given_up(self, p);
}

static void expect_recalled(uint64_t missing, sm_verdict said_, symmem_status wanted,
                            int32_t wanted_rank, uint64_t wanted_missing, const char *text) {
    expect_look(look_recalled, SYMMEM_TIMEOUT, missing, said_, wanted, wanted_rank, wanted_missing,
                text);
}

TEST("why a peer left that is missing now") {
    const symmem_status late = SYMMEM_TIMEOUT, full = SYMMEM_NO_SPACE;
    expect_recalled(2, verdict(full, -1, 0), full, 1, 0, "rank 1: what they say");
    expect_recalled(2, verdict(late, 2, 4), late, 2, 4, "what they say");
    expect_recalled(4, verdict(full, -1, 0), late, 2, 4, "rank 2 did not arrive");
}

TEST("what is no hearsay stays") {
    const note sent = {SM_IPC_GAVE_UP, GAVE_UP, 1, verdict(SYMMEM_LIMIT, -1, 0)};
    plan p = {.sent = sent, .look = look_given_up, .own = SYMMEM_NO_SPACE, .failed_rank = -1};
    p.wanted = p.own;
    p.wanted_rank = -1;
    p.text = "did not arrive";
    run(2, p);
    p.own = p.wanted = SYMMEM_TIMEOUT; /* its own failure, which others may repeat */
    p.failed_rank = p.wanted_rank = 0;
    run(2, p);
    p.failed_rank = -1;
    p.wanted = SYMMEM_LIMIT;
    p.wanted_rank = 1;
    p.text = "rank 1: what they say";
    run(2, p);
    p.sent.kind = FINALIZED; /* that explains it, and no more */
    p.wanted = SYMMEM_TIMEOUT;
    p.wanted_rank = -1;
    p.text = "; rank 1 finalized after LIMIT";
    run(2, p);
    p.own = p.wanted = SYMMEM_PEER_LOST;
    run(2, p);
}

/* A record has the numbers of its own group. What cannot be this group's is not sent as such. */
static int look_remarked(test_rank *self, const plan *p) {
    symmem_error_record record;
    memset(&record, 0, sizeof(record));
    record.failed_rank = 1;
    await_counter(&said, 2);
    sm_session_explain(self->session, -1, &record);
    EXPECT(strstr(record.message, "; rank 1 failed with LIMIT in op: no room") != NULL);
    return 0;
}

static int body_remarks(test_rank *self) {
    static const plan nothing;
    symmem_error_record record;
    int result = 0;
    EXPECT(sm_session_ensure(self->session, "op", sm_deadline_ns(10000)) == SYMMEM_OK);
    if (self->rank == 1) {
        (void)sm_fail(SYMMEM_LIMIT, "op", "step", "no room");
        (void)sm_error_get(&record);
        sm_copy_text(record.group, sizeof(record.group), "test");
        record.failed_rank = self->world_size; /* of no rank of the group */
        sm_session_remark(self->session, &record);
        atomic_store(&said, 2);
    } else {
        result = look_remarked(self, &nothing);
        atomic_store(&heard, 1);
    }
    await_counter(&heard, 1);
    return result;
}

TEST("a record of other numbers") {
    symmem_store *store = NULL;
    test_rank ranks[2];
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_memory(&store), SYMMEM_OK);
    atomic_store(&said, 0);
    atomic_store(&heard, 0);
    prepare_ranks(ranks, 2, store, body_remarks, NULL);
    CU_ASSERT_TRUE(run_threads(ranks, 2));
    symmem_store_close(store);
}

/* --- without peers ------------------------------------------------------------------------------
 */

static int body_down(test_rank *self) {
    symmem_error_record record;
    memset(&record, 0, sizeof(record));
    record.failed_rank = -1;
    sm_session_forget_remarks(self->session);
    sm_session_remark(self->session, &record);
    sm_session_explain(self->session, -1, &record);
    sm_session_keep_cause(self->session);
    EXPECT(record.message[0] == '\0' && sm_session_given_up_by(self->session) == -1);
    symmem_clear_error();
    sm_session_tell_end(self->session, true); /* nothing has failed */
    EXPECT(self->session->ipc == NULL);
    EXPECT(!sm_session_has_given_up(self->session, 0));
    (void)sm_fail(SYMMEM_LIMIT, "op", "step", "nothing is left");
    struct rlimit all, none; /* no socket to tell anybody from */
    EXPECT(getrlimit(RLIMIT_NOFILE, &all) == 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = all.rlim_max};
    EXPECT(setrlimit(RLIMIT_NOFILE, &none) == 0);
    sm_session_tell_end(self->session, true);
    EXPECT(setrlimit(RLIMIT_NOFILE, &all) == 0);
    EXPECT(self->session->ipc == NULL);
    EXPECT(last_record().status == SYMMEM_LIMIT);
    EXPECT(strcmp(last_record().message, "nothing is left") == 0);
    sm_session_tell_end(self->session, true);
    EXPECT((self->session->ipc != NULL) == (self->world_size > 1));
    EXPECT(last_record().status == SYMMEM_LIMIT);
    sm_session_remark(self->session, &record); /* a socket, and no session */
    const sm_ipc *const first = self->session->ipc;
    sm_session_tell_end(self->session, false);
    EXPECT(self->session->ipc == first);
    return 0;
}

TEST("a session that is down") {
    for (int32_t count = 1; count <= 2; count++) {
        symmem_store *store = NULL;
        test_rank ranks[2];
        CU_ASSERT_EQUAL_FATAL(symmem_store_open_memory(&store), SYMMEM_OK);
        prepare_ranks(ranks, count, store, body_down, NULL);
        CU_ASSERT_TRUE(run_threads(ranks, 1));
        symmem_store_close(store);
    }
}
