/* SPDX-License-Identifier: BSD-3-Clause */
/* Data with a signal: the one is never there without the other. */
#include "backend_table.h"
#include "case_help.h"
#include "timeout_help.h"

#define CHANNEL 2
#define ROOM 9000

static const size_t sizes[] = {1, 3, 4, 64, 1000, 4096, 8191};

/* --- what comes with the signal ------------------------------------------------- */

/* To the next rank and from the one before, each time with other bytes. */
static void hand_on(struct tk *t, symmem_handle *handle, symmem_stream *stream) {
    const symmem_handle_info info = info_of(t, handle);
    const int32_t next = (info.rank + 1) % info.world_size;
    const int32_t previous = (info.rank + info.world_size - 1) % info.world_size;
    uint8_t *sent = tk_scratch(t, ROOM), *expected = tk_scratch(t, ROOM);
    uint8_t *got = tk_scratch(t, ROOM);
    for (size_t i = 0; i < TK_COUNT(sizes) && !tk_failed(t); i++) {
        const size_t at = 7 * i;
        memset(sent, (int)(16 * i) + info.rank + 1, sizes[i]);
        memset(expected, (int)(16 * i) + previous + 1, sizes[i]);
        TK_OK(t,
              symmem_put_with_signal(handle, next, at, sent, sizes[i], CHANNEL, LONG_MS, stream));
        TK_OK(t, symmem_wait_signal(handle, previous, CHANNEL, LONG_MS, stream));
        TK_OK(t, symmem_get(handle, info.rank, at, got, sizes[i], stream));
        tk_synchronize(t, stream);
        TK_CHECK_MSG(t, memcmp(expected, got, sizes[i]) == 0, "%zu bytes at %zu", sizes[i], at);
        TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    }
}

TEST_WITH_AND_WITHOUT_STREAM(put_with_signal, bytes_are_there, "SM-PUTSIG-01,SM-PUTSIG-07", 0,
                             .max_ranks = 4) {
    hand_on(t, tk_handle(t, ROOM, tk_world_group(t)), stream);
}

ON_EACH_SHAPE(put_with_signal, ranks_are_group_ranks, "SM-PUTSIG-01", .max_ranks = 5) {
    symmem_handle *handle = tk_handle(t, ROOM, group);
    hand_on(t, handle, NULL);
    tk_release(t, handle);
}

/* The CPU's own loads after the wait: the race detector sees them. */
TK_TEST(put_with_signal, orders_plain_memory, "SM-PUTSIG-01",
        .needs = SYMMEM_CAP_HOST_ACCESS | SYMMEM_CAP_DIRECT_ACCESS, .ranks = {2, 4},
        .flags = TK_PLAIN_MEMORY) {
    enum { WORDS = 512, ROUNDS = 100 };
    symmem_handle *handle = tk_handle(t, WORDS * 4, tk_world_group(t));
    const uint32_t *here = buffers_of(t, handle)[t->rank];
    uint32_t *words = tk_scratch(t, WORDS * 4);
    for (uint32_t g = 1; g <= ROUNDS && !tk_failed(t); g++) {
        fill_words(words, WORDS, t->rank, g);
        TK_OK(t,
              symmem_put_with_signal(handle, t->next, 0, words, WORDS * 4, CHANNEL, LONG_MS, NULL));
        TK_OK(t, symmem_wait_signal(handle, t->previous, CHANNEL, LONG_MS, NULL));
        TK_EQ_SIZE(t, WORDS, first_wrong_word(here, WORDS, t->previous, g));
        TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    }
}

/* Consumed once; a second one waits for that; put_signal's are the same. */
TK_TEST(put_with_signal, is_the_channels_signal, "SM-PUTSIG-02,SM-PUTSIG-03",
        .needs = SYMMEM_CAP_PASSIVE, .ranks = {2, 4}) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    const uint32_t words[2] = {11, 22};
    for (uint64_t round = 1; round <= 2; round++) {
        const bool second = round == 2;
        if (t->rank == 0) {
            TK_OK(t, second ? symmem_put_signal(handle, 1, CHANNEL, 1, NULL)
                            : symmem_put_with_signal(handle, 1, 0, words, 4, CHANNEL, 1, NULL));
            show_entered(t, round);
            TK_OK(t, second ? symmem_put_with_signal(handle, 1, 8, words + 1, 4, CHANNEL, LONG_MS,
                                                     NULL)
                            : symmem_put_signal(handle, 1, CHANNEL, LONG_MS, NULL));
            show_passed(t, round);
        }
        if (t->rank == 1) {
            (void)await_shared(t, 0, 0, round);
            tk_sleep_ms(15);
            TK_CHECK_MSG(t, tk_read_u64(t, 0, 1) < round, "a signal was not waited for");
            TK_OK(t, symmem_wait_signal(handle, 0, CHANNEL, LONG_MS, NULL));
            (void)await_shared(t, 0, 1, round);
            TK_OK(t, symmem_wait_signal(handle, 0, CHANNEL, LONG_MS, NULL));
            tk_expect_data(t, handle, 1, second ? 8 : 0, words + second, 4);
        }
        tk_out_of_band_barrier(t);
    }
    if (t->rank == 1)
        TK_FAILS(t, TIMEOUT, symmem_wait_signal(handle, 0, CHANNEL, 25, NULL));
}

