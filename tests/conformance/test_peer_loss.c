/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks that die, and ranks that only stop. Process mode: threads cannot die alone. */
#include "timeout_help.h"
#include "work_after.h"

enum lost_in { IN_BARRIER = 0, IN_PUT, IN_WAIT, IN_RENDEZVOUS, IN_ALL_GATHER, IN_HOST_BARRIER };

#define SLOT_INSIDE 5
#define DEATH (TK_PROCESS_ONLY | TK_MAY_DIE | TK_MAY_LEAK)

static symmem_status call_that_needs(struct tk *t, enum lost_in in, symmem_handle *handle,
                                     void *fresh, int32_t victim, uint32_t limit_ms) {
    uint64_t in_word = 0;
    uint64_t out[128] = {0};
    symmem_handle *none = NULL;
    switch (in) {
    case IN_BARRIER:
        return symmem_barrier(handle, 0, limit_ms, NULL);
    case IN_PUT:
        return symmem_put_signal(handle, victim, 1, limit_ms, NULL);
    case IN_WAIT:
        return symmem_wait_signal(handle, victim, 2, limit_ms, NULL);
    case IN_RENDEZVOUS:
        return symmem_rendezvous(t->context, fresh, tk_world_group(t), limit_ms, &none);
    case IN_ALL_GATHER:
        return symmem_group_all_gather(tk_world_group(t), &in_word, 8, out, limit_ms);
    default:
        return symmem_group_barrier(tk_world_group(t), limit_ms);
    }
}

/* Right after the call, which began at begin_ms. */
static void check_lost(struct tk *t, symmem_status status, int32_t victim, uint64_t begin_ms) {
    uint64_t end_ms = tk_now_ms();
    TK_CHECK_MSG(t, tk_has_ended(t, victim), "told before its end");
    symmem_error_record record = last_record();
    TK_EQ_INT(t, SYMMEM_PEER_LOST, status);
    TK_EQ_INT(t, SYMMEM_PEER_LOST, record.status);
    TK_EQ_INT(t, victim, record.failed_rank);
    TK_CHECK(t, symmem_error_is_missing(&record, victim));
    tk_expect_prompt(t, victim, begin_ms, end_ms);
}

/* The survivors are inside the call when the victim dies; each waits for the victim alone, so a
 * survivor's own poison is nothing the others could see first. */
static void lose_rank(struct tk *t, enum lost_in in, int32_t victim, uint32_t limit_ms) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    void *fresh = tk_alloc(t, 64);
    tk_expect_death(t, victim);
    if (in == IN_PUT && t->rank != victim)
        TK_OK(t, symmem_put_signal(handle, victim, 1, LONG_MS, NULL));
    tk_out_of_band_barrier(t);
    if (t->rank == victim) {
        for (int32_t r = 0; r < t->world_size; r++)
            if (r != victim)
                (void)await_shared(t, r, SLOT_INSIDE, 1);
        tk_sleep_ms(30);
        tk_kill_self(t);
    }
    tk_share_u64(t, SLOT_INSIDE, 1);
    uint64_t begin_ms = tk_now_ms();
    check_lost(t, call_that_needs(t, in, handle, fresh, victim, limit_ms), victim, begin_ms);
    /* A later call finds it lost at once. */
    TK_FAILS(t, PEER_LOST, symmem_group_barrier(tk_world_group(t), 60000));
    work_after_loss(t, NULL, victim, 1, NULL);
}

#define LOSS_TEST(name_, max_, in_, victim_, limit_ms_)                                            \
    TK_TEST(peer_loss, name_, "SM-TIMEOUT-08,SM-TIMEOUT-14", .ranks = {2, max_}, .flags = DEATH,   \
            .timeout_s = 30) {                                                                     \
        lose_rank(t, in_, victim_, limit_ms_);                                                     \
    }

LOSS_TEST(barrier_first_60_s, 4, IN_BARRIER, 0, 60000)
LOSS_TEST(barrier_last_no_limit, 4, IN_BARRIER, t->last, 0)
LOSS_TEST(put_60_s, 2, IN_PUT, t->last, 60000)
LOSS_TEST(put_no_limit, 4, IN_PUT, 0, 0)
LOSS_TEST(wait_60_s, 2, IN_WAIT, 0, 60000)
LOSS_TEST(wait_no_limit, 4, IN_WAIT, t->last, 0)
LOSS_TEST(rendezvous_60_s, 4, IN_RENDEZVOUS, 0, 60000)
LOSS_TEST(rendezvous_no_limit, 4, IN_RENDEZVOUS, t->last, 0)
LOSS_TEST(all_gather_60_s, 4, IN_ALL_GATHER, t->last, 60000)
LOSS_TEST(all_gather_no_limit, 4, IN_ALL_GATHER, 0, 0)
LOSS_TEST(host_barrier_60_s, 4, IN_HOST_BARRIER, t->world_size / 2, 60000)
LOSS_TEST(barrier_middle_60_s, 0, IN_BARRIER, t->world_size / 2, 60000)

