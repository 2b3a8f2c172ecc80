/* SPDX-License-Identifier: BSD-3-Clause */
/* Children that a process forks when it has started NVSHMEM. */
#ifndef SYMMEM_NVSHMEM_FORKED_H
#define SYMMEM_NVSHMEM_FORKED_H

/* Before NVSHMEM's start, and when it has started. */
void forked_look(void);
void forked_guard(void);

#endif
