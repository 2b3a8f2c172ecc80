/* SPDX-License-Identifier: BSD-3-Clause */
/* PMIx as it should be, as it may be, and as it must not be: the library here is the test's. */
#include "store_files.h"
#include "tcp_world.h"

#include "store/store_choose.h"
#include "store/store_pmix.h"
#include "store/store_pmix_abi.h"
#include "last_record.h"

#include <dlfcn.h>

static struct {
    uint32_t rank, size;
    atomic_int inits, finals;
    const char *published, *gives;
    int get_fails, fails_first; /* the latter: so often only, if it is not 0 */
    int init_fails, put_fails, commit_fails, size_fails;
    uint32_t local_size; /* 0: not told */
    uint16_t value_type; /* 0: the right one */
    bool gives_nothing, blocks_signals;
    atomic_bool is_in_init, stays_in_init, stays_in_get;
} pmix;
/* Of the library itself. */
static bool is_missing;
static const char *lacks;

static void stay(const atomic_bool *stays) {
    while (atomic_load(stays))
        usleep(1000);
}

static int fake_init(sm_pmix_proc *self, sm_pmix_info *info, size_t count) {
    sigset_t mask;
    atomic_store(&pmix.is_in_init, true);
    stay(&pmix.stays_in_init);
    if (pmix.init_fails != 0)
        return pmix.init_fails;
    (void)pthread_sigmask(SIG_SETMASK, NULL, &mask);
    pmix.blocks_signals = sigismember(&mask, SIGUSR1) == 1;
    memset(self, 0, sizeof(*self));
    (void)snprintf(self->namespace_name, sizeof(self->namespace_name), "job");
    self->rank = pmix.rank;
    pmix.inits++;
    return SM_PMIX_SUCCESS;
}

static int fake_finalize(const sm_pmix_info *info, size_t count) {
    pmix.finals++;
    return SM_PMIX_SUCCESS;
}

static char published[600];
static int fake_put(uint8_t scope, const char *key, sm_pmix_value *value) {
    CU_ASSERT(scope == SM_PMIX_GLOBAL && value->type == SM_PMIX_STRING);
    (void)snprintf(published, sizeof(published), "%s=%s", key, value->data.string);
    return pmix.put_fails;
}

static int fake_commit(void) {
    pmix.published = published;
    return pmix.commit_fails;
}

static int fake_get(const sm_pmix_proc *of, const char *key, const sm_pmix_info *info, size_t count,
                    sm_pmix_value **value_p) {
    const bool is_number = of->rank == SM_PMIX_RANK_WILDCARD;
    stay(&pmix.stays_in_get);
    CU_ASSERT_STRING_EQUAL(of->namespace_name, "job");
    if (!is_number && pmix.get_fails != 0 && (pmix.fails_first == 0 || --pmix.fails_first > 0))
        return pmix.get_fails;
    if (is_number && pmix.size_fails != 0)
        return pmix.size_fails;
    const bool is_local = strcmp(key, SM_PMIX_LOCAL_SIZE) == 0;
    if (pmix.gives_nothing || (is_local && pmix.local_size == 0))
        return is_local ? SM_PMIX_ERR_NOT_FOUND : SM_PMIX_SUCCESS;
    *value_p = calloc(1, sizeof(**value_p));
    (*value_p)->type = is_number ? SM_PMIX_UINT32 : SM_PMIX_STRING;
    if (pmix.value_type != 0)
        (*value_p)->type = pmix.value_type;
    if (is_number)
        (*value_p)->data.uint32 = is_local ? pmix.local_size : pmix.size;
    else if (pmix.gives != NULL)
        (*value_p)->data.string = strdup(pmix.gives);
    return SM_PMIX_SUCCESS;
}

static const char *fake_string(int status) {
    return status == SM_PMIX_ERR_TIMEOUT ? "TIMEOUT" : "SOME-ERROR";
}

void *__real_dlopen(const char *name, int flags);
void *__wrap_dlopen(const char *name, int flags);
void *__wrap_dlopen(const char *name, int flags) {
    CU_ASSERT_STRING_EQUAL(name, SM_PMIX_LIBRARY);
    return is_missing ? __real_dlopen("/no/libpmix", flags) : &pmix;
}

