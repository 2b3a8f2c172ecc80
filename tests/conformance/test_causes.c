/* SPDX-License-Identifier: BSD-3-Clause */
/* A record names the first cause: the absent rank, the failure or what is gone. */
#include <sys/stat.h>

#include "causes_help.h"

#define ABSENT 1

static void expect_absent(struct tk *t, symmem_status status, int32_t absent) {
    const symmem_error_record record = last_record();
    TK_STATUS(t, SYMMEM_TIMEOUT, status);
    TK_EQ_INT(t, absent, record.failed_rank);
    TK_EQ_INT(t, 1, record.missing_count);
    TK_CHECK(t, symmem_error_is_missing(&record, absent));
    TK_SAYS(t, "rank 1 did not arrive");
}

/* --- absent means absent -------------------------------------------------------------- */

/* Rank 1 does not come. Rank 0 has the shortest limit and ends at its failure, as programs do. */
static void give_up_and_end(struct tk *t, symmem_group *group) {
    tk_expect_death(t, 0);
    tk_out_of_band_barrier(t);
    if (t->rank == 0) {
        expect_absent(t, symmem_group_barrier(group, tk_limit_ms(t, 400)), ABSENT);
        tk_kill_self(t);
    }
    const uint64_t begin_ms = tk_now_ms();
    if (t->rank != ABSENT) {
        expect_absent(t, symmem_group_barrier(group, LIMIT_MS), ABSENT);
        tk_expect_prompt(t, 0, begin_ms, tk_now_ms());
        tk_share_u64(t, SLOT_DONE, 1);
    }
    if (t->rank == ABSENT)
        await_ranks(t, 2, t->world_size, SLOT_DONE);
}

TK_TEST(causes, absent_at_the_first_call, "SM-EXCHANGE-17,SM-EXCHANGE-04", .ranks = {4, 8},
        .flags = DEATH) {
    symmem_group *group = tk_group(t, "fresh", NULL, 0);
    give_up_and_end(t, group);
}

TK_TEST(causes, absent_later, "SM-EXCHANGE-17,SM-EXCHANGE-04", .ranks = {4, 8}, .flags = DEATH) {
    symmem_group *group = tk_world_group(t);
    tk_group_barrier(t, group);
    give_up_and_end(t, group);
}

/* --- a failure travels ---------------------------------------------------------------- */

/* A store that fails one call, of those that are asked to. */
struct failing_store {
    symmem_store *inner;
    symmem_status with;
    bool fails, fails_waiting, fails_reading;
};

static symmem_status f_set(void *self, const char *key, const void *value, size_t bytes,
                           uint32_t timeout_ms) {
    const struct failing_store *store = self;
    return store->fails ? store->with
                        : symmem_store_set(store->inner, key, value, bytes, timeout_ms);
}

static symmem_status f_get(void *self, const char *key, void *value, size_t capacity,
                           size_t *bytes_p, uint32_t timeout_ms) {
    const struct failing_store *store = self;
    return store->fails_reading
               ? store->with
               : symmem_store_get(store->inner, key, value, capacity, bytes_p, timeout_ms);
}

static symmem_status f_wait(void *self, const char *key, uint32_t timeout_ms) {
    const struct failing_store *store = self;
    return store->fails_waiting ? store->with : symmem_store_wait(store->inner, key, timeout_ms);
}

static symmem_status f_add(void *self, const char *key, int64_t delta, int64_t *value_p,
                           uint32_t timeout_ms) {
    const struct failing_store *store = self;
    return store->fails ? store->with
                        : symmem_store_add(store->inner, key, delta, value_p, timeout_ms);
}

static symmem_status f_remove(void *self, const char *key, uint32_t timeout_ms) {
    const struct failing_store *store = self;
    return symmem_store_remove(store->inner, key, timeout_ms);
}

static void f_close(void *self) {}

static const symmem_store_ops failing_ops = {sizeof failing_ops, f_set,  f_get, f_wait, f_add,
                                             f_remove,           f_close};

/* A rank that cannot take part leaves the call alone, and then its context. */
TK_TEST(causes, failure_is_everybodys, "SM-EXCHANGE-18", .ranks = {2, 4}) {
    struct failing_store failing = {.inner = t->store, .with = SYMMEM_NO_SPACE};
    symmem_store *store = NULL;
    symmem_group *group = NULL;
    TK_REQUIRE_OK(t, symmem_store_open_custom(&failing_ops, &failing, &store));
    TK_REQUIRE_OK(t, symmem_group_create(t->context, "failing", NULL, 0, store, &group));
    tk_group_barrier(t, group);
    failing.fails = t->rank == t->last;
    symmem_status status = symmem_group_barrier(group, tk_limit_ms(t, 1000)); /* it may come back */
    if (t->rank == t->last)
        TK_OK(t, symmem_group_destroy(group));
    tk_out_of_band_barrier(t);
    TK_STATUS(t, SYMMEM_NO_SPACE, status);
    TK_SAYS(t, "the custom store failed");
    if (t->rank != t->last) {
        TK_EQ_INT(t, t->last, last_record().failed_rank);
        TK_OK(t, symmem_group_destroy(group));
    }
    symmem_store_close(store);
}

