/* SPDX-License-Identifier: BSD-3-Clause */
/* Loads the backend underneath and gives the core a changed copy of its table. */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "decorator.h"

#define DEFAULT_BACKEND "../libsymmem_backend_shm.so"

const symmem_backend *real;
static symmem_backend table;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* The path of the file beside this object, in *path. */
static bool beside(const char *file, char *path, size_t capacity) {
    Dl_info own;
    if (dladdr(&table, &own) == 0 || !own.dli_fname)
        return false;
    const char *slash = strrchr(own.dli_fname, '/');
    int folder = slash ? (int)(slash - own.dli_fname) : 1;
    int length = snprintf(path, capacity, "%.*s/%s", folder, slash ? own.dli_fname : ".", file);
    return length > 0 && (size_t)length < capacity;
}

static void load(void) {
    char path[PATH_MAX];
    const char *name = getenv("SYMMEM_MUTANTS_OF");
    if (!name || *name == '\0') {
        if (!beside(DEFAULT_BACKEND, path, sizeof path))
            return;
        name = path;
    }
    void *object = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    void *symbol = object ? dlsym(object, SYMMEM_BACKEND_ENTRY) : NULL;
    if (!symbol) {
        fprintf(stderr, "mutant: %s\n", dlerror());
        return;
    }
    symmem_backend_entry_fn entry;
    memcpy(&entry, &symbol, sizeof entry);
    real = entry(SYMMEM_BACKEND_ABI);
    if (!real)
        return;
    memcpy(&table, real, real->size < sizeof table ? real->size : sizeof table);
    table.size = sizeof table;
    mutate(&table);
}

const symmem_backend *symmem_backend_entry(uint32_t abi) {
    pthread_once(&once, load);
    return abi == SYMMEM_BACKEND_ABI && real ? &table : NULL;
}

void mutant_sleep_ms(unsigned ms) {
    struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}
