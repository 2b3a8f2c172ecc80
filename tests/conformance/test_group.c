/* SPDX-License-Identifier: BSD-3-Clause */
/* Groups: creation, queries, names, and rendezvous on groups of all kinds. */
#include "case_help.h"

#include <unistd.h>

#define BYTES 256

/* Rendezvous of new memory on the group; every member must then read every member's world rank. */
static symmem_handle *rendezvous_and_read(struct tk *t, symmem_group *group) {
    symmem_handle *handle = tk_handle(t, BYTES, group);
    symmem_handle_info info = {0};
    TK_OK(t, symmem_handle_get_info(handle, &info));
    tk_fill(t, handle, info.rank, 0, BYTES, (uint8_t)(t->rank + 1));
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    for (int32_t rank = 0; rank < info.world_size; rank++) {
        int32_t global = -1;
        TK_OK(t, symmem_group_global_rank(group, rank, &global));
        tk_expect_bytes(t, handle, rank, 0, BYTES, (uint8_t)(global + 1));
    }
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    return handle;
}

/* The same for a group of `count` ranks from `first` on, if this rank is among them. */
static void meet_among(struct tk *t, const char *name, int32_t first, int32_t count) {
    int32_t ranks[SYMMEM_MAX_WORLD_SIZE];
    for (int32_t i = 0; i < count; i++)
        ranks[i] = first + i;
    if (t->rank >= first && t->rank < first + count)
        (void)rendezvous_and_read(t, tk_group(t, name, ranks, count));
}

/* --- creation and queries --------------------------------------------------------------------- */

TK_TEST(group, create_is_local, "SM-GROUP-01", .ranks = {2, 4}) {
    for (int32_t rank = 0; rank < t->world_size; rank++) {
        /* The others make no call at all until this rank is through. */
        if (rank == t->rank) {
            symmem_group *group = tk_group(t, "alone", NULL, 0);
            tk_group_destroy(t, group);
        }
        tk_out_of_band_barrier(t);
    }
}

ON_EACH_SHAPE(group, follows_member_list, "SM-GROUP-02,SM-ERROR-04") {
    TK_REQ(t, "SM-GROUP-02");
    int32_t value = -1;
    const char *name = NULL;
    symmem_group *found = NULL;
    TK_OK(t, symmem_group_rank(group, &value));
    TK_EQ_INT(t, shape->rank, value);
    TK_OK(t, symmem_group_world_size(group, &value));
    TK_EQ_INT(t, shape->count, value);
    for (int32_t rank = 0; rank < shape->count; rank++) {
        TK_OK(t, symmem_group_global_rank(group, rank, &value));
        TK_EQ_INT(t, shape->ranks[rank], value);
    }
    value = 77;
    TK_FAILS(t, OUT_OF_RANGE, symmem_group_global_rank(group, -1, &value));
    TK_FAILS(t, OUT_OF_RANGE, symmem_group_global_rank(group, shape->count, &value));
    TK_EQ_INT(t, 77, value);
    TK_OK(t, symmem_group_name(group, &name));
    TK_OK(t, symmem_group_find(t->context, name, &found));
    TK_EQ_PTR(t, group, found);
}

TK_TEST(group, null_list_is_the_world, "SM-GROUP-02") {
    const char *name = NULL;
    int32_t value = -1;
    symmem_group *group = tk_group(t, "all.of-us_1", NULL, 0);
    TK_OK(t, symmem_group_world_size(group, &value));
    TK_EQ_INT(t, t->world_size, value);
    TK_OK(t, symmem_group_rank(group, &value));
    TK_EQ_INT(t, t->rank, value);
    for (int32_t rank = 0; rank < t->world_size; rank++) {
        TK_OK(t, symmem_group_global_rank(group, rank, &value));
        TK_EQ_INT(t, rank, value);
    }
    TK_OK(t, symmem_group_name(group, &name));
    TK_EQ_STR(t, "all.of-us_1", name);
}

/* The list is copied: what the caller does with it afterwards is of no interest. */
TK_TEST(group, member_list_is_copied, "SM-GROUP-02", .ranks = {2, 2}) {
    int32_t ranks[2] = {1 - t->rank, t->rank};
    char name[16] = "copied";
    const char *found = NULL;
    int32_t value = -1;
    symmem_group *group = tk_group(t, name, ranks, 2);
    ranks[0] = ranks[1] = 99;
    memset(name, 'x', sizeof(name) - 1);
    TK_OK(t, symmem_group_global_rank(group, 1, &value));
    TK_EQ_INT(t, t->rank, value);
    TK_OK(t, symmem_group_name(group, &found));
    TK_EQ_STR(t, "copied", found);
}

