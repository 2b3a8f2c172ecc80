/* SPDX-License-Identifier: BSD-3-Clause */
/* Rendezvous with a rank that fails at a step, comes late, or does not come. */
#include "case_help.h"

#define INJECTED SYMMEM_LIMIT /* the status that the failpoints return */
#define SLOT_HIT 3
#define SLOT_GOOD 4

/* --- a failure at each failpoint, on each rank -------------------------------------- */

/* A rendezvous on a fresh group with `odd` failing at `point`; then one that must work. False on
 * every rank if a rank saw another outcome than it should. */
static bool fail_at(struct tk *t, const char *point, int32_t odd, int number) {
    char name[SYMMEM_NAME_MAX];
    int32_t ranks[4] = {0, 1, 2, 3};
    symmem_handle *handle = NULL;
    TK_REQUIRE(t, t->world_size <= 4);
    snprintf(name, sizeof(name), "fault.%d.%d", number, (int)odd);
    symmem_group *group = tk_group(t, name, ranks, t->world_size);
    void *ptr = tk_alloc(t, 512);
    tk_checkpoint(t, "rank %d fails at %s", (int)odd, point);
    int before = tk_point_count(t, point);
    if (t->rank == odd) {
        tk_on_point(t, point, 1, (struct tk_action){.status = INJECTED});
        before = 0;
    }
    tk_out_of_band_barrier(t);
    symmem_clear_error();
    uint64_t begin_ms = tk_now_ms();
    symmem_status status = symmem_rendezvous(t->context, ptr, group, tk_limit_ms(t, 3000), &handle);
    uint64_t took_ms = tk_now_ms() - begin_ms;
    symmem_error_record record = last_record();
    tk_share_u64(t, SLOT_HIT, tk_point_count(t, point) > before);
    tk_out_of_band_barrier(t);
    bool hit = tk_read_u64(t, odd, SLOT_HIT) != 0;
    bool essential = strncmp(point, "rendezvous.", 11) == 0;
    TK_CHECK_MSG(t, hit || !essential, "%s is never passed", point);
    bool good =
        TK_CHECK_MSG(t, status == (hit ? INJECTED : SYMMEM_OK), "rank %d at %s: the status is %s",
                     (int)odd, point, symmem_status_name(status));
    TK_CHECK_MSG(t, !hit || record.failed_rank == odd, "rank %d at %s: rank %d is blamed", (int)odd,
                 point, (int)record.failed_rank);
    if (hit && t->rank == odd)
        TK_EQ_STR(t, point, record.stage);
    TK_CHECK(t, (handle == NULL) == (status != SYMMEM_OK));
    TK_TOOK(t, 3500, begin_ms, begin_ms + took_ms);
    symmem_handle_release(handle);
    handle = tk_rendezvous(t, ptr, group);
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    ring_signal(t, handle, 0);
    tk_release(t, handle);
    tk_free(t, ptr);
    tk_group_destroy(t, group);
    return tk_all_agree(t, SLOT_GOOD, good);
}

/* A point that has gone wrong on one rank is not tried on the others: that may cost a limit each.
 */
static void fail_at_each(struct tk *t, const char *const *points, int count) {
    int32_t step = t->world_size > 2 ? t->last : 1;
    for (int i = 0; i < count; i++) {
        bool good = true;
        /* The first rank and the last; the walks take any. */
        for (int32_t odd = 0; good && odd < t->world_size; odd += step)
            good = fail_at(t, points[i], odd, i);
    }
}

#define FAIL_AT_EACH(name, ...)                                                                    \
    TK_TEST(rendezvous, name, "SM-RDV-10,SM-CONTEXT-09", .ranks = {2, 4}, .timeout_s = 60) {       \
        static const char *const points[] = {__VA_ARGS__};                                         \
        fail_at_each(t, points, (int)(TK_COUNT(points)));                                          \
    }

FAIL_AT_EACH(failure_in_agreement, "rendezvous.begin", "rendezvous.metadata.before",
             "rendezvous.metadata.after", "rendezvous.descriptors.before",
             "rendezvous.descriptors.after")
