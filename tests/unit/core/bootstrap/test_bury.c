/* SPDX-License-Identifier: BSD-3-Clause */
/* Whose a life file was that somebody removed: what the store has to say for it. */
#include "bootstrap/session_internal.h"
#include "unit.h"

static symmem_store *store;
static sm_liveness *liveness;

static void open_world(void) {
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_memory(&store), SYMMEM_OK);
    CU_ASSERT_EQUAL_FATAL(sm_liveness_create(3, &liveness), SYMMEM_OK);
    sm_liveness_read(liveness, store, "w");
}

static void close_world(void) {
    sm_liveness_destroy(liveness);
    symmem_store_close(store);
}

static void be_rank(int32_t rank, const void *value, size_t bytes) {
    char key[SYMMEM_STORE_KEY_MAX + 1];
    sm_identity_key("w", rank, key, sizeof(key));
    CU_ASSERT_EQUAL(symmem_store_set(store, key, value, bytes, 0), SYMMEM_OK);
}

static bool has_grave(int32_t rank) {
    char key[SYMMEM_STORE_KEY_MAX + 1], value[64];
    size_t bytes = 0;
    sm_liveness_grave_key("w", rank, key, sizeof(key));
    return symmem_store_get(store, key, value, sizeof(value), &bytes, 0) == SYMMEM_OK;
}

TEST("whose file it was") {
    sm_member member;
    memset(&member, 0, sizeof(member));
    open_world();
    sm_copy_text(member.identity.life_file, sizeof(member.identity.life_file), "/a/folder/one");
    be_rank(1, &member, sizeof(member));
    CU_ASSERT(!sm_liveness_bury(liveness, "two"));
    CU_ASSERT(sm_liveness_bury(liveness, "one") && has_grave(1));
    sm_copy_text(member.identity.life_file, sizeof(member.identity.life_file), "three");
    be_rank(2, &member.identity, sizeof(member.identity)); /* some keys hold nothing else */
    CU_ASSERT(sm_liveness_bury(liveness, "three") && has_grave(2));
    sm_copy_text(member.identity.life_file, sizeof(member.identity.life_file), "four");
    be_rank(0, &member, sizeof(member) - 1);
    CU_ASSERT(!sm_liveness_bury(liveness, "four") && !has_grave(0));
    CU_ASSERT(!sm_liveness_bury(NULL, "one"));
    close_world();
}

TEST("a world without a store") {
    CU_ASSERT_EQUAL_FATAL(sm_liveness_create(3, &liveness), SYMMEM_OK);
    CU_ASSERT(!sm_liveness_bury(liveness, "one"));
    sm_liveness_destroy(liveness);
}
