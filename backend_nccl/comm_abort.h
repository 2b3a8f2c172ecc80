/* SPDX-License-Identifier: BSD-3-Clause */
/* Aborts of communicators, which may take long. */
#ifndef SYMMEM_BACKEND_NCCL_COMM_ABORT_H
#define SYMMEM_BACKEND_NCCL_COMM_ABORT_H

#include "nccl_internal.h"

/* Waits for it until until_ns; 0: not at all. */
void nccl_comm_abort_begin(cuda_instance *instance, nccl_comm *comm, uint64_t until_ns);
/* Waits for all of them. An abort that begins later runs in its caller. */
void nccl_comm_aborts_finish(cuda_instance *instance);

#endif