/* The loss comes as a stream's failure, with that stream and others still usable. */
TK_TEST(peer_loss, stream_reports_the_loss, "SM-TIMEOUT-08,SM-STREAM-03,SM-TIMEOUT-14",
        .needs = SYMMEM_CAP_STREAMS, .ranks = {2, 4}, .flags = DEATH) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    int32_t victim = t->last;
    tk_expect_death(t, victim);
    tk_out_of_band_barrier(t);
    if (t->rank == victim)
        tk_kill_self(t);
    symmem_stream *stream = tk_stream(t);
    TK_OK(t, symmem_wait_signal(handle, victim, 0, 0, stream));
    TK_FAILS(t, PEER_LOST, symmem_stream_synchronize(stream, 60000));
    TK_EQ_INT(t, victim, last_record().failed_rank);
    TK_OK(t, symmem_stream_synchronize(stream, 1000));
    work_after_loss(t, NULL, victim, 1, stream);
}

/* A signal that was put is there, and so is what came with it, also once its source is gone. */
TK_TEST(peer_loss, signal_outlives_its_source, "SM-SIGNAL-11,SM-POINT-07", .ranks = {2, 4},
        .flags = DEATH, .timeout_s = 30) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    int32_t victim = t->last;
    tk_expect_death(t, victim);
    tk_out_of_band_barrier(t);
    if (t->rank == victim) {
        for (int32_t r = 0; r < victim; r++) {
            tk_fill(t, handle, r, 0, 64, 0x3C);
            TK_OK(t, symmem_put_signal(handle, r, 1, 1000, NULL));
        }
        tk_kill_self(t);
    }
    TK_CHECK(t, tk_wait_death(t, victim, 5000));
    tk_sleep_ms(50);
    TK_OK(t, symmem_wait_signal(handle, victim, 1, 1000, NULL));
    tk_expect_bytes(t, handle, t->rank, 0, 64, 0x3C);
    work_after_loss(t, NULL, victim, 1, NULL);
}

/* The first rank alone waits for the victim; the others wait for the first. */
TK_TEST(peer_loss, poison_names_who_ended, "SM-TIMEOUT-05", .ranks = {3, 4}, .flags = DEATH,
        .timeout_s = 30) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    int32_t victim = t->last;
    tk_expect_death(t, victim);
    tk_out_of_band_barrier(t);
    if (t->rank == victim)
        tk_kill_self(t);
    if (t->rank == 0) {
        TK_FAILS(t, PEER_LOST, symmem_wait_signal(handle, victim, 0, LONG_MS, NULL));
    } else {
        TK_FAILS(t, POISONED, symmem_wait_signal(handle, 0, 0, LONG_MS, NULL));
        symmem_error_record record = last_record();
        TK_EQ_INT(t, 0, record.failed_rank);
        TK_CHECK_MSG(t, symmem_error_is_missing(&record, victim), "%s", record.message);
        TK_EQ_INT(t, 1, record.missing_count);
    }
    TK_FAILS(t, POISONED, symmem_wait_signal(handle, 0, 0, LONG_MS, NULL)); /* by now its own */
    symmem_error_record record = last_record();
    TK_CHECK_MSG(t, symmem_error_is_missing(&record, victim), "%s", record.message);
    work_after_loss(t, NULL, victim, 1, NULL);
}

/* The victim gets some way into the rendezvous. */
static void dies_inside_rendezvous(struct tk *t, const char *point) {
    int32_t victim = t->last;
    tk_expect_death(t, victim);
    void *ptr = tk_alloc(t, 64);
    symmem_group *group = tk_world_group(t);
    tk_group_barrier(t, group);
    tk_out_of_band_barrier(t);
    if (t->rank == victim)
        tk_on_point(t, point, 1, (struct tk_action){.kill = true});
    tk_checkpoint(t, "victim dies at %s", point);
    symmem_handle *handle = NULL;
    uint64_t begin_ms = tk_now_ms();
    TK_FAILS(t, PEER_LOST, symmem_rendezvous(t->context, ptr, group, 60000, &handle));
    TK_CHECK(t, handle == NULL);
    tk_expect_prompt(t, victim, begin_ms, tk_now_ms());
    TK_EQ_INT(t, victim, last_record().failed_rank);
    work_after_loss(t, NULL, victim, 1, NULL);
}

