/* SPDX-License-Identifier: BSD-3-Clause */
/* Captures that the program began. */
#ifndef SYMMEM_BACKEND_CUDA_FOREIGN_CAPTURE_H
#define SYMMEM_BACKEND_CUDA_FOREIGN_CAPTURE_H

#include "cuda_internal.h"

/* As cuda_capture_id, before anything is captured that needs something. A capture that this library
 * did not begin is tracked from now on. The context is current. */
symmem_status cuda_capture_join(cuda_instance *instance, const symmem_exec *exec,
                                const char *operation, uint64_t *id_p);
/* Reports failures of launches, and frees what belonged to graphs that are gone. True: something
 * that existed at begin_ns is still to be reported. `collecting` is held. */
bool cuda_foreign_captures_check(cuda_instance *instance, uint64_t begin_ns);
/* Frees all. No other thread uses the instance. */
void cuda_foreign_captures_close(cuda_instance *instance);

#endif
