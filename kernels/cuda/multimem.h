/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the host and the kernels of multimem.cu share. It compiles as C and as CUDA C++.
 *
 * These kernels have never run on hardware. No build includes them unless asked to, see
 * backend_cuda/README.md.
 */
#ifndef SYMMEM_KERNELS_CUDA_MULTIMEM_H
#define SYMMEM_KERNELS_CUDA_MULTIMEM_H

#include "cuda/reduce_element.h"

#define SYMMEM_MULTIMEM_LINE 16 /* bytes: the most that one instruction loads or stores */
#define SYMMEM_MULTIMEM_THREADS 512

/* What multimem.ld_reduce has instructions for. */
typedef enum symmem_multimem_type {
    SYMMEM_MULTIMEM_NONE = 0,
    SYMMEM_MULTIMEM_F16,
    SYMMEM_MULTIMEM_BF16,
    SYMMEM_MULTIMEM_F32,
    SYMMEM_MULTIMEM_F64,
    SYMMEM_MULTIMEM_S32,
    SYMMEM_MULTIMEM_U32,
    SYMMEM_MULTIMEM_S64,
    SYMMEM_MULTIMEM_U64,
} symmem_multimem_type;

/* An address in every rank's buffer. */
typedef struct symmem_multimem_address {
    char *multicast;      /* its multicast address */
    void *const *buffers; /* each rank's; the device reads the table */
    size_t offset;        /* of the address, in each buffer */
    int32_t world_size;
} symmem_multimem_address;

typedef struct symmem_multimem_store_args {
    symmem_multimem_address to;
    const char *from;
    size_t bytes;
    const symmem_cuda_state *state; /* of the composite operation; NULL: none */
} symmem_multimem_store_args;

typedef struct symmem_multimem_reduce_args {
    symmem_multimem_address from;
    char *to; /* NULL: back to the source address, on every rank */
    size_t count;
    int32_t type; /* symmem_multimem_type */
    int32_t op;
    const symmem_cuda_state *state;
} symmem_multimem_reduce_args;

SYMMEM_CUDA_BOTH size_t symmem_multimem_element(int32_t type) {
    if (type == SYMMEM_MULTIMEM_F16 || type == SYMMEM_MULTIMEM_BF16)
        return 2;
    return type == SYMMEM_MULTIMEM_F32 || type == SYMMEM_MULTIMEM_S32 || type == SYMMEM_MULTIMEM_U32
               ? 4
               : 8;
}

/*
 * True for the pairs of type and op that the instructions reduce as the contracts require. Not so:
 *   8 and 16-bit integers           no instructions
 *   minima and maxima of floats     none for 32 and 64 bits; for 16 bits the result for NaNs is not
 *                                   documented
 *   averages of 16-bit floats       the sum would be rounded, or infinite where the average is not
 */
SYMMEM_CUDA_BOTH int symmem_multimem_reduces(int32_t type, int32_t op) {
    switch (type) {
    case SYMMEM_MULTIMEM_F16:
    case SYMMEM_MULTIMEM_BF16:
        return op == SYMMEM_CUDA_SUM;
    case SYMMEM_MULTIMEM_F32:
    case SYMMEM_MULTIMEM_F64:
        return op == SYMMEM_CUDA_SUM || op == SYMMEM_CUDA_AVG;
    case SYMMEM_MULTIMEM_S32:
    case SYMMEM_MULTIMEM_U32:
    case SYMMEM_MULTIMEM_S64:
    case SYMMEM_MULTIMEM_U64:
        return op == SYMMEM_CUDA_SUM || op == SYMMEM_CUDA_MIN || op == SYMMEM_CUDA_MAX;
    default:
        return 0;
    }
}

#endif
