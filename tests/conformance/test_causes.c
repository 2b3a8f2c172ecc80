/* SPDX-License-Identifier: BSD-3-Clause */
/* A record names the first cause: the absent rank, the failure or the difference. */
#include <dirent.h>
#include <sys/stat.h>

#include "counting_store.h"
#include "fused_pair.h"
#include "kit.h"

#define LIMIT_MS 20000u
#define DEATH (TK_PROCESS_ONLY | TK_MAY_DIE | TK_MAY_LEAK)
#define ABSENT 1
#define SLOT_DONE 3

static void expect_absent(struct tk *t, symmem_status status, int32_t absent) {
    const symmem_error_record record = last_record();
    TK_STATUS(t, SYMMEM_TIMEOUT, status);
    TK_EQ_INT(t, absent, record.failed_rank);
    TK_EQ_INT(t, 1, record.missing_count);
    TK_CHECK(t, symmem_error_is_missing(&record, absent));
    TK_CHECK_MSG(t, strstr(record.message, "rank 1 did not arrive") != NULL, "%s", record.message);
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
    for (int32_t r = 2; t->rank == ABSENT && r < t->world_size; r++)
        for (int i = 0; tk_read_u64(t, r, SLOT_DONE) == 0 && i < 1500; i++)
            tk_sleep_ms(10);
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
    TK_CHECK_MSG(t, strstr(last_record().message, "the custom store failed") != NULL, "%s",
                 last_record().message);
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
    TK_CHECK_MSG(t, strstr(last_record().message, "the custom store failed for key g/") != NULL,
                 "%s", last_record().message);
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
        TK_CHECK_MSG(t, strstr(last_record().message, "the custom store failed") != NULL, "%s",
                     last_record().message);
    }
    symmem_handle_release(handle);
    TK_OK(t, symmem_group_destroy(group));
    tk_free(t, memory);
    tk_end_context(t);
    symmem_store_close(store);
}

/* --- what a rank lacks ------------------------------------------------------------------- */

#define TOO_MUCH ((size_t)1 << 46)

/* Names the rank and what it could not get, whatever the status. */
static void expect_lack(struct tk *t, symmem_status status, int32_t rank) {
    const symmem_error_record record = last_record();
    TK_CHECK(t, status == SYMMEM_TIMEOUT || status == SYMMEM_PEER_LOST);
    TK_CHECK(t, record.failed_rank == rank || symmem_error_is_missing(&record, rank));
    TK_CHECK_MSG(t, strstr(record.message, "NO_SPACE in alloc") != NULL, "%s", record.message);
}

static void lack(struct tk *t, symmem_context *context) {
    void *ptr = NULL;
    TK_FAILS(t, NO_SPACE, symmem_alloc(context, TOO_MUCH, -1, NULL, &ptr));
}

TK_TEST(causes, lack_of_one_that_destroys, "SM-EXCHANGE-24", .ranks = {2, 4}) {
    symmem_group *group = tk_group(t, "lacking", NULL, 0);
    tk_group_barrier(t, group);
    if (t->rank == t->last) {
        lack(t, t->context);
        tk_group_destroy(t, group);
    }
    tk_out_of_band_barrier(t);
    if (t->rank != t->last)
        expect_lack(t, symmem_group_barrier(group, tk_limit_ms(t, 400)), t->last);
    tk_out_of_band_barrier(t);
}

TK_TEST(causes, lack_of_one_that_finalizes, "SM-EXCHANGE-24", .ranks = {2, 4}) {
    symmem_handle *handle = tk_handle(t, 4096, tk_world_group(t));
    if (t->rank == t->last) {
        lack(t, t->context);
        tk_end_context(t);
    }
    tk_out_of_band_barrier(t);
    if (t->rank != t->last)
        expect_lack(t, symmem_barrier(handle, 0, tk_limit_ms(t, 400), NULL), t->last);
    tk_out_of_band_barrier(t);
}

/* What it calls to clean up fails, too, and says nothing of the cause. */
TK_TEST(causes, lack_before_the_cleaning_up, "SM-EXCHANGE-42", .ranks = {2, 4}) {
    symmem_handle *handle = tk_handle(t, 4096, tk_world_group(t));
    if (t->rank == t->last) {
        lack(t, t->context);
        TK_FAILS(t, NOT_SYMMETRIC, symmem_free(t->context, handle));       /* in the context */
        TK_FAILS(t, INVALID_ARGUMENT, symmem_handle_get_info(NULL, NULL)); /* and in none */
        tk_end_context(t);
    }
    tk_out_of_band_barrier(t);
    if (t->rank != t->last)
        expect_lack(t, symmem_barrier(handle, 0, tk_limit_ms(t, 400), NULL), t->last);
    tk_out_of_band_barrier(t);
}

