/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fabric handles: bytes by which the devices of one NVLink fabric, also on other hosts, access
 * memory. A device may offer them while its driver refuses them, because the service for them
 * (IMEX) does not run. Then memory is shared by descriptors only, within a host.
 */
#include <stdlib.h>
#include <string.h>

#include "driver/fabric.h"

/* After this many failures in a row, a failure that may be temporary is taken as permanent. */
#define MOST_FAILURES 8

enum { NOT_ASKED, OFFERED, REFUSED };

_Static_assert(sizeof(CUmemFabricHandle) <= sizeof(((symmem_share *)0)->more_bytes),
               "it has to fit");

symmem_status cuda_fabric_read_setting(const cuda_instance *instance) {
    const char *setting = secure_getenv("SYMMEM_CUDA_FABRIC");
    if (setting == NULL || setting[0] == '\0' || strcmp(setting, "0") == 0 ||
        strcmp(setting, "1") == 0)
        return SYMMEM_OK;
    return instance->host->fail(instance->host, SYMMEM_INVALID_ARGUMENT, 0, "open",
                                "SYMMEM_CUDA_FABRIC=\"%.60s\" is neither 0 nor 1", setting);
}

/* Returns whether the error says that there are no fabric handles, now and later. */
static bool is_refusal(CUresult result) {
    return result == CUDA_ERROR_NOT_PERMITTED || result == CUDA_ERROR_NOT_SUPPORTED ||
           result == CUDA_ERROR_INVALID_VALUE;
}

static int ask_for_fabric(const cuda_instance *instance, int32_t index) {
    const char *setting = secure_getenv("SYMMEM_CUDA_FABRIC");
    int supported = 0;
    if (setting != NULL && strcmp(setting, "0") == 0)
        return REFUSED;
    CUresult result = instance->driver.DeviceGetAttribute(
        &supported, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, instance->devices[index].id);
    if (result != CUDA_SUCCESS)
        return is_refusal(result) ? REFUSED : NOT_ASKED;
    return supported != 0 ? OFFERED : REFUSED;
}

bool cuda_fabric_is_offered(cuda_instance *instance, int32_t index) {
    cuda_device *device = &instance->devices[index];
    int unasked = NOT_ASKED;
    if (atomic_load(&device->fabric) == NOT_ASKED)
        (void)atomic_compare_exchange_strong(&device->fabric, &unasked,
                                             ask_for_fabric(instance, index));
    return atomic_load(&device->fabric) == OFFERED;
}

bool cuda_fabric_may_be_why(CUresult result) {
    return result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY;
}

/* A refusal is not reported. On one host nothing is missing. With several hosts the rendezvous
 * names the rank whose memory has no handle. */
static void give_up(cuda_instance *instance, cuda_device *device, bool refused) {
    atomic_store(&device->fabric, REFUSED);
    if (!refused)
        instance->host->notice(instance->host,
                               "memory of a device could not be had with fabric handles time and "
                               "again: it is shared within a host only from now on");
}

/* A failure that also occurs without them, for example for lack of descriptors, is temporary. */
void cuda_fabric_was_why(cuda_instance *instance, int32_t index, CUresult with, CUresult without) {
    cuda_device *device = &instance->devices[index];
    if (without != CUDA_SUCCESS)
        return;
    if (is_refusal(with) || atomic_fetch_add(&device->fabric_failures, 1) + 1 == MOST_FAILURES)
        give_up(instance, device, is_refusal(with));
}

void cuda_fabric_was_granted(cuda_instance *instance, int32_t index) {
    atomic_store(&instance->devices[index].fabric_failures, 0);
}

/* Without a handle there is still the descriptor. */
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
