/* SPDX-License-Identifier: BSD-3-Clause */
/* Whether the processes of a context's world live. */
#ifndef SYMMEM_CORE_LIVENESS_H
#define SYMMEM_CORE_LIVENESS_H

#include "bootstrap/identity.h"

/* Watches the processes of a context's world. Thread-safe. One per context. A descriptor (pidfd)
 * per watched process, made on first question; without descriptors left it reads /proc. */
typedef struct sm_liveness sm_liveness;
symmem_status sm_liveness_create(int32_t world_size, sm_liveness **liveness_p);
void sm_liveness_destroy(sm_liveness *liveness);
/* Where identities stand, to be taken back in good order. Both outlive it. */
void sm_liveness_read(sm_liveness *liveness, symmem_store *store, const char *world_prefix);
/* Tells who global rank `rank` is. Later calls with the same identity are free; a new identity
 * (the rank was restarted) replaces the old. */
void sm_liveness_learn(sm_liveness *liveness, int32_t rank, const sm_identity *identity);
bool sm_liveness_knows(sm_liveness *liveness, int32_t rank);
/* SYMMEM_PEER_GONE only if that very process has ended, or is another program by now. Never waits.
 */
symmem_peer_state sm_liveness_ask(sm_liveness *liveness, int32_t rank);
/* Finds out with few system calls which of the processes that are held have ended, for the
 * questions that the same thread asks next: the two below do not look at those again. */
void sm_liveness_glance(sm_liveness *liveness);
symmem_peer_state sm_liveness_seen(sm_liveness *liveness, int32_t rank);
symmem_peer_state sm_liveness_seen_of(sm_liveness *liveness, int32_t rank,
                                      const sm_identity *identity);
/* The same of the process that the rank was then, whoever is known in its place by now. */
symmem_peer_state sm_liveness_ask_of(sm_liveness *liveness, int32_t rank,
                                     const sm_identity *identity);
/* Whether it is on its way there, see symmem_host.peer_is_ending. Once it is GONE, either answer.
 */
bool sm_liveness_is_ending(sm_liveness *liveness, const sm_identity *identity);
/* Makes the end of the process with that file, if the store knows it, be seen without the file:
 * true if it may go. */
bool sm_liveness_mark_ended(sm_liveness *liveness, const char *file_name);
/* Where it says so. The rank's successor takes it back in the end. */
void sm_liveness_ended_key(const char *world_prefix, int32_t rank, char *key, size_t capacity);
/* Whether the end of the process that is known would be seen from here. Looks once. */
bool sm_liveness_sees(sm_liveness *liveness, int32_t rank);
/* Whether that process was seen on this kernel, whatever it says. Looks once. */
bool sm_liveness_is_near(sm_liveness *liveness, const sm_identity *identity);

#endif
