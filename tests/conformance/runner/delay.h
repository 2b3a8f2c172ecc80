/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How long a case's threads could have run and had no processor, as the kernel counts it for each
 * thread. The watchdog looks now and then, at helpers and what a backend started too; what has come
 * since the last look goes to the arena's delays. A thread's count is gone when it ends, so each
 * rank notes its own at its end and where a check fails by time.
 */
#ifndef SYMMEM_RUNNER_DELAY_H
#define SYMMEM_RUNNER_DELAY_H

#include <sys/types.h>

#include "arena.h"

/* At the least between two looks of the watchdog. */
#define DELAY_LOOK_MS 50

/* Whether the kernel counts. */
bool delay_is_counted(void);
/* Of the thread of the process that waited the longest since the last look. */
uint64_t delay_of_process_us(struct arena *arena, pid_t pid);
/* Of the calling thread. */
void delay_note_own(struct arena *arena);

#endif
