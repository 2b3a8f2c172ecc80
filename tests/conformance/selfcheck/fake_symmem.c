/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A stand-in for the library, so that the runner is checked by itself. Every rank sees only its own
 * memory. Backends by name: "fake" has every capability but MULTICAST; "processes" lacks
 * THREAD_RANKS; "world" has WORLD; "device" has one device and no OVERLAP; "unloadable",
 * "crashing" and "hanging" say it all.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/stat.h>

#include <symmem/backend.h>
#include <symmem/symmem.h>

/* It looks at few of the arguments. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

int selfcheck_exit_status; /* not 0: the process ends with it, as under a sanitizer */
int selfcheck_exit_ms;     /* how long the process takes for its end */
int selfcheck_meetings;    /* contexts of this process that have joined others */

struct symmem_context {
    char backend[32];
    int32_t world_size;
};

struct symmem_handle {
    unsigned char *ptr;
    void *buffers[1], *pads[1]; /* a rank sees itself alone */
    uint32_t pad[32];
};

static char any_object; /* what groups, streams and stores point at */

static void __attribute__((destructor)) override_exit_status(void) {
    usleep((unsigned)selfcheck_exit_ms * 1000u);
    if (selfcheck_exit_status != 0)
        _exit(selfcheck_exit_status);
}

const char *symmem_status_name(symmem_status status) {
    switch (status) {
#define CASE(name, value, text)                                                                    \
    case SYMMEM_##name:                                                                            \
        return #name;
        SYMMEM_STATUS_LIST(CASE)
#undef CASE
    }
    return "UNKNOWN";
}

const char *symmem_status_text(symmem_status status) {
    return symmem_status_name(status);
}

void symmem_last_error(symmem_error_record *record_p) {
    memset(record_p, 0, sizeof(*record_p));
    record_p->status = SYMMEM_OUT_OF_RANGE;
    record_p->failed_rank = -1;
    record_p->world_size = 4;
    record_p->missing_count = 1;
    record_p->missing[0] = 4;
    strcpy(record_p->message, "the record's message");
}

bool symmem_error_is_missing(const symmem_error_record *record, int32_t rank) {
    return (record->missing[rank / 64] >> (rank % 64) & 1) != 0;
}

void symmem_context_options_init(symmem_context_options *options) {
    memset(options, 0, sizeof(*options));
    options->size = sizeof(*options);
}

symmem_status symmem_init(const symmem_context_options *options, symmem_context **context_p) {
    const char *backend = options->backend == NULL ? "" : options->backend;
    *context_p = NULL;
    if (strcmp(backend, "unloadable") == 0)
        return SYMMEM_LOAD;
    while (strcmp(backend, "hanging") == 0) {
        sigset_t all; /* nothing but SIGKILL ends it */
        sigfillset(&all);
        sigprocmask(SIG_BLOCK, &all, NULL);
        pause();
    }
    if (strcmp(backend, "crashing") == 0) {
        signal(SIGSEGV, SIG_DFL);
        raise(SIGSEGV);
    }
    *context_p = calloc(1, sizeof(**context_p));
    if (*context_p == NULL)
        return SYMMEM_OUT_OF_MEMORY;
    strncpy((*context_p)->backend, backend, sizeof((*context_p)->backend) - 1);
    (*context_p)->world_size = options->world_size;
    return SYMMEM_OK;
}

/* Calls that only look whether there is an object. */
#define NEEDS(object_, name_, ...)                                                                 \
    symmem_status name_(__VA_ARGS__) {                                                             \
        return object_ == NULL ? SYMMEM_INVALID_ARGUMENT : SYMMEM_OK;                              \
    }
NEEDS(context, symmem_finalize, symmem_context *context)
NEEDS(group, symmem_group_destroy, symmem_group *group)
NEEDS(group, symmem_group_barrier, symmem_group *group, uint32_t timeout_ms)
NEEDS(stream, symmem_stream_destroy, symmem_stream *stream)
NEEDS(stream, symmem_stream_synchronize, symmem_stream *stream, uint32_t timeout_ms)

