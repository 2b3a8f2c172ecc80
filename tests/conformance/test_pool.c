/* SPDX-License-Identifier: BSD-3-Clause */
/* The pool: placement, rendezvous of blocks, isolation, reuse, the plug-in pair. */
#include "case_help.h"

enum { SEGMENT = 1 << 20 };

static symmem_pool *pool_begin(struct tk *t) {
    symmem_pool *pool = NULL;
    TK_REQUIRE_OK(t, symmem_pool_create(t->context, own_device(t), SEGMENT, &pool));
    return pool;
}

static void *block(struct tk *t, symmem_pool *pool, size_t bytes) {
    void *ptr = NULL;
    TK_REQUIRE_OK(t, symmem_pool_alloc(pool, bytes, &ptr));
    return ptr;
}

static symmem_pool_stats stats_of(struct tk *t, symmem_pool *pool) {
    symmem_pool_stats stats;
    memset(&stats, 0, sizeof(stats));
    TK_OK(t, symmem_pool_get_stats(pool, &stats));
    return stats;
}

/* Blocks, handles and pool are given back in this order. */
static void pool_end(struct tk *t, symmem_pool *pool, void *const *blocks, int count) {
    for (int i = 0; i < count; i++)
        TK_OK(t, symmem_pool_free(pool, blocks[i]));
    TK_OK(t, symmem_pool_destroy(pool));
}

/* --- placement -------------------------------------------------------------------------------- */

TK_TEST(pool, blocks_are_disjoint, "SM-POOL-01", .needs = SYMMEM_CAP_POOL, .max_ranks = 4) {
    static const size_t sizes[] = {1, 255, 256, 257, 4096, 100000, 3, 65536, 12345, 1};
    enum { COUNT = TK_COUNT(sizes) };
    symmem_pool *pool = pool_begin(t);
    void *blocks[COUNT];
    for (int i = 0; i < COUNT; i++) {
        symmem_alloc_info info;
        blocks[i] = block(t, pool, sizes[i]);
        TK_EQ_INT(t, 0, (uintptr_t)blocks[i] % SYMMEM_ALIGNMENT);
        for (int k = 0; k < i; k++)
            TK_CHECK_MSG(t,
                         (char *)blocks[i] >= (char *)blocks[k] + sizes[k] ||
                             (char *)blocks[k] >= (char *)blocks[i] + sizes[i],
                         "blocks %d and %d overlap", k, i);
        TK_OK(t, symmem_alloc_query(t->context, (char *)blocks[i] + sizes[i] - 1, &info));
        TK_EQ_PTR(t, blocks[i], info.base);
        TK_EQ_SIZE(t, sizes[i], info.bytes);
        TK_CHECK(t, info.is_pool_block != 0);
        TK_CHECK(t, is_symmetric(t, blocks[i]));
    }
    symmem_pool_stats stats = stats_of(t, pool);
    TK_EQ_SIZE(t, COUNT, stats.block_count);
    TK_EQ_SIZE(t, 1, stats.segment_count);
    TK_CHECK(t, stats.segment_bytes >= SEGMENT && stats.used_bytes <= stats.segment_bytes);
    pool_end(t, pool, blocks, COUNT);
}

/* The same calls give the same offsets on every rank, with frees in between. */
TK_TEST(pool, same_calls_same_offsets, "SM-POOL-01,SM-POOL-02", .needs = SYMMEM_CAP_POOL,
        .max_ranks = 4) {
    enum { COUNT = 12 };
    symmem_pool *pool = pool_begin(t);
    void *blocks[COUNT];
    int64_t offsets[COUNT];
    int64_t *all = tk_scratch(t, (size_t)t->world_size * sizeof(offsets));
    void *noise = tk_alloc(t, 256 * (size_t)(t->rank + 1)); /* addresses differ, offsets do not */
    TK_CHECK(t, noise != NULL);
    for (int i = 0; i < COUNT; i++) {
        blocks[i] = block(t, pool, (size_t)(i * 700 + 1));
        if (i % 4 == 3) {
            TK_OK(t, symmem_pool_free(pool, blocks[i - 2]));
            blocks[i - 2] = block(t, pool, 300);
        }
    }
    for (int i = 0; i < COUNT; i++) {
        symmem_handle *handle = tk_rendezvous(t, blocks[i], tk_world_group(t));
        offsets[i] = (int64_t)info_of(t, handle).offset;
        tk_release(t, handle);
    }
    TK_OK(t, symmem_group_all_gather(tk_world_group(t), offsets, sizeof(offsets), all, LONG_MS));
    for (int32_t r = 0; r < t->world_size; r++)
        TK_CHECK(t, memcmp(all + (size_t)r * COUNT, offsets, sizeof(offsets)) == 0);
    pool_end(t, pool, blocks, COUNT);
}

