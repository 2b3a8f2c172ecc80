/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * PMIx, the service of mpirun, prterun and srun by which the processes of a job find each other: it
 * carries the place of rank 0's store. The library is found at run time. It is initialized while
 * some store needs it, and has a thread of its own then, which takes no signals.
 */
#ifndef SYMMEM_CORE_STORE_PMIX_H
#define SYMMEM_CORE_STORE_PMIX_H

#include "base/base.h"

/* Whether a launcher offers PMIx to this process and the library is here. */
bool sm_pmix_offered(void);
/* Begins to use it; each success is followed by one end. *is_local_p: all of the job is on this
 * host. INVALID_ARGUMENT: PMIx tells another rank or size. UNSUPPORTED: no library, or none that
 * has what is needed, or no launcher. */
symmem_status sm_pmix_begin(int32_t rank, int32_t world_size, uint64_t deadline_ns,
                            bool *is_local_p);
void sm_pmix_end(void);
/* What rank 0 has published under the key, which it may do until the deadline. */
symmem_status sm_pmix_look_up(const char *key, char *text, size_t capacity, uint64_t deadline_ns);
symmem_status sm_pmix_publish(const char *key, const char *text, uint64_t deadline_ns);

#endif