FAIL_AT_EACH(failure_in_mapping, "rendezvous.map.before", "rendezvous.map.after",
             "rendezvous.commit.before")
FAIL_AT_EACH(failure_in_session, "session.join.before", "session.join.published")
FAIL_AT_EACH(failure_in_exchange, "exchange.publish.before")
FAIL_AT_EACH(failure_in_descriptors, "ipc.send.before", "ipc.send.after", "ipc.recv.after")

/* --- late and absent ranks -------------------------------------------------------------------- */

TK_TEST(rendezvous, absent_rank_is_named, "SM-RDV-11", .min_ranks = 2, .timeout_s = 60) {
    void *ptr = tk_alloc(t, 256);
    symmem_group *group = tk_world_group(t);
    for (int i = t->world_size > 4; i < 2; i++) { /* withheld.* takes each */
        int32_t absent = i == 0 ? 0 : 1 + (int32_t)(t->seed % (uint64_t)(t->last));
        symmem_handle *handle = NULL;
        uint32_t limit_ms = t->world_size <= 8 ? 250 : 2500;
        tk_out_of_band_barrier(t);
        if (t->rank != absent) {
            uint64_t begin_ms = tk_now_ms();
            TK_FAILS(t, TIMEOUT, symmem_rendezvous(t->context, ptr, group, limit_ms, &handle));
            uint64_t took_ms = tk_now_ms() - begin_ms;
            symmem_error_record record = last_record();
            TK_CHECK(t, handle == NULL);
            TK_CHECK_MSG(t, symmem_error_is_missing(&record, absent), "rank %d is not named",
                         (int)absent);
            TK_AT_LEAST(t, limit_ms / 2, took_ms + 5);
            TK_TOOK(t, limit_ms + 3000, begin_ms, begin_ms + took_ms);
        }
        tk_out_of_band_barrier(t);
        handle = tk_rendezvous(t, ptr, group);
        TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
        tk_release(t, handle);
        tk_free(t, ptr);
        ptr = tk_alloc(t, 256);
    }
}

/* A group of its own where not even the session exists yet. */
TK_TEST(rendezvous, absent_rank_of_a_new_group, "SM-RDV-11", .ranks = {2, 4}, .timeout_s = 60) {
    for (int i = 0; i < 2; i++) {
        int32_t absent = i == 0 ? 0 : 1 + (int32_t)(t->seed % (uint64_t)(t->last));
        char name[SYMMEM_NAME_MAX];
        int32_t ranks[4] = {0, 1, 2, 3};
        symmem_handle *handle = NULL;
        snprintf(name, sizeof(name), "new.%d", (int)absent);
        symmem_group *group = tk_group(t, name, ranks, t->world_size);
        void *ptr = tk_alloc(t, 256);
        tk_out_of_band_barrier(t);
        if (t->rank != absent) {
            TK_FAILS(t, TIMEOUT, symmem_rendezvous(t->context, ptr, group, 200, &handle));
            symmem_error_record record = last_record();
            TK_CHECK(t, symmem_error_is_missing(&record, absent));
        }
        tk_out_of_band_barrier(t);
        handle = tk_rendezvous(t, ptr, group);
        TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    }
}

TK_TEST(rendezvous, late_rank_is_waited_for, "SM-RDV-12", .min_ranks = 2) {
    for (int i = 0; i < held_count(t->world_size); i++) {
        int32_t late = held_rank(t->world_size, i);
        void *ptr = tk_alloc(t, 256);
        uint64_t round = (uint64_t)i + 1;
        if (t->rank == late) {
            check_others_held(t, NULL, t->world_size, round);
            tk_sleep_ms(60);
        } else {
            show_entered(t, round);
        }
        symmem_handle *handle = tk_rendezvous(t, ptr, tk_world_group(t));
        show_passed(t, round);
        TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
        tk_release(t, handle);
    }
}

