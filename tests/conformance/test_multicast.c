/* SPDX-License-Identifier: BSD-3-Clause */
/* Multicast: forbidding it, reach, reduction, fallback, slots. */
#include "case_help.h"

#define MULTICAST SYMMEM_CAP_MULTICAST

static bool query(struct tk *t) {
    bool supported = false;
    TK_OK(t, symmem_has_multicast_support(t->context, t->device_type, own_device(t), &supported));
    return supported;
}

/* --- without multicast ------------------------------------------------------------------------ */

static void check_works_without(struct tk *t) {
    symmem_handle *handle = tk_handle(t, 1024, tk_world_group(t));
    uint32_t words[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    uint32_t sums[8] = {0};
    TK_CHECK(t, !query(t));
    TK_EQ_PTR(t, NULL, info_of(t, handle).multicast_ptr);
    TK_FAILS(t, UNSUPPORTED, symmem_multimem_store(handle, 0, words, 32, NULL));
    TK_FAILS(t, UNSUPPORTED,
             symmem_multimem_ld_reduce(handle, 0, sums, 8, SYMMEM_INT32, SYMMEM_SUM, NULL));
    for (int i = 0; i < 8; i++)
        TK_EQ_INT(t, 0, sums[i]);
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    tk_expect_bytes(t, handle, t->rank, 0, 1024, 0);
    ring_signal(t, handle, 0);
    TK_OK(t, symmem_barrier(handle, 1, LONG_MS, NULL));
    tk_write(t, handle, t->next, 64, words, 32);
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    tk_expect_data(t, handle, t->rank, 64, words, 32);
}

TK_TEST(multicast, forbidden_by_option, "SM-MCAST-01,SM-MCAST-02", .max_ranks = 4) {
    TK_REINIT(t, options.multicast = 0);
    check_works_without(t);
}

TK_TEST(multicast, forbidden_by_environment, "SM-MCAST-01,SM-MCAST-02", .max_ranks = 2,
        .flags = TK_PROCESS_ONLY /* threads share their environment */) {
    const char *const names[2] = {"TORCH_SYMM_MEM_DISABLE_MULTICAST", "SYMMEM_MULTICAST"};
    const char *const forbid[2] = {"1", "0"};
    char *users[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++) {
        users[i] = getenv(names[i]) != NULL ? strdup(getenv(names[i])) : NULL;
        TK_REQUIRE(t, unsetenv(names[i]) == 0);
    }
    TK_REINIT(t, options.multicast = -1);
    bool before = query(t);
    for (int i = 0; i < 2; i++) {
        TK_REQUIRE(t, setenv(names[i], forbid[i], 1) == 0);
        check_works_without(t);
        TK_REQUIRE(t, unsetenv(names[i]) == 0);
        TK_CHECK_MSG(t, query(t) == before, "%s is remembered", names[i]);
        TK_CHECK(t, query(t) == before);
    }
    for (int i = 0; i < 2; i++) {
        TK_CHECK(t, users[i] == NULL || setenv(names[i], users[i], 1) == 0);
        free(users[i]);
    }
}

/* Forbidden on one rank: none has a pointer, and all the rest works. */
TK_TEST(multicast, one_rank_without, "SM-MCAST-05,SM-MCAST-02", .needs = MULTICAST,
        .ranks = {2, 4}) {
    for (int32_t odd = 0; odd < t->world_size; odd++) {
        TK_REINIT(t, options.multicast = t->rank == odd ? 0 : 1);
        symmem_handle *handle = tk_handle(t, 1024, tk_world_group(t));
        uint32_t word = 1;
        TK_EQ_PTR(t, NULL, info_of(t, handle).multicast_ptr);
        TK_FAILS(t, UNSUPPORTED, symmem_multimem_store(handle, 0, &word, 4, NULL));
        TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
        tk_expect_bytes(t, handle, t->rank, 0, 1024, 0);
        tk_out_of_band_barrier(t);
    }
}

/* --- reach ------------------------------------------------------------------------------------ */

static void store_on_shape(struct tk *t, symmem_group *group, const struct tk_shape *shape,
                           void *arg) {
    bool *seen_p = arg;
    enum { BYTES = 4096, AT = 512, COUNT = 260 };
    symmem_handle *handle = tk_handle(t, BYTES, group);
    uint8_t data[COUNT];
    *seen_p = *seen_p || info_of(t, handle).multicast_ptr != NULL;
    for (int32_t writer = 0; writer < shape->count; writer++) {
        tk_fill(t, handle, shape->rank, 0, BYTES, 0x33);
        tk_group_barrier(t, group);
        memset(data, 0x80 + writer, COUNT);
        if (shape->rank == writer && info_of(t, handle).multicast_ptr != NULL)
            TK_OK(t, symmem_multimem_store(handle, AT, data, COUNT, NULL));
        else if (shape->rank == writer) /* a group of one may go without */
            TK_FAILS(t, UNSUPPORTED, symmem_multimem_store(handle, AT, data, COUNT, NULL));
        tk_group_barrier(t, group);
        if (info_of(t, handle).multicast_ptr != NULL) {
            tk_expect_bytes(t, handle, shape->rank, 0, AT, 0x33);
            tk_expect_data(t, handle, shape->rank, AT, data, COUNT);
            tk_expect_bytes(t, handle, shape->rank, AT + COUNT, BYTES - AT - COUNT, 0x33);
        } else {
            tk_expect_bytes(t, handle, shape->rank, 0, BYTES, 0x33);
        }
        tk_group_barrier(t, group);
    }
}

ON_MULTICAST(multicast, store_reaches_exactly, "SM-MCAST-03", .needs = MULTICAST, .ranks = {2, 5}) {
    bool seen = false;
    tk_for_each_group_shape(t, store_on_shape, &seen);
    TK_CHECK_MSG(t, seen, "no group had a multicast pointer");
}

/* One block on the world and on a subset: a store through the subset stays inside it. */
ON_MULTICAST(multicast, store_stays_in_its_group, "SM-MCAST-03", .needs = MULTICAST,
             .ranks = {3, 5}) {
    int32_t ranks[2] = {t->last, 0};
    bool member = t->rank == ranks[0] || t->rank == ranks[1];
    void *ptr = tk_alloc(t, 1024);
    symmem_handle *world = tk_rendezvous(t, ptr, tk_world_group(t));
    TK_CHECK(t, info_of(t, world).multicast_ptr != NULL);
    if (member) {
        symmem_handle *pair = tk_rendezvous(t, ptr, tk_group(t, "pair", ranks, 2));
        uint8_t data[64];
        memset(data, 0x7E, sizeof(data));
        TK_CHECK(t, info_of(t, pair).multicast_ptr != NULL);
        if (t->rank == 0)
            TK_OK(t, symmem_multimem_store(pair, 128, data, sizeof(data), NULL));
    }
    tk_out_of_band_barrier(t);
    tk_expect_bytes(t, world, t->rank, 128, 64, member ? 0x7E : 0);
    tk_expect_bytes(t, world, t->rank, 0, 128, 0);
}

/* Several buffers at once, and handles with an offset. */
ON_MULTICAST(multicast, several_buffers_and_offsets, "SM-MCAST-07,SM-HANDLE-05", .needs = MULTICAST,
             .ranks = {2, 4}) {
    enum { BLOCKS = 3, BYTES = 4096, AT = 1024 };
    uint8_t *ptrs[BLOCKS];
    symmem_handle *whole[BLOCKS];
    uint8_t data[96];
    for (int i = 0; i < BLOCKS; i++) {
        ptrs[i] = tk_alloc(t, BYTES);
        whole[i] = tk_rendezvous(t, ptrs[i], tk_world_group(t));
    }
    for (int i = 0; i < BLOCKS; i++) {
        symmem_handle *part = tk_rendezvous(t, ptrs[i] + AT, tk_world_group(t));
        symmem_handle_info info = info_of(t, part);
        TK_EQ_PTR(t, (char *)info_of(t, whole[i]).multicast_ptr + AT, info.multicast_ptr);
        memset(data, 0x50 + i, sizeof(data));
        if (t->rank == i % t->world_size)
            TK_OK(t, symmem_multimem_store(part, 256, data, sizeof(data), NULL));
        uint32_t ones[4] = {1, 1, 1, 1};
        tk_write(t, whole[i], t->rank, 0, ones, sizeof(ones));
    }
    tk_out_of_band_barrier(t);
    for (int i = 0; i < BLOCKS; i++) {
        uint32_t sums[4] = {0};
        memset(data, 0x50 + i, sizeof(data));
        tk_expect_data(t, whole[i], t->rank, AT + 256, data, sizeof(data));
        tk_expect_bytes(t, whole[i], t->rank, 16, AT + 240, 0);
        tk_expect_bytes(t, whole[i], t->rank, AT + 352, BYTES - AT - 352, 0);
        TK_OK(t, symmem_multimem_ld_reduce(whole[i], 0, sums, 4, SYMMEM_INT32, SYMMEM_SUM, NULL));
        for (int k = 0; k < 4; k++)
            TK_EQ_INT(t, t->world_size, sums[k]);
    }
}

/* --- reduction -------------------------------------------------------------------------------- */

ON_MULTICAST(multicast, load_reduce_int32, "SM-MCAST-04", .needs = MULTICAST, .ranks = {2, 8}) {
    enum { COUNT = 250, AT = 64 };
    symmem_handle *handle = tk_handle(t, 4096, tk_world_group(t));
    uint32_t values[COUNT];
    uint32_t sums[COUNT + 1];
    for (uint32_t i = 0; i < COUNT; i++)
        values[i] = (uint32_t)(t->rank + 1) * 1000003u + i * 7;
    tk_write(t, handle, t->rank, AT, values, sizeof(values));
    memset(sums, 0xEE, sizeof(sums));
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    TK_OK(t, symmem_multimem_ld_reduce(handle, AT, sums, COUNT, SYMMEM_INT32, SYMMEM_SUM, NULL));
    uint32_t wrong = 0;
    for (uint32_t i = 0; i < COUNT; i++) {
        uint32_t expected = 0;
        for (int32_t r = 0; r < t->world_size; r++)
            expected += (uint32_t)(r + 1) * 1000003u + i * 7;
        wrong += sums[i] != expected;
    }
    TK_EQ_INT(t, 0, wrong);
    TK_EQ_INT(t, 0xEEEEEEEEll, sums[COUNT]);
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    tk_expect_data(t, handle, t->rank, AT, values, sizeof(values));
}

/* Floats that are whole numbers: exact in any order of summation. */
ON_MULTICAST(multicast, load_reduce_float32, "SM-MCAST-04", .needs = MULTICAST, .ranks = {2, 8}) {
    enum { COUNT = 64 };
    symmem_handle *handle = tk_handle(t, 4096, tk_world_group(t));
    float values[COUNT];
    float sums[COUNT] = {0};
    for (int i = 0; i < COUNT; i++)
        values[i] = (float)((t->rank + 1) * (i + 1));
    tk_write(t, handle, t->rank, 0, values, sizeof(values));
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    TK_OK(t, symmem_multimem_ld_reduce(handle, 0, sums, COUNT, SYMMEM_FLOAT32, SYMMEM_SUM, NULL));
    int factor = t->world_size * (t->world_size + 1) / 2;
    for (int i = 0; i < COUNT; i++)
        TK_CHECK(t, sums[i] == (float)(factor * (i + 1)));
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
}

/* --- slots ------------------------------------------------------------------------------------ */

TK_TEST(multicast, slots_run_out, "SM-MCAST-06", .needs = MULTICAST, .ranks = {2, 4},
        .flags = TK_PROCESS_ONLY | TK_SETS_ENVIRONMENT, /* threads share their environment */
        .timeout_s = 60) {
    enum { MAX = 200 };
    symmem_handle *handles[MAX];
    void *ptrs[MAX];
    int count = 0;
    /* The emulation's slots can be counted down; other backends do not look at this. */
    TK_REQUIRE(t, setenv("SYMMEM_SHM_MULTICAST_SLOTS", "3", 1) == 0);
    if (!multicast_allowed(t))
        return;
    bool exhausted = false;
    while (count < MAX && !exhausted) {
        ptrs[count] = tk_alloc(t, 4096);
        handles[count] = tk_rendezvous(t, ptrs[count], tk_world_group(t));
        exhausted = info_of(t, handles[count++]).multicast_ptr == NULL;
    }
    TK_CHECK_MSG(t, count > 1, "not one block had a multicast pointer");
    if (!exhausted) {
        tk_unresolved(t, "%d blocks do not use up the multicast slots", count);
        return;
    }
    symmem_handle *without = handles[count - 1];
    uint32_t word = 5;
    TK_FAILS(t, UNSUPPORTED, symmem_multimem_store(without, 0, &word, 4, NULL));
    TK_OK(t, symmem_barrier(without, 0, LONG_MS, NULL));
    ring_signal(t, without, 1);
    for (int round = 0; round < 3; round++) {
        tk_release(t, handles[0]);
        tk_free(t, ptrs[0]);
        tk_out_of_band_barrier(t);
        ptrs[0] = tk_alloc(t, 4096);
        handles[0] = tk_rendezvous(t, ptrs[0], tk_world_group(t));
        TK_CHECK_MSG(t, info_of(t, handles[0]).multicast_ptr != NULL, "the slot is not back");
    }
}

/* --- PyTorch's multicast barrier beside a signal ------------------------------------ */

PORTED_ON_MULTICAST(test_multimem_barrier_after_signal, "SM-BARRIER-04", .needs = MULTICAST,
                    .ranks = {2, 4}) {
    symmem_handle *handle = tk_handle(t, 256, tk_world_group(t));
    int32_t last = info_of(t, handle).channel_count - 1;
    TK_CHECK(t, info_of(t, handle).multicast_ptr != NULL);
    for (int i = 0; i < 2; i++) {
        int32_t channel = i ? last : 0;
        TK_OK(t, symmem_put_signal(handle, t->next, channel, LONG_MS, NULL));
        barrier_holding(t, handle, channel, NULL, t->world_size, i, (uint64_t)i + 1);
        for (int k = 0; k < 3; k++)
            TK_OK(t, symmem_barrier(handle, channel, LONG_MS, NULL));
        TK_OK(t, symmem_wait_signal(handle, t->previous, channel, LONG_MS, NULL));
        TK_OK(t, symmem_barrier(handle, channel, LONG_MS, NULL));
    }
    check_nothing_pending(t, handle, -1, last);
}
