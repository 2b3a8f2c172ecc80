/* SPDX-License-Identifier: BSD-3-Clause */
/* The clock of deadlines. */
#ifndef SYMMEM_BACKEND_CUDA_CLOCK_H
#define SYMMEM_BACKEND_CUDA_CLOCK_H

#include "cuda_internal.h"

uint64_t cuda_now_ns(void);
void cuda_sleep_ns(uint64_t ns);

#endif
