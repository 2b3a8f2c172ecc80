/* SPDX-License-Identifier: BSD-3-Clause */
/* What ranks tell each other at rendezvous, and the verdict on it: records that differ, and those
 * of several hosts, where only memory that needs no descriptor can be reached. */
#include <fnmatch.h>

#include "rendezvous/rendezvous.h"
#include "stream/channel.h"
#include "bootstrap/session_internal.h"
#include "unit.h"
#include "last_record.h"
#include "rendezvous/rendezvous_map.h"
#include "rendezvous/rendezvous_record.h"

#define RANKS 3
#define FD SYMMEM_SHARE_FD
#define BOTH (SYMMEM_SHARE_FD | SYMMEM_SHARE_BYTES)

typedef struct world {
    sm_backend backend;
    symmem_context context;
    sm_session session;
    sm_join joins[RANKS];
    symmem_group group;
    sm_rendezvous rendezvous;
    sm_rendezvous_record records[RANKS];
    int32_t hosts[RANKS]; /* as the session says it */
} world;

/* Rank r is on host hosts[r], and shares its memory as kinds[r] says. */
static world *make_world(uint64_t capabilities, const int *hosts, const int *kinds) {
    world *self = calloc(1, sizeof(*self));
    CU_ASSERT_PTR_NOT_NULL_FATAL(self);
    self->backend.name = "test";
    self->backend.capabilities = capabilities;
    self->context.backend = &self->backend;
    self->context.world_size = RANKS;
    self->session.joins = self->joins;
    self->session.hosts = self->hosts;
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
        while (hosts[self->hosts[rank]] != hosts[rank])
            self->hosts[rank]++;
        self->records[rank] = (sm_rendezvous_record){
            .magic = SM_RDV_MAGIC,
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
    symmem_status status = sm_rdv_records_check(&self->rendezvous);
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
    CU_ASSERT_EQUAL(last_record().failed_rank, 2);
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
        CU_ASSERT_EQUAL(last_record().failed_rank, bound);
    }
}

/* What travels is whole. */
TEST("bytes travel") {
    const int hosts[] = {0, 1, 1}, kinds[] = {BOTH, BOTH, BOTH};
    world *self = make_world(SYMMEM_CAP_CROSS_HOST, hosts, kinds);
    symmem_share own = {.kind = BOTH, .fd = -1, .mapped_bytes = 65536};
    memset(own.bytes, 1, sizeof(own.bytes));
    memset(own.more_bytes, 2, sizeof(own.more_bytes));
    sm_rdv_share record = sm_rdv_share_pack(&own);
    symmem_share found = sm_rdv_share_unpack(&self->rendezvous, 1, &record, -1);
    CU_ASSERT_EQUAL(found.kind, BOTH);
    CU_ASSERT_EQUAL(memcmp(found.bytes, own.bytes, sizeof(own.bytes)), 0);
    CU_ASSERT_EQUAL(memcmp(found.more_bytes, own.more_bytes, sizeof(own.more_bytes)), 0);
    free(self);
}

/* --- descriptors ---------------------------------------------------------------------------- */

static int gathered; /* of each rank */

symmem_status __wrap_sm_session_all_gather_fds(sm_session *session, const char *operation,
                                               const int *fds, int count, int *out_fds,
                                               uint64_t deadline_ns);
symmem_status __wrap_sm_session_all_gather_fds(sm_session *session, const char *operation,
                                               const int *fds, int count, int *out_fds,
                                               uint64_t deadline_ns) {
    gathered = count;
    return SYMMEM_OK;
}

#define BYTES SYMMEM_SHARE_BYTES

/* What is shared by descriptors decides how many travel, if any; they never leave a host. */
TEST("descriptors that travel") {
    static const struct {
        int multicast, signals, data;
        bool exchange_data, cross_host, one_cannot;
        int world_size, gathered;
        bool attempts;
    } rows[] = {{0, FD, 0, false, false, false, 3, 1, false},
                {0, BYTES, FD, true, false, false, 3, 2, false},
                {0, BYTES, FD, false, false, false, 3, 0, false},
                {0, BYTES, BYTES, true, false, false, 3, 0, false},
                {0, FD, FD, true, true, false, 3, 0, false},
                {0, FD, FD, true, false, false, 1, 0, false},
                {FD, BYTES, BYTES, false, false, false, 3, 3, true},
                {FD, BYTES, BYTES, false, true, false, 3, 0, false},
                {FD, BYTES, BYTES, false, false, true, 3, 0, false},
                {BYTES, BYTES, BYTES, false, true, false, 3, 0, true},
                {BYTES, FD, BYTES, false, false, false, 3, 1, true}};
    const int hosts[] = {0, 0, 0};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const int kinds[] = {rows[i].data, rows[i].data, rows[i].data};
        int received[3 * RANKS];
        world *self = make_world(0, hosts, kinds);
        for (int32_t rank = 0; rank < RANKS; rank++) {
            self->records[rank].signals.kind = rows[i].signals;
            self->records[rank].multicast.kind = rows[i].multicast;
            if (!rows[i].one_cannot || rank != 2)
                self->records[rank].flags = SM_RDV_MULTICAST;
        }
        self->rendezvous.descriptors = received;
        self->rendezvous.exchange_data = rows[i].exchange_data;
        self->rendezvous.cross_host = rows[i].cross_host;
        self->group.world_size = rows[i].world_size;
        gathered = 0;
        CU_ASSERT_EQUAL(sm_rendezvous_descriptors(&self->rendezvous), SYMMEM_OK);
        CU_ASSERT_EQUAL(gathered, rows[i].gathered);
        CU_ASSERT_EQUAL(self->rendezvous.descriptor_count, rows[i].gathered);
        CU_ASSERT_EQUAL(self->rendezvous.attempt_multicast, rows[i].attempts);
        free(self);
    }
}

