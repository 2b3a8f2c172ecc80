/* SPDX-License-Identifier: BSD-3-Clause */
#include "backend_table.h"

#include <dlfcn.h>

#include "table_entries.h"

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

/* Those that there is nothing of without it. */
static uint64_t that_go_with(uint64_t capability) {
    const uint64_t of_streams = SYMMEM_CAP_CAPTURE | SYMMEM_CAP_HOST_FN | SYMMEM_CAP_WRAP_STREAM;
    return (capability & SYMMEM_CAP_STREAMS) != 0 ? capability | of_streams : capability;
}

/* One for each capability, for the life of the process, as tables have to be. Where ranks are
 * threads they share it. */
static const symmem_backend *narrowed(const symmem_backend *full, uint64_t capability) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static symmem_backend tables[64];
    const uint64_t without = that_go_with(capability);
    symmem_backend *table = &tables[__builtin_ctzll(capability)];
    pthread_mutex_lock(&lock);
    if (table->size == 0) {
        memcpy(table, full, full->size < sizeof(*table) ? full->size : sizeof(*table));
        table->size = sizeof(*table);
        table->name = "suite_narrowed";
        table->capabilities &= ~without;
        for (size_t i = 0; i < DECLARED_COUNT; i++)
            if ((declared[i].capability & without) != 0)
                set_entry(table, declared[i].at, NULL);
    }
    pthread_mutex_unlock(&lock);
    return table;
}

void backend_without(struct tk *t, uint64_t capability) {
    const symmem_backend *table = narrowed(backend_table(t), capability);
    TK_REINIT(t, options.backend = NULL);
    TK_REQUIRE_OK(t, symmem_register_backend(t->context, table));
    TK_REQUIRE_OK(t, symmem_set_backend(t->context, table->name));
    t->capabilities = table->capabilities;
}

void use_twin(struct tk *t, struct table_twin *twin) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    const symmem_backend *table = backend_table(t);
    symmem_backend *own = &twin->table;
    pthread_mutex_lock(&lock);
    if (twin->real == NULL) {
        memcpy(own, table, table->size < sizeof(*own) ? table->size : sizeof(*own));
        own->size = sizeof(*own);
        own->name = twin->name;
        twin->change(own);
        twin->real = table;
    }
    pthread_mutex_unlock(&lock);
    TK_REQUIRE_OK(t, symmem_register_backend(t->context, own));
    TK_REQUIRE_OK(t, symmem_set_backend(t->context, twin->name));
}
