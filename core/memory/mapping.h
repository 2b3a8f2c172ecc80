/* SPDX-License-Identifier: BSD-3-Clause */
/* One rank's view of all ranks' memory of one allocation, for one group. */
#ifndef SYMMEM_CORE_MAPPING_H
#define SYMMEM_CORE_MAPPING_H

#include "memory/alloc.h"
#include "memory/group.h"

#define SM_RENDEZVOUS "rendezvous" /* the public call, in records */

typedef struct sm_mapping {
    sm_cached cached; /* in allocation->mappings */
    atomic_int references;
    sm_allocation *allocation; /* counted */
    uint64_t generation; /* of the rendezvous that made it: the peers' memory is of that time */
    int32_t rank, world_size;
    symmem_memory *peers; /* [rank]: see mapping.c */
    void **buffers;
} sm_mapping;
void sm_mapping_release(sm_mapping *mapping);
symmem_status sm_mapping_create(sm_allocation *allocation, const symmem_group *group,
                                sm_mapping **mapping_p);
void sm_mapping_retain(sm_mapping *mapping);
/* Fills in the pointers that `peers` has by now. */
void sm_mapping_fill(sm_mapping *mapping);
/* Whether a backend has filled in the memory. */
bool sm_memory_exists(const symmem_memory *memory);

#endif
