/* SPDX-License-Identifier: BSD-3-Clause */
/* A session's socket, which makes one connection for each message. See ipc_socket.c. */
#ifndef SYMMEM_CORE_IPC_SOCKET_H
#define SYMMEM_CORE_IPC_SOCKET_H

#include "bootstrap/bootstrap.h"

#include <sys/socket.h>
#include <sys/un.h>

typedef struct sm_ipc_socket {
    int fd;    /* listens */
    int spare; /* reserved for the next message, when descriptors have run out; or -1 */
    struct sm_ipc_socket *next, *before; /* in the list of all open sockets */
    bool is_listed;
    bool unlink_path;
    socklen_t address_bytes;
    struct sockaddr_un address;
    int *waiting; /* accepted connections, in order, from which nothing was received yet */
    int32_t waiting_count, waiting_room;
} sm_ipc_socket;

/* `directory` and `name` are those of sm_ipc_create. After a failure sm_ipc_socket_close cleans
 * up. */
symmem_status sm_ipc_socket_open(sm_ipc_socket *own, const char *directory, const char *name);
void sm_ipc_socket_close(sm_ipc_socket *own);
/* Closes the descriptors and leaves the file, for sm_ipc_socket_close. */
void sm_ipc_socket_shut(sm_ipc_socket *own);
/* Sends one message, without an address, over a new connection. Answers PERMISSION if the name
 * belongs to another user, PEER_LOST if no socket has it, and TIMEOUT if the receiver has no room
 * for the message until the deadline. */
symmem_status sm_ipc_socket_send(sm_ipc_socket *own, const uint8_t *address, uint32_t address_bytes,
                                 const struct msghdr *message, uint64_t deadline_ns);
/* Finds the first connection of this user from which a message can be received. If `magic` is not 0
 * the message begins with it. Answers TIMEOUT without a record if there is none. The caller
 * receives one message at once and then calls sm_ipc_socket_done, or sm_ipc_socket_put_back if it
 * could not be received. Then the next call finds the connection again. */
symmem_status sm_ipc_socket_next(sm_ipc_socket *own, uint32_t magic, int *connection_p);
void sm_ipc_socket_done(sm_ipc_socket *own, int connection);
void sm_ipc_socket_put_back(sm_ipc_socket *own, int connection);
/* Waits until a connection may have come. Answers a negative number, with errno, on failure. */
int sm_ipc_socket_wait(const sm_ipc_socket *own, uint32_t ms);

#endif
