/* SPDX-License-Identifier: BSD-3-Clause */
/* Which records get what their rank has said appended, and which are left as they are. */
#include "memory/group.h"

#include "link_ranks.h"
#include "memory/group_explain.h"

#define TOO_MUCH ((size_t)1 << 46)

static symmem_error_record record_of(const rank_env *env, symmem_status status) {
    symmem_error_record record;
    memset(&record, 0, sizeof(record));
    record.status = status;
    record.rank = env->rank;
    record.world_size = env->world;
    record.failed_rank = -1;
    record.channel = -1;
    sm_copy_text(record.operation, sizeof(record.operation), "barrier");
    sm_copy_text(record.group, sizeof(record.group), "world");
    sm_copy_text(record.message, sizeof(record.message), "mine");
    return record;
}

/* Returns the text that was appended to the record's own message. */
static const char *appended(rank_env *env, symmem_error_record record) {
    static _Thread_local symmem_error_record after;
    const size_t before = strlen(record.message);
    (void)sm_error_raise(&record);
    sm_group_explain(env->context);
    after = last_record();
    CHECK(env, after.status == record.status && after.failed_rank == record.failed_rank);
    CHECK(env, strncmp(after.message, record.message, before) == 0);
    return after.message + before;
}

static void leave_after_a_failure(rank_env *env) {
    void *ptr = NULL;
    CHECK_STATUS(env, symmem_alloc(env->context, TOO_MUCH, -1, NULL, &ptr), SYMMEM_NO_SPACE);
    CHECK_OK(env, symmem_group_destroy(env->group));
}

RANKS_TEST("what is explained", .world = 3) {
    CHECK_OK(env, symmem_group_barrier(env->group, 10000));
    if (env->rank == 1)
        leave_after_a_failure(env);
    env_meet(env);
    if (env->rank == 1) {
        env_meet(env); /* what it has noted is gone once it finalizes */
        return;
    }
    /* What the rank itself has noted comes before what it has sent, if it is lost or elsewhere. */
    static const struct {
        symmem_status status;
        const char *text;
    } hearsay[] = {{SYMMEM_TIMEOUT, "destroyed the group after NO_SPACE"},
                   {SYMMEM_POISONED, "destroyed the group after NO_SPACE"},
                   {SYMMEM_PEER_LOST, "rank 1 failed with NO_SPACE in alloc"},
                   {SYMMEM_MISMATCH, "rank 1 failed with NO_SPACE in alloc"}};
    for (int i = 0; i < 4; i++) {
        symmem_error_record record = record_of(env, hearsay[i].status);
        record.failed_rank = 1;
        CHECK(env, strstr(appended(env, record), hearsay[i].text) != NULL);
        if (hearsay[i].status == SYMMEM_MISMATCH)
            continue;
        record.failed_rank = -1; /* named by the missing ones */
        record.missing[0] = 2;
        record.missing_count = 1;
        CHECK(env, strstr(appended(env, record), hearsay[i].text) != NULL);
    }
    env_meet(env);
}

RANKS_TEST("what is not", .world = 3) {
    CHECK_OK(env, symmem_group_barrier(env->group, 10000));
    if (env->rank == 1)
        leave_after_a_failure(env);
    env_meet(env);
    if (env->rank == 1)
        return;
    symmem_error_record record = record_of(env, SYMMEM_BUSY); /* no hearsay */
    record.failed_rank = 1;
    CHECK(env, appended(env, record)[0] == '\0');
    record = record_of(env, SYMMEM_TIMEOUT);
    record.failed_rank = env->rank; /* its own */
    CHECK(env, appended(env, record)[0] == '\0');
    record.failed_rank = 1;
    sm_copy_text(record.group, sizeof(record.group), "");
    CHECK(env, appended(env, record)[0] == '\0');
    sm_copy_text(record.group, sizeof(record.group), "no such group");
    CHECK(env, appended(env, record)[0] == '\0');
    sm_copy_text(record.group, sizeof(record.group), "world");
    sm_copy_text(record.message, sizeof(record.message), "rank 1 gave up after that");
    CHECK(env, appended(env, record)[0] == '\0');
    sm_copy_text(record.message, sizeof(record.message), "rank 1 failed with that");
    CHECK(env, appended(env, record)[0] == '\0');
    record = record_of(env, SYMMEM_TIMEOUT);
    record.failed_rank = 7; /* no member */
    (void)appended(env, record);
    record.failed_rank = -1; /* several are missing, or none */
    record.missing[0] = 6;
    record.missing_count = 2;
    (void)appended(env, record);
}

RANKS_TEST("what is remarked", .world = 2) {
    CHECK_OK(env, symmem_group_barrier(env->group, 10000));
    const symmem_error_record hearsay = record_of(env, SYMMEM_TIMEOUT);
    const symmem_error_record none = record_of(env, SYMMEM_NOT_INITIALIZED);
    symmem_error_record own = record_of(env, SYMMEM_NO_SPACE);
    sm_copy_text(own.message, sizeof(own.message), "no room");
    if (env->rank == 1) {
        sm_group_remark(env->group, &hearsay);
        sm_group_remark(env->group, &none);
    }
    env_meet(env);
    symmem_error_record record = record_of(env, SYMMEM_POISONED);
    record.failed_rank = 1 - env->rank;
    CHECK(env, appended(env, record)[0] == '\0');
    env_meet(env);
    if (env->rank == 1)
        sm_group_remark(env->group, &own);
    env_meet(env);
    if (env->rank == 0)
        CHECK(env, strstr(appended(env, record), "failed with NO_SPACE in barrier: no room"));
}
