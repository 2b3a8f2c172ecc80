/* SPDX-License-Identifier: BSD-3-Clause */
/* Rendezvous: two threads of a rank, and what fails it. */
#include "link_ranks.h"

/* --- caching ---------------------------------------------------------------------------------- */

static void *meet_in_thread(void *arg) {
    rank_env *env = arg;
    symmem_handle *handle = NULL;
    void *ptr = NULL;
    CHECK_OK(env, symmem_alloc_query(env->context, env->context, NULL) == SYMMEM_OK ? SYMMEM_BACKEND
                                                                                    : SYMMEM_OK);
    sm_allocation *allocation = SM_CONTAINER(env->context->allocations.next, sm_allocation, node);
    ptr = allocation->memory.ptr;
    CHECK_OK(env, meet_at(env, ptr, 10000, &handle));
    symmem_handle_release(handle);
    return NULL;
}

RANKS_TEST("two threads, one rendezvous", .world = 2) {
    void *ptr = NULL;
    pthread_t thread;
    rank_env other = *env;
    CHECK_OK(env, symmem_alloc(env->context, BYTES, -1, NULL, &ptr));
    CHECK(env, pthread_create(&thread, NULL, meet_in_thread, &other) == 0);
    symmem_handle *handle = NULL;
    CHECK_OK(env, meet_at(env, ptr, 10000, &handle));
    pthread_join(thread, NULL);
    env->failures += other.failures;
    CHECK(env, handle != NULL && sm_list_empty(&handle->link->cached.node) == false);
    symmem_handle_release(handle);
    CHECK_OK(env, symmem_free(env->context, ptr));
}

/* --- failures ----------------------------------------------------------------------- */

RANKS_TEST("after the commit nothing fails", .world = 2) {
    env->fault_point = "rendezvous.commit.after";
    env->fault_status = SYMMEM_PERMISSION;
    check_works(env);
    CHECK(env, env->fault_hits == 1);
}

RANKS_TEST("neither memory nor group", .world = 1) {
    int local = 0;
    symmem_handle *handle = NULL;
    CHECK_STATUS(env, symmem_rendezvous(env->context, &local, NULL, 1000, &handle),
                 SYMMEM_NOT_SYMMETRIC);
    CHECK(env, handle == NULL);
}

RANKS_TEST("another allocation", .world = 2) {
    void *ptr = NULL;
    symmem_handle *handle = NULL;
    for (int turn = 0; turn < 2; turn++) { /* of another size, then also not the same one */
        if (env->rank == turn)
            CHECK_OK(env, symmem_alloc(env->context, BYTES, -1, NULL, &ptr));
        CHECK_OK(env, symmem_alloc(env->context, BYTES + (size_t)env->rank, -1, NULL, &ptr));
        CHECK_STATUS(env, meet_at(env, ptr, 10000, &handle), SYMMEM_MISMATCH);
        CHECK(env, last_record().actual == BYTES + 1 && last_record().failed_rank == 1);
        CHECK(env, (strstr(last_record().message, "of the same number") != NULL) == (turn == 0));
    }
}

/* --- ranks whose end no rank can see ---------------------------------------------------------- */

static atomic_bool is_hidden; /* ranks from 1 on */
static char noticed[3][256];  /* by each rank */

bool __real_sm_liveness_sees(sm_liveness *liveness, int32_t rank);
bool __wrap_sm_liveness_sees(sm_liveness *liveness, int32_t rank);
bool __wrap_sm_liveness_sees(sm_liveness *liveness, int32_t rank) {
    return (!atomic_load(&is_hidden) || rank == 0) && __real_sm_liveness_sees(liveness, rank);
}

void __wrap_sm_context_notice(symmem_context *context, const char *text);
void __wrap_sm_context_notice(symmem_context *context, const char *text) {
    snprintf(noticed[context->rank], sizeof(noticed[0]), "%s", text);
}

RANKS_TEST("ranks that cannot be seen", .world = 3) {
    static const char *const told[] = {
        "of 2 of its ranks cannot be seen from rank 0 (the first is rank 1",
        "of 1 of its ranks cannot be seen from rank 1 (the first is rank 2",
        "of 1 of its ranks cannot be seen from rank 2 (the first is rank 1"};
    const char *text = noticed[env->rank];
    check_works(env);
    CHECK(env, text[0] == '\0'); /* all are */
    env_meet(env);
    atomic_store(&is_hidden, true);
    check_works(env);
    CHECK(env, strstr(text, told[env->rank]) != NULL);
    env_meet(env);
    atomic_store(&is_hidden, false);
}
