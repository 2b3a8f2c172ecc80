/* SPDX-License-Identifier: BSD-3-Clause */
/* The exit record of a rank that ends before its peers have met it. */
#include "bootstrap/session_internal.h"
#include "bootstrap/exit_record.h"
#include "bootstrap/session_agree.h"
#include "memory/group.h"
#include "unit.h"
#include "last_record.h"

static symmem_store *store;

typedef struct exit_record { /* as in exit_record.c */
    uint32_t magic;
    int32_t rank;
    uint64_t goes_on;
    uint64_t made_s;
    sm_identity identity;
    sm_verdict verdict;
} exit_record;

static void key_of(const char *kind, int32_t rank, char *key, size_t capacity) {
    snprintf(key, capacity, "%s/%s/%d", SM_WORLD_PREFIX, kind, (int)rank);
}

static bool is_left(int32_t rank) {
    char key[64], value[2048];
    size_t bytes = 0;
    key_of("exit", rank, key, sizeof(key));
    return symmem_store_get(store, key, value, sizeof(value), &bytes, 0) == SYMMEM_OK;
}

static bool is_marked(void) {
    uint64_t mark;
    size_t bytes = 0;
    return symmem_store_get(store, SM_WORLD_PREFIX "/exit/any", &mark, sizeof(mark), &bytes, 0) ==
           SYMMEM_OK;
}

static void drop(int32_t rank) {
    char key[64];
    key_of("exit", rank, key, sizeof(key));
    CU_ASSERT_EQUAL(symmem_store_remove(store, key, 0), SYMMEM_OK);
}

static void leave(int32_t rank, int32_t world_size) {
    const sm_world world = {
        .store = store, .prefix = SM_WORLD_PREFIX, .rank = rank, .size = world_size};
    const symmem_error_record record = last_record();
    sm_exit_record_leave(&world, &record);
}

/* Whether rank 1 of two leaves an exit record after the failure of `record`. */
static bool leaves_with(symmem_error_record record) {
    (void)sm_error_raise(&record);
    leave(1, 2);
    CU_ASSERT_EQUAL(last_record().status, record.status);
    const bool left = is_left(1);
    drop(1);
    return left;
}

static symmem_error_record record_of(symmem_status status) {
    (void)sm_fail(status, "init", "", "nothing is left");
    return last_record();
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
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_memory(&store), SYMMEM_OK);
    (void)record_of(SYMMEM_LIMIT);
    const symmem_error_record record = last_record();
    sm_world world = {.prefix = SM_WORLD_PREFIX, .size = 2};
    sm_exit_record_leave(&world, &record); /* without a store */
    leave(0, 1);
    leave(0, SYMMEM_MAX_WORLD_SIZE + 1);
    world.store = store;
    world.prefix = ""; /* it had not come so far */
    sm_exit_record_leave(&world, &record);
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
        CU_ASSERT(is_marked());
        be_gone(2);
        leave(1, 3); /* it may come yet, to whom rank 1 is the one that is missing */
        CU_ASSERT(!is_left(0) && is_left(1));
        leave(0, 3);
        leave(2, 3);
        CU_ASSERT(!is_left(0) && !is_left(1) && !is_left(2) && !is_marked());
    }
    symmem_store_close(store);
}

/* --- what is read
 * ---------------------------------------------------------------------------------- */

static bool is_explained(const void *value, size_t bytes) {
    sm_world world = {.store = store, .prefix = SM_WORLD_PREFIX, .size = 2};
    char key[64];
    symmem_error_record record;
    memset(&record, 0, sizeof(record));
    key_of("exit", 1, key, sizeof(key));
    CU_ASSERT_EQUAL(symmem_store_set(store, key, value, bytes, 0), SYMMEM_OK);
    sm_exit_record_explain(&world, 1, 1, &record);
    const bool told = strstr(record.message, "; rank 1 finalized after LIMIT in init") != NULL;
    CU_ASSERT(told || record.message[0] == '\0');
    world.size = 1; /* no other rank is in it */
    record.message[0] = '\0';
    sm_exit_record_explain(&world, 1, 1, &record);
    world.store = NULL;
    world.size = 2;
    sm_exit_record_explain(&world, 1, 1, &record);
    CU_ASSERT_EQUAL(record.message[0], '\0');
    return told;
}

TEST("what is none") {
    exit_record good, odd;
    char key[64];
    size_t bytes = 0;
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_memory(&store), SYMMEM_OK);
    (void)record_of(SYMMEM_LIMIT);
    leave(1, 2);
    key_of("exit", 1, key, sizeof(key));
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