/* A rank that is slow at any step does no harm. */
TK_TEST(rendezvous, slow_steps_do_no_harm, "SM-RDV-12,SM-RDV-10", .ranks = {2, 4},
        .timeout_s = 60) {
    static const char *const points[] = {"session.join.published", "exchange.publish.before",
                                         "exchange.wait.before",   "rendezvous.metadata.after",
                                         "rendezvous.map.before",  "rendezvous.commit.before",
                                         "rendezvous.commit.after"};
    for (int i = 0; i < 7; i++)
        if (t->rank == i % t->world_size)
            tk_on_point(t, points[i], 1, (struct tk_action){.delay_ms = 30});
    for (int i = 0; i < 3; i++) {
        symmem_handle *handle = tk_handle(t, 256, tk_world_group(t));
        tk_expect_bytes(t, handle, t->next, 0, 1, 0);
        ring_signal(t, handle, 0);
        TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    }
}

/*
 * A signal put as soon as the peer's rendezvous returned, while this rank is still inside its own:
 * zeroing must be over before any peer can write.
 */
TK_TEST(rendezvous, early_signal_is_not_lost, "SM-RDV-13", .ranks = {2, 4}, .timeout_s = 60) {
    static const char *const points[] = {"rendezvous.map.before", "rendezvous.map.after",
                                         "rendezvous.commit.before", "rendezvous.commit.after"};
    for (int i = 0; i < 4; i++)
        for (int32_t slow = 0; slow < t->world_size; slow++) {
            void *ptr = tk_alloc(t, 4096);
            uint8_t data[64];
            uint8_t zero[4032] = {0};
            memset(data, 0xB0 + i, sizeof(data));
            if (t->rank == slow)
                tk_on_point(t, points[i], 1, (struct tk_action){.delay_ms = 15});
            tk_out_of_band_barrier(t);
            symmem_handle *handle = tk_rendezvous(t, ptr, tk_world_group(t));
            TK_OK(t, symmem_put(handle, t->next, 0, data, sizeof(data), NULL));
            TK_OK(t, symmem_put_signal(handle, t->next, 0, LONG_MS, NULL));
            TK_OK(t, symmem_wait_signal(handle, t->previous, 0, tk_limit_ms(t, 5000), NULL));
            tk_expect_data(t, handle, t->rank, 0, data, sizeof(data));
            tk_expect_data(t, handle, t->rank, 64, zero, sizeof(zero));
            tk_release(t, handle);
            tk_out_of_band_barrier(t);
            tk_free(t, ptr);
        }
}

/* --- Rendezvous: everything on which ranks can disagree, and overlapping devices -------------- */

/* --- pointers --------------------------------------------------------------------------------- */

/* What one rank passes in place of its block. */
enum odd_pointer { ODD_LOCAL = 0, ODD_NULL, ODD_FREED, ODD_END, ODD_COUNT };

static void wrong_pointer_of(struct tk *t, int32_t odd, enum odd_pointer kind, void *ptr) {
    char local[8];
    symmem_handle *handle = NULL;
    void *passed = ptr;
    if (t->rank == odd) {
        void *freed = tk_alloc(t, 4096);
        tk_free(t, freed);
        void *const wrong[ODD_COUNT] = {local, NULL, freed, (char *)ptr + 4096};
        passed = wrong[kind];
    }
    TK_FAILS(t, NOT_SYMMETRIC,
             symmem_rendezvous(t->context, passed, tk_world_group(t), LONG_MS, &handle));
    TK_CHECK(t, handle == NULL);
    symmem_error_record record = last_record();
    TK_EQ_INT(t, SYMMEM_NOT_SYMMETRIC, record.status);
    TK_EQ_INT(t, odd, record.failed_rank);
    TK_EQ_STR(t, "rendezvous", record.operation);
}

TK_TEST(rendezvous, foreign_pointer_fails_everywhere, "SM-RDV-05", .ranks = {2, 5}) {
    void *ptr = tk_alloc(t, 4096);
    for (int i = 0; i < held_count(t->world_size); i++)
        for (int kind = 0; kind < ODD_COUNT; kind++)
            wrong_pointer_of(t, held_rank(t->world_size, i), (enum odd_pointer)kind, ptr);
    symmem_handle *handle = tk_rendezvous(t, ptr, tk_world_group(t));
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
}

