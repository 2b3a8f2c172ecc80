/* SPDX-License-Identifier: BSD-3-Clause */
/* Descriptors from rank to rank, over a session's sockets. */
#ifndef SYMMEM_CORE_SESSION_FDS_H
#define SYMMEM_CORE_SESSION_FDS_H

#include "bootstrap/session.h"

/* Exchanges descriptors. Collective. Every rank gives `count` descriptors (-1 allowed, 1 <= count
 * <= 4). fds_p has world_size * count entries, duplicates of its own included. The caller owns all
 * of them. They are -1 on failure. */
symmem_status sm_session_all_gather_fds(sm_session *session, const char *operation, const int *fds,
                                        int count, int *fds_p, uint64_t deadline_ns);
symmem_status sm_session_broadcast_fd(sm_session *session, const char *operation, int root, int fd,
                                      int *fd_p, uint64_t deadline_ns);
symmem_status sm_session_send_fd(sm_session *session, int32_t dst, int fd, uint64_t deadline_ns);
symmem_status sm_session_recv_fd(sm_session *session, int32_t src, int *fd_p, uint64_t deadline_ns);

#endif