/* Its process ends without a word: what it lacked is known from before. */
TK_TEST(causes, lack_of_one_that_ends, "SM-EXCHANGE-40", .ranks = {2, 4}, .flags = DEATH) {
    symmem_handle *handle = tk_handle(t, 4096, tk_world_group(t));
    tk_expect_death(t, t->last);
    tk_out_of_band_barrier(t);
    if (t->rank == t->last) {
        lack(t, t->context);
        tk_kill_self(t);
    }
    const uint64_t begin_ms = tk_now_ms();
    expect_lack(t, symmem_barrier(handle, 0, LIMIT_MS, NULL), t->last);
    expect_lack(t, symmem_group_barrier(tk_world_group(t), LIMIT_MS), t->last);
    tk_expect_prompt(t, t->last, begin_ms, tk_now_ms());
}

/* A product that cannot be made, in the middle of an operation of all. */
static symmem_status no_product(void *arg, const symmem_matmul *product, void *native) {
    return SYMMEM_LIMIT;
}

TK_TEST(causes, lack_in_the_middle, "SM-ERROR-13,SM-TIMEOUT-07",
        .needs = SYMMEM_CAP_MATMUL | SYMMEM_CAP_COLLECTIVES | SYMMEM_CAP_DIRECT_ACCESS,
        .ranks = {2, 4}) {
    struct fused_pair *x = pair_begin(t);
    symmem_handle *workspace = x->workspace;
    const bool fails = t->rank == t->last;
    if (fails)
        TK_OK(t, symmem_set_matmul(t->context, no_product, NULL));
    const symmem_status status = pair_gather(x, LIMIT_MS, NULL);
    TK_STATUS(t, fails ? SYMMEM_LIMIT : SYMMEM_POISONED, status);
    /* While the handle is poisoned. */
    for (int i = 0; !fails && i < 2; i++) {
        const symmem_error_record record = last_record();
        TK_EQ_INT(t, t->last, record.failed_rank);
        TK_CHECK_MSG(t, strstr(record.message, "LIMIT") != NULL, "%s", record.message);
        TK_STATUS(t, SYMMEM_POISONED, symmem_barrier(workspace, 0, LIMIT_MS, NULL));
    }
    TK_OK(t, symmem_set_matmul(t->context, NULL, NULL));
    TK_OK(t, symmem_handle_reset(workspace, LIMIT_MS));
    /* Earlier remarks do not count after the reset. */
    if (!fails) {
        TK_STATUS(t, SYMMEM_TIMEOUT,
                  symmem_wait_signal(workspace, t->last, 1, tk_limit_ms(t, 50), NULL));
        TK_CHECK_MSG(t, strstr(last_record().message, "LIMIT") == NULL, "%s",
                     last_record().message);
    }
    tk_out_of_band_barrier(t);
}

/* --- contradictions -------------------------------------------------------------------- */

/* Told at once, with what both sides have. */
static void expect_told(struct tk *t, symmem_status status, uint64_t begin_ms, const char *one,
                        const char *other) {
    const symmem_error_record record = last_record();
    TK_WITHIN(t, 1000, begin_ms);
    TK_STATUS(t, SYMMEM_MISMATCH, status);
    TK_CHECK_MSG(t, strstr(record.message, one) != NULL, "%s: no %s", record.message, one);
    TK_CHECK_MSG(t, strstr(record.message, other) != NULL, "%s: no %s", record.message, other);
}

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
        TK_REQUIRE_OK(t, symmem_group_create(t->context, "one", all, 3, NULL, &group));
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

/* Contexts of the body's own, in a world of another name's store: the case's ranks are known there.
 */
static symmem_context_options other_world(struct tk *t, symmem_store *store) {
    symmem_context_options options = tk_options(t);
    options.store = store;
    return options;
}

static symmem_store *other_store(struct tk *t, char path[64]) {
    symmem_store *store = NULL;
    tk_short_path(t, "other", -1, path);
    TK_REQUIRE_OK(t, symmem_store_open_file(path, &store));
    return store;
}

