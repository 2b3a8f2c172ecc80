/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory as the driver maps it, own and imported: what the files about memory share. Mappings are
 * counted, and listed for the whole process, for its ranks share them.
 */
#ifndef SYMMEM_CUDA_MAPPING_H
#define SYMMEM_CUDA_MAPPING_H

#include "base/index.h"
#include "base/places.h"
#include "cuda_internal.h"

#define CUDA_PLACE_BYTES ((size_t)4096) /* places in a granule begin at multiples */

/* Where memory is from: the process that made it, and its number there. `secret`: what only those
 * know who were given the memory, so that nobody can name memory that was not shared with it. */
typedef struct cuda_origin {
    uint64_t process, number, secret;
} cuda_origin;

struct cuda_mapping {
    sm_index_node by_origin;
    sm_place by_address;
    cuda_origin from;
    CUuuid maker; /* the device whose memory it is */
    int32_t users;
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    size_t mapped_bytes;
    uint64_t devices;  /* bit d: device d has access */
    bool fabric;       /* own memory that other hosts may import */
    uint64_t series;   /* suballoc.c: of a granule; 0: none */
    size_t used_bytes; /* of a granule: given out in places */
    bool keeps_fd;     /* of a granule that is open */
    int fd;            /* what it keeps; -1: nothing yet */
};

/* mapping.c. The context is current. */

/* Own memory of mapping->mapped_bytes, known to nobody else; all zeros. `fabric`: with a fabric
 * handle if it can be had. NOT_READY: the zeros did not come in time. */
CUresult cuda_mapping_create(cuda_instance *instance, int32_t device, bool fabric,
                             cuda_mapping *mapping);
/* Of a handle that was imported; it is the mapping's if that succeeds. */
CUresult cuda_mapping_import(const cuda_driver *driver, CUmemGenericAllocationHandle handle,
                             int32_t device, cuda_mapping *mapping);
CUresult cuda_mapping_allow(const cuda_driver *driver, cuda_mapping *mapping, int32_t device);
/* Listed, with one user. */
void cuda_mapping_add_own(cuda_mapping *mapping);
void cuda_mapping_add_imported(cuda_mapping *mapping, cuda_origin from);
/* Own memory for another rank of this process, or what was imported before: with one user more.
 * NULL: it is not there, or of another size than the share says, beyond which nothing is to be
 * reached. */
cuda_mapping *cuda_mapping_find(cuda_origin from, size_t mapped_bytes);
/* Of memory in use here, with one user more. NULL: it is none of these. */
cuda_mapping *cuda_mapping_at(CUdeviceptr address);
void cuda_mapping_hold(cuda_mapping *mapping);
void cuda_mapping_drop(const cuda_driver *driver, cuda_mapping *mapping);
/* For what a stream still has to do with the memory: takes over one user until it is done, or for
 * good where there is no room to note it: false. */
bool cuda_mapping_leave(cuda_instance *instance, int32_t device, CUstream native,
                        cuda_mapping *mapping, const char *operation);
bool cuda_mapping_is_of(cuda_origin from); /* this process */
/* Takes a place of `bytes`, and one user more; false: it has no room. */
bool cuda_mapping_place(cuda_mapping *mapping, size_t bytes, size_t *offset_p);
/* For the caller to close. */
CUresult cuda_mapping_descriptor(const cuda_driver *driver, cuda_mapping *mapping, int *fd_p);
void cuda_mapping_forget_descriptor(cuda_mapping *mapping);
uint64_t cuda_mapping_new_series(void);

/* suballoc.c: small memory. *mapping_p NULL: there is no open granule with room. */
bool cuda_granules_are_used(const cuda_instance *instance);
void cuda_granule_take(cuda_instance *instance, int32_t device, size_t bytes, size_t *offset_p,
                       cuda_mapping **mapping_p);
/* Of granules of the driver's: how much the next one has. */
size_t cuda_granule_bytes(size_t driver_bytes);
/* `mapping`, of which nobody knows yet, becomes the open one, and is listed; `bytes` of it are
 * given out. */
void cuda_granule_open(cuda_instance *instance, int32_t device, cuda_mapping *mapping,
                       size_t bytes);

/* imports.c: another process's granule, which is imported. */
void cuda_imports_keep(cuda_instance *instance, int32_t device, cuda_mapping *mapping);

#endif
