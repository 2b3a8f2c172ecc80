/* SPDX-License-Identifier: BSD-3-Clause */
#include "backend_table.h"

#include <dlfcn.h>
#include <unistd.h>

/* The path of the shared object of a backend that was given by its name, once it is loaded. */
static bool find_loaded(const char *name, char *path, size_t capacity) {
    char wanted[96], line[512];
    FILE *maps = fopen("/proc/self/maps", "re");
    bool found = false;
    snprintf(wanted, sizeof(wanted), "/libsymmem_backend_%s.so", name);
    while (maps != NULL && !found && fgets(line, (int)sizeof(line), maps) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        const char *start = strchr(line, '/');
        found = start != NULL && strstr(start, wanted) != NULL && strlen(start) < capacity;
        if (found)
            memcpy(path, start, strlen(start) + 1);
    }
    if (maps != NULL)
        fclose(maps);
    return found;
}

static const symmem_backend *table_in(struct tk *t, const char *file) {
    symmem_backend_entry_fn entry = NULL;
    void *object = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    void *symbol = object != NULL ? dlsym(object, SYMMEM_BACKEND_ENTRY) : NULL;
    TK_REQUIRE(t, symbol != NULL);
    memcpy(&entry, &symbol, sizeof(entry));
    const symmem_backend *table = entry(SYMMEM_BACKEND_ABI);
    TK_REQUIRE(t, table != NULL);
    return table;
}

const symmem_backend *backend_table(struct tk *t) {
    char path[512];
    bool available = false;
    if (strchr(t->backend, '/') != NULL)
        return table_in(t, t->backend);
    TK_OK(t, symmem_backend_available(t->context, t->backend, &available)); /* loads it */
    TK_REQUIRE(t, find_loaded(t->backend, path, sizeof(path)));
    return table_in(t, path);
}

/* One for each capability, for the life of the process, as tables have to be. Where ranks are
 * threads they share it. */
static const symmem_backend *narrowed(const symmem_backend *full, uint64_t capability) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static flat_backend tables[64];
    flat_backend *table = &tables[__builtin_ctzll(capability)];
    pthread_mutex_lock(&lock);
    if (table->head.size == 0) {
        *table = flat_of(full);
        table->head.name = "suite_narrowed";
        flat_without(table, capability);
        (void)flat_table(table);
    }
    pthread_mutex_unlock(&lock);
    return &table->head;
}

void backend_without(struct tk *t, uint64_t capability) {
    const symmem_backend *table = narrowed(backend_table(t), capability);
    TK_REINIT(t, options.backend = NULL);
    TK_REQUIRE_OK(t, symmem_register_backend(t->context, table));
    TK_REQUIRE_OK(t, symmem_set_backend(t->context, table->name));
    TK_REQUIRE_OK(t, symmem_backend_capabilities(t->context, &t->capabilities));
    tk_join(t, t->context);
}

void suite_plugin_path(struct tk *t, char *path, size_t capacity, const char *name) {
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

void use_engine(struct tk *t) {
    char path[4096];
    if ((t->capabilities & SYMMEM_CAP_WORLD) != 0) {
        TK_REQUIRE_OK(t, symmem_set_backend(t->context, t->backend));
        return;
    }
    suite_plugin_path(t, path, sizeof(path), "reach");
    TK_REQUIRE_OK(t, symmem_set_backend(t->context, path));
}

static void set_twin(struct tk *t, struct table_twin *twin, const symmem_backend *table) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    if (twin->real == NULL) {
        twin->table = flat_of(table);
        twin->table.head.name = twin->name;
        twin->change(&twin->table);
        (void)flat_table(&twin->table);
        twin->real = table;
    }
    pthread_mutex_unlock(&lock);
    TK_REQUIRE_OK(t, symmem_register_backend(t->context, &twin->table.head));
    TK_REQUIRE_OK(t, symmem_set_backend(t->context, twin->name));
}

void use_twin(struct tk *t, struct table_twin *twin) {
    set_twin(t, twin, backend_table(t));
    tk_join(t, t->context);
}

static void use_suites_twin(struct tk *t, struct table_twin *twin) {
    char path[4096];
    suite_plugin_path(t, path, sizeof(path), "reach");
    set_twin(t, twin, table_in(t, path));
}

void use_engine_twin(struct tk *t, struct table_twin *twin) {
    if ((t->capabilities & SYMMEM_CAP_WORLD) != 0)
        set_twin(t, twin, backend_table(t));
    else
        use_suites_twin(t, twin);
}

void use_reach_twin(struct tk *t, struct table_twin *twin) {
    const bool reaches = (t->capabilities & SYMMEM_CAP_REACH) != 0;
    const symmem_backend *table = reaches ? backend_table(t) : NULL;
    if (reaches && table->signal == NULL)
        set_twin(t, twin, table);
    else
        use_suites_twin(t, twin);
}
