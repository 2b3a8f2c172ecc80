/* SPDX-License-Identifier: BSD-3-Clause */
/* A backend's table with every entry at one place, for tests that change some of them. */
#ifndef SYMMEM_TESTS_FLAT_BACKEND_H
#define SYMMEM_TESTS_FLAT_BACKEND_H

#include <string.h>
#include <symmem/backend.h>

#define FLAT_ENTRY(group, entry, name, need) __typeof__(((symmem_##group##_ops *)NULL)->entry) name;
#define FLAT_GROUP(group, need) symmem_##group##_ops group##_ops;
typedef struct flat_backend {
    symmem_backend head; /* its groups are those below, once flat_table was called */
    SYMMEM_BACKEND_ENTRIES(FLAT_ENTRY)
    SYMMEM_BACKEND_GROUPS(FLAT_GROUP)
} flat_backend;
#undef FLAT_ENTRY
#undef FLAT_GROUP

/* A copy of another table's entries, those beyond its sizes NULL. */
static inline flat_backend flat_of(const symmem_backend *from) {
    flat_backend flat;
    memset(&flat, 0, sizeof(flat));
    memcpy(&flat.head, from, from->size < sizeof(flat.head) ? from->size : sizeof(flat.head));
    flat.head.size = sizeof(flat.head);
#define FLAT_TAKE(group, entry, name, need)                                                        \
    if (flat.head.group &&                                                                         \
        offsetof(symmem_##group##_ops, entry) + sizeof(flat.name) <= flat.head.group->size)        \
        flat.name = flat.head.group->entry;
    SYMMEM_BACKEND_ENTRIES(FLAT_TAKE)
#undef FLAT_TAKE
    return flat;
}

/* The table of these entries, good as long as *flat stays where it is. A group that has no entry is
 * NULL. */
static inline const symmem_backend *flat_table(flat_backend *flat) {
#define FLAT_NONE(group, need)                                                                     \
    flat->head.group = NULL;                                                                       \
    flat->group##_ops.size = sizeof(flat->group##_ops);
#define FLAT_GIVE(group, entry, name, need)                                                        \
    flat->group##_ops.entry = flat->name;                                                          \
    if (flat->name)                                                                                \
        flat->head.group = &flat->group##_ops;
    SYMMEM_BACKEND_GROUPS(FLAT_NONE)
    SYMMEM_BACKEND_ENTRIES(FLAT_GIVE)
#undef FLAT_NONE
#undef FLAT_GIVE
    return &flat->head;
}

/* Entries of `over` take the place of those that are there. */
static inline void flat_replace(flat_backend *flat, const flat_backend *over) {
#define FLAT_REPLACE(group, entry, name, need)                                                     \
    if (over->name)                                                                                \
        flat->name = over->name;
    SYMMEM_BACKEND_ENTRIES(FLAT_REPLACE)
#undef FLAT_REPLACE
}

/* Puts `entry` where there is none. */
static inline void flat_fill(flat_backend *flat, void (*entry)(void)) {
#define FLAT_FILL(group, entry_, name, need)                                                       \
    if (!flat->name)                                                                               \
        memcpy(&flat->name, &entry, sizeof(entry));
    SYMMEM_BACKEND_ENTRIES(FLAT_FILL)
#undef FLAT_FILL
}

/* The capability that a whole group shows, or 0. */
static inline uint64_t flat_capability(const char *group) {
    static const struct {
        const char *group;
        uint64_t capability;
    } shown[] = {{"stream", SYMMEM_CAP_STREAMS},      {"graph", SYMMEM_CAP_CAPTURE},
                 {"multicast", SYMMEM_CAP_MULTICAST}, {"collective", SYMMEM_CAP_COLLECTIVES},
                 {"matmul", SYMMEM_CAP_MATMUL},       {"topology", SYMMEM_CAP_CONNECTIVITY},
                 {"world", SYMMEM_CAP_WORLD},         {"reach", SYMMEM_CAP_REACH}};
    for (size_t i = 0; i < sizeof(shown) / sizeof(shown[0]); i++)
        if (strcmp(shown[i].group, group) == 0)
            return shown[i].capability;
    return 0;
}

/* Takes out what a capability stands for, and what needs it. */
static inline void flat_without(flat_backend *flat, uint64_t capabilities) {
    const uint64_t of_streams = SYMMEM_CAP_CAPTURE | SYMMEM_CAP_HOST_FN | SYMMEM_CAP_WRAP_STREAM;
    uint64_t gone = capabilities;
    if (gone & SYMMEM_CAP_STREAMS)
        gone |= of_streams;
    if (gone & SYMMEM_CAP_WORLD)
        gone |= SYMMEM_CAP_REACH;
    if (gone & SYMMEM_CAP_COLLECTIVES)
        gone |= SYMMEM_CAP_COLLECTIVES_APART | SYMMEM_CAP_SPLITS;
    flat->head.flags &= ~gone;
#define FLAT_DROP_GROUP(group_, entry, name, need)                                                 \
    if ((gone & flat_capability(#group_)) != 0)                                                    \
        flat->name = NULL;
    SYMMEM_BACKEND_ENTRIES(FLAT_DROP_GROUP)
#undef FLAT_DROP_GROUP
    if (gone & SYMMEM_CAP_HOST_FN)
        flat->host_fn = NULL;
    if (gone & SYMMEM_CAP_WRAP_STREAM)
        flat->stream_wrap = NULL;
    if (gone & SYMMEM_CAP_COLLECTIVES_APART)
        flat->collective_apart = NULL;
    if (gone & SYMMEM_CAP_SPLITS)
        flat->collective_splits = NULL;
    if (gone & SYMMEM_CAP_TILES)
        flat->reduce_tile = NULL;
    if (gone & SYMMEM_CAP_VALUES) {
        flat->wait_value = NULL;
        flat->write_value64 = NULL;
    }
    if (gone & SYMMEM_CAP_WINDOW) {
        flat->signal_count = NULL;
        flat->wait_counts = NULL;
    }
}

#endif
