/* SPDX-License-Identifier: BSD-3-Clause */
/* The host-side exchange of a group: gathering, the barrier, who is missing, what it costs. */
#include "counting_store.h"
#include "case_help.h"
#include "resources.h"

/* Bytes that tell rank and place. */
static void pattern(uint8_t *bytes, size_t count, int32_t rank, uint32_t salt) {
    for (size_t i = 0; i < count; i++)
        bytes[i] = (uint8_t)((uint32_t)rank * 37u + (uint32_t)i * 11u + (uint32_t)(i >> 8) + salt);
}

/* Gathers `bytes` bytes of each member and compares everything, also that nothing is written
 * behind. */
static void gather_and_compare(struct tk *t, symmem_group *group, size_t bytes, uint32_t salt) {
    int32_t rank = 0, world_size = 0;
    TK_OK(t, symmem_group_rank(group, &rank));
    TK_OK(t, symmem_group_world_size(group, &world_size));
    uint8_t *in = malloc(bytes + 1);
    uint8_t *out = malloc(bytes * (size_t)world_size + 1);
    uint8_t *expected = malloc(bytes + 1);
    TK_REQUIRE(t, in != NULL && out != NULL && expected != NULL);
    pattern(in, bytes, rank, salt);
    out[bytes * (size_t)world_size] = 0xEE;
    TK_OK(t, symmem_group_all_gather(group, in, bytes, out, LONG_MS));
    for (int32_t i = 0; i < world_size; i++) {
        pattern(expected, bytes, i, salt);
        TK_CHECK_MSG(t, memcmp(expected, out + (size_t)i * bytes, bytes) == 0,
                     "%zu bytes of rank %d differ", bytes, i);
    }
    TK_EQ_INT(t, 0xEE, out[bytes * (size_t)world_size]);
    free(in);
    free(out);
    free(expected);
}

ON_EACH_SHAPE(exchange, all_gather_in_rank_order, "SM-EXCHANGE-01", .max_ranks = 8) {
    gather_and_compare(t, group, 1, 1);
    gather_and_compare(t, group, 513, (uint32_t)shape->count);
    gather_and_compare(t, group, 513, (uint32_t)shape->count + 1); /* not the one before */
}

/* The largest world there is here. */
TK_TEST(exchange, all_gather_of_many_ranks, "SM-EXCHANGE-01") {
    gather_and_compare(t, tk_world_group(t), 9, 3);
    gather_and_compare(t, tk_world_group(t), 200, 4);
}

TK_TEST(exchange, all_gather_of_every_size, "SM-EXCHANGE-01", .max_ranks = 4) {
    static const size_t sizes[] = {1, 2, 7, 8, 63, 64, 65, 4095, 4096, 4097, 65535, 65536};
    for (size_t i = 0; i < TK_COUNT(sizes); i++)
        gather_and_compare(t, tk_world_group(t), sizes[i], (uint32_t)i);
}

TK_TEST(exchange, different_sizes_are_a_mismatch, "SM-EXCHANGE-02", .ranks = {2, 8}) {
    symmem_group *group = tk_world_group(t);
    int32_t step = t->world_size > 4 ? t->last : 1;
    uint8_t in[80] = {0}, *out = tk_scratch(t, 80 * (size_t)t->world_size);
    for (int32_t odd = 0; odd < t->world_size; odd += step) {
        for (int longer = 0; longer < 2; longer++) {
            size_t bytes = t->rank != odd ? 40 : longer ? 80 : 39;
            tk_checkpoint(t, "rank %d gives another size", odd);
            TK_FAILS(t, MISMATCH, symmem_group_all_gather(group, in, bytes, out, LONG_MS));
            gather_and_compare(t, group, 40, (uint32_t)odd);
        }
    }
}

