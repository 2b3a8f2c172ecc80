/* SPDX-License-Identifier: BSD-3-Clause */
/* Contexts: what makes one, what ends one, and that two are two. */
#include "sync_help.h"

static const char *const rank_names[] = {"RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK",
                                         "SLURM_PROCID"};
static const char *const size_names[] = {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE",
                                         "SLURM_NTASKS"};
static const char *const local_names[] = {"LOCAL_RANK",
                                          "PMIX_LOCAL_RANK",
                                          "MPI_LOCALRANKID",
                                          "PMI_LOCAL_RANK",
                                          "OMPI_COMM_WORLD_LOCAL_RANK",
                                          "SLURM_LOCALID",
                                          "SYMMEM_STORE"};

static void clear_environment(void) {
    for (size_t i = 0; i < TK_COUNT(rank_names); i++)
        unsetenv(rank_names[i]);
    for (size_t i = 0; i < TK_COUNT(size_names); i++)
        unsetenv(size_names[i]);
    for (size_t i = 0; i < TK_COUNT(local_names); i++)
        unsetenv(local_names[i]);
}

/* Options that leave rank and world to the environment; with a store of their own. */
static symmem_context_options open_options(symmem_store *store) {
    symmem_context_options options;
    symmem_context_options_init(&options);
    options.store = store;
    return options;
}

static void expect_identity(struct tk *t, const symmem_context_options *options, int32_t rank,
                            int32_t world_size, int32_t local_rank) {
    symmem_context *context = NULL;
    int32_t value = -7;
    TK_REQUIRE_OK(t, symmem_init(options, &context));
    TK_OK(t, symmem_context_rank(context, &value));
    TK_EQ_INT(t, rank, value);
    TK_OK(t, symmem_context_world_size(context, &value));
    TK_EQ_INT(t, world_size, value);
    TK_OK(t, symmem_context_local_rank(context, &value));
    TK_EQ_INT(t, local_rank, value);
    TK_OK(t, symmem_finalize(context));
    symmem_context_free(context);
}

/* NULL is asked for on failure, so something else has to be there before. */
static void expect_refusal(struct tk *t, const symmem_context_options *options) {
    symmem_context *context = (symmem_context *)(void *)t;
    TK_FAILS(t, INVALID_ARGUMENT, symmem_init(options, &context));
    TK_EQ_PTR(t, NULL, context);
}

TK_TEST(context, rank_and_size_of_this_job, "SM-CONTEXT-01") {
    int32_t value = -1;
    TK_OK(t, symmem_context_rank(t->context, &value));
    TK_EQ_INT(t, t->rank, value);
    TK_OK(t, symmem_context_world_size(t->context, &value));
    TK_EQ_INT(t, t->world_size, value);
}

TK_TEST(context, options_before_environment, "SM-CONTEXT-01", TK_OWN_ENVIRONMENT) {
    symmem_store *store = NULL;
    clear_environment();
    TK_REQUIRE_OK(t, symmem_store_open_memory(&store));
    symmem_context_options options = open_options(store);
    options.rank = 3;
    options.world_size = 5;
    expect_identity(t, &options, 3, 5, 3);
    options.local_rank = 1;
    expect_identity(t, &options, 3, 5, 1);
    setenv("RANK", "0", 1);
    setenv("WORLD_SIZE", "2", 1);
    setenv("LOCAL_RANK", "0", 1);
    expect_identity(t, &options, 3, 5, 1);
    options.rank = SYMMEM_MAX_WORLD_SIZE - 1;
    options.world_size = SYMMEM_MAX_WORLD_SIZE;
    expect_identity(t, &options, SYMMEM_MAX_WORLD_SIZE - 1, SYMMEM_MAX_WORLD_SIZE, 1);
    clear_environment();
    symmem_store_close(store);
}