static void refuse(struct tk *t, symmem_status expected, const char *name, const int32_t *ranks,
                   int32_t count) {
    symmem_group *const untouched = (symmem_group *)(void *)t;
    symmem_group *group = untouched;
    TK_STATUS(t, expected, symmem_group_create(t->context, name, ranks, count, NULL, &group));
    TK_EQ_PTR(t, untouched, group);
}

TK_TEST(group, refuses_to_lack_the_caller, "SM-GROUP-03", .ranks = {2, 4}) {
    const int32_t other = t->next;
    refuse(t, SYMMEM_INVALID_ARGUMENT, "others", &other, 1);
}

/* --- names ------------------------------------------------------------------------------------ */

TK_TEST(group, names_are_unique, "SM-GROUP-04", .max_ranks = 4) {
    const int32_t own = t->rank;
    symmem_group *first = NULL, *found = NULL;
    TK_REQUIRE_OK(t, symmem_group_create(t->context, "one", NULL, 0, NULL, &first));
    refuse(t, SYMMEM_EXISTS, "one", NULL, 0);
    refuse(t, SYMMEM_EXISTS, "one", &own, 1);
    TK_OK(t, symmem_group_find(t->context, "one", &found));
    TK_EQ_PTR(t, first, found);
    TK_OK(t, symmem_group_destroy(first));
}

TK_TEST(group, name_is_usable_again, "SM-GROUP-05", .ranks = {3, 8}) {
    for (int round = 0; round < 3; round++) { /* the same members */
        symmem_group *group = NULL;
        symmem_handle *handle;
        TK_REQUIRE_OK(t, symmem_group_create(t->context, "again", NULL, 0, NULL, &group));
        handle = rendezvous_and_read(t, group);
        if (round == 1)
            tk_release(t, handle); /* before or after the group: both are fine */
        TK_OK(t, symmem_group_destroy(group));
    }
    meet_among(t, "pair", 0, 2); /* then others, of whom some knew the name before */
    tk_out_of_band_barrier(t);
    if (t->rank <= 1) {
        symmem_group *group = NULL;
        TK_OK(t, symmem_group_find(t->context, "pair", &group));
        tk_group_destroy(t, group);
    }
    tk_out_of_band_barrier(t);
    meet_among(t, "pair", 1, 2);
    TK_CHECK(t, !tk_failed(t));
}

TK_PORTED(test_rendezvous_after_group_name_recycled, "SM-GROUP-05,SM-CONTEXT-06", .ranks = {3, 8}) {
    symmem_context_options options = tk_options(t);
    TK_REQ(t, "SM-GROUP-05");
    meet_among(t, "1", 0, 2);
    tk_out_of_band_barrier(t);
    /* Everything is taken down and made anew, as at the end of a job's phase. */
    tk_reinit(t, &options);
    tk_out_of_band_barrier(t);
    meet_among(t, "1", 1, 2);
    TK_CHECK(t, !tk_failed(t));
}

static void find_gives_the_live_group(struct tk *t) {
    symmem_group *const untouched = (symmem_group *)(void *)t;
    symmem_group *group = NULL, *found = untouched;
    const int32_t own = t->rank;
    TK_REQ(t, "SM-GROUP-09");
    TK_FAILS(t, NOT_FOUND, symmem_group_find(t->context, "quest", &found));
    TK_EQ_PTR(t, untouched, found);
    TK_REQUIRE_OK(t, symmem_group_create(t->context, "quest", &own, 1, NULL, &group));
    TK_OK(t, symmem_group_find(t->context, "quest", &found));
    TK_EQ_PTR(t, group, found);
    found = untouched;
    TK_FAILS(t, NOT_FOUND, symmem_group_find(t->context, "ques", &found));
    TK_FAILS(t, NOT_FOUND, symmem_group_find(t->context, "quests", &found));
    TK_FAILS(t, NOT_FOUND, symmem_group_find(t->context, "", &found));
    TK_OK(t, symmem_group_destroy(group));
    TK_FAILS(t, NOT_FOUND, symmem_group_find(t->context, "quest", &found));
    TK_EQ_PTR(t, untouched, found);
}

