/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fabric handles: bytes by which the devices of one NVLink fabric, of other hosts too, reach
 * memory. A device may say that it could have them and its driver refuse them all the same, where
 * no service for them runs (IMEX): memory is then shared by descriptors only, within a host.
 */
#include <stdlib.h>
#include <string.h>

#include "cuda_internal.h"

enum { NOT_ASKED, OFFERED, REFUSED };

_Static_assert(sizeof(CUmemFabricHandle) <= sizeof(((symmem_share *)0)->more_bytes),
               "it has to fit");

static int ask(const cuda_instance *instance, int32_t index) {
    const char *setting = secure_getenv("SYMMEM_CUDA_FABRIC");
    int supported = 0;
    if ((setting != NULL && strcmp(setting, "0") == 0) ||
        instance->driver.DeviceGetAttribute(&supported,
                                            CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED,
                                            instance->devices[index].id) != CUDA_SUCCESS)
        return REFUSED;
    return supported != 0 ? OFFERED : REFUSED;
}

bool cuda_fabric_is_offered(cuda_instance *instance, int32_t index) {
    cuda_device *device = &instance->devices[index];
    if (atomic_load(&device->fabric) == NOT_ASKED)
        atomic_store(&device->fabric, ask(instance, index));
    return atomic_load(&device->fabric) == OFFERED;
}

bool cuda_fabric_may_be_why(CUresult result) {
    return result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY;
}

/* What fails without them as well, for want of descriptors say, passes. */
void cuda_fabric_was_why(cuda_instance *instance, int32_t index, CUresult without) {
    if (without == CUDA_SUCCESS)
        atomic_store(&instance->devices[index].fabric, REFUSED);
}

/* Without them there is still the descriptor. */
void cuda_fabric_export(const cuda_driver *driver, CUmemGenericAllocationHandle memory,
                        symmem_share *share) {
    CUmemFabricHandle handle;
    if (driver->MemExportToShareableHandle(&handle, memory, CU_MEM_HANDLE_TYPE_FABRIC, 0) !=
        CUDA_SUCCESS)
        return;
    memcpy(share->more_bytes, &handle, sizeof handle);
    share->kind |= SYMMEM_SHARE_BYTES;
}

/* What drivers may answer to a handle of another fabric. */
static bool is_of_another(CUresult result) {
    return result == CUDA_ERROR_NOT_PERMITTED || result == CUDA_ERROR_NOT_SUPPORTED ||
           result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_INVALID_HANDLE ||
           result == CUDA_ERROR_SYSTEM_NOT_READY;
}

CUresult cuda_fabric_import(const cuda_driver *driver, const symmem_share *share,
                            CUmemGenericAllocationHandle *memory_p) {
    CUmemFabricHandle handle;
    memcpy(&handle, share->more_bytes, sizeof handle);
    CUresult result =
        driver->MemImportFromShareableHandle(memory_p, &handle, CU_MEM_HANDLE_TYPE_FABRIC);
    return is_of_another(result) ? CUDA_ERROR_PEER_ACCESS_UNSUPPORTED : result;
}
