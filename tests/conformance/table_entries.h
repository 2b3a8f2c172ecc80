/* SPDX-License-Identifier: BSD-3-Clause */
/* The entries of a backend's table that come with a capability. */
#ifndef SYMMEM_CONFORMANCE_TABLE_ENTRIES_H
#define SYMMEM_CONFORMANCE_TABLE_ENTRIES_H

#include <string.h>
#include <symmem/backend.h>

typedef void (*entry_fn)(void);

struct entry {
    const char *name;
    size_t at;
    uint64_t capability;
};
#define ENTRY(name_, capability_)                                                                  \
    { #name_, offsetof(symmem_backend, name_), capability_ }

static const struct entry declared[] = {
    ENTRY(stream_create, SYMMEM_CAP_STREAMS),
    ENTRY(stream_destroy, SYMMEM_CAP_STREAMS),
    ENTRY(stream_synchronize, SYMMEM_CAP_STREAMS),
    ENTRY(stream_query, SYMMEM_CAP_STREAMS),
    ENTRY(device_synchronize, SYMMEM_CAP_STREAMS),
    ENTRY(event_create, SYMMEM_CAP_STREAMS),
    ENTRY(event_destroy, SYMMEM_CAP_STREAMS),
    ENTRY(event_record, SYMMEM_CAP_STREAMS),
    ENTRY(stream_wait_event, SYMMEM_CAP_STREAMS),
    ENTRY(event_synchronize, SYMMEM_CAP_STREAMS),
    ENTRY(event_query, SYMMEM_CAP_STREAMS),
    ENTRY(stream_wrap, SYMMEM_CAP_WRAP_STREAM),
    ENTRY(host_fn, SYMMEM_CAP_HOST_FN),
    ENTRY(capture_begin, SYMMEM_CAP_CAPTURE),
    ENTRY(capture_end, SYMMEM_CAP_CAPTURE),
    ENTRY(capture_id, SYMMEM_CAP_CAPTURE),
    ENTRY(graph_launch, SYMMEM_CAP_CAPTURE),
    ENTRY(graph_destroy, SYMMEM_CAP_CAPTURE),
    ENTRY(multicast_create, SYMMEM_CAP_MULTICAST),
    ENTRY(multicast_attach, SYMMEM_CAP_MULTICAST),
    ENTRY(multicast_bind, SYMMEM_CAP_MULTICAST),
    ENTRY(multicast_release, SYMMEM_CAP_MULTICAST),
    ENTRY(multimem_store, SYMMEM_CAP_MULTICAST),
    ENTRY(multimem_ld_reduce, SYMMEM_CAP_MULTICAST),
    ENTRY(collective, SYMMEM_CAP_COLLECTIVES),
    ENTRY(matmul, SYMMEM_CAP_MATMUL),
    ENTRY(copy_strided, SYMMEM_CAP_MATMUL),
    ENTRY(reduce_local, SYMMEM_CAP_MATMUL),
    ENTRY(connectivity, SYMMEM_CAP_CONNECTIVITY),
    ENTRY(collective_apart, SYMMEM_CAP_COLLECTIVES_APART),
};
#define DECLARED_COUNT (sizeof(declared) / sizeof(declared[0]))

static inline entry_fn entry_at(const symmem_backend *table, size_t at) {
    entry_fn entry;
    memcpy(&entry, (const char *)table + at, sizeof(entry));
    return entry;
}

static inline void set_entry(symmem_backend *table, size_t at, entry_fn entry) {
    memcpy((char *)table + at, &entry, sizeof(entry));
}

#endif
