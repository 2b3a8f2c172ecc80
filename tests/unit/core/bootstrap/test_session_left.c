/* SPDX-License-Identifier: BSD-3-Clause */
/* The results of what a rank that ended has left. */
#include "session_note.h"
#include "bootstrap/session_watch.h"
#include "unit.h"
#include "last_record.h"

#include <time.h>

static sm_identity ended; /* a process's */

static bool find_ended(void) {
    int ends[2];
    if (pipe(ends) != 0)
        return false;
    const pid_t pid = fork();
    if (pid == 0) {
        sm_identity own;
        memset(&own, 0, sizeof(own));
        _exit(sm_identity_self(&own) == SYMMEM_OK &&
                      write(ends[1], &own, sizeof(own)) == (ssize_t)sizeof(own)
                  ? 0
                  : 1);
    }
    close(ends[1]);
    const bool got = pid > 1 && read(ends[0], &ended, sizeof(ended)) == (ssize_t)sizeof(ended) &&
                     waitpid(pid, NULL, 0) == pid;
    close(ends[0]);
    return got;
}

static uint64_t seconds(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec;
}

static sm_join left_by(const test_rank *self, const sm_identity *identity, uint64_t stands_s) {
    sm_join join;
    memset(&join, 0, sizeof(join));
    join.identity = *identity;
    join.count = self->world_size;
    join.list = sm_session_list(self->session);
    join.made_ns = sm_since_boot_ns() + 1000000000u; /* after the tick in which this one began */
    join.stands_until_s = stands_s == 0 ? 0 : seconds() + stands_s;
    join.failed_rank = 2;
    sm_copy_text(join.cause, sizeof(join.cause), "what was wrong");
    return join;
}

static int body_stands(test_rank *self) {
    const sm_call call = sm_call_start("op", "join", sm_deadline_ns(10000));
    sm_join join = left_by(self, &ended, 30);
    EXPECT(sm_session_stood(self->session, &call, 1, &join) == SYMMEM_MISMATCH);
    EXPECT(last_record().failed_rank == 2 &&
           strstr(last_record().message, "what was wrong") != NULL);
    join.count++; /* of a group that has other numbers */
    EXPECT(sm_session_stood(self->session, &call, 1, &join) == SYMMEM_MISMATCH);
    EXPECT(last_record().failed_rank == 1);
    join = left_by(self, &ended, 30);
    join.list++;
    EXPECT(sm_session_stood(self->session, &call, 1, &join) == SYMMEM_MISMATCH);
    EXPECT(last_record().failed_rank == 1);
    for (int32_t odd = -2; odd <= self->world_size; odd += self->world_size + 2) {
        join = left_by(self, &ended, 30);
        join.failed_rank = odd;
        EXPECT(sm_session_stood(self->session, &call, 1, &join) == SYMMEM_MISMATCH);
        EXPECT(last_record().failed_rank == 1);
    }
    join = left_by(self, &ended, 0); /* it found nothing, or not now */
    EXPECT(sm_session_stood(self->session, &call, 1, &join) == SYMMEM_OK);
    join = left_by(self, &ended, 3000);
    EXPECT(sm_session_stood(self->session, &call, 1, &join) == SYMMEM_OK);
    join = left_by(self, &self->identity, 30); /* it lives */
    EXPECT(sm_session_stood(self->session, &call, 1, &join) == SYMMEM_OK);
    /* This rank took its place over from a process of an earlier job: so may the other one's. */
    sm_member own;
    memset(&own, 0, sizeof(own));
    own.identity = self->identity;
    own.took_over = 1;
    own.published_ns = sm_since_boot_ns();
    self->session->config.member = &own;
    join = left_by(self, &ended, 30);
    join.made_ns = 0;
    EXPECT(sm_session_stood(self->session, &call, 1, &join) == SYMMEM_OK);
    sm_liveness_learn(self->liveness, 1, &ended); /* this job's, as this rank knows */
    EXPECT(sm_session_stood(self->session, &call, 1, &join) == SYMMEM_MISMATCH);
    self->session->config.member = NULL;
    return 0;
}

