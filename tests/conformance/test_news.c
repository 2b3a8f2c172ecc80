/* SPDX-License-Identifier: BSD-3-Clause */
/* What the end of a rank costs the others before they are told, and what a rank costs that leaves:
 * store calls, for which many ranks wait for each other. */
#include "case_help.h"
#include "counting_store.h"
#include "kit.h"

#define LIMIT_MS 20000u

struct job {
    symmem_store *store;
    struct counting_store *counting;
};

/* The last rank is killed before it has come to the barrier for which the others wait. */
static void lose_the_last(struct tk *t, void *arg) {
    const struct job *job = arg;
    symmem_context *context = NULL;
    symmem_group *group = NULL;
    symmem_context_options options = tk_options(t);
    options.store = job->store;
    options.backend = NULL;
    TK_REQUIRE_OK(t, symmem_init(&options, &context));
    TK_REQUIRE_OK(t, symmem_group_create(context, "news", NULL, 0, NULL, &group));
    TK_OK(t, symmem_group_barrier(group, LIMIT_MS));
    TK_OK(t, symmem_group_barrier(group, LIMIT_MS));
    if (t->rank == t->last)
        tk_on_point(t, "exchange.publish.before", 1, (struct tk_action){.kill = true});
    const int sets = atomic_load(&job->counting->sets),
              removes = atomic_load(&job->counting->removes);
    TK_STATUS(t, SYMMEM_PEER_LOST, symmem_group_barrier(group, LIMIT_MS));
    /* Its own part, unless it has seen the end before. */
    TK_CHECK(t, atomic_load(&job->counting->sets) - sets <= 1);
    TK_EQ_INT(t, 0, atomic_load(&job->counting->removes) - removes);
    TK_EQ_INT(t, 0, atomic_load(&job->counting->adds));
    TK_OK(t, symmem_finalize(context));
    symmem_context_free(context);
}

TK_TEST(news, told_before_it_cleans, "SM-EXCHANGE-45", .ranks = {2, 8},
        .flags = TK_PROCESS_ONLY | TK_NO_CONTEXT | TK_FORKS | TK_MAY_LEAK, .timeout_s = 60) {
    struct job job = {.counting = counting_store_begin(t->store)};
    TK_REQUIRE_OK(t, symmem_store_open_custom(&counting_store_ops, job.counting, &job.store));
    enum tk_child_end end = tk_run_child(t, lose_the_last, &job, LIMIT_MS);
    TK_EQ_INT(t, t->rank == t->last ? TK_CHILD_KILLED : TK_CHILD_DONE, end);
    tk_out_of_band_barrier(t);
    symmem_store_close(job.store);
}

/* A rank that no other one has met says so once, not to each. */
TK_TEST(news, leaving_is_constant, "SM-EXCHANGE-46", .ranks = {3, 16}, .flags = TK_NO_CONTEXT) {
    struct counting_store *counting = counting_store_begin(t->store);
    symmem_context *context = NULL;
    symmem_store *store = NULL;
    TK_REQUIRE_OK(t, symmem_store_open_custom(&counting_store_ops, counting, &store));
    symmem_context_options options = tk_options(t);
    options.store = store;
    TK_REQUIRE_OK(t, symmem_init(&options, &context));
    tk_out_of_band_barrier(t);
    const int writes = counting_store_writes(counting);
    TK_OK(t, symmem_finalize(context));
    const int more = counting_store_writes(counting) - writes;
    TK_CHECK_MSG(t, more <= 2, "%d writes", more);
    symmem_context_free(context);
    tk_out_of_band_barrier(t);
    symmem_store_close(store);
}
