/* SPDX-License-Identifier: BSD-3-Clause */
/* What the kit's own functions promise, as far as no library is needed. */
#include "kit.h"

#include <sys/stat.h>

TK_TEST(kit, shares_values, "SM-SELF-04") {
    for (int round = 0; round < 20; round++) {
        tk_share_u64(t, round, (uint64_t)(t->rank * 1000 + round));
        tk_out_of_band_barrier(t);
        for (int32_t rank = 0; rank < t->world_size; rank++)
            TK_EQ_INT(t, rank * 1000 + round, tk_read_u64(t, rank, round));
        tk_out_of_band_barrier(t);
    }
}

TK_TEST(kit, try_barrier_expires, "SM-SELF-04", .min_ranks = 2, .flags = TK_NO_CONTEXT) {
    uint64_t start = tk_now_ms();
    if (t->rank == 0) {
        TK_CHECK(t, !tk_try_out_of_band_barrier(t, 200));
        TK_CHECK(t, tk_now_ms() - start >= 200);
    }
    tk_share_u64(t, 0, 1);
    while (tk_read_u64(t, 0, 0) == 0)
        tk_sleep_ms(1);
}

TK_TEST(kit, seeds_replay, "SM-SELF-04") {
    uint64_t first = tk_random(t);
    tk_share_u64(t, 0, t->seed);
    tk_share_u64(t, 1, first);
    tk_out_of_band_barrier(t);
    for (int32_t rank = 0; rank < t->world_size; rank++) {
        TK_EQ_SIZE(t, t->seed, tk_read_u64(t, rank, 0));
        TK_CHECK(t, rank == t->rank || tk_read_u64(t, rank, 1) != first);
    }
    for (int i = 0; i < 100; i++)
        TK_CHECK(t, tk_random_below(t, 7) < 7);
}

TK_TEST(kit, environment, "SM-SELF-04") {
    struct stat info;
    const char *rank = getenv("RANK");
    TK_CHECK(t, stat(t->scratch_dir, &info) == 0 && S_ISDIR(info.st_mode));
    if (t->mode == TK_MODE_PROCESS) {
        TK_REQUIRE(t, rank != NULL && getenv("WORLD_SIZE") != NULL && getenv("LOCAL_RANK") != NULL);
        TK_EQ_INT(t, t->rank, atoi(rank));
        TK_CHECK(t, tk_process_id(t, t->world_size - 1) > 1);
    } else {
        TK_CHECK(t, rank == NULL);
    }
}

TK_TEST(kit, points_count, "SM-SELF-04") {
    symmem_context_options options = tk_options(t);
    TK_REQUIRE(t, options.point != NULL && options.rank == t->rank);
    tk_on_point(t, "step", 2, (struct tk_action){.status = SYMMEM_SYSTEM});
    TK_STATUS(t, SYMMEM_OK, options.point(options.point_arg, "step"));
    TK_STATUS(t, SYMMEM_SYSTEM, options.point(options.point_arg, "step"));
    TK_STATUS(t, SYMMEM_OK, options.point(options.point_arg, "step"));
    TK_STATUS(t, SYMMEM_OK, options.point(options.point_arg, "other"));
    TK_EQ_INT(t, 3, tk_point_count(t, "step"));
    TK_EQ_INT(t, 0, tk_point_count(t, "other"));
}

TK_TEST(walk, points_are_recorded, "SM-SELF-04") {
    symmem_context_options options = tk_options(t);
    int count = 0;
    tk_record_points(t, true);
    for (int i = 0; i < 3; i++)
        TK_OK(t, options.point(options.point_arg, i == 1 ? "other" : "step"));
    tk_record_points(t, false);
    TK_OK(t, options.point(options.point_arg, "later"));
    TK_EQ_INT(t, 2, tk_recorded_points(t));
    TK_EQ_STR(t, "step", tk_recorded_point(t, 0, &count));
    TK_EQ_INT(t, 2, count);
    TK_EQ_STR(t, "other", tk_recorded_point(t, 1, &count));
    TK_EQ_INT(t, 1, count);
    tk_record_points(t, true);
    TK_EQ_INT(t, 0, tk_recorded_points(t));
    tk_on_point(t, "step", 1, (struct tk_action){.status = SYMMEM_SYSTEM});
    tk_forget_points(t);
    TK_STATUS(t, SYMMEM_OK, options.point(options.point_arg, "step"));
    if (t->rank == 0)
        tk_note(t, "a line beside the verdict");
}

static void show_and_leave(struct tk *t, void *arg) {
    tk_share_u64(t, 0, (uint64_t)(t->rank + *(int *)arg));
    tk_out_of_band_barrier(t);
    if (t->rank == 0)
        tk_leave(t);
}

static void end_at_a_point(struct tk *t, void *arg) {
    symmem_context_options options = tk_options(t);
    tk_on_point(t, "step", 1, (struct tk_action){.kill = true});
    symmem_status status = options.point(options.point_arg, "step");
    TK_CHECK_MSG(t, false, "lives on with %d", (int)status);
}

