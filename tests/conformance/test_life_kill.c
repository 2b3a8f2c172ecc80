/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks killed at every step. The last ranks of a case survive; the others go through a job (init,
 * allocation, rendezvous, barrier) until they pass their point or, where this backend does not pass
 * it, die before the barrier. When one or some die, the survivors are members of that job; when all
 * die, the last rank looks on.
 */
#include "kit.h"
#include "resources.h"
#include "work_after.h"

#define KILLS (TK_PROCESS_ONLY | TK_MAY_DIE | TK_MAY_LEAK | TK_NO_CONTEXT)
#define LIMIT_MS 8000u
#define BYTES 4096
enum { SLOT_KILL_MS = 0 };
#define ENDING_MS 15000u /* the system takes its time to end a process */

/* What a rank had before. */
struct before {
    int descriptors, mappings;
    struct resources_names *names;
};

static void look(struct tk *t, struct before *before) {
    before->names = malloc(sizeof(*before->names));
    TK_REQUIRE(t, before->names != NULL);
    resources_take_names(before->names);
    before->descriptors = resources_descriptors();
    before->mappings = resources_shared_mappings();
}

static void expect_nothing_left(struct tk *t, struct before *before) {
    char first[300];
    TK_EQ_INT(t, before->descriptors, resources_descriptors());
    TK_EQ_INT(t, before->mappings, resources_shared_mappings());
    TK_CHECK_MSG(t, resources_new_names(before->names, first, sizeof(first)) == 0,
                 "%s was left behind", first);
    free(before->names);
}

/* A job of `world_size` ranks in the given place; the steps' first failure. */
struct job {
    symmem_store *store;
    symmem_context *context;
    symmem_group *group;
    symmem_handle *handle;
    void *memory;
    uint64_t meets_ms; /* when it began to wait for others: what it does alone has no limit */
};

static symmem_status start_job(struct tk *t, struct job *job, const char *place, int32_t world_size,
                               uint32_t timeout_ms) {
    symmem_context_options options = tk_options(t);
    char path[4096];
    symmem_status status;
    memset(job, 0, sizeof(*job));
    snprintf(path, sizeof(path), "%s/%s", t->scratch_dir, place);
    TK_REQUIRE_OK(t, symmem_store_open_file(path, &job->store));
    options.store = job->store;
    options.world_size = world_size;
    status = symmem_init(&options, &job->context);
    if (status == SYMMEM_OK)
        status = symmem_group_create(job->context, "job", NULL, 0, NULL, &job->group);
    job->meets_ms = tk_now_ms();
    if (status == SYMMEM_OK)
        status = symmem_join(job->context, NULL, timeout_ms);
    if (status == SYMMEM_OK)
        status = symmem_alloc(job->context, BYTES, -1, NULL, &job->memory);
    if (status != SYMMEM_OK)
        return status;
    job->meets_ms = tk_now_ms();
    status = symmem_rendezvous(job->context, job->memory, job->group, timeout_ms, &job->handle);
    return status;
}

static void end_job(struct tk *t, struct job *job) {
    symmem_handle_release(job->handle);
    if (job->context != NULL) {
        TK_OK(t, symmem_free(job->context, job->memory));
        TK_OK(t, symmem_finalize(job->context));
        symmem_context_free(job->context);
    }
    symmem_store_close(job->store);
}

/* The next job, of one rank, on a new store. */
static void next_job_works(struct tk *t, const char *place) {
    struct job job;
    uint8_t byte = 3;
    symmem_context_options options = tk_options(t);
    char path[4096];
    TK_REQ(t, "SM-LIFE-03");
    memset(&job, 0, sizeof(job));
    snprintf(path, sizeof(path), "%s/%s-%d", t->scratch_dir, place, t->rank);
    TK_REQUIRE_OK(t, symmem_store_open_file(path, &job.store));
    options.store = job.store;
    options.rank = 0;
    options.world_size = 1;
    TK_REQUIRE_OK(t, symmem_init(&options, &job.context));
    TK_OK(t, symmem_group_create(job.context, "job", NULL, 0, NULL, &job.group));
    TK_OK(t, symmem_alloc(job.context, BYTES, -1, NULL, &job.memory));
    TK_OK(t, symmem_rendezvous(job.context, job.memory, job.group, LIMIT_MS, &job.handle));
    TK_OK(t, symmem_barrier(job.handle, 0, LIMIT_MS, NULL));
    TK_OK(t, symmem_put(job.handle, 0, BYTES - 1, &byte, 1, NULL));
    end_job(t, &job);
}