/* --- destroyed groups --------------------------------------------------------------- */

TK_TEST(group, destroyed_group_is_stale, "SM-GROUP-07", .max_ranks = 4) {
    symmem_group *group = NULL;
    symmem_handle *handle = NULL;
    const char *name = NULL;
    int32_t value = 0;
    int fds[64] = {0};
    uint8_t all[64];
    void *memory = tk_alloc(t, BYTES);
    TK_REQUIRE_OK(t, symmem_group_create(t->context, "short-lived", NULL, 0, NULL, &group));
    tk_group_barrier(t, group);
    TK_OK(t, symmem_group_destroy(group));
    TK_FAILS(t, STALE, symmem_group_rank(group, &value));
    TK_FAILS(t, STALE, symmem_group_world_size(group, &value));
    TK_FAILS(t, STALE, symmem_group_name(group, &name));
    TK_FAILS(t, STALE, symmem_group_global_rank(group, 0, &value));
    TK_FAILS(t, STALE, symmem_group_all_gather(group, "x", 1, all, 1000));
    TK_FAILS(t, STALE, symmem_group_barrier(group, 1000));
    TK_FAILS(t, STALE, symmem_group_all_gather_fds(group, -1, fds, 1000));
    TK_FAILS(t, STALE, symmem_group_broadcast_fds(group, 0, -1, fds, 1000));
    TK_FAILS(t, STALE, symmem_group_send_fd(group, 0, -1, 1000));
    TK_FAILS(t, STALE, symmem_group_recv_fd(group, 0, fds, 1000));
    TK_FAILS(t, STALE, symmem_rendezvous(t->context, memory, group, 1000, &handle));
    TK_EQ_PTR(t, NULL, handle);
    TK_FAILS(t, STALE, symmem_group_destroy(group));
    TK_OK(t, symmem_group_destroy(NULL));
}

/* --- rendezvous on groups of all kinds -------------------------------------------------------- */

TK_TEST(group, subgroups_in_growing_steps, "SM-GROUP-06", .ranks = {3, 8}) {
    symmem_group *single = tk_group(t, "single", &t->rank, 1);
    /* Every rank comes with another number of rendezvous behind it. */
    for (int32_t i = 0; i < (t->rank * 2) % 5; i++)
        (void)rendezvous_and_read(t, single);
    meet_among(t, "first", 0, 2);
    meet_among(t, "second", 0, 3);
    meet_among(t, "third", 1, 2);
    (void)rendezvous_and_read(t, tk_world_group(t));
    (void)rendezvous_and_read(t, tk_world_group(t));
}

TK_PORTED(test_rendezvous_after_strict_subgroup, "SM-GROUP-06", .min_ranks = 3) {
    meet_among(t, "strict", 0, t->last);
    (void)rendezvous_and_read(t, tk_world_group(t));
}

TK_PORTED(test_rendezvous_on_overlapping_subgroups, "SM-GROUP-06", .ranks = {3, 4}) {
    meet_among(t, "a", 0, 2);
    meet_among(t, "b", 1, 2);
    TK_CHECK(t, !tk_failed(t));
}

/* One tensor on the world and on one of two halves. */
TK_PORTED(test_subgroup, "SM-GROUP-06,SM-RDV-03", .ranks = {4, 16}) {
    int32_t half = t->world_size / 2, start = t->rank < half ? 0 : half;
    int32_t count = t->rank < half ? half : t->world_size - half;
    int32_t ranks[SYMMEM_MAX_WORLD_SIZE];
    symmem_handle_info info = {0};
    symmem_handle *world, *part;
    void *memory = tk_alloc(t, BYTES);
    TK_REQ(t, "SM-GROUP-06");
    for (int32_t i = 0; i < count; i++)
        ranks[i] = start + i;
    world = tk_rendezvous(t, memory, tk_world_group(t));
    part = tk_rendezvous(t, memory, tk_group(t, start == 0 ? "low" : "high", ranks, count));
    TK_OK(t, symmem_handle_get_info(world, &info));
    TK_EQ_INT(t, t->world_size, info.world_size);
    TK_EQ_INT(t, t->rank, info.rank);
    TK_OK(t, symmem_handle_get_info(part, &info));
    TK_EQ_INT(t, count, info.world_size);
    TK_EQ_INT(t, t->rank - start, info.rank);
    tk_fill(t, world, t->rank, 0, BYTES, (uint8_t)(t->rank + 1));
    TK_OK(t, symmem_barrier(world, 0, LONG_MS, NULL));
    for (int32_t rank = 0; rank < t->world_size; rank++)
        tk_expect_bytes(t, world, rank, 0, BYTES, (uint8_t)(rank + 1));
    for (int32_t i = 0; i < count; i++)
        tk_expect_bytes(t, part, i, 0, BYTES, (uint8_t)(ranks[i] + 1));
    TK_OK(t, symmem_barrier(world, 0, LONG_MS, NULL));
    /* What is written through the part is seen through the world. */
    tk_fill(t, part, (info.rank + 1) % count, 0, BYTES, (uint8_t)(t->rank + 101));
    TK_OK(t, symmem_barrier(part, 0, LONG_MS, NULL));
    tk_expect_bytes(t, world, t->rank, 0, BYTES,
                    (uint8_t)(ranks[(info.rank + count - 1) % count] + 101));
}