/* In a call of its own where it arrives first, so that it waits for the others. */
static void answer_in_no_time(struct tk *t, bool reading) {
    struct failing_store failing = {.inner = t->store, .with = SYMMEM_TIMEOUT};
    symmem_store *store = NULL;
    symmem_group *group = NULL;
    const bool odd = t->rank == t->last;
    symmem_status status = SYMMEM_OK;
    TK_REQUIRE_OK(t, symmem_store_open_custom(&failing_ops, &failing, &store));
    TK_REQUIRE_OK(t, symmem_group_create(t->context, "in no time", NULL, 0, store, &group));
    tk_group_barrier(t, group);
    tk_out_of_band_barrier(t);
    failing.fails = odd && !reading;
    failing.fails_reading = odd && reading;
    if (odd)
        status = symmem_group_barrier(group, LIMIT_MS);
    tk_out_of_band_barrier(t);
    if (!odd)
        status = symmem_group_barrier(group, tk_limit_ms(t, 400));
    TK_STATUS(t, SYMMEM_TIMEOUT, status);
    TK_EQ_INT(t, t->last, last_record().failed_rank);
    TK_EQ_INT(t, 0, last_record().missing_count);
    TK_SAYS(t, "the custom store failed for key g/");
    tk_out_of_band_barrier(t);
    failing.fails = failing.fails_reading = false;
    TK_OK(t, symmem_group_destroy(group));
    symmem_store_close(store);
}

TK_TEST(causes, store_that_is_out_of_time, "SM-EXCHANGE-30", .ranks = {2, 4}) {
    answer_in_no_time(t, false);
    answer_in_no_time(t, true);
}

/* The others were through with that call already: then it is the next one's, for which they look
 * whether the rank comes back. */
TK_TEST(causes, failure_behind_the_others, "SM-EXCHANGE-18", .ranks = {2, 4}) {
    struct failing_store failing = {.inner = t->store, .with = SYMMEM_NO_SPACE};
    symmem_store *store = NULL;
    symmem_group *group = NULL;
    const bool odd = t->rank == t->last;
    TK_REQUIRE_OK(t, symmem_store_open_custom(&failing_ops, &failing, &store));
    TK_REQUIRE_OK(t, symmem_group_create(t->context, "behind", NULL, 0, store, &group));
    tk_group_barrier(t, group);
    tk_out_of_band_barrier(t);
    failing.fails_waiting = odd;
    if (!odd)
        tk_sleep_ms(50); /* it waits for them */
    symmem_status status = symmem_group_barrier(group, tk_limit_ms(t, 1000));
    if (odd) {
        TK_STATUS(t, SYMMEM_NO_SPACE, status);
        TK_OK(t, symmem_group_destroy(group));
    }
    tk_out_of_band_barrier(t);
    if (!odd) {
        if (status == SYMMEM_OK)
            status = symmem_group_barrier(group, tk_limit_ms(t, 400));
        TK_STATUS(t, SYMMEM_NO_SPACE, status);
        TK_EQ_INT(t, t->last, last_record().failed_rank);
        TK_OK(t, symmem_group_destroy(group));
    }
    tk_out_of_band_barrier(t);
    symmem_store_close(store);
}

/* A failpoint of a rank that cannot join multicast, and whose store fails from then on. */
struct no_multicast {
    struct failing_store *store;
    bool passed;
};

static symmem_status refuse_multicast(void *arg, const char *point) {
    struct no_multicast *odd = arg;
    if (odd->store == NULL || strcmp(point, "rendezvous.attach.before") != 0)
        return SYMMEM_OK;
    odd->passed = odd->store->fails = true;
    return SYMMEM_LIMIT;
}

/* The record tells the store's failure. That a rank cannot join multicast fails no rendezvous. */
TK_TEST(causes, store_fails_while_multicast_does, "SM-MCAST-11", .needs = SYMMEM_CAP_MULTICAST,
        .ranks = {2, 4}) {
    struct failing_store failing = {.inner = t->store, .with = SYMMEM_NO_SPACE};
    struct no_multicast odd = {.store = NULL};
    symmem_store *store = NULL;
    symmem_group *group = NULL;
    symmem_handle *handle = NULL;
    TK_REINIT(t, options.multicast = 1; options.point = refuse_multicast; options.point_arg = &odd);
    TK_REQUIRE_OK(t, symmem_store_open_custom(&failing_ops, &failing, &store));
    TK_REQUIRE_OK(t, symmem_group_create(t->context, "failing", NULL, 0, store, &group));
    void *memory = tk_alloc(t, 256);
    tk_group_barrier(t, group);
    odd.store = t->rank == t->last ? &failing : NULL;
    symmem_status status =
        symmem_rendezvous(t->context, memory, group, tk_limit_ms(t, 1000), &handle);
    tk_share_u64(t, 0, odd.passed);
    tk_out_of_band_barrier(t);
    if (tk_read_u64(t, t->last, 0) == 0) {
        tk_unresolved(t, "the device has no multicast");
        TK_OK(t, status);
    } else {
        TK_STATUS(t, SYMMEM_NO_SPACE, status);
        TK_SAYS(t, "the custom store failed");
    }
    symmem_handle_release(handle);
    TK_OK(t, symmem_group_destroy(group));
    tk_free(t, memory);
    tk_end_context(t);
    symmem_store_close(store);
}

