/* SPDX-License-Identifier: BSD-3-Clause */
/* Groups: creation, destruction, references, call lock and queries. */
#include "memory/mapping.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/failure.h"
#include "backend/heap.h"
#include "backend/instance.h"
#include "backend/query.h"
#include "memory/block.h"
#include "memory/group_calls.h"
#include "memory/group_explain.h"

#define LONG_AGO_NS 1u /* a deadline that has passed: try once */

/* --- checks and references ---------------------------------------------------------- */

symmem_status sm_group_check(const symmem_group *group, const char *operation) {
    if (!group)
        return sm_fail(SYMMEM_INVALID_ARGUMENT, operation, "", "group is NULL");
    sm_call_is_of(group->rank, group->world_size, group->name);
    symmem_status status = sm_context_check(group->context, operation);
    if (status != SYMMEM_OK)
        return status;
    /* Acquire pairs with: release in end_group */
    if (!atomic_load_explicit(&group->destroyed, memory_order_acquire))
        return SYMMEM_OK;
    return sm_fail(SYMMEM_STALE, operation, "", "group '%s' was destroyed", group->name);
}

/* Gets a reference. `instance`: also becomes a user of the instance, so that a finalize cannot
 * close it. */
static symmem_status acquire(symmem_group *group, const char *operation, bool instance) {
    symmem_status status = sm_group_check(group, operation);
    if (status != SYMMEM_OK)
        return status;
    (void)pthread_mutex_lock(&group->context->lock);
    status = sm_group_check(group, operation);
    if (status == SYMMEM_OK) {
        sm_group_retain(group);
        if (instance)
            sm_instance_retain(group->context);
    }
    (void)pthread_mutex_unlock(&group->context->lock);
    return status;
}

symmem_status sm_group_acquire(symmem_group *group, const char *operation) {
    return acquire(group, operation, false);
}

void sm_group_retain(symmem_group *group) {
    /* Relaxed: the caller holds a reference, or context->lock and saw the group live. */
    (void)atomic_fetch_add_explicit(&group->references, 1, memory_order_relaxed);
}

void sm_group_release(symmem_group *group) {
    /* pairs with: the other holders' releases */
    if (atomic_fetch_sub_explicit(&group->references, 1, memory_order_acq_rel) != 1)
        return;
    free(group->global_ranks);
    group->global_ranks = NULL;
}

/* --- the call lock ------------------------------------------------------------------ */

/* Closes what peers and the backend keep for a destroyed group. The caller holds the call lock. */
static void close_group(symmem_group *group) {
    if (group->backend_group_open) {
        group->context->backend->group_close(group->context->instance, group->backend_group);
        group->backend_group_open = false;
    }
    if (group->session) {
        /* Acquire pairs with: release in symmem_finalize */
        sm_session_tell_end(group->session,
                            atomic_load_explicit(&group->context->finalized, memory_order_acquire));
        sm_session_destroy(group->session);
    }
    group->session = NULL;
}

/* Closes a destroyed group unless a thread holds its call lock: sm_group_leave tries again. */
static void try_close(symmem_group *group) {
    if (!sm_timed_mutex_lock(&group->call_lock, LONG_AGO_NS))
        return;
    close_group(group);
    sm_timed_mutex_unlock(&group->call_lock);
}

static symmem_status busy(const symmem_group *group, const char *operation, uint64_t start_ns) {
    sm_fail(SYMMEM_TIMEOUT, operation, "group",
            "another collective call on group '%s' did not end in time", group->name);
    return sm_error_elapsed(sm_now_ns() - start_ns);
}

symmem_status sm_group_take(symmem_group *group, const char *operation, uint64_t deadline_ns) {
    uint64_t start_ns = sm_now_ns();
    symmem_status status = acquire(group, operation, true);
    if (status != SYMMEM_OK)
        return status;
    /* The group may be destroyed and the context finalized meanwhile: sm_group_leave then closes
     * the group, and needs the instance and the shell for that. */
    if (!sm_timed_mutex_lock(&group->call_lock, deadline_ns)) {
        status = busy(group, operation, start_ns);
        symmem_context *context = group->context;
        sm_group_release(group);
        sm_instance_release(context);
        return status;
    }
    status = sm_group_check(group, operation);
    if (status != SYMMEM_OK)
        sm_group_leave(group);
    return status;
}

