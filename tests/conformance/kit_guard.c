/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Canaries round what the kit hands to a body: bytes before and behind a buffer, the user's signal
 * pad, the tables of pointers, and the outputs of the kit's own queries. Each rank looks at its own
 * when the handle is given back.
 */
#include "kit_internal.h"

#define GUARD_BYTES ((size_t)SYMMEM_ALIGNMENT)
#define GUARD_BYTE 0xa5
/* Larger buffers have none: their cases are about what memory there is. */
#define LARGEST_GUARDED ((size_t)1 << 20)
#define PAD_BYTES_SEEN 65536

struct kit_guard {
    struct kit_guard *next;
    symmem_handle *handle;
    symmem_context *context;
    unsigned char *front, *back; /* NULL: the buffer has no guards */
    int32_t rank, world_size;
    size_t pad_bytes;
    void **tables; /* copies: buffers, then signal pads */
};

/* Half of the cases of a run, others with another seed, so that every case is seen without, too. */
static bool is_guarded(const struct tk *t, size_t bytes) {
    return (t->own->setup->test->flags & TK_PLAIN_MEMORY) == 0 && bytes <= LARGEST_GUARDED &&
           (t->seed >> 17 & 1) == 0;
}

size_t kit_guarded_size(const struct tk *t, size_t bytes, size_t *before_p) {
    *before_p = is_guarded(t, bytes) ? GUARD_BYTES : 0;
    return bytes + 2 * *before_p;
}

/* An output with canaries behind it. */
struct guarded_info {
    symmem_handle_info info;
    unsigned char behind[64];
};

static bool get_info(struct tk *t, const symmem_handle *handle, symmem_handle_info *info_p) {
    struct guarded_info output;
    size_t whole = 0;
    memset(&output, GUARD_BYTE, sizeof(output));
    if (symmem_handle_get_info(handle, &output.info) != SYMMEM_OK)
        return false;
    while (whole < sizeof(output.behind) && output.behind[whole] == GUARD_BYTE)
        whole++;
    if (whole < sizeof(output.behind))
        kit_fail_at(t, t->own->file, t->own->line,
                    "symmem_handle_get_info wrote 0x%02x %zu bytes behind its output",
                    output.behind[whole], whole);
    *info_p = output.info;
    return true;
}

static bool get_tables(const symmem_handle *handle, void *const **buffers_p, void *const **pads_p) {
    return symmem_handle_buffer_ptrs(handle, buffers_p) == SYMMEM_OK &&
           symmem_handle_signal_pad_ptrs(handle, pads_p) == SYMMEM_OK;
}

static void copy_tables(struct kit_guard *guard) {
    void *const *buffers = NULL;
    void *const *pads = NULL;
    size_t count = (size_t)guard->world_size;
    if (!get_tables(guard->handle, &buffers, &pads))
        return;
    guard->tables = calloc(2 * count, sizeof(*guard->tables));
    if (guard->tables == NULL)
        return;
    memcpy(guard->tables, buffers, count * sizeof(*buffers));
    memcpy(guard->tables + count, pads, count * sizeof(*pads));
}

static void paint(struct tk *t, symmem_context *context, unsigned char *at) {
    unsigned char bytes[GUARD_BYTES];
    memset(bytes, GUARD_BYTE, sizeof(bytes));
    KIT_OK(t, symmem_copy(context, at, bytes, sizeof(bytes), NULL));
}

void kit_guard(struct tk *t, symmem_handle *handle, void *buffer, size_t bytes, size_t before) {
    struct kit_guard *guard = calloc(1, sizeof(*guard));
    symmem_handle_info info;
    TK_REQUIRE(t, guard != NULL);
    guard->handle = handle;
    guard->context = t->own->target;
    guard->next = t->own->guards;
    t->own->guards = guard;
    if (!get_info(t, handle, &info))
        return;
    guard->rank = info.rank;
    guard->world_size = info.world_size;
    guard->pad_bytes =
        info.signal_pad_size < PAD_BYTES_SEEN ? info.signal_pad_size : PAD_BYTES_SEEN;
    copy_tables(guard);
    if (before == 0)
        return;
    paint(t, guard->context, (unsigned char *)buffer - before);
    paint(t, guard->context, (unsigned char *)buffer + bytes);
    guard->front = (unsigned char *)buffer - before;
    guard->back = (unsigned char *)buffer + bytes;
}

/* Copies `bytes` bytes from `at` and names the first that is not `expected`. */
static void expect(struct tk *t, const struct kit_guard *guard, const void *at, size_t bytes,
                   unsigned char expected, const char *what) {
    unsigned char *copy = malloc(bytes);
    size_t same = 0;
    if (copy == NULL || symmem_copy(guard->context, copy, at, bytes, NULL) != SYMMEM_OK) {
        free(copy);
        return;
    }
    while (same < bytes && copy[same] == expected)
        same++;
    if (same < bytes)
        kit_fail_at(t, t->own->file, t->own->line,
                    "canary: byte %zu of %zu %s is 0x%02x, expected 0x%02x", same, bytes, what,
                    copy[same], expected);
    free(copy);
}

static void compare_table(struct tk *t, const struct kit_guard *guard, void *const *table,
                          void *const *copy, const char *what) {
    for (int32_t r = 0; r < guard->world_size; r++)
        if (table[r] != copy[r]) {
            kit_fail_at(t, t->own->file, t->own->line,
                        "canary: entry %d of the table of %s is %p, was %p", r, what, table[r],
                        copy[r]);
            return;
        }
}

static void look(struct tk *t, const struct kit_guard *guard) {
    void *const *buffers = NULL;
    void *const *pads = NULL;
    symmem_handle_info info;
    /* The body may have finalized the context. */
    if (guard->tables == NULL || !get_tables(guard->handle, &buffers, &pads) ||
        !get_info(t, guard->handle, &info))
        return;
    compare_table(t, guard, buffers, guard->tables, "buffers");
    compare_table(t, guard, pads, guard->tables + guard->world_size, "signal pads");
    if (guard->front != NULL) {
        expect(t, guard, guard->front, GUARD_BYTES, GUARD_BYTE, "before the own buffer");
        expect(t, guard, guard->back, GUARD_BYTES, GUARD_BYTE, "behind the own buffer");
    }
    if ((t->own->setup->test->flags & TK_WRITES_PADS) == 0 && pads[guard->rank] != NULL)
        expect(t, guard, pads[guard->rank], guard->pad_bytes, 0, "of the own signal pad");
}

void kit_guard_end(struct tk *t, const symmem_handle *handle) {
    struct kit_guard **at = &t->own->guards;
    while (*at != NULL && (*at)->handle != handle)
        at = &(*at)->next;
    if (*at == NULL)
        return;
    struct kit_guard *guard = *at;
    *at = guard->next;
    look(t, guard);
    free(guard->tables);
    free(guard);
}
