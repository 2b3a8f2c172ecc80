/* SPDX-License-Identifier: BSD-3-Clause */
/* Captured graphs, and what they hold: references, and where their kernels report failures. */
#ifndef SYMMEM_BACKEND_CUDA_GRAPH_H
#define SYMMEM_BACKEND_CUDA_GRAPH_H

#include "cuda_internal.h"

symmem_status cuda_capture_begin(void *instance, void *stream);
symmem_status cuda_capture_end(void *instance, void *stream, void **graph_p);
/* CUDA_BROKEN_CAPTURE: it can only be ended. */
#define CUDA_BROKEN_CAPTURE UINT64_MAX
/* One of whatever context is current. */
bool cuda_is_default_stream(CUstream native);
/* The context is current. */
CUresult cuda_capture_ask(const cuda_driver *driver, CUstream native, uint64_t *id_p);
symmem_status cuda_capture_id(void *instance, void *stream, uint64_t *id_p);
symmem_status cuda_graph_launch(void *instance, void *graph, void *stream);
void cuda_graph_destroy(void *instance, void *graph);
void cuda_graph_drop(cuda_instance *instance, cuda_graph *graph);
/* As cuda_pending_add, for a stream that captures. */
symmem_status cuda_captured_add(cuda_instance *instance, cuuint64_t id, const symmem_exec *exec,
                                const cuda_needs *needs, const char *operation);
/* Keeps what an operation captured before it failed, because the program may still launch the
 * graph. The record of that failure stays. */
void cuda_captured_rest(cuda_instance *instance, cuuint64_t id, const symmem_exec *exec);
void cuda_captured_free(cuda_captured *held);
/* One of this library or a foreign one. NULL: not known. The instance's lock is held. */
cuda_capture *cuda_capture_find(const cuda_instance *instance, cuuint64_t id);

#endif