symmem_status sm_group_enter(symmem_group *group, const char *operation, uint64_t deadline_ns) {
    symmem_status status = sm_group_take(group, operation, deadline_ns);
    if (status != SYMMEM_OK)
        return status;
    status = sm_session_ensure(group->session, operation, deadline_ns);
    return status == SYMMEM_OK ? status : sm_group_end_call(group, status);
}

symmem_status sm_group_end_call(symmem_group *group, symmem_status status) {
    symmem_context *context = group->context;
    sm_instance_retain(context);
    sm_group_leave(group);
    if (status != SYMMEM_OK)
        sm_group_explain(context);
    else
        sm_context_forget_lack(context, false);
    sm_instance_release(context);
    return status;
}

void sm_group_leave(symmem_group *group) {
    symmem_context *context = group->context;
    sm_timed_mutex_unlock(&group->call_lock);
    /* After unlocking: a thread that destroyed the group before that could not close it. */
    if (atomic_load_explicit(&group->destroyed, memory_order_acquire))
        try_close(group);
    sm_group_release(group);
    sm_instance_release(context);
}

/* --- create ------------------------------------------------------------------------- */

static uint64_t hash_of(const char *name) {
    return sm_hash(name, strlen(name), SM_HASH_SEED);
}

/* context->lock held. */
static symmem_group *find_live(symmem_context *context, const char *name) {
    for (sm_index_node *node = sm_index_first(&context->names, hash_of(name)); node != NULL;
         node = sm_index_next(node)) {
        symmem_group *group = SM_CONTAINER(node, symmem_group, by_name);
        if (strcmp(group->name, name) == 0)
            return group;
    }
    return NULL;
}

/* context->lock held. Lookups miss the group from now on; its shell stays as long as the
 * context. */
static void retire_group(symmem_group *group) {
    symmem_context *context = group->context;
    /* pairs with: acquire in sm_group_check and sm_group_leave */
    atomic_store_explicit(&group->destroyed, true, memory_order_release);
    sm_index_remove(&context->names, &group->by_name);
    sm_list_remove(&group->node);
    sm_list_add(&context->old_groups, &group->node);
}

static symmem_status exists(const symmem_context *context, const char *name) {
    return sm_context_fail(context, SYMMEM_EXISTS, "group_create", "", "a group '%s' is live",
                           name);
}

static symmem_status check_name(const symmem_context *context, const char *name) {
    static const char operation[] = "group_create";
    if (!name || !*name)
        return sm_context_fail(context, SYMMEM_INVALID_ARGUMENT, operation, "",
                               "the name is NULL or empty");
    size_t length = strnlen(name, SYMMEM_NAME_MAX);
    if (length == SYMMEM_NAME_MAX) {
        sm_context_fail(context, SYMMEM_INVALID_ARGUMENT, operation, "",
                        "the name is longer than %d bytes", SYMMEM_NAME_MAX - 1);
        return sm_error_sizes(SYMMEM_NAME_MAX - 1, 0);
    }
    for (size_t i = 0; i < length; i++) {
        unsigned char letter = (unsigned char)name[i];
        if (letter < 0x20 || letter == 0x7f)
            return sm_context_fail(context, SYMMEM_INVALID_ARGUMENT, operation, "",
                                   "byte %zu of the name is the control character %u", i,
                                   (unsigned)letter);
    }
    return SYMMEM_OK;
}

