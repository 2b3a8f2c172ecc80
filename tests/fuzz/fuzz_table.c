/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a plug-in hands over: a table of any size, version, name and capabilities, with entries
 * missing or too many (those that are there are real functions). It is accepted exactly if the
 * header's rules hold, nothing behind its announced size is read, and what was accepted works.
 */
#include "fuzz.h"
#include "shm.h"

#define TEXT_MAX 48
#define TAIL_BYTES 64 /* of a table newer than this header */

typedef struct entry {
    size_t offset;
    uint64_t capability; /* 0: every table has it */
    bool optional;
} entry;

#define AT(name) offsetof(struct symmem_backend, name)
#define BASIC(name)                                                                                \
    { AT(name), 0, false }
#define GATED(name, capability)                                                                    \
    { AT(name), SYMMEM_CAP_##capability, false }
#define FREE(name)                                                                                 \
    { AT(name), 0, true }

/* The rules of backend.h, written down a second time. */
static const entry entries[] = {
    BASIC(probe),
    BASIC(open),
    BASIC(close),
    BASIC(device_count),
    BASIC(device_info),
    BASIC(memory_alloc),
    BASIC(memory_release),
    FREE(memory_export),
    FREE(share_close),
    FREE(memory_import),
    FREE(memory_exchange),
    FREE(group_open),
    FREE(group_close),
    BASIC(signal_bytes),
    BASIC(peers_open),
    BASIC(peers_close),
    BASIC(barrier),
    BASIC(put_signal),
    BASIC(wait_signal),
    BASIC(signal_reset),
    FREE(signal_poison),
    BASIC(copy),
    BASIC(memset32),
    BASIC(write_value32),
    GATED(stream_create, STREAMS),
    GATED(stream_wrap, WRAP_STREAM),
    GATED(stream_destroy, STREAMS),
    GATED(stream_synchronize, STREAMS),
    GATED(stream_query, STREAMS),
    GATED(device_synchronize, STREAMS),
    GATED(event_create, STREAMS),
    GATED(event_destroy, STREAMS),
    GATED(event_record, STREAMS),
    GATED(stream_wait_event, STREAMS),
    GATED(event_synchronize, STREAMS),
    GATED(event_query, STREAMS),
    GATED(host_fn, HOST_FN),
    GATED(capture_begin, CAPTURE),
    GATED(capture_end, CAPTURE),
    GATED(capture_id, CAPTURE),
    GATED(graph_launch, CAPTURE),
    GATED(graph_destroy, CAPTURE),
    GATED(multicast_create, MULTICAST),
    GATED(multicast_attach, MULTICAST),
    GATED(multicast_bind, MULTICAST),
    GATED(multicast_release, MULTICAST),
    GATED(multimem_store, MULTICAST),
    GATED(multimem_ld_reduce, MULTICAST),
    FREE(signal_check),
    GATED(collective, COLLECTIVES),
    GATED(matmul, MATMUL),
    GATED(copy_strided, MATMUL),
    GATED(reduce_local, MATMUL),
    GATED(connectivity, CONNECTIVITY),
    GATED(collective_apart, COLLECTIVES_APART),
};
#define ENTRY_COUNT (sizeof(entries) / sizeof(entries[0]))

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

typedef struct draft {
    symmem_backend table;
    char name[TEXT_MAX], description[TEXT_MAX];
    symmem_backend *handed; /* an allocation of the announced size */
} draft;

static bool there(const symmem_backend *table, size_t offset) {
    void (*function)(void);
    if (offset + sizeof(function) > table->size)
        return false;
    memcpy(&function, (const char *)table + offset, sizeof(function));
    return function != NULL;
}

static void drop_entry(symmem_backend *table, size_t offset) {
    memset((char *)table + offset, 0, sizeof(void (*)(void)));
}

/* Complete for its capabilities. */
static void make_honest(draft *d, uint64_t capabilities) {
    d->table = *symmem_backend_entry(SYMMEM_BACKEND_ABI);
    snprintf(d->name, sizeof(d->name), "fuzz");
    snprintf(d->description, sizeof(d->description), "made up");
    d->table.name = d->name;
    d->table.description = d->description;
    d->table.capabilities = capabilities;
    d->table.stream_wrap = wrap_nothing;
    d->table.collective_apart = move_nothing;
    for (size_t i = 0; i < ENTRY_COUNT; i++)
        if (entries[i].capability != 0 && (capabilities & entries[i].capability) == 0)
            drop_entry(&d->table, entries[i].offset);
}

static void spoil_head(draft *d, fuzz_input *in) {
    switch (fuzz_below(in, 8)) {
    case 0:
        d->table.size = fuzz_number(in, SYMMEM_BACKEND_SIZE_ABI1);
        break;
    case 1:
        d->table.abi = (uint32_t)fuzz_number(in, SYMMEM_BACKEND_ABI);
        break;
    case 2:
        d->table.reserved = fuzz_u32(in);
        break;
    case 3:
        fuzz_text(in, d->name, sizeof(d->name));
        break;
    case 4:
        d->table.name = NULL;
        break;
    case 5:
        d->table.description = NULL;
        break;
    case 6:
        d->table.capabilities = fuzz_u64(in);
        break;
    default:
        fuzz_text(in, d->description, sizeof(d->description));
        break;
    }
}

static void spoil_entry(draft *d, fuzz_input *in) {
    uint8_t which = fuzz_u8(in);
    if (which < 128) {
        drop_entry(&d->table, entries[which % ENTRY_COUNT].offset);
        return;
    }
    d->table.memory_exchange = (which & 1) != 0 ? exchange_nothing : d->table.memory_exchange;
    d->table.group_open = (which & 2) != 0 ? open_nothing : d->table.group_open;
    d->table.group_close = (which & 4) != 0 ? close_nothing : d->table.group_close;
    d->table.signal_check = (which & 8) != 0 ? check_nothing : d->table.signal_check;
    d->table.stream_wrap = (which & 16) != 0 ? wrap_nothing : d->table.stream_wrap;
}

static void make(draft *d, fuzz_input *in) {
    make_honest(d, fuzz_u16(in) & SYMMEM_CAP_ALL);
    for (uint32_t count = fuzz_below(in, 4); count > 0; count--)
        spoil_head(d, in);
    for (uint32_t count = fuzz_below(in, 4); count > 0; count--)
        spoil_entry(d, in);
    size_t bytes = d->table.size;
    if (bytes < sizeof(bytes))
        bytes = sizeof(bytes);
    if (bytes > sizeof(d->table) + TAIL_BYTES)
        bytes = sizeof(d->table) + TAIL_BYTES;
    d->handed = malloc(bytes);
    FUZZ_CHECK(d->handed != NULL);
    memset(d->handed, 0xa5, bytes);
    memcpy(d->handed, &d->table, bytes < sizeof(d->table) ? bytes : sizeof(d->table));
}

/* --- the rules ------------------------------------------------------------------------------ */

static bool head_is_good(const symmem_backend *table) {
    const uint64_t need_streams = SYMMEM_CAP_CAPTURE | SYMMEM_CAP_HOST_FN | SYMMEM_CAP_WRAP_STREAM;
    const uint64_t modes = SYMMEM_CAP_THREAD_RANKS | SYMMEM_CAP_PROCESS_RANKS;
    const char *letters = "abcdefghijklmnopqrstuvwxyz0123456789_";
    return table->size >= SYMMEM_BACKEND_SIZE_ABI1 && table->abi == SYMMEM_BACKEND_ABI &&
           table->reserved == 0 && table->name != NULL && table->name[0] != '\0' &&
           strlen(table->name) <= 31 && strspn(table->name, letters) == strlen(table->name) &&
           table->description != NULL && (table->capabilities & ~SYMMEM_CAP_ALL) == 0 &&
           ((table->capabilities & need_streams) == 0 ||
            (table->capabilities & SYMMEM_CAP_STREAMS) != 0) &&
           ((table->capabilities & SYMMEM_CAP_COLLECTIVES_APART) == 0 ||
            (table->capabilities & SYMMEM_CAP_COLLECTIVES) != 0) &&
           (table->capabilities & modes) != 0;
}

static bool entries_are_good(const symmem_backend *table) {
    for (size_t i = 0; i < ENTRY_COUNT; i++) {
        bool wanted =
            entries[i].capability == 0 || (table->capabilities & entries[i].capability) != 0;
        if (!entries[i].optional && wanted != there(table, entries[i].offset))
            return false;
    }
    bool all = table->memory_export && table->share_close && table->memory_import;
    bool none = !table->memory_export && !table->share_close && !table->memory_import;
    return (all || (none && table->memory_exchange)) &&
           (table->group_open != NULL) == (table->group_close != NULL);
}

/* --- use ---------------------------------------------------------------------------------------
 */

static void use_memory(symmem_context *context, const symmem_backend *table) {
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

static void use_streams(symmem_context *context, const symmem_backend *table) {
    const uint64_t caps = table->capabilities;
    symmem_stream *stream = NULL;
    symmem_graph *graph = NULL;
    symmem_status status = symmem_stream_create(context, -1, &stream);
    FUZZ_CHECK(status == ((caps & SYMMEM_CAP_STREAMS) != 0 ? SYMMEM_OK : SYMMEM_UNSUPPORTED));
    if (status != SYMMEM_OK)
        return;
    status = symmem_stream_begin_capture(stream);
    FUZZ_CHECK(status == ((caps & SYMMEM_CAP_CAPTURE) != 0 ? SYMMEM_OK : SYMMEM_UNSUPPORTED));
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
    bool good = head_is_good(&d.table) && entries_are_good(&d.table);
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
    free(d.handed);
}