/* The way of a rank that dies: at the point, or before the barrier. */
static void die_on_the_way(struct tk *t, const char *point, int32_t world_size) {
    struct job job;
    tk_on_point(t, point, 1, (struct tk_action){.kill = true});
    (void)start_job(t, &job, "killed", world_size, LIMIT_MS);
    tk_kill_self(t);
}

/* The ranks below `dying` die; the call of a survivor that needed all of them is over, with what it
 * came to. The first end is enough to end it. */
static void expect_told(struct tk *t, int32_t dying, symmem_status status, uint64_t begin_ms) {
    uint64_t end_ms = tk_now_ms();
    int32_t first = 0;
    bool over = false;
    for (int32_t rank = 0; rank < dying; rank++)
        over = over || tk_has_ended(t, rank);
    TK_CHECK_MSG(t, over || status != SYMMEM_PEER_LOST, "told before any had ended");
    for (int32_t rank = 0; rank < dying; rank++) {
        TK_CHECK(t, tk_wait_death(t, rank, tk_limit_ms(t, ENDING_MS)));
        if (tk_death_ms(t, rank) < tk_death_ms(t, first))
            first = rank;
    }
    tk_expect_prompt(t, first, begin_ms, end_ms);
}

/* Ranks [0, dying) die, the others survive as members of the same job. */
static void survive(struct tk *t, const char *point, int32_t dying) {
    /* Who dies before it was known to anybody cannot be told from one that is late. */
    const bool unknown = strncmp(point, "init.", 5) == 0;
    struct before before;
    struct job job;
    symmem_status status;
    TK_REQ(t, "SM-LIFE-02");
    look(t, &before);
    for (int32_t rank = 0; rank < dying; rank++)
        tk_expect_death(t, rank);
    tk_out_of_band_barrier(t);
    if (t->rank < dying)
        die_on_the_way(t, point, t->world_size);
    status = start_job(t, &job, "killed", t->world_size, unknown ? 300 : LIMIT_MS);
    if (status == SYMMEM_OK) {
        job.meets_ms = tk_now_ms();
        status = symmem_barrier(job.handle, 0, LIMIT_MS, NULL);
    }
    expect_told(t, dying, status, job.meets_ms);
    TK_STATUS_EITHER(t, SYMMEM_PEER_LOST, unknown ? SYMMEM_TIMEOUT : SYMMEM_PEER_LOST, status);
    TK_REQUIRE(t, job.context != NULL);
    /* An engine that did not come up with all ranks has no memory for those that are left. */
    if ((t->capabilities & SYMMEM_CAP_WORLD) == 0 || job.memory != NULL)
        work_after_loss(t, job.context, 0, dying, NULL);
    end_job(t, &job);
    next_job_works(t, "next");
    expect_nothing_left(t, &before);
}

/* All ranks of a job die; only a rank that was not in it is left to look. */
static void look_on(struct tk *t, const char *point) {
    const int32_t job_ranks = t->last;
    struct before before;
    TK_REQ(t, "SM-LIFE-02");
    look(t, &before);
    for (int32_t rank = 0; rank < job_ranks; rank++)
        tk_expect_death(t, rank);
    tk_out_of_band_barrier(t);
    if (t->rank < job_ranks)
        die_on_the_way(t, point, job_ranks);
    for (int32_t rank = 0; rank < job_ranks; rank++)
        TK_CHECK(t, tk_wait_death(t, rank, LIMIT_MS + tk_limit_ms(t, ENDING_MS)));
    next_job_works(t, "next");
    expect_nothing_left(t, &before);
}

/* --- killed in a barrier ------------------------------------------------------------ */

