/* SPDX-License-Identifier: BSD-3-Clause */
/* Stores: values, limits, counters, and what they must refuse. */
#include <sys/stat.h>

#include "counting_store.h"
#include "limits_help.h"
#include "case_help.h"
#include "resources.h"
#include "tcp_help.h"

#define LIMIT_MS 10000u

/* --- the stores of the library, one after the other ------------------------------------------- */

typedef void (*store_fn)(struct tk *t, symmem_store *store);

/* A file store, one over TCP, a memory store, and a custom store over the latter. */
static void for_each_store(struct tk *t, store_fn fn) {
    char path[4096];
    struct counting_store counting = {0};
    symmem_store *file = NULL, *tcp = NULL, *memory = NULL, *custom = NULL;
    char address[ADDRESS_BYTES];
    snprintf(path, sizeof(path), "%s/each", t->scratch_dir);
    if (TK_OK(t, symmem_store_open_file(path, &file))) {
        tk_checkpoint(t, "file store");
        fn(t, file);
        symmem_store_close(file);
    }
    if (tcp_is_possible(t) &&
        TK_OK(t, symmem_store_open(tcp_address(address, tcp_free_port(t), "each"), 0, 1, LIMIT_MS,
                                   &tcp))) {
        tk_checkpoint(t, "TCP store");
        fn(t, tcp);
        symmem_store_close(tcp);
    }
    if (TK_OK(t, symmem_store_open_memory(&memory))) {
        tk_checkpoint(t, "memory store");
        fn(t, memory);
        counting.inner = memory;
        if (TK_OK(t, symmem_store_open_custom(&counting_store_ops, &counting, &custom))) {
            tk_checkpoint(t, "custom store");
            fn(t, custom);
            symmem_store_close(custom);
            TK_EQ_INT(t, 1, atomic_load(&counting.closes));
        }
        symmem_store_close(memory);
    }
}

