/* SPDX-License-Identifier: BSD-3-Clause */
/* Waits for values, and counted signals, by one small kernel each. */
#include "signal/window.h"

#include "signal/signal.h"

/* A wait for a value. */
typedef struct value_launch {
    cuda_launch launch; /* first: enqueue_value gets this */
    const symmem_value_wait *wait;
} value_launch;

_Static_assert(SYMMEM_CUDA_EQ == (int)SYMMEM_EQ && SYMMEM_CUDA_NE == (int)SYMMEM_NE &&
                   SYMMEM_CUDA_GT == (int)SYMMEM_GT && SYMMEM_CUDA_GE == (int)SYMMEM_GE &&
                   SYMMEM_CUDA_LT == (int)SYMMEM_LT && SYMMEM_CUDA_LE == (int)SYMMEM_LE,
               "the kernel compares as the library says");

static CUresult enqueue_value(cuda_instance *instance, cuda_launch *launch, CUstream native) {
    const symmem_value_wait *wait = ((const value_launch *)launch)->wait;
    symmem_cuda_value_args args = {.signal = launch->args,
                                   .word = wait->word,
                                   .value = wait->value,
                                   .bytes = wait->bytes,
                                   .compare = (int32_t)wait->compare};
    return cuda_launch_kernel(instance, launch->kernel, 1, launch->threads, &args, native);
}

symmem_status cuda_wait_value(void *opaque, const symmem_peers *peers,
                              const symmem_value_wait *wait, const symmem_exec *exec) {
    cuda_instance *instance = opaque;
    symmem_exec with_call = *exec; /* for the record of a failure */
    value_launch value = {.wait = wait,
                          .launch = {.enqueue = enqueue_value,
                                     .kernel = instance->devices[peers->device].kernels.wait_value,
                                     .threads = 32,
                                     .signal = {.operation = "wait_value"}}};
    with_call.call = (symmem_call_id){.kind = SYMMEM_CALL_WAIT_VALUE,
                                      .dtype = wait->bytes == 8 ? SYMMEM_UINT64 : SYMMEM_UINT32,
                                      .op = (uint16_t)wait->compare,
                                      .count = wait->value};
    return cuda_launch_run(instance, peers, wait->source, -1, &with_call, &value.launch);
}

/* --- counted signals ---------------------------------------------------------------- */

typedef struct counts_launch {
    cuda_launch launch; /* first: enqueue_counts gets this */
    const symmem_window_wait *list;
    int32_t list_count;
} counts_launch;

_Static_assert(SYMMEM_WINDOW_PEERS == SYMMEM_CUDA_COUNT_PEERS, "the kernel takes a whole list");

static CUresult enqueue_counts(cuda_instance *instance, cuda_launch *launch, CUstream native) {
    const counts_launch *own = (const counts_launch *)launch;
    const symmem_peers *peers = launch->signal.peers;
    const cuda_peers *priv = peers->priv;
    symmem_cuda_counts_args args = {.signal = launch->args,
                                    .counts_at = symmem_cuda_counts_at(
                                        peers->world_size, peers->channel_count, priv->block_bytes),
                                    .list_count = own->list_count};
    for (int32_t i = 0; i < own->list_count; i++) {
        args.list[i].rank = own->list[i].rank;
        args.list[i].count = own->list[i].count;
    }
    return cuda_launch_kernel(instance, launch->kernel, 1, launch->threads, &args, native);
}

symmem_status cuda_signal_count(void *opaque, const symmem_peers *peers, int32_t dst_rank,
                                int32_t channel, uint32_t count, const symmem_exec *exec) {
    cuda_instance *instance = opaque;
    const symmem_window_wait given = {.rank = dst_rank, .count = count};
    counts_launch own = {.list = &given,
                         .list_count = 1,
                         .launch = {.enqueue = enqueue_counts,
                                    .kernel = instance->devices[peers->device].kernels.signal_count,
                                    .threads = 32,
                                    .signal = {.operation = "signal_count"}}};
    return cuda_launch_run(instance, peers, dst_rank, channel, exec, &own.launch);
}

symmem_status cuda_wait_counts(void *opaque, const symmem_peers *peers, int32_t channel,
                               const symmem_window_wait *counts, int32_t count_count,
                               const symmem_exec *exec) {
    cuda_instance *instance = opaque;
    counts_launch own = {.list = counts,
                         .list_count = count_count,
                         .launch = {.enqueue = enqueue_counts,
                                    .kernel = instance->devices[peers->device].kernels.wait_counts,
                                    .threads = 32,
                                    .signal = {.operation = "wait_counts"}}};
    return cuda_launch_run(instance, peers, -1, channel, exec, &own.launch);
}