TK_TEST(pool, large_request_is_served, "SM-POOL-07", .needs = SYMMEM_CAP_POOL, .max_ranks = 4) {
    symmem_pool *pool = pool_begin(t);
    void *blocks[3];
    blocks[0] = block(t, pool, 1000);
    blocks[1] = block(t, pool, 3 * SEGMENT + 17);
    blocks[2] = block(t, pool, SEGMENT);
    symmem_handle *handle = tk_rendezvous(t, blocks[1], tk_world_group(t));
    TK_EQ_SIZE(t, 3 * SEGMENT + 17, info_of(t, handle).block_size);
    tk_fill(t, handle, t->next, 3 * SEGMENT, 17, 0x4B);
    tk_out_of_band_barrier(t);
    tk_expect_bytes(t, handle, t->rank, 3 * SEGMENT, 17, 0x4B);
    TK_CHECK(t, stats_of(t, pool).segment_count >= 2);
    tk_release(t, handle);
    pool_end(t, pool, blocks, 3);
}

/* --- rendezvous ------------------------------------------------------------------------------- */

TK_TEST(pool, blocks_rendezvous, "SM-POOL-02,SM-HANDLE-05", .needs = SYMMEM_CAP_POOL,
        .max_ranks = 4) {
    enum { BYTES = 5000, INSIDE = 512 };
    symmem_pool *pool = pool_begin(t);
    void *blocks[2] = {block(t, pool, 1000), NULL};
    blocks[1] = block(t, pool, BYTES);
    symmem_handle *first = tk_rendezvous(t, blocks[0], tk_world_group(t));
    symmem_handle *second = tk_rendezvous(t, blocks[1], tk_world_group(t));
    symmem_handle *inside = tk_rendezvous(t, (char *)blocks[1] + INSIDE, tk_world_group(t));
    uint8_t data[BYTES];
    memset(data, 0x20 + t->rank, BYTES);
    void *const *bases = buffers_of(t, second);
    TK_EQ_SIZE(t, (size_t)((char *)blocks[1] - (char *)bases[t->rank]), info_of(t, second).offset);
    TK_EQ_SIZE(t, info_of(t, second).offset + INSIDE, info_of(t, inside).offset);
    TK_EQ_SIZE(t, BYTES, info_of(t, second).block_size);
    TK_OK(t, symmem_put(second, t->next, 0, data, BYTES, NULL));
    TK_FAILS(t, OUT_OF_RANGE, symmem_put(second, t->next, 1, data, BYTES, NULL));
    TK_FAILS(t, OUT_OF_RANGE, symmem_put(inside, t->next, BYTES - INSIDE, data, 1, NULL));
    TK_OK(t, symmem_barrier(second, 0, LONG_MS, NULL));
    tk_expect_bytes(t, second, t->rank, 0, BYTES, (uint8_t)(0x20 + t->previous));
    tk_expect_bytes(t, inside, t->rank, 0, BYTES - INSIDE, (uint8_t)(0x20 + t->previous));
    tk_expect_bytes(t, first, t->rank, 0, 1000, 0);
    tk_release(t, first);
    tk_release(t, second);
    tk_release(t, inside);
    pool_end(t, pool, blocks, 2);
}

