/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_memory.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define DEVICE_TYPE_CPU 1 /* kDLCPU */

static symmem_status copy(void *instance, int32_t device, void *dst, const void *src, size_t bytes,
                          const symmem_exec *exec) {
    (void)instance, (void)device, (void)exec;
    if (bytes > 0)
        memmove(dst, src, bytes);
    return SYMMEM_OK;
}

static symmem_status fill(void *instance, int32_t device, void *dst, uint32_t value, size_t count,
                          const symmem_exec *exec) {
    uint32_t *words = dst;
    (void)instance, (void)device, (void)exec;
    for (size_t i = 0; i < count; i++)
        words[i] = value;
    return SYMMEM_OK;
}

static symmem_status write_value32(void *instance, int32_t device, void *dst, uint32_t value,
                                   const symmem_exec *exec) {
    (void)instance, (void)device, (void)exec;
    /* release; pairs with: the load of a thread that polls the word */
    atomic_store_explicit((_Atomic uint32_t *)dst, value, memory_order_release);
    return SYMMEM_OK;
}

const symmem_copy_ops symmem_kit_host_copy = {.size = sizeof(symmem_copy_ops),
                                              .copy = copy,
                                              .memset32 = fill,
                                              .write_value32 = write_value32};

symmem_status symmem_kit_host_devices(void *instance, int32_t *count_p) {
    (void)instance;
    *count_p = SYMMEM_MAX_WORLD_SIZE;
    return SYMMEM_OK;
}

symmem_status symmem_kit_host_device(void *instance, int32_t device, symmem_device_info *info_p) {
    (void)instance;
    info_p->device_type = DEVICE_TYPE_CPU;
    info_p->granularity = SYMMEM_ALIGNMENT;
    snprintf(info_p->name, sizeof(info_p->name), "memory of rank %d", (int)device);
    return SYMMEM_OK;
}
