/* SPDX-License-Identifier: BSD-3-Clause */
/* A record tells what two ranks have differently, also to who comes late. */
#include "causes_help.h"

/* Rank 0's list is another one, in its order, in its length, in its members. */
TK_TEST(causes, groups_of_one_name, "SM-GROUP-15,SM-GROUP-16", .ranks = {3, 3}) {
    static const struct {
        int32_t odd[3], count;
        const char *first, *second;
    } ways[] = {
        {{1, 0, 2}, 3, "1, 0, 2", "0, 1, 2"},
        {{0, 1}, 2, "0, 1 ", "0, 1, 2"},
        {{2, 0, 1}, 3, "2, 0, 1", "0, 1, 2"},
    };
    const int32_t all[] = {0, 1, 2};
    for (size_t i = 0; i < TK_COUNT(ways); i++) {
        symmem_group *group = NULL;
        const bool odd = t->rank == 0;
        tk_checkpoint(t, "list %zu", i);
        TK_REQUIRE_OK(t, symmem_group_create(t->context, "one", odd ? ways[i].odd : all,
                                             odd ? ways[i].count : 3, NULL, &group));
        tk_out_of_band_barrier(t);
        uint64_t begin_ms = tk_now_ms();
        expect_told(t, symmem_group_barrier(group, LIMIT_MS), begin_ms, ways[i].first,
                    ways[i].second);
        tk_out_of_band_barrier(t); /* the last rank still sees the others' sockets */
        TK_OK(t, symmem_group_destroy(group));
        tk_out_of_band_barrier(t);
        group = tk_group(t, "one", all, 3);
        tk_group_barrier(t, group);
        TK_OK(t, symmem_group_destroy(group));
    }
}

/* Names that begin alike are other names. */
TK_TEST(causes, names_that_begin_alike, "SM-GROUP-16", .ranks = {2, 4}) {
    static const char *const names[] = {"model", "model_parallel", "model ", "mode"};
    symmem_group *groups[4];
    for (int i = 0; i < 4; i++)
        groups[i] = tk_group(t, names[i], NULL, 0);
    for (int round = 0; round < 2; round++) {
        /* The two groups with calls at the same time have different names. */
        symmem_group *own = groups[t->rank % 2];
        TK_FAILS(t, TIMEOUT, symmem_group_barrier(own, tk_limit_ms(t, 100)));
        tk_out_of_band_barrier(t);
        for (int i = 0; i < 4; i++)
            tk_group_barrier(t, groups[i]);
        tk_out_of_band_barrier(t);
    }
}

/* Either rank may find it, and a rank tells it in its own words or in the other one's. */
TK_TEST(causes, worlds_of_other_sizes, "SM-CONTEXT-15", .ranks = {2, 2}) {
    struct other_world w = other_world_begin(t);
    w.options.world_size = 2 + t->rank;
    other_world_group(t, &w, "world");
    uint64_t begin_ms = tk_now_ms();
    symmem_status status = symmem_group_barrier(w.group, LIMIT_MS);
    const bool by_first = strstr(last_record().message, "rank 0 is in a world of 2") != NULL;
    expect_told(t, status, begin_ms,
                by_first ? "rank 0 is in a world of 2" : "rank 1 is in a world of 3",
                by_first ? "rank 1 in one of 3" : "rank 0 in one of 2");
    other_world_end(t, &w);
}

/* What a record calls the case's first two ranks by. */
struct two_processes {
    char words[2][24];
};

static struct two_processes name_processes(struct tk *t) {
    struct two_processes p;
    for (int32_t r = 0; r < 2; r++)
        snprintf(p.words[r], sizeof p.words[r], "%d on", (int)tk_process_id(t, r));
    return p;
}

/* The case's second rank says that it is the first. */
TK_TEST(causes, one_rank_twice, "SM-CONTEXT-14", .ranks = {2, 2}, .flags = TK_PROCESS_ONLY) {
    const struct two_processes p = name_processes(t);
    struct other_world w = other_world_begin(t);
    w.options.rank = 0;
    tk_out_of_band_barrier(t);
    uint64_t begin_ms = tk_now_ms();
    symmem_status status = symmem_init(&w.options, &w.context);
    if (status == SYMMEM_OK) {
        other_world_group(t, &w, "world");
        status = symmem_group_barrier(w.group, LIMIT_MS);
    }
    expect_told(t, status, begin_ms, p.words[0], p.words[1]);
    other_world_end(t, &w);
}

/* A process that is rank 0 until rank 1 is about to look. */
static void be_first_for_a_moment(struct tk *t, void *arg) {
    const struct other_world *w = arg;
    symmem_context *context = NULL;
    TK_REQUIRE_OK(t, symmem_init(&w->options, &context));
    tk_share_u64(t, SLOT_DONE, 1);
    (void)await_shared(t, 1, SLOT_DONE, 1);
    t->context = context; /* never ended, but no leak */
}

static symmem_status share_done(void *arg, const char *point) {
    if (strcmp(point, "init.identity") == 0)
        tk_share_u64(arg, SLOT_DONE, 1);
    return SYMMEM_OK;
}