static void remove_store(struct tk *t, symmem_store *store, const char *path) {
    symmem_store_close(store);
    tk_out_of_band_barrier(t);
    if (t->rank != 0)
        return;
    char name[512];
    DIR *listing = opendir(path);
    for (const struct dirent *entry; listing != NULL && (entry = readdir(listing)) != NULL;) {
        TK_CHECK_MSG(t, entry->d_name[0] != 'k', "%s is left", entry->d_name);
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        (void)unlink(name);
    }
    if (listing != NULL)
        closedir(listing);
    TK_CHECK(t, rmdir(path) == 0);
}

/* Before it has met anybody. */
TK_TEST(causes, lack_of_one_that_never_came, "SM-EXCHANGE-25", .ranks = {2, 4}, .flags = TK_UNMET) {
    char path[64];
    symmem_store *store = other_store(t, path);
    const symmem_context_options options = other_world(t, store);
    symmem_context *context = NULL;
    symmem_group *group = NULL;
    TK_REQUIRE_OK(t, symmem_init(&options, &context));
    tk_out_of_band_barrier(t);
    if (t->rank == t->last) {
        lack(t, context);
    } else {
        TK_REQUIRE_OK(t, symmem_group_create(context, "world", NULL, 0, NULL, &group));
        tk_sleep_ms(10);
    }
    symmem_status status = SYMMEM_OK;
    if (t->rank == t->last)
        TK_OK(t, symmem_finalize(context));
    tk_out_of_band_barrier(t);
    if (t->rank != t->last)
        status = symmem_group_barrier(group, tk_limit_ms(t, 400));
    if (t->rank != t->last)
        expect_lack(t, status, t->last);
    tk_out_of_band_barrier(t);
    if (t->rank != t->last)
        TK_OK(t, symmem_finalize(context));
    symmem_context_free(context);
    remove_store(t, store, path);
}

/* What it does next is not what the others do. */
TK_TEST(causes, lack_before_another_call, "SM-EXCHANGE-43", .ranks = {2, 4}) {
    symmem_group *group = tk_group(t, "lacking", NULL, 0);
    char value = 1, values[SYMMEM_MAX_WORLD_SIZE];
    tk_group_barrier(t, group);
    if (t->rank == t->last) {
        lack(t, t->context);
        TK_FAILS(t, MISMATCH, symmem_group_all_gather(group, &value, 1, values, LIMIT_MS));
    } else {
        TK_FAILS(t, MISMATCH, symmem_group_barrier(group, LIMIT_MS));
        TK_CHECK_MSG(t, strstr(last_record().message, "NO_SPACE in alloc") != NULL, "%s",
                     last_record().message);
    }
    tk_out_of_band_barrier(t);
    tk_group_destroy(t, group);
}

enum { SLOT_FINALIZED = 1 };

/* Who would read what the last rank left comes to it only after that rank has finalized. */
static void await_finalize(void *arg, const char *key) {
    struct tk *t = arg;
    char wanted[32];
    (void)snprintf(wanted, sizeof wanted, "/exit/%d", (int)t->last);
    if (strstr(key, wanted) == NULL)
        return;
    for (int i = 0; i < 1000 && tk_read_u64(t, t->last, SLOT_FINALIZED) == 0; i++)
        tk_sleep_ms(5);
}

TK_TEST(causes, lack_before_another_call_and_the_end, "SM-EXCHANGE-43", .ranks = {2, 4}) {
    struct counting_store *slow = counting_store_begin(t->store);
    symmem_store *store = NULL;
    char value = 1, values[SYMMEM_MAX_WORLD_SIZE];
    TK_REQUIRE_OK(t, symmem_store_open_custom(&counting_store_ops, slow, &store));
    TK_REINIT(t, options.store = store);
    symmem_group *group = tk_group(t, "lacking", NULL, 0);
    tk_group_barrier(t, group);
    slow->arg = t;
    if (t->rank == t->last) {
        lack(t, t->context);
        TK_FAILS(t, MISMATCH, symmem_group_all_gather(group, &value, 1, values, LIMIT_MS));
        tk_end_context(t);
        tk_share_u64(t, SLOT_FINALIZED, 1);
    } else {
        slow->before_get = await_finalize;
        TK_FAILS(t, MISMATCH, symmem_group_barrier(group, LIMIT_MS));
        TK_CHECK_MSG(t, strstr(last_record().message, "NO_SPACE in alloc") != NULL, "%s",
                     last_record().message);
    }
    tk_out_of_band_barrier(t);
    if (t->rank != t->last)
        tk_end_context(t);
    symmem_store_close(store);
    tk_out_of_band_barrier(t);
}

