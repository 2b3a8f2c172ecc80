/* SPDX-License-Identifier: BSD-3-Clause */
/* NVLinks between devices, as the driver's management library reports them. Needs none of its
 * headers. */
#ifndef SYMMEM_CUDA_NVML_H
#define SYMMEM_CUDA_NVML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CUDA_NVML_LIBRARY "libnvidia-ml.so.1"

/* The PCI address of a device, by which the driver and the management library both know it. */
typedef struct cuda_pci_address {
    uint32_t domain, bus, device;
} cuda_pci_address;

/*
 * matrix[i * count + j] gets the links by which devices i and j reach each other. Direct links
 * count. Links to switches count up to the smaller number of the two devices, because every device
 * behind the switches reaches every other. Returns false with a reason, and writes nothing, if the
 * library is missing or does not know a device. The library is opened for the length of the call.
 */
bool cuda_nvml_links(const char *library, int32_t count, const cuda_pci_address *places,
                     int32_t *matrix, char *reason, size_t capacity);

#endif
