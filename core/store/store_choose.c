/* SPDX-License-Identifier: BSD-3-Clause */
/* Stores by their address, and which one it is where none is named. */
#include "store/store_choose.h"
#include "store/store_pmix.h"
#include "store/store_tcp.h"
#include "store/store_torch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- incarnations ----------------------------------------------------------------------------- */

/* How many worlds this process has had at an address, as a rank. A client of the next one must not
 * be taken for one of the world before, which may not have ended everywhere. */
#define PLACES 64

static struct {
    uint64_t where; /* 0: none */
    uint32_t count;
} incarnations[PLACES]; /* the oldest gives way to a new one */
static uint32_t incarnations_made;
static pthread_mutex_t incarnations_lock = PTHREAD_MUTEX_INITIALIZER;

static uint32_t count_incarnation(const char *address, int32_t rank, int change) {
    const uint64_t hash = sm_hash(address, strlen(address), SM_HASH_SEED);
    const uint64_t where = sm_hash(&rank, sizeof(rank), hash) | 1;
    uint32_t at = 0;
    (void)pthread_mutex_lock(&incarnations_lock);
    while (at < PLACES && incarnations[at].where != where)
        at++;
    if (at == PLACES) {
        at = incarnations_made++ % PLACES;
        incarnations[at].where = where;
        incarnations[at].count = 0;
    }
    const uint32_t count = incarnations[at].count += (uint32_t)change;
    (void)pthread_mutex_unlock(&incarnations_lock);
    return count;
}

void sm_store_undo_incarnation(const char *address, int32_t rank) {
    if (rank != 0) /* whose store the others have met in, or will not find again */
        (void)count_incarnation(address, rank, -1);
}

/* --- opening ---------------------------------------------------------------------------------- */

typedef struct opening {
    const char *address;
    int32_t rank, world_size;
    uint32_t incarnation;
    uint64_t deadline_ns;
    void (*closed)(void); /* or NULL: when the store is, or could not be opened */
} opening;

static symmem_status open_at(const opening *self, const sm_tcp_place *place, int listener,
                             symmem_store **store_p) {
    const sm_tcp_opening tcp = {.place = place,
                                .listener = listener,
                                .rank = self->rank,
                                .world_size = self->world_size,
                                .incarnation = self->incarnation,
                                .deadline_ns = self->deadline_ns,
                                .closed = self->closed};
    return sm_store_open_tcp(&tcp, store_p);
}

static symmem_status open_tcp(const opening *self, symmem_store **store_p) {
    sm_tcp_place place;
    int listener = -1;
    symmem_status status =
        sm_tcp_place_parse(self->address + strlen("tcp://"), self->deadline_ns, &place);
    if (status == SYMMEM_OK && self->rank == 0)
        status = sm_tcp_listen(&place, &listener);
    return status == SYMMEM_OK ? open_at(self, &place, listener, store_p) : status;
}

/* Something that carries the place of rank 0's store to the others. */
typedef struct carrier {
    symmem_status (*publish)(const char *key, const char *text, uint64_t deadline_ns);
    symmem_status (*look_up)(const char *key, char *text, size_t capacity, uint64_t deadline_ns);
} carrier;

static const carrier pmix_carrier = {sm_pmix_publish, sm_pmix_look_up};
static const carrier torch_carrier = {sm_torch_publish, sm_torch_look_up};

static symmem_status publish_server(const opening *self, const carrier *by, const char *key,
                                    bool is_local, symmem_store **store_p) {
    sm_tcp_place place;
    char text[SM_TCP_PLACE_BYTES];
    int listener = -1;
    symmem_status status = sm_tcp_listen_anywhere(is_local, &place, &listener);
    if (status != SYMMEM_OK)
        return status;
    sm_tcp_place_write(&place, text);
    status = by->publish(key, text, self->deadline_ns);
    if (status == SYMMEM_OK)
        return open_at(self, &place, listener, store_p);
    close(listener);
    return status;
}

static symmem_status look_up_server(const opening *self, const carrier *by, const char *key,
                                    symmem_store **store_p) {
    sm_tcp_place place;
    char text[SM_TCP_PLACE_BYTES] = "";
    symmem_status status = by->look_up(key, text, sizeof(text), self->deadline_ns);
    if (status == SYMMEM_TIMEOUT) /* rank 0 has not come */
        (void)sm_error_missing(0);
    if (status == SYMMEM_OK)
        status = sm_tcp_place_read(text, &place);
    return status == SYMMEM_OK ? open_at(self, &place, -1, store_p) : status;
}

static symmem_status open_carried(const opening *self, const carrier *by, bool is_local,
                                  symmem_store **store_p) {
    char key[64];
    (void)snprintf(key, sizeof(key), "symmem.store.%u", self->incarnation);
    return self->rank == 0 ? publish_server(self, by, key, is_local, store_p)
                           : look_up_server(self, by, key, store_p);
}

static symmem_status open_pmix(opening *self, symmem_store **store_p) {
    bool is_local = false;
    symmem_status status =
        sm_pmix_begin(self->rank, self->world_size, self->deadline_ns, &is_local);
    if (status != SYMMEM_OK)
        return status;
    self->closed = sm_pmix_end;
    status = open_carried(self, &pmix_carrier, is_local, store_p);
    if (status != SYMMEM_OK)
        sm_pmix_end();
    return status;
}