/* It goes on, and ends later for another reason. */
TK_TEST(causes, lack_long_before_the_end, "SM-EXCHANGE-41", .ranks = {2, 4}, .flags = DEATH) {
    symmem_group *group = tk_world_group(t);
    tk_expect_death(t, t->last);
    tk_group_barrier(t, group);
    if (t->rank == t->last)
        lack(t, t->context);
    tk_group_barrier(t, group);
    if (t->rank == t->last)
        tk_kill_self(t);
    TK_STATUS(t, SYMMEM_PEER_LOST, symmem_group_barrier(group, LIMIT_MS));
    TK_EQ_INT(t, t->last, last_record().failed_rank);
    TK_CHECK_MSG(t, strstr(last_record().message, "NO_SPACE") == NULL, "%s", last_record().message);
}

/* They have met, but nothing connects them any more. */
TK_TEST(causes, lack_of_one_met_before, "SM-EXCHANGE-44", .ranks = {2, 4}, .flags = TK_UNMET) {
    char path[64];
    symmem_store *store = other_store(t, path);
    const symmem_context_options options = other_world(t, store);
    symmem_context *context = NULL;
    symmem_group *group = NULL;
    TK_REQUIRE_OK(t, symmem_init(&options, &context));
    TK_REQUIRE_OK(t, symmem_group_create(context, "before", NULL, 0, NULL, &group));
    tk_group_barrier(t, group);
    TK_OK(t, symmem_group_destroy(group));
    tk_out_of_band_barrier(t);
    if (t->rank == t->last) {
        lack(t, context);
        TK_OK(t, symmem_finalize(context));
    }
    tk_out_of_band_barrier(t);
    if (t->rank != t->last) {
        TK_REQUIRE_OK(t, symmem_group_create(context, "later", NULL, 0, NULL, &group));
        expect_lack(t, symmem_group_barrier(group, tk_limit_ms(t, 400)), t->last);
        TK_OK(t, symmem_finalize(context));
    }
    symmem_context_free(context);
    remove_store(t, store, path);
}

/* It is made good: the others never need to know. */
TK_TEST(causes, lack_that_is_made_good, "SM-EXCHANGE-41", .ranks = {2, 4}, .flags = TK_UNMET) {
    char path[64];
    symmem_store *store = other_store(t, path);
    const symmem_context_options options = other_world(t, store);
    symmem_context *context = NULL;
    symmem_group *group = NULL;
    TK_REQUIRE_OK(t, symmem_init(&options, &context));
    TK_REQUIRE_OK(t, symmem_group_create(context, "world", NULL, 0, NULL, &group));
    tk_group_barrier(t, group);
    if (t->rank == t->last)
        lack(t, context);
    tk_group_barrier(t, group);
    symmem_clear_error();
    TK_OK(t, symmem_finalize(context));
    symmem_context_free(context);
    remove_store(t, store, path);
}

TK_TEST(causes, worlds_of_other_sizes, "SM-CONTEXT-15", .ranks = {2, 2}) {
    char path[64], one[40], other[40];
    symmem_store *store = other_store(t, path);
    symmem_context_options options = other_world(t, store);
    symmem_context *context = NULL;
    symmem_group *group = NULL;
    options.world_size = 2 + t->rank;
    TK_REQUIRE_OK(t, symmem_init(&options, &context));
    TK_REQUIRE_OK(t, symmem_group_create(context, "world", NULL, 0, NULL, &group));
    snprintf(one, sizeof one, "rank 0 is in a world of 2");
    snprintf(other, sizeof other, "rank 1 is in a world of 3");
    uint64_t begin_ms = tk_now_ms();
    symmem_status status = symmem_group_barrier(group, LIMIT_MS);
    const bool by_own = strstr(last_record().message, t->rank == 0 ? one : other) != NULL;
    expect_told(t, status, begin_ms, by_own && t->rank == 0 ? one : other,
                by_own && t->rank == 0 ? "rank 1 in one of 3" : "rank 0 in one of 2");
    TK_OK(t, symmem_finalize(context));
    symmem_context_free(context);
    remove_store(t, store, path);
}