static void barrier_shape(struct tk *t, symmem_group *group, const struct tk_shape *shape,
                          void *arg) {
    uint64_t *passed = arg, before[SYMMEM_MAX_WORLD_SIZE];
    int32_t step = shape->count > 4 ? shape->count - 1 : 1;
    for (int32_t late = 0; late < shape->count; late += step) {
        TK_OK(t, symmem_group_all_gather(group, passed, sizeof(*passed), before, LONG_MS));
        if (shape->rank == late) {
            tk_sleep_ms(20);
            for (int32_t i = 0; i < shape->count; i++)
                TK_CHECK_MSG(t, tk_read_u64(t, shape->ranks[i], 0) == before[i],
                             "group rank %d passed without rank %d", i, late);
        }
        TK_OK(t, symmem_group_barrier(group, LONG_MS));
        tk_share_u64(t, 0, ++*passed);
    }
}

TK_TEST(exchange, barrier_waits_for_everyone, "SM-EXCHANGE-03", .min_ranks = 2, .timeout_s = 60) {
    uint64_t passed = 0;
    tk_for_each_group_shape(t, barrier_shape, &passed);
}

/* The group's first collective call is a barrier as well. */
TK_TEST(exchange, first_barrier_waits_for_everyone, "SM-EXCHANGE-03", .ranks = {2, 8}) {
    int32_t step = t->world_size > 4 ? t->last : 1;
    uint64_t round = 0;
    for (int32_t late = 0; late < t->world_size; late += step) {
        symmem_group *group = NULL;
        round++;
        TK_REQUIRE_OK(t, symmem_group_create(t->context, "fresh", NULL, 0, NULL, &group));
        tk_out_of_band_barrier(t);
        if (t->rank == late) {
            tk_sleep_ms(40);
            for (int32_t i = 0; i < t->world_size; i++)
                TK_CHECK_MSG(t, tk_read_u64(t, i, 0) < round, "rank %d passed without rank %d", i,
                             late);
        }
        TK_OK(t, symmem_group_barrier(group, LONG_MS));
        tk_share_u64(t, 0, round);
        tk_out_of_band_barrier(t);
        TK_OK(t, symmem_group_destroy(group));
    }
}

/* Ranks [first, first + count) of a group. */
struct absence {
    int32_t first, count;
};

static bool is_absent(const struct absence *absence, int32_t rank) {
    return rank >= absence->first && rank < absence->first + absence->count;
}

/* Whether no other rank is missing. If one is, so are all of the absent, however late who. */
static bool names_the_absent(struct tk *t, const struct absence *absence,
                             const symmem_error_record *record) {
    uint32_t named = 0;
    int32_t last = -1;
    for (int32_t rank = 0; rank < t->world_size; rank++) {
        const bool missing = symmem_error_is_missing(record, rank);
        named += missing;
        last = missing ? rank : last;
        TK_CHECK_MSG(t, missing || record->missing_count == 0 || !is_absent(absence, rank),
                     "rank %d is not in the missing set", rank);
    }
    TK_EQ_INT(t, named, record->missing_count);
    TK_EQ_INT(t, named == 1 ? last : -1, record->failed_rank);
    return named == (uint32_t)absence->count;
}

/* What a rank that is there gets; whether exactly the absent were named. */
static bool miss_them(struct tk *t, symmem_group *group, const char *name,
                      const struct absence *absence, uint32_t limit_ms) {
    uint64_t start = tk_now_ms();
    TK_FAILS(t, TIMEOUT, symmem_group_barrier(group, limit_ms));
    TK_AT_LEAST(t, limit_ms, tk_now_ms() - start + 1);
    TK_WITHIN(t, limit_ms + 1000, start);
    symmem_error_record record = last_record();
    TK_EQ_INT(t, t->rank, record.rank);
    TK_EQ_INT(t, t->world_size, record.world_size);
    TK_EQ_STR(t, name, record.group);
    TK_AT_LEAST(t, limit_ms / 2, record.elapsed_ns / 1000000);
    return names_the_absent(t, absence, &record);
}

/* The absent stay away, and the others must name exactly these. One that is kept from running for
 * as long as the limit is missing, too, and rightly. */
