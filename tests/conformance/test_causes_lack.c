/* SPDX-License-Identifier: BSD-3-Clause */
/* A record names what a rank lacked before the others missed it. */
#include "causes_help.h"
#include "counting_store.h"
#include "fused_pair.h"

#define TOO_MUCH ((size_t)1 << 46)

/* Names the rank and what it could not get, whatever the status. */
static void expect_lack(struct tk *t, symmem_status status, int32_t rank) {
    const symmem_error_record record = last_record();
    TK_CHECK(t, status == SYMMEM_TIMEOUT || status == SYMMEM_PEER_LOST);
    TK_CHECK(t, record.failed_rank == rank || symmem_error_is_missing(&record, rank));
    TK_SAYS(t, "NO_SPACE in alloc");
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
        TK_EQ_INT(t, t->last, last_record().failed_rank);
        TK_SAYS(t, "LIMIT");
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

/* Before it has met anybody. */
TK_TEST(causes, lack_of_one_that_never_came, "SM-EXCHANGE-25", .ranks = {2, 4}, .flags = TK_UNMET) {
    struct other_world w = other_world_begin(t);
    TK_REQUIRE_OK(t, symmem_init(&w.options, &w.context));
    tk_out_of_band_barrier(t);
    if (t->rank == t->last) {
        lack(t, w.context);
        finalize_and_free(t, w.context);
        w.context = NULL;
    } else {
        other_world_group(t, &w, "world");
    }
    tk_out_of_band_barrier(t);
    if (t->rank != t->last)
        expect_lack(t, symmem_group_barrier(w.group, tk_limit_ms(t, 400)), t->last);
    tk_out_of_band_barrier(t);
    other_world_end(t, &w);
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
        TK_SAYS(t, "NO_SPACE in alloc");
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
    if (strstr(key, wanted) != NULL)
        (void)await_shared(t, t->last, SLOT_FINALIZED, 1);
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
        TK_SAYS(t, "NO_SPACE in alloc");
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
    struct other_world w = other_world_begin(t);
    other_world_group(t, &w, "before");
    tk_group_barrier(t, w.group);
    TK_OK(t, symmem_group_destroy(w.group));
    tk_out_of_band_barrier(t);
    if (t->rank == t->last) {
        lack(t, w.context);
        finalize_and_free(t, w.context);
        w.context = NULL;
    }
    tk_out_of_band_barrier(t);
    if (t->rank != t->last) {
        other_world_group(t, &w, "later");
        expect_lack(t, symmem_group_barrier(w.group, tk_limit_ms(t, 400)), t->last);
    }
    other_world_end(t, &w);
}

/* It is made good: the others never need to know. */
TK_TEST(causes, lack_that_is_made_good, "SM-EXCHANGE-41", .ranks = {2, 4}, .flags = TK_UNMET) {
    struct other_world w = other_world_begin(t);
    other_world_group(t, &w, "world");
    tk_group_barrier(t, w.group);
    if (t->rank == t->last)
        lack(t, w.context);
    tk_group_barrier(t, w.group);
    symmem_clear_error();
    other_world_end(t, &w);
}
