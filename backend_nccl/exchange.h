/* SPDX-License-Identifier: BSD-3-Clause */
/* One collective registration. */
#ifndef SYMMEM_BACKEND_NCCL_EXCHANGE_H
#define SYMMEM_BACKEND_NCCL_EXCHANGE_H

#include "nccl_internal.h"

symmem_status nccl_memory_exchange(void *instance, void *group, symmem_memory *own,
                                   const symmem_exchange *exchange, symmem_memory *peers);

#endif