/* The variables of a launcher; NULL: it has none. */
static const struct launcher {
    const char *name, *rank, *size, *local;
} launchers[] = {
    {"env", "RANK", "WORLD_SIZE", "LOCAL_RANK"},
    {"pmix", "PMIX_RANK", NULL, "PMIX_LOCAL_RANK"},
    {"ompi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
    {"pmi", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
    {"slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"},
};

static void launched_by(const struct launcher *one, const char *rank, const char *size,
                        const char *local) {
    setenv(one->rank, rank, 1);
    if (one->size != NULL && size != NULL)
        setenv(one->size, size, 1);
    if (local != NULL)
        setenv(one->local, local, 1);
}

TK_TEST(context, environment_gives_identity, "SM-CONTEXT-01", TK_OWN_ENVIRONMENT) {
    symmem_store *store = NULL;
    TK_REQUIRE_OK(t, symmem_store_open_memory(&store));
    for (size_t i = 0; i < TK_COUNT(launchers); i++) {
        symmem_context_options options = open_options(store);
        clear_environment();
        tk_checkpoint(t, "from %s", launchers[i].rank);
        options.world_size = launchers[i].size == NULL ? 6 : -1;
        launched_by(&launchers[i], "3", "6", NULL);
        expect_identity(t, &options, 3, 6, 3);
        launched_by(&launchers[i], "2", "6", "1");
        expect_identity(t, &options, 2, 6, 1);
    }
    clear_environment();
    symmem_store_close(store);
}

static void expect_both_named(struct tk *t, const symmem_context_options *options, const char *one,
                              const char *other) {
    expect_refusal(t, options);
    TK_SAYS(t, one);
    TK_SAYS(t, other);
}

/* Each pair of launchers: alike, with ranks that differ, with sizes that differ, and named. */
TK_TEST(context, launchers_are_not_mixed, "SM-CONTEXT-13", TK_OWN_ENVIRONMENT) {
    symmem_store *store = NULL;
    TK_REQUIRE_OK(t, symmem_store_open_memory(&store));
    symmem_context_options options = open_options(store);
    for (size_t i = 0; i < TK_COUNT(launchers); i++) {
        for (size_t k = 0; k < TK_COUNT(launchers); k++) {
            const struct launcher *one = &launchers[i], *other = &launchers[k];
            char first[64], second[64];
            if (i == k || one->size == NULL || other->size == NULL)
                continue;
            clear_environment();
            tk_checkpoint(t, "%s and %s", one->rank, other->rank);
            launched_by(one, "3", "6", i < k ? "2" : NULL);
            launched_by(other, "3", "6", i < k ? NULL : "2");
            expect_identity(t, &options, 3, 6, 2);
            setenv(i < k ? other->rank : one->rank, "many", 1); /* which says nothing */
            expect_identity(t, &options, 3, 6, 2);
            setenv(one->rank, "3", 1);
            setenv(other->rank, "1", 1);
            snprintf(first, sizeof(first), "%s=3", one->rank);
            snprintf(second, sizeof(second), "%s=1", other->rank);
            expect_both_named(t, &options, first, second);
            setenv(other->rank, "3", 1);
            setenv(other->size, "7", 1);
            snprintf(first, sizeof(first), "%s=6", one->size);
            snprintf(second, sizeof(second), "%s=7", other->size);
            expect_both_named(t, &options, first, second);
            setenv("SYMMEM_LAUNCHER", other->name, 1);
            expect_identity(t, &options, 3, 7, i < k ? 3 : 2);
            unsetenv(other->rank); /* of it alone */
            expect_both_named(t, &options, other->name, other->rank);
            unsetenv("SYMMEM_LAUNCHER");
            unsetenv(one->size); /* a rank of the one, a size of the other */
            snprintf(first, sizeof(first), "%s=3", one->rank);
            expect_both_named(t, &options, first, second);
        }
    }
    clear_environment();
    setenv("SYMMEM_LAUNCHER", "nobody", 1);
    launched_by(&launchers[0], "0", "1", NULL);
    expect_refusal(t, &options);
    unsetenv("SYMMEM_LAUNCHER");
    clear_environment();
    symmem_store_close(store);
}

TK_TEST(context, refuses_malformed_environment, "SM-CONTEXT-02", TK_OWN_ENVIRONMENT) {
    static const char *const bad[] = {
        "", "x", "-1", "3x", "0x1", "1.5", "5", "2147483648", "99999999999999999999", "- 1"};
    symmem_store *store = NULL;
    TK_REQUIRE_OK(t, symmem_store_open_memory(&store));
    symmem_context_options options = open_options(store);
    clear_environment();
    expect_refusal(t, &options); /* neither */
    setenv("RANK", "0", 1);
    expect_refusal(t, &options); /* no size */
    clear_environment();
    setenv("WORLD_SIZE", "5", 1);
    expect_refusal(t, &options); /* no rank */
    for (size_t i = 0; i < TK_COUNT(bad); i++) {
        tk_checkpoint(t, "RANK=%s", bad[i]);
        setenv("RANK", bad[i], 1);
        expect_refusal(t, &options);
    }
    setenv("RANK", "0", 1);
    for (size_t i = 0; i < TK_COUNT(bad); i++) {
        if (strcmp(bad[i], "5") == 0)
            continue; /* fine as a size */
        tk_checkpoint(t, "WORLD_SIZE=%s", bad[i]);
        setenv("WORLD_SIZE", bad[i], 1);
        expect_refusal(t, &options);
    }
    setenv("WORLD_SIZE", "0", 1);
    expect_refusal(t, &options);
    setenv("WORLD_SIZE", "1025", 1);
    expect_refusal(t, &options);
    setenv("WORLD_SIZE", "1024", 1);
    expect_identity(t, &options, 0, 1024, 0);
    clear_environment();
    symmem_store_close(store);
}

TK_TEST(context, refuses_bad_rank_or_size, "SM-CONTEXT-02", TK_OWN_ENVIRONMENT) {
    static const struct {
        int32_t rank, world_size;
    } bad[] = {{1, 1},
               {2, 2},
               {-2, 2},
               {INT32_MIN, 2},
               {0, 0},
               {0, -2},
               {0, SYMMEM_MAX_WORLD_SIZE + 1},
               {0, INT32_MAX},
               {SYMMEM_MAX_WORLD_SIZE, SYMMEM_MAX_WORLD_SIZE}};
    symmem_store *store = NULL;
    clear_environment();
    TK_REQUIRE_OK(t, symmem_store_open_memory(&store));
    for (size_t i = 0; i < TK_COUNT(bad); i++) {
        symmem_context_options options = open_options(store);
        options.rank = bad[i].rank;
        options.world_size = bad[i].world_size;
        tk_checkpoint(t, "rank %d of %d", bad[i].rank, bad[i].world_size);
        expect_refusal(t, &options);
    }
    symmem_store_close(store);
}

TK_TEST(context, many_ranks_need_a_store, "SM-CONTEXT-03", TK_OWN_ENVIRONMENT) {
    symmem_context_options options = open_options(NULL);
    char url[4096];
    clear_environment();
    options.rank = 0;
    options.world_size = 2;
    expect_refusal(t, &options);
    options.rank = 1;
    expect_refusal(t, &options);
    snprintf(url, sizeof(url), "file:%s/environment-store", t->scratch_dir);
    setenv("SYMMEM_STORE", url, 1);
    expect_identity(t, &options, 1, 2, 1);
    clear_environment();
}

TK_TEST(context, flags_in_the_environment, "SM-ERROR-12", .max_ranks = 1,
        .flags = TK_PROCESS_ONLY | TK_SETS_ENVIRONMENT) {
    static const char *const flags[] = {"SYMMEM_ALLOW_OVERLAPPING_DEVICES",
                                        "SYMMEM_CHECK_COLLECTIVES", "SYMMEM_MULTICAST"};
    static const char *const wrong[] = {"yes", "2", "-1", "1 ", "false"};
    symmem_context_options options = tk_options(t);
    symmem_context *context = NULL;
    for (size_t i = 0; i < TK_COUNT(flags) * TK_COUNT(wrong); i++) {
        const char *flag = flags[i / TK_COUNT(wrong)], *text = wrong[i % TK_COUNT(wrong)];
        TK_REQUIRE(t, setenv(flag, text, 1) == 0);
        tk_checkpoint(t, "%s=%s", flag, text);
        TK_FAILS(t, INVALID_ARGUMENT, symmem_init(&options, &context));
        TK_CHECK(t, context == NULL && strstr(last_record().message, flag) != NULL &&
                        strstr(last_record().message, text) != NULL);
        TK_REQUIRE(t, setenv(flag, "", 1) == 0); /* as good as unset */
        TK_OK(t, symmem_init(&options, &context));
        symmem_context_free(context);
        context = NULL;
        TK_REQUIRE(t, unsetenv(flag) == 0);
    }
}

TK_TEST(context, one_rank_needs_no_store, "SM-CONTEXT-03", .max_ranks = 1,
        .flags = TK_PROCESS_ONLY | TK_SETS_ENVIRONMENT) {
    clear_environment();
    TK_REINIT(t, options.store = NULL);
    symmem_handle *handle = tk_handle(t, 512, tk_world_group(t));
    tk_fill(t, handle, 0, 0, 512, 0x21);
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    tk_group_barrier(t, tk_world_group(t));
    tk_expect_bytes(t, handle, 0, 0, 512, 0x21);
}

TK_TEST(context, again_and_again, "SM-CONTEXT-06",
        .timeout_s = 40 /* twenty groups, of which each may take a second to open */) {
    int cycles = t->world_size > 8 ? 1 : t->world_size > 4 ? 5 : 20;
    symmem_context_options options = tk_options(t);
    for (int cycle = 0; cycle < cycles; cycle++) {
        symmem_handle *handle = tk_handle(t, 256, tk_world_group(t));
        tk_fill(t, handle, t->next, 0, 256, (uint8_t)(t->rank + cycle));
        TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
        tk_expect_bytes(t, handle, t->rank, 0, 256, (uint8_t)(t->previous + cycle));
        TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
        tk_reinit(t, &options);
    }
}

/* Live objects and peers that do nothing: neither is waited for, whichever rank goes first. */
TK_TEST(context, finalize_does_not_wait, "SM-CONTEXT-07", .max_ranks = 8) {
    (void)tk_handle(t, 4096, tk_world_group(t));
    (void)tk_handle(t, 64, tk_world_group(t));
    symmem_group *own = tk_group(t, "left-alive", NULL, 0);
    tk_group_barrier(t, own);
    for (int32_t i = 0; i < t->world_size; i++) {
        tk_out_of_band_barrier(t);
        if (t->rank == t->last - i) {
            uint64_t start = tk_now_ms();
            TK_OK(t, symmem_finalize(t->context));
            TK_WITHIN(t, 5000, start);
        }
    }
    tk_out_of_band_barrier(t);
}

TK_TEST(context, finalize_with_pool_and_stream, "SM-CONTEXT-07",
        .needs = SYMMEM_CAP_POOL | SYMMEM_CAP_STREAMS, .max_ranks = 3) {
    symmem_pool *pool = NULL;
    void *block = NULL;
    TK_REQUIRE_OK(t, symmem_pool_create(t->context, -1, 65536, &pool));
    TK_REQUIRE_OK(t, symmem_pool_alloc(pool, 1024, &block));
    symmem_handle *handle = tk_rendezvous(t, block, tk_world_group(t));
    symmem_stream *stream = tk_stream(t);
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, stream));
    tk_synchronize(t, stream);
    tk_out_of_band_barrier(t);
    if (t->rank != 0)
        tk_out_of_band_barrier(t);
    TK_OK(t, symmem_finalize(t->context));
    if (t->rank == 0)
        tk_out_of_band_barrier(t); /* the others begin after rank 0 has ended */
}