/* --- what is refused ------------------------------------------------------------ */

TK_TEST(put_with_signal, misuse_is_refused, "SM-PUTSIG-04", .max_ranks = 3,
        .flags = TK_PLAIN_MEMORY) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    const symmem_handle_info info = info_of(t, handle);
    const int32_t bad_ranks[] = {-1, info.world_size, INT32_MAX};
    const int32_t bad_channels[] = {-1, info.channel_count, INT32_MAX};
    const int32_t me = info.rank;
    uint8_t bytes[64];
    memset(bytes, 0x77, sizeof(bytes));
#define PUT(rank_, offset_, src_, bytes_, channel_)                                                \
    symmem_put_with_signal(handle, rank_, offset_, src_, bytes_, channel_, 20, NULL)
    for (size_t i = 0; i < TK_COUNT(bad_ranks); i++) {
        TK_FAILS(t, OUT_OF_RANGE, PUT(bad_ranks[i], 0, bytes, 8, 0));
        TK_FAILS(t, OUT_OF_RANGE, PUT(me, 0, bytes, 8, bad_channels[i]));
    }
    TK_FAILS(t, OUT_OF_RANGE, PUT(me, 57, bytes, 8, CHANNEL));
    TK_FAILS(t, OUT_OF_RANGE, PUT(me, 65, bytes, 0, CHANNEL));
    TK_FAILS(t, OVERFLOW, PUT(me, SIZE_MAX, bytes, 8, CHANNEL));
    TK_FAILS(t, INVALID_ARGUMENT, PUT(me, 0, NULL, 8, CHANNEL));
    TK_FAILS(t, INVALID_ARGUMENT, symmem_put_with_signal(NULL, 0, 0, bytes, 8, 0, 20, NULL));
    tk_expect_bytes(t, handle, me, 0, 64, 0);
    TK_CHECK(t, !info_of(t, handle).poisoned);
    TK_OK(t, PUT(me, 64, NULL, 0, CHANNEL)); /* the signal alone */
    TK_OK(t, symmem_wait_signal(handle, me, CHANNEL, LONG_MS, NULL));
    TK_FAILS(t, TIMEOUT, symmem_wait_signal(handle, me, CHANNEL, 20, NULL));
#undef PUT
}

/* --- bytes that cannot be written ----------------------------------------------- */

static void change_copy(flat_backend *table);
static _Thread_local bool refuses; /* this rank's copies fail before they do anything */
static struct table_twin twin = {.name = "suite_no_copy", .change = change_copy};

static symmem_status copy_or_refuse(void *instance, int32_t device, void *dst, const void *src,
                                    size_t bytes, const symmem_exec *exec) {
    return refuses ? SYMMEM_LIMIT : twin.real->copy->copy(instance, device, dst, src, bytes, exec);
}

static void change_copy(flat_backend *table) {
    table->copy = copy_or_refuse;
}

/* The call fails, and there is no signal. */
TK_TEST(put_with_signal, no_signal_without_the_bytes, "SM-PUTSIG-05",
        .needs = SYMMEM_CAP_DIRECT_ACCESS, .max_ranks = 2, .flags = TK_NO_BACKEND) {
    use_twin(t, &twin);
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    symmem_stream *stream = (t->capabilities & SYMMEM_CAP_STREAMS) != 0 ? tk_stream(t) : NULL;
    const uint32_t word = 5;
    refuses = true;
    TK_FAILS(t, LIMIT, symmem_put_with_signal(handle, t->next, 0, &word, 4, 0, LONG_MS, NULL));
    TK_EQ_STR(t, "put_with_signal", last_record().operation);
    TK_EQ_STR(t, "copy", last_record().stage);
    TK_FAILS(t, LIMIT, symmem_put_with_signal(handle, t->next, 0, &word, 4, 1, LONG_MS, stream));
    refuses = false;
    tk_out_of_band_barrier(t);
    for (int32_t channel = 0; channel < 2; channel++) {
        TK_OK(t, symmem_put_signal(handle, t->next, channel, 1000, stream));
        TK_OK(t, symmem_wait_signal(handle, t->previous, channel, LONG_MS, stream));
    }
    tk_synchronize(t, stream);
    tk_expect_bytes(t, handle, t->rank, 0, 64, 0);
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
}

