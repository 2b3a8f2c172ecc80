/* SPDX-License-Identifier: BSD-3-Clause */
/* For backends whose memory the CPU reads and writes: the group copy, and devices that are no more
 * than places for memory. Independent of the instance. */
#ifndef SYMMEM_KIT_HOST_MEMORY_H
#define SYMMEM_KIT_HOST_MEMORY_H

#include <symmem/backend.h>

extern const symmem_copy_ops symmem_kit_host_copy;

/* instance->device_count: one for each rank that there can be. */
symmem_status symmem_kit_host_devices(void *instance, int32_t *count_p);
/* instance->device_info of a CPU. */
symmem_status symmem_kit_host_device(void *instance, int32_t device, symmem_device_info *info_p);

#endif
