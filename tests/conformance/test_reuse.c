/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that another group had before, pads of other sizes, and numbers that mean something
 * elsewhere: what belongs to one group, block or rank is no other's. */
#include "case_help.h"

/* --- memory that changes hands ---------------------------------------------------------------- */

struct life {
    size_t bytes;
    uint8_t byte;
};

/* Traffic inside a group over `ptr`; the link is left with a signal pending and its pad dirty. */
static void use_in_group(struct tk *t, symmem_group *group, void *ptr, struct life life) {
    symmem_handle *handle = tk_rendezvous(t, ptr, group);
    symmem_handle_info info = info_of(t, handle);
    int32_t next = (info.rank + 1) % info.world_size;
    int32_t previous = (info.rank + info.world_size - 1) % info.world_size;
    TK_EQ_SIZE(t, life.bytes, info.block_size);
    pad_expect(t, handle, 0);
    tk_fill(t, handle, next, 0, life.bytes, (uint8_t)(life.byte + info.rank));
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    tk_expect_bytes(t, handle, info.rank, 0, life.bytes, (uint8_t)(life.byte + previous));
    uint8_t beyond = 0;
    TK_FAILS(t, OUT_OF_RANGE, symmem_get(handle, next, life.bytes, &beyond, 1, NULL));
    tk_group_barrier(t, group); /* both are through: the next may be refused for poison */
    check_nothing_pending(t, handle, -1, 1);
    tk_group_barrier(t, group);
    TK_OK(t, symmem_handle_reset(handle, LONG_MS));
    TK_OK(t, symmem_put_signal(handle, next, 1, LONG_MS, NULL));
    pad_fill(t, handle, 0xFF);
    tk_group_barrier(t, group);
    tk_release(t, handle);
}

/* Where memory comes from: the context, or a pool. */
static void *take(struct tk *t, symmem_pool *pool, size_t bytes) {
    void *ptr = NULL;
    if (pool == NULL)
        TK_REQUIRE_OK(t, symmem_alloc(t->context, bytes, -1, NULL, &ptr));
    else
        TK_REQUIRE_OK(t, symmem_pool_alloc(pool, bytes, &ptr));
    return ptr;
}

static void give(struct tk *t, symmem_pool *pool, void *ptr) {
    TK_OK(t, pool == NULL ? symmem_free(t->context, ptr) : symmem_pool_free(pool, ptr));
}

/* The ranks 0 and 1 have the memory first, then 1 and 2, in another size, while rank 0 has its own
 * again for something else, which no other rank may touch. */
static void change_hands(struct tk *t, symmem_pool *pool) {
    const int32_t low[2] = {1, 0};
    const int32_t high[2] = {1, 2};
    bool in_low = t->rank < 2;
    symmem_group *first = in_low ? tk_group(t, "first", low, 2) : NULL;
    symmem_group *second = t->rank > 0 ? tk_group(t, "second", high, 2) : NULL;
    for (int i = 0; i < 2; i++) {
        struct life before = {4096, (uint8_t)(0x10 + i)};
        struct life after = {i % 2 ? 4096 : 3000, (uint8_t)(0x40 + i)};
        void *ptr = take(t, pool, before.bytes);
        if (in_low)
            use_in_group(t, first, ptr, before);
        give(t, pool, ptr);
        tk_out_of_band_barrier(t);
        ptr = take(t, pool, after.bytes);
        uint8_t bytes[3000];
        memset(bytes, 0xB6, sizeof(bytes));
        if (t->rank == 0)
            TK_OK(t, symmem_copy(t->context, ptr, bytes, sizeof(bytes), NULL));
        else
            use_in_group(t, second, ptr, after);
        tk_out_of_band_barrier(t);
        if (t->rank == 0)
            TK_OK(t, symmem_copy(t->context, bytes, ptr, sizeof(bytes), NULL));
        for (size_t k = 0; k < sizeof(bytes); k++)
            if (bytes[k] != 0xB6) {
                TK_CHECK_MSG(t, false, "byte %zu of a rank outside the group is 0x%02x", k,
                             bytes[k]);
                break;
            }
        give(t, pool, ptr);
        tk_out_of_band_barrier(t);
    }
}

