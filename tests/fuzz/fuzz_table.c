/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a plug-in hands over: a table of any size, version, name and flags, with groups and entries
 * missing or too many (those that are there are real functions), each in an allocation of the size
 * that it announces. It is accepted exactly if the header's rules hold, nothing behind an announced
 * size is read, and what was accepted works.
 */
#include "../flat_backend.h"
#include "fuzz.h"
#include "shm.h"
#include "backend.h"

#define TEXT_MAX 48
#define TAIL_BYTES 64 /* of a table newer than this header */

/* --- entries that the emulation lacks -------------------------------------------------- */

static symmem_status wrap_nothing(void *instance, int32_t device, void *native, void **stream_p) {
    return SYMMEM_BACKEND;
}

static symmem_status move_nothing(void *instance, const symmem_peers *peers, int32_t channel,
                                  const symmem_collective *call, const symmem_exec *exec) {
    return SYMMEM_BACKEND;
}

static symmem_status exchange_nothing(void *instance, void *group, symmem_memory *own,
                                      const symmem_exchange *exchange, symmem_memory *peers) {
    return SYMMEM_BACKEND;
}

static symmem_status open_nothing(void *instance, const symmem_exchange *exchange, int32_t device,
                                  void **group_p) {
    *group_p = instance;
    return SYMMEM_OK;
}

static void close_nothing(void *instance, void *group) {}

static void check_nothing(void *instance, const symmem_peers *peers) {}

/* --- making one --------------------------------------------------------------------------- */

#define ONE(group, need) +1
enum { GROUPS = 0 SYMMEM_BACKEND_GROUPS(ONE) };

typedef struct draft {
    flat_backend table;
    char name[TEXT_MAX], description[TEXT_MAX];
    symmem_backend *handed; /* allocations of the announced sizes */
    void *groups[GROUPS];
} draft;

/* Complete for its capabilities. */
static void make_honest(draft *d, uint64_t capabilities) {
    d->table = flat_of(symmem_backend_entry(SYMMEM_BACKEND_ABI));
    snprintf(d->name, sizeof(d->name), "fuzz");
    snprintf(d->description, sizeof(d->description), "made up");
    d->table.head.name = d->name;
    d->table.head.description = d->description;
    d->table.head.flags = capabilities & SYMMEM_CAP_FLAGS;
    d->table.stream_wrap = wrap_nothing;
    d->table.collective_apart = move_nothing;
    flat_without(&d->table, SYMMEM_CAP_ALL & ~(capabilities | SYMMEM_CAP_FLAGS));
}

static void spoil_head(draft *d, fuzz_input *in) {
    symmem_backend *head = &d->table.head;
    switch (fuzz_below(in, 8)) {
    case 0:
        head->size = fuzz_number(in, SYMMEM_BACKEND_SIZE_ABI2);
        break;
    case 1:
        head->abi = (uint32_t)fuzz_number(in, SYMMEM_BACKEND_ABI);
        break;
    case 2:
        head->reserved = fuzz_u32(in);
        break;
    case 3:
        fuzz_text(in, d->name, sizeof(d->name));
        break;
    case 4:
        head->name = NULL;
        break;
    case 5:
        head->description = NULL;
        break;
    case 6:
        head->flags = fuzz_u64(in);
        break;
    default:
        fuzz_text(in, d->description, sizeof(d->description));
        break;
    }
}

static void drop_entry(flat_backend *table, uint32_t which) {
    uint32_t at = 0;
#define DROP(group, entry, name, need)                                                             \
    if (at++ == which)                                                                             \
        table->name = NULL;
    SYMMEM_BACKEND_ENTRIES(DROP)
#undef DROP
    if (at <= which)
        drop_entry(table, which % at);
}

