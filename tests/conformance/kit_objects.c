/* SPDX-License-Identifier: BSD-3-Clause */
/* symmem objects that the epilogue gives back, and moving data through handles. */
#include "kit_internal.h"

/* Reads and comparisons go through a buffer of this size. */
#define CHUNK_BYTES 65536

void kit_track(struct tk *t, enum kit_kind kind, void *object) {
    struct tk_rank *own = t->own;
    if (own->object_count == own->object_capacity) {
        int capacity = own->object_capacity == 0 ? 16 : own->object_capacity * 2;
        struct kit_object *grown = realloc(own->objects, (size_t)capacity * sizeof(*grown));
        TK_REQUIRE(t, grown != NULL);
        own->objects = grown;
        own->object_capacity = capacity;
    }
    own->objects[own->object_count++] =
        (struct kit_object){kind, object, kind == KIT_SCRATCH ? NULL : own->target};
}

bool kit_untrack(struct tk *t, enum kit_kind kind, const void *object) {
    struct tk_rank *own = t->own;
    for (int i = own->object_count - 1; i >= 0; i--)
        if (own->objects[i].object == object && own->objects[i].kind == kind) {
            memmove(&own->objects[i], &own->objects[i + 1],
                    (size_t)(own->object_count - i - 1) * sizeof(own->objects[0]));
            own->object_count--;
            return true;
        }
    return false;
}

static symmem_status give_back(struct tk *t, const struct kit_object *object) {
    switch (object->kind) {
    case KIT_GRAPH:
        return symmem_graph_destroy(object->object);
    case KIT_EVENT:
        symmem_event_destroy(object->object);
        return SYMMEM_OK;
    case KIT_STREAM:
        return symmem_stream_destroy(object->object);
    case KIT_HANDLE:
        kit_guard_end(t, object->object);
        symmem_handle_release(object->object);
        return SYMMEM_OK;
    case KIT_MEMORY:
        return symmem_free(object->context, object->object);
    case KIT_SCRATCH:
        free(object->object);
        return SYMMEM_OK;
    default:
        return symmem_group_destroy(object->object);
    }
}

static void give_back_checked(struct tk *t, const struct kit_object *object) {
    static const char *const calls[KIT_KIND_COUNT] = {"symmem_graph_destroy",
                                                      "symmem_event_destroy",
                                                      "symmem_stream_destroy",
                                                      "symmem_handle_release",
                                                      "symmem_free",
                                                      "symmem_group_destroy",
                                                      "free"};
    symmem_status status = give_back(t, object);
    /* The body may have finalized the context or given the object back by itself. */
    if (status == SYMMEM_OK || status == SYMMEM_NOT_INITIALIZED || status == SYMMEM_STALE ||
        status == SYMMEM_NOT_SYMMETRIC)
        return;
    char text[400];
    kit_describe_status(status, text, sizeof(text));
    kit_fail_at(t, __FILE__, __LINE__, "giving back: %s: %s", calls[object->kind], text);
}

void kit_release_objects(struct tk *t, const symmem_context *context) {
    struct tk_rank *own = t->own;
    for (int kind = 0; kind < KIT_KIND_COUNT; kind++)
        for (int i = own->object_count - 1; i >= 0; i--) {
            struct kit_object object = own->objects[i];
            if ((int)object.kind != kind || (context != NULL && object.context != context))
                continue;
            kit_untrack(t, object.kind, object.object);
            give_back_checked(t, &object);
        }
    own->world = NULL;
}

symmem_group *(tk_world_group)(struct tk *t) {
    struct tk_rank *own = t->own;
    if (own->world == NULL) {
        KIT_OK(t, symmem_group_create(own->target, "tk.world", NULL, 0, NULL, &own->world));
        kit_track(t, KIT_GROUP, own->world);
    }
    return own->world;
}

symmem_group *(tk_group)(struct tk *t, const char *name, const int32_t *ranks, int32_t count) {
    symmem_group *group = NULL;
    KIT_OK(t, symmem_group_create(t->own->target, name, ranks, count, NULL, &group));
    kit_track(t, KIT_GROUP, group);
    return group;
}

