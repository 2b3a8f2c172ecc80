/* SPDX-License-Identifier: BSD-3-Clause */
/* What happens to cached rendezvous results when blocks, groups and contexts end. */
#include "unit.h"
#include "stream/channel.h"

static int alive(void) {
    return atomic_load(&fake.allocated) - atomic_load(&fake.released);
}

static symmem_group *group_of(symmem_context *context, const char *name) {
    symmem_group *group = NULL;
    CU_ASSERT_EQUAL_FATAL(symmem_group_create(context, name, NULL, 0, NULL, &group), SYMMEM_OK);
    return group;
}

static symmem_handle *meet(symmem_context *context, void *ptr, symmem_group *group) {
    symmem_handle *handle = NULL;
    CU_ASSERT_EQUAL_FATAL(symmem_rendezvous(context, ptr, group, 20000, &handle), SYMMEM_OK);
    return handle;
}

/* A freed allocation lives as long as a handle, and no longer. */
TEST("freed") {
    symmem_context *context = unit_context(FAKE_CAPABILITIES);
    symmem_group *group = group_of(context, "g"), *other = group_of(context, "h");
    void *ptr = NULL;
    EXPECT_OK(symmem_alloc(context, 1000, 0, NULL, &ptr));
    CU_ASSERT_EQUAL(alive(), 1);
    symmem_handle *handle = meet(context, ptr, group);
    int with_signals = alive();
    CU_ASSERT_TRUE(with_signals > 1);
    symmem_handle_release(handle);
    CU_ASSERT_EQUAL(alive(), with_signals); /* cached */
    handle = meet(context, ptr, group);
    CU_ASSERT_EQUAL(alive(), with_signals); /* found again */
    symmem_handle_release(meet(context, ptr, other));
    CU_ASSERT_TRUE(alive() > with_signals);
    EXPECT_OK(symmem_free(context, ptr));
    CU_ASSERT_EQUAL(alive(), with_signals); /* what the handle needs */
    symmem_handle_release(handle);
    CU_ASSERT_EQUAL(alive(), 0);
    unit_end(context);
}

TEST("group destroyed") {
    symmem_context *context = unit_context(FAKE_CAPABILITIES);
    symmem_group *group = group_of(context, "g"), *other = group_of(context, "h");
    void *first = NULL, *second = NULL;
    EXPECT_OK(symmem_alloc(context, 1000, 0, NULL, &first));
    EXPECT_OK(symmem_alloc(context, 1000, 0, NULL, &second));
    symmem_handle_release(meet(context, first, other));
    int without_group = alive();
    symmem_handle_release(meet(context, first, group));
    symmem_handle *handle = meet(context, second, group);
    EXPECT_OK(symmem_group_destroy(group));
    CU_ASSERT_TRUE(atomic_load(&group->references) > 0); /* the handle's link */
    CU_ASSERT_EQUAL(group->global_ranks[0], 0);
    sm_allocation *allocation = sm_allocation_find(context, second);
    CU_ASSERT_PTR_NOT_NULL_FATAL(allocation);
    CU_ASSERT_TRUE(sm_list_empty(&allocation->mappings));
    sm_allocation_release(allocation);
    allocation = sm_allocation_find(context, first);
    CU_ASSERT_PTR_NOT_NULL_FATAL(allocation);
    CU_ASSERT_FALSE(sm_list_empty(&allocation->mappings)); /* the other group's */
    sm_allocation_release(allocation);
    int with_handle = alive();
    CU_ASSERT_TRUE(with_handle > without_group);
    symmem_handle_release(handle);
    CU_ASSERT_EQUAL(alive(), without_group);
    CU_ASSERT_EQUAL(atomic_load(&group->references), 0);
    unit_end(context);
}

TEST("persistent") {
    symmem_context *context = unit_context(FAKE_CAPABILITIES);
    symmem_group *group = group_of(context, "g");
    symmem_alloc_options options;
    void *ptr = NULL;
    symmem_alloc_options_init(&options);
    options.alloc_id = 7;
    EXPECT_OK(symmem_alloc(context, 1000, 0, &options, &ptr));
    symmem_handle_release(meet(context, ptr, group));
    int cached = alive();
    EXPECT_OK(symmem_free(context, ptr));
    CU_ASSERT_EQUAL(alive(), cached);
    symmem_handle *handle = NULL;
    CU_ASSERT_EQUAL(symmem_rendezvous(context, ptr, group, 20000, &handle), SYMMEM_NOT_SYMMETRIC);
    EXPECT_OK(symmem_alloc(context, 1000, 0, &options, &ptr));
    symmem_handle_release(meet(context, ptr, group));
    CU_ASSERT_EQUAL(alive(), cached);
    unit_end(context);
}

TEST("pool block") {
    symmem_context *context = unit_context(FAKE_CAPABILITIES);
    symmem_group *group = group_of(context, "g");
    symmem_pool *pool = NULL;
    symmem_handle_info info;
    void *first = NULL, *second = NULL;
    EXPECT_OK(symmem_pool_create(context, 0, 8192, &pool));
    EXPECT_OK(symmem_pool_alloc(pool, 700, &first));
    EXPECT_OK(symmem_pool_alloc(pool, 100, &second));
    symmem_handle_release(meet(context, first, group));
    int one = alive();
    symmem_handle *handle = meet(context, second, group);
    EXPECT_OK(symmem_handle_get_info(handle, &info));
    CU_ASSERT_EQUAL(info.offset, 1024);
    CU_ASSERT_EQUAL(info.block_size, 100);
    CU_ASSERT_EQUAL(info.buffer_size, 8192);
    symmem_handle_release(handle);
    EXPECT_OK(symmem_pool_free(pool, second)); /* its link goes, the segment's mapping stays */
    CU_ASSERT_EQUAL(alive(), one);
    EXPECT_OK(symmem_pool_free(pool, first));
    CU_ASSERT_EQUAL(alive(), 1);
    EXPECT_OK(symmem_pool_destroy(pool));
    CU_ASSERT_EQUAL(alive(), 0);
    unit_end(context);
}

/* Handles outlive the context; the backend is closed with the last of them. */
TEST("finalized") {
    symmem_context *context = unit_context(FAKE_CAPABILITIES);
    symmem_group *group = group_of(context, "g");
    void *ptr = NULL, *other = NULL;
    EXPECT_OK(symmem_alloc(context, 1000, 0, NULL, &ptr));
    EXPECT_OK(symmem_alloc(context, 1000, 0, NULL, &other));
    symmem_handle *handle = meet(context, ptr, group);
    symmem_handle_release(meet(context, other, group));
    sm_link *link = handle->link;
    EXPECT_OK(symmem_finalize(context));
    CU_ASSERT_TRUE(atomic_load(&link->poisoned));
    CU_ASSERT_EQUAL(link->poison_record.status, SYMMEM_NOT_INITIALIZED);
    CU_ASSERT_STRING_EQUAL(link->poison_record.operation, "finalize");
    symmem_context_free(context);
    ((char *)ptr)[999] = 1; /* still there */
    CU_ASSERT_EQUAL(atomic_load(&fake.closed), 0);
    CU_ASSERT_TRUE(alive() > 0);
    symmem_handle_release(handle);
    CU_ASSERT_EQUAL(alive(), 0);
    CU_ASSERT_EQUAL(atomic_load(&fake.closed), 1);
}
