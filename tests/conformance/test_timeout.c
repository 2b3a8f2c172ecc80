/* SPDX-License-Identifier: BSD-3-Clause */
/* Time limits of signal operations and the record of an expiry. */
#include "case_help.h"
#include "timeout_help.h"
#include "work_after.h"

/* --- how long --------------------------------------------------------------------------------- */

/* Runs an op that no rank serves: never less than its limit, and little more. */
static void expire(struct tk *t, symmem_handle *handle, enum signal_op op, int32_t peer,
                   int32_t channel, uint32_t limit_ms) {
    make_unsatisfied(t, handle, op, peer, channel);
    uint64_t begin_ms = tk_now_ms();
    TK_FAILS(t, TIMEOUT, run_op(handle, op, peer, channel, limit_ms, NULL));
    uint64_t took_ms = tk_now_ms() - begin_ms;
    TK_WITHIN(t, limit_ms + allowed_excess_ms(limit_ms), begin_ms);
    TK_CHECK_MSG(t, took_ms + 2 >= limit_ms, "%s ended after %llu of %u ms", op_name(op),
                 (unsigned long long)took_ms, limit_ms);
}

static void check_record(struct tk *t, enum signal_op op, int32_t channel, uint32_t limit_ms) {
    symmem_error_record record = last_record();
    TK_EQ_INT(t, SYMMEM_TIMEOUT, record.status);
    TK_EQ_STR(t, op_name(op), record.operation);
    TK_EQ_INT(t, channel, record.channel);
    TK_EQ_INT(t, t->rank, record.rank);
    TK_EQ_INT(t, t->world_size, record.world_size);
    TK_AT_LEAST(t, (uint64_t)(limit_ms - 2) * 1000000u, record.elapsed_ns);
    TK_BELOW(t, (uint64_t)(limit_ms + LONG_MS) * 1000000u, record.elapsed_ns);
    TK_CHECK(t, record.message[0] != '\0');
}

/* Rank 0 alone waits, until its limit. */
static void expire_once(struct tk *t, enum signal_op op, uint32_t limit_ms, bool last_channel) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    int32_t channel = last_channel ? info_of(t, handle).channel_count - 1 : 3;
    if (t->rank == 0) {
        expire(t, handle, op, 1, channel, limit_ms);
        check_record(t, op, channel, limit_ms);
        symmem_error_record record = last_record();
        bool absent[4] = {false, true, op == OP_BARRIER, op == OP_BARRIER};
        check_missing(t, &record, absent, t->world_size);
    }
    tk_out_of_band_barrier(t);
    tk_release(t, handle);
}

static void op_times_out(struct tk *t, enum signal_op op) {
    const uint32_t limits_ms[] = {50, 120};
    for (int i = 0; i < 4; i++)
        expire_once(t, op, limits_ms[i / 2], i % 2 == 1);
    work_after(t, NULL);
}

#define TIMES_OUT(name_, op_, requirements_)                                                       \
    TK_PORTED(name_, "SM-TIMEOUT-01,SM-TIMEOUT-02,SM-TIMEOUT-14" requirements_, .ranks = {2, 4}) { \
        op_times_out(t, op_);                                                                      \
    }
TIMES_OUT(test_barrier_timeout, OP_BARRIER, "")
TIMES_OUT(test_put_signal_timeout, OP_PUT, ",SM-SIGNAL-02")
TIMES_OUT(test_wait_signal_timeout, OP_WAIT, ",SM-SIGNAL-01")

struct timed_thread {
    struct tk *t;
    symmem_handle *handle;
    enum signal_op op;
};

static void *expire_in_thread(void *arg) {
    struct timed_thread *self = arg;
    expire(self->t, self->handle, self->op, 1, 0, 1000);
    symmem_error_record record = last_record();
    TK_EQ_STR(self->t, op_name(self->op), record.operation);
    return NULL;
}

