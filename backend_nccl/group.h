/* SPDX-License-Identifier: BSD-3-Clause */
/* Groups: the communicators that a group of ranks shares. */
#ifndef SYMMEM_BACKEND_NCCL_GROUP_H
#define SYMMEM_BACKEND_NCCL_GROUP_H

#include "nccl_internal.h"

symmem_status nccl_group_open(void *instance, const symmem_exchange *exchange, int32_t device,
                              void **group_p);
void nccl_group_close(void *instance, void *group);

#endif
