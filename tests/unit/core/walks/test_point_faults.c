/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Walks every test point that a rank passes in a complete run and lets it fail once there: the call
 * returns that status, with the point as its stage and the rank as the one that failed.
 */
#include "life.h"

static symmem_status point(void *arg, const char *name) {
    return life_strikes(name) ? SYMMEM_LIMIT : SYMMEM_OK;
}

/* Where nothing can fail any more, or nothing may; and, in rendezvous, what multicast needs alone.
 */
static bool may_finish(const char *name, const char *in) {
    static const char *const observed[] = {"*\\*",
                                           "*.begin",
                                           "*.done",
                                           "*.destroyed",
                                           "*.commit.after",
                                           "exchange.clean.before",
                                           "exchange.wait.before",
                                           "exchange.publish.after",
                                           "exchange.publish.count",
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

static void judge(const struct life *lives, int32_t world_size, int nth) {
    const symmem_error_record *record = &lives[0].first.record, *other = &lives[1].first.record;
    if (lives[0].finished) {
        CU_ASSERT(may_finish(lives[0].name, lives[0].failed_in));
    } else {
        CU_ASSERT_EQUAL(record->status, SYMMEM_LIMIT);
        /* A second stream is made by a call of the library's own. */
        if (strcmp(record->operation, "stream_create") != 0)
            CU_ASSERT_STRING_EQUAL(record->operation, lives[0].first.call);
        CU_ASSERT_STRING_EQUAL(record->stage, lives[0].name);
        CU_ASSERT_EQUAL(record->rank, 0);
        CU_ASSERT_EQUAL(record->world_size, world_size);
        CU_ASSERT(record->failed_rank == 0 || record->failed_rank == -1);
        CU_ASSERT_PTR_NOT_NULL(strstr(lives[0].failed_in, lives[0].first.call));
    }
    if (world_size > 1 && !lives[1].finished) {
        CU_ASSERT(other->failed_rank == 0 || other->status == SYMMEM_POISONED);
        CU_ASSERT_EQUAL(other->rank, 1);
        if (other->status != SYMMEM_TIMEOUT && other->status != SYMMEM_POISONED) {
            CU_ASSERT_EQUAL(other->status, record->status);
            CU_ASSERT_STRING_EQUAL(other->stage, record->stage);
        }
    }
}

int main(void) {
    const struct life_faults faults = {
        .table = symmem_backend_entry(SYMMEM_BACKEND_ABI),
        .point = point,
        .judge = judge,
    };
    return life_main("point faults", &faults);
}
