/* SPDX-License-Identifier: BSD-3-Clause */
/* The peers' tables on the device, and how their state is poisoned and reset. */
#include <stdlib.h>
#include <string.h>

#include "memory/mapping.h"
#include "signal/peers.h"
#include "driver/context.h"
#include "driver/device.h"
#include "driver/error.h"
#include "inflight/inflight.h"
#include "signal/launch_timeout.h"
#include "driver/pinned.h"
#include "memory/scratch.h"
#include "driver/staging.h"
#include "signal/links.h"
#include "signal/plan.h"
#include "stream/stream.h"

#define REST_MS 100u /* when several processes share a device, its time slice comes late */
#define POISON_MS 1000u

_Static_assert(3 * sizeof(void *) * SYMMEM_MAX_WORLD_SIZE <= CUDA_STAGED_BYTES, "tables are sent");

static symmem_status fail(const cuda_instance *instance, CUresult result, const char *operation) {
    return result == CUDA_ERROR_NOT_READY ? cuda_fail_timeout(instance, operation)
                                          : cuda_fail(instance, result, operation);
}

/* Copies once, on a private stream, because the driver's synchronous copies use the shared default
 * stream. */
static CUresult write_tables(cuda_instance *instance, const symmem_peers *peers, CUdeviceptr tables,
                             CUstream native, cuda_staging **staging_p) {
    const size_t count = (size_t)peers->world_size;
    void *const *const sources[] = {peers->buffers, peers->pads, peers->signals};
    void **all = malloc(3 * count * sizeof *all);
    if (all == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < 3; i++)
        memcpy(all + i * count, sources[i], count * sizeof *all);
    CUresult result =
        cuda_staging_send(instance, native, tables, all, 3 * count * sizeof *all, staging_p);
    free(all);
    return result;
}

/* Uses memory of the instance's pool. The driver's default pool returns everything to the device
 * when a stream has been waited for, so each rendezvous would map memory again. */
static CUresult fill_tables(cuda_instance *instance, const symmem_peers *peers, cuda_peers *own,
                            CUstream native, cuda_staging **staging_p) {
    CUresult result =
        cuda_scratch_take(instance, peers->device, 3 * sizeof(void *) * (size_t)peers->world_size,
                          native, &own->tables);
    if (result == CUDA_SUCCESS)
        result = write_tables(instance, peers, own->tables, native, staging_p);
    if (result == CUDA_SUCCESS)
        result = cuda_wait_in_time(instance, native);
    if (result != CUDA_SUCCESS)
        cuda_scratch_give(instance, own->tables, native);
    return result;
}

/* A late copy still reads the staging memory, which is lost if no entry for it can be allocated. */
static void orphan_tables(cuda_instance *instance, int32_t device, CUstream native,
                          cuda_staging *staging) {
    const cuda_needs needs = {.staging = staging};
    cuda_orphan(cuda_orphan_make(instance, device), native, NULL, &needs, "rendezvous");
}

/* Returns the largest block size for which the core has requested this much signal state. */
static size_t find_block_bytes(const symmem_peers *peers) {
    const size_t sizes[] = {SYMMEM_CUDA_CHUNKED_BLOCK, SYMMEM_CUDA_LARGE_BLOCK};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (peers->signal_bytes >=
            symmem_cuda_signal_size(peers->world_size, peers->channel_count, sizes[i]))
            return sizes[i];
    return 0;
}

/* Also tells the other ranks about NVLink. Both are there before any rank's first operation. */
static CUresult open_own(cuda_instance *instance, const symmem_peers *peers, cuda_peers *own) {
    cuda_private_stream *private_stream;
    cuda_staging *staging = NULL;
    void *control = NULL;
    CUresult result = cuda_small_block_take(&instance->driver, &control);
    if (result != CUDA_SUCCESS)
        return result;
    own->control = control;
    result = cuda_private_stream_take(instance, peers->device, &private_stream);
    if (result != CUDA_SUCCESS)
        goto give_control;
    own->links = cuda_links_find(instance, peers);
    own->block_bytes = find_block_bytes(peers);
    result = cuda_links_tell(instance, peers, own->links, private_stream->native);
    if (result == CUDA_SUCCESS)
        result = fill_tables(instance, peers, own, private_stream->native, &staging);
    if (result == CUDA_ERROR_NOT_READY)
        orphan_tables(instance, peers->device, private_stream->native, staging);
    else
        cuda_staging_give(staging);
    if (result == CUDA_SUCCESS) {
        cuda_private_stream_give(instance, peers->device, private_stream);
        return CUDA_SUCCESS;
    }
    cuda_private_stream_end(instance, peers->device, private_stream);
give_control:
    cuda_small_block_give(control);
    return result;
}

