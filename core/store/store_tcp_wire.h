/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What travels between a client and the server of a TCP store. Each message is a header of 32 bytes
 * in little endian, the key and the value. A connection begins with a hello and its answer, the
 * welcome; then the client asks, one request at a time, and the server answers each, in order. A
 * request after a wait that has no answer yet takes the wait back.
 *
 * Nothing that comes is believed: a header that is none, or is of a longer message than there is,
 * ends the connection.
 */
#ifndef SYMMEM_CORE_STORE_TCP_WIRE_H
#define SYMMEM_CORE_STORE_TCP_WIRE_H

#include "base/base.h"

#define SM_TCP_HEADER_BYTES 32
#define SM_TCP_NONCE_BYTES 16
#define SM_TCP_HELLO_BYTES 32
#define SM_TCP_TEXT_MAX 160 /* of a refusal */

typedef enum sm_tcp_kind {
    SM_TCP_HELLO = 1,
    SM_TCP_SET,
    SM_TCP_GET,
    SM_TCP_WAIT,
    SM_TCP_ADD,
    SM_TCP_REMOVE,
    SM_TCP_REPLY,
    SM_TCP_KINDS
} sm_tcp_kind;

typedef struct sm_tcp_header {
    sm_tcp_kind kind;
    uint32_t id;          /* of the request, and of its reply */
    uint32_t key_bytes;   /* in a request */
    uint32_t value_bytes; /* of set, and of a reply to get; the text of a reply that is a failure */
    symmem_status status; /* in a reply */
    int64_t number;       /* get: capacity; its reply: the value's size. add: delta, and the sum */
} sm_tcp_header;

/* What a client says first: the world it belongs to, and its incarnation. A process may have
 * several worlds at one address, one after the other: the first is incarnation 1. */
typedef struct sm_tcp_hello {
    uint8_t nonce[SM_TCP_NONCE_BYTES];
    int32_t rank;
    uint32_t incarnation;
} sm_tcp_hello;

void sm_tcp_write_header(const sm_tcp_header *header, uint8_t bytes[SM_TCP_HEADER_BYTES]);
/* NULL, or what is wrong with it. `from_server`: only replies are right, otherwise only requests.
 */
const char *sm_tcp_read_header(const uint8_t bytes[SM_TCP_HEADER_BYTES], bool from_server,
                               sm_tcp_header *header_p);
void sm_tcp_write_hello(const sm_tcp_hello *hello, uint8_t bytes[SM_TCP_HELLO_BYTES]);
/* NULL, or what is wrong with it. */
const char *sm_tcp_read_hello(const uint8_t bytes[SM_TCP_HELLO_BYTES], sm_tcp_hello *hello_p);
/* What a server answers to the hello of its world. It follows from the nonce, which the hello has
 * shown already: it tells jobs apart, and proves nothing to an attacker. */
int64_t sm_tcp_proof(const uint8_t nonce[SM_TCP_NONCE_BYTES]);
/* In a time that does not depend on where they differ. */
bool sm_tcp_same_nonce(const uint8_t one[SM_TCP_NONCE_BYTES], const uint8_t *other);

/* --- sockets, by the machine's clock: other processes know no other one ----------------------- */

/* A connection whose other host has vanished without a word is lost after that. */
#define SM_TCP_VANISHED_MS 15000u

uint64_t sm_tcp_now_ns(void);
uint64_t sm_tcp_deadline_ns(uint32_t timeout_ms);
/* The earlier of two deadlines, each of which may be 0 for none. */
uint64_t sm_tcp_earlier(uint64_t one_ns, uint64_t other_ns);
bool sm_tcp_expired(uint64_t deadline_ns);
/* Sends small messages without delay, and notices a host that has vanished. */
void sm_tcp_tune(int fd);
/* 0, ETIMEDOUT or another errno; ECONNRESET if the other side has ended the connection. deadline 0:
 * none. *done_p counts up, so that the caller knows where a message was cut. */
int sm_tcp_send(int fd, const void *bytes, size_t count, uint64_t deadline_ns, size_t *done_p);
int sm_tcp_receive(int fd, void *bytes, size_t count, uint64_t deadline_ns, size_t *done_p);
/* Until the descriptor is ready for `events` of poll: 0, ETIMEDOUT or another errno. */
int sm_tcp_ready(int fd, short events, uint64_t deadline_ns);

#endif
