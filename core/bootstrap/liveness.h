/* SPDX-License-Identifier: BSD-3-Clause */
/* Liveness of the processes of a context's world. */
#ifndef SYMMEM_CORE_LIVENESS_H
#define SYMMEM_CORE_LIVENESS_H

#include "bootstrap/identity.h"

/* Watches the processes of a context's world. Thread-safe, one per context. Holds a descriptor
 * (pidfd) per watched process, opened at the first question. Without free descriptors it reads
 * /proc. */
typedef struct sm_liveness sm_liveness;
symmem_status sm_liveness_create(int32_t world_size, sm_liveness **liveness_p);
void sm_liveness_destroy(sm_liveness *liveness);
/* Names the store from which processes that end in good order remove their identities. Store and
 * prefix must outlive the liveness. */
void sm_liveness_read(sm_liveness *liveness, symmem_store *store, const char *world_prefix);
/* Sets the identity of global rank `rank`. Later calls with the same identity cost nothing. A new
 * identity (the rank was restarted) replaces the old one. */
void sm_liveness_learn(sm_liveness *liveness, int32_t rank, const sm_identity *identity);
bool sm_liveness_knows(sm_liveness *liveness, int32_t rank);
/* Answers SYMMEM_PEER_GONE only if that process has ended or runs another program. Never waits. */
symmem_peer_state sm_liveness_ask(sm_liveness *liveness, int32_t rank);
/* Finds out with few system calls which of the processes with a pidfd have ended. The two functions
 * below, called next by the same thread, then do not look at those again. */
void sm_liveness_glance(sm_liveness *liveness);
symmem_peer_state sm_liveness_seen(sm_liveness *liveness, int32_t rank);
symmem_peer_state sm_liveness_seen_of(sm_liveness *liveness, int32_t rank,
                                      const sm_identity *identity);
/* After a glance. Looks only at a process without a pidfd. */
symmem_peer_state sm_liveness_glanced_of(sm_liveness *liveness, int32_t rank,
                                         const sm_identity *identity);
/* Whether a look or a glance has found that the rank's process has ended, or that very process
 * unless `identity` is NULL. Makes no system call. */
bool sm_liveness_is_known_gone(sm_liveness *liveness, int32_t rank, const sm_identity *identity);
/* Asks about the process with that identity, even if a later process has the rank by now. */
symmem_peer_state sm_liveness_ask_of(sm_liveness *liveness, int32_t rank,
                                     const sm_identity *identity);
/* Whether the process is ending, see symmem_host.peer_is_ending. Once it is GONE, either answer is
 * possible. */
bool sm_liveness_is_ending(sm_liveness *liveness, const sm_identity *identity);
/* If the store has the rank's process with that file, notes its end in the store, so that peers see
 * it without the file. True: the file may be removed. */
bool sm_liveness_mark_ended(sm_liveness *liveness, int32_t rank, const char *file_name);
/* Whether the rank's known process has that file, and all ranks are known and see the process by
 * its name, which is in their network namespace. */
bool sm_liveness_needs_no_file(sm_liveness *liveness, int32_t rank, const char *file_name);
/* Writes the key of that note. The rank's successor removes the key in the end. */
void sm_liveness_ended_key(const char *world_prefix, int32_t rank, char *key, size_t capacity);
/* Whether this process would see the end of the rank's known process. Looks once. */
bool sm_liveness_sees(sm_liveness *liveness, int32_t rank);
/* Whether the process was seen on this kernel, whatever its identity reports. Looks once. */
bool sm_liveness_is_near(sm_liveness *liveness, const sm_identity *identity);

#endif