symmem_status cuda_peers_open(void *opaque, symmem_peers *peers, void **buffers_dev_p,
                              void **pads_dev_p) {
    cuda_instance *instance = opaque;
    symmem_status status = cuda_failpoint(instance, "cuda.peers.open");
    if (status != SYMMEM_OK)
        return status;
    cuda_peers *own = calloc(1, sizeof *own);
    if (own == NULL)
        return cuda_no_memory(instance, "rendezvous");
    status = cuda_enter(instance, peers->device, "rendezvous");
    if (status != SYMMEM_OK)
        goto free_own;
    CUresult result = open_own(instance, peers, own);
    cuda_leave(instance);
    /* Without memory no launch is kept. */
    own->plans = calloc((size_t)peers->channel_count, sizeof(cuda_plans *));
    if (result != CUDA_SUCCESS) {
        status = fail(instance, result, "rendezvous");
        goto free_own;
    }
    peers->priv = own;
    *buffers_dev_p = (void *)(uintptr_t)own->tables;
    *pads_dev_p = (void *)(uintptr_t)(own->tables + sizeof(void *) * (size_t)peers->world_size);
    return SYMMEM_OK;
free_own:
    free(own->plans);
    free(own);
    return status;
}

/* Frees in stream order: nothing is pending, and freeing at once would wait for the whole device. A
 * private stream that is idle is used again. Any other one becomes an orphan. Otherwise the
 * instance's end would wait for it in the driver. */
static void give_tables(cuda_instance *instance, int32_t device, CUdeviceptr tables) {
    const cuda_needs needs = {.staging = NULL};
    cuda_private_stream *private_stream;
    if (cuda_private_stream_take(instance, device, &private_stream) != CUDA_SUCCESS)
        return;
    cuda_scratch_give(instance, tables, private_stream->native);
    if (cuda_wait_idle(instance, private_stream->native, REST_MS, NULL) == CUDA_SUCCESS) {
        cuda_private_stream_give(instance, device, private_stream);
        return;
    }
    cuda_orphan(cuda_orphan_make(instance, device), private_stream->native, NULL, &needs,
                "release");
    cuda_private_stream_end(instance, device, private_stream);
}

void cuda_peers_close(void *opaque, symmem_peers *peers) {
    cuda_instance *instance = opaque;
    cuda_peers *own = peers->priv;
    (void)cuda_failpoint(instance, "cuda.peers.close*");
    pthread_mutex_lock(&instance->collecting); /* the watcher does not access them */
    peers->priv = NULL;
    pthread_mutex_unlock(&instance->collecting);
    if (cuda_enter(instance, peers->device, "release") == SYMMEM_OK) {
        give_tables(instance, peers->device, own->tables);
        cuda_leave(instance);
    }
    cuda_small_block_give(own->control);
    cuda_plans_free(own, peers->channel_count);
    free(own);
}

/* --- the control stream -------------------------------------------------------------- */

/* Its writes for these peers were late. They go to this rank's signal memory, which may be freed
 * before. */
static void orphan_control(cuda_instance *instance, const symmem_peers *peers) {
    CUstream control = instance->devices[peers->device].control;
    cuda_mapping *mapping = cuda_mapping_at(cuda_address(peers->signals[peers->rank]));
    atomic_store(&instance->devices[peers->device].late, true);
    if (mapping != NULL)
        (void)cuda_mapping_leave(instance, peers->device, control, mapping, "signal");
    else
        (void)cuda_wait_idle(instance, control, instance->late_ms, NULL);
}

/* Clears everything but the links. */
static CUresult clear_state(const cuda_instance *instance, const symmem_peers *peers) {
    CUstream control = instance->devices[peers->device].control;
    const CUdeviceptr state = cuda_address(peers->signals[peers->rank]);
    const size_t links_end = symmem_cuda_links_end(peers->world_size);
    const size_t bytes = peers->signal_bytes;
    CUresult result = instance->driver.MemsetD8Async(state, 0, SYMMEM_CUDA_HEADER_BYTES, control);
    return result == CUDA_SUCCESS
               ? instance->driver.MemsetD8Async(state + links_end, 0, bytes - links_end, control)
               : result;
}

/* Runs on the stream that poisons, so that no earlier poisoning comes after it. Failures of graph
 * launches that the library does not know of may not have been reported yet. They would poison the
 * handle again after the reset. */
symmem_status cuda_signal_reset(void *opaque, const symmem_peers *peers) {
    cuda_instance *instance = opaque;
    cuda_peers *own = peers->priv;
    cuda_collect(instance);
    symmem_status status = cuda_failpoint(instance, "cuda.reset.before");
    if (status == SYMMEM_OK && cuda_has_pending(instance, peers))
        status =
            instance->host->fail(instance->host, SYMMEM_BUSY, 0, "reset",
                                 "the device is not done with a call that was abandoned or failed");
    if (status == SYMMEM_OK)
        status = cuda_enter(instance, peers->device, "reset");
    if (status != SYMMEM_OK)
        return status;
    CUstream control = instance->devices[peers->device].control;
    CUresult result = clear_state(instance, peers);
    if (result == CUDA_SUCCESS)
        result = cuda_wait_in_time(instance, control);
    if (result == CUDA_ERROR_NOT_READY)
        orphan_control(instance, peers);
    cuda_leave(instance);
    if (result != CUDA_SUCCESS)
        return fail(instance, result, "reset");
    atomic_store(&instance->devices[peers->device].late, false);
    memset(own->control, 0, sizeof *own->control);
    return cuda_failpoint(instance, "cuda.reset.done");
}

