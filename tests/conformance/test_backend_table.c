/* SPDX-License-Identifier: BSD-3-Clause */
/* Which tables and files are refused as a backend. */
#include <dlfcn.h>

#include "fake_table.h"
#include "kit.h"
#include "table_entries.h"

/* Those without which there is no backend. */
static const struct entry mandatory[] = {
    ENTRY(probe, 0),          ENTRY(open, 0),          ENTRY(close, 0),
    ENTRY(device_count, 0),   ENTRY(device_info, 0),   ENTRY(memory_alloc, 0),
    ENTRY(memory_release, 0), ENTRY(memory_export, 0), ENTRY(share_close, 0),
    ENTRY(memory_import, 0),  ENTRY(signal_bytes, 0),  ENTRY(peers_open, 0),
    ENTRY(peers_close, 0),    ENTRY(barrier, 0),       ENTRY(put_signal, 0),
    ENTRY(wait_signal, 0),    ENTRY(signal_reset, 0),  ENTRY(copy, 0),
    ENTRY(memset32, 0),       ENTRY(write_value32, 0),
};

/* Registering it is refused, and nothing of it is called or remembered. */
static void refuse(struct tk *t, const symmem_backend *table, const char *why) {
    int before = fake_table_calls();
    symmem_status status = symmem_register_backend(t->context, table);
    TK_CHECK_MSG(t, status == SYMMEM_ABI, "%s: %s", why, symmem_status_name(status));
    TK_EQ_INT(t, before, fake_table_calls());
}

TK_TEST(backend_table, well_formed_tables, "SM-BACKEND-06", TK_ON_FAKES) {
    symmem_backend full, larger = fake_table_b;
    TK_OK(t, symmem_register_backend(t->context, &fake_table_a));
    TK_OK(t, symmem_register_backend(t->context, &fake_table_longest));
    larger.size = sizeof(larger) + 80; /* of a later ABI-compatible author */
    TK_OK(t, symmem_register_backend(t->context, &larger));
    fake_table_full(&full);
    full.name = "suite_fake_full";
    TK_OK(t, symmem_register_backend(t->context, &full));
    /* Written before the later entries were appended: what follows it in memory is no entry. */
    symmem_backend shorter = full;
    shorter.name = "suite_fake_short";
    shorter.size = SYMMEM_BACKEND_SIZE_ABI1;
    shorter.capabilities &= ~(SYMMEM_CAP_COLLECTIVES | SYMMEM_CAP_MATMUL | SYMMEM_CAP_CONNECTIVITY |
                              SYMMEM_CAP_COLLECTIVES_APART);
    TK_OK(t, symmem_register_backend(t->context, &shorter));
    tk_end_context(t); /* before the tables on this stack go */
}

TK_TEST(backend_table, malformed_heads, "SM-BACKEND-06", TK_ON_FAKES) {
    static const char *const names[] = {
        "",     "Upper",  "da-sh",    "sp ace",
        "do.t", "sl/ash", "\xc3\xa4", "suite_fake_of_thirty_two_chars__"};
    static const uint64_t unknown[] = {SYMMEM_CAP_ALL + 1, UINT64_C(1) << 63, UINT64_MAX};
    bool available = true;
    symmem_backend table = fake_table_a;
    table.abi = SYMMEM_BACKEND_ABI + 1;
    refuse(t, &table, "a later ABI");
    table.abi = 0;
    refuse(t, &table, "ABI 0");
    table = fake_table_a;
    table.size = SYMMEM_BACKEND_SIZE_ABI1 - 1;
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
    for (size_t i = 0; i < TK_COUNT(unknown); i++) {
        fake_table_full(&table);
        table.capabilities = unknown[i];
        refuse(t, &table, "unknown capability bits");
    }
    TK_OK(t, symmem_backend_available(t->context, "suite_fake_a", &available));
    TK_CHECK(t, !available);
}

TK_TEST(backend_table, missing_entries, "SM-BACKEND-06", TK_ON_FAKES) {
    symmem_backend table;
    for (size_t i = 0; i < TK_COUNT(mandatory); i++) {
        table = fake_table_a;
        TK_REQUIRE(t, entry_at(&table, mandatory[i].at) != NULL);
        set_entry(&table, mandatory[i].at, NULL);
        refuse(t, &table, mandatory[i].name);
    }
    fake_table_full(&table); /* both or none */
    table.group_close = NULL;
    refuse(t, &table, "group_open without group_close");
    fake_table_full(&table);
    table.group_open = NULL;
    refuse(t, &table, "group_close without group_open");
}

