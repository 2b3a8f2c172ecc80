/* SPDX-License-Identifier: BSD-3-Clause */
/* What a rank leaves in the store that ends for a lack of its own before others have met it. */
#include "bootstrap/session_internal.h"
#include "memory/group.h"
#include "unit.h"

static symmem_store *store;

static void key_of(const char *kind, int32_t rank, char *key, size_t capacity) {
    snprintf(key, capacity, "%s/%s/%d", SM_WORLD_PREFIX, kind, (int)rank);
}

static bool is_left(int32_t rank) {
    char key[64], value[2048];
    size_t bytes = 0;
    key_of("bye", rank, key, sizeof(key));
    return symmem_store_get(store, key, value, sizeof(value), &bytes, 0) == SYMMEM_OK;
}

static void drop(int32_t rank) {
    char key[64];
    key_of("bye", rank, key, sizeof(key));
    CU_ASSERT_EQUAL(symmem_store_remove(store, key, 0), SYMMEM_OK);
}

static void leave(int32_t rank, int32_t world_size) {
    symmem_context_options options;
    symmem_context_options_init(&options);
    options.store = store;
    sm_farewell_of_none(&options, rank, world_size);
}

/* One rank of two, whose record says so. */
static bool leaves_with(symmem_error_record record) {
    (void)sm_fail_record(&record);
    leave(1, 2);
    CU_ASSERT_EQUAL(sm_record()->status, record.status);
    const bool left = is_left(1);
    drop(1);
    return left;
}

static symmem_error_record record_of(symmem_status status) {
    (void)sm_fail(status, "init", "", "nothing is left");
    return *sm_record();
}

TEST("what is a lack") {
    static const symmem_status lacks[] = {SYMMEM_OUT_OF_MEMORY, SYMMEM_NO_SPACE, SYMMEM_LIMIT,
                                          SYMMEM_PERMISSION,    SYMMEM_SYSTEM,   SYMMEM_BACKEND,
                                          SYMMEM_LOAD,          SYMMEM_CORRUPT};
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_memory(&store), SYMMEM_OK);
    for (size_t i = 0; i < sizeof(lacks) / sizeof(lacks[0]); i++)
        CU_ASSERT(leaves_with(record_of(lacks[i])));
    CU_ASSERT(!leaves_with(record_of(SYMMEM_BUSY)));
    symmem_error_record told = record_of(SYMMEM_LIMIT);
    told.missing_count = 1;
    CU_ASSERT(!leaves_with(told));
    told = record_of(SYMMEM_LIMIT);
    sm_copy_text(told.stage, sizeof(told.stage), "a.point");
    CU_ASSERT(!leaves_with(told));
    told = record_of(SYMMEM_LIMIT);
    told.rank = 1;
    told.failed_rank = 1;
    CU_ASSERT(leaves_with(told));
    told.failed_rank = 0;
    CU_ASSERT(!leaves_with(told));
    symmem_store_close(store);
}

TEST("who has nowhere to leave it") {
    symmem_context_options options;
    symmem_context_options_init(&options);
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_memory(&store), SYMMEM_OK);
    (void)record_of(SYMMEM_LIMIT);
    sm_farewell_of_none(&options, 0, 2); /* without a store */
    leave(-1, 2);
    leave(2, 2);
    leave(0, 1);
    leave(0, SYMMEM_MAX_WORLD_SIZE + 1);
    for (int32_t rank = -1; rank <= 2; rank++)
        CU_ASSERT(!is_left(rank));
    symmem_store_close(store);
}

/* --- who removes it ------------------------------------------------------------------------------
 */

static void be_there(int32_t rank, size_t bytes) {
    char key[SYMMEM_STORE_KEY_MAX + 1];
    sm_identity_key(SM_WORLD_PREFIX, rank, key, sizeof(key));
    CU_ASSERT_EQUAL(symmem_store_set(store, key, "there", bytes, 0), SYMMEM_OK);
}

static void be_gone(int32_t rank) {
    char key[SYMMEM_STORE_KEY_MAX + 1];
    sm_identity_key(SM_WORLD_PREFIX, rank, key, sizeof(key));
    CU_ASSERT_EQUAL(symmem_store_remove(store, key, 0), SYMMEM_OK);
}

TEST("the last that may read it") {
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_memory(&store), SYMMEM_OK);
    for (size_t bytes = 1; bytes <= 5; bytes += 4) {
        be_there(2, bytes);
        (void)record_of(SYMMEM_LIMIT);
        leave(0, 3);
        leave(1, 3);
        CU_ASSERT(is_left(0) && is_left(1)); /* the third is there and may read */
        be_gone(2);
        leave(1, 3); /* it may come yet, to whom rank 1 is the one that is missing */
        CU_ASSERT(!is_left(0) && is_left(1));
        leave(0, 3);
        leave(2, 3);
        CU_ASSERT(!is_left(0) && !is_left(1) && !is_left(2));
    }
    symmem_store_close(store);
}

/* --- what is read
 * ---------------------------------------------------------------------------------- */

static bool is_explained(const void *value, size_t bytes) {
    static symmem_context context;
    char key[64];
    symmem_error_record record;
    memset(&record, 0, sizeof(record));
    memset(&context, 0, sizeof(context));
    sm_copy_text(context.world_prefix, sizeof(context.world_prefix), SM_WORLD_PREFIX);
    context.store = store;
    context.world_size = 2;
    key_of("bye", 1, key, sizeof(key));
    CU_ASSERT_EQUAL(symmem_store_set(store, key, value, bytes, 0), SYMMEM_OK);
    sm_farewell_explain(&context, 1, 1, &record);
    const bool told = strstr(record.message, "; rank 1 finalized after LIMIT in init") != NULL;
    CU_ASSERT(told || record.message[0] == '\0');
    context.world_size = 1; /* nobody else is in it */
    record.message[0] = '\0';
    sm_farewell_explain(&context, 1, 1, &record);
    context.store = NULL;
    context.world_size = 2;
    sm_farewell_explain(&context, 1, 1, &record);
    CU_ASSERT_EQUAL(record.message[0], '\0');
    return told;
}

TEST("what is none") {
    struct {
        uint32_t magic;
        int32_t rank;
        sm_verdict verdict;
    } good, odd; /* as in farewell.c */
    char key[64];
    size_t bytes = 0;
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_memory(&store), SYMMEM_OK);
    (void)record_of(SYMMEM_LIMIT);
    leave(1, 2);
    key_of("bye", 1, key, sizeof(key));
    CU_ASSERT_EQUAL_FATAL(symmem_store_get(store, key, &good, sizeof(good), &bytes, 0), SYMMEM_OK);
    CU_ASSERT_EQUAL_FATAL(bytes, sizeof(good));
    CU_ASSERT(is_explained(&good, sizeof(good)));
    CU_ASSERT(!is_explained(&good, sizeof(good) - 1));
    odd = good;
    odd.magic++;
    CU_ASSERT(!is_explained(&odd, sizeof(odd)));
    odd = good;
    odd.rank = 0;
    CU_ASSERT(!is_explained(&odd, sizeof(odd)));
    odd = good;
    odd.verdict.status = 12345;
    CU_ASSERT(!is_explained(&odd, sizeof(odd)));
    odd.verdict.status = SYMMEM_OK;
    CU_ASSERT(!is_explained(&odd, sizeof(odd)));
    symmem_store_close(store);
}
