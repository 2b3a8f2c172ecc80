/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The end of a context over an engine. Peers may write to its heap still, and this rank to theirs:
 * the heap serves another context once nothing of that is under way. Where the engine moves bytes
 * in calls only, what is late ends no sooner than its target's next call: so it is waited for again
 * when all ranks meet to join.
 */
#ifndef SYMMEM_KIT_LATE_H
#define SYMMEM_KIT_LATE_H

#include "engine.h"

/* Gives the member's heap and traffic up. */
void symmem_kit_leave_heap(symmem_kit_member *self);
/* Whether something of a context that has ended is under way, and the ranks can meet. */
bool symmem_kit_has_late(const symmem_kit_engine *engine);
/* Behind the meeting, of a member that has no heap yet. */
void symmem_kit_settle(symmem_kit_member *self);

#endif