/* Writes a word of this rank's state without a kernel, because a kernel may have no room. */
static CUresult enqueue_word(cuda_instance *instance, const symmem_peers *peers, size_t offset) {
    const cuda_driver *driver = &instance->driver;
    CUstream control = instance->devices[peers->device].control;
    const CUdeviceptr word = cuda_address(peers->signals[peers->rank]) + offset;
    CUresult result = driver->StreamWriteValue32(control, word, 1, CU_STREAM_WRITE_VALUE_DEFAULT);
    if (result != CUDA_SUCCESS)
        result = driver->MemsetD32Async(word, 1, 1, control);
    return result;
}

/* Waits without a limit until it is written. */
static CUresult write_word(cuda_instance *instance, const symmem_peers *peers, size_t offset) {
    CUstream control = instance->devices[peers->device].control;
    CUresult result = enqueue_word(instance, peers, offset);
    return result == CUDA_SUCCESS ? cuda_wait_idle(instance, control, 0, NULL) : result;
}

/* This rank's kernels learn of it by the control word. Peers' kernels read the state's first word.
 * A kernel that failed has written it, but only the host may know of a failure. The word is written
 * before this returns, because later kernels have to find it, unless the device is stuck. Other
 * threads may need the lock under which a failure is reported, so the wait is short and happens
 * once. */
void cuda_signal_poison(void *opaque, const symmem_peers *peers) {
    cuda_instance *instance = opaque;
    cuda_peers *own = peers->priv;
    (void)cuda_failpoint(instance, "cuda.poison*");
    __atomic_store_n(&own->control->poisoned, 1, __ATOMIC_RELEASE);
    if (cuda_enter(instance, peers->device, "poison") != SYMMEM_OK)
        return;
    cuda_device *device = &instance->devices[peers->device];
    const uint32_t limit_ms = atomic_load(&device->late) ? 1 : POISON_MS;
    CUresult result = enqueue_word(instance, peers, 0);
    if (result == CUDA_SUCCESS)
        result = cuda_wait_idle(instance, device->control, limit_ms, NULL);
    if (result == CUDA_ERROR_NOT_READY)
        orphan_control(instance, peers);
    else
        atomic_store(&device->late, false);
    cuda_leave(instance);
}

static size_t state_at(const symmem_peers *peers, int32_t channel) {
    return symmem_cuda_state_at(peers->world_size, peers->channel_count, channel);
}

/* Runs after anything that another thread may be about to write, the poison included. That alone
 * ends what belongs to no channel. */
CUresult cuda_channel_stop(cuda_instance *instance, const symmem_peers *peers, int32_t channel) {
    CUresult result = write_word(instance, peers, 0);
    return result == CUDA_SUCCESS && channel >= 0
               ? write_word(instance, peers,
                            state_at(peers, channel) + offsetof(symmem_cuda_state, stopped))
               : result;
}

CUresult cuda_channel_read(cuda_instance *instance, const symmem_peers *peers, int32_t channel,
                           symmem_cuda_state *state_p) {
    CUstream control = instance->devices[peers->device].control;
    const CUdeviceptr state = cuda_address(peers->signals[peers->rank]) + state_at(peers, channel);
    void *piece;
    CUresult result = cuda_small_block_take(&instance->driver, &piece);
    if (result != CUDA_SUCCESS)
        return result;
    result = instance->driver.MemcpyAsync(cuda_address(piece), state, sizeof *state_p, control);
    if (result == CUDA_SUCCESS)
        result = cuda_wait_idle(instance, control, 0, NULL);
    if (result != CUDA_SUCCESS)
        return result; /* the block is lost, because it may still be written */
    memcpy(state_p, piece, sizeof *state_p);
    cuda_small_block_give(piece);
    return result;
}

void cuda_note_failure(const symmem_peers *peers) {
    __atomic_store_n(&((cuda_peers *)peers->priv)->control->failed, 1, __ATOMIC_SEQ_CST);
}

#define LOOKING 2 /* of control->failed: the device writes 1 */

/* A query of the driver takes the host as long as much of a launch. So none is made before a kernel
 * has said that it failed. A failure whose work is not over yet stays to be reported. */
void cuda_signal_check(void *opaque, const symmem_peers *peers) {
    uint32_t *failed = &((cuda_peers *)peers->priv)->control->failed;
    uint32_t looking = LOOKING;
    if (__atomic_load_n(failed, __ATOMIC_ACQUIRE) == 0)
        return;
    /* Before the look, so that what fails during it is looked at the next time. */
    __atomic_store_n(failed, LOOKING, __ATOMIC_SEQ_CST);
    cuda_collect(opaque);
    if (!cuda_has_failed_work(opaque, peers))
        (void)__atomic_compare_exchange_n(failed, &looking, 0, false, __ATOMIC_SEQ_CST,
                                          __ATOMIC_SEQ_CST);
}
