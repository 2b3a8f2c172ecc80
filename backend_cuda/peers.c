/* SPDX-License-Identifier: BSD-3-Clause */
/* The peers' tables on the device, and what poisons and resets their state. */
#include <stdlib.h>
#include <string.h>

#include "cuda_internal.h"

/* One copy, on a lane and waited for: the driver's plain copies use a stream of everybody's. */
static CUresult write_tables(cuda_instance *instance, const symmem_peers *peers, CUdeviceptr tables,
                             CUstream native) {
    const size_t count = (size_t)peers->world_size;
    void *const *const sources[] = {peers->buffers, peers->pads, peers->signals};
    void **all = malloc(3 * count * sizeof *all);
    if (all == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < 3; i++)
        memcpy(all + i * count, sources[i], count * sizeof *all);
    CUresult result =
        instance->driver.MemcpyAsync(tables, cuda_address(all), 3 * count * sizeof *all, native);
    if (result == CUDA_SUCCESS)
        result = cuda_wait_idle(instance, native, 0, NULL);
    free(all);
    return result;
}

/* From memory that the instance keeps: the driver's common pool gives all back to the device when a
 * stream has been waited for, so each rendezvous would map some anew. */
static CUresult fill_tables(cuda_instance *instance, const symmem_peers *peers, cuda_peers *own,
                            CUstream native) {
    CUresult result =
        cuda_scratch_take(instance, peers->device, 3 * sizeof(void *) * (size_t)peers->world_size,
                          native, &own->tables);
    return result == CUDA_SUCCESS ? write_tables(instance, peers, own->tables, native) : result;
}

static CUresult open_own(cuda_instance *instance, const symmem_peers *peers, cuda_peers *own) {
    cuda_lane *lane;
    void *control = NULL;
    CUresult result = cuda_piece_take(&instance->driver, &control);
    if (result != CUDA_SUCCESS)
        return result;
    own->control = control;
    result = cuda_lane_take(instance, peers->device, &lane);
    if (result != CUDA_SUCCESS)
        goto give_control;
    result = fill_tables(instance, peers, own, lane->native);
    if (result != CUDA_SUCCESS)
        cuda_scratch_give(instance, own->tables, lane->native);
    cuda_lane_give(instance, peers->device, lane);
    if (result == CUDA_SUCCESS)
        return CUDA_SUCCESS;
give_control:
    cuda_piece_give(control);
    return result;
}

symmem_status cuda_peers_open(void *opaque, symmem_peers *peers, void **buffers_dev_p,
                              void **pads_dev_p) {
    cuda_instance *instance = opaque;
    symmem_status status = cuda_point(instance, "cuda.peers.open");
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
    if (result != CUDA_SUCCESS) {
        status = cuda_fail(instance, result, "rendezvous");
        goto free_own;
    }
    peers->priv = own;
    *buffers_dev_p = (void *)(uintptr_t)own->tables;
    *pads_dev_p = (void *)(uintptr_t)(own->tables + sizeof(void *) * (size_t)peers->world_size);
    return SYMMEM_OK;
free_own:
    free(own);
    return status;
}

/* In stream order: nothing is pending, and freeing at once would wait for the whole device. */
void cuda_peers_close(void *opaque, symmem_peers *peers) {
    cuda_instance *instance = opaque;
    cuda_peers *own = peers->priv;
    cuda_lane *lane;
    (void)cuda_point(instance, "cuda.peers.close*");
    pthread_mutex_lock(&instance->collecting); /* the watcher is not looking at them */
    peers->priv = NULL;
    pthread_mutex_unlock(&instance->collecting);
    if (cuda_enter(instance, peers->device, "release") == SYMMEM_OK) {
        if (cuda_lane_take(instance, peers->device, &lane) == CUDA_SUCCESS) {
            cuda_scratch_give(instance, own->tables, lane->native);
            (void)cuda_wait_idle(instance, lane->native, 0, NULL);
            cuda_lane_give(instance, peers->device, lane);
        }
        cuda_leave(instance);
    }
    cuda_piece_give(own->control);
    free(own);
}

/* On the stream that poisons, so that no poisoning of earlier comes after it. Failures of launches
 * that the library does not know of may not have been told yet, and would poison what is reset. */