static void stay_away(struct tk *t, symmem_group *group, const char *name, struct absence absence) {
    const uint32_t limit_ms = tk_limit_ms(t, t->world_size > 8 ? 1000 : 150);
    tk_out_of_band_barrier(t);
    if (!is_absent(&absence, t->rank))
        TK_TIMELY(t, miss_them(t, group, name, &absence, limit_ms),
                  "others than ranks %d to %d are missing in %s", absence.first,
                  absence.first + absence.count - 1, name);
    tk_out_of_band_barrier(t);
    TK_OK(t, symmem_group_barrier(group, LONG_MS));
    gather_and_compare(t, group, 24, (uint32_t)absence.first);
}

TK_TEST(exchange, timeout_names_the_missing, "SM-EXCHANGE-04", .min_ranks = 2, .timeout_s = 60) {
    int32_t step = t->world_size > 4 ? t->last : 1;
    symmem_group *group = tk_group(t, "known", NULL, 0);
    TK_OK(t, symmem_group_barrier(group, LONG_MS));
    for (int32_t rank = t->world_size > 8 ? step : 0; rank < t->world_size; rank += step)
        stay_away(t, group, "known", (struct absence){rank, 1});
    if (t->world_size > 2)
        stay_away(t, group, "known", (struct absence){1, t->last});
    tk_group_destroy(t, group);
}

TK_TEST(exchange, timeout_at_first_contact, "SM-EXCHANGE-04", .ranks = {2, 8}) {
    const struct absence absences[] = {{0, 1}, {t->last, 1}, {0, t->last}};
    for (int i = 0; i < 3; i++) {
        char name[24];
        snprintf(name, sizeof(name), "fresh-%d", i);
        symmem_group *group = tk_group(t, name, NULL, 0);
        stay_away(t, group, name, absences[i]);
        tk_group_destroy(t, group);
    }
}

struct exchanger {
    struct tk *t;
    symmem_group *group;
    uint32_t salt;
    int rounds;
};

static void *exchange_in_thread(void *arg) {
    struct exchanger *own = arg;
    for (int round = 0; round < own->rounds; round++) {
        int32_t rank = -1, world_size = 0;
        uint32_t all[8] = {0};
        TK_OK(own->t, symmem_group_rank(own->group, &rank));
        TK_OK(own->t, symmem_group_world_size(own->group, &world_size));
        uint32_t mine = own->salt + (uint32_t)round * 100 + (uint32_t)rank;
        TK_OK(own->t, symmem_group_all_gather(own->group, &mine, sizeof(mine), all, LONG_MS));
        for (int32_t i = 0; i < world_size; i++)
            TK_EQ_INT(own->t, own->salt + (uint32_t)round * 100 + (uint32_t)i, all[i]);
    }
    return NULL;
}

TK_TEST(exchange, overlapping_groups_in_threads, "SM-EXCHANGE-07", .ranks = {2, 4}) {
    enum { GROUPS = 3 };
    int32_t ranks[GROUPS][8], counts[GROUPS] = {t->world_size, t->last, t->world_size};
    struct exchanger exchangers[GROUPS];
    for (int32_t i = 0; i < t->world_size; i++) {
        ranks[0][i] = i;
        ranks[1][i] = i + 1; /* without rank 0; the last entry is not used */
        ranks[2][i] = t->last - i;
    }
    int count = 0;
    for (int i = 0; i < GROUPS; i++) {
        char name[16];
        if (i == 1 && t->rank == 0)
            continue;
        snprintf(name, sizeof(name), "thread-%d", i);
        exchangers[count++] = (struct exchanger){t, tk_group(t, name, ranks[i], counts[i]),
                                                 (uint32_t)(i + 1) * 1000000, 12};
    }
    tk_in_threads(t, exchange_in_thread, exchangers, sizeof(exchangers[0]), count);
}

/* This rank's store writes in eight barriers of a group that is known already. */
static int writes_of_barriers(struct tk *t, symmem_group *group, struct counting_store *counting) {
    TK_OK(t, symmem_group_barrier(group, LONG_MS));
    TK_OK(t, symmem_group_barrier(group, LONG_MS));
    int before = counting_store_writes(counting);
    for (int i = 0; i < 8; i++)
        TK_OK(t, symmem_group_barrier(group, LONG_MS));
    return counting_store_writes(counting) - before;
}

