/* SPDX-License-Identifier: BSD-3-Clause */
/* Waits for values on streams and in graphs, and how they end: poison, lost peers, the context. */
#include "timeout_help.h"
#include "value_help.h"

#define VALUES SYMMEM_CAP_VALUES
#define DIRECT_VALUES (SYMMEM_CAP_VALUES | SYMMEM_CAP_DIRECT_ACCESS)
#define INSIDE 5

/* --- streams and graphs --------------------------------------------------------- */

/* The stream stops at the wait, the call does not, and a second stream goes on. */
TK_TEST(wait_value, holds_back_its_stream_alone, "SM-WAITVAL-11,SM-WAITVAL-13",
        .needs = DIRECT_VALUES | SYMMEM_CAP_STREAMS, .max_ranks = 3) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    symmem_stream *held = tk_stream(t), *free_one = tk_stream(t);
    for (int wide = 0; wide < 2; wide++) {
        const struct value_word word = {t, handle, t->rank, 0, wide};
        const struct value_word behind = {t, handle, t->rank, 16, wide};
        const struct value_word beside = {t, handle, t->rank, 32, wide};
        TK_OK(t, value_wait(&word, SYMMEM_EQ, 9, t->rank, LONG_MS, held));
        TK_OK(t, value_write(&behind, 1, held));
        TK_OK(t, value_write(&beside, 1, free_one));
        TK_OK(t, value_wait(&beside, SYMMEM_EQ, 1, t->rank, LONG_MS, free_one));
        ring_signal(t, handle, 1);
        tk_synchronize(t, free_one);
        TK_CHECK(t, !is_idle(t, held));
        tk_expect_bytes(t, handle, t->rank, 16, 8, 0);
        TK_OK(t, value_write(&word, 9, free_one));
        tk_synchronize(t, held);
        tk_synchronize(t, free_one);
        TK_OK(t, value_wait(&behind, SYMMEM_EQ, 1, t->rank, 1000, NULL));
        tk_fill(t, handle, t->rank, 0, 64, 0);
    }
}

TK_TEST(wait_value, stream_reports_the_limit, "SM-WAITVAL-11,SM-WAITVAL-06,SM-WAITVAL-09",
        .needs = VALUES | SYMMEM_CAP_STREAMS, .ranks = {1, 3}) {
    const uint32_t limit_ms = 40;
    for (int wide = 0; wide < 2; wide++) {
        symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
        const struct value_word word = {t, handle, t->rank, 8, wide};
        symmem_stream *stream = tk_stream(t);
        value_set(&word, 4);
        TK_OK(t, value_wait(&word, SYMMEM_LT, 3, t->rank, limit_ms, stream));
        TK_FAILS(t, TIMEOUT, symmem_stream_synchronize(stream, LONG_MS));
        const symmem_error_record record = last_record();
        TK_EQ_STR(t, wide ? "wait_value64" : "wait_value32", record.operation);
        TK_EQ_SIZE(t, 3, record.expected);
        TK_EQ_SIZE(t, 4, record.actual);
        TK_EQ_INT(t, t->rank, record.failed_rank);
        tk_synchronize(t, stream);
        TK_CHECK(t, info_of(t, handle).poisoned);
        TK_FAILS(t, POISONED, symmem_barrier(handle, 0, 1000, NULL));
        tk_out_of_band_barrier(t);
    }
    work_after(t, NULL);
}

/* Each launch waits for a number of its own, which the word has only then. */
TK_TEST(wait_value, waits_in_each_launch, "SM-WAITVAL-12,SM-WAITVAL-02",
        .needs = DIRECT_VALUES | SYMMEM_CAP_STREAMS | SYMMEM_CAP_CAPTURE, .ranks = {2, 4}) {
    enum { WORDS = 64 };
    symmem_handle *handle = tk_handle(t, 1024, tk_world_group(t));
    symmem_stream *stream = tk_stream(t), *side = tk_stream(t);
    uint32_t *got = tk_scratch(t, WORDS * 4), *words = tk_scratch(t, WORDS * 4);
    const struct value_word here = {t, handle, t->rank, 512, true};
    const struct value_word there = {t, handle, t->next, 512, true};
    TK_OK(t, symmem_stream_begin_capture(stream));
    TK_OK(t, value_wait(&here, SYMMEM_NE, 0, t->previous, LONG_MS, stream));
    TK_OK(t, symmem_get(handle, t->rank, 0, got, WORDS * 4, stream));
    TK_OK(t, value_write(&here, 0, stream)); /* consumed */
    symmem_graph *graph = tk_end_capture(t, stream);
    for (uint32_t g = 1; g <= 4 && !tk_failed(t); g++) {
        TK_OK(t, symmem_graph_launch(graph, stream));
        TK_CHECK(t, !is_idle(t, stream));
        tk_out_of_band_barrier(t);
        fill_words(words, WORDS, t->rank, g);
        TK_OK(t, symmem_put(handle, t->next, 0, words, WORDS * 4, side));
        TK_OK(t, value_write(&there, UINT64_C(1) << 40, side));
        tk_synchronize(t, side);
        tk_synchronize(t, stream);
        TK_EQ_SIZE(t, WORDS, first_wrong_word(got, WORDS, t->previous, g));
        TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    }
}

