/* SPDX-License-Identifier: BSD-3-Clause */
/* The socket of a session, and a connection for each message to another one. See ipc_socket.c. */
#ifndef SYMMEM_CORE_IPC_SOCKET_H
#define SYMMEM_CORE_IPC_SOCKET_H

#include "bootstrap/bootstrap.h"

#include <sys/socket.h>
#include <sys/un.h>

typedef struct sm_ipc_socket {
    int fd;    /* listens */
    int spare; /* for the next message, so that one can be had without another descriptor; or -1 */
    struct sm_ipc_socket *next, *before; /* of all that are open */
    bool is_listed;
    bool unlink_path;
    socklen_t address_bytes;
    struct sockaddr_un address;
    int *waiting; /* connections taken, in order, from which nothing was received yet */
    int32_t waiting_count, waiting_room;
} sm_ipc_socket;

/* `directory`, `name`: see sm_ipc_create. After a failure, too, close takes back what there is. */
symmem_status sm_ipc_socket_open(sm_ipc_socket *own, const char *directory, const char *name);
void sm_ipc_socket_close(sm_ipc_socket *own);
/* One message, without an address, over a connection of its own. PERMISSION: who has the name is
 * not this user. PEER_LOST: nobody has. TIMEOUT: no room for it until the deadline. */
symmem_status sm_ipc_socket_send(sm_ipc_socket *own, const uint8_t *address, uint32_t address_bytes,
                                 const struct msghdr *message, uint64_t deadline_ns);
/* The first connection of this user's from which a message can be received, that begins with
 * `magic` if that is not 0. TIMEOUT without a record: there is none. The caller receives once, at
 * once, and hands it back. */
symmem_status sm_ipc_socket_next(sm_ipc_socket *own, uint32_t magic, int *connection_p);
void sm_ipc_socket_done(sm_ipc_socket *own, int connection);
/* Until something may have come. Negative, with errno. */
int sm_ipc_socket_wait(const sm_ipc_socket *own, uint32_t ms);

/* --- ipc_whose.c --- */
/* With a zero behind it; "" for an abstract name. */
void sm_ipc_path_of(const struct sockaddr_un *address, uint32_t bytes,
                    char path[sizeof(address->sun_path) + 1]);
/* Of this user, or root. */
bool sm_ipc_is_own_user(uid_t uid);
/* Who connected, and who answers at an address to which the connection was made. */
bool sm_ipc_is_of_user(int connection, struct ucred *other_p);
bool sm_ipc_is_socket_of_user(int connection, const struct sockaddr_un *to, uint32_t bytes,
                              struct ucred *holder_p);

#endif
