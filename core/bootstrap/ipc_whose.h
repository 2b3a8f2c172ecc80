/* SPDX-License-Identifier: BSD-3-Clause */
/* Whose a socket is: the user behind a connection or an address. */
#ifndef SYMMEM_CORE_IPC_WHOSE_H
#define SYMMEM_CORE_IPC_WHOSE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

/* Copies the path and ends it with a zero. An abstract name gives "". */
void sm_ipc_path_of(const struct sockaddr_un *address, uint32_t bytes,
                    char path[sizeof(address->sun_path) + 1]);
/* Whether the id is this user's or root's. */
bool sm_ipc_is_own_user(uid_t uid);
/* Asks the kernel for the user that made a connection, or that holds the address to which one was
 * made. Returns 0, or an errno if it does not tell. */
int sm_ipc_ask_user(int connection, struct ucred *other_p);
/* Whether the holder of a connected address is this user, or root. */
bool sm_ipc_is_socket_of_user(const struct ucred *holder, const struct sockaddr_un *to,
                              uint32_t bytes);

#endif
