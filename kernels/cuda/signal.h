/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the host and the kernels of signal.cu share: the layout of a rank's signal state, and the
 * form in which a kernel is started and tells of a failure. Plain C and CUDA C++ alike.
 *
 * A rank's signal state, words of 32 bits and 0 at the start:
 *   header   64 bytes; the first word is not 0 once the owner's state is poisoned
 *   slots    [channel][source]  0 or 1: put by `source`, consumed by the owner
 *   arrivals [channel][source]  the epoch of the last barrier that `source` entered
 *   epochs   [channel]          the owner's own count of barriers; nobody else touches it
 *   calls    [channel][2]       what the owner calls in its last two barriers
 * The epoch lives here and never in an argument, so that a captured barrier can be replayed. It
 * wraps; differences are compared.
 */
#ifndef SYMMEM_KERNELS_CUDA_SIGNAL_H
#define SYMMEM_KERNELS_CUDA_SIGNAL_H

#include <stddef.h>
#include <stdint.h>

#define SYMMEM_CUDA_HEADER_BYTES 64
#define SYMMEM_CUDA_MAX_RANKS 1024
#define SYMMEM_CUDA_CALL_WORDS 6 /* a symmem_call_id */
#define SYMMEM_CUDA_MAX_THREADS 1024

/* In host memory that the device can write. `code` is a symmem_status, negated; 0: no failure. */
typedef struct symmem_cuda_fault {
    uint32_t code;
    int32_t failed_rank;
    uint64_t elapsed_ns;
    uint64_t actual;
    uint32_t missing[SYMMEM_CUDA_MAX_RANKS / 32];
    uint32_t other[SYMMEM_CUDA_CALL_WORDS];
} symmem_cuda_fault;

/* In host memory that the device can read: what a waiting kernel cannot find out itself. */
typedef struct symmem_cuda_control {
    uint32_t poisoned;                         /* of this rank, as its host knows it */
    uint32_t gone[SYMMEM_CUDA_MAX_RANKS / 32]; /* bit r: the process of group rank r has ended */
} symmem_cuda_control;

typedef struct symmem_cuda_signal_args {
    void *const *signals; /* every rank's signal state; the device reads the table */
    symmem_cuda_fault *fault;
    const symmem_cuda_control *control;
    int32_t rank;
    int32_t world_size;
    int32_t channel_count;
    int32_t channel;
    int32_t peer;        /* put, wait */
    uint32_t timeout_ms; /* 0: no limit */
    uint32_t call[SYMMEM_CUDA_CALL_WORDS];
} symmem_cuda_signal_args;

/* Byte offsets in a rank's signal state. */
#ifdef __CUDACC__
#define SYMMEM_CUDA_BOTH static __host__ __device__ inline
#else
#define SYMMEM_CUDA_BOTH static inline
#endif

SYMMEM_CUDA_BOTH size_t symmem_cuda_slot_at(int32_t world_size, int32_t channel, int32_t source) {
    return SYMMEM_CUDA_HEADER_BYTES +
           sizeof(uint32_t) * ((size_t)channel * (size_t)world_size + (size_t)source);
}

SYMMEM_CUDA_BOTH size_t symmem_cuda_arrival_at(int32_t world_size, int32_t channel_count,
                                               int32_t channel, int32_t source) {
    return symmem_cuda_slot_at(world_size, channel_count + channel, source);
}

SYMMEM_CUDA_BOTH size_t symmem_cuda_epoch_at(int32_t world_size, int32_t channel_count,
                                             int32_t channel) {
    return symmem_cuda_slot_at(world_size, 2 * channel_count, 0) +
           sizeof(uint32_t) * (size_t)channel;
}

/* Two calls by turns: who writes the one again has met everybody since, and so after they read it.
 */
SYMMEM_CUDA_BOTH size_t symmem_cuda_call_at(int32_t world_size, int32_t channel_count,
                                            int32_t channel, uint32_t epoch) {
    return symmem_cuda_epoch_at(world_size, channel_count, channel_count) +
           sizeof(uint32_t) * SYMMEM_CUDA_CALL_WORDS * (2 * (size_t)channel + epoch % 2);
}

SYMMEM_CUDA_BOTH size_t symmem_cuda_signal_size(int32_t world_size, int32_t channel_count) {
    return symmem_cuda_call_at(world_size, channel_count, channel_count, 0);
}

#endif