static int body_contradicts(test_rank *self) {
    const sm_call call = sm_call_start("op", "join", sm_deadline_ns(10000));
    sm_join join = left_by(self, &ended, 0);
    join.list++;
    join.count = 40;
    for (int32_t i = 0; i < SM_JOIN_MEMBERS; i++)
        join.members[i] = i;
    EXPECT(sm_session_contradict(self->session, &call, 1, &join) == SYMMEM_MISMATCH);
    EXPECT(last_record().failed_rank == 1 && last_record().actual == 40);
    EXPECT(strstr(last_record().message, "13, 14, 15, ... on rank 1") != NULL);
    for (int32_t i = 0; i < SM_JOIN_MEMBERS; i++)
        join.members[i] = 1000 + i; /* not all fit */
    EXPECT(sm_session_contradict(self->session, &call, 1, &join) == SYMMEM_MISMATCH);
    EXPECT(strstr(last_record().message, "1000, 1001, ") != NULL);
    join.made_ns = 0; /* an earlier job's */
    EXPECT(sm_session_contradict(self->session, &call, 1, &join) == SYMMEM_NOT_FOUND);
    join.identity = self->identity; /* it lives, and has no socket yet that could be told */
    EXPECT(sm_session_contradict(self->session, &call, 1, &join) == SYMMEM_MISMATCH);
    return 0;
}

/* Down, with a socket: what it says there comes to itself. */
static int body_joining(test_rank *self) {
    const sm_call call = sm_call_start("op", "join", sm_deadline_ns(10000));
    sm_join *own = &self->session->joins[0];
    const uint64_t missing[SYMMEM_MAX_WORLD_SIZE / 64] = {2};
    (void)sm_fail(SYMMEM_LIMIT, "op", "step", "nothing is left");
    sm_session_tell_end(self->session, true); /* it makes the socket */
    EXPECT(self->session->ipc != NULL);
    sm_ipc_address(self->session->ipc, own->address, &own->address_bytes);
    sm_session_fail_ranks(self->session, &call, SYMMEM_TIMEOUT, missing, "did not arrive");
    EXPECT(sm_session_give_up(self->session, &call, SYMMEM_TIMEOUT) == SYMMEM_TIMEOUT);
    note sent = {SM_IPC_GAVE_UP, FINALIZED, 1, verdict(SYMMEM_NO_SPACE, -1, 0)};
    EXPECT(send(self->session, 0, &sent));
    sm_session_keep_cause(self->session); /* that is no reason to remember */
    EXPECT(self->session->left_by == -1);
    sm_join join = left_by(self, &ended, 0);
    join.list++;
    EXPECT(sm_session_contradict(self->session, &call, 1, &join) == SYMMEM_MISMATCH);
    sent = (note){SM_IPC_CONTRADICTS, CONTRADICTED, 1, verdict(SYMMEM_MISMATCH, -1, 0)};
    EXPECT(send(self->session, 0, &sent));
    const symmem_status full = sm_fail(SYMMEM_NO_SPACE, "op", "step", "no room");
    EXPECT(sm_session_give_up(self->session, &call, full) == SYMMEM_NO_SPACE);
    sm_session_fail_ranks(self->session, &call, SYMMEM_TIMEOUT, missing, "did not arrive");
    EXPECT(sm_session_give_up(self->session, &call, SYMMEM_TIMEOUT) == SYMMEM_MISMATCH);
    EXPECT(strcmp(last_record().message, "what they say") == 0 && last_record().failed_rank == 1);
    return 0;
}

TEST("a rank that ended") {
    static const rank_body bodies[] = {body_stands, body_contradicts, body_joining};
    CU_ASSERT_TRUE_FATAL(find_ended());
    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
        symmem_store *store = NULL;
        test_rank ranks[3];
        CU_ASSERT_EQUAL_FATAL(symmem_store_open_memory(&store), SYMMEM_OK);
        prepare_ranks(ranks, 3, store, bodies[i], NULL);
        CU_ASSERT_TRUE(run_threads(ranks, 1));
        symmem_store_close(store);
    }
}
