/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Walks every failpoint that a rank passes in a complete run and lets it fail once there. The call
 * returns that status, with the failpoint as its stage and the rank as the one that failed.
 */
#include "life.h"

static symmem_status point(void *arg, const char *name) {
    return life_strikes(name) ? SYMMEM_LIMIT : SYMMEM_OK;
}

/* Points at which a failure may change nothing: the observing ones, and in rendezvous those that
 * only multicast needs. */
static bool may_finish(const char *name, const char *in) {
    static const char *const observed[] = {"*\\*",
                                           "*.begin",
                                           "*.done",
                                           "*.destroyed",
                                           "*.commit.after",
                                           "exchange.clean.before",
                                           "exchange.wait.before",
                                           "exchange.publish.after",
                                           "exchange.combine.before",
                                           "session.join.read",
                                           "stream.synchronize",
                                           "capture.end",
                                           NULL};
    static const char *const multicast[] = {"rendezvous.attach.before",
                                            "rendezvous.bind.before",
                                            "rendezvous.create.before",
                                            "exchange.publish.before",
                                            "exchange.combine.read",
                                            "shm.multicast.*",
                                            "shm.alloc.*",
                                            NULL};
    return strcmp(in, "symmem_finalize") == 0 || life_is_one_of(name, observed) ||
           (life_is_one_of(name, multicast) && strncmp(in, "symmem_rendezvous", 17) == 0);
}

static void judge(const struct life *own, const struct life *other, int nth) {
    const symmem_error_record *record = &own->first.record;
    if (own->finished) {
        CU_ASSERT(may_finish(own->name, own->failed_in));
    } else {
        CU_ASSERT_EQUAL(record->status, SYMMEM_LIMIT);
        /* A second stream is made by a call of the library's own. */
        if (strcmp(record->operation, "stream_create") != 0)
            CU_ASSERT_STRING_EQUAL(record->operation, own->first.call);
        CU_ASSERT_STRING_EQUAL(record->stage, own->name);
        CU_ASSERT_EQUAL(record->rank, own->rank);
        CU_ASSERT_EQUAL(record->world_size, own->world_size);
        CU_ASSERT(record->failed_rank == own->rank || record->failed_rank == -1);
        CU_ASSERT_PTR_NOT_NULL(strstr(own->failed_in, own->first.call));
    }
    if (other == NULL || other->finished)
        return;
    const symmem_error_record *theirs = &other->first.record;
    CU_ASSERT(theirs->failed_rank == own->rank || theirs->status == SYMMEM_POISONED);
    CU_ASSERT_EQUAL(theirs->rank, other->rank);
    if (theirs->status != SYMMEM_TIMEOUT && theirs->status != SYMMEM_POISONED) {
        CU_ASSERT_EQUAL(theirs->status, record->status);
        CU_ASSERT_STRING_EQUAL(theirs->stage, record->stage);
    }
}

int main(void) {
    const struct life_faults faults = {
        .table = symmem_backend_entry(SYMMEM_BACKEND_ABI),
        .point = point,
        .judge = judge,
        .goes_on = true,
    };
    return life_main("point faults", &faults);
}