void *__real_dlsym(void *library, const char *name);
void *__wrap_dlsym(void *library, const char *name);
void *__wrap_dlsym(void *library, const char *name) {
    if (library != &pmix) /* a sanitizer's runtime, before it is ready for anything else */
        return __real_dlsym(library, name);
    static const struct {
        const char *name;
        void *call;
    } calls[] = {{"PMIx_Init", fake_init}, {"PMIx_Finalize", fake_finalize},
                 {"PMIx_Put", fake_put},   {"PMIx_Commit", fake_commit},
                 {"PMIx_Get", fake_get},   {"PMIx_Error_string", fake_string}};
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
        if (strcmp(calls[i].name, name) == 0 && (lacks == NULL || strcmp(lacks, name) != 0))
            return calls[i].call;
    return NULL;
}

static uint64_t in_ms(uint64_t ms) {
    return sm_now_ns() + ms * 1000000;
}

static void begin_fake(uint32_t rank, uint32_t size) {
    memset(&pmix, 0, sizeof(pmix));
    pmix.rank = rank;
    pmix.size = size;
    pmix.local_size = size;
    pmix.gives = "some place";
    setenv("PMIX_NAMESPACE", "job", 1);
    setenv("PMIX_RANK", "0", 1);
}

/* Each in a process that has not loaded the library yet. */
static const char *expected_text;

static void expect_unsupported(void) {
    bool is_local;
    begin_fake(0, 2);
    if (sm_pmix_offered() || sm_pmix_begin(0, 2, in_ms(5000), &is_local) != SYMMEM_UNSUPPORTED ||
        strstr(last_record().message, expected_text) == NULL)
        exit(1);
}

static void expect_no_lock(void) {
    arm((fault){.call = "sm_cond_init", .error = ENOMEM});
    expect_unsupported();
}

TEST("no library, an old one, no lock") {
    static const char *const functions[] = {"PMIx_Init",   "PMIx_Finalize", "PMIx_Put",
                                            "PMIx_Commit", "PMIx_Get",      "PMIx_Error_string"};
    is_missing = true;
    expected_text = "libpmix";
    CU_ASSERT_EQUAL(reap(start(expect_unsupported)), 0);
    is_missing = false;
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        expected_text = lacks = functions[i];
        CU_ASSERT_EQUAL(reap(start(expect_unsupported)), 0);
    }
    lacks = NULL;
    expected_text = "lock";
    CU_ASSERT_EQUAL(reap(start(expect_no_lock)), 0);
}

TEST("begun once, ended once") {
    bool is_local = false;
    begin_fake(2, 4);
    CU_ASSERT_TRUE(sm_pmix_offered());
    CU_ASSERT_EQUAL(sm_pmix_begin(2, 4, in_ms(5000), &is_local), SYMMEM_OK);
    CU_ASSERT_TRUE(is_local);
    CU_ASSERT_TRUE(pmix.blocks_signals);
    CU_ASSERT_EQUAL(sm_pmix_begin(2, 4, in_ms(5000), &is_local), SYMMEM_OK);
    sm_pmix_end();
    CU_ASSERT(pmix.inits == 1 && pmix.finals == 0);
    sm_pmix_end();
    CU_ASSERT(pmix.inits == 1 && pmix.finals == 1);
    CU_ASSERT_EQUAL(sm_pmix_begin(2, 4, in_ms(5000), &is_local), SYMMEM_OK);
    sm_pmix_end();
    CU_ASSERT(pmix.inits == 2 && pmix.finals == 2);
    unsetenv("PMIX_RANK");
    CU_ASSERT_FALSE(sm_pmix_offered());
    unsetenv("PMIX_NAMESPACE");
    CU_ASSERT_FALSE(sm_pmix_offered());
    EXPECT_FAIL(sm_pmix_begin(2, 4, in_ms(5000), &is_local), SYMMEM_UNSUPPORTED, "store_open");
}

