/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The suite's engine as one that makes progress inside calls only, as MPI libraries do: what is put
 * to a rank, and what is asked of it, waits in a queue until that rank is in a call. The queues of
 * a rank lie in its file, behind its heap.
 */
#ifndef SUITE_INSIDE_H
#define SUITE_INSIDE_H

#include <symmem/backend.h>

typedef struct inside inside;

/* Of one rank's queues, zero at the start. */
size_t inside_bytes(int32_t world_size);
/* heaps: of all ranks, as mapped here, each with its queues. NULL: no memory. */
inside *inside_open(const symmem_host *host, int32_t rank, int32_t world_size, char *const *heaps,
                    size_t heap_bytes);
/* What has not left yet is given up. Accepts NULL. */
void inside_close(inside *self);

/* As the entries of the group reach. */
symmem_status inside_put(inside *self, const symmem_place *to, const void *src, size_t bytes,
                         const symmem_exec *exec);
symmem_status inside_get(inside *self, const symmem_place *from, void *dst, size_t bytes,
                         const symmem_exec *exec);
symmem_status inside_write(inside *self, const symmem_place *to, uint32_t value);
symmem_status inside_quiet(inside *self, const symmem_peers *peers, const symmem_exec *exec);
void inside_progress(inside *self);

#endif
