/* SPDX-License-Identifier: BSD-3-Clause */
/* Operations composed of a backend's barriers and copies: on a backend without collectives, what
 * its entries are given, and what becomes of the others when one of them fails. */
#include "link_ranks.h"

#include <symmem/ops.h>

#define COUNT 100
#define LIMIT_MS 10000u

static const symmem_backend *shm(void) {
    return symmem_backend_entry(SYMMEM_BACKEND_ABI);
}

typedef struct tensor {
    DLTensor dl;
    int64_t shape[1];
} tensor;

static const DLTensor *words_at(tensor *made, int32_t *words, int64_t count) {
    *made = (tensor){.dl = {.data = words, .ndim = 1, .dtype = {kDLInt, 32, 1}}, .shape = {count}};
    made->dl.shape = made->shape;
    return &made->dl;
}

static void fill(int32_t *words, int32_t rank) {
    for (int32_t i = 0; i < COUNT; i++)
        words[i] = 1000 * rank + i;
}

static bool gathered(const int32_t *words, int32_t world) {
    for (int32_t i = 0; i < COUNT * world; i++)
        if (words[i] != 1000 * (i / COUNT) + i % COUNT)
            return false;
    return true;
}

static symmem_status gather(rank_env *env, symmem_handle *handle, int32_t *in, int32_t *out,
                            uint32_t limit_ms) {
    tensor input, result;
    return symmem_low_contention_all_gather_out(handle, words_at(&input, in, COUNT),
                                                words_at(&result, out, COUNT * env->world), 1,
                                                limit_ms, NULL);
}

/* --- without collectives ------------------------------------------------------------ */

RANKS_TEST("without collectives", .world = 3, .without = SYMMEM_CAP_COLLECTIVES, .multicast = 1) {
    void *ptr = NULL;
    symmem_handle *handle = env_kept_handle(env, &ptr);
    int32_t in[COUNT], *own = ptr, *out = calloc((size_t)env->world, sizeof in);
    tensor input, result;
    fill(in, env->rank);
    CHECK_OK(env, gather(env, handle, in, out, LIMIT_MS));
    CHECK(env, gathered(out, env->world));
    memset(out, 0, (size_t)env->world * sizeof in);
    fill(own, env->rank);
    CHECK_OK(env, gather(env, handle, own, out, LIMIT_MS));
    CHECK(env, gathered(out, env->world));
    const size_t counts[3] = {COUNT, COUNT, COUNT};
    memset(out, 0, (size_t)env->world * sizeof in);
    CHECK_OK(env,
             symmem_all_gather_v(handle, words_at(&input, own, COUNT), counts,
                                 words_at(&result, out, COUNT * env->world), 0, LIMIT_MS, NULL));
    CHECK(env, gathered(out, env->world));
    CHECK_STATUS(env,
                 symmem_reduce_scatter_v(handle, &result.dl, SYMMEM_SUM, counts, &input.dl, 0,
                                         LIMIT_MS, NULL),
                 SYMMEM_UNSUPPORTED);
    (void)words_at(&input, in, COUNT);
    (void)words_at(&result, own + COUNT, COUNT * env->world);
    CHECK_OK(env, symmem_low_contention_all_gather_ce_multicast_out(handle, &input.dl, &result.dl,
                                                                    0, LIMIT_MS, NULL));
    CHECK(env, gathered(own + COUNT, env->world));
    CHECK_STATUS(env, symmem_all_gather_out(handle, &input.dl, &result.dl, 0, LIMIT_MS, NULL),
                 SYMMEM_UNSUPPORTED);
    CHECK_STATUS(env, symmem_broadcast(handle, &result.dl, 0, 0, LIMIT_MS, NULL),
                 SYMMEM_UNSUPPORTED);
    CHECK_STATUS(env,
                 symmem_multimem_all_gather_out(handle, &input.dl, &result.dl, 0, LIMIT_MS, NULL),
                 SYMMEM_UNSUPPORTED);
    CHECK_OK(env, symmem_barrier(handle, 0, LIMIT_MS, NULL));
    free(out);
}

/* --- what the entries are given ----------------------------------------------------- */

