/* SPDX-License-Identifier: BSD-3-Clause */
/* Allocations, lookups, signal pad sizes, persistent allocations. */
#include "unit.h"
#include "stream/channel.h"
#include "memory/block.h"

static symmem_status point_fails(void *arg, const char *point) {
    return strcmp(arg, point) == 0 ? SYMMEM_SYSTEM : SYMMEM_OK;
}

/* The call has no limit, so the default limit holds from when the backend asks for it. After the
 * call no limit holds. */
TEST("limit") {
    symmem_context *context = unit_context(FAKE_CAPABILITIES);
    void *ptr = NULL;
    const uint64_t default_ns = context->default_timeout_ms * 1000000ull;
    EXPECT_OK(symmem_alloc(context, 100, 0, NULL, &ptr));
    CU_ASSERT(fake.alloc_deadline_ns >= fake.alloc_asked_ns + default_ns);
    CU_ASSERT(fake.alloc_deadline_ns <= sm_now_ns() + default_ns);
    CU_ASSERT_EQUAL(context->host.deadline_ns(&context->host), 0);
    context->default_timeout_ms = 20; /* large memory may take longer than that */
    EXPECT_OK(symmem_alloc(context, 100, 0, NULL, &ptr));
    CU_ASSERT(fake.alloc_deadline_ns >= fake.alloc_asked_ns + 1000000000ull);
    CU_ASSERT(fake.alloc_deadline_ns <= sm_now_ns() + 1000000000ull);
    fake.alloc_fails = SYMMEM_BACKEND;
    EXPECT_FAIL(symmem_alloc(context, 100, 0, NULL, &ptr), SYMMEM_BACKEND, "alloc");
    CU_ASSERT_EQUAL(context->host.deadline_ns(&context->host), 0);
    fake.alloc_fails = SYMMEM_OK;
    unit_end(context);
}

TEST("backend failures") {
    symmem_context *context = unit_context(FAKE_CAPABILITIES);
    symmem_error_record record;
    void *ptr = NULL;
    fake.alloc_fails = SYMMEM_NO_SPACE;
    EXPECT_FAIL(symmem_alloc(context, 4096, 0, NULL, &ptr), SYMMEM_NO_SPACE, "alloc");
    symmem_last_error(&record);
    CU_ASSERT_EQUAL(record.expected, 4096);
    CU_ASSERT_EQUAL(record.actual, 7);
    CU_ASSERT_EQUAL(record.system_errno, 12);
    CU_ASSERT_STRING_EQUAL(record.stage, "memory_alloc");
    fake.alloc_fails = SYMMEM_BACKEND; /* without a record of its own */
    EXPECT_FAIL(symmem_alloc(context, 4096, 0, NULL, &ptr), SYMMEM_BACKEND, "alloc");
    fake.alloc_fails = SYMMEM_OK;
    fake.misalign = 8;
    EXPECT_FAIL(symmem_alloc(context, 100, 0, NULL, &ptr), SYMMEM_BACKEND, "alloc");
    fake.misalign = 0;
    fake.alloc_null = true;
    EXPECT_FAIL(symmem_alloc(context, 100, 0, NULL, &ptr), SYMMEM_BACKEND, "alloc");
    fake.alloc_null = false;
    CU_ASSERT_EQUAL(atomic_load(&fake.released), 2);
    fake.count_fails = SYMMEM_SYSTEM;
    EXPECT_FAIL(symmem_alloc(context, 100, 0, NULL, &ptr), SYMMEM_SYSTEM, "alloc");
    fake.count_fails = SYMMEM_OK;
    fake.devices = 0;
    EXPECT_FAIL(symmem_alloc(context, 100, 0, NULL, &ptr), SYMMEM_BACKEND, "alloc");
    fake.devices = 1;
    context->point = point_fails;
    context->point_arg = "alloc.before";
    EXPECT_FAIL(symmem_alloc(context, 100, 0, NULL, &ptr), SYMMEM_SYSTEM, "alloc");
    CU_ASSERT_EQUAL(atomic_load(&fake.allocated), 2);
    context->point_arg = "alloc.done";
    EXPECT_FAIL(symmem_alloc(context, 100, 0, NULL, &ptr), SYMMEM_SYSTEM, "alloc");
    CU_ASSERT_EQUAL(atomic_load(&fake.allocated), 3);
    CU_ASSERT_EQUAL(atomic_load(&fake.released), 3);
    context->point = NULL;
    CU_ASSERT_PTR_NULL(ptr);
    EXPECT_OK(symmem_alloc(context, 100, 0, NULL, &ptr)); /* nothing stands in the way */
    unit_end(context);
}

