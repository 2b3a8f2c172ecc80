/* SPDX-License-Identifier: BSD-3-Clause */
/* A record tells an earlier job's process and a rank that came and left from one that is absent. */
#include "causes_help.h"

#define ABSENT 1

/* --- an earlier job's store --------------------------------------------------------------- */

struct job {
    symmem_store *store;
    bool is_killed, waits;
    bool alone; /* rank 0 was, when it was killed */
    int32_t world_size;
};

static void run_job(struct tk *t, void *arg) {
    const struct job *job = arg;
    symmem_context *context = NULL;
    symmem_context_options options = job_options(t, job->store);
    options.world_size = job->world_size;
    if (job->waits && t->rank == 0) /* longer than the others give the next process of a rank */
        tk_sleep_ms(700);
    symmem_group *group = begin_with_group(t, &options, "job", &context);
    TK_OK(t, symmem_group_barrier(group, LIMIT_MS));
    if (job->is_killed)
        tk_on_point(t, "finalize.begin", 1, (struct tk_action){.kill = true});
    finalize_and_free(t, context);
}

/* All ranks are killed at a time and started again, as launchers do that restart a job. */
TK_TEST(causes, store_of_a_killed_job, "SM-LIFE-20", .ranks = {2, 4}, .flags = OWN_PROCESSES,
        .timeout_s = 60) {
    struct job job = {.store = t->store, .is_killed = true, .world_size = t->world_size};
    for (int i = 0; i < 6; i++, job.is_killed = !job.is_killed) {
        job.waits = i == 1; /* once: it takes long */
        enum tk_child_end end = tk_run_child(t, run_job, &job, LIMIT_MS);
        TK_EQ_INT(t, job.is_killed ? TK_CHILD_KILLED : TK_CHILD_DONE, end);
        tk_out_of_band_barrier(t);
    }
}

/* Rank 0 is killed before the others look after it. */
static void run_without_rank_0(struct tk *t, void *arg) {
    const struct job *job = arg;
    symmem_context *context = NULL;
    symmem_group *group = NULL;
    symmem_context_options options = job_options(t, job->store);
    tk_sleep_ms(t->rank == 0 ? 100 : 500); /* it lives when the others do */
    if (t->rank == 0)
        tk_on_point(t, "init.done", 1, (struct tk_action){.kill = true});
    TK_REQUIRE_OK(t, symmem_init(&options, &context));
    t->context = context; /* never ended, but no leak */
    TK_REQUIRE_OK(t, symmem_group_create(context, "job", NULL, 0, NULL, &group));
    uint64_t begin_ms = tk_now_ms();
    TK_STATUS(t, SYMMEM_PEER_LOST, symmem_group_barrier(group, LIMIT_MS));
    TK_WITHIN(t, 1000, begin_ms);
    TK_EQ_INT(t, 0, last_record().failed_rank);
    const char *ended =
        job->alone ? "rank 0 ended (it may be an earlier job's process)" : "rank 0 ended";
    TK_SAYS(t, ended);
    tk_share_u64(t, SLOT_DONE, 1);
    await_ranks(t, 1, t->world_size, SLOT_DONE); /* none is to see another one's end */
}

static void run_jobs_rank(struct tk *t, struct job *job) {
    const bool dies = job->is_killed || t->rank == 0;
    enum tk_child_end end =
        tk_run_child(t, job->is_killed ? run_job : run_without_rank_0, job, LIMIT_MS);
    TK_EQ_INT(t, dies ? TK_CHILD_KILLED : TK_CHILD_DONE, end);
}

/* The peers know that the rank's previous process belonged to an earlier job. */
TK_TEST(causes, killed_early_after_a_killed_job, "SM-LIFE-20,SM-TIMEOUT-08", .ranks = {2, 4},
        .flags = OWN_PROCESSES, .timeout_s = 60) {
    struct job job = {.store = t->store, .is_killed = true, .world_size = t->world_size};
    run_jobs_rank(t, &job);
    tk_out_of_band_barrier(t);
    job.is_killed = false;
    run_jobs_rank(t, &job);
}

/* Rank 0 alone was there, and nothing tells of which job it was. */
TK_TEST(causes, traces_of_one_rank, "SM-LIFE-20", .ranks = {2, 4}, .flags = OWN_PROCESSES,
        .timeout_s = 60) {
    struct job job = {.store = t->store, .alone = true, .world_size = t->world_size};
    if (t->rank == 0)
        run_jobs_rank(t, &job);
    tk_out_of_band_barrier(t);
    if (t->rank != 0)
        run_jobs_rank(t, &job);
}

