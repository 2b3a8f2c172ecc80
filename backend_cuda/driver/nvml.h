/* SPDX-License-Identifier: BSD-3-Clause */
/* NVLinks between devices, as the driver's management library tells. Needs none of its headers. */
#ifndef SYMMEM_CUDA_NVML_H
#define SYMMEM_CUDA_NVML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CUDA_NVML_LIBRARY "libnvidia-ml.so.1"

/* Where a device is on the PCI bus: what the driver and the management library both know it by. */
typedef struct cuda_place {
    uint32_t domain, bus, device;
} cuda_place;

/*
 * matrix[i * count + j]: the links by which devices i and j reach each other, direct ones and, as
 * every device behind the switches reaches every other, as many to switches as both have. False
 * with a reason, and nothing written, where the library is not there or does not know a device.
 * The library is opened for the length of the call.
 */
bool cuda_nvml_links(const char *library, int32_t count, const cuda_place *places, int32_t *matrix,
                     char *reason, size_t capacity);

#endif
