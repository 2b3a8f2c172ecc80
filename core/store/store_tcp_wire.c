/* SPDX-License-Identifier: BSD-3-Clause */
/* The messages of a TCP store, and sending and receiving within a deadline. */
#include "store/store_tcp_wire.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define MAGIC 0x54534d53u /* "SMST" */
#define VERSION 1u
#define HELLO_MAGIC 0x4f4c4853u /* "SHLO" */
#define PROOF_SEED 0x70726f6f66ull

/* --- numbers ---------------------------------------------------------------------------------- */

static void put_number(uint8_t *at, uint64_t value, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        at[i] = (uint8_t)(value >> (8 * i));
}

static uint64_t take_number(const uint8_t *at, size_t bytes) {
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; i++)
        value |= (uint64_t)at[i] << (8 * i);
    return value;
}

/* magic 4, version 1, kind 1, key_bytes 2, id 4, value_bytes 4, status 4, zero 4, number 8 */
void sm_tcp_write_header(const sm_tcp_header *header, uint8_t bytes[SM_TCP_HEADER_BYTES]) {
    put_number(bytes, MAGIC, 4);
    put_number(bytes + 4, VERSION, 1);
    put_number(bytes + 5, (uint64_t)header->kind, 1);
    put_number(bytes + 6, header->key_bytes, 2);
    put_number(bytes + 8, header->id, 4);
    put_number(bytes + 12, header->value_bytes, 4);
    put_number(bytes + 16, (uint32_t)header->status, 4);
    put_number(bytes + 20, 0, 4);
    put_number(bytes + 24, (uint64_t)header->number, 8);
}

static const char *check_request(const sm_tcp_header *header) {
    const bool has_key = header->kind != SM_TCP_HELLO;
    if (header->kind == SM_TCP_REPLY)
        return "a reply without a request";
    if (has_key != (header->key_bytes != 0) || header->key_bytes > SYMMEM_STORE_KEY_MAX)
        return "a key of a length that none has";
    if (header->kind == SM_TCP_HELLO)
        return header->value_bytes == SM_TCP_HELLO_BYTES ? NULL : "a hello of another length";
    if (header->kind != SM_TCP_SET && header->value_bytes != 0)
        return "a value where there is none";
    return NULL;
}

const char *sm_tcp_read_header(const uint8_t bytes[SM_TCP_HEADER_BYTES], bool from_server,
                               sm_tcp_header *header_p) {
    const uint64_t kind = take_number(bytes + 5, 1);
    const int32_t status = (int32_t)take_number(bytes + 16, 4);
    if (take_number(bytes, 4) != MAGIC)
        return "no message of a symmem store";
    if (take_number(bytes + 4, 1) != VERSION)
        return "a message of another version of the library";
    if (kind < SM_TCP_HELLO || kind >= SM_TCP_KINDS || take_number(bytes + 20, 4) != 0)
        return "a message of no known kind";
    *header_p = (sm_tcp_header){
        .kind = (sm_tcp_kind)kind,
        .key_bytes = (uint32_t)take_number(bytes + 6, 2),
        .id = (uint32_t)take_number(bytes + 8, 4),
        .value_bytes = (uint32_t)take_number(bytes + 12, 4),
        .status = (symmem_status)status,
        .number = (int64_t)take_number(bytes + 24, 8),
    };
    if (header_p->value_bytes > SYMMEM_STORE_VALUE_MAX)
        return "a value that is too large";
    if (!from_server)
        return check_request(header_p);
    if (header_p->kind != SM_TCP_REPLY || header_p->key_bytes != 0 || !sm_status_known(status))
        return "no reply";
    if (status != SYMMEM_OK && header_p->value_bytes > SM_TCP_TEXT_MAX)
        return "a failure with too long a text";
    return NULL;
}

/* nonce 16, magic 4, rank 4, incarnation 4, zero 4 */
void sm_tcp_write_hello(const sm_tcp_hello *hello, uint8_t bytes[SM_TCP_HELLO_BYTES]) {
    memcpy(bytes, hello->nonce, SM_TCP_NONCE_BYTES);
    put_number(bytes + 16, HELLO_MAGIC, 4);
    put_number(bytes + 20, (uint32_t)hello->rank, 4);
    put_number(bytes + 24, hello->incarnation, 4);
    put_number(bytes + 28, 0, 4);
}

