/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The table of the NCCL backend. The CUDA backend implements what a rank does on its own GPU and
 * through a peer's pointer. This backend replaces how pointers to peers are obtained.
 */
#include <stdio.h>
#include <stdlib.h>

#include "nccl_internal.h"

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

/* ncclResult_t grows from version to version, so it is never an index into a table. */
symmem_status nccl_fail(const cuda_instance *instance, ncclResult_t result, const char *operation) {
    const nccl_library *library = &nccl_state_of(instance)->library;
    const bool may_need_descriptors = result == ncclSystemError || result == ncclInternalError ||
                                      result == ncclUnhandledCudaError;
    const int error = may_need_descriptors ? cuda_descriptors_error() : 0;
    const symmem_status status = result == ncclRemoteError ? SYMMEM_PEER_LOST
                                 : error != 0              ? SYMMEM_LIMIT
                                                           : SYMMEM_BACKEND;
    const char *more = library->GetLastError(NULL);
    return instance->host->fail(instance->host, status, error, operation, "NCCL: %s (%d)%s %.100s",
                                library->GetErrorString(result), (int)result,
                                error != 0 ? ", and no descriptor is left" : "",
                                more != NULL ? more : "");
}

/* Neither sets the environment nor keeps the library, so that probing has no lasting effect. */
static symmem_status probe(char *reason, size_t capacity) {
    nccl_library library;
    char driver[200] = "", version[16];
    symmem_status status = cuda_table.probe(driver, sizeof driver);
    if (status != SYMMEM_OK) {
        snprintf(reason, capacity, "%s", driver);
        return status;
    }
    if (!nccl_library_load(&library, false, reason, capacity))
        return SYMMEM_UNSUPPORTED;
    nccl_print_version(library.version, version);
    snprintf(reason, capacity, "libnccl %s, %s", version, driver);
    return SYMMEM_OK;
}

/* The environment is set first, because NCCL reads it no later than at its first call. */
static symmem_status open_library(const symmem_host *host, const symmem_backend_config *config,
                                  nccl_state *state) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    char reason[200];
    bool set = false;
    /* If ranks share devices, NCCL should make no multicast objects, but it checks only two of the
     * ranks. */
    const char *because = !config->multicast_allowed ? "multicast is off"
                          : nccl_allows_sharing()    ? "ranks may share devices"
                                                     : NULL;
    if (because != NULL && !nccl_forbid_multicast(because, &set, reason, sizeof reason))
        return host->fail(host, SYMMEM_UNSUPPORTED, 0, "open", "%s", reason);
    if (!nccl_library_load(&state->library, true, reason, sizeof reason))
        return host->fail(host, SYMMEM_UNSUPPORTED, 0, "open", "%s", reason);
    (void)pthread_once(&once, cuda_await_at_exit);
    if (set)
        host->notice(host, "NCCL_NVLS_ENABLE=0 was set: NCCL makes no multicast objects");
    return SYMMEM_OK;
}

/* The host may no longer exist. */
static void end_state(cuda_instance *instance) {
    nccl_state *state = nccl_state_of(instance);
    nccl_modules_release(instance);
    pthread_cond_destroy(&state->work);
    pthread_cond_destroy(&state->ended);
    pthread_mutex_destroy(&state->lock);
    free(state);
}

static void init_ended(nccl_state *state) {
    pthread_condattr_t attributes;
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&state->ended, &attributes);
    (void)pthread_condattr_destroy(&attributes);
}

static symmem_status open_instance(const symmem_host *host, const symmem_backend_config *config,
                                   void **instance_p) {
    void *opaque = NULL;
    nccl_state *state = calloc(1, sizeof *state);
    if (state == NULL)
        return host->fail(host, SYMMEM_OUT_OF_MEMORY, 0, "open", "no memory");
    nccl_host_init(&state->host, host);
    symmem_status status = cuda_table.open(&state->host.host, config, &opaque);
    if (status != SYMMEM_OK)
        goto free_state;
    status = open_library(host, config, state);
    if (status != SYMMEM_OK)
        goto close;
    (void)pthread_mutex_init(&state->lock, NULL);
    (void)pthread_cond_init(&state->work, NULL);
    init_ended(state);
    cuda_instance *instance = opaque;
    instance->extension = state;
    instance->end_extension = end_state;
    instance->forget_fault = nccl_inflight_forget;
    *instance_p = opaque;
    return SYMMEM_OK;
close:
    cuda_table.close(opaque);
free_state:
    free(state);
    return status;
}

/* The core has released all memory and closed all groups. */
static void close_instance(void *opaque) {
    cuda_instance *instance = opaque;
    const cuda_driver driver = instance->driver;
    const bool counted = cuda_busy_begin(); /* otherwise the program would close while it ends */
    cuda_relax(&driver);
    nccl_watcher_stop(instance);
    nccl_comm_aborts_finish(instance);
    nccl_bootstrap_roots_end(instance, false);
    cuda_table.close(instance);
    cuda_restore(&driver);
    if (counted)
        cuda_busy_end();
}

/* Written once, before any thread sees it. Entries that the CUDA backend's table gains appear by
 * themselves. */
static symmem_backend table;

static void fill_table(void) {
    table = cuda_table;
    table.name = "nccl";
    table.description = "NCCL windows (built with " TEXT(NCCL_MAJOR) "." TEXT(NCCL_MINOR) "." TEXT(
        NCCL_PATCH) ", needs 2.28 or later); NCCL_NVLS_ENABLE=0 is enforced unless multicast is "
                    "allowed and ranks share no devices; collectives by own kernels within direct "
                    "access, by NCCL's beyond";
    if (!nccl_allows_sharing())
        table.capabilities &= ~SYMMEM_CAP_OVERLAP;
    table.capabilities |= SYMMEM_CAP_COLLECTIVES_APART;
    /* The CUDA backend's multicast, if compiled in, does not know NCCL's windows. */
    table.capabilities &= ~SYMMEM_CAP_MULTICAST;
    table.multicast_create = NULL;
    table.multicast_attach = NULL;
    table.multicast_bind = NULL;
    table.multicast_release = NULL;
    table.multimem_store = NULL;
    table.multimem_ld_reduce = NULL;
    table.probe = probe;
    table.open = open_instance;
    table.close = close_instance;
    table.memory_alloc = nccl_memory_alloc;
    table.memory_release = nccl_memory_release;
    table.memory_export = NULL;
    table.share_close = NULL;
    table.memory_import = NULL;
    table.memory_exchange = nccl_memory_exchange;
    table.group_open = nccl_group_open;
    table.group_close = nccl_group_close;
    table.communicator_check = nccl_communicator_check;
    table.collective_apart = nccl_collective_apart;
    table.barrier = nccl_barrier;
    table.put_signal = nccl_put_signal;
    table.wait_signal = nccl_wait_signal;
    table.signal_lost = nccl_signal_lost;
}

const symmem_backend *nccl_table(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, fill_table);
    return &table;
}