/* The case's second rank says that it is the first. */
TK_TEST(causes, one_rank_twice, "SM-CONTEXT-14", .ranks = {2, 2}, .flags = TK_PROCESS_ONLY) {
    char path[64], one[24], other[24];
    symmem_store *store = other_store(t, path);
    symmem_context_options options = other_world(t, store);
    symmem_context *context = NULL;
    symmem_group *group = NULL;
    snprintf(one, sizeof one, "%d on", (int)tk_process_id(t, 0));
    snprintf(other, sizeof other, "%d on", (int)tk_process_id(t, 1));
    options.rank = 0;
    tk_out_of_band_barrier(t);
    uint64_t begin_ms = tk_now_ms();
    symmem_status status = symmem_init(&options, &context);
    if (status == SYMMEM_OK) {
        TK_REQUIRE_OK(t, symmem_group_create(context, "world", NULL, 0, NULL, &group));
        status = symmem_group_barrier(group, LIMIT_MS);
    }
    expect_told(t, status, begin_ms, one, other);
    if (context != NULL)
        TK_OK(t, symmem_finalize(context));
    symmem_context_free(context);
    remove_store(t, store, path);
}

/* Waits until `rank` has shared that in SLOT_DONE. */
static void await_done(struct tk *t, int32_t rank) {
    for (int i = 0; tk_read_u64(t, rank, SLOT_DONE) == 0 && i < 5000; i++)
        tk_sleep_ms(1);
}

/* A process that is rank 0 until rank 1 is about to look. */
static void be_first_for_a_moment(struct tk *t, void *arg) {
    symmem_context_options options = other_world(t, arg);
    symmem_context *context = NULL;
    options.rank = 0;
    TK_REQUIRE_OK(t, symmem_init(&options, &context));
    tk_share_u64(t, SLOT_DONE, 1);
    await_done(t, 1);
    t->context = context; /* never ended, but no leak */
}

static symmem_status share_done(void *arg, const char *point) {
    if (strcmp(point, "init.identity") == 0)
        tk_share_u64(arg, SLOT_DONE, 1);
    return SYMMEM_OK;
}

/* A job is started again while a process of the last one is about to end. */
TK_TEST(causes, one_rank_again, "SM-CONTEXT-16", .ranks = {2, 2},
        .flags = TK_PROCESS_ONLY | TK_NO_CONTEXT | TK_FORKS | TK_MAY_LEAK) {
    char path[64];
    symmem_store *store = other_store(t, path);
    symmem_context_options options = other_world(t, store);
    symmem_context *context = NULL;
    options.rank = 0;
    if (t->rank == 0)
        TK_EQ_INT(t, TK_CHILD_DONE, tk_run_child(t, be_first_for_a_moment, store, LIMIT_MS));
    options.point = share_done;
    options.point_arg = t;
    if (t->rank == 1)
        await_done(t, 0);
    if (t->rank == 1 && TK_OK(t, symmem_init(&options, &context)))
        TK_OK(t, symmem_finalize(context));
    symmem_context_free(context);
    tk_out_of_band_barrier(t);
    remove_store(t, store, path);
}

