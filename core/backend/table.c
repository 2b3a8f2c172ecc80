/* SPDX-License-Identifier: BSD-3-Clause */
/* What makes a backend table acceptable. */
#include "backend/context.h"

#include <inttypes.h>
#include <string.h>

#define NAME_MAX_LENGTH 31

typedef struct entry {
    const char *name;
    size_t offset;
    uint64_t capability; /* 0: every backend has it */
} entry;

#define ENTRY(name, capability)                                                                    \
    { #name, offsetof(struct symmem_backend, name), capability }

static const entry entries[] = {
    ENTRY(probe, 0),
    ENTRY(open, 0),
    ENTRY(close, 0),
    ENTRY(device_count, 0),
    ENTRY(device_info, 0),
    ENTRY(memory_alloc, 0),
    ENTRY(memory_release, 0),
    ENTRY(signal_bytes, 0),
    ENTRY(peers_open, 0),
    ENTRY(peers_close, 0),
    ENTRY(barrier, 0),
    ENTRY(put_signal, 0),
    ENTRY(wait_signal, 0),
    ENTRY(signal_reset, 0),
    ENTRY(copy, 0),
    ENTRY(memset32, 0),
    ENTRY(write_value32, 0),
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

bool sm_backend_present(const symmem_backend *backend, size_t offset) {
    void (*function)(void) = NULL;
    if (offset + sizeof(function) > backend->size)
        return false; /* an older, shorter table */
    memcpy(&function, (const char *)backend + offset, sizeof(function));
    return function != NULL;
}

bool sm_backend_name_valid(const char *name) {
    size_t length = strnlen(name, NAME_MAX_LENGTH + 1);
    return length >= 1 && length <= NAME_MAX_LENGTH &&
           name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_")] == 0;
}

static symmem_status refuse(const char *operation, const symmem_backend *backend,
                            const char *what) {
    return sm_fail(SYMMEM_ABI, operation, "check", "backend table '%s' refused: %s", backend->name,
                   what);
}

static symmem_status refuse_number(const char *operation, const char *what, uint64_t expected,
                                   uint64_t actual) {
    sm_fail(SYMMEM_ABI, operation, "check",
            "backend table refused: %s is %" PRIu64 ", %" PRIu64 " is needed", what, actual,
            expected);
    sm_record()->expected = expected;
    sm_record()->actual = actual;
    return SYMMEM_ABI;
}

/* The fields before the entries. Nothing behind `abi` and `size` is read before those are right. */
static symmem_status check_head(const symmem_backend *backend, const char *operation) {
    if (backend->size < offsetof(struct symmem_backend, name))
        return refuse_number(operation, "size", SYMMEM_BACKEND_SIZE_ABI1, backend->size);
    if (backend->abi != SYMMEM_BACKEND_ABI)
        return refuse_number(operation, "abi", SYMMEM_BACKEND_ABI, backend->abi);
    if (backend->size < SYMMEM_BACKEND_SIZE_ABI1)
        return refuse_number(operation, "size", SYMMEM_BACKEND_SIZE_ABI1, backend->size);
    if (backend->reserved != 0)
        return refuse_number(operation, "reserved", 0, backend->reserved);
    if (!backend->name || !sm_backend_name_valid(backend->name))
        return sm_fail(SYMMEM_ABI, operation, "check",
                       "backend table refused: name '%.40s' is not 1 to 31 of a-z 0-9 _",
                       backend->name ? backend->name : "(NULL)");
    if (!backend->description)
        return refuse(operation, backend, "description is NULL");
    if (backend->capabilities & ~SYMMEM_CAP_ALL) {
        (void)refuse(operation, backend, "unknown capability bits");
        sm_record()->expected = SYMMEM_CAP_ALL;
        sm_record()->actual = backend->capabilities;
        return SYMMEM_ABI;
    }
    const uint64_t of_streams = SYMMEM_CAP_CAPTURE | SYMMEM_CAP_HOST_FN | SYMMEM_CAP_WRAP_STREAM;
    if ((backend->capabilities & of_streams) && !(backend->capabilities & SYMMEM_CAP_STREAMS))
        return refuse(operation, backend,
                      "capability CAPTURE, HOST_FN or WRAP_STREAM without STREAMS");
    if ((backend->capabilities & SYMMEM_CAP_COLLECTIVES_APART) &&
        !(backend->capabilities & SYMMEM_CAP_COLLECTIVES))
        return refuse(operation, backend, "capability COLLECTIVES_APART without COLLECTIVES");
    if (!(backend->capabilities & (SYMMEM_CAP_THREAD_RANKS | SYMMEM_CAP_PROCESS_RANKS)))
        return refuse(operation, backend, "capability THREAD_RANKS or PROCESS_RANKS is needed");
    return SYMMEM_OK;
}

static symmem_status check_entries(const symmem_backend *backend, const char *operation) {
    for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
        bool wanted =
            entries[i].capability == 0 || (backend->capabilities & entries[i].capability) != 0;
        if (wanted != sm_backend_present(backend, entries[i].offset))
            return sm_fail(SYMMEM_ABI, operation, "check",
                           "backend table '%s' refused: entry %s %s", backend->name,
                           entries[i].name,
                           wanted ? "is missing" : "is there without its capability");
    }
    return SYMMEM_OK;
}

static symmem_status check_sharing(const symmem_backend *backend, const char *operation) {
    int parts = (backend->memory_export != NULL) + (backend->share_close != NULL) +
                (backend->memory_import != NULL);
    if (parts != 0 && parts != 3)
        return refuse(operation, backend,
                      "memory_export, share_close and memory_import belong together");
    if (parts == 0 && !backend->memory_exchange)
        return refuse(operation, backend, "neither memory_export nor memory_exchange");
    if ((backend->group_open != NULL) != (backend->group_close != NULL))
        return refuse(operation, backend, "group_open and group_close belong together");
    return SYMMEM_OK;
}

symmem_status sm_backend_check(const symmem_backend *backend, const char *operation) {
    if (!backend)
        return sm_fail(SYMMEM_INVALID_ARGUMENT, operation, "check", "the backend table is NULL");
    symmem_status status = check_head(backend, operation);
    if (status == SYMMEM_OK)
        status = check_entries(backend, operation);
    if (status == SYMMEM_OK)
        status = check_sharing(backend, operation);
    return status;
}

symmem_status sm_need_capability(symmem_context *context, uint64_t capability,
                                 const char *operation, const char *what) {
    if (sm_backend_has(context, capability))
        return SYMMEM_OK;
    return sm_context_fail(context, SYMMEM_UNSUPPORTED, operation, "", "the backend has no %s",
                           what);
}
