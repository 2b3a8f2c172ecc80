/* SPDX-License-Identifier: BSD-3-Clause */
/* What each request to a TCP store does. The values are a memory store's. */
#include "store/store_tcp_answer.h"

#include <stdlib.h>
#include <string.h>

bool sm_tcp_peer_begin(sm_tcp_peer *peer) {
    if (sm_tcp_read_header(peer->head, false, &peer->header) != NULL)
        return false;
    if ((peer->header.kind == SM_TCP_HELLO) != (peer->rank < 0))
        return false;
    const size_t bytes = (size_t)peer->header.key_bytes + peer->header.value_bytes;
    uint8_t *body = realloc(peer->body, bytes);
    if (body == NULL)
        return false;
    peer->body = body;
    peer->body_got = 0;
    return true;
}

void sm_tcp_peer_sent(sm_tcp_peer *peer) {
    if (peer->out != peer->small_out)
        free(peer->out);
    peer->out = NULL;
}

/* Room for an answer with a value, which the caller fills in; NULL: there is no memory, and the
 * answer says so. */
static uint8_t *answer(sm_tcp_peer *peer, sm_tcp_header header) {
    const size_t bytes = SM_TCP_HEADER_BYTES + header.value_bytes;
    header.kind = SM_TCP_REPLY;
    peer->out = bytes <= sizeof(peer->small_out) ? peer->small_out : malloc(bytes);
    const bool has_room = peer->out != NULL;
    if (!has_room) {
        peer->out = peer->small_out;
        header.status = SYMMEM_OUT_OF_MEMORY;
        header.value_bytes = 0;
    }
    sm_tcp_write_header(&header, peer->out);
    peer->out_bytes = SM_TCP_HEADER_BYTES + header.value_bytes;
    peer->out_done = 0;
    return has_room ? peer->out + SM_TCP_HEADER_BYTES : NULL;
}

/* A failure has the text of the record with it. */
static void answer_status(sm_tcp_peer *peer, symmem_status status, int64_t number) {
    char text[SM_TCP_TEXT_MAX + 1] = "";
    symmem_error_record error;
    if (status != SYMMEM_OK && status != SYMMEM_NOT_FOUND && status != SYMMEM_OUT_OF_RANGE &&
        sm_error_get(&error) != SYMMEM_OK)
        sm_copy_text(text, sizeof(text), error.message);
    const size_t bytes = strlen(text);
    uint8_t *at = answer(peer, (sm_tcp_header){.id = peer->header.id,
                                               .status = status,
                                               .value_bytes = (uint32_t)bytes,
                                               .number = number});
    _Static_assert(SM_TCP_HEADER_BYTES + SM_TCP_TEXT_MAX <= sizeof(peer->small_out), "no room");
    memcpy(at, text, bytes);
}

static void refuse(sm_tcp_peer *peer, symmem_status status, const char *text) {
    (void)sm_fail(status, "store_open", "hello", "%s", text);
    answer_status(peer, status, 0);
    peer->refused = true;
}

static void answer_hello(sm_tcp_world *world, sm_tcp_peer *peer) {
    sm_tcp_hello hello;
    if (sm_tcp_read_hello(peer->body, &hello) != NULL) {
        refuse(peer, SYMMEM_CORRUPT, "that is no hello");
    } else if (!sm_tcp_same_nonce(world->nonce, hello.nonce)) {
        refuse(peer, SYMMEM_AUTH, "the store is another job's");
    } else if (hello.incarnation > world->incarnation) {
        refuse(peer, SYMMEM_BUSY, "the store still serves the world before");
    } else {
        peer->rank = hello.rank;
        world->strangers--;
        world->members++;
        answer_status(peer, SYMMEM_OK, sm_tcp_proof(world->nonce));
    }
}

static bool has_key(const sm_tcp_world *world, const char *key, size_t *bytes_p,
                    symmem_status *status_p) {
    *bytes_p = 0;
    *status_p = symmem_store_get(world->values, key, NULL, 0, bytes_p, 0);
    return *status_p == SYMMEM_OK || *status_p == SYMMEM_OUT_OF_RANGE;
}

static void answer_get(const sm_tcp_world *world, sm_tcp_peer *peer, const char *key) {
    size_t bytes;
    symmem_status status;
    if (!has_key(world, key, &bytes, &status)) {
        answer_status(peer, status, 0);
        return;
    }
    if (peer->header.number < 0 || bytes > (uint64_t)peer->header.number) {
        answer_status(peer, SYMMEM_OUT_OF_RANGE, (int64_t)bytes);
        return;
    }
    uint8_t *at = answer(peer, (sm_tcp_header){.id = peer->header.id,
                                               .value_bytes = (uint32_t)bytes,
                                               .number = (int64_t)bytes});
    if (at != NULL)
        (void)!symmem_store_get(world->values, key, at, bytes, &bytes, 0); /* as large as before */
}

static void answer_wait(const sm_tcp_world *world, sm_tcp_peer *peer, const char *key) {
    size_t bytes;
    symmem_status status;
    if (has_key(world, key, &bytes, &status) || status != SYMMEM_NOT_FOUND) {
        answer_status(peer, status == SYMMEM_OUT_OF_RANGE ? SYMMEM_OK : status, 0);
        return;
    }
    peer->waits = true;
    peer->wait_id = peer->header.id;
    sm_copy_text(peer->wait_key, sizeof(peer->wait_key), key);
}

static void wake(const sm_tcp_world *world, const char *key) {
    for (sm_node *node = world->peers.next; node != &world->peers; node = node->next) {
        sm_tcp_peer *peer = SM_CONTAINER(node, sm_tcp_peer, node);
        if (!peer->waits || strcmp(peer->wait_key, key) != 0)
            continue;
        peer->waits = false;
        (void)answer(peer, (sm_tcp_header){.id = peer->wait_id});
    }
}

static void answer_change(const sm_tcp_world *world, sm_tcp_peer *peer, const char *key) {
    const sm_tcp_header *header = &peer->header;
    int64_t number = 0;
    symmem_status status;
    if (header->kind == SM_TCP_SET)
        status = symmem_store_set(world->values, key, peer->body + header->key_bytes,
                                  header->value_bytes, 0);
    else if (header->kind == SM_TCP_ADD)
        status = symmem_store_add(world->values, key, header->number, &number, 0);
    else
        status = symmem_store_remove(world->values, key, 0);
    answer_status(peer, status, number);
    if (status == SYMMEM_OK && header->kind != SM_TCP_REMOVE)
        wake(world, key);
}

void sm_tcp_answer(sm_tcp_world *world, sm_tcp_peer *peer) {
    char key[SYMMEM_STORE_KEY_MAX + 1];
    const size_t bytes = peer->header.key_bytes; /* sm_tcp_read_header lets no longer one pass */
    memcpy(key, peer->body, bytes);
    key[bytes] = '\0';
    peer->waits = false; /* a request takes the wait back */
    if (peer->header.kind == SM_TCP_HELLO)
        answer_hello(world, peer);
    else if (strlen(key) != bytes)
        answer_status(peer, SYMMEM_INVALID_ARGUMENT, 0);
    else if (peer->header.kind == SM_TCP_GET)
        answer_get(world, peer, key);
    else if (peer->header.kind == SM_TCP_WAIT)
        answer_wait(world, peer, key);
    else
        answer_change(world, peer, key);
}
