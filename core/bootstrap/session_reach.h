/* SPDX-License-Identifier: BSD-3-Clause */
/* Whether the ranks of a group reach each other's sockets. */
#ifndef SYMMEM_CORE_SESSION_REACH_H
#define SYMMEM_CORE_SESSION_REACH_H

#include "bootstrap/session_internal.h"

/* Returns why this rank cannot reach a rank's socket, or NULL if no obstacle is known. */
const char *sm_session_out_of_reach(const sm_session *session, int32_t rank);
/* Returns why the rank cannot reach this one's socket, or NULL. */
const char *sm_session_reaches_not(const sm_session *session, int32_t rank);
/* Whether the socket's file of a living rank is gone. The record then says SYSTEM. */
bool sm_session_lost_socket(sm_session *session, const sm_call *call, int32_t rank);
/* Answers UNREACHABLE at once, on every rank, if any rank finds another one out of reach. */
symmem_status sm_session_check_reach(sm_session *session, const sm_call *call);

#endif