/* A job is started again while a process of the last one is about to end. */
TK_TEST(causes, one_rank_again, "SM-CONTEXT-16", .ranks = {2, 2}, .flags = OWN_PROCESSES) {
    struct other_world w = other_world_begin(t);
    w.options.rank = 0;
    if (t->rank == 0) {
        TK_EQ_INT(t, TK_CHILD_DONE, tk_run_child(t, be_first_for_a_moment, &w, LIMIT_MS));
    } else {
        (void)await_shared(t, 0, SLOT_DONE, 1);
        w.options.point = share_done;
        w.options.point_arg = t;
        TK_OK(t, symmem_init(&w.options, &w.context));
    }
    tk_out_of_band_barrier(t);
    other_world_end(t, &w);
}

/* The case's second rank says that it is the first, for which the third waits. */
TK_TEST(causes, one_rank_twice_told, "SM-CONTEXT-17", .ranks = {3, 3}, .flags = TK_PROCESS_ONLY) {
    const struct two_processes p = name_processes(t);
    struct other_world w = other_world_begin(t);
    w.options.rank = t->rank == 2 ? 1 : 0;
    w.options.world_size = 2;
    if (t->rank != 1)
        TK_REQUIRE_OK(t, symmem_init(&w.options, &w.context));
    tk_out_of_band_barrier(t);
    const uint64_t begin_ms = tk_now_ms();
    if (t->rank == 1)
        TK_FAILS(t, MISMATCH, symmem_init(&w.options, &w.context));
    if (t->rank == 2) {
        other_world_group(t, &w, "world");
        expect_told(t, symmem_group_barrier(w.group, LIMIT_MS), begin_ms, p.words[0], p.words[1]);
        TK_EQ_INT(t, 0, last_record().failed_rank);
    }
    tk_out_of_band_barrier(t);
    other_world_end(t, &w);
}

/* --- ranks that come late -------------------------------------------------------------------- */

enum { LISTS, SIZES, ONE_RANK, CONTRADICTIONS };

struct at_odds {
    symmem_store *store;
    int kind;
    bool with_first; /* the late rank agrees with the first one, or with the second one */
    const char *told[2];
};

/* Gives up and ends at its first failure, as programs do. */
static void run_at_odds(struct tk *t, void *arg) {
    static const int32_t orders[2][3] = {{0, 1, 2}, {1, 0, 2}};
    const struct at_odds *odds = arg;
    const bool second = t->rank == 1 || (t->rank == 2 && !odds->with_first);
    symmem_context_options options = job_options(t, odds->store);
    symmem_context *context = NULL;
    symmem_group *group = NULL;
    options.world_size = odds->kind == SIZES && second ? 4 : 3;
    options.rank = odds->kind == ONE_RANK && t->rank == 1 ? 0 : t->rank;
    const int32_t *order = odds->kind == LISTS ? orders[second] : NULL;
    uint64_t begin_ms = tk_now_ms();
    symmem_status status = symmem_init(&options, &context);
    t->context = context; /* never ended, but no leak */
    if (status == SYMMEM_OK)
        status = symmem_group_create(context, "met", order, order != NULL ? 3 : 0, NULL, &group);
    if (status == SYMMEM_OK)
        status = symmem_group_barrier(group, LIMIT_MS);
    if (t->rank == 2)
        expect_told(t, status, begin_ms, odds->told[0], odds->told[1]);
    else
        TK_STATUS(t, SYMMEM_MISMATCH, status);
}

/* When it comes, the two that have found the contradiction have ended. */
TK_TEST(causes, told_to_who_comes_late, "SM-EXCHANGE-22", .ranks = {3, 3}, .flags = OWN_PROCESSES,
        .timeout_s = 60) {
    static const char *const told[CONTRADICTIONS][2] = {
        [LISTS] = {"'met' has the ranks", "1, 0, 2"},
        [SIZES] = {"in a world of ", "in one of "},
        [ONE_RANK] = {"two processes are rank 0 in this store", " and "}};
    for (int i = 0; i < 2 * CONTRADICTIONS; i++) {
        char path[64];
        snprintf(path, sizeof path, "%s/late-%d", t->scratch_dir, i);
        struct at_odds odds = {.kind = i / 2, .with_first = i % 2 == 0};
        memcpy(odds.told, told[i / 2], sizeof odds.told);
        TK_REQUIRE_OK(t, symmem_store_open_file(path, &odds.store));
        tk_checkpoint(t, "contradiction %d, the late rank is with rank %d", i / 2, i % 2);
        if (t->rank != 2)
            TK_EQ_INT(t, TK_CHILD_DONE, tk_run_child(t, run_at_odds, &odds, LIMIT_MS));
        tk_out_of_band_barrier(t);
        if (t->rank == 2)
            TK_EQ_INT(t, TK_CHILD_DONE, tk_run_child(t, run_at_odds, &odds, LIMIT_MS));
        symmem_store_close(odds.store);
        tk_out_of_band_barrier(t);
    }
}
