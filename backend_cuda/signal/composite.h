/* SPDX-License-Identifier: BSD-3-Clause */
/* Steps of composite operations, on streams. */
#ifndef SYMMEM_BACKEND_CUDA_COMPOSITE_H
#define SYMMEM_BACKEND_CUDA_COMPOSITE_H

#include "cuda_internal.h"

/* On the device: the state that the operation's steps read. */
symmem_cuda_state *cuda_state_of(const symmem_composite *composite);
/* Before every step. The first one begins the operation anew. */
CUresult cuda_composite_begin(const cuda_instance *instance, const symmem_exec *exec,
                              CUstream native);
/* For work that failed after only this was enqueued. It may run after the handle is gone, and keeps
 * that until then. Otherwise frees the entry. NULL: the stream captures. */
void cuda_composite_end_failed(cuda_instance *instance, cuda_pending *pending,
                               const symmem_exec *exec, const char *operation);
/* Copies memory that the device sees, unless a step has failed. */
CUresult cuda_composite_move(const cuda_instance *instance, const symmem_exec *exec,
                             CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream native);
/* Returns how many blocks move that many bytes. */
unsigned int cuda_blocks_for(size_t bytes);

#endif
