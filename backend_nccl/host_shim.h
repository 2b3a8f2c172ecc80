/* SPDX-License-Identifier: BSD-3-Clause */
/* Failpoints carry their backend's name, and the suite relies on that. */
#ifndef SYMMEM_BACKEND_NCCL_HOST_SHIM_H
#define SYMMEM_BACKEND_NCCL_HOST_SHIM_H

#include "nccl_internal.h"

void nccl_host_init(nccl_host *own, const symmem_host *cores);

#endif
