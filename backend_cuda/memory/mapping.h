/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory as the driver maps it, local and imported, for the files about memory. Mappings are
 * counted, and listed for the whole process, because its ranks share them.
 */
#ifndef SYMMEM_CUDA_MAPPING_H
#define SYMMEM_CUDA_MAPPING_H

#include "base/index.h"
#include "base/treap.h"
#include "cuda_internal.h"

#define CUDA_SUBALLOC_BYTES ((size_t)4096) /* allocations in a granule begin at multiples */

/* Where memory comes from: the process that made it, and its number there. `secret` is known only
 * to those who were given the memory, so that no process can name memory that was not shared with
 * it. */
typedef struct cuda_origin {
    uint64_t process, number, secret;
} cuda_origin;

struct cuda_mapping {
    sm_index_node by_origin;
    sm_treap_node by_address;
    cuda_origin from;
    CUuuid maker; /* the device of the memory */
    int32_t users;
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    size_t mapped_bytes;
    uint64_t devices;  /* bit d: device d has access */
    bool fabric;       /* local memory that other hosts may import */
    uint64_t series;   /* suballoc.c: of a granule; 0: none */
    size_t used_bytes; /* of a granule: allocated from it */
    bool keeps_fd;     /* of a granule that is open */
    int fd;            /* the descriptor that it keeps; -1: nothing yet */
};

/* mapping.c. The context is current. */

/* Makes local memory of mapping->mapped_bytes, all zeros and unknown to others. `fabric`: with a
 * fabric handle if possible. NOT_READY: the zeroing did not finish in time. */
CUresult cuda_mapping_create(cuda_instance *instance, int32_t device, bool fabric,
                             cuda_mapping *mapping);
/* Imports a handle. On success the mapping owns it. */
CUresult cuda_mapping_import(const cuda_driver *driver, CUmemGenericAllocationHandle handle,
                             int32_t device, cuda_mapping *mapping);
CUresult cuda_mapping_allow(const cuda_driver *driver, cuda_mapping *mapping, int32_t device);
/* Adds it to the list, with one user. */
void cuda_mapping_add_own(cuda_mapping *mapping);
void cuda_mapping_add_imported(cuda_mapping *mapping, cuda_origin from);
/* Finds the memory of another rank of this process, or memory imported before, and adds a user.
 * NULL: not found, or of another size than the share says. Nothing beyond that size may be
 * accessible. */
cuda_mapping *cuda_mapping_find(cuda_origin from, size_t mapped_bytes);
/* Finds memory in use here, and adds a user. NULL: not found. */
cuda_mapping *cuda_mapping_at(CUdeviceptr address);
void cuda_mapping_hold(cuda_mapping *mapping);
void cuda_mapping_drop(const cuda_driver *driver, cuda_mapping *mapping);
/* For work of a stream that still accesses the memory. Takes over one user until that is done.
 * Returns false if no entry can be allocated; then it keeps the user forever. */
bool cuda_mapping_leave(cuda_instance *instance, int32_t device, CUstream native,
                        cuda_mapping *mapping, const char *operation);
bool cuda_mapping_is_of(cuda_origin from); /* this process */
/* Allocates `bytes` from it, and adds a user. Returns false if it has too little left. */
bool cuda_mapping_place(cuda_mapping *mapping, size_t bytes, size_t *offset_p);
/* For the caller to close. */
CUresult cuda_mapping_descriptor(const cuda_driver *driver, cuda_mapping *mapping, int *fd_p);
void cuda_mapping_forget_descriptor(cuda_mapping *mapping);
uint64_t cuda_mapping_new_series(void);

/* suballoc.c: small allocations. *mapping_p NULL: no open granule has enough left. */
bool cuda_granules_are_used(const cuda_instance *instance);
void cuda_granule_take(cuda_instance *instance, int32_t device, size_t bytes, size_t *offset_p,
                       cuda_mapping **mapping_p);
/* Returns the size of the next granule, from the driver's granularity. */
size_t cuda_granule_bytes(size_t driver_bytes);
/* `mapping`, which no other thread knows, becomes the open granule and is listed. `bytes` of it are
 * allocated. */
void cuda_granule_open(cuda_instance *instance, int32_t device, cuda_mapping *mapping,
                       size_t bytes);

/* imports.c: another process's granule, which is imported. */
void cuda_imports_keep(cuda_instance *instance, int32_t device, cuda_mapping *mapping);

/* For a device's memory that is requested from the driver. */
CUmemAllocationProp cuda_memory_property(int32_t device, bool fabric);

#endif
