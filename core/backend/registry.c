/* SPDX-License-Identifier: BSD-3-Clause */
/* A context's backends: registering, choosing, opening. */
#include "backend/registry.h"
#include "backend/device.h"
#include "backend/host.h"
#include "backend/instance.h"
#include "backend/loader.h"
#include "backend/query.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* A backend on its way to the registry, or one that is in it. */
typedef struct candidate {
    const sm_backend *registered; /* NULL: not registered yet */
    sm_backend backend;           /* a copy of that, or read from its table */
    void *library;                /* NULL: not from a shared object */
} candidate;

/* --- the list ------------------------------------------------------------------------------- */

/* context->lock held. */
static const sm_backend *find_locked(symmem_context *context, const char *name) {
    for (sm_node *node = context->backends.next; node != &context->backends; node = node->next) {
        const sm_backend *backend = &SM_CONTAINER(node, sm_registered, node)->backend;
        if (strcmp(backend->name, name) == 0)
            return backend;
    }
    return NULL;
}

static const sm_backend *find(symmem_context *context, const char *name) {
    (void)pthread_mutex_lock(&context->lock);
    const sm_backend *backend = find_locked(context, name);
    (void)pthread_mutex_unlock(&context->lock);
    return backend;
}

/* Sets new->registered. `again`: the same table a second time is no error. */
static symmem_status add(symmem_context *context, candidate *new, bool again,
                         const char *operation) {
    sm_registered *registered = calloc(1, sizeof(*registered));
    if (!registered)
        return sm_context_fail(context, SYMMEM_OUT_OF_MEMORY, operation, "",
                               "no memory to register backend '%s'", new->backend.name);
    registered->backend = new->backend;
    registered->library = new->library;
    (void)pthread_mutex_lock(&context->lock);
    const sm_backend *other = find_locked(context, new->backend.name);
    if (!other)
        sm_list_add(&context->backends, &registered->node);
    (void)pthread_mutex_unlock(&context->lock);
    new->registered = other ? other : &registered->backend;
    if (!other)
        return SYMMEM_OK;
    free(registered);
    if (again && other->table == new->backend.table)
        return SYMMEM_OK;
    return sm_context_fail(context, SYMMEM_EXISTS, operation, "",
                           "a backend '%s' is registered already", new->backend.name);
}

static symmem_status load(const char *path, const char *operation, candidate *new) {
    if (strnlen(path, PATH_MAX) == PATH_MAX)
        return sm_fail(SYMMEM_PATH_TOO_LONG, operation, "load", "%.100s...", path);
    const symmem_backend *table = NULL;
    symmem_status status = sm_load_table(path, operation, &new->library, &table);
    if (status != SYMMEM_OK)
        return status;
    return sm_backend_read(table, operation, &new->backend);
}

/* Finds a backend by name or path without registering it. */
static symmem_status find_backend(symmem_context *context, const char *name, const char *operation,
                                  candidate *found) {
    memset(found, 0, sizeof(*found));
    /* What has no end is read no further than a name may be long. */
    if (memchr(name, '/', strnlen(name, SYMMEM_NAME_MAX)))
        return load(name, operation, found);
    if (!sm_backend_name_valid(name))
        return sm_context_fail(context, SYMMEM_NOT_FOUND, operation, "",
                               "no backend can have the name '%.40s': names are 1 to 31 of a-z 0-9 "
                               "_, and a path has a "
                               "slash among its first 64",
                               name);
    found->registered = find(context, name);
    if (found->registered) {
        found->backend = *found->registered;
        return SYMMEM_OK;
    }
    char path[PATH_MAX];
    symmem_status status = sm_search_backend(name, operation, path, sizeof(path));
    if (status == SYMMEM_OK)
        status = load(path, operation, found);
    if (status != SYMMEM_OK)
        return status;
    if (strcmp(found->backend.name, name) != 0)
        return sm_context_fail(context, SYMMEM_ABI, operation, "load",
                               "backend '%s' was asked for, %s calls itself '%s'", name, path,
                               found->backend.name);
    return SYMMEM_OK;
}

