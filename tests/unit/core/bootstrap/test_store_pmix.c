/* SPDX-License-Identifier: BSD-3-Clause */
/* PMIx as it should be, as it may be, and as it must not be: the library here is the test's. */
#include "unit.h"

#include "store/store_pmix.h"
#include "store/store_pmix_abi.h"

#include <dlfcn.h>

static struct {
    uint32_t rank, size;
    int inits, finals;
    unsigned late_ms; /* each call */
    const char *published, *gives;
    int get_fails, fails_first; /* the latter: so often only, if it is not 0 */
    bool blocks_signals;
} pmix;

static void be_late(void) {
    usleep(pmix.late_ms * 1000);
}

static int fake_init(sm_pmix_proc *self, sm_pmix_info *info, size_t count) {
    sigset_t mask;
    be_late();
    (void)pthread_sigmask(SIG_SETMASK, NULL, &mask);
    pmix.blocks_signals = sigismember(&mask, SIGUSR1) == 1;
    memset(self, 0, sizeof(*self));
    (void)snprintf(self->namespace_name, sizeof(self->namespace_name), "job");
    self->rank = pmix.rank;
    pmix.inits++;
    return SM_PMIX_SUCCESS;
}

static int fake_finalize(const sm_pmix_info *info, size_t count) {
    be_late();
    pmix.finals++;
    return SM_PMIX_SUCCESS;
}

static char published[600];
static int fake_put(uint8_t scope, const char *key, sm_pmix_value *value) {
    CU_ASSERT(scope == SM_PMIX_GLOBAL && value->type == SM_PMIX_STRING);
    (void)snprintf(published, sizeof(published), "%s=%s", key, value->data.string);
    return SM_PMIX_SUCCESS;
}

static int fake_commit(void) {
    pmix.published = published;
    return SM_PMIX_SUCCESS;
}

static int fake_get(const sm_pmix_proc *of, const char *key, const sm_pmix_info *info, size_t count,
                    sm_pmix_value **value_p) {
    const bool is_number = of->rank == SM_PMIX_RANK_WILDCARD;
    be_late();
    CU_ASSERT_STRING_EQUAL(of->namespace_name, "job");
    if (!is_number && pmix.get_fails != 0 && (pmix.fails_first == 0 || --pmix.fails_first > 0))
        return pmix.get_fails;
    *value_p = calloc(1, sizeof(**value_p));
    (*value_p)->type = is_number ? SM_PMIX_UINT32 : SM_PMIX_STRING;
    if (is_number)
        (*value_p)->data.uint32 = pmix.size;
    else
        (*value_p)->data.string = strdup(pmix.gives);
    return SM_PMIX_SUCCESS;
}

static const char *fake_string(int status) {
    return status == SM_PMIX_ERR_TIMEOUT ? "TIMEOUT" : "SOME-ERROR";
}

void *__wrap_dlopen(const char *name, int flags);
void *__wrap_dlopen(const char *name, int flags) {
    CU_ASSERT_STRING_EQUAL(name, SM_PMIX_LIBRARY);
    return &pmix;
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
        if (strcmp(calls[i].name, name) == 0)
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
    pmix.gives = "some place";
    setenv("PMIX_NAMESPACE", "job", 1);
    setenv("PMIX_RANK", "0", 1);
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
    unsetenv("PMIX_NAMESPACE");
    CU_ASSERT_FALSE(sm_pmix_offered());
    EXPECT_FAIL(sm_pmix_begin(2, 4, in_ms(5000), &is_local), SYMMEM_UNSUPPORTED, "store_open");
}

TEST("other ranks than the context's") {
    bool is_local;
    begin_fake(2, 4);
    EXPECT_FAIL(sm_pmix_begin(1, 4, in_ms(5000), &is_local), SYMMEM_INVALID_ARGUMENT, "store_open");
    EXPECT_FAIL(sm_pmix_begin(2, 8, in_ms(5000), &is_local), SYMMEM_INVALID_ARGUMENT, "store_open");
    CU_ASSERT(sm_record()->expected == 4 && sm_record()->actual == 8);
    CU_ASSERT(pmix.inits == 2 && pmix.finals == 2);
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
    pmix.get_fails = SM_PMIX_ERR_NOT_FOUND;
    EXPECT_FAIL(sm_pmix_look_up("key", text, sizeof(text), in_ms(100)), SYMMEM_TIMEOUT,
                "store_open");
    pmix.fails_first = 3; /* rank 0 comes late, and the server does not wait for it */
    CU_ASSERT_EQUAL(sm_pmix_look_up("key", text, sizeof(text), in_ms(5000)), SYMMEM_OK);
    pmix.get_fails = -1;
    EXPECT_FAIL(sm_pmix_look_up("key", text, sizeof(text), in_ms(5000)), SYMMEM_SYSTEM,
                "store_open");
    sm_pmix_end();
}

/* The last one: a library that was left in a call is not used again. */
TEST("a library that does not come back") {
    bool is_local;
    char text[32];
    begin_fake(0, 2);
    CU_ASSERT_EQUAL(sm_pmix_begin(0, 2, in_ms(5000), &is_local), SYMMEM_OK);
    pmix.late_ms = 1500;
    const uint64_t start_ns = sm_now_ns();
    EXPECT_FAIL(sm_pmix_look_up("key", text, sizeof(text), in_ms(100)), SYMMEM_TIMEOUT,
                "store_open");
    CU_ASSERT(sm_now_ns() - start_ns < 1200000000ull);
    sm_pmix_end();
    EXPECT_FAIL(sm_pmix_begin(0, 2, in_ms(100), &is_local), SYMMEM_UNSUPPORTED, "store_open");
    CU_ASSERT(pmix.inits == 1 && pmix.finals == 0);
    usleep(1600000); /* its thread has gone */
}
