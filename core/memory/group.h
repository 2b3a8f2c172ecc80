/* SPDX-License-Identifier: BSD-3-Clause */
/* Groups of ranks. */
#ifndef SYMMEM_CORE_GROUP_H
#define SYMMEM_CORE_GROUP_H

#include "backend/context.h"

struct symmem_group {
    sm_node node;
    symmem_context *context; /* not counted: the shell dies with the context */
    atomic_bool destroyed;
    atomic_int references; /* live group + links; the members and session die with the last */
    uint64_t uid;          /* unique in this context, never reused */
    sm_index_node by_name;
    sm_node cached; /* its entries in caches */
    char name[SYMMEM_NAME_MAX];
    char name_prefix[SYMMEM_STORE_KEY_MAX / 4]; /* shared by all groups of that name */
    char prefix[SYMMEM_STORE_KEY_MAX / 2];
    int32_t rank, world_size;
    int32_t *global_ranks;
    symmem_store *store;
    sm_session *session;
    sm_timed_mutex call_lock; /* held by the one collective call under way */
    void *communicator;       /* the user's; guarded by the call lock */
    void *backend_group;      /* from group_open */
    bool backend_group_open;
    uint64_t backend_group_generation; /* of the rendezvous that opened it */
};

/* Answers STALE for a destroyed group, NOT_INITIALIZED after finalize, INVALID_ARGUMENT for
 * NULL. */
symmem_status sm_group_check(const symmem_group *group, const char *operation);
/* Takes the group's call lock only (for pairwise calls). On OK the caller must sm_group_leave. */
symmem_status sm_group_take(symmem_group *group, const char *operation, uint64_t deadline_ns);
/* Takes the group's call lock and brings its session up. On OK the caller must sm_group_leave. */
symmem_status sm_group_enter(symmem_group *group, const char *operation, uint64_t deadline_ns);
void sm_group_leave(symmem_group *group);
/* Leaves the group at the end of a call and explains the call's failure. Returns status. */
symmem_status sm_group_end_call(symmem_group *group, symmem_status status);
/* Does sm_group_check and sm_group_retain in one step, so that no destroy comes between them. */
symmem_status sm_group_acquire(symmem_group *group, const char *operation);
void sm_group_retain(symmem_group *group);
void sm_group_release(symmem_group *group);
/* Destroys every live group, for finalize. */
void sm_group_destroy_all(symmem_context *context);
void sm_group_free_shells(symmem_context *context); /* with the context's memory */

#endif
