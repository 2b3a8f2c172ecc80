/* SPDX-License-Identifier: BSD-3-Clause */
/* One run of a scenario: how it begins, what must work afterwards, and giving all back. */
#include "walk.h"

#include "work_after.h"

symmem_group *walk_group(struct walk_run *run, const char *what, int32_t without) {
    struct tk *t = run->t;
    int32_t ranks[SYMMEM_MAX_WORLD_SIZE], count = 0;
    symmem_group *group = NULL;
    char name[SYMMEM_NAME_MAX];

    for (int32_t r = 0; r < t->world_size; r++)
        if (r != without)
            ranks[count++] = r;
    snprintf(name, sizeof(name), "walk.%s.%d", what, run->number);
    TK_REQUIRE_OK(t, symmem_group_create(run->context, name, ranks, count, NULL, &group));
    return group;
}

/* That a group goes without multicast is what some steps are about. */
static void say_nothing(void *arg, const char *line) {
    (void)arg, (void)line;
}

symmem_context_options walk_options(const struct walk_run *run) {
    symmem_context_options options = tk_options(run->t);

    /* Whatever the environment says: the scenario is about it. */
    options.multicast = run->multicast && (run->t->capabilities & SYMMEM_CAP_MULTICAST) != 0;
    options.log = say_nothing;
    options.socket_dir = run->socket_dir;
    if (run->store != NULL)
        options.store = run->store;
    return options;
}

static void open_context(struct walk_run *run) {
    symmem_context_options options = walk_options(run);

    TK_REQUIRE_OK(run->t, symmem_init(&options, &run->context));
    TK_REQUIRE_OK(run->t, symmem_join(run->context, NULL, run->limit_ms));
    tk_use_context(run->t, run->context);
}

void walk_open_store(struct walk_run *run, const char *name) {
    char path[4096];

    snprintf(path, sizeof(path), "%s/%s.%d", run->t->scratch_dir, name, run->number);
    TK_REQUIRE_OK(run->t, symmem_store_open_file(path, &run->store));
}

void walk_begin(struct walk_run *run, const struct walk_scenario *scenario) {
    run->limit_ms = tk_scaled_ms(WALK_LIMIT_MS);
    run->multicast = scenario->multicast;
    if (scenario->prepare == NULL)
        return;
    open_context(run);
    scenario->prepare(run);
}

static _Thread_local const char *changed_errno;

void walk_look_at_errno(const char *call) {
    if (changed_errno == NULL && errno != WALK_ERRNO)
        changed_errno = call;
}

void walk_expect_errno(struct tk *t) {
    TK_REQ(t, "SM-LIFE-16");
    TK_CHECK_MSG(t, changed_errno == NULL, "errno is another one after %s", changed_errno);
    changed_errno = NULL;
}

void walk_works(struct walk_run *run, symmem_group *group) {
    if (run->context == NULL)
        open_context(run);
    TK_REQUIRE_OK(run->t, symmem_join(run->context, NULL, run->limit_ms)); /* if it has not yet */
    symmem_group *own = group == NULL ? walk_group(run, "fresh", -1) : NULL;
    work_after_on(run->t, run->context, own != NULL ? own : group, NULL);
    TK_OK(run->t, symmem_group_destroy(own));
}

void walk_survivors_work(struct walk_run *run, int32_t lost) {
    symmem_group *group;

    /* No world comes up without the one that is lost. */
    if (run->context == NULL && (run->t->capabilities & SYMMEM_CAP_WORLD) != 0)
        return;
    if (run->context == NULL)
        open_context(run);
    group = walk_group(run, "survivors", lost);
    walk_works(run, group);
    TK_OK(run->t, symmem_group_destroy(group));
}

void walk_give_back(struct walk_run *run) {
    struct tk *t = run->t;
    symmem_status told = SYMMEM_OK;

    /* The stream's work may have a failure to tell, which the walk has heard. */
    if (run->stream != NULL)
        told = symmem_stream_synchronize(run->stream, tk_limit_ms(t, WALK_LIMIT_MS));
    (void)told;
    TK_OK(t, symmem_graph_destroy(run->graph));
    TK_OK(t, symmem_stream_destroy(run->stream));
    symmem_handle_release(run->handle);
    if (run->context != NULL) {
        tk_use_context(t, NULL);
        if (run->block != NULL)
            TK_OK(t, symmem_pool_free(run->pool, run->block));
        TK_OK(t, symmem_pool_destroy(run->pool));
        TK_OK(t, symmem_free(run->context, run->memory));
        TK_OK(t, symmem_group_destroy(run->group));
        TK_OK(t, symmem_finalize(run->context));
        symmem_context_free(run->context);
    }
    *run = (struct walk_run){
        .t = t, .number = run->number, .store = run->store, .socket_dir = run->socket_dir};
}