static bool is_read(const void *value, size_t bytes, bool *earlier_job_p) {
    const sm_world world = {.store = store, .prefix = SM_WORLD_PREFIX};
    char key[64];
    sm_identity identity;
    key_of("exit", 1, key, sizeof(key));
    CU_ASSERT_EQUAL(symmem_store_set(store, key, value, bytes, 0), SYMMEM_OK);
    return sm_exit_record_read(&world, 1, &identity, earlier_job_p);
}

TEST("whose end is told") {
    exit_record good, odd;
    bool earlier_job = true;
    char key[64];
    size_t bytes = 0;
    sm_identity self;
    CU_ASSERT_EQUAL_FATAL(sm_identity_self(&self), SYMMEM_OK);
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_memory(&store), SYMMEM_OK);
    const sm_world world = {
        .store = store, .prefix = SM_WORLD_PREFIX, .identity = &self, .rank = 1, .size = 2};
    symmem_error_record record = record_of(SYMMEM_LIMIT);
    sm_exit_record_leave(&world, &record);
    key_of("exit", 1, key, sizeof(key));
    CU_ASSERT_EQUAL_FATAL(symmem_store_get(store, key, &good, sizeof(good), &bytes, 0), SYMMEM_OK);
    CU_ASSERT(is_read(&good, sizeof(good), &earlier_job) && !earlier_job);
    odd = good;
    odd.identity.pid = 0; /* whose end it was is not known */
    CU_ASSERT(!is_read(&odd, sizeof(odd), &earlier_job));
    odd = good;
    odd.made_s -= 62; /* of another job */
    CU_ASSERT(!is_read(&odd, sizeof(odd), &earlier_job));
    odd.made_s += 2 * 62;
    CU_ASSERT(!is_read(&odd, sizeof(odd), &earlier_job));
    drop(1);
    record = record_of(SYMMEM_PEER_LOST);
    CU_ASSERT(!leaves_with(record)); /* that a rank has ended the others see */
    (void)snprintf(record.message, sizeof(record.message), "rank 0 ended (%s)", SM_MAY_BE_EARLIER);
    sm_exit_record_leave(&world, &record);
    CU_ASSERT_EQUAL_FATAL(symmem_store_get(store, key, &good, sizeof(good), &bytes, 0), SYMMEM_OK);
    CU_ASSERT(is_read(&good, sizeof(good), &earlier_job) && earlier_job);
    symmem_store_close(store);
}

/* Its lack may become the cause of its end, but is no end. */
TEST("a rank that goes on") {
    exit_record good, odd;
    bool earlier_job;
    char key[64];
    size_t bytes = 0;
    sm_identity self;
    CU_ASSERT_EQUAL_FATAL(sm_identity_self(&self), SYMMEM_OK);
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_memory(&store), SYMMEM_OK);
    const sm_world world = {
        .store = store, .prefix = SM_WORLD_PREFIX, .identity = &self, .rank = 1, .size = 2};
    symmem_error_record record = record_of(SYMMEM_LIMIT);
    sm_exit_record_note(&world, &record);
    key_of("exit", 1, key, sizeof(key));
    CU_ASSERT_EQUAL_FATAL(symmem_store_get(store, key, &good, sizeof(good), &bytes, 0), SYMMEM_OK);
    CU_ASSERT(!is_read(&good, sizeof(good), &earlier_job));
    record = record_of(SYMMEM_TIMEOUT);
    const symmem_error_record late = record;
    sm_exit_record_explain(&world, 1, 1, &record);
    CU_ASSERT_STRING_EQUAL(record.message, late.message);
    record.status = SYMMEM_PEER_LOST;
    sm_exit_record_explain(&world, 1, 1, &record);
    CU_ASSERT_PTR_NOT_NULL(strstr(record.message, "; rank 1 failed with LIMIT in init: nothing"));
    odd = good;
    odd.made_s -= 62; /* it has gone on since then */
    CU_ASSERT_EQUAL(symmem_store_set(store, key, &odd, sizeof(odd), 0), SYMMEM_OK);
    record = late;
    record.status = SYMMEM_PEER_LOST;
    sm_exit_record_explain(&world, 1, 1, &record);
    CU_ASSERT_STRING_EQUAL(record.message, late.message);
    be_there(1, 1);
    record = record_of(SYMMEM_OK);
    leave(0, 2);
    CU_ASSERT(is_left(1)); /* until it ends, or its next process comes */
    sm_exit_record_clear(&world);
    CU_ASSERT(!is_left(1));
    symmem_store_close(store);
}