TK_TEST(backend_table, capabilities_without_their_like, "SM-BACKEND-12", TK_ON_FAKES) {
    static const uint64_t lone[] = {SYMMEM_CAP_CAPTURE, SYMMEM_CAP_HOST_FN, SYMMEM_CAP_WRAP_STREAM,
                                    SYMMEM_CAP_COLLECTIVES_APART};
    static const uint64_t needed = SYMMEM_CAP_STREAMS | SYMMEM_CAP_COLLECTIVES;
    symmem_backend table;
    for (size_t i = 0; i < TK_COUNT(lone); i++) {
        /* Only the entries of that one are there: it is the capability that is refused. */
        fake_table_full(&table);
        for (size_t k = 0; k < DECLARED_COUNT; k++)
            if (declared[k].capability != lone[i])
                set_entry(&table, declared[k].at, NULL);
        table.capabilities = (fake_table_a.capabilities & ~needed) | lone[i];
        refuse(t, &table, "without what it needs");
    }
    table = fake_table_a;
    table.capabilities &= ~(SYMMEM_CAP_THREAD_RANKS | SYMMEM_CAP_PROCESS_RANKS);
    refuse(t, &table, "no rank mode");
}

TK_TEST(backend_table, entries_and_capabilities_agree, "SM-BACKEND-07", TK_ON_FAKES) {
    for (size_t i = 0; i < DECLARED_COUNT; i++) {
        symmem_backend table;
        fake_table_full(&table);
        set_entry(&table, declared[i].at, NULL);
        refuse(t, &table, declared[i].name); /* declared, and an entry of it missing */
        fake_table_full(&table);
        table.capabilities &= ~declared[i].capability;
        refuse(t, &table, declared[i].name); /* the whole capability undeclared */
        table = fake_table_a;
        set_entry(&table, declared[i].at, entry_at(&table, mandatory[0].at));
        refuse(t, &table, declared[i].name); /* a single entry too many */
    }
}

TK_TEST(backend_table, halves_and_leftovers, "SM-BACKEND-13", TK_ON_FAKES) {
    symmem_backend full;
    symmem_backend table = fake_table_a;
    table.reserved = 1;
    refuse(t, &table, "reserved is 1");
    table = fake_table_a;
    table.description = NULL;
    refuse(t, &table, "no description");
    /* Export, share_close and import: seven of the eight ways to have some of them, without and
     * with the entry that stands for all. */
    fake_table_full(&full);
    for (int parts = 0; parts < 7; parts++) {
        table = fake_table_a;
        table.memory_export = (parts & 1) != 0 ? table.memory_export : NULL;
        table.share_close = (parts & 2) != 0 ? table.share_close : NULL;
        table.memory_import = (parts & 4) != 0 ? table.memory_import : NULL;
        refuse(t, &table, "a part of export, share_close and import");
        table.memory_exchange = full.memory_exchange;
        if (parts != 0)
            refuse(t, &table, "memory_exchange and a part of the others");
        else
            TK_OK(t, symmem_register_backend(t->context, &table));
    }
    tk_end_context(t); /* before the table on this stack goes */
}

/* Where the suite's own shared objects lie, from where the runner lies. */
static void plugin_path(struct tk *t, char *path, size_t capacity, const char *name) {
    char self[3072];
    ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
    TK_REQUIRE(t, length > 0);
    self[length] = '\0';
    char *slash = strrchr(self, '/');
    TK_REQUIRE(t, slash != NULL);
    *slash = '\0';
    snprintf(path, capacity, "%s/../lib/tests/%s.so", self, name); /* a build tree */
    if (access(path, R_OK) != 0) {
        snprintf(path, capacity, "%s/" SUITE_BIN_TO_LIB "/symmem/tests/%s.so", self, name);
        TK_CHECK_MSG(t, access(path, R_OK) == 0, "%s is not there", path);
    }
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
    TK_REQUIRE(t, dladdr((void *)(uintptr_t)&malloc, &libc) != 0 && libc.dli_fname != NULL);
    if (TK_CHECK(t, strchr(libc.dli_fname, '/') != NULL))
        refuse_file(t, SYMMEM_LOAD, libc.dli_fname); /* a shared object of another trade */
    plugin_path(t, path, sizeof(path), "no_symbol");
    refuse_file(t, SYMMEM_LOAD, path);
    plugin_path(t, path, sizeof(path), "null_entry");
    refuse_file(t, SYMMEM_ABI, path);
    plugin_path(t, path, sizeof(path), "wrong_abi");
    refuse_file(t, SYMMEM_ABI, path);
}

TK_TEST(backend_table, file_that_works, "SM-BACKEND-08,SM-BACKEND-04", TK_ON_FAKES) {
    char path[4096];
    const char *name = NULL;
    bool available = false;
    TK_REQ(t, "SM-BACKEND-08");
    plugin_path(t, path, sizeof(path), "suite_fake");
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