symmem_status cuda_signal_reset(void *opaque, const symmem_peers *peers) {
    cuda_instance *instance = opaque;
    cuda_peers *own = peers->priv;
    cuda_collect(instance);
    symmem_status status = cuda_point(instance, "cuda.reset.before");
    if (status == SYMMEM_OK && cuda_is_withdrawn(instance, peers))
        status = instance->host->fail(instance->host, SYMMEM_BUSY, 0, "reset",
                                      "the device has not come to a call that was withdrawn");
    if (status == SYMMEM_OK)
        status = cuda_enter(instance, peers->device, "reset");
    if (status != SYMMEM_OK)
        return status;
    CUstream control = instance->devices[peers->device].control;
    CUresult result = instance->driver.MemsetD8Async(
        cuda_address(peers->signals[peers->rank]), 0,
        symmem_cuda_signal_size(peers->world_size, peers->channel_count), control);
    if (result == CUDA_SUCCESS)
        result = cuda_wait_call(instance, control);
    cuda_leave(instance);
    if (result != CUDA_SUCCESS)
        return cuda_fail(instance, result, "reset");
    memset(own->control, 0, sizeof *own->control);
    return cuda_point(instance, "cuda.reset.done");
}

/* A word of the own state, by no kernel: there may be no room for one. Waits until it is written.
 */
static CUresult write_word(cuda_instance *instance, const symmem_peers *peers, size_t offset) {
    const cuda_driver *driver = &instance->driver;
    CUstream control = instance->devices[peers->device].control;
    const CUdeviceptr word = cuda_address(peers->signals[peers->rank]) + offset;
    CUresult result = driver->StreamWriteValue32(control, word, 1, CU_STREAM_WRITE_VALUE_DEFAULT);
    if (result != CUDA_SUCCESS)
        result = driver->MemsetD32Async(word, 1, 1, control);
    return result == CUDA_SUCCESS ? cuda_wait_idle(instance, control, 0, NULL) : result;
}

/* Own kernels learn of it by the control word. Peers' look at the state's first word: a kernel that
 * failed has written it, but a failure may be the host's alone. It is there afterwards: kernels
 * that are launched then are to find it, and its memory may be given back. */
void cuda_signal_poison(void *opaque, const symmem_peers *peers) {
    cuda_instance *instance = opaque;
    cuda_peers *own = peers->priv;
    (void)cuda_point(instance, "cuda.poison*");
    __atomic_store_n(&own->control->poisoned, 1, __ATOMIC_RELEASE);
    if (cuda_enter(instance, peers->device, "poison") != SYMMEM_OK)
        return;
    (void)write_word(instance, peers, 0);
    cuda_leave(instance);
}

static size_t state_at(const symmem_peers *peers, int32_t channel) {
    return symmem_cuda_state_at(peers->world_size, peers->channel_count, channel);
}

/* Behind what another thread may be about to write: the poison, too. */
CUresult cuda_channel_stop(cuda_instance *instance, const symmem_peers *peers, int32_t channel) {
    CUresult result = write_word(instance, peers, 0);
    return result == CUDA_SUCCESS
               ? write_word(instance, peers,
                            state_at(peers, channel) + offsetof(symmem_cuda_state, stopped))
               : result;
}

CUresult cuda_channel_look(cuda_instance *instance, const symmem_peers *peers, int32_t channel,
                           symmem_cuda_state *state_p) {
    CUstream control = instance->devices[peers->device].control;
    const CUdeviceptr state = cuda_address(peers->signals[peers->rank]) + state_at(peers, channel);
    void *piece;
    CUresult result = cuda_piece_take(&instance->driver, &piece);
    if (result != CUDA_SUCCESS)
        return result;
    result = instance->driver.MemcpyAsync(cuda_address(piece), state, sizeof *state_p, control);
    if (result == CUDA_SUCCESS)
        result = cuda_wait_idle(instance, control, 0, NULL);
    if (result != CUDA_SUCCESS)
        return result; /* the piece is lost: it may still be written */
    memcpy(state_p, piece, sizeof *state_p);
    cuda_piece_give(piece);
    return result;
}

void cuda_signal_check(void *opaque, const symmem_peers *peers) {
    (void)peers;
    cuda_collect(opaque);
}
