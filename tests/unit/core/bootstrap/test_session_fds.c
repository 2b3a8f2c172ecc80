/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Descriptors in more than one message. Whichever message a rank fails at, no rank waits until its
 * deadline, the agreement that follows names the rank, and the next exchange works.
 */
#include "bootstrap/session_fds.h"
#include "session_ranks.h"
#include "unit_main.h"
#include "last_record.h"

#include <fcntl.h>

enum { RANKS = 3, FDS_EACH = 100 }; /* 300 of all: two messages from rank 0 to each other rank */

typedef struct failing {
    int32_t odd;
    const char *point;
    int visit; /* from 0 */
    atomic_int hits;
} failing;

/* With no descriptor in any place: it is the messages that count. */
static symmem_status gather_nothing(test_rank *self, uint64_t *took_ns_p) {
    int own[FDS_EACH], all[RANKS * FDS_EACH];
    for (int i = 0; i < FDS_EACH; i++)
        own[i] = -1;
    uint64_t start_ns = sm_now_ns();
    symmem_status status =
        sm_session_all_gather_fds(self->session, "op", own, FDS_EACH, all, sm_deadline_ns(10000));
    *took_ns_p = sm_now_ns() - start_ns;
    return status;
}

/* What rank 0 gets in place of its messages, by their number. */
enum { IS_FINE, NOBODYS, TOO_HIGH, TWICE, ONES, BOTH_ONES, LIES };
static _Thread_local int lie, taken;
static _Thread_local int32_t latest;

symmem_status __real_sm_ipc_recv(sm_ipc *ipc, const sm_ipc_tag *want, int32_t *source_p, int *fds_p,
                                 int *count_p, uint32_t step_ms);
symmem_status __wrap_sm_ipc_recv(sm_ipc *ipc, const sm_ipc_tag *want, int32_t *source_p, int *fds_p,
                                 int *count_p, uint32_t step_ms);
symmem_status __wrap_sm_ipc_recv(sm_ipc *ipc, const sm_ipc_tag *want, int32_t *source_p, int *fds_p,
                                 int *count_p, uint32_t step_ms) {
    symmem_status status = __real_sm_ipc_recv(ipc, want, source_p, fds_p, count_p, step_ms);
    if (lie == IS_FINE || status != SYMMEM_OK)
        return status;
    const bool is_first = taken++ == 0;
    const int32_t source = lie == NOBODYS    ? -1
                           : lie == TOO_HIGH ? RANKS
                           : lie == TWICE    ? latest
                                             : *source_p;
    latest = *source_p;
    if ((lie == TWICE && is_first) || (lie == ONES && !is_first))
        return status;
    *source_p = source;
    *count_p = 0;
    return sm_fail(SYMMEM_LIMIT, "test", "", "no descriptors are left");
}

/* Rank 0 has no descriptors left for a message. The others are told at once, whichever rank sent
 * it. */
static int body_lacks(test_rank *self) {
    const int *which = self->arg;
    uint64_t took_ns;
    EXPECT(sm_session_ensure(self->session, "op", sm_deadline_ns(10000)) == SYMMEM_OK);
    lie = self->rank == 0 ? *which : IS_FINE;
    taken = 0;
    symmem_status own = gather_nothing(self, &took_ns);
    lie = IS_FINE;
    EXPECT(self->rank != 0 || own == SYMMEM_LIMIT);
    EXPECT(took_ns < 5000000000u);
    EXPECT(sm_session_agree(self->session, "op", "step", own, sm_deadline_ns(10000)) ==
           SYMMEM_LIMIT);
    EXPECT(last_record().failed_rank == 0);
    EXPECT(gather_nothing(self, &took_ns) == SYMMEM_OK);
    return 0;
}

TEST("no room for a message") {
    for (int which = NOBODYS; which < LIES; which++) {
        symmem_store *store = NULL;
        test_rank ranks[RANKS];
        CU_ASSERT_EQUAL_FATAL(symmem_store_open_memory(&store), SYMMEM_OK);
        prepare_ranks(ranks, RANKS, store, body_lacks, &which);
        bool fine = run_threads(ranks, RANKS);
        if (!fine)
            fprintf(stderr, "way %d\n", which);
        CU_ASSERT_TRUE(fine);
        symmem_store_close(store);
    }
}

static int body_fails(test_rank *self) {
    failing *plan = self->arg;
    uint64_t took_ns;
    EXPECT(sm_session_ensure(self->session, "op", sm_deadline_ns(10000)) == SYMMEM_OK);
    if (self->rank == plan->odd) {
        self->point_status = SYMMEM_LIMIT;
        atomic_store(&self->point_hits, -plan->visit);
        self->point_name = plan->point;
    }
    symmem_status own = gather_nothing(self, &took_ns);
    bool hit = self->rank == plan->odd && atomic_load(&self->point_hits) > 0;
    self->point_name = NULL;
    EXPECT(took_ns < 5000000000u);
    EXPECT(!hit || own == SYMMEM_LIMIT);
    if (hit)
        atomic_store(&plan->hits, 1);
    symmem_status agreed =
        sm_session_agree(self->session, "op", "step", own, sm_deadline_ns(10000));
    bool anybody = atomic_load(&plan->hits) != 0; /* the agreement orders it */
    EXPECT(agreed == (anybody ? SYMMEM_LIMIT : SYMMEM_OK));
    EXPECT(!anybody || last_record().failed_rank == plan->odd);
    EXPECT(gather_nothing(self, &took_ns) == SYMMEM_OK);
    return 0;
}

