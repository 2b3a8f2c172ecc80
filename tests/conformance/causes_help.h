/* SPDX-License-Identifier: BSD-3-Clause */
/* What the cases of test_causes*.c share: what a record says, and worlds of the body's own. */
#ifndef SYMMEM_CONFORMANCE_CAUSES_HELP_H
#define SYMMEM_CONFORMANCE_CAUSES_HELP_H

#include <dirent.h>

#include "sync_help.h"

#define LIMIT_MS tk_scaled_ms(20000)
#define DEATH (TK_PROCESS_ONLY | TK_MAY_DIE | TK_MAY_LEAK)
/* Ranks are processes that the body starts, in contexts of their own. */
#define OWN_PROCESSES (TK_PROCESS_ONLY | TK_NO_CONTEXT | TK_FORKS | TK_MAY_LEAK)
#define SLOT_DONE 3

/* Told at once, with what both sides have. */
static inline void expect_told(struct tk *t, symmem_status status, uint64_t begin_ms,
                               const char *one, const char *other) {
    TK_WITHIN(t, 1000, begin_ms);
    TK_STATUS(t, SYMMEM_MISMATCH, status);
    TK_SAYS(t, one);
    TK_SAYS(t, other);
}

/* --- contexts of the body's own --------------------------------------------------------------- */

/* In a store of their own, for the case's ranks are known in the case's store. */
struct other_world {
    char path[64];
    symmem_store *store;
    symmem_context_options options;
    symmem_context *context;
    symmem_group *group;
};

static inline struct other_world other_world_begin(struct tk *t) {
    struct other_world w = {.options = tk_options(t)};
    tk_short_path(t, "other", -1, w.path);
    TK_REQUIRE_OK(t, symmem_store_open_file(w.path, &w.store));
    w.options.store = w.store;
    return w;
}

/* A context and a group of it. */
static inline void other_world_group(struct tk *t, struct other_world *w, const char *name) {
    if (w->context == NULL)
        TK_REQUIRE_OK(t, symmem_init(&w->options, &w->context));
    TK_REQUIRE_OK(t, symmem_group_create(w->context, name, NULL, 0, NULL, &w->group));
}

static inline void finalize_and_free(struct tk *t, symmem_context *context) {
    if (context != NULL)
        TK_OK(t, symmem_finalize(context));
    symmem_context_free(context);
}

/* By all ranks. No key is left in the store. */
static inline void other_world_end(struct tk *t, struct other_world *w) {
    char name[512];
    finalize_and_free(t, w->context);
    symmem_store_close(w->store);
    tk_out_of_band_barrier(t);
    if (t->rank != 0)
        return;
    DIR *listing = opendir(w->path);
    for (const struct dirent *entry; listing != NULL && (entry = readdir(listing)) != NULL;) {
        TK_CHECK_MSG(t, entry->d_name[0] != 'k', "%s is left", entry->d_name);
        snprintf(name, sizeof name, "%s/%s", w->path, entry->d_name);
        (void)unlink(name);
    }
    if (listing != NULL)
        closedir(listing);
    TK_CHECK(t, rmdir(w->path) == 0);
}

/* --- processes of the body's own -------------------------------------------------------------- */

/* No engine can start in such a process, so the backend is the library's first choice. */
static inline symmem_context_options job_options(struct tk *t, symmem_store *store) {
    symmem_context_options options = tk_options(t);
    options.store = store;
    options.backend = NULL;
    return options;
}

static inline symmem_group *begin_with_group(struct tk *t, const symmem_context_options *options,
                                             const char *name, symmem_context **context_p) {
    symmem_group *group = NULL;
    TK_REQUIRE_OK(t, symmem_init(options, context_p));
    TK_REQUIRE_OK(t, symmem_group_create(*context_p, name, NULL, 0, NULL, &group));
    return group;
}

/* The kit's barrier is not for processes that it did not start. */
static inline void await_ranks(struct tk *t, int32_t first, int32_t end, int slot) {
    for (int32_t rank = first; rank < end; rank++)
        (void)await_shared(t, rank, slot, 1);
}

static inline void share_and_await(struct tk *t, int32_t end, int slot) {
    tk_share_u64(t, slot, 1);
    await_ranks(t, 0, end, slot);
}

#endif