/* All that two ranks can do together. */
static void live_as_two(struct tk *t) {
    const int32_t both[2] = {1, 0};
    symmem_group *group = NULL;
    symmem_handle *handle = NULL;
    void *memory = NULL;
    int fd = -1;
    TK_REQUIRE_OK(t, symmem_group_create(t->context, "two", both, 2, NULL, &group));
    TK_REQUIRE_OK(t, symmem_alloc(t->context, 4096, -1, NULL, &memory));
    TK_REQUIRE_OK(t, symmem_rendezvous(t->context, memory, group, LONG_MS, &handle));
    TK_OK(t, symmem_group_barrier(group, LONG_MS));
    TK_OK(t, symmem_group_broadcast_fds(group, 0, t->rank == 1 ? STDERR_FILENO : -1, &fd, LONG_MS));
    if (fd >= 0)
        close(fd);
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    TK_OK(t, symmem_handle_reset(handle, LONG_MS));
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    symmem_handle_release(handle);
    TK_OK(t, symmem_free(t->context, memory));
    TK_OK(t, symmem_group_destroy(group));
    TK_OK(t, symmem_finalize(t->context));
}

/* The last rank makes no call, has finalized or has been killed while the others live. */
TK_TEST(group, waits_for_no_idle_rank, "SM-GROUP-14", .ranks = {3, 3}) {
    if (t->rank != 2)
        live_as_two(t);
    tk_out_of_band_barrier(t);
}

TK_TEST(group, waits_for_no_finalized_rank, "SM-GROUP-14", .ranks = {3, 3}) {
    if (t->rank == 2)
        TK_OK(t, symmem_finalize(t->context));
    tk_out_of_band_barrier(t);
    if (t->rank != 2)
        live_as_two(t);
    tk_out_of_band_barrier(t);
}

TK_TEST(group, waits_for_no_killed_rank, "SM-GROUP-14", .ranks = {3, 3},
        .flags = TK_PROCESS_ONLY | TK_MAY_DIE | TK_MAY_LEAK) {
    tk_group_barrier(t, tk_world_group(t)); /* so it is known */
    tk_expect_death(t, 2);
    tk_out_of_band_barrier(t);
    if (t->rank == 2)
        tk_kill_self(t);
    live_as_two(t);
}

TK_TEST(group, many_groups_at_once, "SM-GROUP-01,SM-EXCHANGE-01", .max_ranks = 4) {
    enum { GROUPS = 24 };
    symmem_group *groups[GROUPS];
    TK_REQ(t, "SM-GROUP-01");
    for (int i = 0; i < GROUPS; i++) {
        char name[24];
        snprintf(name, sizeof(name), "many-%d", i);
        TK_REQUIRE_OK(t, symmem_group_create(t->context, name, NULL, 0, NULL, &groups[i]));
    }
    for (int i = 0; i < GROUPS; i++) {
        int32_t all[64] = {0}, mine = t->rank * 1000 + i;
        TK_OK(t, symmem_group_all_gather(groups[i], &mine, sizeof(mine), all, LONG_MS));
        for (int32_t rank = 0; rank < t->world_size; rank++)
            TK_EQ_INT(t, rank * 1000 + i, all[rank]);
    }
    for (int i = 0; i < GROUPS; i++) /* in another order on every rank */
        TK_OK(t, symmem_group_destroy(groups[(i * 5 + t->rank) % GROUPS]));
}

