/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The check of rendezvous records, in which peers describe their memory. It must give the same
 * result on each rank, accept only records that agree, and otherwise name a rank of the group.
 */
#include "fuzz.h"
#include "rendezvous/rendezvous.h"
#include "stream/channel.h"
#include "bootstrap/session_internal.h"
#include "rendezvous/rendezvous_record.h"

#define WORLD_MAX 5

typedef struct world {
    sm_backend backend;
    symmem_context context;
    sm_session session;
    sm_join joins[WORLD_MAX];
    int32_t hosts[WORLD_MAX];
    symmem_group group;
    sm_rendezvous rendezvous;
} world;

static sm_rendezvous_record honest_record(int32_t rank) {
    sm_rendezvous_record record = {
        .magic = SM_RDV_MAGIC,
        .abi = SYMMEM_BACKEND_ABI,
        .backend = 7,
        .backend_name = "shm",
        .ordinal = 1,
        .allocation_bytes = 65536,
        .block_bytes = 65536,
        .signal_pad_size = 9216,
        .device = rank,
        .flags = SM_RDV_OVERLAP,
        .data = {.kind = SYMMEM_SHARE_FD, .mapped_bytes = 65536},
        .signals = {.kind = SYMMEM_SHARE_FD, .mapped_bytes = 16384},
    };
    return record;
}

static void make_world(world *self, fuzz_input *in, sm_rendezvous_record *records) {
    int32_t size = 1 + (int32_t)fuzz_below(in, WORLD_MAX);
    memset(self, 0, sizeof(*self));
    self->backend.name = "shm";
    self->backend.capabilities = fuzz_u16(in);
    self->context.backend = &self->backend;
    self->context.world_size = size;
    atomic_init(&self->context.allow_overlapping_devices, 1);
    self->session.joins = self->joins;
    self->session.hosts = self->hosts;
    self->session.config.world_size = size;
    self->group.session = &self->session;
    self->group.world_size = size;
    self->group.context = &self->context;
    self->rendezvous.context = &self->context;
    self->rendezvous.group = &self->group;
    self->rendezvous.records = records;
    for (int32_t rank = 0; rank < size; rank++) {
        sm_identity *identity = &self->joins[rank].identity;
        memset(identity, 0, sizeof(*identity));
        identity->boot_id = 1;
        identity->pid = 100 + rank;
        records[rank] = honest_record(rank);
        uint8_t form = fuzz_u8(in);
        if ((form & 1) != 0)
            fuzz_spoil(in, identity, sizeof(*identity));
        /* A failure whose texts have no end before that of the record. */
        if ((form & 6) == 6) {
            records[rank].status = -1 - form / 8;
            memset(records[rank].stage, 'x',
                   sizeof(records[rank]) - offsetof(sm_rendezvous_record, stage));
        }
        identity->host[sizeof(identity->host) - 1] = '\0'; /* the session does that, and this: */
        while (!sm_identity_same_host(identity, &self->joins[self->hosts[rank]].identity))
            self->hosts[rank]++;
        fuzz_spoil(in, &records[rank], sizeof(records[rank]));
    }
}

/* Said once more, in the plainest way. */
static bool agree(const sm_rendezvous_record *a, const sm_rendezvous_record *b) {
    return a->magic == SM_RDV_MAGIC && b->magic == SM_RDV_MAGIC && a->abi == b->abi &&
           a->backend == b->backend && a->allocation_bytes == b->allocation_bytes &&
           a->block_offset == b->block_offset && a->block_bytes == b->block_bytes &&
           a->signal_pad_size == b->signal_pad_size &&
           (a->alloc_id == b->alloc_id || a->alloc_id == 0 || b->alloc_id == 0);
}

static void check_accepted(const world *self) {
    const sm_rendezvous_record *records = self->rendezvous.records;
    for (int32_t rank = 0; rank < self->group.world_size; rank++) {
        FUZZ_CHECK(records[rank].status == SYMMEM_OK);
        FUZZ_CHECK(agree(&records[0], &records[rank]));
        FUZZ_CHECK(records[rank].signal_pad_size >= 4 * (uint64_t)self->group.world_size);
        symmem_share share =
            sm_rdv_share_unpack(&self->rendezvous, rank, &records[rank].data, 1000);
        FUZZ_CHECK(share.fd == 1000 && share.mapped_bytes == records[rank].data.mapped_bytes);
    }
}

void fuzz_one(fuzz_input *in) {
    static world self;
    /* Exactly as many as there are ranks: a sanitizer sees a step too far. */
    int32_t count = 1 + (int32_t)(in->left > 0 ? in->at[0] % WORLD_MAX : 0);
    sm_rendezvous_record *records = calloc((size_t)count, sizeof(*records));
    FUZZ_CHECK(records != NULL);
    make_world(&self, in, records);
    symmem_status first = SYMMEM_OK;
    symmem_error_record said = {.status = SYMMEM_OK};
    for (int32_t rank = 0; rank < count; rank++) {
        symmem_error_record record;
        self.group.rank = rank;
        self.rendezvous.overlap = self.rendezvous.cross_host = false;
        self.rendezvous.exchange_data = false;
        symmem_clear_error();
        symmem_status status = sm_rdv_records_check(&self.rendezvous);
        if (status == SYMMEM_OK)
            check_accepted(&self);
        else
            fuzz_check_failure(status, count);
        symmem_last_error(&record);
        FUZZ_CHECK(rank == 0 || (status == first && strcmp(record.message, said.message) == 0));
        first = status;
        said = record;
    }
    free(records);
}
