/* SPDX-License-Identifier: BSD-3-Clause */
/* Which tables and files are refused as a backend. */
#include "backend_table.h"
#include "fake_table.h"
#include "kit.h"
#include "sync_help.h"

#include <dlfcn.h>

/* Registering it is refused, and nothing of it is called or remembered. */
static void refuse(struct tk *t, const symmem_backend *table, const char *why) {
    int before = fake_table_calls();
    symmem_status status = symmem_register_backend(t->context, table);
    TK_CHECK_MSG(t, status == SYMMEM_ABI, "%s: %s", why, symmem_status_name(status));
    TK_EQ_INT(t, before, fake_table_calls());
}

static void refuse_flat(struct tk *t, flat_backend *table, const char *why) {
    refuse(t, flat_table(table), why);
}

TK_TEST(backend_table, well_formed_tables, "SM-BACKEND-06", TK_ON_FAKES) {
    flat_backend full;
    symmem_backend larger = fake_table_b;
    TK_OK(t, symmem_register_backend(t->context, &fake_table_a));
    TK_OK(t, symmem_register_backend(t->context, &fake_table_longest));
    larger.size = sizeof(larger) + 80; /* by a later author, ABI-compatible */
    TK_OK(t, symmem_register_backend(t->context, &larger));
    fake_table_full(&full);
    full.head.name = "suite_fake_full";
    TK_OK(t, symmem_register_backend(t->context, flat_table(&full)));
    tk_end_context(t); /* before the tables on this stack go */
}

/* Memory beyond a group's size holds no entry, whatever its bytes. */
TK_TEST(backend_table, older_groups, "SM-BACKEND-06", TK_ON_FAKES) {
    flat_backend older;
    uint64_t capabilities = 0;
    fake_table_full(&older);
    older.head.name = "suite_fake_older";
    (void)flat_table(&older);
    older.stream_ops.size = offsetof(symmem_stream_ops, host_fn);
    older.collective_ops.size = offsetof(symmem_collective_ops, run_apart);
    older.signal_ops.size = offsetof(symmem_signal_ops, poison);
    TK_OK(t, symmem_register_backend(t->context, &older.head));
    older.memory_ops.size = offsetof(symmem_memory_ops, release);
    older.head.name = "suite_fake_too_old";
    refuse(t, &older.head, "a group that ends before a mandatory entry");
    older.memory_ops.size = sizeof(size_t) - 1;
    refuse(t, &older.head, "a group that does not even hold its size");
    TK_OK(t, symmem_set_backend(t->context, "suite_fake_older"));
    TK_OK(t, symmem_backend_capabilities(t->context, &capabilities));
    TK_EQ_INT(t,
              SYMMEM_CAP_ALL &
                  ~(SYMMEM_CAP_HOST_FN | SYMMEM_CAP_WRAP_STREAM | SYMMEM_CAP_COLLECTIVES_APART |
                    SYMMEM_CAP_SPLITS | SYMMEM_CAP_TILES | SYMMEM_CAP_VALUES | SYMMEM_CAP_WINDOW),
              capabilities);
    tk_end_context(t);
}

TK_TEST(backend_table, malformed_heads, "SM-BACKEND-06", TK_ON_FAKES) {
    static const char *const names[] = {
        "",     "Upper",  "da-sh",    "sp ace",
        "do.t", "sl/ash", "\xc3\xa4", "suite_fake_of_thirty_two_chars__"};
    static const uint64_t unknown[] = {SYMMEM_CAP_ALL + 1, UINT64_C(1) << 63, UINT64_MAX,
                                       SYMMEM_CAP_STREAMS, SYMMEM_CAP_COLLECTIVES};
    bool available = true;
    symmem_backend table = fake_table_a;
    table.abi = SYMMEM_BACKEND_ABI + 1;
    refuse(t, &table, "a later ABI");
    table.abi = SYMMEM_BACKEND_ABI - 1;
    refuse(t, &table, "an earlier ABI");
    table.abi = 0;
    refuse(t, &table, "ABI 0");
    table = fake_table_a;
    table.size = SYMMEM_BACKEND_SIZE_ABI2 - 1;
    refuse(t, &table, "one byte short");
    table.size = 0;
    refuse(t, &table, "size 0");
    table = fake_table_a;
    table.name = NULL;
    refuse(t, &table, "no name");
    for (size_t i = 0; i < TK_COUNT(names); i++) {
        table.name = names[i];
        refuse(t, &table, names[i]);
    }
    table = fake_table_a;
    for (size_t i = 0; i < TK_COUNT(unknown); i++) {
        table.flags = SYMMEM_CAP_PROCESS_RANKS | unknown[i];
        refuse(t, &table, "unknown flags");
    }
    TK_OK(t, symmem_backend_available(t->context, "suite_fake_a", &available));
    TK_CHECK(t, !available);
}

