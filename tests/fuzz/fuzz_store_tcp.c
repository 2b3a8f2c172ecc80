/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What comes to a TCP store through its sockets: headers, hellos and requests of any bytes on two
 * connections, one of which may wait, against the store in memory beneath; and the places of stores
 * as texts. Every answer is one that a client takes, to a request that was made.
 */
#include "fuzz.h"

#include "store/store_tcp_address.h"
#include "store/store_tcp_answer.h"

#define VALUE_MAX 300u
#define ROOM 4096u

static const char *const keys[] = {"a", "b/c", "A.-_", ""};

static sm_tcp_world world;
static sm_tcp_peer peers[2];

/* --- one connection --------------------------------------------------------------------------- */

/* An honest header as often as not, of a body that is as long as it says. */
static void make_head(fuzz_input *in, sm_tcp_peer *peer, const char *key) {
    const uint8_t form = fuzz_u8(in);
    sm_tcp_header header = {.kind = (sm_tcp_kind)(form % (SM_TCP_KINDS + 1)),
                            .id = fuzz_u32(in),
                            .key_bytes = (uint32_t)strlen(key)};
    if (header.kind == SM_TCP_SET)
        header.value_bytes = fuzz_below(in, VALUE_MAX);
    else if (header.kind == SM_TCP_HELLO)
        header.value_bytes = SM_TCP_HELLO_BYTES;
    if (header.kind == SM_TCP_HELLO)
        header.key_bytes = 0;
    if (header.kind == SM_TCP_ADD || header.kind == SM_TCP_GET)
        header.number = (int64_t)fuzz_number(in, VALUE_MAX);
    sm_tcp_write_header(&header, peer->head);
    if ((form & 0x80) != 0)
        fuzz_spoil(in, peer->head, sizeof(peer->head));
}

static void make_body(fuzz_input *in, sm_tcp_peer *peer, const char *key) {
    const size_t bytes = peer->header.key_bytes + peer->header.value_bytes;
    memset(peer->body, 'v', bytes);
    if (peer->header.kind == SM_TCP_HELLO) {
        sm_tcp_hello hello = {.rank = (int32_t)fuzz_number(in, 2), .incarnation = fuzz_u8(in) % 3u};
        sm_tcp_write_hello(&hello, peer->body);
    } else if (peer->header.key_bytes == strlen(key)) {
        memcpy(peer->body, key, strlen(key));
    }
    if (fuzz_u8(in) % 4 == 0)
        fuzz_spoil(in, peer->body, bytes < ROOM ? bytes : ROOM);
}

/* What was answered is taken from there; `id`: of the request, if it is the one that asked. */
static void take_answer(sm_tcp_peer *peer) {
    sm_tcp_header reply;
    if (peer->out == NULL)
        return;
    FUZZ_CHECK(peer->out_bytes >= SM_TCP_HEADER_BYTES);
    FUZZ_CHECK(sm_tcp_read_header(peer->out, true, &reply) == NULL);
    FUZZ_CHECK(peer->out_bytes == SM_TCP_HEADER_BYTES + reply.value_bytes);
    FUZZ_CHECK(reply.id == peer->header.id || reply.id == peer->wait_id);
    if (peer->header.kind == SM_TCP_GET && reply.status == SYMMEM_OUT_OF_RANGE)
        FUZZ_CHECK(reply.number > peer->header.number || peer->header.number < 0);
    if (peer->header.kind == SM_TCP_GET && reply.status == SYMMEM_OK && reply.value_bytes != 0)
        FUZZ_CHECK(reply.number <= peer->header.number);
    sm_tcp_peer_sent(peer);
    FUZZ_CHECK(peer->out == NULL);
}