static bool begins(const char *text, const char *with) {
    return strncmp(text, with, strlen(with)) == 0;
}

static symmem_status open_any(opening *self, symmem_store **store_p) {
    if (begins(self->address, "tcp://"))
        return open_tcp(self, store_p);
    if (strcmp(self->address, "pmix:") == 0)
        return open_pmix(self, store_p);
    if (strcmp(self->address, "torchrun:") != 0)
        return sm_fail(SYMMEM_INVALID_ARGUMENT, "store_open", "address",
                       "'%.100s' is none of file:/path, tcp://host:port/word, pmix: and torchrun:",
                       self->address);
    if (!sm_torch_offered())
        return sm_fail(SYMMEM_UNSUPPORTED, "store_open", "torchrun",
                       "no agent of torchrun serves this process a store");
    return open_carried(self, &torch_carrier, sm_torch_is_local(self->world_size), store_p);
}

symmem_status symmem_store_open(const char *address, int32_t rank, int32_t world_size,
                                uint32_t timeout_ms, symmem_store **store_p) {
    SM_PUBLIC_CALL;
    if (address == NULL || store_p == NULL)
        return sm_fail(SYMMEM_INVALID_ARGUMENT, "store_open", "", "NULL argument");
    if (begins(address, "file:"))
        return symmem_store_open_file(address + strlen("file:"), store_p);
    if (world_size < 1 || world_size > SYMMEM_MAX_WORLD_SIZE || rank < 0 || rank >= world_size)
        return sm_fail(SYMMEM_INVALID_ARGUMENT, "store_open", "", "rank %d in a world of %d", rank,
                       world_size);
    opening self = {.address = address,
                    .rank = rank,
                    .world_size = world_size,
                    .incarnation = count_incarnation(address, rank, 1),
                    .deadline_ns = sm_tcp_deadline_ns(timeout_ms)};
    const symmem_status status = open_any(&self, store_p);
    if (status != SYMMEM_OK)
        sm_store_undo_incarnation(address, rank);
    return status;
}

symmem_status sm_store_open_chosen(const char *address, int32_t rank, int32_t world_size,
                                   uint32_t timeout_ms, symmem_store **store_p) {
    if (begins(address, "file:"))
        address = secure_getenv("SYMMEM_STORE"); /* not cut */
    return symmem_store_open(address, rank, world_size, timeout_ms, store_p);
}

/* --- choosing --------------------------------------------------------------------------------- */

/* Programs of torchrun's workers open MASTER_PORT themselves where the agent does not: the store
 * is at the port beside it. */
static symmem_status beside_master(char text[SM_STORE_TEXT_BYTES]) {
    const char *host = secure_getenv("MASTER_ADDR"), *port_text = secure_getenv("MASTER_PORT");
    const char *const names[] = {"MASTER_PORT", NULL};
    int64_t port = 0;
    const symmem_status status = sm_env_int(names, 1, 65535, &port);
    if (status != SYMMEM_OK)
        return status;
    if (strlen(host) == 0 || strlen(host) > 255)
        return sm_fail(SYMMEM_INVALID_ARGUMENT, "init", "store",
                       "MASTER_ADDR is no host, while MASTER_PORT is %.20s", port_text);
    const bool is_six = strchr(host, ':') != NULL;
    (void)snprintf(text, SM_STORE_TEXT_BYTES, is_six ? "tcp://[%s]:%d" : "tcp://%s:%d", host,
                   (int)(port < 65535 ? port + 1 : port - 1));
    return SYMMEM_OK;
}

symmem_status sm_store_choose(int32_t world_size, char text_p[SM_STORE_TEXT_BYTES],
                              const char **why_p) {
    const char *named = secure_getenv("SYMMEM_STORE");
    const char *launcher = getenv("SYMMEM_LAUNCHER");
    /* torchrun's workers inherit what started torchrun. */
    const bool is_inherited = secure_getenv("TORCHELASTIC_RUN_ID") != NULL ||
                              (launcher != NULL && strcmp(launcher, "env") == 0);
    text_p[0] = '\0';
    *why_p = "SYMMEM_STORE names it";
    if (named != NULL && named[0] != '\0') {
        if (strlen(named) >= SM_STORE_TEXT_BYTES && !begins(named, "file:"))
            return sm_fail(SYMMEM_INVALID_ARGUMENT, "init", "store",
                           "SYMMEM_STORE has %zu characters, no address is so long", strlen(named));
        sm_copy_text(text_p, SM_STORE_TEXT_BYTES, named);
    } else if (world_size == 1) {
        *why_p = "a world of one needs none";
    } else if (!is_inherited && sm_pmix_offered()) {
        sm_copy_text(text_p, SM_STORE_TEXT_BYTES, "pmix:");
        *why_p = "the launcher offers PMIx";
    } else if (sm_torch_offered()) {
        sm_copy_text(text_p, SM_STORE_TEXT_BYTES, "torchrun:");
        *why_p = "torchrun's agent serves a store";
    } else if (secure_getenv("MASTER_ADDR") != NULL && secure_getenv("MASTER_PORT") != NULL) {
        *why_p = "of MASTER_ADDR, at the port beside MASTER_PORT";
        return beside_master(text_p);
    }
    return SYMMEM_OK;
}
