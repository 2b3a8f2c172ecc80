/* SPDX-License-Identifier: BSD-3-Clause */
/* A product whose input does not arrive. */
#ifndef SYMMEM_BACKEND_CUDA_CHUNK_WAIT_H
#define SYMMEM_BACKEND_CUDA_CHUNK_WAIT_H

#include "cuda_internal.h"

/* As cuda_take_fault, for an operation without peers. */
symmem_status cuda_take_chunk_fault(const cuda_signal_op *signal, symmem_error_record *record_p);
/* Tells the device that its chunk waits are canceled (cancel) or count again (allow). */
void cuda_cancel_chunk_waits(const cuda_signal_op *signal);
void cuda_allow_chunk_waits(const cuda_signal_op *signal);

#endif