const char *sm_tcp_read_hello(const uint8_t bytes[SM_TCP_HELLO_BYTES], sm_tcp_hello *hello_p) {
    memcpy(hello_p->nonce, bytes, SM_TCP_NONCE_BYTES);
    hello_p->rank = (int32_t)take_number(bytes + 20, 4);
    hello_p->incarnation = (uint32_t)take_number(bytes + 24, 4);
    if (take_number(bytes + 16, 4) != HELLO_MAGIC || take_number(bytes + 28, 4) != 0)
        return "no hello";
    if (hello_p->rank < 0 || hello_p->rank >= SYMMEM_MAX_WORLD_SIZE)
        return "a hello of no rank";
    return NULL;
}

int64_t sm_tcp_proof(const uint8_t nonce[SM_TCP_NONCE_BYTES]) {
    return (int64_t)sm_hash(nonce, SM_TCP_NONCE_BYTES, PROOF_SEED);
}

bool sm_tcp_same_nonce(const uint8_t one[SM_TCP_NONCE_BYTES], const uint8_t *other) {
    unsigned differs = 0;
    for (size_t i = 0; i < SM_TCP_NONCE_BYTES; i++)
        differs |= (unsigned)(one[i] ^ other[i]);
    return differs == 0;
}

/* --- sockets ---------------------------------------------------------------------------------- */

uint64_t sm_tcp_now_ns(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

uint64_t sm_tcp_deadline_ns(uint32_t timeout_ms) {
    return timeout_ms == 0 ? 0 : sm_tcp_now_ns() + timeout_ms * 1000000ull;
}

uint64_t sm_tcp_earlier(uint64_t one_ns, uint64_t other_ns) {
    return one_ns == 0 || (other_ns != 0 && other_ns < one_ns) ? other_ns : one_ns;
}

bool sm_tcp_expired(uint64_t deadline_ns) {
    return deadline_ns != 0 && sm_tcp_now_ns() >= deadline_ns;
}

/* Probes find a peer that is gone while nothing is sent, the user timeout one that no longer
 * acknowledges what is: the kernel's own limit for that is a quarter of an hour. */
void sm_tcp_tune(int fd) {
    const int yes = 1, probe_s = SM_TCP_VANISHED_MS / 3000, probes = 3;
    const unsigned vanished_ms = SM_TCP_VANISHED_MS;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof(yes));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &probe_s, sizeof(probe_s));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &probe_s, sizeof(probe_s));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &vanished_ms, sizeof(vanished_ms));
}

int sm_tcp_ready(int fd, short events, uint64_t deadline_ns) {
    struct pollfd ready = {.fd = fd, .events = events};
    for (;;) {
        const uint64_t now_ns = sm_tcp_now_ns();
        const uint64_t left_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 0;
        const struct timespec left = {(time_t)(left_ns / 1000000000ull),
                                      (long)(left_ns % 1000000000ull)};
        const int count = ppoll(&ready, 1, deadline_ns == 0 ? NULL : &left, NULL);
        if (count >= 0)
            return count == 0 ? ETIMEDOUT : 0;
        if (errno != EINTR)
            return errno;
    }
}

/* After one send or recv, neither of which blocks: counts what it moved, or waits for the socket.
 */
static int go_on(int fd, ssize_t moved, short events, uint64_t deadline_ns, size_t *done_p) {
    if (moved >= 0) {
        *done_p += (size_t)moved;
        return 0;
    }
    if (errno == EAGAIN)
        return sm_tcp_ready(fd, events, deadline_ns);
    return errno == EPIPE ? ECONNRESET : errno;
}

int sm_tcp_send(int fd, const void *bytes, size_t count, uint64_t deadline_ns, size_t *done_p) {
    int error = 0;
    while (*done_p < count && error == 0) {
        const ssize_t sent = send(fd, (const uint8_t *)bytes + *done_p, count - *done_p,
                                  MSG_NOSIGNAL | MSG_DONTWAIT);
        error = go_on(fd, sent, POLLOUT, deadline_ns, done_p);
    }
    return error;
}

int sm_tcp_receive(int fd, void *bytes, size_t count, uint64_t deadline_ns, size_t *done_p) {
    int error = 0;
    while (*done_p < count && error == 0) {
        const ssize_t got = recv(fd, (uint8_t *)bytes + *done_p, count - *done_p, MSG_DONTWAIT);
        error = got == 0 ? ECONNRESET : go_on(fd, got, POLLIN, deadline_ns, done_p);
    }
    return error;
}