static symmem_status probe(symmem_context *context, const sm_backend *backend,
                           const char *operation) {
    char reason[160] = "";
    symmem_status status = backend->probe(reason, sizeof(reason));
    if (status == SYMMEM_OK)
        return SYMMEM_OK;
    reason[sizeof(reason) - 1] = 0;
    return sm_context_fail(context, SYMMEM_UNSUPPORTED, operation, "probe",
                           "backend '%s' cannot run here: %s", backend->name,
                           reason[0] ? reason : symmem_status_text(status));
}

/* --- public --------------------------------------------------------------------------------- */

symmem_status symmem_register_backend(symmem_context *context, const symmem_backend *table) {
    SM_PUBLIC_CALL;
    static const char operation[] = "register_backend";
    candidate new = {0};
    symmem_status status = sm_context_check(context, operation);
    if (status == SYMMEM_OK)
        status = sm_backend_read(table, operation, &new.backend);
    if (status != SYMMEM_OK)
        return status;
    return add(context, &new, false, operation);
}

symmem_status symmem_load_backend(symmem_context *context, const char *path) {
    SM_PUBLIC_CALL;
    static const char operation[] = "load_backend";
    candidate new = {0};
    symmem_status status = sm_context_check(context, operation);
    if (status != SYMMEM_OK)
        return status;
    if (!path)
        return sm_context_fail(context, SYMMEM_INVALID_ARGUMENT, operation, "", "path is NULL");
    status = load(path, operation, &new);
    if (status != SYMMEM_OK)
        return status;
    return add(context, &new, false, operation);
}

symmem_status symmem_backend_available(symmem_context *context, const char *name,
                                       bool *available_p) {
    SM_PUBLIC_CALL;
    static const char operation[] = "backend_available";
    symmem_status status = sm_context_check(context, operation);
    if (status != SYMMEM_OK)
        return status;
    if (!name || !available_p)
        return sm_context_fail(context, SYMMEM_INVALID_ARGUMENT, operation, "", "%s is NULL",
                               name ? "available_p" : "name");
    SM_ATTEMPT(look); /* "no" is an answer, not a failure */
    candidate found;
    status = find_backend(context, name, operation, &found);
    if (status == SYMMEM_OK)
        status = probe(context, &found.backend, operation);
    *available_p = status == SYMMEM_OK;
    return SYMMEM_OK;
}

/* open_lock held. */
static symmem_status activate(symmem_context *context, candidate *chosen, const char *operation) {
    if (context->backend && context->backend->table == chosen->backend.table)
        return SYMMEM_OK;
    /* Relaxed: written under open_lock. */
    if (atomic_load_explicit(&context->instance_open, memory_order_relaxed))
        return sm_context_fail(context, SYMMEM_BUSY, operation, "",
                               "backend '%s' is in use, '%s' cannot replace it",
                               context->backend->name, chosen->backend.name);
    symmem_status status = probe(context, &chosen->backend, operation);
    if (status == SYMMEM_OK)
        status = add(context, chosen, true, operation);
    if (status != SYMMEM_OK)
        return status;
    (void)pthread_mutex_lock(&context->lock);
    context->backend = chosen->registered;
    (void)pthread_mutex_unlock(&context->lock);
    return SYMMEM_OK;
}

symmem_status symmem_set_backend(symmem_context *context, const char *name) {
    SM_PUBLIC_CALL;
    static const char operation[] = "set_backend";
    symmem_status status = sm_context_check(context, operation);
    if (status != SYMMEM_OK)
        return status;
    if (!name)
        return sm_context_fail(context, SYMMEM_INVALID_ARGUMENT, operation, "", "name is NULL");
    candidate chosen;
    status = find_backend(context, name, operation, &chosen);
    if (status != SYMMEM_OK)
        return status;
    (void)pthread_mutex_lock(&context->open_lock);
    status = activate(context, &chosen, operation);
    (void)pthread_mutex_unlock(&context->open_lock);
    return status;
}