/* --- sizes, pads, ids ------------------------------------------------------------------------- */

/* MISMATCH on every rank, naming the odd one. */
static void expect_mismatch(struct tk *t, void *ptr, int32_t odd) {
    symmem_handle *handle = NULL;
    TK_FAILS(t, MISMATCH, symmem_rendezvous(t->context, ptr, tk_world_group(t), LONG_MS, &handle));
    TK_CHECK(t, handle == NULL);
    symmem_error_record record = last_record();
    TK_EQ_INT(t, SYMMEM_MISMATCH, record.status);
    /* With two ranks either may be called the odd one; with more it is rank 0's that counts. */
    TK_CHECK_MSG(t, t->world_size == 2 || odd == 0 || record.failed_rank == odd,
                 "rank %d is blamed, not %d", (int)record.failed_rank, (int)odd);
}

TK_TEST(rendezvous, size_mismatch_at_each_rank, "SM-RDV-06", .ranks = {2, 16}) {
    for (int i = 0; i < held_count(t->world_size); i++) {
        int32_t odd = held_rank(t->world_size, i);
        size_t bytes = t->rank == odd ? 4097 : 4096;
        void *ptr = tk_alloc(t, bytes);
        expect_mismatch(t, ptr, odd);
        symmem_error_record record = last_record();
        TK_CHECK_MSG(t,
                     (record.expected == 4096 && record.actual == 4097) ||
                         (record.expected == 4097 && record.actual == 4096),
                     "the record has sizes %llu and %llu", (unsigned long long)record.expected,
                     (unsigned long long)record.actual);
        tk_free(t, ptr);
        symmem_handle *handle = tk_handle(t, 4096, tk_world_group(t));
        TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    }
}

/* What each rank wrote at both ends of its own memory is what its peers read there. */
static void expect_own_memory(struct tk *t, symmem_handle *handle, size_t bytes) {
    const uint32_t own = word_of(t->rank, 60, 0);
    tk_write(t, handle, t->rank, 0, &own, sizeof(own));
    tk_write(t, handle, t->rank, bytes - sizeof(own), &own, sizeof(own));
    tk_out_of_band_barrier(t);
    for (int32_t peer = 0; peer < t->world_size; peer++) {
        const uint32_t theirs = word_of(peer, 60, 0);
        tk_expect_data(t, handle, peer, 0, &theirs, sizeof(theirs));
        tk_expect_data(t, handle, peer, bytes - sizeof(theirs), &theirs, sizeof(theirs));
    }
    tk_out_of_band_barrier(t);
}

/* An engine that takes sizes which differ may give later memory another place on each rank, and
 * then reach a peer's where its own is. The block is larger than the difference, so that it does
 * not fit in a gap. */
TK_TEST(rendezvous, equal_sizes_beside_unequal, "SM-RDV-60", .ranks = {2, 16},
        .flags = TK_PLAIN_MEMORY) {
    enum { SMALL = 4096, LARGE = 64 * 4096, EQUAL = 128 * 4096 };
    void *unequal[8];
    int count = held_count(t->world_size);
    for (int i = 0; i < count; i++) {
        int32_t odd = held_rank(t->world_size, i);
        unequal[i] = tk_alloc(t, t->rank == odd ? LARGE : SMALL);
        expect_mismatch(t, unequal[i], odd);
        expect_own_memory(t, tk_handle(t, EQUAL, tk_world_group(t)), EQUAL);
    }
    for (int i = 0; i < count; i++)
        tk_free(t, unequal[i]);
    expect_own_memory(t, tk_handle(t, EQUAL, tk_world_group(t)), EQUAL);
}

