/* SPDX-License-Identifier: BSD-3-Clause */
/* The driver's streams. The device has been entered. */
#ifndef SYMMEM_BACKEND_CUDA_STREAM_CACHE_H
#define SYMMEM_BACKEND_CUDA_STREAM_CACHE_H

#include "cuda_internal.h"

void cuda_stream_cache_open(cuda_instance *instance, int32_t device);
/* Returns one without work. urgent: of the highest priority. */
CUresult cuda_cached_stream_take(cuda_instance *instance, int32_t device, bool urgent,
                                 CUstream *stream_p);
/* Ends one that was taken. Its running work goes on. entered: false if the device could not be
 * entered. Then a stream that is not kept is lost. */
void cuda_cached_stream_give(cuda_instance *instance, int32_t device, CUstream stream,
                             bool entered);

#endif
