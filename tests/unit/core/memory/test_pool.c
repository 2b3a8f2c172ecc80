/* SPDX-License-Identifier: BSD-3-Clause */
/* Pools: places, merging, life, and the pair for pluggable allocators. */
#include "unit.h"
#include "objects.h"

#include <pthread.h>
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

TEST("arguments") {
    symmem_context *context = unit_context(FAKE_CAPABILITIES);
    symmem_pool *pool = NULL;
    symmem_pool_stats stats;
    void *ptr = NULL;
    EXPECT_FAIL(symmem_pool_create(NULL, 0, 1, &pool), SYMMEM_NOT_INITIALISED, "pool_create");
    EXPECT_FAIL(symmem_pool_create(context, 0, 1, NULL), SYMMEM_INVALID_ARGUMENT, "pool_create");
    EXPECT_FAIL(symmem_pool_create(context, 0, 0, &pool), SYMMEM_INVALID_ARGUMENT, "pool_create");
    EXPECT_FAIL(symmem_pool_create(context, 0, SIZE_MAX, &pool), SYMMEM_OVERFLOW, "pool_create");
    EXPECT_FAIL(symmem_pool_create(context, 5, 1, &pool), SYMMEM_OUT_OF_RANGE, "pool_create");
    CU_ASSERT_PTR_NULL(pool);
    EXPECT_OK(symmem_pool_create(context, -1, 1, &pool));
    expect_stats(pool, 0, 0, 0, 0);
    EXPECT_FAIL(symmem_pool_alloc(NULL, 1, &ptr), SYMMEM_INVALID_ARGUMENT, "pool_alloc");
    EXPECT_FAIL(symmem_pool_alloc(pool, 1, NULL), SYMMEM_INVALID_ARGUMENT, "pool_alloc");
    EXPECT_FAIL(symmem_pool_alloc(pool, 0, &ptr), SYMMEM_INVALID_ARGUMENT, "pool_alloc");
    EXPECT_FAIL(symmem_pool_alloc(pool, SIZE_MAX, &ptr), SYMMEM_OVERFLOW, "pool_alloc");
    EXPECT_FAIL(symmem_pool_free(NULL, NULL), SYMMEM_INVALID_ARGUMENT, "pool_free");
    EXPECT_FAIL(symmem_pool_get_stats(NULL, &stats), SYMMEM_INVALID_ARGUMENT, "pool_get_stats");
    EXPECT_FAIL(symmem_pool_get_stats(pool, NULL), SYMMEM_INVALID_ARGUMENT, "pool_get_stats");
    EXPECT_OK(symmem_pool_destroy(NULL));
    EXPECT_OK(symmem_pool_destroy(pool));
    unit_end(context);

    context = unit_context(FAKE_CAPABILITIES & ~SYMMEM_CAP_POOL);
    EXPECT_FAIL(symmem_pool_create(context, 0, 1, &pool), SYMMEM_UNSUPPORTED, "pool_create");
    unit_end(context);
}

