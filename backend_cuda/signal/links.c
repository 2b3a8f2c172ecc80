/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Whether a rank's device has NVLink to its peers'. Ranks may find different answers, because some
 * processes see fewer devices. So each rank tells the others, in their signal state. Lines are wide
 * (kernels/cuda/ll.cuh) if all ranks have found NVLink.
 */
#include <string.h>

#include "memory/mapping.h"
#include "signal/links.h"

static bool is_same(const CUuuid *one, const CUuuid *other) {
    return memcmp(one, other, sizeof *one) == 0;
}

/* NVLink supports atomic operations on another device's memory, and PCI Express does not. */
static bool are_linked(const cuda_driver *driver, CUdevice own, CUdevice other) {
    int atomics = 0;
    return driver->DeviceGetP2PAttribute != NULL &&
           driver->DeviceGetP2PAttribute(&atomics, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED,
                                         own, other) == CUDA_SUCCESS &&
           atomics == 1;
}

/* Also false if this process does not see the device. */
static bool is_linked_with(const cuda_instance *instance, int32_t device, const CUuuid *other) {
    const cuda_driver *driver = &instance->driver;
    CUdevice own, id;
    CUuuid uuid;
    if (driver->DeviceGet(&own, device) != CUDA_SUCCESS)
        return false;
    for (int32_t i = 0; i < instance->device_count; i++)
        if (i != device && driver->DeviceGet(&id, i) == CUDA_SUCCESS &&
            driver->DeviceGetUuid(&uuid, id) == CUDA_SUCCESS && is_same(&uuid, other))
            return are_linked(driver, own, id);
    return false;
}

/* maker_p: the device of a rank's signal state. Returns false if it is unknown. */
static bool find_device_of_state(const cuda_instance *instance, const symmem_peers *peers,
                                 int32_t rank, CUuuid *maker_p) {
    if (instance->find_device != NULL)
        return instance->find_device(instance, peers->global_ranks[rank], maker_p);
    cuda_mapping *mapping = cuda_mapping_at(cuda_address(peers->signals[rank]));
    if (mapping == NULL)
        return false;
    *maker_p = mapping->maker;
    cuda_mapping_drop(&instance->driver, mapping);
    return true;
}

cuda_links cuda_links_find(const cuda_instance *instance, const symmem_peers *peers) {
    cuda_links links = {.all_linked = peers->world_size > 1, .share_device = false};
    CUuuid own, other;
    if (!find_device_of_state(instance, peers, peers->rank, &own))
        return (cuda_links){.all_linked = false};
    for (int32_t r = 0; r < peers->world_size; r++) {
        if (r == peers->rank)
            continue;
        const bool known =
            peers->signals[r] != NULL && find_device_of_state(instance, peers, r, &other);
        links.share_device = links.share_device || (known && is_same(&own, &other));
        links.all_linked =
            links.all_linked && known && is_linked_with(instance, peers->device, &other);
    }
    return links;
}

CUresult cuda_links_tell(const cuda_instance *instance, const symmem_peers *peers, cuda_links links,
                         CUstream native) {
    CUresult result = CUDA_SUCCESS;
    for (int32_t r = 0; links.all_linked && r < peers->world_size && result == CUDA_SUCCESS; r++)
        if (r != peers->rank)
            result = instance->driver.MemsetD32Async(cuda_address(peers->signals[r]) +
                                                         SYMMEM_CUDA_HEADER_BYTES +
                                                         sizeof(uint32_t) * (size_t)peers->rank,
                                                     SYMMEM_CUDA_LINKED, 1, native);
    return result;
}
