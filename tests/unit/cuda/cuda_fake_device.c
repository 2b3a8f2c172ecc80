/* SPDX-License-Identifier: BSD-3-Clause */
/* Stands in for backend_cuda's device, streams and graphs: a launch runs its kernel on the CPU,
 * and has ended when it returns. */
#include "../../quiet_host.h"
#include "cuda_fake_device.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cuda/collective.h"
#include "cuda_host_kernels.h"
#include "driver/clock.h"
#include "driver/context.h"
#include "driver/device.h"
#include "driver/error.h"
#include "inflight/inflight.h"
#include "signal/launch_timeout.h"
#include "driver/pinned.h"
#include "driver/staging.h"
#include "signal/signal.h"
#include "stream/foreign_capture.h"
#include "stream/graph.h"
#include "stream/stream.h"

fake_device fake;

static size_t args_bytes(CUfunction function) {
    switch ((host_kernel)(uintptr_t)function) {
    case HOST_BARRIER:
        return sizeof(symmem_cuda_signal_args);
    case HOST_SHOW_WORDS:
        return sizeof(symmem_cuda_store_words_args);
    default:
        return sizeof(symmem_cuda_collective_args);
    }
}

static CUresult keep_launch(CUfunction function, unsigned int blocks, unsigned int threads,
                            const void *args) {
    if (fake.node_count == FAKE_MOST_NODES || args_bytes(function) > FAKE_MOST_ARGS)
        return CUDA_ERROR_OUT_OF_MEMORY;
    fake_node *node = &fake.nodes[fake.node_count++];
    node->function = function;
    node->blocks = blocks;
    node->threads = threads;
    memcpy(node->args, args, args_bytes(function));
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI launch_kernel(CUfunction function, unsigned int blocks, unsigned int y,
                                      unsigned int z, unsigned int threads, unsigned int block_y,
                                      unsigned int block_z, unsigned int shared_bytes,
                                      CUstream stream, void **params, void **extra) {
    if (fake.launches == fake.fail_launch)
        return CUDA_ERROR_LAUNCH_FAILED;
    fake.launches++;
    if (fake.capturing)
        return keep_launch(function, blocks, threads, params[0]);
    host_launch_kernel((host_kernel)(uintptr_t)function, blocks, threads, params[0]);
    return CUDA_SUCCESS;
}

typedef struct fill {
    CUdeviceptr dst;
    size_t bytes;
    unsigned char value;
} fill;

static void run_fill(const void *args) {
    fill wanted;
    memcpy(&wanted, args, sizeof wanted);
    memset((void *)(uintptr_t)wanted.dst, wanted.value, wanted.bytes);
}

/* A node without a kernel. */
static CUresult CUDAAPI set_bytes(CUdeviceptr dst, unsigned char value, size_t bytes,
                                  CUstream stream) {
    const fill wanted = {dst, bytes, value};
    if (!fake.capturing) {
        run_fill(&wanted);
        return CUDA_SUCCESS;
    }
    if (fake.node_count == FAKE_MOST_NODES)
        return CUDA_ERROR_OUT_OF_MEMORY;
    fake_node *node = &fake.nodes[fake.node_count++];
    node->function = NULL;
    node->blocks = 0;
    memcpy(node->args, &wanted, sizeof wanted);
    return CUDA_SUCCESS;
}

static CUfunction function_of(host_kernel kernel) {
    return (CUfunction)(uintptr_t)kernel;
}

/* As the core does: a failure that is no mismatch poisons. */
static void signal_failed(const symmem_peers *peers, const symmem_fault *fault,
                          symmem_error_record *record_p) {
    fake.fault = *fault;
    if (fault->status != SYMMEM_MISMATCH)
        ((cuda_peers *)peers->priv)->control->poisoned = 1;
}

static bool is_poisoned(const symmem_peers *peers) {
    return ((cuda_peers *)peers->priv)->control->poisoned != 0;
}

static const symmem_host host = {.size = sizeof host,
                                 .fail = quiet_fail,
                                 .signal_failed = signal_failed,
                                 .peer_state = quiet_peer_state,
                                 .is_poisoned = is_poisoned};

void fake_open(void **tables, int32_t rank, int32_t world_size, int32_t channel_count) {
    memset(&fake, 0, sizeof fake);
    fake.fail_launch = -1;
    fake.instance.host = &host;
    fake.instance.driver.LaunchKernel = launch_kernel;
    fake.instance.driver.MemsetD8Async = set_bytes;
    cuda_kernels *kernels = &fake.instance.devices[0].kernels;
    kernels->barrier = function_of(HOST_BARRIER);
    kernels->store_words = function_of(HOST_SHOW_WORDS);
    kernels->collective_bytes = function_of(HOST_COLLECTIVE_BYTES);
    kernels->collective[SYMMEM_FLOAT32] = function_of(HOST_COLLECTIVE_F32);
    kernels->collective[SYMMEM_BFLOAT16] = function_of(HOST_COLLECTIVE_BF16);
    fake.own.tables = (CUdeviceptr)(uintptr_t)tables;
    fake.own.control = &fake.control;
    fake.peers = (symmem_peers){
        .size = sizeof fake.peers,
        .host = &host,
        .priv = &fake.own,
        .rank = rank,
        .world_size = world_size,
        .channel_count = channel_count,
        .buffers = tables,
        .pads = tables + world_size,
        .signals = tables + (ptrdiff_t)2 * world_size,
    };
}

/* --- what signal.c, collective.c and pending.c ask for ------------------------------- */

symmem_status cuda_enter(cuda_instance *instance, int32_t device, const char *operation) {
    return SYMMEM_OK;
}

bool cuda_reenter(const cuda_instance *instance, int32_t device) {
    return true;
}

void cuda_leave(const cuda_instance *instance) {}

bool cuda_is_entered(const cuda_instance *instance, int32_t device) {
    return true;
}

bool cuda_is_default_stream(CUstream native) {
    return false;
}

CUresult cuda_private_stream_take(cuda_instance *instance, int32_t device,
                                  cuda_private_stream **lane_p) {
    static cuda_private_stream private_stream;
    *lane_p = &private_stream;
    return CUDA_SUCCESS;
}

void cuda_private_stream_give(cuda_instance *instance, int32_t device,
                              cuda_private_stream *private_stream) {}

CUresult cuda_wait_idle(cuda_instance *instance, CUstream native, uint32_t timeout_ms,
                        const cuda_signal_op *signal) {
    return CUDA_SUCCESS;
}

CUresult cuda_launch_wait(cuda_instance *instance, int32_t device, cuda_launch *launch,
                          const symmem_exec *exec, cuda_private_stream *private_stream,
                          symmem_status *status_p) {
    return CUDA_SUCCESS;
}

CUresult cuda_small_block_take(const cuda_driver *driver, void **piece_p) {
    fake.pieces++;
    *piece_p = calloc(1, CUDA_SMALL_BLOCK_BYTES);
    return *piece_p != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void cuda_small_block_give(void *piece) {
    fake.pieces--;
    free(piece);
}

symmem_status cuda_capture_join(cuda_instance *instance, const symmem_exec *exec,
                                const char *operation, uint64_t *id_p) {
    *id_p = fake.capturing;
    return SYMMEM_OK;
}

bool cuda_foreign_captures_check(cuda_instance *instance, uint64_t begin_ns) {
    return false;
}

symmem_status cuda_captured_add(cuda_instance *instance, cuuint64_t id, const symmem_exec *exec,
                                const cuda_needs *needs, const char *operation) {
    fake.held = *needs->signal;
    return SYMMEM_OK;
}

void cuda_captured_rest(cuda_instance *instance, cuuint64_t id, const symmem_exec *exec) {}

symmem_status fake_replay(void) {
    symmem_error_record record;
    for (int i = 0; i < fake.node_count; i++)
        if (fake.nodes[i].blocks == 0)
            run_fill(fake.nodes[i].args);
        else
            host_launch_kernel((host_kernel)(uintptr_t)fake.nodes[i].function, fake.nodes[i].blocks,
                               fake.nodes[i].threads, fake.nodes[i].args);
    return cuda_take_fault(&fake.held, &record);
}

void fake_drop_graph(void) {
    cuda_small_block_give(fake.held.fault);
    fake.node_count = 0;
}

void cuda_staging_give(cuda_staging *staging) {}

void cuda_staging_give_up(cuda_staging *staging) {}

void cuda_graph_drop(cuda_instance *instance, cuda_graph *graph) {}

void cuda_stream_drop(cuda_stream *stream) {}

bool cuda_is_capture_error(CUresult result) {
    return false;
}

symmem_status cuda_fail(const cuda_instance *instance, CUresult result, const char *operation) {
    return SYMMEM_BACKEND;
}

symmem_status cuda_no_memory(const cuda_instance *instance, const char *operation) {
    return SYMMEM_OUT_OF_MEMORY;
}

symmem_status cuda_failpoint(const cuda_instance *instance, const char *name) {
    return SYMMEM_OK;
}

uint64_t cuda_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 * CUDA_NS_PER_MS + (uint64_t)now.tv_nsec;
}

void cuda_sleep_ns(uint64_t ns) {
    const uint64_t second_ns = 1000 * CUDA_NS_PER_MS;
    const struct timespec pause = {.tv_sec = (time_t)(ns / second_ns),
                                   .tv_nsec = (long)(ns % second_ns)};
    nanosleep(&pause, NULL);
}