static void spoil_entry(draft *d, fuzz_input *in) {
    uint8_t which = fuzz_u8(in);
    if (which < 128) {
        drop_entry(&d->table, which);
        return;
    }
    d->table.memory_exchange = (which & 1) != 0 ? exchange_nothing : d->table.memory_exchange;
    d->table.group_open = (which & 2) != 0 ? open_nothing : d->table.group_open;
    d->table.group_close = (which & 4) != 0 ? close_nothing : d->table.group_close;
    d->table.signal_check = (which & 8) != 0 ? check_nothing : d->table.signal_check;
    d->table.stream_wrap = (which & 16) != 0 ? wrap_nothing : d->table.stream_wrap;
}

/* A copy in an allocation that is as long as it says, or so long as it can be read. */
static void *hand_over(const void *from, size_t own_bytes, size_t announced) {
    size_t bytes = announced < sizeof(bytes) ? sizeof(bytes) : announced;
    if (bytes > own_bytes + TAIL_BYTES)
        bytes = own_bytes + TAIL_BYTES;
    void *copy = malloc(bytes);
    FUZZ_CHECK(copy != NULL);
    memset(copy, 0xa5, bytes);
    memcpy(copy, from, bytes < own_bytes ? bytes : own_bytes);
    return copy;
}

static void make(draft *d, fuzz_input *in) {
    memset(d->groups, 0, sizeof(d->groups));
    make_honest(d, fuzz_u16(in) & SYMMEM_CAP_ALL);
    for (uint32_t count = fuzz_below(in, 4); count > 0; count--)
        spoil_head(d, in);
    for (uint32_t count = fuzz_below(in, 4); count > 0; count--)
        spoil_entry(d, in);
    (void)flat_table(&d->table);
    const uint32_t shorter = fuzz_below(in, 2 * GROUPS); /* a group that is, or none */
    uint32_t at = 0;
#define HAND_OVER(group_, need)                                                                    \
    if (at == shorter)                                                                             \
        d->table.group_##_ops.size = fuzz_number(in, sizeof(d->table.group_##_ops));               \
    if (d->table.head.group_ != NULL)                                                              \
        d->groups[at] = hand_over(&d->table.group_##_ops, sizeof(d->table.group_##_ops),           \
                                  d->table.group_##_ops.size);                                     \
    d->table.head.group_ = d->groups[at++];
    SYMMEM_BACKEND_GROUPS(HAND_OVER)
#undef HAND_OVER
    d->handed = hand_over(&d->table.head, sizeof(d->table.head), d->table.head.size);
}

static void drop(draft *d) {
    for (int i = 0; i < GROUPS; i++)
        free(d->groups[i]);
    free(d->handed);
}

/* --- the rules ------------------------------------------------------------------------------ */

static bool head_is_good(const symmem_backend *table) {
    const uint64_t modes = SYMMEM_CAP_THREAD_RANKS | SYMMEM_CAP_PROCESS_RANKS;
    const char *letters = "abcdefghijklmnopqrstuvwxyz0123456789_";
    return table->size >= SYMMEM_BACKEND_SIZE_ABI2 && table->abi == SYMMEM_BACKEND_ABI &&
           table->reserved == 0 && table->name != NULL && table->name[0] != '\0' &&
           strlen(table->name) <= 31 && strspn(table->name, letters) == strlen(table->name) &&
           table->description != NULL && (table->flags & ~SYMMEM_CAP_FLAGS) == 0 &&
           (table->flags & modes) != 0;
}

enum { OPTIONAL, REQUIRED };

/* Makes d->table what lies within the announced sizes. */
static bool entries_are_good(draft *d) {
    flat_backend *t = &d->table;
    bool good = true;
#define LOOK(group_, entry_, name, need)                                                           \
    if (t->head.group_ != NULL) {                                                                  \
        if (offsetof(symmem_##group_##_ops, entry_) + sizeof(t->name) > t->group_##_ops.size)      \
            t->name = NULL;                                                                        \
        good = good && (need == OPTIONAL || t->name != NULL);                                      \
    }
    SYMMEM_BACKEND_ENTRIES(LOOK)
#undef LOOK
#define LOOK(group_, need)                                                                         \
    good = good && (need == OPTIONAL || t->head.group_ != NULL) &&                                 \
           (t->head.group_ == NULL || t->group_##_ops.size >= sizeof(size_t));
    SYMMEM_BACKEND_GROUPS(LOOK)
#undef LOOK
    const bool all = t->memory_share && t->memory_unshare && t->memory_map;
    const bool none = !t->memory_share && !t->memory_unshare && !t->memory_map;
    return good && (all || (none && t->memory_exchange)) &&
           (t->head.graph == NULL || t->head.stream != NULL);
}

/* --- use ---------------------------------------------------------------------------------------
 */

static void use_memory(symmem_context *context, const flat_backend *table) {
    void *ptr = NULL;
    symmem_group *group = NULL;
    symmem_handle *handle = NULL;
    FUZZ_CHECK(symmem_alloc(context, 1000, -1, NULL, &ptr) == SYMMEM_OK);
    FUZZ_CHECK(symmem_group_create(context, "world", NULL, 0, NULL, &group) == SYMMEM_OK);
    symmem_status status = symmem_rendezvous(context, ptr, group, 1000, &handle);
    FUZZ_CHECK((status == SYMMEM_OK) == (table->memory_exchange == NULL));
    if (handle != NULL)
        FUZZ_CHECK(symmem_barrier(handle, 0, 1000, NULL) == SYMMEM_OK);
    symmem_handle_release(handle);
    FUZZ_CHECK(symmem_free(context, ptr) == SYMMEM_OK);
}

static void use_streams(symmem_context *context, const flat_backend *table) {
    symmem_stream *stream = NULL;
    symmem_graph *graph = NULL;
    symmem_status status = symmem_stream_create(context, -1, &stream);
    FUZZ_CHECK(status == (table->head.stream != NULL ? SYMMEM_OK : SYMMEM_UNSUPPORTED));
    if (status != SYMMEM_OK)
        return;
    status = symmem_stream_begin_capture(stream);
    FUZZ_CHECK(status == (table->head.graph != NULL ? SYMMEM_OK : SYMMEM_UNSUPPORTED));
    if (status == SYMMEM_OK) {
        FUZZ_CHECK(symmem_stream_end_capture(stream, &graph) == SYMMEM_OK);
        FUZZ_CHECK(symmem_graph_destroy(graph) == SYMMEM_OK);
    }
    FUZZ_CHECK(symmem_stream_destroy(stream) == SYMMEM_OK);
}

static void use_names(symmem_context *context, fuzz_input *in) {
    char name[TEXT_MAX];
    bool available = true;
    fuzz_text(in, name, sizeof(name));
    if (strchr(name, '/') != NULL)
        return; /* whatever lies there would be loaded */
    FUZZ_CHECK(symmem_backend_available(context, name, &available) == SYMMEM_OK);
}

static symmem_context *open_context(void) {
    symmem_context_options options;
    symmem_context *context = NULL;
    symmem_context_options_init(&options);
    options.rank = 0;
    options.world_size = 1;
    options.local_rank = 0;
    options.backend = "";
    FUZZ_CHECK(symmem_init(&options, &context) == SYMMEM_OK);
    return context;
}

void fuzz_one(fuzz_input *in) {
    draft d;
    make(&d, in);
    symmem_context *context = open_context();
    bool good = head_is_good(&d.table.head) && entries_are_good(&d);
    symmem_clear_error();
    symmem_status status = symmem_register_backend(context, d.handed);
    FUZZ_CHECK(status == (good ? SYMMEM_OK : SYMMEM_ABI));
    if (good) {
        FUZZ_CHECK(symmem_register_backend(context, d.handed) == SYMMEM_EXISTS);
        FUZZ_CHECK(symmem_set_backend(context, d.name) == SYMMEM_OK);
        use_memory(context, &d.table);
        use_streams(context, &d.table);
    } else {
        fuzz_check_failure(status, 1);
        use_names(context, in);
    }
    symmem_context_free(context);
    drop(&d);
}