/* On the emulation a copy of a stream can be made to fail when it runs. */
static void copy_fails_later(struct tk *t) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    symmem_stream *stream = tk_stream(t);
    const uint32_t word = 5;
    TK_OK(t, symmem_stream_begin_capture(stream));
    if (t->rank == 0)
        TK_OK(t, symmem_put_with_signal(handle, t->last, 0, &word, 4, 0, LONG_MS, stream));
    symmem_graph *graph = tk_end_capture(t, stream);
    if (t->rank == 0) {
        tk_on_point(t, "shm.copy", 1, (struct tk_action){.status = SYMMEM_LIMIT});
        TK_OK(t, symmem_graph_launch(graph, stream));
        TK_FAILS(t, LIMIT, symmem_stream_synchronize(stream, LONG_MS));
        TK_CHECK(t, info_of(t, handle).poisoned);
        tk_forget_points(t);
    } else if (t->rank == t->last) {
        TK_FAILS(t, POISONED, symmem_wait_signal(handle, 0, 0, LONG_MS, NULL));
    }
    tk_out_of_band_barrier(t);
    TK_OK(t, symmem_handle_reset(handle, LONG_MS));
    tk_expect_bytes(t, handle, t->rank, 0, 64, 0);
    if (t->rank == t->last)
        TK_FAILS(t, TIMEOUT, symmem_wait_signal(handle, 0, 0, 25, NULL));
    tk_out_of_band_barrier(t);
}

TK_TEST(put_with_signal, no_signal_where_the_copy_fails_later, "SM-PUTSIG-05",
        .needs = SYMMEM_CAP_STREAMS | SYMMEM_CAP_CAPTURE, .ranks = {2, 3}) {
    if (!is_emulation(t)) {
        TK_CHECK(t, true); /* no other backend's copies can be made to fail on a stream */
        return;
    }
    copy_fails_later(t);
}

/* --- ends ----------------------------------------------------------------------- */

TK_TEST(put_with_signal, ends_as_a_signal_does, "SM-PUTSIG-06", .ranks = {2, 3}) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    const uint32_t word = 5, limit_ms = 50;
    if (t->rank == 0) {
        TK_OK(t, symmem_put_signal(handle, t->last, CHANNEL, LONG_MS, NULL));
        const uint64_t begin_ms = tk_now_ms();
        TK_FAILS(t, TIMEOUT,
                 symmem_put_with_signal(handle, t->last, 0, &word, 4, CHANNEL, limit_ms, NULL));
        TK_WITHIN(t, limit_ms + allowed_excess_ms(limit_ms), begin_ms);
        const symmem_error_record record = last_record();
        TK_EQ_STR(t, "put_with_signal", record.operation);
        TK_EQ_INT(t, CHANNEL, record.channel);
        check_missing_one(t, &record, t->last, t->world_size);
        TK_FAILS(t, POISONED, symmem_put_with_signal(handle, t->last, 0, &word, 4, 0, 0, NULL));
    }
    tk_out_of_band_barrier(t);
    TK_OK(t, symmem_handle_reset(handle, LONG_MS));
    hand_on(t, tk_handle(t, ROOM, tk_world_group(t)), NULL);
}

TK_TEST(put_with_signal, lost_peer, "SM-PUTSIG-06,SM-TIMEOUT-08", .ranks = {2, 3},
        .flags = TK_PROCESS_ONLY | TK_MAY_DIE | TK_MAY_LEAK, .timeout_s = 30) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    const int32_t victim = t->last;
    const uint32_t word = 5;
    tk_expect_death(t, victim);
    if (t->rank != victim)
        TK_OK(t, symmem_put_with_signal(handle, victim, 4 * (size_t)t->rank, &word, 4, CHANNEL,
                                        LONG_MS, NULL));
    tk_out_of_band_barrier(t);
    if (t->rank == victim)
        tk_kill_self(t);
    const uint64_t begin_ms = tk_now_ms();
    TK_FAILS(
        t, PEER_LOST,
        symmem_put_with_signal(handle, victim, 4 * (size_t)t->rank, &word, 4, CHANNEL, 0, NULL));
    tk_expect_prompt(t, victim, begin_ms, tk_now_ms());
    TK_EQ_INT(t, victim, last_record().failed_rank);
    TK_EQ_STR(t, "put_with_signal", last_record().operation);
}

