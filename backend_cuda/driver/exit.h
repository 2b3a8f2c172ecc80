/* SPDX-License-Identifier: BSD-3-Clause */
/* Delays the process's end by exit for work on the backend's own threads or on a thread that
 * closes an instance. */
#ifndef SYMMEM_BACKEND_CUDA_EXIT_H
#define SYMMEM_BACKEND_CUDA_EXIT_H

#include "cuda_internal.h"

/* Called each time that a library was loaded, because what is registered last runs first. */
void cuda_await_at_exit(void);
/* Brackets work of the backend's own threads. False: the process ends, and the thread does nothing
 * and does not call cuda_busy_end. */
bool cuda_busy_begin(void);
void cuda_busy_end(void);

#endif
