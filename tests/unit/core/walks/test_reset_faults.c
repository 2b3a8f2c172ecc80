/* SPDX-License-Identifier: BSD-3-Clause */
/* handle_reset on a rank without memory: each allocation on its way fails once. The others learn of
 * it at once, and the next reset works. */
#include "link_ranks.h"
#include "wrap.h"

enum { RANKS = 2, MANY = 100, LIMIT_MS = 3000, SHORT_LIMIT_MS = 800 };

typedef struct attempt {
    symmem_status status[RANKS];
    const char *failed; /* the call that did, at rank 0; NULL: none was left */
} attempt;
static attempt attempts[MANY]; /* each rank writes its own, and reads the others' after a barrier */

static void reset_with_fault(rank_env *env, symmem_handle *handle, attempt *made, int nth) {
    env_meet(env);
    if (env->rank == 0)
        wrap_arm(nth);
    made->status[env->rank] = symmem_handle_reset(handle, nth == 1 ? LIMIT_MS : SHORT_LIMIT_MS);
    if (env->rank == 0)
        (void)wrap_disarm(&made->failed);
    env_meet(env);
}

/* Rank 0 has no memory for what it has to tell. All ranks fail alike, with a record of that
 * failure. */
static void expect_told(rank_env *env, const attempt *made) {
    CHECK(env, made->failed != NULL && strcmp(made->failed, "calloc") == 0);
    CHECK_STATUS(env, made->status[env->rank], SYMMEM_OUT_OF_MEMORY);
    CHECK(env, last_record().status == SYMMEM_OUT_OF_MEMORY && last_record().failed_rank == 0);
    CHECK(env, strcmp(last_record().operation, "handle_reset") == 0);
    CHECK(env, strcmp(last_record().stage, "reset.begin") == 0);
    CHECK(env, last_record().rank == env->rank && last_record().world_size == RANKS);
}

/* A store without memory cannot inform the peers: rank 0 fails, or does without that memory. */
static void expect_end(rank_env *env, const attempt *made) {
    if (made->status[0] != SYMMEM_OK)
        CHECK_STATUS(env, made->status[0], SYMMEM_OUT_OF_MEMORY);
}

static void body_no_memory(rank_env *env) {
    symmem_handle *handle = env_kept_handle(env, NULL);
    for (int nth = 1; nth == 1 || attempts[nth - 1].failed != NULL; nth++) {
        uint64_t begin_ns = sm_now_ns();
        CHECK(env, nth < MANY);
        reset_with_fault(env, handle, &attempts[nth], nth);
        if (nth == 1)
            expect_told(env, &attempts[nth]);
        else
            expect_end(env, &attempts[nth]);
        CHECK(env, nth > 1 || sm_now_ns() - begin_ns < LIMIT_MS * UINT64_C(500000));
        CHECK_OK(env, symmem_handle_reset(handle, LIMIT_MS));
        CHECK_OK(env, symmem_barrier(handle, 0, LIMIT_MS, NULL));
    }
}

TEST("reset without memory") {
    run_threads((plan){.world = RANKS, .body = body_no_memory});
}