/* Checks the list and finds this rank in it. */
static symmem_status check_ranks(const symmem_context *context, const int32_t *ranks, int32_t count,
                                 int32_t *rank_p) {
    static const char operation[] = "group_create";
    uint64_t seen[SYMMEM_MAX_WORLD_SIZE / 64] = {0};
    int32_t own = -1;
    if (ranks ? count < 1 : count != 0)
        return sm_context_fail(context, SYMMEM_INVALID_ARGUMENT, operation, "",
                               ranks ? "a list of %d ranks" : "ranks is NULL and count %d",
                               (int)count);
    for (int32_t i = 0; i < count; i++) {
        int32_t rank = ranks[i];
        if (rank < 0 || rank >= context->world_size) {
            sm_context_fail(context, SYMMEM_OUT_OF_RANGE, operation, "",
                            "ranks[%d] is %d in a world of %d", (int)i, (int)rank,
                            (int)context->world_size);
            return sm_error_sizes((uint64_t)context->world_size, (uint64_t)rank);
        }
        uint64_t bit = 1ull << (rank % 64);
        if (seen[rank / 64] & bit)
            return sm_context_fail(context, SYMMEM_INVALID_ARGUMENT, operation, "",
                                   "rank %d is listed twice", (int)rank);
        seen[rank / 64] |= bit;
        if (rank == context->rank)
            own = i;
    }
    if (!ranks)
        own = context->rank;
    if (own < 0)
        return sm_context_fail(context, SYMMEM_INVALID_ARGUMENT, operation, "",
                               "this rank, %d, is not among the %d members", (int)context->rank,
                               (int)count);
    *rank_p = own;
    return SYMMEM_OK;
}

/* Makes a readable prefix in the store's alphabet, which differs for different names and lists. */
static void make_prefix(symmem_group *group) {
    static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    char readable[25];
    sm_copy_text(readable, sizeof(readable), group->name);
    for (char *letter = readable; *letter; letter++) {
        if (!strchr(alphabet, *letter))
            *letter = '_';
    }
    uint64_t name_hash = sm_hash(group->name, strlen(group->name), SM_HASH_SEED);
    uint64_t list_hash =
        sm_hash(group->global_ranks, (size_t)group->world_size * sizeof(int32_t), SM_HASH_SEED);
    (void)snprintf(group->name_prefix, sizeof(group->name_prefix), "g/%s-%016" PRIx64, readable,
                   name_hash);
    (void)snprintf(group->prefix, sizeof(group->prefix), "%s/%016" PRIx64, group->name_prefix,
                   list_hash);
}

static void free_group_shell(symmem_group *group) {
    sm_timed_mutex_finish(&group->call_lock);
    free(group->global_ranks);
    free(group);
}

/* Makes a group with all its fields, outside the list and without a session. */
static symmem_status make_shell(symmem_context *context, const char *name, const int32_t *ranks,
                                int32_t count, symmem_group **group_p) {
    symmem_group *group = calloc(1, sizeof(*group));
    int32_t *members = calloc((size_t)count, sizeof(*members));
    symmem_status status = SYMMEM_OK;
    if (!group || !members)
        status = sm_context_fail(context, SYMMEM_OUT_OF_MEMORY, "group_create", "",
                                 "no memory for a group of %d", (int)count);
    else
        status = sm_timed_mutex_init(&group->call_lock);
    if (status != SYMMEM_OK) {
        free(members);
        free(group);
        return status;
    }
    for (int32_t i = 0; i < count; i++)
        members[i] = ranks ? ranks[i] : i;
    group->global_ranks = members;
    group->context = context;
    group->world_size = count;
    atomic_init(&group->destroyed, false);
    atomic_init(&group->references, 1); /* the live group's */
    sm_list_init(&group->node);
    sm_list_init(&group->cached);
    sm_copy_text(group->name, sizeof(group->name), name);
    make_prefix(group);
    *group_p = group;
    return SYMMEM_OK;
}

/* A call under way ends soon after its group was destroyed or its context finalized. */
static symmem_status still_wanted(const void *owner, const char *operation) {
    return sm_group_check(owner, operation);
}

/* Peers that put to this rank need it where the engine moves bytes only inside calls. */
static bool serve_peers(const void *owner) {
    return sm_heap_progress(((const symmem_group *)owner)->context);
}