/* All three at once, each on a block of its own. */
TK_TEST(timeout, limit_of_one_second, "SM-TIMEOUT-01,SM-TIMEOUT-14", .ranks = {2, 2}) {
    struct timed_thread threads[OP_COUNT];
    for (int i = 0; i < OP_COUNT; i++)
        threads[i] = (struct timed_thread){
            .t = t, .handle = tk_handle(t, 64, tk_world_group(t)), .op = (enum signal_op)i};
    if (t->rank == 0)
        tk_in_threads(t, expire_in_thread, threads, sizeof(threads[0]), OP_COUNT);
    tk_out_of_band_barrier(t);
    work_after(t, NULL);
}

/* --- who is missing --------------------------------------------------------------------------- */

/* Whether exactly the absent ranks are missing, and if it is one, that one has failed. */
static bool names_the_absent(const struct tk *t, const symmem_error_record *record,
                             const bool *absent) {
    int32_t failed_rank = -1;
    uint32_t count = 0;
    for (int32_t r = 0; r < t->world_size; r++) {
        if (symmem_error_is_missing(record, r) != absent[r])
            return false;
        failed_rank = absent[r] ? r : failed_rank;
        count += absent[r];
    }
    return record->missing_count == count && record->failed_rank == (count == 1 ? failed_rank : -1);
}

/* One barrier without the absent ranks. One that is kept from running for as long as the limit is
 * missing, too, and rightly. */
static void check_without(struct tk *t, const bool *absent) {
    const uint32_t limit_ms = tk_limit_ms(t, t->world_size <= 8 ? 60 : 800);
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    tk_out_of_band_barrier(t);
    if (!absent[t->rank]) {
        symmem_status status = symmem_barrier(handle, 1, limit_ms, NULL);
        symmem_error_record record = last_record();
        TK_CHECK(t, status != SYMMEM_OK);
        TK_TIMELY(t, status == SYMMEM_TIMEOUT && names_the_absent(t, &record, absent),
                  "not TIMEOUT with exactly the absent ranks, but %s: %s",
                  symmem_status_name(status), record.message);
    }
    tk_out_of_band_barrier(t); /* who is through poisons it for those that are not */
    tk_release(t, handle);
}

TK_TEST(timeout, missing_ranks_are_named, "SM-TIMEOUT-02,SM-BARRIER-01,SM-TIMEOUT-14",
        .min_ranks = 2, .timeout_s = 60) {
    bool absent[SYMMEM_MAX_WORLD_SIZE];
    bool small = t->world_size <= 5;
    for (int32_t r = 0; r < (small ? t->world_size : 1); r++) {
        memset(absent, 0, sizeof(absent));
        absent[small ? r : t->last] = true;
        check_without(t, absent);
        if (t->world_size < 3)
            continue;
        absent[small ? (r + 1) % t->world_size : t->world_size / 2] = true;
        check_without(t, absent);
    }
    work_after(t, NULL);
}

/* Puts and waits name the one rank, in group ranks. */
static void missing_on_shape(struct tk *t, symmem_group *group, const struct tk_shape *shape,
                             void *arg) {
    (void)arg;
    for (enum signal_op op = OP_PUT; op <= OP_WAIT; op++) {
        symmem_handle *handle = tk_handle(t, 64, group);
        int32_t peer = (shape->rank + 1) % shape->count;
        make_unsatisfied(t, handle, op, peer, 2);
        tk_group_barrier(t, group);
        if (shape->rank % 2 == 0 && (peer % 2 == 1 || peer == shape->rank)) {
            /* the peer stays out, for a poisoned one would be met with POISONED */
            TK_FAILS(t, TIMEOUT, run_op(handle, op, peer, 2, 30, NULL));
            symmem_error_record record = last_record();
            check_missing_one(t, &record, peer, shape->count);
            TK_EQ_INT(t, peer, record.failed_rank);
            TK_EQ_INT(t, shape->rank, record.rank);
            TK_EQ_STR(t, op_name(op), record.operation);
        }
        tk_group_barrier(t, group);
    }
}

TK_TEST(timeout, missing_ranks_are_group_ranks, "SM-TIMEOUT-02,SM-TIMEOUT-14", .max_ranks = 5) {
    tk_for_each_group_shape(t, missing_on_shape, NULL);
    work_after(t, NULL);
}

