/* SPDX-License-Identifier: BSD-3-Clause */
/* Counted signals on streams and in graphs, and how waits for them end: poison, lost peers, resets.
 */
#include "backend_table.h"
#include "timeout_help.h"
#include "window_help.h"

#define INSIDE 5
#define DEATH (TK_PROCESS_ONLY | TK_MAY_DIE | TK_MAY_LEAK)

/* --- streams and graphs --------------------------------------------------------- */

/* Two streams use one index: in the order of the calls. */
TK_TEST(window, streams_keep_the_order, "SM-COUNT-11,SM-COUNT-01",
        .needs = SYMMEM_CAP_WINDOW | SYMMEM_CAP_STREAMS, .max_ranks = 4) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    symmem_stream *first = tk_stream(t), *second = tk_stream(t);
    const symmem_window_wait one = {t->previous, 1}, two = {t->previous, 2};
    for (int i = 0; i < 10 && !tk_failed(t); i++) {
        TK_OK(t, symmem_window_signal(handle, t->next, INDEX, 2, LONG_MS, first));
        TK_OK(t, symmem_window_signal(handle, t->next, INDEX, 1, LONG_MS, second));
        TK_OK(t, symmem_window_wait_signal(handle, 1, &two, INDEX, LONG_MS, second));
        TK_OK(t, symmem_window_wait_signal(handle, 1, &one, INDEX, LONG_MS, first));
    }
    tk_synchronize(t, first);
    tk_synchronize(t, second);
    TK_OK(t, take_nothing_left(t, handle));
}

TK_TEST(window, again_in_each_launch, "SM-COUNT-11,SM-COUNT-05",
        .needs = SYMMEM_CAP_WINDOW | CAPTURE, .max_ranks = 4) {
    enum { WORDS = 64 };
    symmem_handle *handle = tk_handle(t, 4 * WORDS, tk_world_group(t));
    symmem_stream *stream = tk_stream(t);
    uint32_t *sent = tk_scratch(t, 4 * WORDS), *got = tk_scratch(t, 4 * WORDS);
    symmem_window_wait wait = {t->previous, 3};
    TK_OK(t, symmem_stream_begin_capture(stream));
    TK_OK(t, symmem_window_put_signal(handle, t->next, 0, sent, 4 * WORDS, INDEX, LONG_MS, stream));
    TK_OK(t, symmem_window_signal(handle, t->next, INDEX, 2, LONG_MS, stream));
    TK_OK(t, symmem_window_wait_signal(handle, 1, &wait, INDEX, LONG_MS, stream));
    TK_OK(t, symmem_get(handle, t->rank, 0, got, 4 * WORDS, stream));
    symmem_graph *graph = tk_end_capture(t, stream);
    wait = (symmem_window_wait){-1, 0}; /* needed for the call only */
    for (uint32_t g = 1; g <= 5 && !tk_failed(t); g++) {
        fill_words(sent, WORDS, t->rank, g);
        run_graph(t, graph, stream);
        TK_EQ_SIZE(t, WORDS, first_wrong_word(got, WORDS, t->previous, g));
        TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
        TK_OK(t, give(handle, t->next, INDEX, 4)); /* eager ones between */
        TK_OK(t, take(handle, t->previous, INDEX, 4, LONG_MS));
    }
    TK_OK(t, take_nothing_left(t, handle));
}

TK_TEST(window, stream_reports_the_limit, "SM-COUNT-07,SM-COUNT-11",
        .needs = SYMMEM_CAP_WINDOW | SYMMEM_CAP_STREAMS, .max_ranks = 3) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    symmem_stream *stream = tk_stream(t);
    const symmem_window_wait wait = {t->rank, 2};
    TK_OK(t, give(handle, t->rank, INDEX, 1));
    TK_OK(t, symmem_window_wait_signal(handle, 1, &wait, INDEX, 40, stream));
    TK_FAILS(t, TIMEOUT, symmem_stream_synchronize(stream, LONG_MS));
    TK_EQ_STR(t, "window_wait_signal", last_record().operation);
    TK_EQ_INT(t, INDEX, last_record().channel);
    TK_EQ_INT(t, t->rank, last_record().failed_rank);
    TK_FAILS(t, POISONED, give(handle, t->rank, INDEX, 1));
    tk_out_of_band_barrier(t);
}

