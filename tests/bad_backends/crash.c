/* SPDX-License-Identifier: BSD-3-Clause */
/* Backends that end the process that uses them. */
#include "../mutants/decorator/decorator.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Out of the compiler's sight, which would otherwise see what happens below. */
static void *volatile nowhere;

static symmem_status barrier_segfaults(void *instance, const symmem_peers *peers, int32_t channel,
                                       const symmem_exec *exec) {
    (void)instance, (void)peers, (void)channel, (void)exec;
    memset(nowhere, 1, 1);
    return SYMMEM_OK;
}

static symmem_status alloc_aborts(void *instance, int32_t device, size_t bytes,
                                  symmem_memory *memory) {
    (void)instance, (void)device, (void)bytes, (void)memory;
    abort();
}

/* As if all were well. */
static symmem_status barrier_exits(void *instance, const symmem_peers *peers, int32_t channel,
                                   const symmem_exec *exec) {
    (void)instance, (void)peers, (void)channel, (void)exec;
    exit(0);
}

static void close_exits(void *instance) {
    (void)instance;
    _exit(0);
}

static void release_frees_twice(void *instance, symmem_memory *memory) {
    void *block = malloc(64);
    void *volatile again = block;
    real->memory_release(instance, memory);
    free(block);
    free(again);
}

static size_t recurse(size_t depth) {
    volatile char frame[4096];
    frame[0] = (char)depth;
    return depth == SIZE_MAX ? 0 : recurse(depth + 1) + (size_t)frame[0];
}

static symmem_status put_overflows_the_stack(void *instance, const symmem_peers *peers, int32_t dst,
                                             int32_t channel, const symmem_exec *exec) {
    (void)instance, (void)peers, (void)dst, (void)channel, (void)exec;
    return recurse(0) == 1 ? SYMMEM_OK : SYMMEM_SYSTEM;
}

static void *crash_later(void *arg) {
    (void)arg;
    usleep(50000);
    raise(SIGBUS);
    return NULL;
}

static symmem_status open_starts_a_bomb(const symmem_host *host,
                                        const symmem_backend_config *config, void **instance_p) {
    pthread_t thread;
    if (config->world_size > 1 && pthread_create(&thread, NULL, crash_later, NULL) == 0)
        pthread_detach(thread);
    return real->open(host, config, instance_p);
}

static void segfault(void) {
    memset(nowhere, 1, 1);
}

static symmem_status open_for_a_bad_end(const symmem_host *host,
                                        const symmem_backend_config *config, void **instance_p) {
    if (config->world_size > 1 && atexit(segfault) != 0)
        return SYMMEM_SYSTEM;
    return real->open(host, config, instance_p);
}

static symmem_status open_segfaults(const symmem_host *host, const symmem_backend_config *config,
                                    void **instance_p) {
    (void)host, (void)config, (void)instance_p;
    segfault();
    return SYMMEM_OK;
}

static symmem_status open_exits(const symmem_host *host, const symmem_backend_config *config,
                                void **instance_p) {
    (void)host, (void)config, (void)instance_p;
    exit(0);
}

const struct mutant bad_crashing[] = {
    {"crash.barrier", .entries.barrier = barrier_segfaults},
    {"crash.alloc", .entries.memory_alloc = alloc_aborts},
    {"crash.exit_0", .entries.barrier = barrier_exits},
    {"crash.exit_0_in_close", .entries.close = close_exits},
    {"crash.double_free", .entries.memory_release = release_frees_twice},
    {"crash.stack", .entries.put_signal = put_overflows_the_stack},
    {"crash.thread", .entries.open = open_starts_a_bomb},
    {"crash.at_exit", .entries.open = open_for_a_bad_end},
    {"crash.open", .entries.open = open_segfaults},
    {"crash.exit_0_in_open", .entries.open = open_exits},
    {.name = NULL},
};
