/* SPDX-License-Identifier: BSD-3-Clause */
/* A store that takes its time just when a rank does not come: the time is up in the middle of a
 * store call, and the others still have to say who is missing. */
#include "counting_store.h"
#include "sync_help.h"

enum { LIMIT = 12 };

enum slowness { SET_FAILS, SET_LATE, ADD_FAILS, GET_FAILS, GETS_NEED_TIME, SLOWNESS_COUNT };

struct slow_store {
    struct counting_store counting; /* first: what its entries take */
    enum slowness slowness;
    uint32_t limit_ms; /* of the call it spoils; 0: it spoils none */
};

/* What a store does that cannot reach its server within the time it was given. */
static symmem_status give_up_after(uint32_t ms) {
    tk_sleep_ms(ms < LIMIT ? ms : LIMIT);
    return SYMMEM_TIMEOUT;
}

/* Only the first call of its kind is slow. */
static uint32_t spoil_once(struct slow_store *store, enum slowness slowness) {
    uint32_t limit_ms = store->slowness == slowness ? store->limit_ms : 0;
    if (limit_ms != 0)
        store->limit_ms = 0;
    return limit_ms;
}

static symmem_status slow_set(void *self, const char *key, const void *value, size_t bytes,
                              uint32_t timeout_ms) {
    if (spoil_once(self, SET_FAILS) != 0)
        return give_up_after(timeout_ms);
    uint32_t late_ms = spoil_once(self, SET_LATE);
    symmem_status status = counting_store_ops.set(self, key, value, bytes, timeout_ms);
    tk_sleep_ms(late_ms);
    return status;
}

static symmem_status slow_add(void *self, const char *key, int64_t delta, int64_t *value_p,
                              uint32_t timeout_ms) {
    if (spoil_once(self, ADD_FAILS) != 0)
        return give_up_after(timeout_ms);
    return counting_store_ops.add(self, key, delta, value_p, timeout_ms);
}

static symmem_status slow_get(void *self, const char *key, void *value, size_t capacity,
                              size_t *bytes_p, uint32_t timeout_ms) {
    if (spoil_once(self, GET_FAILS) != 0)
        return give_up_after(timeout_ms);
    const struct slow_store *store = self;
    if (store->limit_ms != 0 && store->slowness == GETS_NEED_TIME && timeout_ms < 4)
        return give_up_after(timeout_ms);
    return counting_store_ops.get(self, key, value, capacity, bytes_p, timeout_ms);
}

/* False if this rank was kept from running until the time for its last looks was over as well. */
static bool name_rank_0(struct tk *t, struct slow_store *slow, symmem_group *group,
                        enum slowness slowness) {
    const uint64_t last_ms = LIMIT + 95; /* with a little for them to be refused in */
    symmem_error_record record;
    slow->slowness = slowness;
    slow->limit_ms = LIMIT;
    TK_FAILS(t, TIMEOUT, symmem_group_barrier(group, LIMIT));
    slow->limit_ms = 0;
    symmem_last_error(&record);
    if (record.missing_count == 0 && record.elapsed_ns > last_ms * 1000000u)
        return false;
    TK_CHECK_MSG(t, record.missing_count == 1 && symmem_error_is_missing(&record, 0),
                 "slowness %d: %u ranks missing, not rank 0: %s", (int)slowness,
                 (unsigned)record.missing_count, record.message);
    TK_EQ_INT(t, 0, record.failed_rank);
    TK_EQ_STR(t, "group_barrier", record.operation);
    return true;
}

static void absent_rank_is_named(struct tk *t, struct slow_store *slow, symmem_group *group,
                                 enum slowness slowness) {
    tk_checkpoint(t, "slowness %d", (int)slowness);
    tk_out_of_band_barrier(t);
    if (t->rank == 1)
        TK_TIMELY(t, name_rank_0(t, slow, group, slowness), "slowness %d: no rank is named",
                  (int)slowness);
    tk_out_of_band_barrier(t);
    TK_OK(t, symmem_group_barrier(group, LONG_MS));
}

/* Before the first call of all on a group and after it. */
TK_TEST(exchange_slow, absent_rank_is_named, "SM-EXCHANGE-04", .ranks = {2, 2}) {
    static _Thread_local struct slow_store slow; /* stays, if the body is left early */
    symmem_store_ops ops = counting_store_ops;
    symmem_store *store = NULL;
    ops.set = slow_set;
    ops.get = slow_get;
    ops.add = slow_add;
    slow = (struct slow_store){.counting = {.inner = t->store}};
    TK_REQUIRE_OK(t, symmem_store_open_custom(&ops, &slow, &store));
    for (int i = 0; i < SLOWNESS_COUNT; i++) {
        symmem_group *group = NULL;
        TK_OK(t, symmem_group_create(t->context, "slow", NULL, 0, store, &group));
        absent_rank_is_named(t, &slow, group, (enum slowness)i);
        absent_rank_is_named(t, &slow, group, (enum slowness)i);
        TK_OK(t, symmem_group_destroy(group));
    }
    tk_out_of_band_barrier(t);
    tk_end_context(t);
    symmem_store_close(store);
}