void *(tk_scratch)(struct tk *t, size_t bytes) {
    void *memory = calloc(1, bytes > 0 ? bytes : 1);
    TK_REQUIRE(t, memory != NULL);
    kit_track(t, KIT_SCRATCH, memory);
    return memory;
}

void(tk_group_barrier)(struct tk *t, symmem_group *group) {
    KIT_OK(t, symmem_group_barrier(group, SYMMEM_TIMEOUT_DEFAULT));
}

void *(tk_alloc)(struct tk *t, size_t bytes) {
    void *ptr = NULL;
    KIT_OK(t, symmem_alloc(t->own->target, bytes, -1, NULL, &ptr));
    kit_track(t, KIT_MEMORY, ptr);
    return ptr;
}

static symmem_handle *meet(struct tk *t, void *ptr, symmem_group *group) {
    symmem_handle *handle = NULL;
    TK_REQUIRE_OK(t,
                  symmem_rendezvous(t->own->target, ptr, group, SYMMEM_TIMEOUT_DEFAULT, &handle));
    kit_track(t, KIT_HANDLE, handle);
    return handle;
}

symmem_handle *(tk_rendezvous)(struct tk *t, void *ptr, symmem_group *group) {
    symmem_handle *handle = meet(t, ptr, group);
    kit_guard(t, handle, ptr, 0, 0);
    return handle;
}

symmem_handle *(tk_handle)(struct tk *t, size_t bytes, symmem_group *group) {
    size_t before = 0;
    size_t whole = kit_guarded_size(t, bytes, &before);
    unsigned char *buffer = (unsigned char *)(tk_alloc)(t, whole) + before;
    symmem_handle *handle = meet(t, buffer, group);
    kit_guard(t, handle, buffer, bytes, before);
    return handle;
}

symmem_stream *(tk_stream)(struct tk *t) {
    symmem_stream *stream = NULL;
    int32_t devices = 0;
    KIT_OK(t, symmem_device_count(t->own->target, &devices));
    TK_REQUIRE(t, devices > 0);
    KIT_OK(t, symmem_stream_create(t->own->target, t->rank % devices, &stream));
    kit_track(t, KIT_STREAM, stream);
    return stream;
}

symmem_event *(tk_event)(struct tk *t) {
    symmem_event *event = NULL;
    KIT_OK(t, symmem_event_create(t->own->target, -1, &event));
    kit_track(t, KIT_EVENT, event);
    return event;
}

symmem_graph *(tk_end_capture)(struct tk *t, symmem_stream *stream) {
    symmem_graph *graph = NULL;
    KIT_OK(t, symmem_stream_end_capture(stream, &graph));
    kit_track(t, KIT_GRAPH, graph);
    return graph;
}

void(tk_synchronize)(struct tk *t, symmem_stream *stream) {
    if (stream != NULL)
        KIT_OK(t, symmem_stream_synchronize(stream, SYMMEM_TIMEOUT_DEFAULT));
}

void(tk_free)(struct tk *t, void *ptr) {
    kit_untrack(t, KIT_MEMORY, ptr);
    KIT_OK(t, symmem_free(t->own->target, ptr));
}

void(tk_release)(struct tk *t, symmem_handle *handle) {
    kit_untrack(t, KIT_HANDLE, handle);
    kit_guard_end(t, handle);
    symmem_handle_release(handle);
}

void(tk_group_destroy)(struct tk *t, symmem_group *group) {
    kit_untrack(t, KIT_GROUP, group);
    if (group == t->own->world)
        t->own->world = NULL;
    KIT_OK(t, symmem_group_destroy(group));
}

void(tk_stream_destroy)(struct tk *t, symmem_stream *stream) {
    kit_untrack(t, KIT_STREAM, stream);
    KIT_OK(t, symmem_stream_destroy(stream));
}

