/* SPDX-License-Identifier: BSD-3-Clause */
/* The server of a TCP store: a thread of the rank that serves. */
#ifndef SYMMEM_CORE_STORE_TCP_SERVER_H
#define SYMMEM_CORE_STORE_TCP_SERVER_H

#include "store/store_tcp.h"

/* A connection must say within that which world it belongs to. Until then it is a stranger. */
#define SM_TCP_HELLO_MS 2000u

typedef struct sm_tcp_server sm_tcp_server;

/* Serves what comes to the opening's socket, which becomes the server's. LIMIT: the process may not
 * have the descriptors that a world of that size takes. [SM-STORE-25] */
symmem_status sm_tcp_server_start(const sm_tcp_opening *opening, sm_tcp_server **server_p);
/* Takes no further clients. Returns when the last one has closed its connections, or has ended, or
 * after the limit. NULL is a no-op; in a child of fork it only frees. */
void sm_tcp_server_stop(sm_tcp_server *server, uint32_t limit_ms);
/* Why the thread has ended by itself, an errno; 0: it has not, or there is no server (NULL). */
int sm_tcp_server_error(const sm_tcp_server *server);

/* Around a fork: the child has none of the threads, and must not keep the sockets alive. */
void sm_tcp_server_lock_all(void);
void sm_tcp_server_unlock_all(void);
void sm_tcp_server_forget_all(void);

#endif
