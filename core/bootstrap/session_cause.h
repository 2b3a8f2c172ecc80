/* SPDX-License-Identifier: BSD-3-Clause */
/* Why a session ends: the notes that ranks send each other, and the cause that came first. */
#ifndef SYMMEM_CORE_SESSION_CAUSE_H
#define SYMMEM_CORE_SESSION_CAUSE_H

#include "bootstrap/session_internal.h"

/* Leaves the session with the failure in this rank's record. Takes over a peer's cause if that came
 * first, and tells the peers. To be called before the session is taken down. Returns the final
 * status. */
symmem_status sm_session_give_up(sm_session *session, const sm_call *call, symmem_status status);
/* Keeps a peer's cause when this rank follows the peer into a new bring-up. The old session's notes
 * are lost there. */
void sm_session_keep_cause(sm_session *session);
/* Answers MISMATCH if a peer says that its group has other members. */
symmem_status sm_session_contradicted(sm_session *session, const sm_call *call);
/* Answers MISMATCH for `other`, a join record of the same name's group with other members, and
 * tells its rank. */
symmem_status sm_session_contradict(const sm_session *session, const sm_call *call, int32_t rank,
                                    const sm_join *other);
/* Makes this rank's join record tell of the contradiction in the thread's record. */
void sm_session_stand(sm_session *session, const sm_call *call);
/* Answers MISMATCH if the rank has ended and its join record tells of a contradiction. */
symmem_status sm_session_stood(const sm_session *session, const sm_call *call, int32_t rank,
                               const sm_join *join);
/* Reads the notes that have come. Returns a peer that has given this session up, or -1. */
int32_t sm_session_given_up_by(sm_session *session);
/* Whether the notes read so far say that the peer has given this session up. */
bool sm_session_has_given_up(const sm_session *session, int32_t rank);

#endif