/* --- graphs --------------------------------------------------------------------- */

/* Each launch moves what the source has then. */
TK_TEST(put_with_signal, again_in_each_launch, "SM-PUTSIG-07", .needs = CAPTURE, .max_ranks = 4) {
    enum { WORDS = 64 };
    symmem_handle *handle = tk_handle(t, 4 * WORDS, tk_world_group(t));
    symmem_stream *stream = tk_stream(t);
    uint32_t *sent = tk_scratch(t, 4 * WORDS), *got = tk_scratch(t, 4 * WORDS);
    TK_OK(t, symmem_stream_begin_capture(stream));
    TK_OK(t, symmem_put_with_signal(handle, t->next, 0, sent, 4 * WORDS, CHANNEL, LONG_MS, stream));
    TK_OK(t, symmem_wait_signal(handle, t->previous, CHANNEL, LONG_MS, stream));
    TK_OK(t, symmem_get(handle, t->rank, 0, got, 4 * WORDS, stream));
    symmem_graph *graph = tk_end_capture(t, stream);
    for (uint32_t g = 1; g <= 5 && !tk_failed(t); g++) {
        fill_words(sent, WORDS, t->rank, g);
        run_graph(t, graph, stream);
        TK_EQ_SIZE(t, WORDS, first_wrong_word(got, WORDS, t->previous, g));
        TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    }
}

/* --- a backend's own entry ------------------------------------------------------ */

static _Thread_local struct { int copies, puts, with; } calls;
static void change_signals(flat_backend *table);
static void change_to_one(flat_backend *table);
static struct table_twin own_twin = {.name = "suite_put_apart", .change = change_signals};
static struct table_twin one_twin = {.name = "suite_put_with", .change = change_to_one};

/* The entries of both are the backend's. */
static const symmem_backend *real_table(void) {
    return own_twin.real != NULL ? own_twin.real : one_twin.real;
}

static symmem_status count_copies(void *instance, int32_t device, void *dst, const void *src,
                                  size_t bytes, const symmem_exec *exec) {
    calls.copies++;
    return real_table()->copy->copy(instance, device, dst, src, bytes, exec);
}

static symmem_status count_puts(void *instance, const symmem_peers *peers, int32_t dst_rank,
                                int32_t channel, const symmem_exec *exec) {
    calls.puts += 1 + 100 * (calls.copies == 0); /* the copy comes first */
    return real_table()->signal->put(instance, peers, dst_rank, channel, exec);
}

static symmem_status put_both(void *instance, const symmem_peers *peers, int32_t dst_rank,
                              int32_t channel, void *dst, const void *src, size_t bytes,
                              const symmem_exec *exec) {
    calls.with++;
    symmem_status status = real_table()->copy->copy(instance, peers->device, dst, src, bytes, exec);
    return status == SYMMEM_OK ? real_table()->signal->put(instance, peers, dst_rank, channel, exec)
                               : status;
}

static void change_signals(flat_backend *table) {
    table->copy = count_copies;
    table->put_signal = count_puts;
    table->put_with_signal = NULL;
}

static void change_to_one(flat_backend *table) {
    change_signals(table);
    table->put_with_signal = put_both;
}

static void count_calls(struct tk *t, int copies, int puts, int with) {
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    const uint32_t word = 1234 + (uint32_t)t->rank, came = 1234 + (uint32_t)t->previous;
    memset(&calls, 0, sizeof(calls));
    TK_OK(t, symmem_put_with_signal(handle, t->next, 16, &word, 4, CHANNEL, LONG_MS, NULL));
    TK_EQ_INT(t, copies, calls.copies);
    TK_EQ_INT(t, puts, calls.puts);
    TK_EQ_INT(t, with, calls.with);
    TK_OK(t, symmem_wait_signal(handle, t->previous, CHANNEL, LONG_MS, NULL));
    tk_expect_data(t, handle, t->rank, 16, &came, 4);
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
}

TK_TEST(put_with_signal, made_of_a_copy_and_a_signal, "SM-PUTSIG-08",
        .needs = SYMMEM_CAP_DIRECT_ACCESS, .max_ranks = 2, .flags = TK_NO_BACKEND) {
    use_twin(t, &own_twin);
    count_calls(t, 1, 1, 0);
}

TK_TEST(put_with_signal, by_an_entry_of_its_own, "SM-PUTSIG-08", .needs = SYMMEM_CAP_DIRECT_ACCESS,
        .max_ranks = 2, .flags = TK_NO_BACKEND) {
    use_twin(t, &one_twin);
    count_calls(t, 0, 0, 1);
}
