/* SPDX-License-Identifier: BSD-3-Clause */
/* Fabric handles: bytes by which the devices of one NVLink fabric, also on other hosts, access
 * memory. */
#ifndef SYMMEM_BACKEND_CUDA_FABRIC_H
#define SYMMEM_BACKEND_CUDA_FABRIC_H

#include "cuda_internal.h"

/* Called when the instance opens. Returns INVALID_ARGUMENT if the setting is neither on nor off. */
symmem_status cuda_fabric_read_setting(const cuda_instance *instance);
/* Returns whether memory of an open device can be requested with fabric handles. */
bool cuda_fabric_is_offered(cuda_instance *instance, int32_t device);
/* Returns whether a request with them that ended so should be repeated without. */
bool cuda_fabric_may_be_why(CUresult result);
/* Notes how the repeated request ended. If it succeeded the driver is not asked for handles again:
 * at once if it refused them, after several failures in a row if those may be temporary. */
void cuda_fabric_was_why(cuda_instance *instance, int32_t device, CUresult with, CUresult without);
void cuda_fabric_was_granted(cuda_instance *instance, int32_t device);
void cuda_fabric_export(const cuda_driver *driver, CUmemGenericAllocationHandle memory,
                        symmem_share *share);
/* PEER_ACCESS_UNSUPPORTED: it is of another fabric. */
CUresult cuda_fabric_import(const cuda_driver *driver, const symmem_share *share,
                            CUmemGenericAllocationHandle *memory_p);

#endif
