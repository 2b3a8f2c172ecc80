/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * It is as if a thread that knows nothing of ours captured all the time in global mode, as PyTorch
 * does. Calls that such a capture does not see then fail and break it, unless the thread that makes
 * them has said that it means them. Which those are is documented by examples only (cudaMalloc),
 * and known of some more (cudaEventQuery): here it is what asks for progress, takes memory or gives
 * it. A thread's mode has to be put back before it leaves its last context. FAKE_CUDA_ALONE=1: for
 * programs that call the driver themselves.
 */

#include "fake.h"

static __thread CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
static __thread CUstreamCaptureMode outside;

/* Whether the driver wants a context for it is not known. */
FAKE(ThreadExchangeStreamCaptureMode, CUstreamCaptureMode *mode_p) {
    FAKE_CALL("cuThreadExchangeStreamCaptureMode");
    const CUstreamCaptureMode before = mode;
    if (fake_current() == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    mode = *mode_p;
    *mode_p = before;
    return CUDA_SUCCESS;
}

void fake_first_pushed(void) {
    outside = mode;
}

void fake_last_popped(void) {
    if (mode == outside)
        return;
    fprintf(stderr, "a thread's capture mode was not put back\n");
    abort();
}

void fake_need_no_capture(const char *call) {
    if (mode != CU_STREAM_CAPTURE_MODE_GLOBAL || getenv("FAKE_CUDA_ALONE") != NULL)
        return;
    fprintf(stderr, "%s breaks a capture of somebody else's\n", call);
    abort();
}
