/* SPDX-License-Identifier: BSD-3-Clause */
/* Devices: the primary context, from its first use to its end, and private streams. */
#ifndef SYMMEM_BACKEND_CUDA_DEVICE_H
#define SYMMEM_BACKEND_CUDA_DEVICE_H

#include "cuda_internal.h"

/* Makes the device's context current, opening the device if needed. cuda_leave restores the
 * caller's. In between this thread's calls break no capture of the program. Pairs may nest. */
symmem_status cuda_enter(cuda_instance *instance, int32_t device, const char *operation);
void cuda_devices_close(cuda_instance *instance);
/* The context is current. A private stream with work in flight is ended instead of given back. */
CUresult cuda_private_stream_take(cuda_instance *instance, int32_t device,
                                  cuda_private_stream **lane_p);
void cuda_private_stream_give(cuda_instance *instance, int32_t device,
                              cuda_private_stream *private_stream);
void cuda_private_stream_end(cuda_instance *instance, int32_t device,
                             cuda_private_stream *private_stream);
CUresult cuda_device_uuid(const cuda_driver *driver, int32_t device, CUuuid *uuid_p);

#endif
