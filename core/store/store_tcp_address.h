/* SPDX-License-Identifier: BSD-3-Clause */
/* Where a TCP store is: names, addresses, and the sockets for them. */
#ifndef SYMMEM_CORE_STORE_TCP_ADDRESS_H
#define SYMMEM_CORE_STORE_TCP_ADDRESS_H

#include "store/store_tcp_wire.h"

#include <sys/socket.h>

#define SM_TCP_ADDRESSES_MAX 8
#define SM_TCP_PLACE_BYTES 512 /* of a place as text */

typedef struct sm_tcp_address {
    struct sockaddr_storage address;
    socklen_t bytes;
} sm_tcp_address;

/* One server: the addresses under which it may be reached, and whose it is. */
typedef struct sm_tcp_place {
    int32_t count;
    sm_tcp_address addresses[SM_TCP_ADDRESSES_MAX];
    uint8_t nonce[SM_TCP_NONCE_BYTES];
    char name[128]; /* for messages: host:port */
} sm_tcp_place;

/* "host:port", "host:port/word" or "[::1]:port": the word, or NULL, tells jobs apart that have one
 * port. INVALID_ARGUMENT, TIMEOUT, NOT_FOUND (no such host). */
symmem_status sm_tcp_place_parse(const char *text, uint64_t deadline_ns, sm_tcp_place *place_p);
/* Of a host's name and a port; the nonce is left alone. */
symmem_status sm_tcp_place_resolve(const char *host, uint16_t port, uint64_t deadline_ns,
                                   sm_tcp_place *place_p);
/* A socket that listens there. BUSY: another program does. */
symmem_status sm_tcp_listen(const sm_tcp_place *place, int *fd_p);
/* A socket that listens at a port of the system's choice, on the loopback interface if `is_local`,
 * else on all. The place is the one to reach it, with a new nonce. */
symmem_status sm_tcp_listen_anywhere(bool is_local, sm_tcp_place *place_p, int *fd_p);
/* A place as text that travels to other ranks, and back. */
void sm_tcp_place_write(const sm_tcp_place *place, char text[SM_TCP_PLACE_BYTES]);
symmem_status sm_tcp_place_read(const char *text, sm_tcp_place *place_p);
/* A connection; 0 or an errno. */
int sm_tcp_connect(const sm_tcp_address *address, uint64_t deadline_ns, int *fd_p);

#endif
