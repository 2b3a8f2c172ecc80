/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The table of the NCCL backend. The CUDA backend implements what a rank does on its own GPU and
 * through a peer's pointer. This backend replaces how pointers to peers are obtained.
 */
#include <stdio.h>
#include <stdlib.h>

#include "nccl_internal.h"
#include "bootstrap_root.h"
#include "coll_comm.h"
#include "coll_watcher.h"
#include "comm_abort.h"
#include "exchange.h"
#include "group.h"
#include "memory.h"
#include "resolve.h"
#include "user_comm.h"

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

/* Neither sets the environment nor keeps the library, so that probing has no lasting effect. */
static symmem_status probe(char *reason, size_t capacity) {
    nccl_library library;
    char driver[200] = "", version[16];
    symmem_status status = cuda_instance_ops.probe(driver, sizeof driver);
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

static const char *const step_names[] = {CUDA_STEP_NAMES("nccl")};

static symmem_status open_instance(const symmem_host *host, const symmem_backend_config *config,
                                   void **instance_p) {
    void *opaque = NULL;
    nccl_state *state = calloc(1, sizeof *state);
    if (state == NULL)
        return host->fail(host, SYMMEM_OUT_OF_MEMORY, 0, "open", "no memory");
    cuda_named_host_init(&state->host, host, step_names);
    symmem_status status = cuda_instance_ops.open(&state->host.host, config, &opaque);
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
    cuda_instance_ops.close(opaque);
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
    cuda_instance_ops.close(instance);
    cuda_restore(&driver);
    if (counted)
        cuda_busy_end();
}

static const symmem_instance_ops instance_ops = {
    .size = sizeof(symmem_instance_ops),
    .probe = probe,
    .open = open_instance,
    .close = close_instance,
    .device_count = cuda_device_count,
    .device_info = cuda_device_info,
};

static const symmem_memory_ops memory_ops = {
    .size = sizeof(symmem_memory_ops),
    .alloc = nccl_memory_alloc,
    .release = nccl_memory_release,
    .exchange = nccl_memory_exchange,
};

static const symmem_signal_ops signal_ops = {
    .size = sizeof(symmem_signal_ops),
    .bytes = cuda_signal_bytes,
    .peers_open = cuda_peers_open,
    .peers_close = cuda_peers_close,
    .barrier = cuda_guarded_barrier,
    .put = cuda_guarded_put_signal,
    .wait = cuda_guarded_wait_signal,
    .reset = cuda_signal_reset,
    .poison = cuda_signal_poison,
    .check = cuda_signal_check,
    .lost = nccl_signal_lost,
    .wait_value = cuda_guarded_wait_value,
    .count = cuda_guarded_signal_count,
    .wait_counts = cuda_guarded_wait_counts,
};

static const symmem_collective_ops collective_ops = {
    .size = sizeof(symmem_collective_ops),
    .run = cuda_collective,
    .run_apart = nccl_collective_apart,
    .run_splits = cuda_collective_splits,
    .reduce_tile = cuda_reduce_tile,
};

static const symmem_group_ops group_ops = {
    .size = sizeof(symmem_group_ops),
    .open = nccl_group_open,
    .close = nccl_group_close,
    .communicator_check = nccl_communicator_check,
};

/* Without the group multicast: the CUDA backend's, where that is compiled in, does not know NCCL's
 * windows. Constant but for what the library in this process allows. */
static symmem_backend table = {
    .size = sizeof(symmem_backend),
    .abi = SYMMEM_BACKEND_ABI,
    .name = "nccl",
    .description = "NCCL windows (built with " TEXT(NCCL_MAJOR) "." TEXT(NCCL_MINOR) "." TEXT(
        NCCL_PATCH) ", needs 2.28 or later); NCCL_NVLS_ENABLE=0 is enforced unless multicast is "
                    "allowed and ranks share no devices; collectives by own kernels within direct "
                    "access, by NCCL's beyond",
    .flags = SYMMEM_CAP_OVERLAP | SYMMEM_CAP_THREAD_RANKS | SYMMEM_CAP_PROCESS_RANKS |
             SYMMEM_CAP_CROSS_HOST | SYMMEM_CAP_DIRECT_ACCESS | SYMMEM_CAP_POOL,
    .instance = &instance_ops,
    .memory = &memory_ops,
    .signal = &signal_ops,
    .copy = &cuda_copy_ops,
    .stream = &cuda_stream_ops,
    .graph = &cuda_graph_ops,
    .collective = &collective_ops,
    .matmul = &cuda_matmul_ops,
    .group = &group_ops,
    .topology = &cuda_topology_ops,
};

static void set_flags(void) {
    if (!nccl_allows_sharing())
        table.flags &= ~SYMMEM_CAP_OVERLAP;
}

const symmem_backend *nccl_table(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, set_flags);
    return &table;
}