enum { BARRIERS = 3 }; /* of a staged one, while checking */
static _Thread_local symmem_exec seen[BARRIERS];
static _Thread_local int seen_count;

static symmem_status slow_barrier(void *instance, const symmem_peers *peers, int32_t channel,
                                  const symmem_exec *exec) {
    if (seen_count < BARRIERS)
        seen[seen_count++] = *exec;
    usleep(20000);
    return shm()->signal->barrier(instance, peers, channel, exec);
}

RANKS_TEST("what the entries are given", .world = 2, .without = SYMMEM_CAP_COLLECTIVES,
           .entries = {.barrier = slow_barrier}) {
    symmem_handle *handle = env_kept_handle(env, NULL);
    int32_t in[COUNT], *out = calloc((size_t)env->world, sizeof in);
    fill(in, env->rank);
    seen_count = 0;
    CHECK_OK(env, gather(env, handle, in, out, LIMIT_MS));
    CHECK(env, gathered(out, env->world));
    CHECK(env, seen_count == 2); /* nothing is compared here */
    for (int i = 0; i < seen_count; i++) {
        CHECK(env, seen[i].operation != NULL &&
                       strcmp(seen[i].operation, "low_contention_all_gather_out") == 0);
        CHECK(env, seen[i].call.kind == SYMMEM_CALL_NONE && seen[i].stream == NULL);
        CHECK(env, seen[i].timeout_ms > 0 && seen[i].timeout_ms <= LIMIT_MS);
    }
    CHECK(env, seen[1].timeout_ms <= LIMIT_MS - 20); /* one limit for all */
    seen_count = 0;
    CHECK_OK(env, gather(env, handle, in, out, 0));
    CHECK(env, seen_count == 2 && seen[0].timeout_ms == 0 && seen[1].timeout_ms == 0);
    /* A limit that the first barrier used up is not taken for none. */
    seen_count = 0;
    (void)!gather(env, handle, in, out, 5);
    CHECK(env, seen_count < 2 || seen[1].timeout_ms > 0);
    env_meet(env);
    CHECK_OK(env, symmem_handle_reset(handle, LIMIT_MS));
    free(out);
}

/* --- a part that fails -------------------------------------------------------------- */

static _Thread_local int copies_left = -1; /* until one fails; negative: none does */

static symmem_status failing_copy(void *instance, int32_t device, void *dst, const void *src,
                                  size_t bytes, const symmem_exec *exec) {
    if (copies_left >= 0 && copies_left-- == 0)
        return SYMMEM_SYSTEM;
    return shm()->copy->copy(instance, device, dst, src, bytes, exec);
}

RANKS_TEST("a part that fails", .world = 2, .runs = 3, .without = SYMMEM_CAP_COLLECTIVES,
           .entries = {.copy = failing_copy}) {
    symmem_handle *handle = env_kept_handle(env, NULL);
    int32_t in[COUNT], *out = calloc((size_t)env->world, sizeof in);
    fill(in, env->rank);
    copies_left = env->rank == 0 ? env->plan->argument : -1;
    symmem_status wanted = env->rank == 0 ? SYMMEM_SYSTEM : SYMMEM_POISONED;
    bool alone = env->plan->argument == 0; /* the input: no peer has been told anything */
    if (env->rank == 0 || !alone)
        CHECK_STATUS(env, gather(env, handle, in, out, LIMIT_MS), wanted);
    symmem_error_record record = last_record();
    if (env->rank == 0) {
        CHECK(env, strcmp(record.operation, "low_contention_all_gather_out") == 0);
        CHECK(env, strcmp(record.stage, "copy") == 0 && record.status == SYMMEM_SYSTEM);
    }
    CHECK(env, (symmem_handle_status(handle, NULL) == SYMMEM_OK) == alone);
    copies_left = -1;
    env_meet(env);
    if (!alone)
        CHECK_OK(env, symmem_handle_reset(handle, LIMIT_MS));
    CHECK_OK(env, gather(env, handle, in, out, LIMIT_MS));
    CHECK(env, gathered(out, env->world));
    free(out);
}
