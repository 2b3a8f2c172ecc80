/* SPDX-License-Identifier: BSD-3-Clause */
/* Loads the backend underneath and gives the core a changed copy of its table. */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stddef.h>
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

/* What the backend underneath lacks, the mutant lacks, too: else the core would refuse its table.
 */
static void take_away_what_is_not_there(void) {
    const unsigned char none[sizeof(void (*)(void))] = {0};
    unsigned char *mine = (unsigned char *)&table;
    const unsigned char *theirs = (const unsigned char *)real;
    for (size_t at = offsetof(symmem_backend, probe); at < sizeof table; at += sizeof none)
        if (at >= real->size || memcmp(theirs + at, none, sizeof none) == 0)
            memset(mine + at, 0, sizeof none);
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
    take_away_what_is_not_there();
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

/* --- peers' memory --------------------------------------------------------------------------- */

#define RANGES 256

static pthread_mutex_t ranges_lock = PTHREAD_MUTEX_INITIALIZER;
static symmem_memory ranges[RANGES];

static symmem_status watched_import(void *instance, int32_t device, const symmem_share *share,
                                    size_t bytes, symmem_memory *memory) {
    symmem_status status = real->memory_import(instance, device, share, bytes, memory);
    pthread_mutex_lock(&ranges_lock);
    for (int i = 0; i < RANGES && status == SYMMEM_OK; i++)
        if (!ranges[i].ptr) {
            ranges[i] = *memory;
            break;
        }
    pthread_mutex_unlock(&ranges_lock);
    return status;
}

static void watched_release(void *instance, symmem_memory *memory) {
    pthread_mutex_lock(&ranges_lock);
    for (int i = 0; i < RANGES; i++)
        if (ranges[i].ptr == memory->ptr)
            ranges[i].ptr = NULL;
    pthread_mutex_unlock(&ranges_lock);
    real->memory_release(instance, memory);
}

void mutant_watch_imports(symmem_backend *changed) {
    changed->memory_import = watched_import;
    changed->memory_release = watched_release;
}

bool mutant_is_a_peers(const void *ptr) {
    bool found = false;
    pthread_mutex_lock(&ranges_lock);
    for (int i = 0; i < RANGES && !found; i++) {
        const char *base = ranges[i].ptr;
        found = base && (const char *)ptr >= base && (const char *)ptr < base + ranges[i].bytes;
    }
    pthread_mutex_unlock(&ranges_lock);
    return found;
}