/* One rank combines what the others wrote; the sum over the ranks tells the growth. */
TK_TEST(exchange, store_writes_are_constant, "SM-EXCHANGE-08,SM-EXCHANGE-31", .ranks = {3, 16}) {
    const int32_t pair[] = {0, 1};
    struct counting_store *counting = counting_store_begin(t->store);
    symmem_store *store = NULL;
    symmem_group *small = NULL, *large = NULL;
    uint64_t many = 0;
    TK_REQUIRE_OK(t, symmem_store_open_custom(&counting_store_ops, counting, &store));
    TK_OK(t, symmem_group_create(t->context, "large", NULL, 0, store, &large));
    int writes = writes_of_barriers(t, large, counting);
    TK_CHECK_MSG(t, writes <= 8 * 4, "eight barriers took %d store writes", writes);
    TK_EQ_INT(t, 0, atomic_load(&counting->adds));
    tk_share_u64(t, 0, (uint64_t)writes);
    if (t->rank <= 1) {
        TK_OK(t, symmem_group_create(t->context, "small", pair, 2, store, &small));
        tk_share_u64(t, 1, (uint64_t)writes_of_barriers(t, small, counting));
        TK_OK(t, symmem_group_destroy(small));
    }
    TK_OK(t, symmem_group_destroy(large));
    tk_out_of_band_barrier(t);
    for (int32_t rank = 0; rank < t->world_size; rank++)
        many += tk_read_u64(t, rank, 0);
    uint64_t few = tk_read_u64(t, 0, 1) + tk_read_u64(t, 1, 1);
    /* On average, a rank of the large group writes no more than one of the pair. */
    TK_CHECK_MSG(t, many * 2 <= few * (uint64_t)t->world_size,
                 "%llu writes of %d ranks, %llu of two", (unsigned long long)many, t->world_size,
                 (unsigned long long)few);
    tk_out_of_band_barrier(t);
    tk_end_context(t);
    symmem_store_close(store);
}

TK_TEST(exchange, store_is_left_empty, "SM-EXCHANGE-05", .max_ranks = 8) {
    char path[4096];
    symmem_store *store = NULL;
    int64_t count;
    snprintf(path, sizeof(path), "%s/keys", t->scratch_dir);
    TK_REQUIRE_OK(t, symmem_store_open_file(path, &store));
    /* Whatever the store keeps for good comes now. */
    TK_OK(t, symmem_store_set(store, "warm-up", "", 0, LONG_MS));
    TK_OK(t, symmem_store_wait(store, "warm-up", LONG_MS));
    TK_OK(t, symmem_store_add(store, "warm-up-count", 1, &count, LONG_MS));
    tk_out_of_band_barrier(t);
    TK_OK(t, symmem_store_remove(store, "warm-up", LONG_MS));
    TK_OK(t, symmem_store_remove(store, "warm-up-count", LONG_MS));
    tk_out_of_band_barrier(t);
    int before = resources_count_entries(path);
    tk_out_of_band_barrier(t);
    TK_REINIT(t, options.store = store);
    for (uint32_t i = 0; i < 6; i++)
        gather_and_compare(t, tk_world_group(t), 100, i);
    tk_group_barrier(t, tk_world_group(t));
    tk_out_of_band_barrier(t);
    int after = resources_count_entries(path);
    TK_CHECK_MSG(t, after <= before + 6 * t->world_size, "%d entries grew to %d", before, after);
    tk_out_of_band_barrier(t);
    for (uint32_t i = 0; i < 40; i++)
        tk_group_barrier(t, tk_world_group(t));
    tk_out_of_band_barrier(t);
    TK_CHECK_MSG(t, resources_count_entries(path) <= after, "%d entries grew to %d in 40 barriers",
                 after, resources_count_entries(path));
    tk_out_of_band_barrier(t);
    tk_end_context(t);
    tk_out_of_band_barrier(t);
    TK_EQ_INT(t, before, resources_count_entries(path));
    tk_out_of_band_barrier(t);
    symmem_store_close(store);
}