TK_TEST(reuse, memory_changes_hands, "SM-RDV-19,SM-ALLOC-02,SM-SIGNAL-06,SM-HANDLE-09",
        .ranks = {3, 3}, .flags = TK_WRITES_PADS) {
    change_hands(t, NULL);
}

TK_TEST(reuse, blocks_change_hands, "SM-POOL-04,SM-POOL-08,SM-SIGNAL-06", .needs = SYMMEM_CAP_POOL,
        .ranks = {3, 3}, .flags = TK_WRITES_PADS) {
    symmem_pool *pool = NULL;
    TK_REQUIRE_OK(t, symmem_pool_create(t->context, -1, (size_t)1 << 16, &pool));
    change_hands(t, pool);
    TK_OK(t, symmem_pool_destroy(pool));
}

/* --- many channels ---------------------------------------------------------------------------- */

/* A pad much larger than usual: all its channels are there, and none is another one's. */
TK_TEST(reuse, channels_of_a_large_pad, "SM-SIGNAL-04,SM-HANDLE-04,SM-BARRIER-05", .ranks = {2, 4},
        .flags = TK_WRITES_PADS) {
    int32_t usual = info_of(t, tk_handle(t, 64, tk_world_group(t))).channel_count;
    TK_OK(t, symmem_set_signal_pad_size(t->context, (size_t)1 << 20));
    symmem_handle *handle = tk_handle(t, 1024, tk_world_group(t));
    TK_OK(t, symmem_set_signal_pad_size(t->context, 0));
    int32_t last = info_of(t, handle).channel_count - 1;
    const int32_t channels[] = {last, usual - 1, usual, 0, usual + 5, last - 1, 1 << 8, 1 << 12};
    enum { COUNT = TK_COUNT(channels) };
    TK_EQ_INT(t, ((size_t)1 << 18) / (size_t)t->world_size - 1, last);
    tk_fill(t, handle, t->rank, 0, 1024, 0x2B);
    pad_fill(t, handle, 0xB2);
    tk_out_of_band_barrier(t);
    for (int i = 0; i < COUNT; i++) /* each has room for one of its own */
        TK_OK(t, symmem_put_signal(handle, t->next, channels[i], 2000, NULL));
    for (int i = 0; i < COUNT; i++)
        barrier_holding(t, handle, channels[i], NULL, t->world_size, i % t->world_size,
                        (uint64_t)i + 1);
    for (int i = COUNT - 1; i >= 0; i--)
        TK_OK(t, symmem_wait_signal(handle, t->previous, channels[i], LONG_MS, NULL));
    TK_FAILS(t, OUT_OF_RANGE, symmem_put_signal(handle, t->next, last + 1, 50, NULL));
    tk_out_of_band_barrier(t);
    tk_expect_bytes(t, handle, t->rank, 0, 1024, 0x2B);
    pad_expect(t, handle, 0xB2);
    TK_OK(t, symmem_put_signal(handle, t->next, 5, 2000, NULL));
    tk_out_of_band_barrier(t);
    check_nothing_pending(t, handle, -1, usual + 5);
}

/* --- other people's numbers ------------------------------------------------------------------- */