/* One rank comes when nine tenths of the limit have gone, another one not at all. */
static void late_and_absent(struct tk *t, int32_t late, int32_t absent, uint32_t limit_ms) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    tk_out_of_band_barrier(t);
    uint64_t begin_ms = tk_now_ms();
    if (t->rank == late)
        tk_sleep_ms(limit_ms * 9 / 10);
    if (t->rank == 0) {
        TK_FAILS(t, TIMEOUT, symmem_barrier(handle, 0, limit_ms, NULL));
        TK_WITHIN(t, limit_ms + 250, begin_ms);
    } else if (t->rank != absent) {
        TK_STATUS_EITHER(t, SYMMEM_TIMEOUT, SYMMEM_POISONED,
                         symmem_barrier(handle, 0, limit_ms, NULL));
    }
    tk_out_of_band_barrier(t);
    tk_release(t, handle);
}

/* The limit is that of the barrier, not of each peer. It is long beside the machine's lateness, so
 * that a second one is still told from that, but short beside the case's own limit. */
TK_TEST(timeout, one_limit_for_all_peers, "SM-TIMEOUT-01,SM-TIMEOUT-14", .ranks = {3, 4}) {
    const uint32_t late_ms = tk_limit_ms(t, 0);
    const uint32_t limit_ms = 400 + 4 * (late_ms < 400 ? late_ms : 400);
    for (int32_t absent = 1; absent < 3; absent++)
        late_and_absent(t, 3 - absent, absent, limit_ms);
    work_after(t, NULL);
}

/* --- no false expiry -------------------------------------------------------------------------- */

/* PASSIVE: else a put is there once the peer makes a call, which is no matter of 1 ms. */
TK_TEST(timeout, satisfied_operations_need_no_time, "SM-TIMEOUT-03", .needs = SYMMEM_CAP_PASSIVE,
        .max_ranks = 8) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    for (int32_t channel = 0; channel < 4; channel++)
        TK_OK(t, symmem_put_signal(handle, t->next, channel, 1, NULL));
    tk_out_of_band_barrier(t);
    for (int32_t channel = 0; channel < 4; channel++)
        TK_OK(t, symmem_wait_signal(handle, t->previous, channel, 1, NULL));
}

/* The last one to come to a barrier, with 1 ms. That the others are inside is all but certain when
 * they have had some time. */
TK_TEST(timeout, last_arrival_needs_no_time, "SM-TIMEOUT-03,SM-TIMEOUT-14", .ranks = {2, 2}) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    if (t->rank == 0) {
        (void)await_shared(t, 1, 0, 1);
        tk_sleep_ms(tk_limit_ms(t, 30));
        symmem_status status = symmem_barrier(handle, 0, 1, NULL);
        TK_TIMELY(t, status == SYMMEM_OK, "a barrier that all others had entered: %s",
                  symmem_status_name(status));
    } else {
        show_entered(t, 1);
        TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    }
    tk_out_of_band_barrier(t);
    work_after(t, NULL);
}

/* Peers that come after 100 ms of a limit of many seconds, and after 300 ms of none. */
TK_TEST(timeout, late_peers_are_served, "SM-TIMEOUT-03", .ranks = {2, 2}) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    const uint32_t limits_ms[] = {LONG_MS, 0};
    for (int i = 0; i < 2; i++) {
        const uint32_t limit_ms = limits_ms[i], late_ms = limit_ms != 0 ? 100 : 300;
        if (t->rank == 0) {
            TK_OK(t, symmem_barrier(handle, 0, limit_ms, NULL));
            TK_OK(t, symmem_wait_signal(handle, 1, 0, limit_ms, NULL));
            TK_OK(t, symmem_put_signal(handle, 1, 0, limit_ms, NULL));
            TK_OK(t, symmem_put_signal(handle, 1, 0, limit_ms, NULL));
        } else {
            tk_sleep_ms(late_ms);
            TK_OK(t, symmem_barrier(handle, 0, limit_ms, NULL));
            tk_sleep_ms(late_ms);
            TK_OK(t, symmem_put_signal(handle, 0, 0, limit_ms, NULL));
            tk_sleep_ms(late_ms);
            TK_OK(t, symmem_wait_signal(handle, 0, 0, limit_ms, NULL));
            TK_OK(t, symmem_wait_signal(handle, 0, 0, limit_ms, NULL));
        }
    }
}