void symmem_context_free(symmem_context *context) {
    free(context);
}

symmem_status symmem_get_backend(symmem_context *context, const char **name_p) {
    *name_p = context->backend;
    return SYMMEM_OK;
}

symmem_status symmem_backend_capabilities(symmem_context *context, uint64_t *capabilities_p) {
    *capabilities_p = SYMMEM_CAP_ALL & ~SYMMEM_CAP_MULTICAST;
    if (strcmp(context->backend, "world") != 0)
        *capabilities_p &= ~SYMMEM_CAP_WORLD;
    if (strcmp(context->backend, "processes") == 0)
        *capabilities_p &= ~SYMMEM_CAP_THREAD_RANKS;
    if (strcmp(context->backend, "device") == 0)
        *capabilities_p &= ~SYMMEM_CAP_OVERLAP;
    return SYMMEM_OK;
}

symmem_status symmem_join(symmem_context *context, const symmem_join_options *options,
                          uint32_t timeout_ms) {
    (void)options;
    (void)timeout_ms;
    selfcheck_meetings += context->world_size > 1;
    return SYMMEM_OK;
}

symmem_status symmem_progress(symmem_context *context) {
    (void)context;
    return SYMMEM_OK;
}

symmem_status symmem_device_count(symmem_context *context, int32_t *count_p) {
    *count_p = context != NULL ? 1 : 0;
    return SYMMEM_OK;
}

symmem_status symmem_device_type(symmem_context *context, int32_t *device_type_p) {
    /* Not the CPU: the prologue then warms up first. */
    *device_type_p = strcmp(context->backend, "device") == 0 ? 2 : 1;
    return SYMMEM_OK;
}

symmem_status symmem_store_open_file(const char *path, symmem_store **store_p) {
    *store_p = (symmem_store *)&any_object;
    char own_file[400];
    FILE *notify;
    mkdir(path, 0700);
    snprintf(own_file, sizeof(own_file), "%s/notify", path); /* no key: no leak */
    notify = fopen(own_file, "we");
    if (notify != NULL)
        fclose(notify);
    return SYMMEM_OK;
}

symmem_status symmem_store_open(const char *address, int32_t rank, int32_t world_size,
                                uint32_t timeout_ms, symmem_store **store_p) {
    return symmem_store_open_memory(store_p);
}

symmem_status symmem_store_open_memory(symmem_store **store_p) {
    *store_p = (symmem_store *)&any_object;
    return SYMMEM_OK;
}

void symmem_store_close(symmem_store *store) {}

symmem_status symmem_group_create(symmem_context *context, const char *name, const int32_t *ranks,
                                  int32_t count, symmem_store *store, symmem_group **group_p) {
    if (context == NULL || name == NULL)
        return SYMMEM_INVALID_ARGUMENT;
    *group_p = (symmem_group *)&any_object;
    return SYMMEM_OK;
}

symmem_status symmem_alloc(symmem_context *context, size_t bytes, int32_t device,
                           const symmem_alloc_options *options, void **ptr_p) {
    *ptr_p = context == NULL ? NULL : calloc(1, bytes);
    return *ptr_p == NULL ? SYMMEM_NO_SPACE : SYMMEM_OK;
}

symmem_status symmem_free(symmem_context *context, void *ptr) {
    free(ptr);
    return context == NULL ? SYMMEM_INVALID_ARGUMENT : SYMMEM_OK;
}

symmem_status symmem_rendezvous(symmem_context *context, void *ptr, symmem_group *group,
                                uint32_t timeout_ms, symmem_handle **handle_p) {
    *handle_p = calloc(1, sizeof(**handle_p));
    if (*handle_p == NULL)
        return SYMMEM_OUT_OF_MEMORY;
    (*handle_p)->ptr = ptr;
    (*handle_p)->buffers[0] = ptr;
    (*handle_p)->pads[0] = (*handle_p)->pad;
    return SYMMEM_OK;
}