#define INSIDE_TEST(name_, point_)                                                                 \
    TK_TEST(peer_loss, name_, "SM-TIMEOUT-08,SM-RDV-10,SM-TIMEOUT-14", .ranks = {2, 4},            \
            .flags = DEATH, .timeout_s = 30) {                                                     \
        dies_inside_rendezvous(t, point_);                                                         \
    }

INSIDE_TEST(dies_at_begin_of_rendezvous, "rendezvous.begin")
INSIDE_TEST(dies_after_metadata, "rendezvous.metadata.after")
INSIDE_TEST(dies_before_descriptors, "rendezvous.descriptors.before")
INSIDE_TEST(dies_before_mapping, "rendezvous.map.before")

/* --- stopped ranks ---------------------------------------------------------------------------- */

/* Stops or continues another rank; refuses any id that could mean more than one process. */
static bool signal_rank(struct tk *t, int32_t rank, int number) {
    int32_t pid = tk_process_id(t, rank);
    if (!TK_CHECK(t, pid > 1))
        return false;
    return TK_CHECK(t, kill(pid, number) == 0);
}

/* PASSIVE: the first put to a stopped rank has to arrive, so that the second one waits. */
TK_TEST(peer_loss, stopped_rank_times_out, "SM-TIMEOUT-09,SM-TIMEOUT-14",
        .needs = SYMMEM_CAP_PASSIVE, .ranks = {2, 2}, .flags = TK_PROCESS_ONLY) {
    symmem_handle *handles[OP_COUNT];
    for (int op = 0; op < OP_COUNT; op++)
        handles[op] = tk_handle(t, 64, tk_world_group(t));
    tk_out_of_band_barrier(t);
    if (t->rank == 0) {
        bool stopped = signal_rank(t, 1, SIGSTOP);
        for (int op = 0; stopped && op < OP_COUNT; op++) {
            make_unsatisfied(t, handles[op], (enum signal_op)op, 1, 0);
            /* long enough for a wrong detector to call the stopped rank lost */
            TK_FAILS(t, TIMEOUT,
                     run_op(handles[op], (enum signal_op)op, 1, 0, op == 0 ? 1150 : 100, NULL));
            TK_EQ_INT(t, 1, last_record().failed_rank);
        }
        if (stopped)
            (void)signal_rank(t, 1, SIGCONT);
    }
    tk_out_of_band_barrier(t);
    for (int op = 0; op < OP_COUNT; op++)
        TK_OK(t, symmem_handle_reset(handles[op], LONG_MS));
    work_after(t, NULL);
}

struct continuer {
    struct tk *t;
    bool sent;
};

static void *continue_later(void *arg) {
    struct continuer *self = arg;
    tk_sleep_ms(1150);
    self->sent = signal_rank(self->t, 1, SIGCONT);
    return NULL;
}

TK_TEST(peer_loss, stopped_rank_goes_on, "SM-TIMEOUT-09", .ranks = {2, 2},
        .flags = TK_PROCESS_ONLY) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    struct continuer continuer = {.t = t};
    pthread_t thread;
    tk_out_of_band_barrier(t);
    if (t->rank == 1) {
        tk_share_u64(t, 0, 1);
        tk_sleep_ms(200); /* stopped in here */
    }
    bool started = false;
    if (t->rank == 0) {
        (void)await_shared(t, 1, 0, 1);
        bool stopped = signal_rank(t, 1, SIGSTOP);
        started = pthread_create(&thread, NULL, continue_later, &continuer) == 0;
        if (stopped && !started)
            (void)signal_rank(t, 1, SIGCONT);
        TK_CHECK(t, started);
    }
    TK_OK(t, symmem_barrier(handle, 0, 0, NULL));
    TK_OK(t, symmem_group_barrier(tk_world_group(t), LONG_MS));
    TK_CHECK(t, !started || pthread_join(thread, NULL) == 0);
    TK_CHECK(t, !started || continuer.sent);
}
