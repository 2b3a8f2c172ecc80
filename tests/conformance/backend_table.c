/* SPDX-License-Identifier: BSD-3-Clause */
#include "backend_table.h"

#include <dlfcn.h>

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

const symmem_backend *backend_table(struct tk *t) {
    char path[512];
    bool available = false;
    const char *file = t->backend;
    symmem_backend_entry_fn entry = NULL;
    if (strchr(t->backend, '/') == NULL) {
        TK_OK(t, symmem_backend_available(t->context, t->backend, &available)); /* loads it */
        TK_REQUIRE(t, find_loaded(t->backend, path, sizeof(path)));
        file = path;
    }
    void *object = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    void *symbol = object != NULL ? dlsym(object, SYMMEM_BACKEND_ENTRY) : NULL;
    TK_REQUIRE(t, symbol != NULL);
    memcpy(&entry, &symbol, sizeof(entry));
    const symmem_backend *table = entry(SYMMEM_BACKEND_ABI);
    TK_REQUIRE(t, table != NULL);
    return table;
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
}

void use_twin(struct tk *t, struct table_twin *twin) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    const symmem_backend *table = backend_table(t);
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
