/* SPDX-License-Identifier: BSD-3-Clause */
/* Loads the backend underneath and gives the core a changed copy of its table. */
#include "decorator.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DEFAULT_BACKEND "../libsymmem_backend_shm.so"

static flat_backend underneath, table;
const flat_backend *real;
const struct mutant *mutant;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* --- entries that hand on what a mutant has changed ------------------------------- */

static bool before(int operation, struct signal_call *call) {
    return (mutant->on & operation) == 0 || !mutant->before || mutant->before(call);
}

static symmem_status after(int operation, symmem_status status, const symmem_peers *peers) {
    if ((mutant->on & operation) != 0 && mutant->after)
        mutant->after(status, peers);
    return status;
}

static symmem_status barrier(void *instance, const symmem_peers *peers, int32_t channel,
                             const symmem_exec *exec) {
    struct signal_call call = {.peers = peers, .channel = channel, .exec = *exec};
    symmem_status status = SYMMEM_OK;
    if (before(ON_BARRIER, &call))
        status = real->barrier(instance, call.peers, call.channel, &call.exec);
    return after(ON_BARRIER, status, peers);
}

static symmem_status put_signal(void *instance, const symmem_peers *peers, int32_t dst_rank,
                                int32_t channel, const symmem_exec *exec) {
    struct signal_call call = {peers, dst_rank, channel, *exec};
    symmem_status status = SYMMEM_OK;
    if (before(ON_PUT, &call))
        status = real->put_signal(instance, call.peers, call.rank, call.channel, &call.exec);
    return after(ON_PUT, status, peers);
}

static symmem_status wait_signal(void *instance, const symmem_peers *peers, int32_t src_rank,
                                 int32_t channel, const symmem_exec *exec) {
    struct signal_call call = {peers, src_rank, channel, *exec};
    symmem_status status = SYMMEM_OK;
    if (before(ON_WAIT, &call))
        status = real->wait_signal(instance, call.peers, call.rank, call.channel, &call.exec);
    return after(ON_WAIT, status, peers);
}

static symmem_status collective(void *instance, const symmem_peers *peers, int32_t channel,
                                const symmem_collective *call, const symmem_exec *exec) {
    symmem_collective changed = *call;
    symmem_exec how = *exec;
    if (!mutant->collective(&changed, &channel, &how))
        return SYMMEM_OK;
    return real->collective(instance, peers, channel, &changed, &how);
}

static symmem_status multimem_ld_reduce(void *instance, const symmem_peers *peers,
                                        const void *address, void *dst, size_t count,
                                        symmem_dtype dtype, symmem_reduce_op op,
                                        const symmem_exec *exec) {
    mutant->reduce(&count, &dtype, &op);
    return real->multimem_ld_reduce(instance, peers, address, dst, count, dtype, op, exec);
}

/* --- peers' memory ---------------------------------------------------------------- */

#define RANGES 256

static pthread_mutex_t ranges_lock = PTHREAD_MUTEX_INITIALIZER;
static symmem_memory ranges[RANGES];

static symmem_status watched_import(void *instance, int32_t device, const symmem_share *share,
                                    size_t bytes, symmem_memory *memory) {
    symmem_status status = real->memory_map(instance, device, share, bytes, memory);
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

/* --- the table -------------------------------------------------------------------- */

/* What the backend underneath lacks, the mutant lacks, too: else the core would refuse its table.
 */
static void mutate(void) {
    if (mutant->on != 0) {
        table.barrier = barrier;
        table.put_signal = put_signal;
        table.wait_signal = wait_signal;
    }
    if (mutant->collective)
        table.collective = collective;
    if (mutant->reduce)
        table.multimem_ld_reduce = multimem_ld_reduce;
    if (mutant->watches_imports) {
        table.memory_map = watched_import;
        table.memory_release = watched_release;
    }
#define MUTATE(group, entry, name, need)                                                           \
    if (!real->name)                                                                               \
        table.name = NULL;                                                                         \
    else if (mutant->entries.name)                                                                 \
        table.name = mutant->entries.name;
    SYMMEM_BACKEND_ENTRIES(MUTATE)
#undef MUTATE
    if (mutant->change)
        mutant->change(&table);
    (void)flat_table(&table);
}

static const struct mutant *find_mutant(const char *name, size_t length) {
    for (const struct mutant *const *list = mutant_lists; *list; list++)
        for (const struct mutant *one = *list; one->name; one++)
            if (strlen(one->name) == length && memcmp(one->name, name, length) == 0)
                return one;
    return NULL;
}

static void load(void) {
    char path[PATH_MAX];
    Dl_info own;
    if (dladdr(&table, &own) == 0 || !own.dli_fname)
        return;
    const char *slash = strrchr(own.dli_fname, '/'), *file = slash ? slash + 1 : own.dli_fname;
    const char *given = getenv("SYMMEM_MUTANT");
    mutant = given ? find_mutant(given, strlen(given)) : find_mutant(file, strcspn(file, "."));
    const char *name = getenv("SYMMEM_MUTANTS_OF");
    if (!name || *name == '\0') {
        const char *folder = slash ? own.dli_fname : "./";
        snprintf(path, sizeof path, "%.*s" DEFAULT_BACKEND, slash ? (int)(file - folder) : 2,
                 folder);
        name = path;
    }
    void *object = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    void *symbol = object ? dlsym(object, SYMMEM_BACKEND_ENTRY) : NULL;
    if (!mutant || !symbol) {
        fprintf(stderr, "mutant: %s\n", mutant ? dlerror() : "none is called like that");
        return;
    }
    symmem_backend_entry_fn entry;
    memcpy(&entry, &symbol, sizeof entry);
    const symmem_backend *found = entry(SYMMEM_BACKEND_ABI);
    if (!found)
        return;
    underneath = flat_of(found);
    real = &underneath;
    table = underneath;
    mutate();
}

const symmem_backend *symmem_backend_entry(uint32_t abi) {
    pthread_once(&once, load);
    return abi == SYMMEM_BACKEND_ABI && real ? &table.head : NULL;
}

void mutant_sleep_ms(unsigned ms) {
    struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}