/* A peer's memory as this rank sees it is not this rank's: nothing is translated twice. */
TK_TEST(reuse, peers_memory_is_not_ones_own, "SM-ALLOC-06,SM-ALLOC-07,SM-RDV-05",
        .needs = SYMMEM_CAP_DIRECT_ACCESS, .ranks = {2, 3}) {
    symmem_handle *handle = tk_handle(t, 4096, tk_world_group(t));
    symmem_handle *none = NULL;
    size_t bytes = 77;
    symmem_alloc_info info;
    void *const *buffers = buffers_of(t, handle);
    char *peer = buffers[t->next];
    for (size_t at = 0; at < 4096; at += 4095) {
        TK_CHECK_MSG(t, !is_symmetric(t, peer + at),
                     "byte %zu of a peer's memory counts as the own", at);
        TK_FAILS(t, NOT_SYMMETRIC, symmem_alloc_size(t->context, peer + at, &bytes));
        TK_FAILS(t, NOT_SYMMETRIC, symmem_alloc_query(t->context, peer + at, &info));
    }
    TK_FAILS(t, NOT_SYMMETRIC, symmem_free(t->context, peer));
    for (int32_t odd = 0; odd < t->world_size; odd++) {
        void *fresh = tk_alloc(t, 4096);
        TK_FAILS(t, NOT_SYMMETRIC,
                 symmem_rendezvous(t->context, t->rank == odd ? peer : fresh, tk_world_group(t),
                                   LONG_MS, &none));
        TK_EQ_INT(t, odd, last_record().failed_rank);
    }
    tk_fill(t, handle, t->next, 0, 4096, 0x19);
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    tk_expect_bytes(t, handle, t->rank, 0, 4096, 0x19);
}

/* In a group of two, the world's higher ranks do not exist. */
TK_TEST(reuse, world_ranks_are_none_of_a_group,
        "SM-SIGNAL-09,SM-ONESIDED-03,SM-VIEW-04,SM-HANDLE-06", .ranks = {3, 4},
        .flags = TK_WRITES_PADS) {
    const int32_t pair[2] = {t->last, 0};
    uint32_t word = 0x77777777u;
    const int64_t one = 1;
    if (t->rank != pair[0] && t->rank != pair[1])
        return;
    symmem_group *group = tk_group(t, "pair", pair, 2);
    symmem_handle *handle = tk_handle(t, 256, group);
    tk_fill(t, handle, info_of(t, handle).rank, 0, 256, 0x01);
    pad_fill(t, handle, 0x01);
    tk_group_barrier(t, group);
    for (int32_t rank = 2; rank <= t->world_size; rank++) {
        DLManagedTensor *tensor = NULL;
        int32_t global = 77;
        int fd = -2;
        TK_FAILS(t, OUT_OF_RANGE, symmem_put_signal(handle, rank, 0, 50, NULL));
        TK_FAILS(t, OUT_OF_RANGE, symmem_wait_signal(handle, rank, 0, 50, NULL));
        TK_FAILS(t, OUT_OF_RANGE, symmem_put(handle, rank, 0, &word, 4, NULL));
        TK_FAILS(t, OUT_OF_RANGE, symmem_get(handle, rank, 0, &word, 4, NULL));
        TK_FAILS(t, OUT_OF_RANGE,
                 symmem_get_buffer(handle, rank, 1, &one, SYMMEM_UINT8, 0, &tensor));
        TK_FAILS(t, OUT_OF_RANGE,
                 symmem_get_remote_tensor(handle, rank, 1, &one, SYMMEM_UINT8, 0, &tensor));
        TK_FAILS(t, OUT_OF_RANGE,
                 symmem_get_signal_pad(handle, rank, 0, NULL, SYMMEM_UINT32, 0, &tensor));
        TK_FAILS(t, OUT_OF_RANGE, symmem_handle_global_rank(handle, rank, &global));
        TK_FAILS(t, OUT_OF_RANGE, symmem_group_global_rank(group, rank, &global));
        TK_FAILS(t, OUT_OF_RANGE, symmem_group_send_fd(group, rank, -1, 50));
        TK_FAILS(t, OUT_OF_RANGE, symmem_group_recv_fd(group, rank, &fd, 50));
        TK_CHECK(t, tensor == NULL && fd == -2 && global == 77 && word == 0x77777777u);
    }
    tk_group_barrier(t, group);
    tk_expect_bytes(t, handle, info_of(t, handle).rank, 0, 256, 0x01);
    pad_expect(t, handle, 0x01);
    ring_signal(t, handle, 0);
}
