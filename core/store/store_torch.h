/* SPDX-License-Identifier: BSD-3-Clause */
/* The store that torchrun's agent serves at MASTER_ADDR and MASTER_PORT: it carries the place of
 * rank 0's store. */
#ifndef SYMMEM_CORE_STORE_TORCH_H
#define SYMMEM_CORE_STORE_TORCH_H

#include "base/base.h"

/* Whether torchrun started this process, and its agent serves a store. */
bool sm_torch_offered(void);
/* Whether the variables say that all of the job is on this host. */
bool sm_torch_is_local(int32_t world_size);
/* What rank 0 publishes under the key of this job and this start of it, until the deadline. */
symmem_status sm_torch_look_up(const char *key, char *text, size_t capacity, uint64_t deadline_ns);
symmem_status sm_torch_publish(const char *key, const char *text, uint64_t deadline_ns);

#endif
