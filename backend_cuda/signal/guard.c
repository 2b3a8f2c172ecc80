/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Signal operations go through peers' memory. A backend that shares memory by other means than this
 * one may have peers without a pointer. Operations with those are refused before anything is
 * written.
 */
#include "signal/guard.h"
#include "signal/peers.h"
#include "signal/signal.h"
#include "signal/window.h"

static symmem_status check_pointer(const cuda_instance *instance, const symmem_peers *peers,
                                   int32_t rank, const char *operation) {
    if (peers->signals[rank] != NULL)
        return SYMMEM_OK;
    return instance->host->fail(instance->host, SYMMEM_UNREACHABLE, 0, operation,
                                "no direct access to rank %d", (int)rank);
}

symmem_status cuda_guarded_barrier(void *opaque, const symmem_peers *peers, int32_t channel,
                                   const symmem_exec *exec) {
    symmem_status status = SYMMEM_OK;
    for (int32_t r = 0; status == SYMMEM_OK && r < peers->world_size; r++)
        status = check_pointer(opaque, peers, r, "barrier");
    return status == SYMMEM_OK ? cuda_barrier(opaque, peers, channel, exec) : status;
}

symmem_status cuda_guarded_put_signal(void *opaque, const symmem_peers *peers, int32_t dst_rank,
                                      int32_t channel, const symmem_exec *exec) {
    symmem_status status = check_pointer(opaque, peers, dst_rank, "put_signal");
    return status == SYMMEM_OK ? cuda_put_signal(opaque, peers, dst_rank, channel, exec) : status;
}

/* This rank's slot is here, but a source that cannot reach it never puts. */
symmem_status cuda_guarded_wait_signal(void *opaque, const symmem_peers *peers, int32_t src_rank,
                                       int32_t channel, const symmem_exec *exec) {
    symmem_status status = check_pointer(opaque, peers, src_rank, "wait_signal");
    return status == SYMMEM_OK ? cuda_wait_signal(opaque, peers, src_rank, channel, exec) : status;
}

/* The word is here, or the core has refused it. The source's poison is read, too. */
symmem_status cuda_guarded_wait_value(void *opaque, const symmem_peers *peers,
                                      const symmem_value_wait *wait, const symmem_exec *exec) {
    symmem_status status = check_pointer(opaque, peers, wait->source, "wait_value");
    return status == SYMMEM_OK ? cuda_wait_value(opaque, peers, wait, exec) : status;
}

symmem_status cuda_guarded_signal_count(void *opaque, const symmem_peers *peers, int32_t dst_rank,
                                        int32_t channel, uint32_t count, const symmem_exec *exec) {
    symmem_status status = check_pointer(opaque, peers, dst_rank, "signal_count");
    return status == SYMMEM_OK ? cuda_signal_count(opaque, peers, dst_rank, channel, count, exec)
                               : status;
}

/* As for cuda_guarded_wait_signal. */
symmem_status cuda_guarded_wait_counts(void *opaque, const symmem_peers *peers, int32_t channel,
                                       const symmem_window_wait *counts, int32_t count_count,
                                       const symmem_exec *exec) {
    symmem_status status = SYMMEM_OK;
    for (int32_t i = 0; status == SYMMEM_OK && i < count_count; i++)
        status = check_pointer(opaque, peers, counts[i].rank, "wait_counts");
    return status == SYMMEM_OK ? cuda_wait_counts(opaque, peers, channel, counts, count_count, exec)
                               : status;
}

const symmem_signal_ops cuda_guarded_signal_ops = {
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
    .wait_value = cuda_guarded_wait_value,
    .count = cuda_guarded_signal_count,
    .wait_counts = cuda_guarded_wait_counts,
};