static void killed_in_a_barrier(struct tk *t, int32_t dying) {
    struct before before;
    struct job job;
    symmem_status status;
    symmem_error_record record;
    uint64_t begin_ms, told_ms;
    TK_REQ(t, "SM-LIFE-02");
    look(t, &before);
    TK_REQUIRE_OK(t, start_job(t, &job, "barrier", t->world_size, LIMIT_MS * 2));
    TK_OK(t, symmem_barrier(job.handle, 0, LIMIT_MS * 2, NULL));
    for (int32_t rank = 0; rank < dying; rank++)
        tk_expect_death(t, rank);
    tk_out_of_band_barrier(t);
    if (t->rank < dying) {
        tk_sleep_ms(40); /* the others are inside by now, most likely */
        tk_share_u64(t, SLOT_KILL_MS, tk_now_ms());
        tk_kill_self(t);
    }
    /* Without a limit: nothing but the loss ends it. */
    begin_ms = tk_now_ms();
    status = symmem_barrier(job.handle, 0, t->rank % 2 == 0 ? 0 : LIMIT_MS * 2, NULL);
    told_ms = tk_now_ms();
    symmem_last_error(&record);
    expect_told(t, dying, status, begin_ms);
    /* What a user sees, the system's time to end a process included. */
    tk_note(t, "told %lld ms after SIGKILL",
            (long long)(told_ms - tk_read_u64(t, 0, SLOT_KILL_MS)));
    TK_FAILS(t, PEER_LOST, status);
    TK_CHECK_MSG(t, record.failed_rank < dying, "rank %d is blamed", record.failed_rank);
    work_after_loss(t, job.context, 0, dying, NULL);
    end_job(t, &job);
    next_job_works(t, "next");
    expect_nothing_left(t, &before);
}

TK_TEST(life_kill, one_in_a_barrier, "SM-LIFE-02,SM-LIFE-03,SM-TIMEOUT-14", .min_ranks = 2,
        .flags = KILLS, .timeout_s = 40) {
    killed_in_a_barrier(t, 1);
}

TK_TEST(life_kill, all_but_one_in_a_barrier, "SM-LIFE-02,SM-LIFE-03,SM-TIMEOUT-14", .ranks = {3, 8},
        .flags = KILLS, .timeout_s = 40) {
    killed_in_a_barrier(t, t->last);
}

/* --- the points ------------------------------------------------------------------------------- */

#define POINTS(X)                                                                                  \
    X(init, identity, "init.identity")                                                             \
    X(init, done, "init.done")                                                                     \
    X(alloc, before, "alloc.before")                                                               \
    X(alloc, done, "alloc.done")                                                                   \
    X(join, before, "session.join.before")                                                         \
    X(join, published, "session.join.published")                                                   \
    X(join, done, "session.join.done")                                                             \
    X(exchange, publish_before, "exchange.publish.before")                                         \
    X(exchange, publish_after, "exchange.publish.after")                                           \
    X(exchange, wait_before, "exchange.wait.before")                                               \
    X(exchange, done, "exchange.done")                                                             \
    X(ipc, send_before, "ipc.send.before")                                                         \
    X(ipc, send_after, "ipc.send.after")                                                           \
    X(ipc, recv_after, "ipc.recv.after")                                                           \
    X(rendezvous, begin, "rendezvous.begin")                                                       \
    X(rendezvous, metadata_before, "rendezvous.metadata.before")                                   \
    X(rendezvous, metadata_after, "rendezvous.metadata.after")                                     \
    X(rendezvous, descriptors_before, "rendezvous.descriptors.before")                             \
    X(rendezvous, descriptors_after, "rendezvous.descriptors.after")                               \
    X(rendezvous, map_before, "rendezvous.map.before")                                             \
    X(rendezvous, map_after, "rendezvous.map.after")                                               \
    X(rendezvous, commit_before, "rendezvous.commit.before")                                       \
    X(rendezvous, commit_after, "rendezvous.commit.after")

#define TESTS(area, step, point)                                                                   \
    TK_NAMED("life_kill.one_at." point, one_at_##area##_##step,                                    \
             "SM-LIFE-02,SM-LIFE-03,SM-TIMEOUT-14", .ranks = {2, 4}, .flags = KILLS,               \
             .timeout_s = 40) {                                                                    \
        survive(t, point, 1);                                                                      \
    }                                                                                              \
    TK_NAMED("life_kill.some_at." point, some_at_##area##_##step,                                  \
             "SM-LIFE-02,SM-LIFE-03,SM-TIMEOUT-14", .ranks = {3, 4}, .flags = KILLS,               \
             .timeout_s = 40) {                                                                    \
        survive(t, point, t->last);                                                                \
    }                                                                                              \
    TK_NAMED("life_kill.all_at." point, all_at_##area##_##step, "SM-LIFE-02,SM-LIFE-03",           \
             .ranks = {2, 4}, .flags = KILLS, .timeout_s = 40) {                                   \
        look_on(t, point);                                                                         \
    }
POINTS(TESTS)