#define IS_REQUIRED 1
#define IS_OPTIONAL 0
#define NEED(need) IS_##need

/* A mandatory entry of a group that is there, and a mandatory group. */
TK_TEST(backend_table, missing_entries, "SM-BACKEND-06,SM-BACKEND-07", TK_ON_FAKES) {
    flat_backend table;
#define WITHOUT(group, entry, entry_name, need)                                                    \
    fake_table_full(&table);                                                                       \
    table.entry_name = NULL;                                                                       \
    if (NEED(need) && flat_table(&table)->group != NULL)                                           \
        refuse(t, &table.head, #entry_name);
    SYMMEM_BACKEND_ENTRIES(WITHOUT)
#undef WITHOUT
#define WITHOUT(group_, need)                                                                      \
    fake_table_full(&table);                                                                       \
    (void)flat_table(&table);                                                                      \
    table.head.world = NULL; /* which stand for memory and signal */                               \
    table.head.reach = NULL;                                                                       \
    table.head.group_ = NULL;                                                                      \
    if (NEED(need))                                                                                \
        refuse(t, &table.head, #group_);
    SYMMEM_BACKEND_GROUPS(WITHOUT)
#undef WITHOUT
}

/* Each optional group and entry may be left out, and its capability with it. */
TK_TEST(backend_table, optional_groups, "SM-BACKEND-07", TK_ON_FAKES) {
    static const uint64_t of_entries[] = {
        SYMMEM_CAP_STREAMS,      SYMMEM_CAP_CAPTURE,     SYMMEM_CAP_MULTICAST,
        SYMMEM_CAP_HOST_FN,      SYMMEM_CAP_WRAP_STREAM, SYMMEM_CAP_COLLECTIVES,
        SYMMEM_CAP_CONNECTIVITY, SYMMEM_CAP_MATMUL,      SYMMEM_CAP_COLLECTIVES_APART,
        SYMMEM_CAP_SPLITS,       SYMMEM_CAP_REACH,       SYMMEM_CAP_WORLD,
        SYMMEM_CAP_VALUES,       SYMMEM_CAP_WINDOW,      SYMMEM_CAP_TILES};
    static flat_backend tables[TK_COUNT(of_entries)];
    static char names[TK_COUNT(of_entries)][24];
    for (size_t i = 0; i < TK_COUNT(of_entries); i++) {
        uint64_t capabilities = 0;
        fake_table_full(&tables[i]);
        snprintf(names[i], sizeof(names[i]), "suite_fake_%zu", i);
        tables[i].head.name = names[i];
        flat_without(&tables[i], of_entries[i]);
        TK_OK(t, symmem_register_backend(t->context, flat_table(&tables[i])));
        TK_OK(t, symmem_set_backend(t->context, names[i]));
        TK_OK(t, symmem_backend_capabilities(t->context, &capabilities));
        TK_EQ_INT(t, 0, capabilities & of_entries[i]);
        if (of_entries[i] != SYMMEM_CAP_STREAMS && of_entries[i] != SYMMEM_CAP_COLLECTIVES &&
            of_entries[i] != SYMMEM_CAP_WORLD)
            TK_EQ_INT(t, SYMMEM_CAP_ALL & ~of_entries[i], capabilities);
    }
    tk_end_context(t);
}

TK_TEST(backend_table, groups_without_their_like, "SM-BACKEND-12", TK_ON_FAKES) {
    flat_backend table;
    fake_table_full(&table);
    (void)flat_table(&table);
    table.head.stream = NULL;
    refuse(t, &table.head, "graph without stream");
    table = flat_of(&fake_table_a);
    table.head.flags &= ~(SYMMEM_CAP_THREAD_RANKS | SYMMEM_CAP_PROCESS_RANKS);
    refuse_flat(t, &table, "no rank mode");
}

TK_TEST(backend_table, halves_and_leftovers, "SM-BACKEND-13", TK_ON_FAKES) {
    flat_backend full;
    flat_backend table = flat_of(&fake_table_a);
    table.head.reserved = 1;
    refuse_flat(t, &table, "reserved is 1");
    table = flat_of(&fake_table_a);
    table.head.description = NULL;
    refuse_flat(t, &table, "no description");
    /* Share, unshare and map: seven of the eight ways to have some of them, without and with the
     * entry that stands for all. */
    fake_table_full(&full);
    table = flat_of(&fake_table_a);
    table.signal_count = full.signal_count;
    refuse_flat(t, &table, "count without wait_counts");
    table = flat_of(&fake_table_a);
    table.wait_counts = full.wait_counts;
    refuse_flat(t, &table, "wait_counts without count");
    for (int parts = 0; parts < 7; parts++) {
        table = flat_of(&fake_table_a);
        table.memory_share = (parts & 1) != 0 ? table.memory_share : NULL;
        table.memory_unshare = (parts & 2) != 0 ? table.memory_unshare : NULL;
        table.memory_map = (parts & 4) != 0 ? table.memory_map : NULL;
        refuse_flat(t, &table, "a part of share, unshare and map");
        table.memory_exchange = full.memory_exchange;
        if (parts != 0)
            refuse_flat(t, &table, "exchange and a part of the others");
        else
            TK_OK(t, symmem_register_backend(t->context, flat_table(&table)));
    }
    tk_end_context(t); /* before the table on this stack goes */
}

/* The engine of the suite's, and what it may not leave out. */
TK_TEST(backend_table, reach_and_its_like, "SM-REACH-05,SM-BACKEND-06", TK_ON_FAKES) {
    char path[4096];
    flat_backend full, table;
    TK_REQ(t, "SM-REACH-05");
    fake_table_full(&full);
    suite_plugin_path(t, path, sizeof(path), "reach");
    TK_OK(t, symmem_load_backend(t->context, path));
    table = flat_of(&fake_table_a);
    table.reach_put = full.reach_put;
    table.reach_get = full.reach_get;
    table.reach_write_value32 = full.reach_write_value32;
    table.reach_quiet = full.reach_quiet;
    refuse_flat(t, &table, "reach without world");
    table.world_open = full.world_open;
    table.world_close = full.world_close;
    table.head.name = "suite_fake_engine";
    (void)flat_table(&table);
    table.head.memory = NULL;
    TK_OK(t, symmem_register_backend(t->context, &table.head));
    table.head.signal = NULL;
    refuse(t, &table.head, "no signals, and no access by the host");
    table.head.flags |= SYMMEM_CAP_HOST_ACCESS;
    table.head.name = "suite_fake_engine_2";
    TK_OK(t, symmem_register_backend(t->context, &table.head));
    fake_table_full(&full);
    (void)flat_table(&full);
    full.head.signal = NULL;
    refuse(t, &full.head, "no signals, and streams");
    table.head.reach = NULL;
    refuse(t, &table.head, "no signals and no reach");
    tk_end_context(t); /* before the tables on this stack go */
}

TK_TEST(backend_table, passive_by_nature, "SM-REACH-06", TK_ON_FAKES) {
    uint64_t capabilities = 0;
    static flat_backend full;
    TK_REQUIRE_OK(t, symmem_register_backend(t->context, &fake_table_a));
    TK_REQUIRE_OK(t, symmem_set_backend(t->context, "suite_fake_a"));
    TK_OK(t, symmem_backend_capabilities(t->context, &capabilities));
    TK_CHECK(t, (capabilities & SYMMEM_CAP_PASSIVE) != 0);
    fake_table_full(&full);
    full.head.name = "suite_fake_active";
    full.head.flags &= ~SYMMEM_CAP_PASSIVE;
    TK_REQUIRE_OK(t, symmem_register_backend(t->context, flat_table(&full)));
    TK_REQUIRE_OK(t, symmem_set_backend(t->context, "suite_fake_active"));
    TK_OK(t, symmem_backend_capabilities(t->context, &capabilities));
    TK_EQ_SIZE(t, SYMMEM_CAP_ALL & ~SYMMEM_CAP_PASSIVE, capabilities);
    tk_end_context(t);
}

/* A backend built against a header without these groups of entries. The bytes in their place belong
 * to something else. */
TK_TEST(backend_table, older_backend, "SM-REACH-07,SM-BACKEND-06", .max_ranks = 4,
        .flags = TK_NO_BACKEND | TK_UNMET) {
    static const size_t garbage = 3;
    TK_REQ(t, "SM-REACH-07");
    flat_backend older = flat_of(backend_table(t));
    (void)flat_table(&older);
    older.head.name = "suite_older";
    older.head.size = SYMMEM_BACKEND_SIZE_ABI2;
    older.head.world = (const void *)&garbage;
    older.head.reach = (const void *)&garbage;
    TK_REQUIRE_OK(t, symmem_register_backend(t->context, &older.head));
    TK_REQUIRE_OK(t, symmem_set_backend(t->context, "suite_older"));
    TK_OK(t, symmem_join(t->context, NULL, 1000));
    symmem_handle *handle = tk_handle(t, 64, tk_world_group(t));
    const uint8_t byte = (uint8_t)(10 + t->rank);
    TK_OK(t, symmem_put(handle, t->next, 3, &byte, 1, NULL));
    TK_OK(t, symmem_barrier(handle, 0, tk_scaled_ms(15000), NULL));
    tk_expect_bytes(t, handle, t->rank, 3, 1, (uint8_t)(10 + t->previous));
    tk_end_context(t);
}

static void refuse_file(struct tk *t, symmem_status expected, const char *path) {
    const char *name = "not asked";
    TK_STATUS(t, expected, symmem_load_backend(t->context, path));
    TK_STATUS(t, expected, symmem_set_backend(t->context, path));
    TK_OK(t, symmem_get_backend(t->context, &name));
    TK_EQ_PTR(t, NULL, name);
}

TK_TEST(backend_table, files_that_cannot_be_loaded, "SM-BACKEND-08", TK_ON_FAKES) {
    char path[4096];
    Dl_info libc;
    refuse_file(t, SYMMEM_LOAD, "/nonexistent/symmem/backend.so");
    refuse_file(t, SYMMEM_LOAD, t->scratch_dir); /* a directory */
    snprintf(path, sizeof(path), "%s/text.so", t->scratch_dir);
    FILE *file = fopen(path, "we");
    TK_REQUIRE(t, file != NULL && fputs("this is a text\n", file) >= 0);
    fclose(file);
    refuse_file(t, SYMMEM_LOAD, path);
    snprintf(path, sizeof(path), "%s/empty.so", t->scratch_dir);
    file = fopen(path, "we");
    TK_REQUIRE(t, file != NULL);
    fclose(file);
    refuse_file(t, SYMMEM_LOAD, path);
    /* A shared object of another trade: the C library. RTLD_NEXT passes over the runner, which has
     * functions of the C library's names, and whose own name need not be a path. */
    const void *in_libc = dlsym(RTLD_NEXT, "getpid");
    TK_REQUIRE(t, in_libc != NULL && dladdr(in_libc, &libc) != 0 && libc.dli_fname != NULL);
    if (TK_CHECK(t, strchr(libc.dli_fname, '/') != NULL))
        refuse_file(t, SYMMEM_LOAD, libc.dli_fname);
    suite_plugin_path(t, path, sizeof(path), "no_symbol");
    refuse_file(t, SYMMEM_LOAD, path);
    suite_plugin_path(t, path, sizeof(path), "null_entry");
    refuse_file(t, SYMMEM_ABI, path);
    suite_plugin_path(t, path, sizeof(path), "wrong_abi");
    refuse_file(t, SYMMEM_ABI, path);
}

TK_TEST(backend_table, file_that_works, "SM-BACKEND-08,SM-BACKEND-04", TK_ON_FAKES) {
    char path[4096];
    const char *name = NULL;
    bool available = false;
    TK_REQ(t, "SM-BACKEND-08");
    suite_plugin_path(t, path, sizeof(path), "suite_fake");
    TK_OK(t, symmem_load_backend(t->context, path));
    TK_OK(t, symmem_backend_available(t->context, "suite_fake_a", &available));
    TK_CHECK(t, available);
    TK_FAILS(t, EXISTS, symmem_load_backend(t->context, path));
    TK_OK(t, symmem_set_backend(t->context, path)); /* the one that is there already */
    TK_OK(t, symmem_get_backend(t->context, &name));
    TK_EQ_STR(t, "suite_fake_a", name);
    TK_OK(t, symmem_barrier(tk_handle(t, 64, tk_world_group(t)), 0, 1000, NULL));
    tk_end_context(t);
}

/* A failure at a backend's own failpoints on one rank, another one each time. Points that a backend
 * does not have are never passed; the cases then show that nothing fails. */

#define INJECTED SYMMEM_LIMIT
#define SLOT_HIT 3
#define SLOT_STATUS 4

/* Rank `odd` will fail at its next pass of "<backend>.<step>". */
static void arm(struct tk *t, const char *step, int32_t odd, char name[64]) {
    const char *backend = backend_name(t);
    snprintf(name, 64, "%s.%s", backend, step);
    tk_checkpoint(t, "rank %d fails at %s", (int)odd, name);
    if (t->rank == odd)
        tk_on_point(t, name, 1, (struct tk_action){.status = INJECTED});
    tk_out_of_band_barrier(t);
}

/* Whether rank `odd` came there. */
static bool was_hit(struct tk *t, const char *name, int32_t odd) {
    tk_share_u64(t, SLOT_HIT, tk_point_count(t, name) > 0);
    tk_out_of_band_barrier(t);
    return tk_read_u64(t, odd, SLOT_HIT) != 0;
}

static void fail_in_rendezvous(struct tk *t, const char *step, int32_t odd) {
    char name[64];
    void *ptr = tk_alloc(t, 512);
    symmem_group *group = tk_world_group(t);
    symmem_handle *handle = NULL;
    tk_group_barrier(t, group);
    arm(t, step, odd, name);
    symmem_status status = symmem_rendezvous(t->context, ptr, group, tk_limit_ms(t, 3000), &handle);
    symmem_error_record record = last_record();
    bool hit = was_hit(t, name, odd);
    TK_STATUS(t, hit ? INJECTED : SYMMEM_OK, status);
    TK_CHECK_MSG(t, !hit || record.failed_rank == odd, "rank %d is blamed",
                 (int)record.failed_rank);
    TK_CHECK(t, (handle == NULL) == (status != SYMMEM_OK));
    symmem_handle_release(handle);
    handle = tk_rendezvous(t, ptr, group);
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    tk_release(t, handle);
    tk_free(t, ptr);
}

TK_TEST(rendezvous, failure_in_backend, "SM-RDV-10,SM-CONTEXT-09", .ranks = {2, 4}) {
    static const char *const steps[] = {"alloc.create", "alloc.backing", "alloc.map", "export",
                                        "import.map"};
    for (int i = 0; i < (int)TK_COUNT(steps); i++)
        fail_in_rendezvous(t, steps[i], i % t->world_size);
}

static bool has_multicast(struct tk *t, symmem_handle *handle) {
    return info_of(t, handle).multicast_ptr != NULL;
}

static void fail_in_multicast(struct tk *t, const char *step, int32_t odd) {
    char name[64];
    uint32_t word = 1;
    tk_group_barrier(t, tk_world_group(t));
    arm(t, step, odd, name);
    symmem_handle *handle = tk_handle(t, 512, tk_world_group(t));
    bool hit = was_hit(t, name, odd);
    TK_CHECK_MSG(t, has_multicast(t, handle) != hit, "%s multicast although rank %d %s",
                 hit ? "with" : "without", (int)odd, hit ? "failed" : "did not fail");
    if (hit)
        TK_FAILS(t, UNSUPPORTED, symmem_multimem_store(handle, 0, &word, 4, NULL));
    TK_OK(t, symmem_barrier(handle, 0, LONG_MS, NULL));
    tk_expect_bytes(t, handle, t->rank, 0, 512, 0);
    symmem_handle *again = tk_handle(t, 512, tk_world_group(t));
    TK_CHECK_MSG(t, has_multicast(t, again), "no multicast after the failure at %s", name);
    TK_OK(t, symmem_barrier(again, 0, LONG_MS, NULL));
}

/* Drops the notice, because going on without multicast is expected here. */
static void say_nothing(void *arg, const char *text) {}

TK_TEST(multicast, failure_on_one_rank, "SM-MCAST-05,SM-MCAST-02", .needs = SYMMEM_CAP_MULTICAST,
        .ranks = {2, 4}) {
    static const char *const steps[] = {"multicast.create", "multicast.attach", "multicast.bind"};
    bool supported = false;
    TK_REINIT(t, options.multicast = 1; options.log = say_nothing);
    TK_OK(t, symmem_has_multicast_support(t->context, t->device_type, own_device(t), &supported));
    if (!supported) {
        tk_unresolved(t, "the device has no multicast");
        return;
    }
    for (size_t i = 0; i < TK_COUNT(steps); i++) {
        fail_in_multicast(t, steps[i], 0);
        fail_in_multicast(t, steps[i], t->last);
    }
}