/* A found block stays valid memory though it is freed meanwhile. */
TEST("pins") {
    symmem_context *context = unit_context(FAKE_CAPABILITIES);
    sm_block *block = NULL, *again = NULL;
    char *a = NULL;
    EXPECT_OK(symmem_alloc(context, 1000, 0, NULL, (void **)&a));
    EXPECT_OK(sm_block_find(context, a + 10, "test", &block));
    EXPECT_OK(sm_block_find(context, a + 20, "test", &again));
    CU_ASSERT_PTR_EQUAL(block, again);
    CU_ASSERT_TRUE(sm_block_live(block));
    EXPECT_OK(symmem_free(context, a));
    CU_ASSERT_FALSE(sm_block_live(block));
    CU_ASSERT_FALSE(sm_allocation_live(block->allocation));
    CU_ASSERT_EQUAL(block->bytes, 1000);
    sm_block_release(block);
    CU_ASSERT_EQUAL(again->bytes, 1000);
    CU_ASSERT_EQUAL(atomic_load(&fake.released), 0);
    /* The other pin is left to the allocation's end. */
    sm_allocation_release(again->allocation);
    CU_ASSERT_EQUAL(atomic_load(&fake.released), 1);

    EXPECT_OK(symmem_alloc(context, 1000, 0, NULL, (void **)&a));
    EXPECT_OK(sm_block_find(context, a, "test", &block));
    EXPECT_OK(symmem_free(context, a));
    sm_block_release(block);
    CU_ASSERT_EQUAL(atomic_load(&fake.released), 2);
    unit_end(context);
}

TEST("persistent") {
    symmem_context *context = unit_context(FAKE_CAPABILITIES);
    symmem_alloc_options options;
    symmem_alloc_info info;
    symmem_group *group = NULL;
    void *a = NULL, *b = NULL, *c = NULL;
    bool yes = true;
    symmem_alloc_options_init(&options);
    options.alloc_id = 42;
    EXPECT_OK(symmem_alloc(context, 1000, 0, &options, &a));
    EXPECT_OK(symmem_alloc_query(context, a, &info));
    CU_ASSERT_EQUAL(info.alloc_id, 42);
    EXPECT_FAIL(symmem_alloc(context, 1000, 0, &options, &b), SYMMEM_BUSY, "alloc");
    EXPECT_FAIL(symmem_alloc(context, 999, 0, &options, &b), SYMMEM_BUSY, "alloc");
    options.alloc_id = 43;
    EXPECT_OK(symmem_alloc(context, 1000, 0, &options, &c));
    CU_ASSERT_PTR_NOT_EQUAL(a, c);
    *(char *)a = 7;
    EXPECT_OK(symmem_free(context, a));
    CU_ASSERT_EQUAL(atomic_load(&fake.released), 0);
    EXPECT_OK(symmem_is_symmetric(context, a, &yes));
    CU_ASSERT_FALSE(yes);
    CU_ASSERT_PTR_NULL(sm_allocation_find(context, a));
    EXPECT_FAIL(symmem_free(context, a), SYMMEM_NOT_SYMMETRIC, "free");
    EXPECT_FAIL(symmem_alloc_query(context, a, &info), SYMMEM_NOT_SYMMETRIC, "alloc_query");
    options.alloc_id = 42;
    EXPECT_FAIL(symmem_alloc(context, 1001, 0, &options, &b), SYMMEM_MISMATCH, "alloc");
    EXPECT_FAIL(symmem_alloc(context, 1000, 1, &options, &b), SYMMEM_MISMATCH, "alloc");
    EXPECT_OK(symmem_group_create(context, "g", NULL, 0, NULL, &group));
    options.default_group = group;
    EXPECT_OK(symmem_alloc(context, 1000, 0, &options, &b));
    CU_ASSERT_PTR_EQUAL(a, b);
    CU_ASSERT_EQUAL(*(char *)b, 7);
    CU_ASSERT_EQUAL(atomic_load(&group->references), 2);
    EXPECT_OK(symmem_free(context, b));
    options.default_group = NULL;
    EXPECT_OK(symmem_alloc(context, 1000, 0, &options, &b));
    CU_ASSERT_EQUAL(atomic_load(&group->references), 1);
    CU_ASSERT_EQUAL(atomic_load(&fake.allocated), 2);
    unit_end(context);
}

