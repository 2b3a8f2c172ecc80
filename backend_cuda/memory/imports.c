/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Keeps a peer's imported granule when its last user here is gone, because the peer's next small
 * allocation will come from it. It keeps one of each series, which is what a peer opens one after
 * the other, and as many series as fit. So a limited amount of peers' memory outlives the peers'
 * use.
 */
#include "memory/mapping.h"
#include "memory/imports.h"

/* Returns whether the peer began `other` later, within one series. */
static bool is_older(const cuda_mapping *mapping, const cuda_mapping *other) {
    return mapping->from.number < other->from.number;
}

static bool are_of_one_series(const cuda_mapping *a, const cuda_mapping *b) {
    return a->from.process == b->from.process && a->series == b->series;
}

/* Returns the entry for `mapping`: its series', else a free one, else the next in round-robin
 * order. Under the instance's lock. */
static cuda_mapping **place_for(cuda_device *device, const cuda_mapping *mapping) {
    cuda_mapping **free_place = NULL;
    for (int i = 0; i < CUDA_KEPT_IMPORTS; i++) {
        cuda_mapping *kept = device->imports[i];
        if (kept == NULL)
            free_place = &device->imports[i];
        else if (are_of_one_series(kept, mapping))
            return &device->imports[i];
    }
    if (free_place == NULL)
        free_place = &device->imports[device->next_import++ % CUDA_KEPT_IMPORTS];
    return free_place;
}

/* Returns the mapping that is not kept any more, for the caller to drop. It may be `mapping`
 * itself. */
static cuda_mapping *put(cuda_instance *instance, int32_t index, cuda_mapping *mapping) {
    pthread_mutex_lock(&instance->lock);
    cuda_mapping **place = place_for(&instance->devices[index], mapping), *other = *place;
    if (other != NULL && are_of_one_series(other, mapping) && is_older(mapping, other))
        other = mapping;
    else
        *place = mapping;
    pthread_mutex_unlock(&instance->lock);
    return other;
}

void cuda_imports_keep(cuda_instance *instance, int32_t index, cuda_mapping *mapping) {
    cuda_mapping_hold(mapping);
    cuda_mapping *other = put(instance, index, mapping);
    if (other != NULL)
        cuda_mapping_drop(&instance->driver, other);
}

void cuda_imports_close(cuda_instance *instance, int32_t index) {
    for (int i = 0; i < CUDA_KEPT_IMPORTS; i++)
        if (instance->devices[index].imports[i] != NULL)
            cuda_mapping_drop(&instance->driver, instance->devices[index].imports[i]);
}