static const struct tk_case cases[] = {
    TK_CASE("group.find_gives_the_live_group", find_gives_the_live_group, "SM-GROUP-09,SM-ERROR-04",
            .max_ranks = 4),
    TK_CASE("test_is_symm_mem_enabled_for_group", find_gives_the_live_group, "SM-GROUP-09",
            .max_ranks = 4),
};
TK_SUITE(group, cases);

/* --- Group ranks are not world ranks: where data goes, and whose end counts ------------------- */

/* --- data ------------------------------------------------------------------------------------- */

static uint32_t tag(int32_t from, int32_t to) {
    return (uint32_t)(1000 * (from + 1) + to + 1);
}

/* Each rank puts to each; the receiver looks at its own memory without naming a rank. What is put
 * and got by the same wrong rank would look right. */
ON_EACH_SHAPE(group_ranks, transfers, "SM-ONESIDED-01,SM-GROUP-02", .max_ranks = 16) {
    size_t bytes = (size_t)shape->count * sizeof(uint32_t);
    uint32_t *memory = tk_alloc(t, bytes);
    symmem_handle *handle = tk_rendezvous(t, memory, group);
    for (int32_t rank = 0; rank < shape->count; rank++) {
        uint32_t word = tag(t->rank, shape->ranks[rank]);
        size_t offset = (size_t)shape->rank * sizeof(word);
        TK_OK(t, symmem_put(handle, rank, offset, &word, sizeof(word), NULL));
    }
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    for (int32_t rank = 0; rank < shape->count; rank++) {
        uint32_t word = 0;
        TK_OK(t, symmem_copy(t->context, &word, memory + rank, sizeof(word), NULL));
        TK_EQ_INT(t, tag(shape->ranks[rank], t->rank), word);
        TK_OK(t, symmem_get(handle, rank, 0, &word, sizeof(word), NULL));
        TK_EQ_INT(t, tag(shape->ranks[0], shape->ranks[rank]), word);
    }
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
}

/* --- ends ------------------------------------------------------------------------------------- */

#define SLOT_INSIDE 5

/* Waits long enough for code that watches the wrong ranks to find one that has ended. */
static void late_barrier(struct tk *t, symmem_handle *handle, int32_t late) {
    if (t->rank == late)
        tk_sleep_ms(500);
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
}

/* The pair of the last two ranks, turned: group ranks 0 and 1 are neither's world rank. The world
 * ranks 0 and 1 end, which are none of the pair; then one of the pair. */
TK_TEST(group_ranks, ends, "SM-TIMEOUT-08,SM-GROUP-02,SM-TIMEOUT-14", .ranks = {4, 8},
        .flags = TK_PROCESS_ONLY | TK_MAY_DIE | TK_MAY_LEAK) {
    int32_t ranks[2] = {t->last, t->last - 1};
    TK_REQUIRE(t, t->last >= 3);
    for (int32_t victim = 0; victim < 2; victim++)
        tk_expect_death(t, victim);
    tk_expect_death(t, t->last - 1);
    tk_out_of_band_barrier(t);
    if (t->rank < 2)
        tk_kill_self(t);
    if (t->rank != t->last && t->rank != t->last - 1)
        return;
    symmem_group *pair = tk_group(t, "pair", ranks, 2);
    symmem_handle *handle = tk_handle(t, 64, pair);
    for (int32_t victim = 0; victim < 2; victim++)
        TK_CHECK(t, tk_wait_death(t, victim, LONG_MS));
    late_barrier(t, handle, t->last);
    late_barrier(t, handle, t->last - 1);
    if (t->rank == t->last - 1) {
        (void)await_shared(t, t->last, SLOT_INSIDE, 1);
        tk_sleep_ms(30);
        tk_kill_self(t);
    }
    tk_share_u64(t, SLOT_INSIDE, 1);
    TK_FAILS(t, PEER_LOST, symmem_barrier(handle, 0, LONG_MS, NULL));
    symmem_error_record record = last_record();
    TK_EQ_INT(t, 1, record.failed_rank);
    check_missing_one(t, &record, 1, 2);
    TK_FAILS(t, PEER_LOST, symmem_group_barrier(pair, LONG_MS));
    TK_EQ_INT(t, 1, last_record().failed_rank);
    work_after_loss(t, NULL, 0, t->last, NULL); /* alone */
}
