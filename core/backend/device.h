/* SPDX-License-Identifier: BSD-3-Clause */
/* Devices of the active backend, and what the user allows on them. */
#ifndef SYMMEM_CORE_BACKEND_DEVICE_H
#define SYMMEM_CORE_BACKEND_DEVICE_H

#include "backend/context.h"

bool sm_context_overlap_allowed(const symmem_context *context);
bool sm_context_multicast_allowed(const symmem_context *context);
/* The instance is entered. At least 1. */
symmem_status sm_device_count(symmem_context *context, const char *operation, int32_t *count_p);
symmem_status sm_device_resolve(symmem_context *context, int32_t device, const char *operation,
                                int32_t *device_p);

#endif
