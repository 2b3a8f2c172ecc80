/* SPDX-License-Identifier: BSD-3-Clause */
/* Pools: failures, life, and the pair for pluggable allocators. */
#include "unit.h"
#include "stream/channel.h"
#include "memory/block.h"

#include <time.h>

static void expect_stats(symmem_pool *pool, size_t segments, size_t bytes, size_t used,
                         size_t blocks) {
    symmem_pool_stats stats;
    EXPECT_OK(symmem_pool_get_stats(pool, &stats));
    CU_ASSERT_EQUAL(stats.segment_count, segments);
    CU_ASSERT_EQUAL(stats.segment_bytes, bytes);
    CU_ASSERT_EQUAL(stats.used_bytes, used);
    CU_ASSERT_EQUAL(stats.block_count, blocks);
}

/* Processor time of calls among so many blocks and allocations with ids, the least of some tries.
 */
static uint64_t cost_ns(symmem_context *context, symmem_pool *pool, char *const *kept,
                        size_t count) {
    uint64_t least = UINT64_MAX;
    symmem_alloc_options id;
    symmem_alloc_options_init(&id);
    for (int try = 0; try < 5; try++) {
        struct timespec begin, end;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
        for (size_t i = 0; i < 200; i++) {
            size_t bytes = 0;
            void *ptr = NULL, *block = NULL;
            id.alloc_id = 1 + i * 7919 % count;
            EXPECT_OK(symmem_alloc_size(context, kept[i * 7919 % count], &bytes));
            EXPECT_OK(symmem_pool_alloc(pool, 512, &block));
            EXPECT_OK(symmem_pool_free(pool, block));
            EXPECT_OK(symmem_alloc(context, 8, 0, &id, &ptr));
            EXPECT_OK(symmem_free(context, ptr));
        }
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
        uint64_t ns = (uint64_t)((end.tv_sec - begin.tv_sec) * 1000000000 + end.tv_nsec) -
                      (uint64_t)begin.tv_nsec;
        least = ns < least ? ns : least;
    }
    return least;
}

/* What is kept is no part of the cost; looking through it would be many times as much. */
TEST("many") {
    enum { FEW = 10, MANY = 4000 };
    static char *kept[MANY];
    symmem_context *context = unit_context(FAKE_CAPABILITIES);
    symmem_pool *pool = NULL;
    symmem_alloc_options id;
    uint64_t of_few = 0;
    symmem_alloc_options_init(&id);
    EXPECT_OK(symmem_pool_create(context, 0, (size_t)MANY / 2 * 512, &pool));
    for (size_t i = 0; i < MANY; i++) {
        void *ptr = NULL;
        id.alloc_id = i + 1;
        EXPECT_OK(symmem_alloc(context, 8, 0, &id, &ptr));
        EXPECT_OK(symmem_free(context, ptr));
        EXPECT_OK(symmem_pool_alloc(pool, 512, (void **)&kept[i]));
        if (i + 1 == FEW)
            of_few = cost_ns(context, pool, kept, FEW);
    }
    uint64_t of_many = cost_ns(context, pool, kept, MANY);
    CU_ASSERT(of_many < 4 * of_few);
    if (of_many >= 4 * of_few)
        printf("%llu ns, and %llu with ten\n", (unsigned long long)of_many,
               (unsigned long long)of_few);
    unit_end(context);
}

static symmem_status point_finalizes(void *arg, const char *point) {
    if (strcmp(point, "alloc.before") == 0)
        return SYMMEM_OK;
    symmem_context *context = arg;
    context->point = NULL;
    CU_ASSERT_EQUAL(symmem_finalize(context), SYMMEM_OK);
    return SYMMEM_OK;
}

TEST("failures") {
    symmem_context *context = unit_context(FAKE_CAPABILITIES);
    symmem_pool *pool = NULL;
    void *ptr = NULL;
    EXPECT_OK(symmem_pool_create(context, 0, 4096, &pool));
    fake.alloc_fails = SYMMEM_NO_SPACE;
    EXPECT_FAIL(symmem_pool_alloc(pool, 1, &ptr), SYMMEM_NO_SPACE, "pool_alloc");
    expect_stats(pool, 0, 0, 0, 0);
    fake.alloc_fails = SYMMEM_OK;
    atomic_store(&context->captures, 1);
    EXPECT_FAIL(symmem_pool_alloc(pool, 1, &ptr), SYMMEM_CAPTURE, "pool_alloc");
    atomic_store(&context->captures, 0);
    EXPECT_OK(symmem_pool_alloc(pool, 1, &ptr));
    atomic_store(&context->captures, 1); /* no new memory is needed */
    EXPECT_OK(symmem_pool_alloc(pool, 1, &ptr));
    atomic_store(&context->captures, 0);
    context->point_arg = context;
    context->point = point_finalizes;
    EXPECT_FAIL(symmem_pool_alloc(pool, 9999, &ptr), SYMMEM_NOT_INITIALIZED, "pool_alloc");
    EXPECT_FAIL(symmem_pool_free(pool, ptr), SYMMEM_NOT_INITIALIZED, "pool_free");
    EXPECT_FAIL(symmem_pool_destroy(pool), SYMMEM_NOT_INITIALIZED, "pool_destroy");
    CU_ASSERT_EQUAL(atomic_load(&fake.closed), 1);
    unit_end(context);
}

