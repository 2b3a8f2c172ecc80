/* SPDX-License-Identifier: BSD-3-Clause */
/* What makes a backend's table acceptable, and what it says. */
#include <inttypes.h>
#include <string.h>

#include "backend/context.h"
#include "backend/reach.h"
#include "backend/table.h"
#include "backend/query.h"
#include "backend/reach_collective.h"
#include "backend/registry.h"

#define NAME_MAX_LENGTH 31

enum need { OPTIONAL, REQUIRED };

typedef struct group {
    const char *name;
    size_t in_table; /* offset of the pointer to it */
    enum need need;
} group;

typedef struct entry {
    const char *group, *name;
    size_t in_table; /* offset of the pointer to its group */
    size_t in_group, in_backend;
    enum need need;
} entry;

#define GROUP(group_, need_) {#group_, offsetof(symmem_backend, group_), need_},
static const group groups[] = {SYMMEM_BACKEND_GROUPS(GROUP)};

#define ENTRY(group_, entry_, name_, need_)                                                        \
    {#group_,                                                                                      \
     #entry_,                                                                                      \
     offsetof(symmem_backend, group_),                                                             \
     offsetof(symmem_##group_##_ops, entry_),                                                      \
     offsetof(sm_backend, name_),                                                                  \
     need_},
static const entry entries[] = {SYMMEM_BACKEND_ENTRIES(ENTRY)};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

bool sm_backend_name_valid(const char *name) {
    size_t length = strnlen(name, NAME_MAX_LENGTH + 1);
    return length >= 1 && length <= NAME_MAX_LENGTH &&
           name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_")] == 0;
}

static symmem_status refuse(const char *operation, const symmem_backend *table, const char *what) {
    return sm_fail(SYMMEM_ABI, operation, "check", "backend table '%s' refused: %s", table->name,
                   what);
}

static symmem_status refuse_number(const char *operation, const char *what, uint64_t expected,
                                   uint64_t actual) {
    sm_fail(SYMMEM_ABI, operation, "check",
            "backend table refused: %s is %" PRIu64 ", %" PRIu64 " is needed", what, actual,
            expected);
    return sm_error_sizes(expected, actual);
}

static symmem_status check_flags(const symmem_backend *table, const char *operation) {
    if (table->flags & ~SYMMEM_CAP_FLAGS) {
        (void)refuse(operation, table, "unknown flags");
        return sm_error_sizes(SYMMEM_CAP_FLAGS, table->flags);
    }
    if (!(table->flags & (SYMMEM_CAP_THREAD_RANKS | SYMMEM_CAP_PROCESS_RANKS)))
        return refuse(operation, table, "flag THREAD_RANKS or PROCESS_RANKS is needed");
    return SYMMEM_OK;
}

/* The fields before the groups. Nothing behind `abi` and `size` is read before those are right. */
static symmem_status check_head(const symmem_backend *table, const char *operation) {
    if (table->size < offsetof(symmem_backend, name))
        return refuse_number(operation, "size", SYMMEM_BACKEND_SIZE_ABI2, table->size);
    if (table->abi != SYMMEM_BACKEND_ABI)
        return refuse_number(operation, "abi", SYMMEM_BACKEND_ABI, table->abi);
    if (table->size < SYMMEM_BACKEND_SIZE_ABI2)
        return refuse_number(operation, "size", SYMMEM_BACKEND_SIZE_ABI2, table->size);
    if (table->reserved != 0)
        return refuse_number(operation, "reserved", 0, table->reserved);
    if (!table->name || !sm_backend_name_valid(table->name))
        return sm_fail(SYMMEM_ABI, operation, "check",
                       "backend table refused: name '%.40s' is not 1 to 31 of a-z 0-9 _",
                       table->name ? table->name : "(NULL)");
    if (!table->description)
        return refuse(operation, table, "description is NULL");
    return check_flags(table, operation);
}

/* NULL for a group that is not there, or lies beyond the table's size. */
static const char *find_group(const symmem_backend *table, size_t in_table) {
    const char *found = NULL;
    if (in_table + sizeof(found) <= table->size)
        memcpy(&found, (const char *)table + in_table, sizeof(found));
    return found;
}

/* Whether the core does itself what a missing mandatory group would do. */
static bool stands_in(const symmem_backend *table, size_t in_table) {
    if (in_table == offsetof(symmem_backend, memory))
        return find_group(table, offsetof(symmem_backend, world)) != NULL;
    return in_table == offsetof(symmem_backend, signal) &&
           find_group(table, offsetof(symmem_backend, reach)) != NULL && !table->stream &&
           (table->flags & SYMMEM_CAP_HOST_ACCESS) != 0;
}

static symmem_status check_groups(const symmem_backend *table, const char *operation) {
    for (size_t i = 0; i < COUNT(groups); i++) {
        const char *there = find_group(table, groups[i].in_table);
        size_t size = sizeof(size);
        if (there)
            memcpy(&size, there, sizeof(size));
        else if (groups[i].need == REQUIRED && !stands_in(table, groups[i].in_table))
            return sm_fail(SYMMEM_ABI, operation, "check",
                           "backend table '%s' refused: group %s is missing", table->name,
                           groups[i].name);
        if (size < sizeof(size))
            return sm_fail(SYMMEM_ABI, operation, "check",
                           "backend table '%s' refused: size of group %s is %zu", table->name,
                           groups[i].name, size);
    }
    if (table->graph && !table->stream)
        return refuse(operation, table, "group graph without group stream");
    if (find_group(table, offsetof(symmem_backend, reach)) &&
        !find_group(table, offsetof(symmem_backend, world)))
        return refuse(operation, table, "group reach without group world");
    return SYMMEM_OK;
}

/* Copies an entry that is there and within its group's size. */
static bool read_entry(const entry *e, const char *from, sm_backend *backend) {
    void (*function)(void) = NULL;
    size_t size;
    memcpy(&size, from, sizeof(size));
    if (e->in_group + sizeof(function) <= size)
        memcpy(&function, from + e->in_group, sizeof(function));
    memcpy((char *)backend + e->in_backend, &function, sizeof(function));
    return function != NULL;
}

static symmem_status read_entries(const symmem_backend *table, const char *operation,
                                  sm_backend *backend) {
    for (size_t i = 0; i < COUNT(entries); i++) {
        const char *from = find_group(table, entries[i].in_table);
        if (from && !read_entry(&entries[i], from, backend) && entries[i].need == REQUIRED)
            return sm_fail(SYMMEM_ABI, operation, "check",
                           "backend table '%s' refused: entry %s->%s is missing", table->name,
                           entries[i].group, entries[i].name);
    }
    return SYMMEM_OK;
}

static symmem_status check_sharing(const sm_backend *backend, const char *operation) {
    if (backend->world_open) /* the core's */
        return SYMMEM_OK;
    int parts = (backend->memory_share != NULL) + (backend->memory_unshare != NULL) +
                (backend->memory_map != NULL);
    if (parts != 0 && parts != 3)
        return refuse(operation, backend->table, "memory->share, unshare and map belong together");
    if (parts == 0 && !backend->memory_exchange)
        return refuse(operation, backend->table, "neither memory->share nor memory->exchange");
    return SYMMEM_OK;
}

static symmem_status check_counting(const sm_backend *backend, const char *operation) {
    return (backend->signal_count == NULL) == (backend->wait_counts == NULL)
               ? SYMMEM_OK
               : refuse(operation, backend->table, "signal->count and wait_counts belong together");
}

static uint64_t shown_by(const sm_backend *b) {
    return (b->stream_create ? SYMMEM_CAP_STREAMS : 0) | (b->host_fn ? SYMMEM_CAP_HOST_FN : 0) |
           (b->stream_wrap ? SYMMEM_CAP_WRAP_STREAM : 0) |
           (b->graph_launch ? SYMMEM_CAP_CAPTURE : 0) |
           (b->multicast_create ? SYMMEM_CAP_MULTICAST : 0) |
           (b->collective ? SYMMEM_CAP_COLLECTIVES : 0) |
           (b->collective_apart ? SYMMEM_CAP_COLLECTIVES_APART : 0) |
           (b->collective_splits ? SYMMEM_CAP_SPLITS : 0) |
           (b->reduce_tile ? SYMMEM_CAP_TILES : 0) | (b->matmul ? SYMMEM_CAP_MATMUL : 0) |
           (b->connectivity ? SYMMEM_CAP_CONNECTIVITY : 0) |
           (b->world_open ? SYMMEM_CAP_WORLD : 0) |
           (b->wait_value && b->write_value64 ? SYMMEM_CAP_VALUES : 0) |
           (b->signal_count && b->wait_counts ? SYMMEM_CAP_WINDOW : 0) |
           (b->reach_put ? SYMMEM_CAP_REACH : SYMMEM_CAP_PASSIVE);
}

symmem_status sm_backend_read(const symmem_backend *table, const char *operation,
                              sm_backend *backend) {
    memset(backend, 0, sizeof(*backend));
    if (!table)
        return sm_fail(SYMMEM_INVALID_ARGUMENT, operation, "check", "the backend table is NULL");
    symmem_status status = check_head(table, operation);
    if (status != SYMMEM_OK)
        return status;
    backend->table = table;
    backend->name = table->name;
    backend->description = table->description;
    status = check_groups(table, operation);
    if (status == SYMMEM_OK)
        status = read_entries(table, operation, backend);
    if (status == SYMMEM_OK)
        status = check_sharing(backend, operation);
    if (status == SYMMEM_OK)
        status = check_counting(backend, operation);
    if (status == SYMMEM_OK && !backend->barrier) {
        sm_reach_signals(backend);
        if (backend->reach_reduce_local && !backend->collective)
            sm_reach_collectives(backend);
    }
    backend->capabilities = table->flags | shown_by(backend);
    return status;
}

symmem_status sm_need_capability(symmem_context *context, uint64_t capability,
                                 const char *operation, const char *what) {
    if (sm_backend_has(context, capability))
        return SYMMEM_OK;
    return sm_context_fail(context, SYMMEM_UNSUPPORTED, operation, "", "the backend has no %s",
                           what);
}
