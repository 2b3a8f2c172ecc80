/* SPDX-License-Identifier: BSD-3-Clause */
/* What the control groups of this process leave it: the limit of a container, a batch job or a
 * service. */
#ifndef SYMMEM_BACKEND_SHM_CGROUP_H
#define SYMMEM_BACKEND_SHM_CGROUP_H

#include "shm.h"

/* The narrowest of several limits. */
typedef struct shm_memory_left {
    uint64_t left;
    uint64_t limit;       /* 0: not known */
    char where[PATH_MAX]; /* the group's folder; "": no group */
    /* Scratch of the search: a file's path, a line of one, and this process's groups of either
     * version ("": none). It is too large for a stack. */
    char path[PATH_MAX], line[PATH_MAX], first[PATH_MAX], second[PATH_MAX];
} shm_memory_left;

/* No group has a limit, but `left` bytes are available. */
static inline void shm_memory_left_set(shm_memory_left *memory, uint64_t left) {
    memory->left = left;
    memory->limit = 0;
    memory->where[0] = '\0';
}

/* Gets what the control groups of this process leave it of memory, and of processes and threads.
 * The file cache counts as free if `wanted` bytes are not available without it. Returns false if no
 * group has a limit. */
bool shm_cgroup_memory(const char *root, uint64_t wanted, shm_memory_left *memory);
bool shm_cgroup_tasks(const char *root, shm_memory_left *memory);

#endif