int selfcheck_long_info; /* not 0: more is written than the structure holds */

symmem_status symmem_handle_get_info(const symmem_handle *handle, symmem_handle_info *info_p) {
    memset(info_p, 0, sizeof(*info_p));
    info_p->world_size = 1;
    info_p->signal_pad_size = sizeof(handle->pad);
    if (selfcheck_long_info != 0)
        ((char *)info_p)[sizeof(*info_p) + 3] = 1;
    return SYMMEM_OK;
}

symmem_status symmem_handle_buffer_ptrs(const symmem_handle *handle, void *const **ptrs_p) {
    *ptrs_p = handle->buffers;
    return SYMMEM_OK;
}

symmem_status symmem_handle_signal_pad_ptrs(const symmem_handle *handle, void *const **ptrs_p) {
    *ptrs_p = handle->pads;
    return SYMMEM_OK;
}

symmem_status symmem_copy(symmem_context *context, void *dst, const void *src, size_t bytes,
                          symmem_stream *stream) {
    memcpy(dst, src, bytes);
    return context == NULL ? SYMMEM_INVALID_ARGUMENT : SYMMEM_OK;
}

void symmem_handle_release(symmem_handle *handle) {
    free(handle);
}

symmem_status symmem_put(symmem_handle *handle, int32_t dst_rank, size_t dst_offset,
                         const void *src, size_t bytes, symmem_stream *stream) {
    /* An offset before the buffer wraps round, on purpose in bad.overwrites_before. */
    memcpy((void *)((uintptr_t)handle->ptr + dst_offset), src, bytes);
    return SYMMEM_OK;
}

symmem_status symmem_get(symmem_handle *handle, int32_t src_rank, size_t src_offset, void *dst,
                         size_t bytes, symmem_stream *stream) {
    memcpy(dst, handle->ptr + src_offset, bytes);
    return SYMMEM_OK;
}

symmem_status symmem_stream_create(symmem_context *context, int32_t device,
                                   symmem_stream **stream_p) {
    if (context == NULL)
        return SYMMEM_INVALID_ARGUMENT;
    *stream_p = (symmem_stream *)&any_object;
    return SYMMEM_OK;
}

/* The kit refers to these for backends with devices, which this is not. */
#define UNSUPPORTED(name, ...)                                                                     \
    symmem_status name(__VA_ARGS__) {                                                              \
        return SYMMEM_UNSUPPORTED;                                                                 \
    }
UNSUPPORTED(symmem_stream_host_fn, symmem_stream *stream, void (*fn)(void *arg), void *arg)
UNSUPPORTED(symmem_stream_begin_capture, symmem_stream *stream)
UNSUPPORTED(symmem_stream_end_capture, symmem_stream *stream, symmem_graph **graph_p)
UNSUPPORTED(symmem_graph_launch, symmem_graph *graph, symmem_stream *stream)
UNSUPPORTED(symmem_graph_destroy, symmem_graph *graph)
UNSUPPORTED(symmem_event_create, symmem_context *context, int32_t device, symmem_event **event_p)
void symmem_event_destroy(symmem_event *event) {}

UNSUPPORTED(symmem_connectivity, symmem_context *context, const char *connection,
            int32_t device_count, int32_t *matrix)
UNSUPPORTED(symmem_put_signal, symmem_handle *handle, int32_t dst_rank, int32_t channel,
            uint32_t timeout_ms, symmem_stream *stream)
UNSUPPORTED(symmem_wait_signal, symmem_handle *handle, int32_t src_rank, int32_t channel,
            uint32_t timeout_ms, symmem_stream *stream)
UNSUPPORTED(symmem_barrier, symmem_handle *handle, int32_t channel, uint32_t timeout_ms,
            symmem_stream *stream)