/* The case's second rank says that it is the first, for which the third waits. */
TK_TEST(causes, one_rank_twice_told, "SM-CONTEXT-17", .ranks = {3, 3}, .flags = TK_PROCESS_ONLY) {
    char path[64], one[24], other[24];
    symmem_store *store = other_store(t, path);
    symmem_context_options options = other_world(t, store);
    symmem_context *context = NULL;
    symmem_group *group = NULL;
    snprintf(one, sizeof one, "%d on", (int)tk_process_id(t, 0));
    snprintf(other, sizeof other, "%d on", (int)tk_process_id(t, 1));
    options.rank = t->rank == 2 ? 1 : 0;
    options.world_size = 2;
    if (t->rank != 1)
        TK_REQUIRE_OK(t, symmem_init(&options, &context));
    tk_out_of_band_barrier(t);
    const uint64_t begin_ms = tk_now_ms();
    if (t->rank == 1)
        TK_FAILS(t, MISMATCH, symmem_init(&options, &context));
    if (t->rank == 2) {
        TK_REQUIRE_OK(t, symmem_group_create(context, "world", NULL, 0, NULL, &group));
        expect_told(t, symmem_group_barrier(group, LIMIT_MS), begin_ms, one, other);
        TK_EQ_INT(t, 0, last_record().failed_rank);
    }
    tk_out_of_band_barrier(t);
    if (context != NULL)
        TK_OK(t, symmem_finalize(context));
    symmem_context_free(context);
    remove_store(t, store, path); /* no key is left there */
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
    TK_CHECK_MSG(t, strstr(last_record().message, "/tmp/symm-gone-") != NULL, "%s",
                 last_record().message);
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

static void await_others(struct tk *t, int slot) {
    tk_share_u64(t, slot, 1);
    for (int32_t r = 0; r < t->last; r++)
        for (int i = 0; tk_read_u64(t, r, slot) == 0 && i < 1000; i++)
            tk_sleep_ms(10);
}

/* The last rank is killed; the others' contexts go on. */
static void destroy_after_a_kill(struct tk *t, void *arg) {
    const struct sockets *sockets = arg;
    symmem_context *context = NULL;
    symmem_group *group = NULL;
    symmem_context_options options = other_world(t, sockets->store);
    options.backend = NULL;
    options.socket_dir = sockets->directory;
    TK_REQUIRE_OK(t, symmem_init(&options, &context));
    TK_REQUIRE_OK(t, symmem_group_create(context, "job", NULL, 0, NULL, &group));
    TK_OK(t, symmem_group_barrier(group, LIMIT_MS));
    if (t->rank == t->last)
        tk_on_point(t, "finalize.begin", 1, (struct tk_action){.kill = true});
    else
        TK_STATUS(t, SYMMEM_PEER_LOST, symmem_group_barrier(group, LIMIT_MS));
    if (t->rank != t->last) {
        TK_OK(t, symmem_group_destroy(group));
        await_others(t, SLOT_DESTROYED);
        TK_EQ_INT(t, t->last, files_in(sockets->directory)); /* one for each context */
        await_others(t, SLOT_COUNTED);
    }
    TK_OK(t, symmem_finalize(context));
    symmem_context_free(context);
}

TK_TEST(causes, sockets_of_a_killed_rank, "SM-EXCHANGE-32", .ranks = {2, 4},
        .flags = TK_PROCESS_ONLY | TK_NO_CONTEXT | TK_FORKS | TK_MAY_LEAK, .timeout_s = 60) {
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
    symmem_group *group = NULL;
    symmem_context_options options = other_world(t, job->store);
    options.backend = NULL;
    options.world_size = job->world_size;
    if (job->waits && t->rank == 0) /* longer than the others give the next process of a rank */
        tk_sleep_ms(700);
    TK_REQUIRE_OK(t, symmem_init(&options, &context));
    TK_REQUIRE_OK(t, symmem_group_create(context, "job", NULL, 0, NULL, &group));
    TK_OK(t, symmem_group_barrier(group, LIMIT_MS));
    if (job->is_killed)
        tk_on_point(t, "finalize.begin", 1, (struct tk_action){.kill = true});
    TK_OK(t, symmem_finalize(context));
    symmem_context_free(context);
}

/* All ranks are killed at a time and started again, as launchers do that restart a job. */
TK_TEST(causes, store_of_a_killed_job, "SM-LIFE-20", .ranks = {2, 4},
        .flags = TK_PROCESS_ONLY | TK_NO_CONTEXT | TK_FORKS | TK_MAY_LEAK, .timeout_s = 60) {
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
    symmem_context_options options = other_world(t, job->store);
    options.backend = NULL;
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
    TK_CHECK_MSG(t, strstr(last_record().message, ended) != NULL, "%s", last_record().message);
    tk_share_u64(t, SLOT_DONE, 1);
    for (int32_t r = 1; r < t->world_size; r++) /* none is to see another one's end */
        for (int i = 0; tk_read_u64(t, r, SLOT_DONE) == 0 && i < 500; i++)
            tk_sleep_ms(10);
}

static void run_jobs_rank(struct tk *t, struct job *job) {
    const bool dies = job->is_killed || t->rank == 0;
    enum tk_child_end end =
        tk_run_child(t, job->is_killed ? run_job : run_without_rank_0, job, LIMIT_MS);
    TK_EQ_INT(t, dies ? TK_CHILD_KILLED : TK_CHILD_DONE, end);
}

/* The peers know that the rank's previous process belonged to an earlier job. */
TK_TEST(causes, killed_early_after_a_killed_job, "SM-LIFE-20,SM-TIMEOUT-08", .ranks = {2, 4},
        .flags = TK_PROCESS_ONLY | TK_NO_CONTEXT | TK_FORKS | TK_MAY_LEAK, .timeout_s = 60) {
    struct job job = {.store = t->store, .is_killed = true, .world_size = t->world_size};
    run_jobs_rank(t, &job);
    tk_out_of_band_barrier(t);
    job.is_killed = false;
    run_jobs_rank(t, &job);
}

/* Rank 0 alone was there, and nothing tells of which job it was. */
TK_TEST(causes, traces_of_one_rank, "SM-LIFE-20", .ranks = {2, 4},
        .flags = TK_PROCESS_ONLY | TK_NO_CONTEXT | TK_FORKS | TK_MAY_LEAK, .timeout_s = 60) {
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
    symmem_group *group = NULL;
    symmem_context_options options = other_world(t, job->store);
    options.backend = NULL;
    TK_REQUIRE_OK(t, symmem_init(&options, &context));
    TK_REQUIRE_OK(t, symmem_group_create(context, "job", NULL, 0, NULL, &group));
    uint64_t begin_ms = tk_now_ms();
    TK_STATUS(t, SYMMEM_PEER_LOST, symmem_group_barrier(group, LIMIT_MS));
    TK_WITHIN(t, 1000, begin_ms);
    TK_CHECK_MSG(t, strstr(last_record().message, "an earlier job's process") != NULL, "%s",
                 last_record().message);
    TK_OK(t, symmem_finalize(context));
    symmem_context_free(context);
}

enum { SLOT_BEGUN = 14 };

/* Rank 0 comes when the others have long begun to wait for it. */
static void run_late_job(struct tk *t, void *arg) {
    const struct job *job = arg;
    symmem_context *context = NULL;
    symmem_group *group = NULL;
    symmem_context_options options = other_world(t, job->store);
    options.backend = NULL;
    for (int32_t r = 1; t->rank == 0 && r < t->world_size; r++)
        for (int i = 0; tk_read_u64(t, r, SLOT_BEGUN) == 0 && i < 1000; i++)
            tk_sleep_ms(10);
    tk_sleep_ms(t->rank == 0 ? 500 : 0);
    TK_REQUIRE_OK(t, symmem_init(&options, &context));
    TK_REQUIRE_OK(t, symmem_group_create(context, "job", NULL, 0, NULL, &group));
    tk_share_u64(t, SLOT_BEGUN, 1);
    TK_OK(t, symmem_group_barrier(group, LIMIT_MS));
    TK_OK(t, symmem_finalize(context));
    symmem_context_free(context);
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

TK_TEST(causes, start_after_a_killed_rank, "SM-LIFE-28", .ranks = {2, 4},
        .flags = TK_PROCESS_ONLY | TK_NO_CONTEXT | TK_FORKS | TK_MAY_LEAK, .timeout_s = 60) {
    start_after_a_killed_rank(t, true);
}

TK_TEST(causes, start_without_the_killed_rank, "SM-LIFE-28", .ranks = {2, 4},
        .flags = TK_PROCESS_ONLY | TK_NO_CONTEXT | TK_FORKS | TK_MAY_LEAK, .timeout_s = 60) {
    start_after_a_killed_rank(t, false);
}

/* The next one has a rank more, or one less, and a rank of which nothing is in the store. */
TK_TEST(causes, store_of_a_killed_smaller_job, "SM-LIFE-21", .ranks = {3, 4},
        .flags = TK_PROCESS_ONLY | TK_NO_CONTEXT | TK_FORKS | TK_MAY_LEAK, .timeout_s = 60) {
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
    for (int i = 0; tk_read_u64(t, 1, TK_ENDED_SLOT) == 0 && i < 1000; i++)
        tk_sleep_ms(10);
    job->world_size = 3;
    job->waits = false;
    run_job(t, job);
}

/* Rank 0 is one process in both jobs, and lived when the key was made that a killed one has left.
 */
TK_TEST(causes, process_of_two_jobs, "SM-LIFE-21", .ranks = {3, 3},
        .flags = TK_PROCESS_ONLY | TK_NO_CONTEXT | TK_FORKS | TK_MAY_LEAK, .timeout_s = 60) {
    struct job job = {.store = t->store, .is_killed = t->rank == 1, .waits = true, .world_size = 2};
    if (t->rank == 0)
        TK_EQ_INT(t, TK_CHILD_DONE, tk_run_child(t, run_two_jobs, &job, LIMIT_MS));
    tk_sleep_ms(t->rank == 1 ? 200 : 0); /* its key is younger than rank 0's process */
    if (t->rank == 1)
        TK_EQ_INT(t, TK_CHILD_KILLED, tk_run_child(t, run_job, &job, LIMIT_MS));
    if (t->rank != 0) {
        job = (struct job){.store = t->store, .world_size = 3};
        for (int i = 0; tk_read_u64(t, 1, TK_ENDED_SLOT) == 0 && i < 1000; i++)
            tk_sleep_ms(10);
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

static void await_all(struct tk *t, int slot) {
    tk_share_u64(t, slot, 1);
    for (int32_t r = 0; r < t->world_size; r++)
        for (int i = 0; tk_read_u64(t, r, slot) == 0 && i < 1000; i++)
            tk_sleep_ms(10);
}

enum { SLOT_HERE = 10, SLOT_LEFT, SLOT_TOLD };

/* Rank 1 finalizes before any group has shown it to the others. */
static void leave_early(struct tk *t, void *arg) {
    const struct leaving *leaving = arg;
    symmem_context *context = NULL;
    symmem_group *group = NULL;
    symmem_context_options options = other_world(t, leaving->store);
    options.backend = NULL;
    TK_REQUIRE_OK(t, symmem_init(&options, &context));
    await_all(t, SLOT_HERE);
    if (t->rank == ABSENT) {
        TK_OK(t, symmem_finalize(context));
        symmem_context_free(context);
        tk_share_u64(t, SLOT_LEFT, 1);
        if (!leaving->ends)
            await_all(t, SLOT_TOLD);
        return;
    }
    for (int i = 0; tk_read_u64(t, ABSENT, SLOT_LEFT) == 0 && i < 1000; i++)
        tk_sleep_ms(10);
    TK_REQUIRE_OK(t, symmem_group_create(context, "left", NULL, 0, NULL, &group));
    uint64_t begin_ms = tk_now_ms();
    symmem_status status = symmem_group_barrier(group, leaving->ends ? 0 : tk_limit_ms(t, 400));
    const symmem_error_record record = last_record();
    TK_STATUS(t, leaving->ends ? SYMMEM_PEER_LOST : SYMMEM_TIMEOUT, status);
    TK_WITHIN(t, 1500, begin_ms);
    TK_EQ_INT(t, ABSENT, record.failed_rank);
    TK_EQ_INT(t, 1, record.missing_count);
    TK_CHECK_MSG(t, strstr(record.message, "rank 1 came and left") != NULL, "%s", record.message);
    if (leaving->ends) /* none is to see another one's end */
        tk_share_u64(t, SLOT_TOLD + 1, 1);
    for (int32_t r = 0; leaving->ends && r < t->world_size; r++)
        for (int i = 0; r != ABSENT && tk_read_u64(t, r, SLOT_TOLD + 1) == 0 && i < 500; i++)
            tk_sleep_ms(10);
    if (!leaving->ends)
        await_all(t, SLOT_TOLD);
    TK_OK(t, symmem_finalize(context));
    symmem_context_free(context);
}

static void check_left(struct tk *t, bool ends) {
    char path[64];
    struct leaving leaving = {.store = other_store(t, path), .ends = ends};
    TK_EQ_INT(t, TK_CHILD_DONE, tk_run_child(t, leave_early, &leaving, LIMIT_MS));
    tk_out_of_band_barrier(t);
    remove_store(t, leaving.store, path); /* no key is left there */
}

TK_TEST(causes, came_and_left, "SM-EXCHANGE-21", .ranks = {2, 4},
        .flags = TK_PROCESS_ONLY | TK_NO_CONTEXT | TK_FORKS, .timeout_s = 60) {
    check_left(t, false);
}

TK_TEST(causes, came_and_ended, "SM-EXCHANGE-21", .ranks = {2, 4},
        .flags = TK_PROCESS_ONLY | TK_NO_CONTEXT | TK_FORKS, .timeout_s = 60) {
    check_left(t, true);
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
    symmem_context_options options = other_world(t, odds->store);
    symmem_context *context = NULL;
    symmem_group *group = NULL;
    options.backend = NULL;
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
TK_TEST(causes, told_to_who_comes_late, "SM-EXCHANGE-22", .ranks = {3, 3},
        .flags = TK_PROCESS_ONLY | TK_NO_CONTEXT | TK_FORKS | TK_MAY_LEAK, .timeout_s = 60) {
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
