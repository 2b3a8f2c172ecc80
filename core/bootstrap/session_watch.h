/* SPDX-License-Identifier: BSD-3-Clause */
/* What a session reads about its peers in the store, and the watch over them during waits. */
#ifndef SYMMEM_CORE_SESSION_WATCH_H
#define SYMMEM_CORE_SESSION_WATCH_H

#include "bootstrap/session_internal.h"

uint32_t sm_session_tick_ms(const sm_session *session);
void sm_session_join_key(const sm_session *session, int32_t rank, char key[SM_SESSION_KEY_BYTES]);
/* Like symmem_store_get and symmem_store_wait, but leave the record alone if the key is absent. */
symmem_status sm_session_get(const sm_session *session, const sm_call *call, const char *key,
                             void *value, size_t capacity, size_t *bytes_p);
symmem_status sm_session_wait(const sm_session *session, const char *key, uint32_t timeout_ms);
void sm_session_remove(const sm_session *session, const char *key);
/* Returns a hash of the members' list. */
uint64_t sm_session_list(const sm_session *session);
/* Answers NOT_FOUND if the key has no valid record, and MISMATCH if another group's record is
 * there. */
symmem_status sm_session_read_join(const sm_session *session, const sm_call *call, int32_t rank,
                                   sm_join *join_p);
/* Whether the rank's process ended. *restarted_p tells whether another one has taken its place. */
bool sm_session_gone(const sm_session *session, const sm_call *call, int32_t rank,
                     bool *restarted_p);
/* Does the same after sm_liveness_glance. */
bool sm_session_seen_gone(const sm_session *session, const sm_call *call, int32_t rank,
                          bool *restarted_p);
/* Whether an earlier look or glance found that another rank's process has ended. */
bool sm_session_known_gone(const sm_session *session, int32_t rank);
/* Learns the identity of a rank that is not known yet, if it is published. Answers MISMATCH if the
 * rank is in a world of another size. */
symmem_status sm_session_look_up(const sm_session *session, const sm_call *call, int32_t rank);
/* Whether the call began just now and so waits for the next process of a rank when it finds traces
 * of an ended one. The ranks of a job begin at about the same time. */
bool sm_session_next_is_awaited(const sm_call *call);
/* Whether the rank, whose process has ended, left something that may be an earlier job's. */
bool sm_session_may_be_earlier(const sm_session *session, const sm_call *call, int32_t rank);
/* Takes such traces out of the store, so that no rank finds them again. */
void sm_session_remove_traces(const sm_session *session, const sm_call *call, int32_t rank);
/* Whether the rank was there and has been finalized. */
bool sm_session_has_left(const sm_session *session, const sm_call *call, int32_t rank);
/* Whether the trace's process had ended before this rank took an ended one's place, so that it does
 * not belong to this job. */
bool sm_session_is_leftover(const sm_session *session, int32_t rank, sm_trace trace);
/* Answers MISMATCH if two processes claim this rank, or if a peer does not fit this rank's
 * world. */
symmem_status sm_session_check_member(const sm_session *session, const sm_call *call);
/* Answers NOT_INITIALIZED or STALE if the group is gone. */
symmem_status sm_session_wanted(const sm_session *session, const sm_call *call);
/* Looks once at the peers during a wait, for processes that ended and peers that started over.
 * Status OK: the wait goes on. */
sm_outcome sm_session_watch(sm_session *session, const sm_call *call);
/* Returns the outcome for a bring-up that `rank` gave up. A call that cannot follow it gets
 * PEER_LOST if a rank ended. */
sm_outcome sm_session_started_over(const sm_session *session, const sm_call *call, int32_t rank);

#endif
