/* SPDX-License-Identifier: BSD-3-Clause */
/* What a TCP store's server knows of its clients, and what it answers them. */
#ifndef SYMMEM_CORE_STORE_TCP_ANSWER_H
#define SYMMEM_CORE_STORE_TCP_ANSWER_H

#include "store/store_tcp_server.h"

#include <sys/types.h>

/* One connection. */
typedef struct sm_tcp_peer {
    sm_node node;
    int fd;               /* -1: dropped */
    ino_t inode;          /* of its socket */
    int32_t rank;         /* -1: it has not said yet */
    uint64_t hello_by_ns; /* when it must have */
    bool refused;         /* the answer is the last one */
    bool is_stuck;        /* the socket takes no more of the answer */
    bool waits;           /* for a key: the request wait_id has no answer yet */
    uint32_t wait_id;
    char wait_key[SYMMEM_STORE_KEY_MAX + 1];
    uint8_t head[SM_TCP_HEADER_BYTES]; /* the request that comes */
    size_t head_got, body_got;
    sm_tcp_header header;
    uint8_t *body; /* the key, then the value */
    uint8_t *out;  /* the answer that goes; NULL: none */
    size_t out_bytes, out_done;
    uint8_t small_out[256];
} sm_tcp_peer;

typedef struct sm_tcp_world {
    uint8_t nonce[SM_TCP_NONCE_BYTES];
    uint32_t incarnation;
    symmem_store *values; /* in memory, the thread's own */
    sm_node peers, dropped;
    uint32_t strangers, members; /* connections, before and after the hello */
} sm_tcp_world;

/* The header is there. False: no client of this library sends it, or there is no memory for the
 * rest. */
bool sm_tcp_peer_begin(sm_tcp_peer *peer);
/* The request is there. Leaves answers in `out` of the peer, and of those that waited for what it
 * has set. */
void sm_tcp_answer(sm_tcp_world *world, sm_tcp_peer *peer);
/* The answer has gone. */
void sm_tcp_peer_sent(sm_tcp_peer *peer);

#endif
