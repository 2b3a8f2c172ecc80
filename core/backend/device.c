/* SPDX-License-Identifier: BSD-3-Clause */
/* Devices of the active backend, and what the user allows on them. */
#include "backend/device.h"
#include "backend/host.h"
#include "backend/instance.h"
#include "backend/query.h"
#include "backend/registry.h"

#include <stdlib.h>

bool sm_context_multicast_allowed(const symmem_context *context) {
    if (context->multicast >= 0)
        return context->multicast == 1;
    return !sm_env_flag("TORCH_SYMM_MEM_DISABLE_MULTICAST", false) &&
           sm_env_flag("SYMMEM_MULTICAST", true);
}

bool sm_context_overlap_allowed(const symmem_context *context) {
    /* Relaxed: a plain setting. */
    int allow = atomic_load_explicit(&context->allow_overlapping_devices, memory_order_relaxed);
    if (allow >= 0)
        return allow == 1;
    return sm_env_flag("SYMMEM_ALLOW_OVERLAPPING_DEVICES", false) ||
           sm_env_flag("TORCH_SYMM_MEM_ALLOW_OVERLAPPING_DEVICES", false);
}

symmem_status symmem_set_allow_overlapping_devices(symmem_context *context, int32_t allow) {
    SM_PUBLIC_CALL;
    static const char operation[] = "set_allow_overlapping_devices";
    symmem_status status = sm_context_check(context, operation);
    if (status != SYMMEM_OK)
        return status;
    if (allow < -1 || allow > 1)
        return sm_context_fail(context, SYMMEM_INVALID_ARGUMENT, operation, "",
                               "allow is %d, not -1, 0 or 1", (int)allow);
    atomic_store_explicit(&context->allow_overlapping_devices, allow, memory_order_relaxed);
    return SYMMEM_OK;
}

symmem_status sm_device_count(symmem_context *context, const char *operation, int32_t *count_p) {
    int32_t count = 0;
    symmem_status status = context->backend->device_count(context->instance, &count);
    if (status != SYMMEM_OK)
        return sm_backend_failed(context, status, operation, "device_count");
    if (count < 1)
        return sm_context_fail(context, SYMMEM_BACKEND, operation, "device_count",
                               "backend '%s' has %d devices", context->backend->name, (int)count);
    *count_p = count;
    return SYMMEM_OK;
}

static symmem_status device_info(symmem_context *context, const char *operation, int32_t device,
                                 symmem_device_info *info) {
    symmem_status status = context->backend->device_info(context->instance, device, info);
    if (status != SYMMEM_OK)
        return sm_backend_failed(context, status, operation, "device_info");
    if (info->device_type < 1)
        return sm_context_fail(context, SYMMEM_BACKEND, operation, "device_info",
                               "backend '%s' says device_type %d of device %d",
                               context->backend->name, (int)info->device_type, (int)device);
    return SYMMEM_OK;
}

/* The instance is entered. */
static symmem_status resolve_device(symmem_context *context, int32_t device, const char *operation,
                                    int32_t *device_p) {
    int32_t count = 0;
    symmem_status status = sm_device_count(context, operation, &count);
    if (status != SYMMEM_OK)
        return status;
    if (device < -1 || device >= count) {
        sm_context_fail(context, SYMMEM_OUT_OF_RANGE, operation, "device",
                        "device %d is not there, the backend has %d", (int)device, (int)count);
        return sm_error_sizes((uint64_t)count, (uint64_t)device);
    }
    *device_p = device == -1 ? context->local_rank % count : device;
    return SYMMEM_OK;
}

symmem_status sm_device_resolve(symmem_context *context, int32_t device, const char *operation,
                                int32_t *device_p) {
    symmem_status status = sm_instance_enter(context, operation);
    if (status != SYMMEM_OK)
        return status;
    status = resolve_device(context, device, operation, device_p);
    sm_instance_release(context);
    return status;
}

/* The start of every query: context, output, instance entered. */
static symmem_status begin(symmem_context *context, const char *operation, const void *output) {
    symmem_status status = sm_context_check(context, operation);
    if (status != SYMMEM_OK)
        return status;
    if (!output)
        return sm_context_fail(context, SYMMEM_INVALID_ARGUMENT, operation, "",
                               "the output pointer is NULL");
    return sm_instance_enter(context, operation);
}

symmem_status symmem_device_count(symmem_context *context, int32_t *count_p) {
    SM_PUBLIC_CALL;
    symmem_status status = begin(context, "device_count", count_p);
    if (status != SYMMEM_OK)
        return status;
    status = sm_device_count(context, "device_count", count_p);
    sm_instance_release(context);
    return status;
}

symmem_status symmem_device_type(symmem_context *context, int32_t *device_type_p) {
    SM_PUBLIC_CALL;
    symmem_device_info info = {0};
    symmem_status status = begin(context, "device_type", device_type_p);
    if (status != SYMMEM_OK)
        return status;
    status = device_info(context, "device_type", 0, &info);
    if (status == SYMMEM_OK)
        *device_type_p = info.device_type;
    sm_instance_release(context);
    return status;
}

/* The instance is entered. */
static symmem_status ask_multicast(symmem_context *context, int32_t device_type, int32_t device,
                                   bool *supported_p) {
    static const char operation[] = "has_multicast_support";
    symmem_device_info info = {0};
    symmem_status status = device_info(context, operation, 0, &info);
    if (status != SYMMEM_OK)
        return status;
    if (info.device_type != device_type) {
        *supported_p = false;
        return SYMMEM_OK;
    }
    status = resolve_device(context, device, operation, &device);
    if (status == SYMMEM_OK)
        status = device_info(context, operation, device, &info);
    if (status == SYMMEM_OK)
        *supported_p = sm_backend_has(context, SYMMEM_CAP_MULTICAST) && info.multicast != 0 &&
                       sm_context_multicast_allowed(context);
    return status;
}

symmem_status symmem_has_multicast_support(symmem_context *context, int32_t device_type,
                                           int32_t device, bool *supported_p) {
    SM_PUBLIC_CALL;
    static const char operation[] = "has_multicast_support";
    const char *name = NULL;
    symmem_status status = sm_context_check(context, operation);
    if (status != SYMMEM_OK)
        return status;
    if (supported_p && symmem_get_backend(context, &name) == SYMMEM_OK && !name) {
        *supported_p = false;
        return SYMMEM_OK;
    }
    status = begin(context, operation, supported_p);
    if (status != SYMMEM_OK)
        return status;
    status = ask_multicast(context, device_type, device, supported_p);
    sm_instance_release(context);
    return status;
}