/* Heads the body of a case of one rank. The body runs once with each kind of store. */
#define IN_EACH_STORE(name_, requirements_)                                                        \
    static void name_##_in(struct tk *t, symmem_store *store);                                     \
    TK_TEST(store, name_, requirements_, .max_ranks = 1) {                                         \
        for_each_store(t, name_##_in);                                                             \
    }                                                                                              \
    static void name_##_in(struct tk *t, symmem_store *store)

static void expect_value(struct tk *t, symmem_store *store, const char *key, const void *expected,
                         size_t bytes) {
    uint8_t found[512];
    size_t found_bytes = SIZE_MAX;
    memset(found, 0xA5, sizeof(found));
    TK_OK(t, symmem_store_get(store, key, found, sizeof(found), &found_bytes, LIMIT_MS));
    TK_EQ_SIZE(t, bytes, found_bytes);
    TK_CHECK_MSG(t, bytes == 0 || memcmp(found, expected, bytes) == 0, "value of %s differs", key);
    TK_CHECK_MSG(t, bytes >= sizeof(found) || found[bytes] == 0xA5, "%s: wrote past the value",
                 key);
}

/* --- values ------------------------------------------------------------------------- */

TK_TEST(store, value_comes_back, "SM-STORE-01") {
    char key[64];
    uint8_t value[200];
    for (size_t i = 0; i < sizeof(value); i++)
        value[i] = (uint8_t)((size_t)t->rank * 7 + i);
    snprintf(key, sizeof(key), "back/%d", t->rank);
    TK_OK(t, symmem_store_set(t->store, key, value, sizeof(value), LIMIT_MS));
    snprintf(key, sizeof(key), "empty/%d", t->rank);
    TK_OK(t, symmem_store_set(t->store, key, NULL, 0, LIMIT_MS));
    tk_out_of_band_barrier(t);
    for (int32_t rank = 0; rank < t->world_size; rank++) {
        uint8_t expected[200];
        for (size_t i = 0; i < sizeof(expected); i++)
            expected[i] = (uint8_t)((size_t)rank * 7 + i);
        snprintf(key, sizeof(key), "back/%d", rank);
        expect_value(t, t->store, key, expected, sizeof(expected));
        snprintf(key, sizeof(key), "empty/%d", rank);
        expect_value(t, t->store, key, NULL, 0);
    }
    tk_out_of_band_barrier(t);
    /* A shorter value leaves nothing of the longer one. */
    snprintf(key, sizeof(key), "back/%d", t->rank);
    TK_OK(t, symmem_store_set(t->store, key, "ab\0c", 4, LIMIT_MS));
    tk_out_of_band_barrier(t);
    snprintf(key, sizeof(key), "back/%d", t->next);
    expect_value(t, t->store, key, "ab\0c", 4);
    tk_out_of_band_barrier(t);
    for (int i = 0; i < 2; i++) {
        snprintf(key, sizeof(key), "%s/%d", i == 0 ? "back" : "empty", t->rank);
        TK_OK(t, symmem_store_remove(t->store, key, LIMIT_MS));
    }
}

IN_EACH_STORE(every_store_keeps_values, "SM-STORE-01") {
    static const char *const keys[] = {"a", "a/b", "a/b/c", "a:b", "A", "a.b", "a-b", "a_b"};
    char *large = tk_scratch(t, SYMMEM_STORE_VALUE_MAX);
    char *back = tk_scratch(t, SYMMEM_STORE_VALUE_MAX);
    size_t bytes = 0;
    for (size_t i = 0; i < LENGTH(keys); i++)
        TK_OK(t, symmem_store_set(store, keys[i], keys[i], strlen(keys[i]) + 1, LIMIT_MS));
    for (size_t i = 0; i < LENGTH(keys); i++)
        expect_value(t, store, keys[i], keys[i], strlen(keys[i]) + 1);
    for (size_t i = 0; i < SYMMEM_STORE_VALUE_MAX; i++)
        large[i] = (char)(i * 31 + i / 251);
    TK_OK(t, symmem_store_set(store, "a", large, SYMMEM_STORE_VALUE_MAX, LIMIT_MS));
    TK_OK(t, symmem_store_get(store, "a", back, SYMMEM_STORE_VALUE_MAX, &bytes, LIMIT_MS));
    TK_EQ_SIZE(t, SYMMEM_STORE_VALUE_MAX, bytes);
    TK_CHECK(t, memcmp(large, back, SYMMEM_STORE_VALUE_MAX) == 0);
    TK_OK(t, symmem_store_set(store, "a", "", 0, LIMIT_MS));
    expect_value(t, store, "a", NULL, 0);
    for (size_t i = 0; i < LENGTH(keys); i++)
        TK_OK(t, symmem_store_remove(store, keys[i], LIMIT_MS));
}

/* A reader beside a writer sees one of the two values whole, never a mixture or a cut one. */
TK_TEST(store, value_is_whole_or_not_there, "SM-STORE-01", .ranks = {2, 3}) {
    enum { LONG_BYTES = 9000, SHORT_BYTES = 70, ROUNDS = 600 };
    char *value = tk_scratch(t, LONG_BYTES);
    if (t->rank == 0) {
        memset(value, 'l', LONG_BYTES);
        TK_OK(t, symmem_store_set(t->store, "whole", value, LONG_BYTES, LIMIT_MS));
    }
    tk_out_of_band_barrier(t);
    /* Readers look as long as there is a writer. */
    for (int round = 0; t->rank == 0 ? round < ROUNDS : tk_read_u64(t, 0, 0) == 0; round++) {
        size_t bytes = t->rank == 0 && round % 2 == 0 ? SHORT_BYTES : LONG_BYTES;
        bool uniform = true;
        if (t->rank == 0) {
            memset(value, round % 2 == 0 ? 's' : 'l', LONG_BYTES);
            TK_OK(t, symmem_store_set(t->store, "whole", value, bytes, LIMIT_MS));
            continue;
        }
        TK_OK(t, symmem_store_get(t->store, "whole", value, LONG_BYTES, &bytes, LIMIT_MS));
        for (size_t i = 1; i < bytes; i++)
            uniform = uniform && value[i] == value[0];
        TK_CHECK(t, uniform);
        TK_EQ_SIZE(t, value[0] == 's' ? SHORT_BYTES : LONG_BYTES, bytes);
    }
    tk_share_u64(t, 0, 1);
    tk_out_of_band_barrier(t);
    if (t->rank == 0)
        TK_OK(t, symmem_store_remove(t->store, "whole", LIMIT_MS));
}

IN_EACH_STORE(get_absent_or_too_large, "SM-STORE-02") {
    uint8_t found[16];
    size_t bytes = 77;
    uint64_t start = tk_now_ms();
    memset(found, 0x5A, sizeof(found));
    TK_FAILS(t, NOT_FOUND,
             symmem_store_get(store, "nobody", found, sizeof(found), &bytes, LIMIT_MS));
    TK_BELOW(t, LIMIT_MS / 2, tk_now_ms() - start);
    TK_OK(t, symmem_store_set(store, "ten", "0123456789", 10, LIMIT_MS));
    TK_FAILS(t, OUT_OF_RANGE, symmem_store_get(store, "ten", found, 9, &bytes, LIMIT_MS));
    TK_EQ_SIZE(t, 10, bytes);
    TK_EQ_INT(t, 0x5A, found[0]);
    bytes = 0;
    TK_FAILS(t, OUT_OF_RANGE, symmem_store_get(store, "ten", NULL, 0, &bytes, LIMIT_MS));
    TK_EQ_SIZE(t, 10, bytes);
    TK_OK(t, symmem_store_get(store, "ten", found, 10, &bytes, LIMIT_MS));
    TK_CHECK(t, memcmp(found, "0123456789", 10) == 0 && found[10] == 0x5A);
    TK_OK(t, symmem_store_remove(store, "ten", LIMIT_MS));
}

/* --- wait, add, remove ------------------------------------------------------------------------ */

TK_TEST(store, wait_ends_with_the_set, "SM-STORE-03", .ranks = {2, 8}) {
    if (t->rank == 0) {
        tk_sleep_ms(60);
        tk_share_u64(t, 0, 1);
        TK_OK(t, symmem_store_set(t->store, "late", "x", 1, LIMIT_MS));
    } else {
        TK_OK(t, symmem_store_wait(t->store, "late", t->rank % 2 == 0 ? 0 : LIMIT_MS));
        TK_EQ_SIZE(t, 1, tk_read_u64(t, 0, 0));
        expect_value(t, t->store, "late", "x", 1);
    }
    tk_out_of_band_barrier(t);
    TK_OK(t, symmem_store_wait(t->store, "late", LIMIT_MS)); /* there already */
    tk_out_of_band_barrier(t);
    if (t->rank == 0)
        TK_OK(t, symmem_store_remove(t->store, "late", LIMIT_MS));
}

IN_EACH_STORE(wait_times_out, "SM-STORE-03") {
    uint64_t start = tk_now_ms();
    TK_FAILS(t, TIMEOUT, symmem_store_wait(store, "never", 80));
    TK_AT_LEAST(t, 79, tk_now_ms() - start);
    TK_WITHIN(t, 5000, start);
    TK_OK(t, symmem_store_set(store, "never", NULL, 0, LIMIT_MS));
    TK_OK(t, symmem_store_wait(store, "never", LIMIT_MS));
    TK_OK(t, symmem_store_remove(store, "never", LIMIT_MS));
    TK_FAILS(t, TIMEOUT, symmem_store_wait(store, "never", 20));
}

TK_TEST(store, add_loses_none, "SM-STORE-04") {
    enum { ROUNDS_MAX = 40 };
    int rounds = t->world_size > 8 ? 3 : ROUNDS_MAX;
    int64_t mine[ROUNDS_MAX] = {0}, last = 0, value = 0;
    int64_t *all = tk_scratch(t, (size_t)t->world_size * sizeof(mine));
    bool *seen = tk_scratch(t, (size_t)t->world_size * ROUNDS_MAX + 1);
    tk_out_of_band_barrier(t);
    for (int i = 0; i < rounds; i++) {
        TK_OK(t, symmem_store_add(t->store, "count", 1, &mine[i], LIMIT_MS));
        TK_CHECK(t, mine[i] > last);
        last = mine[i];
    }
    TK_OK(t, symmem_group_all_gather(tk_world_group(t), mine, sizeof(mine), all, LIMIT_MS));
    for (int64_t i = 0; i < t->world_size * ROUNDS_MAX; i++) {
        if (i % ROUNDS_MAX >= rounds)
            continue;
        if (!TK_CHECK_MSG(t, all[i] >= 1 && all[i] <= (int64_t)t->world_size * rounds,
                          "value %lld was returned", (long long)all[i]))
            continue;
        TK_CHECK_MSG(t, !seen[all[i]], "value %lld was returned twice", (long long)all[i]);
        seen[all[i]] = true;
    }
    TK_OK(t, symmem_store_add(t->store, "count", 0, &value, LIMIT_MS));
    TK_EQ_INT(t, (int64_t)t->world_size * rounds, value);
    tk_out_of_band_barrier(t);
    if (t->rank == 0)
        TK_OK(t, symmem_store_remove(t->store, "count", LIMIT_MS));
}

IN_EACH_STORE(add_counts_both_ways, "SM-STORE-04") {
    int64_t value = 99;
    TK_OK(t, symmem_store_add(store, "n", -5, &value, LIMIT_MS));
    TK_EQ_INT(t, -5, value);
    TK_OK(t, symmem_store_add(store, "n", INT64_C(1) << 40, &value, LIMIT_MS));
    TK_EQ_INT(t, (INT64_C(1) << 40) - 5, value);
    TK_OK(t, symmem_store_add(store, "other", 1, &value, LIMIT_MS));
    TK_EQ_INT(t, 1, value);
    TK_OK(t, symmem_store_remove(store, "n", LIMIT_MS));
    TK_OK(t, symmem_store_add(store, "n", 2, &value, LIMIT_MS)); /* absent counts as 0 */
    TK_EQ_INT(t, 2, value);
    TK_OK(t, symmem_store_remove(store, "n", LIMIT_MS));
    TK_OK(t, symmem_store_remove(store, "other", LIMIT_MS));
}

IN_EACH_STORE(remove_makes_absent, "SM-STORE-05") {
    uint8_t found[8];
    size_t bytes = 0;
    TK_OK(t, symmem_store_remove(store, "absent", LIMIT_MS));
    TK_OK(t, symmem_store_set(store, "here", "1", 1, LIMIT_MS));
    TK_OK(t, symmem_store_set(store, "here/below", "2", 1, LIMIT_MS));
    TK_OK(t, symmem_store_remove(store, "here", LIMIT_MS));
    TK_FAILS(t, NOT_FOUND, symmem_store_get(store, "here", found, sizeof(found), &bytes, LIMIT_MS));
    expect_value(t, store, "here/below", "2", 1);
    TK_OK(t, symmem_store_remove(store, "here", LIMIT_MS));
    TK_OK(t, symmem_store_remove(store, "here/below", LIMIT_MS));
}

TK_TEST(store, removed_everywhere, "SM-STORE-05", .ranks = {2, 4}) {
    uint8_t found[8];
    size_t bytes = 0;
    int32_t remover = t->last;
    if (t->rank == 0)
        TK_OK(t, symmem_store_set(t->store, "gone", "1", 1, LIMIT_MS));
    tk_out_of_band_barrier(t);
    if (t->rank == remover)
        TK_OK(t, symmem_store_remove(t->store, "gone", LIMIT_MS));
    tk_out_of_band_barrier(t);
    TK_FAILS(t, NOT_FOUND,
             symmem_store_get(t->store, "gone", found, sizeof(found), &bytes, LIMIT_MS));
}

/* --- keys --------------------------------------------------------------------------- */

static void refuse_key(struct tk *t, symmem_store *store, const char *key) {
    struct outputs out = outputs_fresh();
    int64_t value = UNTOUCHED;
    REFUSED(t, INVALID_ARGUMENT, symmem_store_set(store, key, "v", 1, LIMIT_MS));
    REFUSED(t, INVALID_ARGUMENT, symmem_store_get(store, key, out.bytes, 8, &out.size, LIMIT_MS));
    REFUSED(t, INVALID_ARGUMENT, symmem_store_wait(store, key, 1));
    REFUSED(t, INVALID_ARGUMENT, symmem_store_add(store, key, 1, &value, LIMIT_MS));
    REFUSED(t, INVALID_ARGUMENT, symmem_store_remove(store, key, LIMIT_MS));
    TK_EQ_INT(t, UNTOUCHED, value);
    outputs_check(t, &out);
}

IN_EACH_STORE(refuses_bad_keys_and_values, "SM-STORE-06,SM-ERROR-04") {
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                                  "._-/:";
    char key[SYMMEM_STORE_KEY_MAX + 2];
    char *large = tk_scratch(t, SYMMEM_STORE_VALUE_MAX + 1);
    TK_OK(t, symmem_store_set(store, allowed, "v", 1, LIMIT_MS));
    expect_value(t, store, allowed, "v", 1);
    TK_OK(t, symmem_store_remove(store, allowed, LIMIT_MS));
    for (int c = 1; c < 256; c++) {
        char bad[4] = {'k', (char)c, 'k', '\0'};
        if (strchr(allowed, c) == NULL)
            TK_CHECK_MSG(t,
                         symmem_store_set(store, bad, "v", 1, LIMIT_MS) == SYMMEM_INVALID_ARGUMENT,
                         "character %d was accepted", c);
    }
    refuse_key(t, store, NULL);
    refuse_key(t, store, "");
    refuse_key(t, store, "with blank");
    memset(key, 'k', sizeof(key));
    key[SYMMEM_STORE_KEY_MAX + 1] = '\0';
    refuse_key(t, store, key);
    key[SYMMEM_STORE_KEY_MAX] = '\0';
    TK_OK(t, symmem_store_set(store, key, "v", 1, LIMIT_MS));
    expect_value(t, store, key, "v", 1);
    TK_OK(t, symmem_store_remove(store, key, LIMIT_MS));
    TK_FAILS(t, INVALID_ARGUMENT,
             symmem_store_set(store, "k", large, SYMMEM_STORE_VALUE_MAX + 1, LIMIT_MS));
}

/* Keys are names: none of these may be read as a path, and no two may denote one value. */
TK_TEST(store, keys_are_no_paths, "SM-STORE-01,SM-STORE-05", .max_ranks = 1) {
    static const char *const keys[] = {".",     "..",   "/",    "//",    "/etc", "../up", "a/../b",
                                       "a/./b", "a//b", "a/b/", "a/b",   "b",    "up",    "-",
                                       "a:b",   "A/b",  "a.b",  ".lock", ".tmp", "a/",    "a"};
    char path[4096], outside[4096];
    symmem_store *store = NULL;
    int before;
    TK_REQ(t, "SM-STORE-01");
    snprintf(outside, sizeof(outside), "%s/outside", t->scratch_dir);
    snprintf(path, sizeof(path), "%s/outside/store", t->scratch_dir);
    TK_REQUIRE(t, mkdir(outside, 0700) == 0);
    TK_REQUIRE_OK(t, symmem_store_open_file(path, &store));
    before = resources_count_entries(path);
    for (size_t i = 0; i < LENGTH(keys); i++)
        TK_OK(t, symmem_store_set(store, keys[i], &i, sizeof(i), LIMIT_MS));
    for (size_t i = 0; i < LENGTH(keys); i++)
        expect_value(t, store, keys[i], &i, sizeof(i));
    /* Beside the store's own directory nothing came up. */
    TK_EQ_INT(t, resources_count_entries(path) + 1, resources_count_entries(outside));
    for (size_t i = 0; i < LENGTH(keys); i++)
        TK_OK(t, symmem_store_remove(store, keys[i], LIMIT_MS));
    TK_CHECK(t, resources_count_entries(path) <= before + 1); /* a lock file may have come */
    symmem_store_close(store);
}
