/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks for free descriptors. */
#ifndef SYMMEM_BACKEND_NCCL_FD_BUDGET_H
#define SYMMEM_BACKEND_NCCL_FD_BUDGET_H

#include "nccl_internal.h"

/* What a registration needs, and a communicator with its first registration. */
int32_t nccl_window_descriptors(int32_t world_size);
int32_t nccl_comm_descriptors(int32_t world_size);
/* Returns whether the process may open `count` more. */
bool nccl_has_descriptors(int32_t count);
symmem_status nccl_lacks_descriptors(const cuda_instance *instance);
/* Keep and restore the program's limit of descriptors around what may raise it. Calls may nest. */
void nccl_fd_limit_keep(void);
void nccl_fd_limit_restore(void);

#endif
