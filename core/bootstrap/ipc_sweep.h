/* SPDX-License-Identifier: BSD-3-Clause */
/* Removes the socket files that killed processes left. */
#ifndef SYMMEM_CORE_IPC_SWEEP_H
#define SYMMEM_CORE_IPC_SWEEP_H

#include "bootstrap/liveness.h"

/* Unlinks the files that killed processes of this user and host left in the directory. Files that
 * peers may still need to see a process's end stay. `liveness` is NULL if no store is known. Never
 * fails. */
void sm_ipc_sweep(const char *directory, sm_liveness *liveness);
/* Does the same for one life file, just before its rank's key is removed or replaced. If the file
 * stays, any later sweep removes it. */
void sm_ipc_sweep_one(const char *path, sm_liveness *liveness);
/* Does the same for the files of processes that see `boot_id` as the host's, as in a container. */
void sm_ipc_sweep_of(const char *directory, uint64_t boot_id, sm_liveness *liveness);

#endif
