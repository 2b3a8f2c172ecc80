/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Suballocation of small memory: a buffer and its signal memory come from one granule while it has
 * room. Importing costs milliseconds for any size, and a peer that has imported the granule once
 * has it for all allocations in it. So a granule is large enough for several rendezvous. It stays
 * until the next one is begun or the device is closed, whatever has been freed. No range is
 * allocated twice, because a late peer may still write to it.
 */
#include "memory/mapping.h"
#include "memory/suballoc.h"
#include "driver/fabric.h"

#define GRANULE_BYTES ((size_t)32 << 20)

/* Memory that is registered with other libraries, or bound to multicast, has to be whole. */
bool cuda_granules_are_used(const cuda_instance *instance) {
#ifdef SYMMEM_CUDA_MULTICAST
    (void)instance;
    return false;
#else
    return instance->extension == NULL;
#endif
}

size_t cuda_granule_bytes(size_t driver_bytes) {
    return driver_bytes < GRANULE_BYTES ? GRANULE_BYTES / driver_bytes * driver_bytes
                                        : driver_bytes;
}

/* A granule without a fabric handle, from a time when handles were not available, is useless to
 * other hosts. */
void cuda_granule_take(cuda_instance *instance, int32_t device, size_t bytes, size_t *offset_p,
                       cuda_mapping **mapping_p) {
    const bool offered = cuda_fabric_is_offered(instance, device);
    pthread_mutex_lock(&instance->lock);
    cuda_mapping *open = instance->devices[device].open_granule;
    if (open != NULL && (open->fabric || !offered) && cuda_mapping_place(open, bytes, offset_p))
        *mapping_p = open;
    pthread_mutex_unlock(&instance->lock);
}

/* Under the instance's lock. Returns the granule that was open before. */
static cuda_mapping *replace(cuda_device *device, cuda_mapping *mapping) {
    cuda_mapping *before = device->open_granule;
    device->open_granule = mapping;
    return before;
}

static void give_up(cuda_instance *instance, cuda_mapping *mapping) {
    if (mapping == NULL)
        return;
    cuda_mapping_forget_descriptor(mapping);
    cuda_mapping_drop(&instance->driver, mapping);
}

void cuda_granule_open(cuda_instance *instance, int32_t index, cuda_mapping *mapping,
                       size_t bytes) {
    cuda_device *device = &instance->devices[index];
    size_t first;
    mapping->keeps_fd = true;
    /* The caller's use becomes the device's. The new allocation's use is the caller's. */
    (void)cuda_mapping_place(mapping, bytes, &first);
    /* If two are opened at once the last one stays, which has the higher number. */
    pthread_mutex_lock(&instance->lock);
    if (device->series == 0)
        device->series = cuda_mapping_new_series();
    mapping->series = device->series;
    cuda_mapping_add_own(mapping);
    cuda_mapping *before = replace(device, mapping);
    pthread_mutex_unlock(&instance->lock);
    give_up(instance, before);
}

void cuda_granule_close(cuda_instance *instance, int32_t index) {
    pthread_mutex_lock(&instance->lock);
    cuda_mapping *before = replace(&instance->devices[index], NULL);
    pthread_mutex_unlock(&instance->lock);
    give_up(instance, before);
}