/* --- poison, resets, lost peers ------------------------------------------------- */

TK_TEST(window, poison_and_reset, "SM-COUNT-08,SM-COUNT-10", WINDOWS, .ranks = {2, 4}) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    for (int i = 0; i < 2; i++) {
        const int32_t failing = i == 0 ? t->last : 0;
        TK_OK(t, give(handle, t->next, INDEX, 5));
        TK_OK(t, take(handle, t->previous, INDEX, 2, LONG_MS)); /* three stay */
        tk_out_of_band_barrier(t);
        if (t->rank == failing) {
            for (int32_t r = 0; r < t->world_size; r++)
                if (r != failing)
                    (void)await_shared(t, r, INSIDE, (uint64_t)i + 1);
            tk_sleep_ms(30);
            poison_own(t, handle, 9);
            TK_FAILS(t, POISONED, give(handle, t->rank, INDEX, 1));
            TK_FAILS(t, POISONED, take(handle, t->previous, INDEX, 1, 0));
        } else {
            tk_share_u64(t, INSIDE, (uint64_t)i + 1);
            TK_FAILS(t, POISONED, take(handle, failing, INDEX, 100, 0));
            TK_EQ_INT(t, failing, last_record().failed_rank);
        }
        TK_OK(t, symmem_handle_reset(handle, LONG_MS));
        TK_OK(t, take_nothing_left(t, handle));
    }
}

TK_TEST(window, lost_peer, "SM-COUNT-08", WINDOWS, .ranks = {2, 4}, .flags = DEATH,
        .timeout_s = 30) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    const int32_t victim = t->last;
    tk_expect_death(t, victim);
    tk_out_of_band_barrier(t);
    if (t->rank == victim) {
        for (int32_t r = 0; r < victim; r++)
            TK_OK(t, give(handle, r, INDEX, 3));
        for (int32_t r = 0; r < victim; r++)
            (void)await_shared(t, r, INSIDE, 1);
        tk_sleep_ms(30);
        tk_kill_self(t);
    }
    tk_share_u64(t, INSIDE, 1);
    TK_CHECK(t, tk_wait_death(t, victim, 5000));
    TK_OK(t, take(handle, victim, INDEX, 2, 1000)); /* given before its end */
    const uint64_t begin_ms = tk_now_ms();
    TK_FAILS(t, PEER_LOST, take(handle, victim, INDEX, 2, 0));
    tk_expect_prompt(t, victim, begin_ms, tk_now_ms());
    TK_EQ_INT(t, victim, last_record().failed_rank);
    TK_EQ_STR(t, "window_wait_signal", last_record().operation);
    work_after_loss(t, NULL, victim, 1, NULL);
}

/* --- bytes that cannot be written ----------------------------------------------- */

static void change_copy(flat_backend *table);
static _Thread_local bool refuses; /* this rank's copies fail before they do anything */
static struct table_twin twin = {.name = "suite_no_window_copy", .change = change_copy};

static symmem_status copy_or_refuse(void *instance, int32_t device, void *dst, const void *src,
                                    size_t bytes, const symmem_exec *exec) {
    return refuses ? SYMMEM_LIMIT : twin.real->copy->copy(instance, device, dst, src, bytes, exec);
}

static void change_copy(flat_backend *table) {
    table->copy = copy_or_refuse;
}

TK_TEST(window, no_signal_without_the_bytes, "SM-COUNT-14",
        .needs = SYMMEM_CAP_WINDOW | SYMMEM_CAP_DIRECT_ACCESS, .max_ranks = 2,
        .flags = TK_NO_BACKEND) {
    use_twin(t, &twin);
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    const uint32_t word = 5;
    refuses = true;
    TK_FAILS(t, LIMIT,
             symmem_window_put_signal(handle, t->next, 0, &word, 4, INDEX, LONG_MS, NULL));
    TK_EQ_STR(t, "window_put_signal", last_record().operation);
    refuses = false;
    tk_out_of_band_barrier(t);
    tk_expect_bytes(t, handle, t->rank, 0, 64, 0);
    TK_OK(t, take_nothing_left(t, handle));
}
