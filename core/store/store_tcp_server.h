/* SPDX-License-Identifier: BSD-3-Clause */
/* The server of a TCP store: a thread of the rank that serves. */
#ifndef SYMMEM_CORE_STORE_TCP_SERVER_H
#define SYMMEM_CORE_STORE_TCP_SERVER_H

#include "store/store_tcp_wire.h"

/* Who connects has so long to say whose it is. */
#define SM_TCP_HELLO_MS 2000u

typedef struct sm_tcp_server sm_tcp_server;

/* Serves what comes to a socket that listens, which becomes the server's. */
symmem_status sm_tcp_server_start(int listener, const uint8_t nonce[SM_TCP_NONCE_BYTES],
                                  uint32_t turn, sm_tcp_server **server_p);
/* No further clients. Ends when the last one has closed its connections, or died, or after the
 * limit. NULL is allowed; in a child of fork it only frees. */
void sm_tcp_server_stop(sm_tcp_server *server, uint32_t limit_ms);

/* Around a fork: the child has none of the threads, and must not keep the sockets alive. */
void sm_tcp_server_lock_all(void);
void sm_tcp_server_unlock_all(void);
void sm_tcp_server_forget_all(void);

#endif