/* First fit, in order of segments and offsets. */
TEST("places") {
    symmem_context *context = unit_context(FAKE_CAPABILITIES);
    symmem_pool *pool = NULL;
    symmem_alloc_info info;
    char *a = NULL, *b = NULL, *c = NULL, *d = NULL, *big = NULL;
    bool yes = false;
    EXPECT_OK(symmem_pool_create(context, 1, 4000, &pool)); /* 4096 when rounded */
    EXPECT_OK(symmem_pool_alloc(pool, 1, (void **)&a));
    EXPECT_OK(symmem_pool_alloc(pool, 513, (void **)&b));
    EXPECT_OK(symmem_pool_alloc(pool, 512, (void **)&c));
    CU_ASSERT_PTR_EQUAL(b, a + 512);
    CU_ASSERT_PTR_EQUAL(c, a + 1536);
    expect_stats(pool, 1, 4096, 2048, 3);
    EXPECT_OK(symmem_pool_alloc(pool, 5000, (void **)&big));
    expect_stats(pool, 2, 4096 + 5120, 2048 + 5120, 4);
    EXPECT_OK(symmem_alloc_query(context, b + 512, &info));
    CU_ASSERT_PTR_EQUAL(info.base, b);
    CU_ASSERT_EQUAL(info.bytes, 513);
    CU_ASSERT_EQUAL(info.device, 1);
    CU_ASSERT_EQUAL(info.is_pool_block, 1);
    CU_ASSERT_EQUAL(info.ordinal, 2);
    EXPECT_FAIL(symmem_alloc_query(context, b + 513, &info), SYMMEM_NOT_SYMMETRIC, "alloc_query");
    EXPECT_OK(symmem_is_symmetric(context, a + 1, &yes)); /* between the blocks */
    CU_ASSERT_FALSE(yes);
    EXPECT_OK(symmem_is_symmetric(context, c, &yes));
    CU_ASSERT_TRUE(yes);

    EXPECT_FAIL(symmem_free(context, a), SYMMEM_INVALID_ARGUMENT, "free");
    EXPECT_FAIL(symmem_free(context, a + 100), SYMMEM_NOT_SYMMETRIC, "free");
    EXPECT_FAIL(symmem_pool_free(pool, b + 1), SYMMEM_INVALID_ARGUMENT, "pool_free");
    EXPECT_FAIL(symmem_pool_free(pool, &a), SYMMEM_NOT_SYMMETRIC, "pool_free");
    EXPECT_OK(symmem_pool_free(pool, NULL));
    EXPECT_FAIL(symmem_pool_destroy(pool), SYMMEM_BUSY, "pool_destroy");

    EXPECT_OK(symmem_pool_free(pool, b));
    EXPECT_FAIL(symmem_pool_free(pool, b), SYMMEM_NOT_SYMMETRIC, "pool_free");
    EXPECT_OK(symmem_pool_alloc(pool, 1025, (void **)&d)); /* does not fit into the gap */
    CU_ASSERT_PTR_EQUAL(d, c + 512);
    EXPECT_OK(symmem_pool_free(pool, d));
    EXPECT_OK(symmem_pool_alloc(pool, 1024, (void **)&d)); /* the gap exactly */
    CU_ASSERT_PTR_EQUAL(d, b);
    /* Merging with the right, the left and both neighbours. */
    EXPECT_OK(symmem_pool_free(pool, c));
    EXPECT_OK(symmem_pool_free(pool, a));
    EXPECT_OK(symmem_pool_free(pool, d));
    EXPECT_OK(symmem_pool_alloc(pool, 4096, (void **)&d));
    CU_ASSERT_PTR_EQUAL(d, a);
    EXPECT_OK(symmem_pool_free(pool, d));
    EXPECT_OK(symmem_pool_free(pool, big));
    expect_stats(pool, 2, 4096 + 5120, 0, 0);
    CU_ASSERT_EQUAL(atomic_load(&fake.released), 0);
    EXPECT_OK(symmem_pool_destroy(pool));
    CU_ASSERT_EQUAL(atomic_load(&fake.released), 2);
    unit_end(context);
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

static symmem_status point_finalises(void *arg, const char *point) {
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
    context->point = point_finalises;
    EXPECT_FAIL(symmem_pool_alloc(pool, 9999, &ptr), SYMMEM_NOT_INITIALISED, "pool_alloc");
    EXPECT_FAIL(symmem_pool_free(pool, ptr), SYMMEM_NOT_INITIALISED, "pool_free");
    EXPECT_FAIL(symmem_pool_destroy(pool), SYMMEM_NOT_INITIALISED, "pool_destroy");
    CU_ASSERT_EQUAL(atomic_load(&fake.closed), 1);
    unit_end(context);
}

/* Blocks that are handed out when the context ends. */
TEST("finalised") {
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
                SYMMEM_INVALID_ARGUMENT, "pool_malloc"); /* unbound by the finalise */
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

static void *churn(void *arg) {
    void *ptrs[8] = {NULL};
    for (size_t i = 0; i < 400; i++) {
        size_t place = i * 5 % 8;
        if (symmem_pool_free(arg, ptrs[place]) != SYMMEM_OK ||
            symmem_pool_alloc(arg, 100 + i % 7 * 300, &ptrs[place]) != SYMMEM_OK)
            return arg;
        memset(ptrs[place], (int)i, 100 + i % 7 * 300);
    }
    for (size_t i = 0; i < 8; i++) {
        if (symmem_pool_free(arg, ptrs[i]) != SYMMEM_OK)
            return arg;
    }
    return NULL;
}

TEST("threads") {
    symmem_context *context = unit_context(FAKE_CAPABILITIES);
    symmem_pool *pool = NULL;
    symmem_pool_stats stats;
    pthread_t thread[3];
    EXPECT_OK(symmem_pool_create(context, 0, 16384, &pool));
    for (int i = 0; i < 3; i++)
        CU_ASSERT_EQUAL_FATAL(pthread_create(&thread[i], NULL, churn, pool), 0);
    for (int i = 0; i < 3; i++) {
        void *failed = NULL;
        CU_ASSERT_EQUAL(pthread_join(thread[i], &failed), 0);
        CU_ASSERT_PTR_NULL(failed);
    }
    EXPECT_OK(symmem_pool_get_stats(pool, &stats));
    CU_ASSERT_EQUAL(stats.block_count, 0);
    CU_ASSERT_EQUAL(stats.used_bytes, 0);
    EXPECT_OK(symmem_pool_destroy(pool));
    unit_end(context);
}
