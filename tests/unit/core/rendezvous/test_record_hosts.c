/* SPDX-License-Identifier: BSD-3-Clause */
/* Records of ranks on several hosts: only memory that needs no descriptor can be reached. */
#include "rendezvous.h"
#include "session.h"
#include "unit.h"

#include <stdio.h>
#include <stdlib.h>

#define RANKS 3
#define FD SYMMEM_SHARE_FD
#define BOTH (SYMMEM_SHARE_FD | SYMMEM_SHARE_BYTES)

typedef struct world {
    symmem_backend table;
    symmem_context context;
    sm_session session;
    sm_join joins[RANKS];
    symmem_group group;
    sm_rendezvous rendezvous;
    sm_rendezvous_record records[RANKS];
} world;

/* Rank r is on host hosts[r], and shares its memory as kinds[r] says. */
static world *make_world(uint64_t capabilities, const int *hosts, const int *kinds) {
    world *self = calloc(1, sizeof(*self));
    CU_ASSERT_PTR_NOT_NULL_FATAL(self);
    self->table.name = "test";
    self->table.capabilities = capabilities;
    self->context.backend = &self->table;
    self->context.world_size = RANKS;
    self->session.joins = self->joins;
    self->session.config.world_size = RANKS;
    self->group.session = &self->session;
    self->group.world_size = RANKS;
    self->group.context = &self->context;
    self->rendezvous.context = &self->context;
    self->rendezvous.group = &self->group;
    self->rendezvous.records = self->records;
    for (int32_t rank = 0; rank < RANKS; rank++) {
        sm_identity *identity = &self->joins[rank].identity;
        identity->boot_id = 1 + (uint64_t)hosts[rank];
        identity->pid = 100 + rank;
        identity->host[0] = (char)('a' + hosts[rank]);
        self->records[rank] = (sm_rendezvous_record){
            .magic = SM_RECORD_MAGIC,
            .abi = SYMMEM_BACKEND_ABI,
            .ordinal = 1,
            .allocation_bytes = 65536,
            .block_bytes = 65536,
            .signal_pad_size = 9216,
            .device = rank,
            .data = {.kind = kinds[rank], .mapped_bytes = 65536},
            .signals = {.kind = kinds[rank], .mapped_bytes = 16384},
        };
    }
    return self;
}

/* The kinds are of the data, the signals or both; else it is both ways. */
static symmem_status judged_of(uint64_t capabilities, const int *hosts, const int *kinds, bool data,
                               bool signals) {
    world *self = make_world(capabilities, hosts, kinds);
    for (int32_t rank = 0; rank < RANKS; rank++) {
        if (!data)
            self->records[rank].data.kind = BOTH;
        if (!signals)
            self->records[rank].signals.kind = BOTH;
    }
    symmem_clear_error();
    symmem_status status = sm_record_judge(&self->rendezvous);
    free(self);
    return status;
}

static symmem_status judged(uint64_t capabilities, const int *hosts, const int *kinds) {
    return judged_of(capabilities, hosts, kinds, true, true);
}

static bool says(const char *text) {
    symmem_error_record record;
    symmem_last_error(&record);
    return strstr(record.message, text) != NULL;
}

TEST("one host") {
    const int hosts[] = {0, 0, 0}, kinds[] = {FD, BOTH, FD};
    CU_ASSERT_EQUAL(judged(0, hosts, kinds), SYMMEM_OK);
    CU_ASSERT_EQUAL(judged(SYMMEM_CAP_CROSS_HOST, hosts, kinds), SYMMEM_OK);
}

TEST("a backend of one host") {
    const int hosts[] = {0, 0, 1}, kinds[] = {BOTH, BOTH, BOTH};
    CU_ASSERT_EQUAL(judged(0, hosts, kinds), SYMMEM_UNREACHABLE);
    CU_ASSERT_EQUAL(sm_record()->failed_rank, 2);
    CU_ASSERT(says("ranks 0 and 2 are on different hosts (a, b)"));
}

TEST("all by bytes") {
    const int hosts[] = {0, 1, 2}, kinds[] = {BOTH, SYMMEM_SHARE_BYTES, BOTH};
    CU_ASSERT_EQUAL(judged(SYMMEM_CAP_CROSS_HOST, hosts, kinds), SYMMEM_OK);
}

/* Memory that is registered by all together is shared in no other way. */
TEST("registered together") {
    const int hosts[] = {0, 1, 1}, kinds[] = {0, 0, 0};
    CU_ASSERT_EQUAL(judged(SYMMEM_CAP_CROSS_HOST, hosts, kinds), SYMMEM_OK);
}

/* Whichever rank it is whose memory does not leave its host, the first one's too. */
TEST("one by descriptor") {
    const int hosts[] = {0, 1, 1};
    for (int32_t bound = 0; bound < RANKS; bound++) {
        int kinds[] = {BOTH, BOTH, BOTH};
        char text[64];
        kinds[bound] = FD;
        snprintf(text, sizeof(text), "rank %d's memory cannot be shared between hosts", (int)bound);
        CU_ASSERT_EQUAL(judged_of(SYMMEM_CAP_CROSS_HOST, hosts, kinds, true, false),
                        SYMMEM_UNREACHABLE);
        CU_ASSERT_EQUAL(judged_of(SYMMEM_CAP_CROSS_HOST, hosts, kinds, false, true),
                        SYMMEM_UNREACHABLE);
        CU_ASSERT_EQUAL(judged(SYMMEM_CAP_CROSS_HOST, hosts, kinds), SYMMEM_UNREACHABLE);
        CU_ASSERT(says("ranks 0 and 1 are on different hosts (a, b)"));
        CU_ASSERT(says(text));
        CU_ASSERT_EQUAL(sm_record()->failed_rank, bound);
    }
}

/* What travels is whole. */
TEST("bytes travel") {
    const int hosts[] = {0, 1, 1}, kinds[] = {BOTH, BOTH, BOTH};
    world *self = make_world(SYMMEM_CAP_CROSS_HOST, hosts, kinds);
    symmem_share own = {.kind = BOTH, .fd = -1, .mapped_bytes = 65536};
    memset(own.bytes, 1, sizeof(own.bytes));
    memset(own.more_bytes, 2, sizeof(own.more_bytes));
    sm_record_share record = sm_record_share_from(&own);
    symmem_share found = sm_record_share_of(&self->rendezvous, 1, &record, -1);
    CU_ASSERT_EQUAL(found.kind, BOTH);
    CU_ASSERT_EQUAL(memcmp(found.bytes, own.bytes, sizeof(own.bytes)), 0);
    CU_ASSERT_EQUAL(memcmp(found.more_bytes, own.more_bytes, sizeof(own.more_bytes)), 0);
    free(self);
}