TK_TEST(pool, blocks_are_isolated, "SM-POOL-03,SM-HANDLE-11,SM-SIGNAL-06", .needs = SYMMEM_CAP_POOL,
        .ranks = {2, 4}, .flags = TK_WRITES_PADS) {
    symmem_pool *pool = pool_begin(t);
    void *blocks[2] = {block(t, pool, 1000), NULL};
    blocks[1] = block(t, pool, 1000);
    symmem_handle *first = tk_rendezvous(t, blocks[0], tk_world_group(t));
    symmem_handle *second = tk_rendezvous(t, blocks[1], tk_world_group(t));
    pad_fill(t, first, 0x11);
    pad_expect(t, second, 0);
    pad_fill(t, second, 0x22);
    pad_expect(t, first, 0x11);
    tk_out_of_band_barrier(t);
    TK_OK(t, symmem_put_signal(first, t->next, 0, LONG_MS, NULL));
    /* Arrivals at the second block's barrier are none at the first one's, and the reverse. */
    barrier_holding(t, second, 0, NULL, t->world_size, 0, 1);
    barrier_holding(t, first, 0, NULL, t->world_size, t->last, 2);
    check_nothing_pending(t, second, -1, 0);
    TK_OK(t, symmem_wait_signal(first, t->previous, 0, LONG_MS, NULL));
    pad_expect(t, first, 0x11);
    pad_expect(t, second, 0x22);
    tk_release(t, first);
    tk_release(t, second);
    pool_end(t, pool, blocks, 2);
}

/* What another block's rendezvous has mapped serves the second block: pointers are the same. */
TK_TEST(pool, mapping_is_reused, "SM-POOL-08", .needs = SYMMEM_CAP_POOL, .max_ranks = 4) {
    symmem_pool *pool = pool_begin(t);
    void *blocks[2] = {block(t, pool, 1000), NULL};
    blocks[1] = block(t, pool, 2000);
    symmem_handle *handles[2];
    void *const *ptrs[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++) {
        handles[i] = tk_rendezvous(t, blocks[i], tk_world_group(t));
        TK_OK(t, symmem_handle_buffer_ptrs(handles[i], &ptrs[i]));
    }
    for (int32_t r = 0; r < t->world_size; r++)
        TK_EQ_PTR(t, ptrs[0][r], ptrs[1][r]);
    tk_release(t, handles[0]);
    tk_fill(t, handles[1], t->next, 0, 2000, 0x66);
    tk_out_of_band_barrier(t);
    tk_expect_bytes(t, handles[1], t->rank, 0, 2000, 0x66);
    tk_release(t, handles[1]);
    pool_end(t, pool, blocks, 2);
}

/* Every rank's block is reached where it is. */
static void meet_once(struct tk *t, symmem_pool *pool, uint8_t value) {
    enum { BYTES = 1000 };
    void *ptr = block(t, pool, BYTES);
    symmem_handle *handle = tk_rendezvous(t, ptr, tk_world_group(t));
    tk_fill(t, handle, t->next, 0, BYTES, (uint8_t)(value + t->rank));
    tk_out_of_band_barrier(t);
    tk_expect_bytes(t, handle, t->rank, 0, BYTES, (uint8_t)(value + t->previous));
    tk_out_of_band_barrier(t);
    tk_release(t, handle);
    TK_OK(t, symmem_pool_free(pool, ptr));
}

/* Pools are local: the last rank makes its own anew, and ranks come with a block of one of two. */
TK_TEST(pool, segments_of_before, "SM-POOL-10", .needs = SYMMEM_CAP_POOL, .ranks = {2, 4}) {
    symmem_pool *pools[2] = {pool_begin(t), pool_begin(t)};
    meet_once(t, pools[0], 0x10);
    meet_once(t, pools[1], 0x20);
    meet_once(t, pools[t->rank % 2], 0x30);
    if (t->rank == t->last) {
        TK_OK(t, symmem_pool_destroy(pools[0]));
        pools[0] = pool_begin(t);
    }
    meet_once(t, pools[0], 0x40);
    for (int i = 0; i < 2; i++)
        TK_OK(t, symmem_pool_destroy(pools[i]));
}

/* --- reuse ------------------------------------------------------------------------------------ */

/* One life of a block, left with a signal pending and its pad written to. */
static void *one_life(struct tk *t, symmem_pool *pool, size_t bytes, uint32_t generation) {
    void *ptr = block(t, pool, bytes);
    symmem_handle *handle = tk_rendezvous(t, ptr, tk_world_group(t));
    uint32_t own = word_of(t->rank, generation, 0);
    uint32_t expected = word_of(t->next, generation, 0);
    pad_expect(t, handle, 0);
    tk_write(t, handle, t->rank, bytes - 4, &own, 4);
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    tk_expect_data(t, handle, t->next, bytes - 4, &expected, 4);
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    barrier_holding(t, handle, 0, NULL, t->world_size, (int32_t)generation % t->world_size,
                    generation);
    /* A signal of the life before would satisfy this; it poisons this life's link only. */
    check_nothing_pending(t, handle, -1, 1);
    tk_out_of_band_barrier(t);
    TK_OK(t, symmem_handle_reset(handle, LONG_MS));
    TK_OK(t, symmem_put_signal(handle, t->next, 1, LONG_MS, NULL));
    pad_fill(t, handle, 0xFF);
    tk_group_barrier(t, tk_world_group(t));
    tk_release(t, handle);
    TK_OK(t, symmem_pool_free(pool, ptr));
    return ptr;
}

