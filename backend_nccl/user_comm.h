/* SPDX-License-Identifier: BSD-3-Clause */
/* Communicators that the user handed in. */
#ifndef SYMMEM_BACKEND_NCCL_USER_COMM_H
#define SYMMEM_BACKEND_NCCL_USER_COMM_H

#include "nccl_internal.h"

/* Local. Adopts the user's communicator, for any device. */
symmem_status nccl_comm_adopt(cuda_instance *instance, const symmem_exchange *exchange,
                              nccl_comm **comm_p);
symmem_status nccl_communicator_check(void *instance, void *communicator, int32_t rank,
                                      int32_t world_size);

#endif