static void step(fuzz_input *in, sm_tcp_peer *peer) {
    const char *key = keys[fuzz_u8(in) % (sizeof(keys) / sizeof(keys[0]))];
    const bool was_stranger = peer->rank < 0;
    make_head(in, peer, key);
    if (!sm_tcp_peer_begin(peer))
        return; /* its connection would be closed */
    FUZZ_CHECK(peer->header.key_bytes <= SYMMEM_STORE_KEY_MAX);
    FUZZ_CHECK(peer->header.value_bytes <= SYMMEM_STORE_VALUE_MAX);
    FUZZ_CHECK(was_stranger == (peer->header.kind == SM_TCP_HELLO));
    make_body(in, peer, key);
    sm_tcp_answer(&world, peer);
    FUZZ_CHECK((peer->out != NULL) != peer->waits);
    FUZZ_CHECK(peer->rank < SYMMEM_MAX_WORLD_SIZE);
    FUZZ_CHECK(!was_stranger || (peer->rank >= 0) != peer->refused);
    for (int i = 0; i < 2; i++)
        take_answer(&peers[i]);
    peer->refused = false;
}

/* --- places as texts -------------------------------------------------------------------------- */

static void read_place(fuzz_input *in) {
    static const char honest[] =
        "symmem1 00112233445566778899aabbccddeeff 29500 127.0.0.1 10.0.0.1";
    char text[256], again[SM_TCP_PLACE_BYTES];
    sm_tcp_place place;
    memcpy(text, honest, sizeof(honest));
    if (fuzz_u8(in) % 2 == 0)
        fuzz_spoil(in, text, sizeof(honest) - 1);
    else
        fuzz_text(in, text, sizeof(text));
    const symmem_status status = sm_tcp_place_read(text, &place);
    if (status != SYMMEM_OK) {
        FUZZ_CHECK(status == SYMMEM_CORRUPT);
        fuzz_check_failure(status, 1);
        return;
    }
    FUZZ_CHECK(place.count >= 1 && place.count <= SM_TCP_ADDRESSES_MAX);
    sm_tcp_place_write(&place, again);
    FUZZ_CHECK(strlen(again) < sizeof(again));
}

/* A port in decimal digits, which may begin with zeros as all numbers of the environment may. A
 * word of any characters may come behind it. */
static bool begins_with_port(const char *text) {
    const size_t digits = strspn(text, "0123456789");
    uint32_t port = 0;
    for (size_t i = 0; i < digits && port <= UINT16_MAX; i++)
        port = port * 10 + (uint32_t)(text[i] - '0');
    return (text[digits] == '\0' || text[digits] == '/') && port >= 1 && port <= UINT16_MAX;
}

/* Parses an address of digits, which needs no resolver. */
static void parse_address(fuzz_input *in) {
    char rest[64], text[96];
    sm_tcp_place place;
    fuzz_text(in, rest, sizeof(rest));
    snprintf(text, sizeof(text), "127.0.0.1:%s", rest);
    if (strchr(rest, ':') != NULL)
        return;
    const symmem_status status = sm_tcp_place_parse(text, 0, &place);
    FUZZ_CHECK(status == (begins_with_port(rest) ? SYMMEM_OK : SYMMEM_INVALID_ARGUMENT));
    if (status == SYMMEM_OK)
        FUZZ_CHECK(place.count == 1);
    else
        fuzz_check_failure(status, 1);
}

void fuzz_one(fuzz_input *in) {
    memset(&world, 0, sizeof(world));
    memset(peers, 0, sizeof(peers));
    world.incarnation = 1;
    sm_list_init(&world.peers);
    sm_list_init(&world.dropped);
    FUZZ_CHECK(symmem_store_open_memory(&world.values) == SYMMEM_OK);
    for (int i = 0; i < 2; i++) {
        peers[i].rank = -i; /* one has said its hello */
        sm_list_add(&world.peers, &peers[i].node);
    }
    for (uint32_t steps = 1 + fuzz_below(in, 24); steps > 0; steps--)
        step(in, &peers[fuzz_u8(in) % 2]);
    read_place(in);
    parse_address(in);
    for (int i = 0; i < 2; i++)
        free(peers[i].body);
    symmem_store_close(world.values);
}