TEST("other ranks than the context's") {
    bool is_local;
    begin_fake(2, 4);
    EXPECT_FAIL(sm_pmix_begin(1, 4, in_ms(5000), &is_local), SYMMEM_INVALID_ARGUMENT, "store_open");
    EXPECT_FAIL(sm_pmix_begin(2, 8, in_ms(5000), &is_local), SYMMEM_INVALID_ARGUMENT, "store_open");
    CU_ASSERT(last_record().expected == 4 && last_record().actual == 8);
    CU_ASSERT(pmix.inits == 2 && pmix.finals == 2);
    CU_ASSERT_EQUAL(sm_pmix_begin(2, 4, in_ms(5000), &is_local), SYMMEM_OK);
    EXPECT_FAIL(sm_pmix_begin(1, 4, in_ms(5000), &is_local), SYMMEM_INVALID_ARGUMENT, "store_open");
    CU_ASSERT(pmix.inits == 3 && pmix.finals == 2); /* the first one still uses it */
    sm_pmix_end();
    CU_ASSERT_EQUAL(pmix.finals, 3);
}

/* A call that a busy machine left behind has come back, and PMIx is used again. */
static void await_use(void) {
    AWAIT(4000, sm_pmix_publish("key", "text", in_ms(5000)) == SYMMEM_OK);
    CU_ASSERT_EQUAL(sm_pmix_publish("key", "text", in_ms(5000)), SYMMEM_OK);
}

TEST("what travels") {
    bool is_local;
    char text[32] = "";
    begin_fake(0, 2);
    CU_ASSERT_EQUAL(sm_pmix_begin(0, 2, in_ms(5000), &is_local), SYMMEM_OK);
    CU_ASSERT_EQUAL(sm_pmix_publish("key", "place", in_ms(5000)), SYMMEM_OK);
    CU_ASSERT_STRING_EQUAL(pmix.published, "key=place");
    CU_ASSERT_EQUAL(sm_pmix_look_up("key", text, sizeof(text), in_ms(5000)), SYMMEM_OK);
    CU_ASSERT_STRING_EQUAL(text, "some place");
    pmix.get_fails = SM_PMIX_ERR_TIMEOUT;
    EXPECT_FAIL(sm_pmix_look_up("key", text, sizeof(text), in_ms(100)), SYMMEM_TIMEOUT,
                "store_open");
    await_use();
    pmix.get_fails = SM_PMIX_ERR_NOT_FOUND;
    EXPECT_FAIL(sm_pmix_look_up("key", text, sizeof(text), in_ms(100)), SYMMEM_TIMEOUT,
                "store_open");
    await_use();
    pmix.fails_first = 3; /* rank 0 comes late, and the server does not wait for it */
    CU_ASSERT_EQUAL(sm_pmix_look_up("key", text, sizeof(text), in_ms(5000)), SYMMEM_OK);
    pmix.get_fails = -1;
    EXPECT_FAIL(sm_pmix_look_up("key", text, sizeof(text), in_ms(5000)), SYMMEM_SYSTEM,
                "store_open");
    sm_pmix_end();
}

TEST("calls of PMIx that fail") {
    static const struct {
        size_t field; /* of `pmix` */
        symmem_status begin, publish;
    } cases[] = {{offsetof(__typeof__(pmix), init_fails), SYMMEM_SYSTEM, SYMMEM_OK},
                 {offsetof(__typeof__(pmix), size_fails), SYMMEM_SYSTEM, SYMMEM_OK},
                 {offsetof(__typeof__(pmix), put_fails), SYMMEM_OK, SYMMEM_SYSTEM},
                 {offsetof(__typeof__(pmix), commit_fails), SYMMEM_OK, SYMMEM_SYSTEM}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        bool is_local;
        begin_fake(0, 2);
        *(int *)(void *)((char *)&pmix + cases[i].field) = -1;
        CU_ASSERT_EQUAL(sm_pmix_begin(0, 2, in_ms(5000), &is_local), cases[i].begin);
        if (cases[i].begin == SYMMEM_OK) {
            CU_ASSERT_EQUAL(sm_pmix_publish("k", "v", in_ms(5000)), cases[i].publish);
            CU_ASSERT_PTR_NOT_NULL(strstr(last_record().message, "SOME-ERROR"));
            sm_pmix_end();
        }
        CU_ASSERT_EQUAL(pmix.finals, pmix.inits);
    }
}