static void start_in_vain(struct tk *t, void *arg) {
    const struct job *job = arg;
    symmem_context *context = NULL;
    symmem_context_options options = job_options(t, job->store);
    symmem_group *group = begin_with_group(t, &options, "job", &context);
    uint64_t begin_ms = tk_now_ms();
    TK_STATUS(t, SYMMEM_PEER_LOST, symmem_group_barrier(group, LIMIT_MS));
    TK_WITHIN(t, 1000, begin_ms);
    TK_SAYS(t, "an earlier job's process");
    finalize_and_free(t, context);
}

enum { SLOT_BEGUN = 14 };

/* Rank 0 comes when the others have long begun to wait for it. */
static void run_late_job(struct tk *t, void *arg) {
    const struct job *job = arg;
    symmem_context *context = NULL;
    symmem_context_options options = job_options(t, job->store);
    if (t->rank == 0) {
        await_ranks(t, 1, t->world_size, SLOT_BEGUN);
        tk_sleep_ms(500);
    }
    symmem_group *group = begin_with_group(t, &options, "job", &context);
    tk_share_u64(t, SLOT_BEGUN, 1);
    TK_OK(t, symmem_group_barrier(group, LIMIT_MS));
    finalize_and_free(t, context);
}

/* All ranks of the killed job but rank 0 ended in good order. They start again, find what rank 0
 * left, and end. Rank 0 starts after that or not at all. */
static void start_after_a_killed_rank(struct tk *t, bool comes) {
    struct job job = {.store = t->store, .is_killed = t->rank == 0, .world_size = t->world_size};
    enum tk_child_end end = tk_run_child(t, run_job, &job, LIMIT_MS);
    TK_EQ_INT(t, t->rank == 0 ? TK_CHILD_KILLED : TK_CHILD_DONE, end);
    tk_out_of_band_barrier(t);
    if (t->rank != 0)
        TK_EQ_INT(t, TK_CHILD_DONE, tk_run_child(t, start_in_vain, &job, LIMIT_MS));
    tk_out_of_band_barrier(t);
    if (t->rank == 0 && comes)
        TK_EQ_INT(t, TK_CHILD_DONE, tk_run_child(t, start_in_vain, &job, LIMIT_MS));
    tk_out_of_band_barrier(t);
    TK_EQ_INT(t, TK_CHILD_DONE, tk_run_child(t, run_late_job, &job, LIMIT_MS));
    tk_out_of_band_barrier(t);
}

TK_TEST(causes, start_after_a_killed_rank, "SM-LIFE-28", .ranks = {2, 4}, .flags = OWN_PROCESSES,
        .timeout_s = 60) {
    start_after_a_killed_rank(t, true);
}

TK_TEST(causes, start_without_the_killed_rank, "SM-LIFE-28", .ranks = {2, 4},
        .flags = OWN_PROCESSES, .timeout_s = 60) {
    start_after_a_killed_rank(t, false);
}

/* The next one has a rank more, or one less, and a rank of which nothing is in the store. */
TK_TEST(causes, store_of_a_killed_smaller_job, "SM-LIFE-21", .ranks = {3, 4},
        .flags = OWN_PROCESSES, .timeout_s = 60) {
    struct job job = {.store = t->store};
    for (int i = 0; i < 6; i++) {
        job.is_killed = i % 2 == 0;
        job.waits = !job.is_killed;
        job.world_size = t->world_size - (i / 2 % 2 == (job.is_killed ? 0 : 1) ? 1 : 0);
        tk_checkpoint(t, "job %d of %d ranks", i, (int)job.world_size);
        if (t->rank < job.world_size) {
            enum tk_child_end end = tk_run_child(t, run_job, &job, LIMIT_MS);
            TK_EQ_INT(t, job.is_killed ? TK_CHILD_KILLED : TK_CHILD_DONE, end);
        }
        tk_out_of_band_barrier(t);
    }
}

static void run_two_jobs(struct tk *t, void *arg) {
    struct job *job = arg;
    run_job(t, job);
    (void)await_shared(t, 1, TK_ENDED_SLOT, 1);
    job->world_size = 3;
    job->waits = false;
    run_job(t, job);
}