/* Rank 0 has allocated once more before, and comes with the wrong one. */
TK_TEST(rendezvous, mismatch_names_both_allocations, "SM-RDV-23", .ranks = {2, 4}) {
    char first[64], second[64];
    symmem_alloc_info info;
    void *small = tk_alloc(t, 4096), *large = tk_alloc(t, 8192);
    TK_REQUIRE_OK(t, symmem_alloc_query(t->context, small, &info));
    snprintf(first, sizeof first, "rank 0 came with its allocation %llu",
             (unsigned long long)info.ordinal + 1);
    snprintf(second, sizeof second, "rank 1 with its %llu", (unsigned long long)info.ordinal);
    expect_mismatch(t, t->rank == 0 ? large : small, 0);
    TK_SAYS(t, first);
    TK_SAYS(t, second);
}

/* Sizes in the same page count, or that differ in the upper half of the word, count as well. */
TK_TEST(rendezvous, any_difference_counts, "SM-RDV-06", .ranks = {2, 4}) {
    const size_t sizes[3][2] = {{1, 2}, {65536, 65537}, {256, 512}};
    for (int i = 0; i < 3; i++) {
        int32_t odd = t->last;
        void *ptr = tk_alloc(t, sizes[i][t->rank == odd]);
        expect_mismatch(t, ptr, odd);
    }
}

TK_PORTED(test_signal_pad_size_disagreement_raises_everywhere, "SM-RDV-07,SM-ALLOC-10",
          .ranks = {2, 5}) {
    size_t original = 0;
    TK_OK(t, symmem_get_signal_pad_size(t->context, &original));
    TK_OK(t, symmem_set_signal_pad_size(t->context, original + 4096 * (size_t)t->rank));
    void *ptr = tk_alloc(t, 256);
    TK_OK(t, symmem_set_signal_pad_size(t->context, 0));
    expect_mismatch(t, ptr, 0);
    symmem_error_record record = last_record();
    TK_EQ_SIZE(t, original, record.expected);
    TK_EQ_SIZE(t, original + 4096, record.actual);
    symmem_handle *handle = tk_handle(t, 256, tk_world_group(t));
    TK_EQ_SIZE(t, original, info_of(t, handle).signal_pad_size);
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    /* One rank alone, each once. */
    for (int32_t odd = 0; odd < t->world_size; odd++) {
        TK_OK(t, symmem_set_signal_pad_size(t->context, t->rank == odd ? original + 4 : 0));
        void *other = tk_alloc(t, 256);
        TK_OK(t, symmem_set_signal_pad_size(t->context, 0));
        expect_mismatch(t, other, odd);
    }
}

/* Room for one channel of the group, and one word less. */
TK_TEST(rendezvous, signal_pad_too_small, "SM-RDV-08,SM-HANDLE-04", .max_ranks = 8) {
    size_t enough = 4 * (size_t)t->world_size;
    symmem_handle *handle = NULL;
    if (enough > 4) { /* a pad of 0 bytes cannot be asked for: 0 means the default */
        TK_OK(t, symmem_set_signal_pad_size(t->context, enough - 4));
        void *small = tk_alloc(t, 256);
        TK_FAILS(t, OUT_OF_RANGE,
                 symmem_rendezvous(t->context, small, tk_world_group(t), LONG_MS, &handle));
        TK_CHECK(t, handle == NULL);
    }
    TK_OK(t, symmem_set_signal_pad_size(t->context, enough));
    handle = tk_handle(t, 256, tk_world_group(t));
    TK_EQ_INT(t, 1, info_of(t, handle).channel_count);
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    ring_signal(t, handle, 0);
    TK_FAILS(t, OUT_OF_RANGE, symmem_barrier(handle, 1, 50, NULL));
    TK_OK(t, symmem_set_signal_pad_size(t->context, 0));
}

TK_TEST(rendezvous, persistent_id_mismatch, "SM-RDV-15", .ranks = {2, 4}) {
    for (int32_t odd = 0; odd < t->world_size; odd++) {
        symmem_alloc_options options;
        void *ptr = NULL;
        symmem_alloc_options_init(&options);
        options.alloc_id = t->rank == odd ? 900u + (uint64_t)odd : 100u + (uint64_t)odd;
        TK_REQUIRE_OK(t, symmem_alloc(t->context, 256, -1, &options, &ptr));
        expect_mismatch(t, ptr, odd);
        TK_OK(t, symmem_free(t->context, ptr));
    }
    symmem_handle *handle = tk_handle(t, 256, tk_world_group(t));
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
}