TEST("calls of the system that fail") {
    for (int nth = 0; nth < 3; nth++) { /* no memory, no condition, no thread */
        bool is_local;
        begin_fake(0, 2);
        arm((fault){.error = EAGAIN, .skips = nth});
        CU_ASSERT(sm_pmix_begin(0, 2, in_ms(5000), &is_local) != SYMMEM_OK);
        CU_ASSERT_TRUE(disarm());
        CU_ASSERT_EQUAL(pmix.inits, 0);
    }
}

/* Values that PMIx does not give, or of another type. */
TEST("what PMIx does not tell") {
    bool is_local = true;
    char text[32] = "";
    begin_fake(0, 2);
    pmix.local_size = 0;
    CU_ASSERT_EQUAL(sm_pmix_begin(0, 2, 0, &is_local), SYMMEM_OK);
    CU_ASSERT_FALSE(is_local);
    pmix.local_size = 1;
    CU_ASSERT_EQUAL(sm_pmix_begin(0, 2, 0, &is_local), SYMMEM_OK);
    CU_ASSERT_FALSE(is_local);
    sm_pmix_end();
    pmix.gives = NULL;
    CU_ASSERT_EQUAL(sm_pmix_look_up("key", text, sizeof(text), 0), SYMMEM_OK);
    CU_ASSERT_STRING_EQUAL(text, "");
    pmix.value_type = SM_PMIX_INT;
    CU_ASSERT_EQUAL(sm_pmix_look_up("key", text, sizeof(text), 0), SYMMEM_OK);
    CU_ASSERT_STRING_EQUAL(text, "");
    pmix.gives_nothing = true;
    CU_ASSERT_EQUAL(sm_pmix_look_up("key", text, sizeof(text), 0), SYMMEM_OK);
    pmix.get_fails = SM_PMIX_ERR_NOT_FOUND;
    pmix.fails_first = 3;
    CU_ASSERT_EQUAL(sm_pmix_look_up("key", text, sizeof(text), 0), SYMMEM_OK);
    sm_pmix_end();
    CU_ASSERT_EQUAL(pmix.finals, 1);
}

/* --- stores that PMIx carries ----------------------------------------------------------------- */

TEST("a store by PMIx") {
    symmem_store *store = NULL, *other = NULL;
    char text[SM_TCP_PLACE_BYTES];
    const char *why;
    begin_fake(0, 2);
    unsetenv("SYMMEM_LAUNCHER");
    unsetenv("SYMMEM_STORE");
    CU_ASSERT_EQUAL(sm_store_choose(2, text, &why), SYMMEM_OK);
    CU_ASSERT_STRING_EQUAL(text, "pmix:");
    setenv("SYMMEM_LAUNCHER", "env", 1);
    CU_ASSERT_EQUAL(sm_store_choose(2, text, &why), SYMMEM_OK);
    CU_ASSERT_STRING_EQUAL(text, "");
    unsetenv("SYMMEM_LAUNCHER");
    CU_ASSERT_EQUAL_FATAL(symmem_store_open("pmix:", 0, 2, LIMIT_MS, &store), SYMMEM_OK);
    CU_ASSERT_PTR_NOT_NULL(strstr(pmix.published, "=symmem1 "));
    CU_ASSERT_EQUAL(symmem_store_set(store, "k", "", 0, LIMIT_MS), SYMMEM_OK);
    symmem_store_close(store);
    CU_ASSERT_EQUAL(pmix.finals, 1);
    /* As rank 1, of a store that is served elsewhere. */
    begin_server();
    begin_fake(1, 2);
    sm_tcp_place_write(&place, text);
    pmix.gives = text;
    CU_ASSERT_EQUAL_FATAL(symmem_store_open("pmix:", 1, 2, LIMIT_MS, &store), SYMMEM_OK);
    CU_ASSERT_EQUAL(symmem_store_set(store, "k", "", 0, LIMIT_MS), SYMMEM_OK);
    symmem_store_close(store);
    CU_ASSERT_EQUAL(pmix.finals, 1);
    pmix.gives = "no place";
    EXPECT_FAIL(symmem_store_open("pmix:", 1, 2, LIMIT_MS, &other), SYMMEM_CORRUPT, "store_open");
    EXPECT_FAIL(symmem_store_open("pmix:", 1, 3, LIMIT_MS, &other), SYMMEM_INVALID_ARGUMENT,
                "store_open");
    CU_ASSERT_EQUAL(pmix.finals, pmix.inits);
    end_server();
}