/* Rank 0 is one process in both jobs. It lived when a killed process made the key that is left. */
TK_TEST(causes, process_of_two_jobs, "SM-LIFE-21", .ranks = {3, 3}, .flags = OWN_PROCESSES,
        .timeout_s = 60) {
    struct job job = {.store = t->store, .is_killed = t->rank == 1, .waits = true, .world_size = 2};
    if (t->rank == 0)
        TK_EQ_INT(t, TK_CHILD_DONE, tk_run_child(t, run_two_jobs, &job, LIMIT_MS));
    tk_sleep_ms(t->rank == 1 ? 200 : 0); /* its key is younger than rank 0's process */
    if (t->rank == 1)
        TK_EQ_INT(t, TK_CHILD_KILLED, tk_run_child(t, run_job, &job, LIMIT_MS));
    if (t->rank != 0) {
        job = (struct job){.store = t->store, .world_size = 3};
        (void)await_shared(t, 1, TK_ENDED_SLOT, 1);
        tk_sleep_ms(t->rank == 1 ? 1000 : 0); /* rank 0 looks after it before */
        TK_EQ_INT(t, TK_CHILD_DONE, tk_run_child(t, run_job, &job, LIMIT_MS));
    }
    tk_out_of_band_barrier(t);
}

/* --- ranks that come and leave ---------------------------------------------------------------- */

struct leaving {
    symmem_store *store;
    bool ends; /* its process, too */
};

enum { SLOT_HERE = 10, SLOT_LEFT, SLOT_TOLD };

/* Rank 1 finalizes before any group has shown it to the others. */
static void leave_early(struct tk *t, void *arg) {
    const struct leaving *leaving = arg;
    symmem_context *context = NULL;
    symmem_group *group = NULL;
    symmem_context_options options = job_options(t, leaving->store);
    TK_REQUIRE_OK(t, symmem_init(&options, &context));
    share_and_await(t, t->world_size, SLOT_HERE);
    if (t->rank == ABSENT) {
        finalize_and_free(t, context);
        tk_share_u64(t, SLOT_LEFT, 1);
        if (!leaving->ends) {
            await_ranks(t, 0, ABSENT, SLOT_TOLD);
            await_ranks(t, ABSENT + 1, t->world_size, SLOT_TOLD);
        }
        return;
    }
    (void)await_shared(t, ABSENT, SLOT_LEFT, 1);
    TK_REQUIRE_OK(t, symmem_group_create(context, "left", NULL, 0, NULL, &group));
    uint64_t begin_ms = tk_now_ms();
    symmem_status status = symmem_group_barrier(group, leaving->ends ? 0 : tk_limit_ms(t, 400));
    const symmem_error_record record = last_record();
    TK_STATUS(t, leaving->ends ? SYMMEM_PEER_LOST : SYMMEM_TIMEOUT, status);
    TK_WITHIN(t, 1500, begin_ms);
    TK_EQ_INT(t, ABSENT, record.failed_rank);
    TK_EQ_INT(t, 1, record.missing_count);
    TK_SAYS(t, "rank 1 came and left");
    tk_share_u64(t, SLOT_TOLD, 1); /* none is to see another one's end */
    await_ranks(t, 0, ABSENT, SLOT_TOLD);
    await_ranks(t, ABSENT + 1, t->world_size, SLOT_TOLD);
    finalize_and_free(t, context);
}

static void check_left(struct tk *t, bool ends) {
    struct other_world w = other_world_begin(t);
    struct leaving leaving = {.store = w.store, .ends = ends};
    TK_EQ_INT(t, TK_CHILD_DONE, tk_run_child(t, leave_early, &leaving, LIMIT_MS));
    tk_out_of_band_barrier(t);
    other_world_end(t, &w);
}

TK_TEST(causes, came_and_left, "SM-EXCHANGE-21", .ranks = {2, 4},
        .flags = TK_PROCESS_ONLY | TK_NO_CONTEXT | TK_FORKS, .timeout_s = 60) {
    check_left(t, false);
}

TK_TEST(causes, came_and_ended, "SM-EXCHANGE-21", .ranks = {2, 4},
        .flags = TK_PROCESS_ONLY | TK_NO_CONTEXT | TK_FORKS, .timeout_s = 60) {
    check_left(t, true);
}
