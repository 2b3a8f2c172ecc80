// SPDX-License-Identifier: BSD-3-Clause
// NCCL 2.28 exposes the addresses of peers' parts of a window only on the device. This kernel reads
// them there.
#include <nccl_device.h>

extern "C" __global__ void symmem_nccl_resolve(ncclWindow_t window, int first, int count,
                                               void **pointers) {
    for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x))
        pointers[i] = ncclGetLsaPointer(window, 0, first + i);
}