TK_TEST(walk, children_are_ranks, "SM-SELF-04", .flags = TK_PROCESS_ONLY) {
    int base = 40;
    uint64_t before_ms = tk_now_ms();
    TK_EQ_INT(t, TK_CHILD_DONE, tk_run_child(t, show_and_leave, &base, 10000));
    TK_EQ_INT(t, 40 + t->rank, tk_read_u64(t, t->rank, 0));
    TK_EQ_INT(t, TK_CHILD_KILLED, tk_run_child(t, end_at_a_point, NULL, 10000));
    TK_CHECK(t, tk_read_u64(t, t->rank, TK_DEATH_SLOT) >= before_ms);
    tk_out_of_band_barrier(t);
}

static void leave_badly(struct tk *t, void *arg) {
    _exit(*(int *)arg);
}

TK_TEST(bad, child_fails, "SM-SELF-02", .flags = TK_PROCESS_ONLY) {
    int status = 3;
    TK_EQ_INT(t, TK_CHILD_FAILED, tk_run_child(t, leave_badly, &status, 10000));
}

static void never_end(struct tk *t, void *arg) {
    for (;;)
        pause();
}

TK_TEST(bad, child_hangs, "SM-SELF-02", .flags = TK_PROCESS_ONLY) {
    TK_EQ_INT(t, TK_CHILD_HUNG, tk_run_child(t, never_end, NULL, 100));
}

static void check_in_place(struct tk *t, void *arg) {
    TK_CHECK_MSG(t, t->rank != 1, "seen in the child");
}

TK_TEST(bad, child_checks, "SM-SELF-02", .flags = TK_PROCESS_ONLY) {
    TK_EQ_INT(t, TK_CHILD_DONE, tk_run_child(t, check_in_place, NULL, 10000));
}

struct shape_log {
    int calls;
    int members;
};

static void log_shape(struct tk *t, symmem_group *group, const struct tk_shape *shape, void *arg) {
    struct shape_log *seen = arg;
    seen->calls++;
    seen->members += shape->count;
    TK_CHECK(t, group != NULL);
    TK_REQUIRE(t, shape->rank >= 0 && shape->rank < shape->count);
    TK_EQ_INT(t, t->rank, shape->ranks[shape->rank]);
}

TK_TEST(kit, visits_shapes, "SM-SELF-04") {
    struct shape_log seen = {0};
    tk_for_each_group_shape(t, log_shape, &seen);
    TK_CHECK(t, seen.calls >= 1 && seen.members >= t->world_size);
    if (t->world_size == 4 && t->rank == 2)
        TK_EQ_INT(t, 5, seen.calls); /* world, subset, reversed, both overlapping ones */
    if (t->world_size == 4 && t->rank == 0)
        TK_EQ_INT(t, 2, seen.calls);
}

static void leave_from_depth(struct tk *t) {
    TK_CHECK(t, true);
    tk_leave(t);
}

TK_TEST(kit, requires_end_the_body, "SM-SELF-04") {
    tk_alloc(t, 64); /* given back although the body is left */
    tk_use_context(t, NULL);
    leave_from_depth(t);
    TK_CHECK_MSG(t, false, "still in the body");
}

TK_TEST(kit, own_contexts, "SM-SELF-04") {
    symmem_context_options options = tk_options(t);
    symmem_context *other = NULL;
    TK_OK(t, symmem_init(&options, &other));
    tk_use_context(t, other);
    tk_free(t, tk_alloc(t, 64));
    tk_use_context(t, NULL);
    symmem_context_free(other);
    tk_alloc(t, 64);
    tk_reinit(t, &options);
    TK_CHECK(t, t->context != NULL);
    tk_end_context(t);
    TK_CHECK(t, t->context == NULL);
}

TK_TEST(kit, data_arrives, "SM-SELF-04") {
    symmem_handle *handle = tk_handle(t, 200000, tk_world_group(t));
    unsigned char bytes[16] = "0123456789abcde";
    tk_fill(t, handle, t->rank, 0, 200000, 0x5a);
    TK_CHECK(t, tk_expect_bytes(t, handle, t->rank, 0, 200000, 0x5a));
    tk_write(t, handle, t->rank, 100000, bytes, sizeof(bytes));
    TK_CHECK(t, tk_expect_data(t, handle, t->rank, 100000, bytes, sizeof(bytes)));
    TK_CHECK(t, tk_expect_bytes(t, handle, t->rank, 100016, 99984, 0x5a));
    memset(bytes, 0, sizeof(bytes));
    tk_read(t, handle, t->rank, 100000, bytes, sizeof(bytes));
    TK_EQ_STR(t, "0123456789abcde", (const char *)bytes);
}

TK_TEST(bad, data_differs, "SM-SELF-02") {
    symmem_handle *handle = tk_handle(t, 200000, tk_world_group(t));
    tk_expect_bytes(t, handle, t->rank, 0, 200000, 0);
    tk_write(t, handle, t->rank, 150000, "x", 1);
    tk_expect_bytes(t, handle, t->rank, 0, 200000, 0);
}