/* The active backend, for calls that do not count as use. */
static const sm_backend *active(symmem_context *context) {
    (void)pthread_mutex_lock(&context->lock);
    const sm_backend *backend = context->backend;
    (void)pthread_mutex_unlock(&context->lock);
    return backend;
}

symmem_status symmem_get_backend(symmem_context *context, const char **name_p) {
    SM_PUBLIC_CALL;
    symmem_status status = sm_context_check(context, "get_backend");
    if (status != SYMMEM_OK)
        return status;
    if (!name_p)
        return sm_context_fail(context, SYMMEM_INVALID_ARGUMENT, "get_backend", "",
                               "name_p is NULL");
    const sm_backend *backend = active(context);
    *name_p = backend ? backend->name : NULL;
    return SYMMEM_OK;
}

symmem_status symmem_backend_capabilities(symmem_context *context, uint64_t *capabilities_p) {
    SM_PUBLIC_CALL;
    static const char operation[] = "backend_capabilities";
    symmem_status status = sm_context_check(context, operation);
    if (status != SYMMEM_OK)
        return status;
    if (!capabilities_p)
        return sm_context_fail(context, SYMMEM_INVALID_ARGUMENT, operation, "",
                               "capabilities_p is NULL");
    const sm_backend *backend = active(context);
    if (!backend)
        return sm_context_fail(context, SYMMEM_NOT_FOUND, operation, "",
                               "no backend is set, neither in the options nor in SYMMEM_BACKEND");
    *capabilities_p = backend->capabilities;
    return SYMMEM_OK;
}

/* --- use ------------------------------------------------------------------------------------ */

/* open_lock held. */
static symmem_status open_instance(symmem_context *context, const char *operation) {
    if (atomic_load_explicit(&context->instance_open, memory_order_relaxed))
        return SYMMEM_OK;
    symmem_status status = sm_context_check(context, operation); /* finalized meanwhile? */
    if (status != SYMMEM_OK)
        return status;
    if (!context->backend)
        return sm_context_fail(context, SYMMEM_NOT_FOUND, operation, "",
                               "no backend is set, neither in the options nor in SYMMEM_BACKEND");
    const symmem_backend_config config = {
        .size = sizeof(config),
        .rank = context->rank,
        .world_size = context->world_size,
        .local_rank = context->local_rank,
        .multicast_allowed = sm_context_multicast_allowed(context),
    };
    status = context->backend->open(&context->host, &config, &context->instance);
    if (status != SYMMEM_OK)
        return sm_backend_failed(context, status, operation, "open");
    sm_instance_await_at_exit(context->backend->table);
    /* pairs with: acquire in sm_context_use_backend and instance_leave */
    atomic_store_explicit(&context->instance_open, true, memory_order_release);
    return SYMMEM_OK;
}

symmem_status sm_context_use_backend(symmem_context *context, const char *operation) {
    /* pairs with: release in open_instance */
    if (atomic_load_explicit(&context->instance_open, memory_order_acquire))
        return SYMMEM_OK;
    (void)pthread_mutex_lock(&context->open_lock);
    symmem_status status = open_instance(context, operation);
    (void)pthread_mutex_unlock(&context->open_lock);
    return status;
}

symmem_status sm_instance_enter(symmem_context *context, const char *operation) {
    symmem_status status = sm_context_use_backend(context, operation);
    if (status != SYMMEM_OK)
        return status;
    (void)pthread_mutex_lock(&context->lock);
    status = sm_context_check(context, operation);
    if (status == SYMMEM_OK)
        sm_instance_retain(context);
    (void)pthread_mutex_unlock(&context->lock);
    return status;
}