static symmem_status try_malloc(size_t size, int device) {
    symmem_error_record record;
    symmem_clear_error();
    if (symmem_pool_malloc(size, device, NULL))
        return SYMMEM_OK;
    symmem_last_error(&record);
    return record.status;
}

static symmem_status try_mfree(void *ptr, int device) {
    symmem_error_record record;
    symmem_clear_error();
    symmem_pool_mfree(ptr, 1, device, NULL);
    symmem_last_error(&record);
    return record.status;
}

static void *unbound_thread(void *arg) {
    return symmem_pool_malloc(1, 1, NULL) ? arg : NULL;
}

TEST("pluggable") {
    symmem_context *context = unit_context(FAKE_CAPABILITIES);
    symmem_pool *pool = NULL;
    pthread_t thread;
    void *got = NULL;
    EXPECT_OK(symmem_pool_create(context, 1, 4096, &pool));
    CU_ASSERT_EQUAL(try_malloc(1, 1), SYMMEM_INVALID_ARGUMENT);
    CU_ASSERT_EQUAL(try_mfree(context, 1), SYMMEM_INVALID_ARGUMENT);
    symmem_pool_bind(pool);
    CU_ASSERT_EQUAL(try_malloc(1, 0), SYMMEM_INVALID_ARGUMENT);
    CU_ASSERT_EQUAL(try_malloc(0, 1), SYMMEM_INVALID_ARGUMENT);
    void *ptr = symmem_pool_malloc(100, 1, NULL);
    CU_ASSERT_PTR_NOT_NULL(ptr);
    CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, unbound_thread, context), 0);
    CU_ASSERT_EQUAL(pthread_join(thread, &got), 0);
    CU_ASSERT_PTR_NULL(got);
    CU_ASSERT_EQUAL(try_mfree(ptr, 0), SYMMEM_INVALID_ARGUMENT);
    CU_ASSERT_EQUAL(try_mfree(NULL, 0), SYMMEM_OK);
    CU_ASSERT_EQUAL(try_mfree(ptr, 1), SYMMEM_OK);
    CU_ASSERT_EQUAL(try_mfree(ptr, 1), SYMMEM_NOT_SYMMETRIC);
    EXPECT_OK(symmem_pool_destroy(pool)); /* unbinds */
    CU_ASSERT_EQUAL(try_malloc(1, 1), SYMMEM_INVALID_ARGUMENT);
    unit_end(context);
}

/* Blocks that are handed out when the context ends. */
TEST("finalized") {
    symmem_context *context = unit_context(FAKE_CAPABILITIES);
    symmem_pool *pool = NULL;
    sm_block *block = NULL;
    void *a = NULL, *b = NULL;
    EXPECT_OK(symmem_pool_create(context, 0, 4096, &pool));
    EXPECT_OK(symmem_pool_alloc(pool, 100, &a));
    EXPECT_OK(symmem_pool_alloc(pool, 100, &b));
    EXPECT_OK(sm_block_find(context, b, "test", &block));
    EXPECT_OK(symmem_pool_free(pool, b)); /* while it is pinned */
    CU_ASSERT_FALSE(sm_block_live(block));
    sm_block_release(block);
    symmem_pool_bind(pool);
    unit_end(context);
    EXPECT_FAIL(symmem_pool_malloc(1, 0, NULL) ? SYMMEM_OK : SYMMEM_INVALID_ARGUMENT,
                SYMMEM_INVALID_ARGUMENT, "pool_malloc"); /* unbound by the finalize */
}

/* Not by free, which is for allocations. */
TEST("a block is freed by its pool") {
    symmem_context *context = unit_context(FAKE_CAPABILITIES);
    symmem_pool *pool = NULL;
    void *ptr = NULL;
    EXPECT_OK(symmem_pool_create(context, 0, 4096, &pool));
    EXPECT_OK(symmem_pool_alloc(pool, 200, &ptr));
    EXPECT_FAIL(symmem_free(context, ptr), SYMMEM_INVALID_ARGUMENT, "free");
    EXPECT_FAIL(symmem_free(context, (char *)ptr + 1024), SYMMEM_NOT_SYMMETRIC, "free");
    unit_end(context);
}