static symmem_status make_session(symmem_group *group) {
    symmem_context *context = group->context;
    const sm_session_config config = {
        .wanted = still_wanted,
        .serve = serve_peers,
        .owner = group,
        .store = group->store,
        .prefix = group->prefix,
        .name_prefix = group->name_prefix,
        .member = &context->member,
        .has_met = &group->context->has_met,
        .world_prefix = context->world_prefix,
        .group_name = group->name,
        .socket_dir = context->socket_dir,
        .relative_socket_dir = context->relative_socket_dir,
        .rank = group->rank,
        .world_size = group->world_size,
        .global_ranks = group->global_ranks,
        .liveness = context->liveness,
        .met = context->met,
        .told = context->told,
        .identity = &context->identity,
        .point = context->point,
        .point_arg = context->point_arg,
    };
    return sm_session_create(&config, &group->session);
}

/* Puts the group into the context's list unless a live one has its name. */
static symmem_status enlist(symmem_context *context, symmem_group *group) {
    (void)pthread_mutex_lock(&context->lock);
    symmem_status status = sm_context_check(context, "group_create"); /* finalized meanwhile? */
    if (status == SYMMEM_OK && find_live(context, group->name))
        status = exists(context, group->name);
    if (status == SYMMEM_OK) {
        group->uid = ++context->next_group_uid;
        sm_list_add(&context->groups, &group->node);
        sm_index_add(&context->names, &group->by_name, hash_of(group->name));
    }
    (void)pthread_mutex_unlock(&context->lock);
    return status;
}

symmem_status symmem_group_create(symmem_context *context, const char *name, const int32_t *ranks,
                                  int32_t count, symmem_store *store, symmem_group **group_p) {
    SM_PUBLIC_CALL;
    symmem_group *group = NULL;
    int32_t rank = -1;
    symmem_status status = sm_context_check(context, "group_create");
    if (status != SYMMEM_OK)
        return status;
    if (!group_p)
        return sm_context_fail(context, SYMMEM_INVALID_ARGUMENT, "group_create", "",
                               "group_p is NULL");
    status = check_name(context, name);
    if (status == SYMMEM_OK)
        status = check_ranks(context, ranks, count, &rank);
    if (status != SYMMEM_OK)
        return status;
    (void)pthread_mutex_lock(&context->lock);
    bool taken = find_live(context, name) != NULL;
    (void)pthread_mutex_unlock(&context->lock);
    if (taken)
        return exists(context, name);
    status = sm_context_point(context, "group_create", "group.create");
    if (status != SYMMEM_OK)
        return status;

    status = make_shell(context, name, ranks, ranks ? count : context->world_size, &group);
    if (status != SYMMEM_OK)
        return status;
    group->rank = rank;
    group->store = store ? store : context->store;
    status = make_session(group);
    if (status == SYMMEM_OK)
        status = enlist(context, group);
    if (status != SYMMEM_OK) {
        if (group->session)
            sm_session_destroy(group->session);
        free_group_shell(group);
        return status;
    }
    *group_p = group;
    return SYMMEM_OK;
}

/* --- destroy ------------------------------------------------------------------------ */

/* Called only by the caller that set `destroyed`. */
static void end_group(symmem_group *group) {
    sm_cache_drop_group(group);
    try_close(group);
    sm_group_release(group);
}

symmem_status symmem_group_destroy(symmem_group *group) {
    SM_PUBLIC_CALL;
    if (!group)
        return SYMMEM_OK;
    symmem_status status = sm_context_check(group->context, "group_destroy");
    if (status == SYMMEM_OK)
        status = sm_group_check(group, "group_destroy");
    if (status == SYMMEM_OK)
        status = sm_context_point(group->context, "group_destroy", "group.destroy");
    if (status != SYMMEM_OK)
        return status;
    (void)pthread_mutex_lock(&group->context->lock);
    status = sm_group_check(group, "group_destroy");
    if (status == SYMMEM_OK) {
        sm_instance_retain(group->context); /* for what end_group closes */
        retire_group(group);
    }
    (void)pthread_mutex_unlock(&group->context->lock);
    if (status != SYMMEM_OK)
        return status;
    symmem_context *context = group->context;
    symmem_error_record before;
    bool differs;
    const bool has_failed = sm_context_last_failure(context, &before, &differs);
    SM_ATTEMPT(ending);
    if (has_failed) /* a failure in another context is no news to these peers */
        (void)sm_error_raise(&before);
    end_group(group);
    sm_context_observe(context, "group.destroyed");
    sm_instance_release(context);
    return SYMMEM_OK;
}