/* --- records that differ -------------------------------------------------------------------- */

#define FIELD(name, value_)                                                                        \
    {                                                                                              \
        offsetof(sm_rendezvous_record, name), sizeof(((sm_rendezvous_record *)0)->name),           \
            (uint64_t)(value_)                                                                     \
    }

/* Fields of one rank's record, and what is told then: status, stage, failed rank, errno, expected,
 * actual, message. */
static const struct {
    int32_t rank; /* RANKS: of all */
    struct {
        size_t at, bytes;
        uint64_t value;
    } fields[3];
    const char *told;
} verdicts[] = {
    {1, {FIELD(flags, 0)}, "OK"},
    {0, {FIELD(magic, 5)}, "MISMATCH metadata 0 0 * 5 *record format: rank 0 has *, rank 0 has 5"},
    {2, {FIELD(magic, 5)}, "MISMATCH metadata 2 0 * 5 *record format: rank 0 has *, rank 2 has 5"},
    {2, {FIELD(abi, 9)}, "MISMATCH metadata 2 0 2 9 *backend ABI: rank 0 has 2, rank 2 has 9"},
    {1,
     {FIELD(status, SYMMEM_LIMIT), FIELD(system_errno, 3), FIELD(actual, 8)},
     "LIMIT metadata 1 3 0 8 rank 1: "},
    {2,
     {FIELD(status, SYMMEM_BUSY), FIELD(expected, 7), FIELD(stage[0], 'x')},
     "BUSY x 2 0 7 0 rank 2: "},
    {0, {FIELD(status, 999)}, "CORRUPT metadata 0 0 0 0 rank 0: *does not exist"},
    {0, {FIELD(status, -999)}, "CORRUPT metadata 0 0 0 0 rank 0: *does not exist"},
    {1,
     {FIELD(backend, 4), FIELD(backend_name[0], 'b')},
     "MISMATCH metadata 1 0 0 0 *rank 0 has , rank 1 has b"},
    {2, {FIELD(flags, SM_RDV_CHECKING)}, "MISMATCH metadata 2 0 0 1 *check_collectives*"},
    {0, {FIELD(flags, SM_RDV_CHECKING)}, "MISMATCH metadata 1 0 1 0 *check_collectives*"},
    {1, {FIELD(allocation_bytes, 8)}, "MISMATCH metadata 1 0 65536 8 *size: * rank 1 has 8 (*)"},
    {2, {FIELD(block_offset, 8)}, "MISMATCH metadata 2 0 0 8 *block offset: *, rank 2 has 8 (*)"},
    {2,
     {FIELD(block_bytes, 8), FIELD(ordinal, 2)},
     "MISMATCH metadata 2 0 65536 8 *block size: *, rank 2 has 8 (*of the same number)"},
    {1, {FIELD(alloc_id, 8)}, "OK"},
    {0, {FIELD(alloc_id, 8)}, "OK"},
    {1, {FIELD(signal_pad_size, 8)}, "MISMATCH metadata 1 0 9216 8 *pad size: *, rank 1 has 8 (*)"},
    {RANKS, {FIELD(signal_pad_size, 12)}, "OK"},
    {RANKS, {FIELD(signal_pad_size, 8)}, "OUT_OF_RANGE metadata -1 0 12 8 *of 8 *3 ranks*takes 12"},
    {2, {FIELD(device, 1)}, "OVERLAP metadata 2 0 0 1 ranks 1 and 2 both use device 1 *"},
    {2, {FIELD(device, 1), FIELD(flags, SM_RDV_OVERLAP)}, "OVERLAP metadata 2 0 0 1 *"},
    {RANKS, {FIELD(device, 1), FIELD(flags, SM_RDV_OVERLAP)}, "OK overlap"},
    {RANKS, {FIELD(device_id[3], 1)}, "OVERLAP metadata 1 0 0 1 ranks 0 and 1 *"},
    {2, {FIELD(device_id[3], 1), FIELD(device, 1)}, "OVERLAP metadata 2 0 0 1 ranks 1 and 2 *"},
    {RANKS, {FIELD(mapping_generation, 6), FIELD(group_generation, 6)}, "OK mapped open"},
    {RANKS, {FIELD(mapping_generation, 6)}, "OK mapped"},
    {RANKS, {FIELD(group_generation, 6)}, "OK open"},
    {2, {FIELD(mapping_generation, 6), FIELD(group_generation, 6)}, "OK"},
    {0, {FIELD(mapping_generation, 6), FIELD(group_generation, 6)}, "OK"},
};