/* --- what is gone ---------------------------------------------------------------------- */

static void remove_files(const char *directory) {
    char name[512];
    DIR *listing = opendir(directory);
    for (const struct dirent *entry; listing != NULL && (entry = readdir(listing)) != NULL;) {
        snprintf(name, sizeof name, "%s/%s", directory, entry->d_name);
        if (entry->d_name[0] != '.')
            (void)unlink(name);
    }
    if (listing != NULL)
        closedir(listing);
}

static symmem_status pass_own(struct tk *t, symmem_group *group) {
    int fds[4];
    symmem_status status = symmem_group_all_gather_fds(group, 0, fds, LIMIT_MS);
    for (int r = 0; status == SYMMEM_OK && r < t->world_size; r++)
        close(fds[r]);
    return status;
}

/* Another program clears the sockets' directory. The next call makes new sockets. */
TK_TEST(causes, removed_sockets, "SM-EXCHANGE-19", .ranks = {2, 4}) {
    char directory[64];
    tk_short_path(t, "gone", t->rank, directory);
    TK_REQUIRE(t, mkdir(directory, 0700) == 0);
    TK_REINIT(t, options.socket_dir = directory);
    symmem_group *group = tk_group(t, "sockets", NULL, 0);
    TK_OK(t, pass_own(t, group));
    tk_out_of_band_barrier(t);
    remove_files(directory);
    tk_out_of_band_barrier(t);
    TK_STATUS(t, SYMMEM_SYSTEM, pass_own(t, group));
    TK_SAYS(t, "/tmp/symm-gone-");
    TK_CHECK(t, last_record().failed_rank >= 0);
    TK_OK(t, pass_own(t, group));
    tk_end_context(t);
    TK_CHECK_MSG(t, rmdir(directory) == 0, "%s is not empty", directory);
}

struct sockets {
    symmem_store *store;
    char directory[64];
};

static int files_in(const char *directory) {
    int count = 0;
    DIR *listing = opendir(directory);
    for (const struct dirent *entry; listing != NULL && (entry = readdir(listing)) != NULL;)
        count += entry->d_name[0] != '.';
    if (listing != NULL)
        closedir(listing);
    return count;
}

enum { SLOT_DESTROYED = 15, SLOT_COUNTED };

/* The last rank is killed; the others' contexts go on. */
static void destroy_after_a_kill(struct tk *t, void *arg) {
    const struct sockets *sockets = arg;
    symmem_context *context = NULL;
    symmem_context_options options = job_options(t, sockets->store);
    options.socket_dir = sockets->directory;
    symmem_group *group = begin_with_group(t, &options, "job", &context);
    TK_OK(t, symmem_group_barrier(group, LIMIT_MS));
    if (t->rank == t->last)
        tk_on_point(t, "finalize.begin", 1, (struct tk_action){.kill = true});
    else
        TK_STATUS(t, SYMMEM_PEER_LOST, symmem_group_barrier(group, LIMIT_MS));
    if (t->rank != t->last) {
        TK_OK(t, symmem_group_destroy(group));
        share_and_await(t, t->last, SLOT_DESTROYED);
        TK_EQ_INT(t, t->last, files_in(sockets->directory)); /* one for each context */
        share_and_await(t, t->last, SLOT_COUNTED);
    }
    finalize_and_free(t, context);
}

TK_TEST(causes, sockets_of_a_killed_rank, "SM-EXCHANGE-32", .ranks = {2, 4}, .flags = OWN_PROCESSES,
        .timeout_s = 60) {
    struct sockets sockets = {.store = t->store};
    tk_short_path(t, "killed", -1, sockets.directory);
    if (t->rank == 0)
        TK_CHECK(t, mkdir(sockets.directory, 0700) == 0);
    tk_out_of_band_barrier(t);
    enum tk_child_end end = tk_run_child(t, destroy_after_a_kill, &sockets, LIMIT_MS);
    TK_EQ_INT(t, t->rank == t->last ? TK_CHILD_KILLED : TK_CHILD_DONE, end);
    tk_out_of_band_barrier(t);
    if (t->rank == 0)
        TK_CHECK_MSG(t, rmdir(sockets.directory) == 0, "%s is not empty", sockets.directory);
}
