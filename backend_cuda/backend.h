/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of the CUDA backend, its instance, and its description of devices. */
#ifndef SYMMEM_BACKEND_CUDA_BACKEND_H
#define SYMMEM_BACKEND_CUDA_BACKEND_H

#include "cuda_internal.h"

extern const symmem_backend cuda_table;
/* Its groups, of which the tables of other backends have some too. */
extern const symmem_instance_ops cuda_instance_ops;
extern const symmem_copy_ops cuda_copy_ops;
extern const symmem_stream_ops cuda_stream_ops;
extern const symmem_graph_ops cuda_graph_ops;
extern const symmem_collective_ops cuda_collective_ops;
extern const symmem_matmul_ops cuda_matmul_ops;
extern const symmem_topology_ops cuda_topology_ops;
void cuda_close_instance(void *instance);
symmem_status cuda_device_count(void *instance, int32_t *count_p);
symmem_status cuda_device_info(void *instance, int32_t device, symmem_device_info *info_p);
/* Frees everything that the instance has. */
void cuda_instance_end(cuda_instance *instance); /* backend.c */

#endif