/* True if the point was passed that often. */
static bool fail_at(int32_t odd, const char *point, int visit) {
    symmem_store *store = NULL;
    test_rank ranks[RANKS];
    failing plan = {.odd = odd, .point = point, .visit = visit};
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_memory(&store), SYMMEM_OK);
    prepare_ranks(ranks, RANKS, store, body_fails, &plan);
    bool fine = run_threads(ranks, RANKS);
    if (!fine)
        fprintf(stderr, "rank %d at %s, visit %d\n", odd, point, visit);
    CU_ASSERT_TRUE(fine);
    symmem_store_close(store);
    return atomic_load(&plan.hits) != 0;
}

TEST("each message") {
    static const char *const points[] = {"ipc.send.before", "ipc.send.after", "ipc.recv.after"};
    /* Rank 0 takes one message of each other rank and sends it two; the others the reverse. */
    static const int visits[2][3] = {{4, 4, 2}, {1, 1, 2}};
    for (int32_t odd = 0; odd < RANKS; odd++)
        for (int i = 0; i < 3; i++) {
            int visit = 0;
            while (visit < 10 && fail_at(odd, points[i], visit))
                visit++;
            CU_ASSERT_EQUAL(visit, visits[odd == 0 ? 0 : 1][i]);
        }
}

/* --- sends that fail ------------------------------------------------------------------------ */

typedef struct send_row {
    symmem_status fails_with;
    int error, times;
    symmem_status status;
} send_row;

static _Thread_local const send_row *sends; /* of this rank; NULL: as they are */
static _Thread_local int sent;

symmem_status __real_sm_ipc_send(sm_ipc *ipc, const uint8_t *address, uint32_t address_bytes,
                                 const sm_ipc_tag *tag, const int *fds, int count, uint32_t ms);
symmem_status __wrap_sm_ipc_send(sm_ipc *ipc, const uint8_t *address, uint32_t address_bytes,
                                 const sm_ipc_tag *tag, const int *fds, int count, uint32_t ms);
symmem_status __wrap_sm_ipc_send(sm_ipc *ipc, const uint8_t *address, uint32_t address_bytes,
                                 const sm_ipc_tag *tag, const int *fds, int count, uint32_t ms) {
    if (sends == NULL || sent++ >= sends->times)
        return __real_sm_ipc_send(ipc, address, address_bytes, tag, fds, count, ms);
    sm_fail(sends->fails_with, "socket", "send", "told to");
    return sm_error_errno(sends->error);
}

/* What passes is tried again; a lack of this process's own is not the peer's. */
static int body_sends(test_rank *self) {
    const send_row *row = self->arg;
    uint64_t took_ns;
    EXPECT(sm_session_ensure(self->session, "op", sm_deadline_ns(10000)) == SYMMEM_OK);
    sends = self->rank == 1 ? row : NULL;
    sent = 0;
    const symmem_status own = gather_nothing(self, &took_ns);
    sends = NULL;
    EXPECT(self->rank != 1 || own == row->status);
    EXPECT(self->rank != 1 || own == SYMMEM_OK || last_record().system_errno == row->error);
    EXPECT(took_ns < 5000000000u);
    EXPECT(sm_session_agree(self->session, "op", "step", own, sm_deadline_ns(10000)) ==
           row->status);
    EXPECT(row->status == SYMMEM_OK || last_record().failed_rank == 1);
    EXPECT(gather_nothing(self, &took_ns) == SYMMEM_OK);
    return 0;
}

TEST("sends that fail") {
    static send_row rows[] = {{SYMMEM_TIMEOUT, 0, 2, SYMMEM_OK},
                              {SYMMEM_LIMIT, ETOOMANYREFS, 2, SYMMEM_OK},
                              {SYMMEM_LIMIT, EMFILE, 1, SYMMEM_LIMIT},
                              {SYMMEM_SYSTEM, EPERM, 1, SYMMEM_SYSTEM}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        symmem_store *store = NULL;
        test_rank ranks[RANKS];
        CU_ASSERT_EQUAL_FATAL(symmem_store_open_memory(&store), SYMMEM_OK);
        prepare_ranks(ranks, RANKS, store, body_sends, &rows[i]);
        const bool fine = run_threads(ranks, RANKS);
        if (!fine)
            fprintf(stderr, "row %zu\n", i);
        CU_ASSERT_TRUE(fine);
        symmem_store_close(store);
    }
}

/* A world of one has no messages, but descriptors that may not be open. */
static int body_alone(test_rank *self) {
    const int before = open_fds(), fine = open("/dev/null", O_RDONLY | O_CLOEXEC);
    const int own[3] = {fine, 1000000, fine};
    int all[3];
    EXPECT(sm_session_all_gather_fds(self->session, "op", own, 3, all, sm_deadline_ns(1000)) ==
           SYMMEM_SYSTEM);
    EXPECT(last_record().system_errno == EBADF);
    for (int i = 0; i < 3; i++)
        EXPECT(all[i] == -1);
    close(fine);
    EXPECT(open_fds() == before);
    return 0;
}

TEST("one rank's descriptors") {
    CU_ASSERT_TRUE(run_first(1, 1, body_alone));
}
