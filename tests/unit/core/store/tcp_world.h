/* SPDX-License-Identifier: BSD-3-Clause */
/* One server of a TCP store, and raw connections to it. */
#ifndef SYMMEM_UNIT_TCP_WORLD_H
#define SYMMEM_UNIT_TCP_WORLD_H

#include "faults.h"

#include "store/store_tcp_answer.h"

#include <netinet/in.h>

#define LIMIT_MS 5000u

static inline uint64_t limit(void) {
    return sm_tcp_deadline_ns(LIMIT_MS);
}

static sm_tcp_place place;
static symmem_store *server;

/* Opens the store at a place: as rank 0, which serves, if there is a socket that listens. */
static inline symmem_status open_at(const sm_tcp_place *at, int listener, symmem_store **store_p) {
    const sm_tcp_opening opening = {.place = at,
                                    .listener = listener,
                                    .rank = listener >= 0 ? 0 : 1,
                                    .world_size = 2,
                                    .incarnation = 1,
                                    .deadline_ns = limit()};
    return sm_store_open_tcp(&opening, store_p);
}

static inline symmem_store *serve(sm_tcp_place *place_p) {
    int listener = -1;
    symmem_store *store = NULL;
    CU_ASSERT_EQUAL_FATAL(sm_tcp_listen_anywhere(true, place_p, &listener), SYMMEM_OK);
    CU_ASSERT_EQUAL_FATAL(open_at(place_p, listener, &store), SYMMEM_OK);
    return store;
}

static inline void begin_server(void) {
    server = serve(&place);
}

static inline int connect_raw(void) {
    int fd = -1;
    CU_ASSERT_EQUAL_FATAL(sm_tcp_connect(&place.addresses[0], limit(), &fd), 0);
    return fd;
}

static inline void send_raw(int fd, const void *bytes, size_t count) {
    size_t done = 0;
    CU_ASSERT_EQUAL(sm_tcp_send(fd, bytes, count, limit(), &done), 0);
}

static inline void send_header(int fd, sm_tcp_header header) {
    uint8_t bytes[SM_TCP_HEADER_BYTES];
    sm_tcp_write_header(&header, bytes);
    send_raw(fd, bytes, sizeof(bytes));
}

static inline void send_hello(int fd, const uint8_t *nonce, int32_t rank, uint32_t incarnation) {
    uint8_t bytes[SM_TCP_HELLO_BYTES];
    sm_tcp_hello hello = {.rank = rank, .incarnation = incarnation};
    memcpy(hello.nonce, nonce, sizeof(hello.nonce));
    sm_tcp_write_hello(&hello, bytes);
    send_header(fd, (sm_tcp_header){.kind = SM_TCP_HELLO, .value_bytes = sizeof(bytes)});
    send_raw(fd, bytes, sizeof(bytes));
}

/* The status of the next reply, its id and number; 1: the connection ended instead. */
static inline int read_reply(int fd, sm_tcp_header *reply_p) {
    uint8_t bytes[SM_TCP_HEADER_BYTES], value[4096];
    size_t done = 0;
    const int error = sm_tcp_receive(fd, bytes, sizeof(bytes), limit(), &done);
    CU_ASSERT(error != ETIMEDOUT);
    if (error != 0)
        return 1;
    CU_ASSERT_PTR_NULL_FATAL(sm_tcp_read_header(bytes, true, reply_p));
    done = 0;
    CU_ASSERT_FATAL(reply_p->value_bytes <= sizeof(value));
    CU_ASSERT_EQUAL(sm_tcp_receive(fd, value, reply_p->value_bytes, limit(), &done), 0);
    return (int)reply_p->status;
}

static inline int member(void) {
    sm_tcp_header reply;
    const int fd = connect_raw();
    send_hello(fd, place.nonce, 1, 1);
    CU_ASSERT_EQUAL(read_reply(fd, &reply), SYMMEM_OK);
    CU_ASSERT_EQUAL(reply.number, sm_tcp_proof(place.nonce));
    return fd;
}

static inline bool ends(int fd) {
    sm_tcp_header reply;
    const bool has_ended = read_reply(fd, &reply) == 1;
    close(fd);
    return has_ended;
}

static inline void expect_service(void) {
    int64_t sum = 0;
    CU_ASSERT_EQUAL(symmem_store_add(server, "service", 1, &sum, 1000), SYMMEM_OK);
}

static inline void end_server(void) {
    expect_service();
    symmem_store_close(server);
    server = NULL;
}

/* Listeners do not block. */
static inline int accept_from(int listener) {
    CU_ASSERT_EQUAL(sm_tcp_ready(listener, POLLIN, limit()), 0);
    return accept(listener, NULL, NULL);
}

#endif
