/* SPDX-License-Identifier: BSD-3-Clause */
/* Two processes that claim one rank, of which one comes while the other one publishes its key. */
#include "bootstrap/session_internal.h"
#include "session_store.h"
#include "unit.h"
#include "last_record.h"

typedef struct objection { /* as in member.c */
    uint8_t to[16];
    uint32_t kind;
    int32_t rank, world_size;
    uint32_t reserved;
    sm_identity identity;
} objection;

/* What the other process does as soon as this one's key is there. */
typedef void (*other_process)(symmem_store *store, const sm_member *found);
static other_process other;
static counting counts;

static symmem_status set(void *self, const char *key, const void *value, size_t bytes,
                         uint32_t limit_ms) {
    const symmem_status status = c_set(self, key, value, bytes, limit_ms);
    if (strcmp(key, "w/id/0") == 0 && bytes == sizeof(sm_member))
        other(counts.inner, value);
    return status;
}

static sm_identity identity_of_another(const sm_member *one) {
    sm_identity identity = one->identity;
    identity.pid++;
    identity.start_time++;
    identity.life[0] ^= 1;
    return identity;
}

static void object(symmem_store *store, const sm_member *found) {
    objection no;
    memset(&no, 0, sizeof(no));
    memcpy(no.to, found->token, sizeof(no.to));
    no.kind = 1;
    no.world_size = 2;
    no.identity = identity_of_another(found);
    CU_ASSERT_EQUAL(symmem_store_set(store, "w/no/0", &no, sizeof(no), 0), SYMMEM_OK);
}

static void take_its_place(symmem_store *store, const sm_member *found) {
    sm_member member = *found;
    member.identity = identity_of_another(found);
    member.token[0] ^= 1;
    CU_ASSERT_EQUAL(symmem_store_set(store, "w/id/0", &member, sizeof(member), 0), SYMMEM_OK);
}

/* Returns what init's step returned, and *at_first_p what the first group's did. */
static symmem_status publish_with(other_process process, symmem_status *at_first_p) {
    symmem_store_ops ops = counting_ops;
    symmem_store *store = NULL;
    sm_liveness *liveness = NULL;
    sm_identity self;
    sm_member own;
    bool is_published = false;
    memset(&counts, 0, sizeof(counts));
    other = process;
    ops.set = set;
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_memory(&counts.inner), SYMMEM_OK);
    CU_ASSERT_EQUAL_FATAL(symmem_store_open_custom(&ops, &counts, &store), SYMMEM_OK);
    CU_ASSERT_EQUAL_FATAL(sm_identity_self(&self), SYMMEM_OK);
    CU_ASSERT_EQUAL_FATAL(sm_liveness_create(2, &liveness), SYMMEM_OK);
    const sm_world world = {.store = store,
                            .prefix = "w",
                            .identity = &self,
                            .liveness = liveness,
                            .size = 2,
                            .timeout_ms = 1000};
    const symmem_status status = sm_member_publish(&world, &own, &is_published);
    CU_ASSERT(is_published);
    *at_first_p = sm_member_check(store, "w", &own, "group_barrier", 1000);
    CU_ASSERT(strstr(last_record().message, "two processes are rank 0") != NULL);
    sm_member_withdraw(&world, &own);
    /* An objection to the other process stays for that one. */
    CU_ASSERT_EQUAL(symmem_store_wait(store, "w/no/0", 1),
                    process == object ? SYMMEM_TIMEOUT : SYMMEM_OK);
    sm_liveness_destroy(liveness);
    symmem_store_close(store);
    return status;
}

/* Of two processes that both ended in init, one that comes later would not be told. */
TEST("an objection waits for the first group") {
    symmem_status at_first;
    CU_ASSERT_EQUAL(publish_with(object, &at_first), SYMMEM_OK);
    CU_ASSERT_EQUAL(at_first, SYMMEM_MISMATCH);
}

TEST("another key in its place ends init") {
    symmem_status at_first;
    CU_ASSERT_EQUAL(publish_with(take_its_place, &at_first), SYMMEM_MISMATCH);
    CU_ASSERT_EQUAL(at_first, SYMMEM_MISMATCH);
}