struct waiting {
    struct tk *t;
    const struct value_word *word;
    uint64_t value;
};

static void *wait_in_thread(void *arg) {
    const struct waiting *self = arg;
    TK_OK(self->t, value_wait(self->word, SYMMEM_EQ, self->value, self->t->rank, LONG_MS, NULL));
    return NULL;
}

/* The last of several threads is served first, and signals pass meanwhile. */
TK_TEST(wait_value, threads_do_not_hold_up_each_other, "SM-WAITVAL-13", .needs = DIRECT_VALUES,
        .max_ranks = 3) {
    enum { THREADS = 4 };
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    struct value_word words[THREADS];
    struct waiting waits[THREADS];
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        words[i] = (struct value_word){t, handle, t->rank, 8 * (size_t)i, i % 2 == 1};
        waits[i] = (struct waiting){t, &words[i], 5 + (uint64_t)i};
        TK_REQUIRE(t, pthread_create(&threads[i], NULL, wait_in_thread, &waits[i]) == 0);
    }
    ring_signal(t, handle, 0);
    for (int i = THREADS - 1; i >= 0; i--) {
        TK_OK(t, value_write(&words[i], waits[i].value, NULL));
        TK_CHECK(t, pthread_join(threads[i], NULL) == 0);
    }
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
}

/* --- poison --------------------------------------------------------------------- */

TK_TEST(wait_value, poisoned_handles_refuse, "SM-WAITVAL-08,SM-WAITVAL-09", .needs = VALUES,
        .ranks = {1, 3}) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    const struct value_word word = {t, handle, t->rank, 0, false};
    poison_own(t, handle, 2);
    const uint64_t begin_ms = tk_now_ms();
    TK_FAILS(t, POISONED, value_wait(&word, SYMMEM_EQ, 1, t->rank, 0, NULL));
    TK_FAILS(t, POISONED, value_wait(&word, SYMMEM_EQ, 0, t->rank, 0, NULL));
    TK_WITHIN(t, 1000, begin_ms);
    TK_OK(t, symmem_handle_reset(handle, LONG_MS));
    TK_OK(t, value_wait(&word, SYMMEM_EQ, 0, t->rank, 1000, NULL));
    tk_out_of_band_barrier(t);
    TK_FAILS(t, TIMEOUT, value_wait(&word, SYMMEM_NE, 0, t->rank, 20, NULL));
    TK_CHECK(t, info_of(t, handle).poisoned);
    TK_EQ_INT(t, SYMMEM_TIMEOUT, symmem_handle_status(handle, NULL));
    TK_FAILS(t, POISONED, symmem_put_signal(handle, t->rank, 0, 1000, NULL));
    TK_OK(t, symmem_handle_reset(handle, LONG_MS));
    ring_signal(t, handle, 0);
}

/* A rank poisons its handle while the others wait for a word that it was to write. */
TK_TEST(wait_value, poison_of_the_source_ends_the_wait, "SM-WAITVAL-08", .needs = VALUES,
        .ranks = {2, 4}) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    for (int i = 0; i < 2; i++) {
        const int32_t source = i == 0 ? t->last : 0;
        const struct value_word word = {t, handle, t->rank, 0, i == 1};
        const uint64_t round = (uint64_t)i + 1;
        if (t->rank == source) {
            for (int32_t r = 0; r < t->world_size; r++)
                if (r != source)
                    (void)await_shared(t, r, INSIDE, round);
            tk_sleep_ms(30);
            poison_own(t, handle, 2);
        } else {
            tk_share_u64(t, INSIDE, round);
            TK_FAILS(t, POISONED, value_wait(&word, SYMMEM_EQ, 1, source, 0, NULL));
            TK_EQ_INT(t, source, last_record().failed_rank);
            TK_EQ_SIZE(t, 1, last_record().expected);
        }
        TK_OK(t, symmem_handle_reset(handle, LONG_MS));
    }
    ring_signal(t, handle, 0);
}