TK_PORTED(test_mempool_recycled_alloc_signal_pad, "SM-POOL-04", .needs = SYMMEM_CAP_POOL,
          .ranks = {2, 4}, .flags = TK_WRITES_PADS) {
    symmem_pool *pool = pool_begin(t);
    void *first = one_life(t, pool, 4096, 1);
    for (uint32_t life = 2; life <= 4; life++)
        TK_EQ_PTR(t, first, one_life(t, pool, 4096, life));
    TK_EQ_SIZE(t, 1, stats_of(t, pool).segment_count);
    TK_OK(t, symmem_pool_destroy(pool));
}

TK_PORTED(test_mempool_large_alloc_barrier, "SM-POOL-04,SM-POOL-07", .needs = SYMMEM_CAP_POOL,
          .ranks = {2, 4}, .flags = TK_WRITES_PADS) {
    symmem_pool *pool = pool_begin(t);
    for (uint32_t life = 1; life <= 2; life++)
        (void)one_life(t, pool, 16u << 20, life);
    TK_OK(t, symmem_pool_destroy(pool));
}

TK_PORTED(test_mempool_storage_reuse, "SM-POOL-04", .needs = SYMMEM_CAP_POOL, .max_ranks = 4) {
    symmem_pool *pool = pool_begin(t);
    void *keep = block(t, pool, 4096);
    void *first = block(t, pool, 4096);
    void *behind = block(t, pool, 4096);
    TK_OK(t, symmem_pool_free(pool, first));
    void *again = block(t, pool, 4096);
    TK_EQ_PTR(t, first, again);
    /* Merged neighbors serve a request of both their sizes. */
    TK_OK(t, symmem_pool_free(pool, again));
    TK_OK(t, symmem_pool_free(pool, behind));
    void *both = block(t, pool, 8192);
    TK_EQ_PTR(t, first, both);
    TK_EQ_SIZE(t, 1, stats_of(t, pool).segment_count);
    void *blocks[2] = {keep, both};
    pool_end(t, pool, blocks, 2);
}

/* --- the pair for pluggable allocators -------------------------------------------------------- */

static void *unbound_thread(void *arg) {
    struct tk *t = arg;
    symmem_clear_error();
    TK_CHECK(t, symmem_pool_malloc(64, own_device(t), NULL) == NULL);
    TK_CHECK(t, last_record().status != SYMMEM_OK);
    return NULL;
}

TK_TEST(pool, malloc_pair_uses_the_bound_pool, "SM-POOL-06", .needs = SYMMEM_CAP_POOL,
        .max_ranks = 4) {
    symmem_pool *pool = pool_begin(t);
    int32_t device = own_device(t);
    const int32_t devices = device_count(t);
    pthread_t thread;
    (void)unbound_thread(t);
    symmem_pool_bind(pool);
    void *ptr = symmem_pool_malloc(1000, device, NULL);
    TK_CHECK(t, ptr != NULL);
    TK_CHECK(t, is_symmetric(t, ptr));
    TK_EQ_SIZE(t, 1, stats_of(t, pool).block_count);
    symmem_clear_error();
    TK_CHECK(t, symmem_pool_malloc(64, device + devices, NULL) == NULL); /* another device */
    TK_CHECK(t, last_record().status != SYMMEM_OK);
    if (TK_CHECK(t, pthread_create(&thread, NULL, unbound_thread, t) == 0))
        TK_CHECK(t, pthread_join(thread, NULL) == 0); /* the binding is this thread's own */
    symmem_handle *handle = tk_rendezvous(t, ptr, tk_world_group(t));
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    tk_release(t, handle);
    symmem_pool_mfree(ptr, 1000, device, NULL);
    TK_EQ_SIZE(t, 0, stats_of(t, pool).block_count);
    symmem_pool_bind(NULL);
    (void)unbound_thread(t);
    TK_OK(t, symmem_pool_destroy(pool));
}