/* Later ranks find nothing else of the earlier job. */
TEST("what tells of an earlier job goes last") {
    sm_identity self;
    CU_ASSERT_EQUAL_FATAL(sm_identity_self(&self), SYMMEM_OK);
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_memory(&store), SYMMEM_OK);
    sm_world world = {.store = store, .prefix = SM_WORLD_PREFIX, .identity = &self, .size = 3};
    symmem_error_record record = record_of(SYMMEM_PEER_LOST);
    (void)snprintf(record.message, sizeof(record.message), "rank 1 ended (%s)", SM_MAY_BE_EARLIER);
    sm_exit_record_leave(&world, &record);
    CU_ASSERT(is_left(0));
    world.rank = 1;
    (void)snprintf(record.message, sizeof(record.message), "rank 0 ended %s", SM_FOR_EARLIER);
    sm_exit_record_leave(&world, &record); /* the third may come yet */
    CU_ASSERT(is_left(0) && !is_left(1));
    (void)record_of(SYMMEM_LIMIT);
    leave(2, 3);
    CU_ASSERT(!is_left(0)); /* later ranks read rank 2's record */
    drop(2);
    symmem_store_close(store);
}

/* --- that a rank was there
 * --------------------------------------------------------------------------- */

static int words; /* that rank 0 has left for rank 1 */
static bool told_before;
static const char *refused_key; /* NULL: none */

static symmem_status watched_set(void *self, const char *key, const void *value, size_t bytes,
                                 uint32_t timeout_ms) {
    if (refused_key != NULL && strcmp(key, refused_key) == 0)
        return SYMMEM_NO_SPACE;
    if (strcmp(key, SM_WORLD_PREFIX "/left/0") == 0)
        words++;
    if (strcmp(key, SM_WORLD_PREFIX "/left/any") == 0)
        told_before = words == 1;
    return symmem_store_set(self, key, value, bytes, timeout_ms);
}

static symmem_status inner_get(void *self, const char *key, void *value, size_t capacity,
                               size_t *bytes_p, uint32_t timeout_ms) {
    return symmem_store_get(self, key, value, capacity, bytes_p, timeout_ms);
}

static symmem_status inner_wait(void *self, const char *key, uint32_t timeout_ms) {
    return symmem_store_wait(self, key, timeout_ms);
}

static symmem_status inner_add(void *self, const char *key, int64_t delta, int64_t *value_p,
                               uint32_t timeout_ms) {
    return symmem_store_add(self, key, delta, value_p, timeout_ms);
}

static symmem_status inner_remove(void *self, const char *key, uint32_t timeout_ms) {
    return symmem_store_remove(self, key, timeout_ms);
}

static void inner_close(void *self) {
    symmem_store_close(self);
}

static void come_and_leave(void) {
    static const symmem_store_ops ops = {sizeof(ops), watched_set,  inner_get,  inner_wait,
                                         inner_add,   inner_remove, inner_close};
    symmem_store *inner = NULL;
    symmem_context *contexts[2] = {NULL, NULL};
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_memory(&inner), SYMMEM_OK);
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_custom(&ops, inner, &store), SYMMEM_OK);
    for (int32_t rank = 0; rank < 2; rank++) {
        symmem_context_options options;
        symmem_context_options_init(&options);
        options.store = store;
        options.rank = rank;
        options.world_size = 2;
        CU_ASSERT_EQUAL_FATAL(symmem_init(&options, &contexts[rank]), SYMMEM_OK);
    }
    for (int32_t rank = 0; rank < 2; rank++) {
        CU_ASSERT_EQUAL(symmem_finalize(contexts[rank]), SYMMEM_OK);
        symmem_context_free(contexts[rank]);
    }
    symmem_store_close(store);
}

/* A context leaves its word for a rank first, and then the sign for which that rank looks. A
 * context that removes both begins with the sign. */
TEST("the word before the sign") {
    come_and_leave();
    CU_ASSERT(words == 1 && told_before);
    static const char *const keys[] = {SM_WORLD_PREFIX "/left/0", SM_WORLD_PREFIX "/left/any"};
    for (int i = 0; i < 2; i++) { /* nothing is left of one that cannot be left whole */
        refused_key = keys[i];
        words = 0;
        told_before = false;
        come_and_leave();
        CU_ASSERT(words == i && !told_before);
    }
    refused_key = NULL;
}
