/* SPDX-License-Identifier: BSD-3-Clause */
/* The choice of a collective's algorithm. */
#ifndef SYMMEM_BACKEND_CUDA_ALGORITHM_H
#define SYMMEM_BACKEND_CUDA_ALGORITHM_H

#include "cuda/collective.h"
#include "cuda/collective_job.h"

typedef struct cuda_choice {
    symmem_cuda_algorithm algorithm;
    unsigned int blocks;          /* 0: each step has its own number */
    symmem_cuda_ll_choice rounds; /* of LL */
} cuda_choice;

/* Chooses from values that are the same on all ranks. `part_bytes` is what comes to this rank in an
 * all-to-all, and 0 in any other collective. */
cuda_choice cuda_choose(const symmem_cuda_job *job, const symmem_cuda_terms *terms,
                        size_t part_bytes);

#endif