void(tk_write)(struct tk *t, symmem_handle *handle, int32_t rank, size_t offset, const void *data,
               size_t bytes) {
    KIT_OK(t, symmem_put(handle, rank, offset, data, bytes, NULL));
}

void(tk_read)(struct tk *t, symmem_handle *handle, int32_t rank, size_t offset, void *data,
              size_t bytes) {
    KIT_OK(t, symmem_get(handle, rank, offset, data, bytes, NULL));
}

static size_t chunk_of(size_t bytes) {
    return bytes < CHUNK_BYTES ? bytes : CHUNK_BYTES;
}

static unsigned char *new_chunk(struct tk *t, size_t bytes) {
    unsigned char *chunk = malloc(chunk_of(bytes) + 1);
    TK_REQUIRE(t, chunk != NULL);
    return chunk;
}

void(tk_fill)(struct tk *t, symmem_handle *handle, int32_t rank, size_t offset, size_t bytes,
              uint8_t byte) {
    unsigned char *chunk = new_chunk(t, bytes);
    symmem_status status = SYMMEM_OK;
    memset(chunk, byte, chunk_of(bytes) + 1);
    for (size_t done = 0; done < bytes && status == SYMMEM_OK; done += chunk_of(bytes - done))
        status = symmem_put(handle, rank, offset + done, chunk, chunk_of(bytes - done), NULL);
    free(chunk);
    if (!tk_status_at(t, SYMMEM_OK, status, "symmem_put", t->own->file, t->own->line))
        tk_leave(t);
}

static size_t first_difference(const unsigned char *got, const unsigned char *expected,
                               uint8_t byte, size_t bytes) {
    size_t at = 0;
    while (at < bytes && got[at] == (expected != NULL ? expected[at] : byte))
        at++;
    return at;
}

/* Compares with `expected`, or with `byte` if that is NULL. */
static bool compare(struct tk *t, symmem_handle *handle, int32_t rank, size_t offset,
                    const unsigned char *expected, uint8_t byte, size_t bytes) {
    unsigned char *got = new_chunk(t, bytes);
    symmem_status status = SYMMEM_OK;
    size_t done = 0;
    unsigned wrong = 0, right = 0;
    char values[2][16];
    while (done < bytes) {
        size_t part = chunk_of(bytes - done);
        status = symmem_get(handle, rank, offset + done, got, part, NULL);
        if (status != SYMMEM_OK)
            break;
        size_t same = first_difference(got, expected == NULL ? NULL : expected + done, byte, part);
        done += same;
        if (same < part) {
            wrong = got[same];
            right = expected == NULL ? byte : expected[done];
            break;
        }
    }
    free(got);
    if (status != SYMMEM_OK) {
        tk_status_at(t, SYMMEM_OK, status, "symmem_get", t->own->file, t->own->line);
        tk_leave(t);
    }
    snprintf(values[0], sizeof(values[0]), "0x%02x", right);
    snprintf(values[1], sizeof(values[1]), "0x%02x", wrong);
    return kit_compared_at(t, done == bytes, t->own->file, t->own->line, values[0], values[1],
                           "rank %d's byte %zu (of %zu from offset %zu)", rank, offset + done,
                           bytes, offset);
}

bool(tk_expect_bytes)(struct tk *t, symmem_handle *handle, int32_t rank, size_t offset,
                      size_t bytes, uint8_t byte) {
    return compare(t, handle, rank, offset, NULL, byte, bytes);
}

bool(tk_expect_data)(struct tk *t, symmem_handle *handle, int32_t rank, size_t offset,
                     const void *expected, size_t bytes) {
    return compare(t, handle, rank, offset, expected, 0, bytes);
}

bool tk_has_memory_of(struct tk *t, int32_t device) {
    void *memory = NULL;
    if ((t->capabilities & SYMMEM_CAP_WORLD) == 0)
        return true;
    const symmem_status status = symmem_alloc(t->context, 64, device, NULL, &memory);
    if (status == SYMMEM_OK)
        TK_OK(t, symmem_free(t->context, memory));
    return status != SYMMEM_INVALID_ARGUMENT;
}
