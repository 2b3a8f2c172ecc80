/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * With FAKE_CUDA_ELSEWHERE=1 it is as if another thread, of a program that knows nothing of ours,
 * captured all the time in global mode, as PyTorch does: calls that such a capture does not see,
 * made by a thread that has not said that it means them, fail and break it. Which calls those are
 * is documented by examples only (cudaMalloc, cudaEventQuery): here it is all that asks, takes or
 * gives.
 */
#include <stdio.h>
#include <stdlib.h>

#include "fake.h"

static __thread CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

CUresult fake_exchange_mode(CUstreamCaptureMode *mode_p) {
    const CUstreamCaptureMode before = mode;
    mode = *mode_p;
    *mode_p = before;
    return CUDA_SUCCESS;
}

void fake_need_no_capture(const char *call) {
    if (mode != CU_STREAM_CAPTURE_MODE_GLOBAL || getenv("FAKE_CUDA_ALONE") != NULL)
        return;
    fprintf(stderr, "%s breaks a capture of somebody else's\n", call);
    abort();
}