/* --- forks and threads ------------------------------------------------------------------------ */

static void *begin_late(void *arg) {
    bool is_local;
    CU_ASSERT_EQUAL(sm_pmix_begin(0, 2, in_ms(60000), &is_local), *(symmem_status *)arg);
    return NULL;
}

static void begin_in_child(void) {
    bool is_local;
    (void)alarm(10);
    if (sm_pmix_begin(0, 2, in_ms(3000), &is_local) != SYMMEM_UNSUPPORTED ||
        strstr(last_record().message, "parent") == NULL)
        exit(1);
    sm_pmix_end();
}

TEST("a fork while a thread is in PMIx") {
    symmem_status expected = SYMMEM_OK;
    bool is_local;
    pthread_t thread;
    begin_fake(0, 2);
    atomic_store(&pmix.stays_in_init, true);
    CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, begin_late, &expected), 0);
    AWAIT(5000, atomic_load(&pmix.is_in_init));
    CU_ASSERT_EQUAL(reap(start(begin_in_child)), 0); /* which does not wait for PMIx */
    EXPECT_FAIL(sm_pmix_begin(0, 2, in_ms(50), &is_local), SYMMEM_TIMEOUT, "store_open");
    CU_ASSERT_EQUAL(pmix.inits, 0);
    atomic_store(&pmix.stays_in_init, false);
    CU_ASSERT_EQUAL(sm_pmix_begin(0, 2, 0, &is_local), SYMMEM_OK); /* behind the other one */
    pthread_join(thread, NULL);
    CU_ASSERT_EQUAL(reap(start(begin_in_child)), 0);
    CU_ASSERT(pmix.inits == 1 && pmix.finals == 0);
    sm_pmix_end();
    sm_pmix_end();
    CU_ASSERT_EQUAL(pmix.finals, 1);
}

/* The last one: what was left in PMIx, and was to change something there, is never forgiven. */
TEST("a library that does not come back") {
    bool is_local;
    char text[32];
    begin_fake(0, 2);
    CU_ASSERT_EQUAL(sm_pmix_begin(0, 2, in_ms(5000), &is_local), SYMMEM_OK);
    atomic_store(&pmix.stays_in_get, true);
    EXPECT_FAIL(sm_pmix_look_up("key", text, sizeof(text), in_ms(100)), SYMMEM_TIMEOUT,
                "store_open");
    EXPECT_FAIL(sm_pmix_publish("key", "text", in_ms(5000)), SYMMEM_UNSUPPORTED, "store_open");
    atomic_store(&pmix.stays_in_get, false);
    await_use();
    sm_pmix_end();
    CU_ASSERT(pmix.inits == 1 && pmix.finals == 1);
    atomic_store(&pmix.stays_in_init, true);
    EXPECT_FAIL(sm_pmix_begin(0, 2, in_ms(100), &is_local), SYMMEM_TIMEOUT, "store_open");
    atomic_store(&pmix.stays_in_init, false);
    AWAIT(4000, pmix.inits == 2);
    EXPECT_FAIL(sm_pmix_begin(0, 2, in_ms(100), &is_local), SYMMEM_UNSUPPORTED, "store_open");
    CU_ASSERT_EQUAL(pmix.finals, 1);
    usleep(100000); /* its thread has gone */
}
