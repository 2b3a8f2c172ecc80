/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What peers put into the store for a group: join records, identities, parts and combined values.
 * One rank runs against peers that say what the input says. A call must end, name its failure
 * properly, or give exactly what the combined value holds.
 */
#include "evil_store.h"
#include "bootstrap/exchange.h"

#define WORLD_MAX 4
#define LARGE_BYTES 400000u /* three of them do not fit a value: parts are read one by one */
#define PATTERN 0xa5

typedef struct world {
    evil_store evil;
    symmem_store *store;
    sm_identity identity;
    sm_liveness *liveness;
    sm_session *session;
    int32_t rank, size;
    int32_t global_ranks[WORLD_MAX];
} world;

static symmem_status wanted(const void *owner, const char *operation) {
    const world *self = owner;
    if (self->evil.calls_left > 0)
        return SYMMEM_OK;
    return sm_fail(SYMMEM_STALE, operation, "", "the input is over");
}

static void open_world(world *self, fuzz_input *in) {
    self->size = 2 + (int32_t)fuzz_below(in, WORLD_MAX - 1);
    self->rank = (int32_t)fuzz_below(in, (uint32_t)self->size);
    self->store = evil_store_open(&self->evil, in, self->rank, self->size);
    FUZZ_CHECK(sm_identity_self(&self->identity) == SYMMEM_OK);
    FUZZ_CHECK(sm_liveness_create(self->size, &self->liveness) == SYMMEM_OK);
    for (int32_t i = 0; i < self->size; i++)
        self->global_ranks[i] = i;
    const sm_session_config config = {
        .store = self->store,
        .prefix = "g/fuzz",
        .world_prefix = "w",
        .group_name = "fuzz",
        .rank = self->rank,
        .world_size = self->size,
        .global_ranks = self->global_ranks,
        .liveness = self->liveness,
        .identity = &self->identity,
        .wanted = wanted,
        .owner = self,
    };
    FUZZ_CHECK(sm_session_create(&config, &self->session) == SYMMEM_OK);
}

static void close_world(world *self) {
    sm_session_destroy(self->session);
    sm_liveness_destroy(self->liveness);
    evil_store_close(&self->evil, self->store);
}

/* A rank's data are those of the part that was read, all of it. */
static void check_part(const world *self, int32_t rank, const unsigned char *data, size_t bytes) {
    const unsigned char *part = self->evil.told[rank].value;
    FUZZ_CHECK(part != NULL && self->evil.told[rank].bytes == sizeof(sm_part) + bytes);
    FUZZ_CHECK(memcmp(part + sizeof(sm_part), data, bytes) == 0);
}

/* Data that came together are those of the combined value, to the byte. */
static void check_delivered(const world *self, const unsigned char *out, size_t bytes) {
    size_t count = (size_t)self->size * bytes;
    size_t head_bytes = sizeof(sm_all_head) + (size_t)self->size * sizeof(sm_summary);
    bool together = head_bytes + count <= SYMMEM_STORE_VALUE_MAX;
    if (bytes == 0)
        return;
    if (together) {
        FUZZ_CHECK(self->evil.all_bytes == head_bytes + count);
        FUZZ_CHECK(memcmp(self->evil.all + head_bytes, out, count) == 0);
    }
    for (int32_t rank = 0; rank < self->size; rank++)
        if (!together || (self->evil.combined && rank != self->rank))
            check_part(self, rank, out + (size_t)rank * bytes, bytes);
}

static void check_untouched(const world *self, const unsigned char *out, size_t bytes) {
    if (bytes >= LARGE_BYTES)
        return;
    for (size_t i = 0; i < (size_t)self->size * bytes; i++)
        FUZZ_CHECK(out[i] == PATTERN);
}

static symmem_status gather(world *self, uint8_t form, uint64_t deadline_ns) {
    size_t bytes = (size_t)(form & 0x70) / 2;
    if (bytes == 56 && fuzz_u8(self->evil.in) % 8 == 7) /* slow, so seldom */
        bytes = LARGE_BYTES;
    unsigned char *mine = malloc(bytes + 1);
    unsigned char *out = malloc((size_t)self->size * bytes + 1);
    FUZZ_CHECK(mine != NULL && out != NULL);
    memset(mine, form, bytes);
    memset(out, PATTERN, (size_t)self->size * bytes);
    symmem_status status = sm_session_all_gather(self->session, "all_gather", "exchange", mine,
                                                 bytes, out, (form & 0x80) != 0, deadline_ns);
    if (status == SYMMEM_OK)
        check_delivered(self, out, bytes);
    else
        check_untouched(self, out, bytes);
    free(mine);
    free(out);
    return status;
}

static symmem_status agree(world *self, uint8_t form, uint64_t deadline_ns) {
    symmem_status own = SYMMEM_OK;
    if ((form & 0x80) != 0)
        own = sm_fail(SYMMEM_NO_SPACE, "rendezvous", "map", "no space");
    symmem_status status = sm_session_agree(self->session, "rendezvous", "map", own, deadline_ns);
    FUZZ_CHECK(own == SYMMEM_OK || status != SYMMEM_OK);
    return status;
}

void fuzz_one(fuzz_input *in) {
    world self = {.size = 0};
    open_world(&self, in);
    for (uint32_t steps = 1 + fuzz_below(in, 4); steps > 0; steps--) {
        uint8_t form = fuzz_u8(in);
        uint64_t deadline_ns = (form & 8) != 0 ? 1 : 0; /* long past, or none */
        symmem_status status;
        symmem_clear_error();
        if (form % 4 == 3)
            status = sm_session_ensure(self.session, "barrier", deadline_ns);
        else if (form % 4 == 2)
            status = agree(&self, form, deadline_ns);
        else
            status = gather(&self, form, deadline_ns);
        if (status != SYMMEM_OK)
            fuzz_check_failure(status, self.size);
    }
    close_world(&self);
}
