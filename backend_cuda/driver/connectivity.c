/* SPDX-License-Identifier: BSD-3-Clause */
/* Links between the devices of this process. */
#include <string.h>

#include "driver/connectivity.h"
#include "driver/error.h"
#include "driver/nvml.h"

static CUresult find_place(const cuda_driver *driver, int32_t index, cuda_pci_address *place) {
    const struct {
        CUdevice_attribute attribute;
        uint32_t *number;
    } parts[] = {
        {CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, &place->domain},
        {CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, &place->bus},
        {CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, &place->device},
    };
    CUdevice device;
    CUresult result = driver->DeviceGet(&device, index);
    for (size_t i = 0; result == CUDA_SUCCESS && i < sizeof parts / sizeof parts[0]; i++) {
        int number = 0;
        result = driver->DeviceGetAttribute(&number, parts[i].attribute, device);
        *parts[i].number = (uint32_t)number;
    }
    return result;
}

symmem_status cuda_connectivity(void *opaque, const char *connection, int32_t device_count,
                                int32_t *matrix) {
    const cuda_instance *instance = opaque;
    const symmem_host *host = instance->host;
    cuda_pci_address places[CUDA_MAX_DEVICES];
    char reason[200];

    if (strcmp(connection, "nvlink") != 0)
        return host->fail(host, SYMMEM_NOT_FOUND, 0, "connectivity", "no links of kind '%.40s'",
                          connection);
    for (int32_t i = 0; i < device_count; i++) {
        CUresult result = find_place(&instance->driver, i, &places[i]);
        if (result != CUDA_SUCCESS)
            return cuda_fail(instance, result, "connectivity");
    }
    if (cuda_nvml_links(CUDA_NVML_LIBRARY, device_count, places, matrix, reason, sizeof reason))
        return SYMMEM_OK;
    return host->fail(host, SYMMEM_UNSUPPORTED, 0, "connectivity", "%s", reason);
}