TK_TEST(timeout, default_limit_is_the_contexts, "SM-TIMEOUT-11,SM-TIMEOUT-14", .ranks = {2, 2}) {
    symmem_context_options options = tk_options(t);
    options.default_timeout_ms = 5000;
    tk_reinit(t, &options);
    void *ptr = tk_alloc(t, 64); /* rendezvous with 5 s, then operations with 60 ms */
    symmem_handle *warm = tk_rendezvous(t, ptr, tk_world_group(t));
    tk_release(t, warm);
    tk_out_of_band_barrier(t);
    options.default_timeout_ms = 60;
    tk_reinit(t, &options);
    for (int op = 0; op < OP_COUNT; op++) {
        void *block = tk_alloc(t, 64);
        symmem_handle *handle = NULL;
        TK_REQUIRE_OK(t, symmem_rendezvous(t->context, block, tk_world_group(t), LONG_MS, &handle));
        if (t->rank == 0) {
            make_unsatisfied(t, handle, (enum signal_op)op, 1, 0);
            uint64_t begin_ms = tk_now_ms();
            TK_FAILS(t, TIMEOUT,
                     run_op(handle, (enum signal_op)op, 1, 0, SYMMEM_TIMEOUT_DEFAULT, NULL));
            uint64_t took_ms = tk_now_ms() - begin_ms;
            TK_AT_LEAST(t, 60, took_ms + 2);
            TK_TOOK(t, 4000, begin_ms, begin_ms + took_ms);
        }
        tk_out_of_band_barrier(t);
        symmem_handle_release(handle);
    }
    work_after(t, NULL);
}

/* --- a clock of the program's ----------------------------------------------------------------- */

/* It comes at once to whatever anybody waits for. */
static uint64_t hurried_now_ns(void *arg) {
    return atomic_load((_Atomic uint64_t *)arg);
}

static void hurried_wait(void *arg, uint64_t until_ns) {
    _Atomic uint64_t *now_ns = arg;
    if (until_ns != UINT64_MAX && until_ns > atomic_load(now_ns))
        atomic_store(now_ns, until_ns);
}

static void hurried_changed(void *arg) {
    (void)arg;
}

static void hurried_threads(void *arg, int change) {
    (void)arg;
    (void)change;
}

TK_TEST(timeout, groups_go_by_the_options_clock, "SM-TIMEOUT-15", .min_ranks = 2, .max_ranks = 4,
        .flags = TK_NOT_JOINED) {
    static _Atomic uint64_t now_ns;
    static const symmem_clock clock = {.size = sizeof(clock),
                                       .arg = &now_ns,
                                       .now_ns = hurried_now_ns,
                                       .wait = hurried_wait,
                                       .changed = hurried_changed,
                                       .threads = hurried_threads};
    const uint64_t limit_ns = UINT64_C(600000000000);
    if (t->rank == 0) {
        symmem_context_options options = tk_options(t);
        symmem_clock wrong[5] = {clock, clock, clock, clock, clock};
        wrong[0].size--;
        wrong[1].now_ns = NULL;
        wrong[2].wait = NULL;
        wrong[3].changed = NULL;
        wrong[4].threads = NULL;
        for (int i = 0; i < 5; i++) {
            symmem_context *context = NULL;
            options.clock = &wrong[i];
            TK_FAILS(t, INVALID_ARGUMENT, symmem_init(&options, &context));
        }
        options.clock = &clock;
        atomic_store(&now_ns, 1000);
        tk_reinit(t, &options);
        symmem_group *group = tk_world_group(t);
        uint64_t begin_ms = tk_now_ms(), begin_ns = atomic_load(&now_ns);
        TK_STATUS(t, SYMMEM_TIMEOUT, symmem_group_barrier(group, 600000));
        TK_WITHIN(t, 5000, begin_ms);
        TK_AT_LEAST(t, limit_ns, last_record().elapsed_ns);
        TK_BELOW(t, 2 * limit_ns, last_record().elapsed_ns);
        TK_AT_LEAST(t, begin_ns + limit_ns, atomic_load(&now_ns));
        tk_end_context(t);
    }
    tk_out_of_band_barrier(t);
}