TK_TEST(context, two_contexts_are_apart, "SM-CONTEXT-08", .max_ranks = 1,
        .flags = TK_PROCESS_ONLY | TK_SETS_ENVIRONMENT) {
    symmem_context_options options = tk_options(t);
    symmem_context *other = NULL;
    symmem_group *mine = NULL, *theirs = NULL, *found = NULL;
    symmem_handle *handle = NULL;
    const char *name = "";
    bool symmetric = true;
    size_t bytes = 0;
    void *memory = tk_alloc(t, 1000), *twin = NULL;
    symmem_alloc_info info = {0};
    clear_environment();
    options.store = NULL;
    options.backend = NULL;
    unsetenv("SYMMEM_BACKEND");
    TK_REQUIRE_OK(t, symmem_init(&options, &other));
    TK_OK(t, symmem_get_backend(other, &name));
    TK_EQ_PTR(t, NULL, name);
    TK_OK(t, symmem_get_backend(t->context, &name));
    TK_CHECK(t, name != NULL);
    TK_OK(t, symmem_set_backend(other, t->backend));
    TK_OK(t, symmem_set_signal_pad_size(t->context, 4096));
    TK_OK(t, symmem_get_signal_pad_size(other, &bytes));
    TK_EQ_SIZE(t, SYMMEM_DEFAULT_SIGNAL_PAD_SIZE, bytes);
    TK_OK(t, symmem_group_create(t->context, "same", NULL, 0, NULL, &mine));
    TK_FAILS(t, NOT_FOUND, symmem_group_find(other, "same", &found));
    TK_OK(t, symmem_group_create(other, "same", NULL, 0, NULL, &theirs));
    TK_OK(t, symmem_group_find(t->context, "same", &found));
    TK_EQ_PTR(t, mine, found);
    TK_OK(t, symmem_is_symmetric(other, memory, &symmetric));
    TK_CHECK(t, !symmetric);
    TK_FAILS(t, NOT_SYMMETRIC, symmem_alloc_size(other, memory, &bytes));
    TK_FAILS(t, NOT_SYMMETRIC, symmem_free(other, memory));
    TK_FAILS(t, NOT_SYMMETRIC, symmem_rendezvous(other, memory, theirs, LONG_MS, &handle));
    TK_EQ_PTR(t, NULL, handle);
    TK_OK(t, symmem_alloc(other, 1000, -1, NULL, &twin));
    TK_OK(t, symmem_alloc_query(other, twin, &info));
    TK_EQ_SIZE(t, 1, info.ordinal); /* the other context's allocations do not count */
    TK_OK(t, symmem_finalize(other));
    symmem_context_free(other);
    TK_OK(t, symmem_is_symmetric(t->context, memory, &symmetric));
    TK_CHECK(t, symmetric);
    TK_OK(t, symmem_group_destroy(mine));
    TK_OK(t, symmem_barrier(tk_handle(t, 64, tk_world_group(t)), 0, LONG_MS, NULL));
}

/* A group of another context is not this context's. */
TK_TEST(context, group_of_another_context, "SM-CONTEXT-08", .max_ranks = 1) {
    symmem_context_options options = tk_options(t);
    symmem_context *other = NULL;
    symmem_group *theirs = NULL;
    symmem_handle *handle = NULL;
    void *memory = tk_alloc(t, 64);
    options.store = NULL;
    TK_REQUIRE_OK(t, symmem_init(&options, &other));
    TK_OK(t, symmem_group_create(other, "theirs", NULL, 0, NULL, &theirs));
    TK_FAILS(t, INVALID_ARGUMENT, symmem_rendezvous(t->context, memory, theirs, LONG_MS, &handle));
    TK_EQ_PTR(t, NULL, handle);
    symmem_context_free(other);
}