void sm_group_destroy_all(symmem_context *context) {
    for (;;) {
        symmem_group *group = NULL;
        (void)pthread_mutex_lock(&context->lock);
        if (!sm_list_empty(&context->groups)) {
            group = SM_CONTAINER(context->groups.next, symmem_group, node);
            retire_group(group);
        }
        (void)pthread_mutex_unlock(&context->lock);
        if (!group)
            return;
        end_group(group);
    }
}

void sm_group_free_shells(symmem_context *context) {
    sm_list_move(&context->old_groups, &context->groups); /* of a context never finalized */
    while (!sm_list_empty(&context->old_groups)) {
        symmem_group *group = SM_CONTAINER(context->old_groups.next, symmem_group, node);
        sm_list_remove(&group->node);
        free_group_shell(group);
    }
}

/* --- queries ------------------------------------------------------------------------ */

static symmem_status begin_query(const symmem_group *group, const char *operation,
                                 const void *output) {
    symmem_status status = sm_group_check(group, operation);
    if (status != SYMMEM_OK || output)
        return status;
    return sm_fail(SYMMEM_INVALID_ARGUMENT, operation, "", "the output pointer is NULL");
}

symmem_status symmem_group_rank(const symmem_group *group, int32_t *rank_p) {
    SM_PUBLIC_CALL;
    symmem_status status = begin_query(group, "group_rank", rank_p);
    if (status == SYMMEM_OK)
        *rank_p = group->rank;
    return status;
}

symmem_status symmem_group_world_size(const symmem_group *group, int32_t *world_size_p) {
    SM_PUBLIC_CALL;
    symmem_status status = begin_query(group, "group_world_size", world_size_p);
    if (status == SYMMEM_OK)
        *world_size_p = group->world_size;
    return status;
}

symmem_status symmem_group_name(const symmem_group *group, const char **name_p) {
    SM_PUBLIC_CALL;
    symmem_status status = begin_query(group, "group_name", name_p);
    if (status == SYMMEM_OK)
        *name_p = group->name;
    return status;
}

symmem_status symmem_group_global_rank(const symmem_group *group, int32_t rank,
                                       int32_t *global_rank_p) {
    SM_PUBLIC_CALL;
    symmem_status status = begin_query(group, "group_global_rank", global_rank_p);
    if (status == SYMMEM_OK)
        status = sm_group_rank_check(group, rank, "group_global_rank");
    if (status == SYMMEM_OK)
        *global_rank_p = group->global_ranks[rank];
    return status;
}

symmem_status symmem_group_find(symmem_context *context, const char *name, symmem_group **group_p) {
    SM_PUBLIC_CALL;
    static const char operation[] = "group_find";
    symmem_status status = sm_context_check(context, operation);
    if (status != SYMMEM_OK)
        return status;
    if (!name || !group_p)
        return sm_context_fail(context, SYMMEM_INVALID_ARGUMENT, operation, "", "%s is NULL",
                               name ? "group_p" : "name");
    symmem_group *group = NULL;
    (void)pthread_mutex_lock(&context->lock);
    if (strnlen(name, SYMMEM_NAME_MAX) < SYMMEM_NAME_MAX) /* longer names belong to no group */
        group = find_live(context, name);
    (void)pthread_mutex_unlock(&context->lock);
    if (!group)
        return sm_context_fail(context, SYMMEM_NOT_FOUND, operation, "",
                               "no live group is called '%.*s'", SYMMEM_NAME_MAX, name);
    *group_p = group;
    return SYMMEM_OK;
}