/* --- a lost source -------------------------------------------------------------- */

static void lose_source(struct tk *t, int32_t victim, uint32_t limit_ms, bool wide) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    const struct value_word word = {t, handle, t->rank, 0, wide};
    tk_expect_death(t, victim);
    tk_out_of_band_barrier(t);
    if (t->rank == victim) {
        for (int32_t r = 0; r < t->world_size; r++)
            if (r != victim)
                (void)await_shared(t, r, INSIDE, 1);
        tk_sleep_ms(30);
        tk_kill_self(t);
    }
    tk_share_u64(t, INSIDE, 1);
    const uint64_t begin_ms = tk_now_ms();
    symmem_status status = value_wait(&word, SYMMEM_GE, 77, victim, limit_ms, NULL);
    const uint64_t end_ms = tk_now_ms();
    const symmem_error_record record = last_record();
    TK_EQ_INT(t, SYMMEM_PEER_LOST, status);
    TK_EQ_INT(t, victim, record.failed_rank);
    TK_CHECK(t, symmem_error_is_missing(&record, victim));
    TK_EQ_SIZE(t, 77, record.expected);
    TK_EQ_SIZE(t, 0, record.actual);
    tk_expect_prompt(t, victim, begin_ms, end_ms);
    work_after_loss(t, NULL, victim, 1, NULL);
}

#define DEATH (TK_PROCESS_ONLY | TK_MAY_DIE | TK_MAY_LEAK)

TK_TEST(wait_value, lost_source_no_limit, "SM-WAITVAL-07", .needs = VALUES, .ranks = {2, 4},
        .flags = DEATH, .timeout_s = 30) {
    lose_source(t, t->last, 0, false);
}

TK_TEST(wait_value, lost_source_60_s, "SM-WAITVAL-07", .needs = VALUES, .ranks = {2, 3},
        .flags = DEATH, .timeout_s = 30) {
    lose_source(t, 0, 60000, true);
}

/* What the source wrote before its end is there, and is enough. */
TK_TEST(wait_value, value_outlives_its_source, "SM-WAITVAL-07,SM-WAITVAL-02",
        .needs = DIRECT_VALUES, .ranks = {2, 3}, .flags = DEATH, .timeout_s = 30) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    const int32_t victim = t->last;
    tk_expect_death(t, victim);
    tk_out_of_band_barrier(t);
    if (t->rank == victim) {
        for (int32_t r = 0; r < victim; r++) {
            const struct value_word there = {t, handle, r, 0, true};
            tk_fill(t, handle, r, 16, 16, 0x3C);
            TK_OK(t, value_write(&there, 5, NULL));
        }
        tk_kill_self(t);
    }
    const struct value_word here = {t, handle, t->rank, 0, true};
    TK_CHECK(t, tk_wait_death(t, victim, 5000));
    TK_OK(t, value_wait(&here, SYMMEM_EQ, 5, victim, 1000, NULL));
    tk_expect_bytes(t, handle, t->rank, 16, 16, 0x3C);
}

/* --- the end of the context ----------------------------------------------------- */

struct cut_off {
    struct tk *t;
    symmem_handle *handle;
    bool wide;
    symmem_status status;
};

static void *wait_for_ever(void *arg) {
    struct cut_off *self = arg;
    const struct value_word word = {self->t, self->handle, 0, 0, self->wide};
    self->status = value_wait(&word, SYMMEM_EQ, 1, 0, 0, NULL);
    tk_note_delay(self->t);
    return NULL;
}

TK_TEST(wait_value, finalize_ends_the_wait, "SM-WAITVAL-14", .needs = VALUES, .max_ranks = 1) {
    const symmem_context_options options = tk_options(t);
    for (int wide = 0; wide < 2; wide++) {
        struct own_world w = own_world_begin(t, &options, 64);
        struct cut_off self = {t, w.handle, wide, SYMMEM_OK};
        pthread_t thread;
        TK_REQUIRE(t, pthread_create(&thread, NULL, wait_for_ever, &self) == 0);
        tk_sleep_ms(60);
        const uint64_t begin_ms = tk_now_ms();
        TK_OK(t, symmem_finalize(w.context));
        TK_CHECK(t, pthread_join(thread, NULL) == 0);
        TK_WITHIN(t, 1000, begin_ms);
        TK_CHECK_MSG(t, self.status == SYMMEM_POISONED || self.status == SYMMEM_NOT_INITIALIZED,
                     "%s", symmem_status_name(self.status));
        symmem_handle_release(w.handle);
        symmem_context_free(w.context);
    }
}