/* The context is finalized, or the id taken, between two steps of an allocation. */
static symmem_status point_finalizes(void *arg, const char *point) {
    if (strcmp(point, "alloc.done") == 0)
        CU_ASSERT_EQUAL(symmem_finalize(arg), SYMMEM_OK);
    return SYMMEM_OK;
}

static symmem_status point_takes_id(void *arg, const char *point) {
    symmem_context *context = arg;
    symmem_alloc_options options;
    void *ptr = NULL;
    if (strcmp(point, "alloc.done") != 0)
        return SYMMEM_OK;
    context->point = NULL;
    symmem_alloc_options_init(&options);
    options.alloc_id = 5;
    return symmem_alloc(context, 10, 0, &options, &ptr);
}

TEST("races") {
    symmem_context *context = unit_context(FAKE_CAPABILITIES);
    symmem_alloc_options options;
    void *ptr = NULL;
    symmem_alloc_options_init(&options);
    options.alloc_id = 5;
    context->point_arg = context;
    context->point = point_takes_id;
    EXPECT_FAIL(symmem_alloc(context, 10, 0, &options, &ptr), SYMMEM_BUSY, "alloc");
    CU_ASSERT_EQUAL(atomic_load(&fake.allocated), 2);
    CU_ASSERT_EQUAL(atomic_load(&fake.released), 1);
    context->point = point_finalizes;
    EXPECT_FAIL(symmem_alloc(context, 10, 0, NULL, &ptr), SYMMEM_NOT_INITIALIZED, "alloc");
    CU_ASSERT_EQUAL(atomic_load(&fake.closed), 1);
    unit_end(context);
}

TEST("default groups") {
    symmem_context *context = unit_context(FAKE_CAPABILITIES);
    symmem_context *other = NULL;
    symmem_context_options world;
    symmem_alloc_options options;
    symmem_group *group = NULL, *foreign = NULL;
    void *ptr = NULL;
    symmem_context_options_init(&world);
    world.rank = 0;
    world.world_size = 1;
    EXPECT_OK(symmem_init(&world, &other));
    EXPECT_OK(symmem_group_create(other, "g", NULL, 0, NULL, &foreign));
    EXPECT_OK(symmem_group_create(context, "g", NULL, 0, NULL, &group));
    symmem_alloc_options_init(&options);
    options.default_group = foreign;
    EXPECT_FAIL(symmem_alloc(context, 10, 0, &options, &ptr), SYMMEM_INVALID_ARGUMENT, "alloc");
    CU_ASSERT_EQUAL(atomic_load(&foreign->references), 1);
    symmem_context_free(other);
    options.default_group = group;
    EXPECT_OK(symmem_alloc(context, 10, 0, &options, &ptr));
    CU_ASSERT_EQUAL(atomic_load(&group->references), 2);
    EXPECT_OK(symmem_group_destroy(group));
    CU_ASSERT_EQUAL(atomic_load(&group->references), 1);
    EXPECT_FAIL(symmem_alloc(context, 10, 0, &options, &ptr), SYMMEM_STALE, "alloc");
    EXPECT_OK(symmem_free(context, ptr));
    CU_ASSERT_EQUAL(atomic_load(&group->references), 0);
    unit_end(context);
}