/* --- overlapping devices ---------------------------------------------------------------------- */

TK_TEST(rendezvous, overlap_is_refused, "SM-RDV-09", .needs = SYMMEM_CAP_OVERLAP, .ranks = {2, 4}) {
    void *ptr = NULL;
    TK_REQUIRE_OK(t, symmem_alloc(t->context, 256, 0, NULL, &ptr));
    /* -1: allowed nowhere; else nowhere but on all ranks other than that one */
    for (int32_t strict = -1; strict < t->world_size; strict++) {
        symmem_handle *handle = NULL;
        bool allow = strict >= 0 && t->rank != strict;
        TK_OK(t, symmem_set_allow_overlapping_devices(t->context, allow));
        TK_FAILS(t, OVERLAP,
                 symmem_rendezvous(t->context, ptr, tk_world_group(t), LONG_MS, &handle));
        TK_CHECK(t, handle == NULL);
    }
    TK_OK(t, symmem_set_allow_overlapping_devices(t->context, 1));
    symmem_handle *handle = tk_rendezvous(t, ptr, tk_world_group(t));
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    tk_release(t, handle);
    TK_OK(t, symmem_free(t->context, ptr));
}

static void use_overlapping_handle(struct tk *t) {
    void *ptr = NULL;
    TK_REQUIRE_OK(t, symmem_alloc(t->context, 256, 0, NULL, &ptr));
    symmem_handle *handle = tk_rendezvous(t, ptr, tk_world_group(t));
    symmem_handle_info info = info_of(t, handle);
    TK_EQ_INT(t, t->rank, info.rank);
    TK_EQ_INT(t, t->world_size, info.world_size);
    TK_EQ_INT(t, 0, info.device);
    void *const *buffers = buffers_of(t, handle);
    TK_EQ_PTR(t, ptr, buffers[t->rank]);
    tk_fill(t, handle, t->next, 0, 256, (uint8_t)(t->rank + 1));
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    tk_expect_bytes(t, handle, t->rank, 0, 256, (uint8_t)(t->previous + 1));
    ring_signal(t, handle, 0);
    tk_release(t, handle);
    TK_OK(t, symmem_free(t->context, ptr));
}

/* The variable is read at each rendezvous, not once. */
TK_PORTED(test_allow_overlapping_devices, "SM-RDV-09", .needs = SYMMEM_CAP_OVERLAP, .ranks = {2, 4},
          .flags = TK_PROCESS_ONLY | TK_SETS_ENVIRONMENT /* threads share their environment */) {
    const char *const name = "TORCH_SYMM_MEM_ALLOW_OVERLAPPING_DEVICES";
    TK_REQUIRE(t, unsetenv("SYMMEM_ALLOW_OVERLAPPING_DEVICES") == 0 && setenv(name, "0", 1) == 0);
    TK_REINIT(t, options.allow_overlapping_devices = -1);
    TK_REQUIRE(t, setenv(name, "1", 1) == 0);
    use_overlapping_handle(t);
    TK_REQUIRE(t, setenv(name, "0", 1) == 0);
    void *ptr = NULL;
    symmem_handle *none = NULL;
    TK_REQUIRE_OK(t, symmem_alloc(t->context, 256, 0, NULL, &ptr));
    TK_FAILS(t, OVERLAP, symmem_rendezvous(t->context, ptr, tk_world_group(t), LONG_MS, &none));
    TK_OK(t, symmem_free(t->context, ptr));
}

TK_TEST(rendezvous, overlapping_devices_work, "SM-RDV-09", .needs = SYMMEM_CAP_OVERLAP,
        .max_ranks = 4) {
    TK_OK(t, symmem_set_allow_overlapping_devices(t->context, 1));
    use_overlapping_handle(t);
}