static void tell(const sm_rendezvous *judged, symmem_status status, char *told, size_t capacity) {
    const symmem_error_record last = last_record(), *record = &last;
    if (status == SYMMEM_OK)
        snprintf(told, capacity, "OK%s%s%s", judged->overlap ? " overlap" : "",
                 judged->exchange_data ? "" : " mapped", judged->open_anew ? "" : " open");
    else
        snprintf(told, capacity, "%s %s %d %d %llu %llu %s", symmem_status_name(status),
                 record->stage, record->failed_rank, record->system_errno,
                 (unsigned long long)record->expected, (unsigned long long)record->actual,
                 record->message);
}

TEST("verdicts") {
    const int hosts[] = {0, 0, 0}, kinds[] = {FD, FD, FD};
    char told[640];
    for (size_t i = 0; i < sizeof(verdicts) / sizeof(verdicts[0]); i++) {
        world *self = make_world(0, hosts, kinds);
        for (int32_t rank = 0; rank < RANKS; rank++)
            for (int f = 0; f < 3 && (verdicts[i].rank == rank || verdicts[i].rank == RANKS); f++)
                memcpy((char *)&self->records[rank] + verdicts[i].fields[f].at,
                       &verdicts[i].fields[f].value, verdicts[i].fields[f].bytes);
        symmem_clear_error();
        tell(&self->rendezvous, sm_rdv_records_check(&self->rendezvous), told, sizeof(told));
        CU_ASSERT_EQUAL(fnmatch(verdicts[i].told, told, 0), 0);
        if (fnmatch(verdicts[i].told, told, 0) != 0)
            fprintf(stderr, "%zu: \"%s\"\n", i, told);
        free(self);
    }
}

static symmem_status tell_device(void *instance, int32_t device, symmem_device_info *info_p) {
    info_p->unique_id[0] = (uint8_t)(device + 70);
    return device == 3 ? SYMMEM_BACKEND : SYMMEM_OK;
}

TEST("what a rank tells") {
    const int hosts[] = {0, 0, 0}, kinds[] = {FD, FD, FD};
    for (int32_t device = 2; device <= 3; device++) {
        world *self = make_world(0, hosts, kinds);
        sm_rendezvous *from = &self->rendezvous;
        const sm_rendezvous_record *own = &from->own;
        sm_allocation allocation = {.alloc_id = 11, .bytes = 12, .device = device};
        sm_mapping mapping = {.generation = 13};
        self->backend.device_info = tell_device;
        self->context.check_collectives = device == 2;
        self->group.backend_group_open = device == 2;
        self->group.backend_group_generation = 14;
        from->own = (sm_rendezvous_record){.flags = SM_RDV_MULTICAST | SM_RDV_OVERLAP};
        from->block_ordinal = 15;
        from->block_offset = 16;
        from->block_bytes = 17;
        from->signal_pad_size = 18;
        from->status = SYMMEM_LIMIT;
        from->failure = (symmem_error_record){
            .system_errno = 19, .expected = 20, .actual = 21, .stage = "step", .message = "why"};
        sm_rdv_record_fill(from);
        CU_ASSERT(own->ordinal == 0 && own->alloc_id == 0); /* nothing of memory */
        from->allocation = &allocation;
        from->mapping = device == 2 ? &mapping : NULL;
        from->multicast.kind = FD;
        sm_rdv_record_fill(from);
        CU_ASSERT(own->magic == SM_RDV_MAGIC && own->abi == SYMMEM_BACKEND_ABI);
        CU_ASSERT_EQUAL(own->flags, SM_RDV_MULTICAST | (device == 2 ? SM_RDV_CHECKING : 0));
        CU_ASSERT(own->alloc_id == 11 && own->allocation_bytes == 12 && own->device == device);
        CU_ASSERT_EQUAL(own->mapping_generation, device == 2 ? 13 : 0);
        CU_ASSERT_EQUAL(own->group_generation, device == 2 ? 14 : 0);
        CU_ASSERT(own->ordinal == 15 && own->block_offset == 16 && own->block_bytes == 17);
        CU_ASSERT(own->signal_pad_size == 18 && own->status == SYMMEM_LIMIT);
        CU_ASSERT(own->system_errno == 19 && own->expected == 20 && own->actual == 21);
        CU_ASSERT(strcmp(own->stage, "step") == 0 && strcmp(own->message, "why") == 0);
        CU_ASSERT_STRING_EQUAL(own->backend_name, "test");
        CU_ASSERT_EQUAL(own->backend, sm_hash("test", 4, SM_HASH_SEED));
        CU_ASSERT_EQUAL(own->device_id[0], device == 2 ? 72 : 0);
        CU_ASSERT(own->multicast.kind == FD && own->data.kind == 0);
        free(self);
    }
}
