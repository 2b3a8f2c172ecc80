// SPDX-License-Identifier: BSD-3-Clause
// NCCL 2.28 tells only the device where peers' parts of a window are: this asks there.
#include <nccl_device.h>

extern "C" __global__ void symmem_nccl_resolve(ncclWindow_t window, int first, int count,
                                               void **pointers) {
    for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x))
        pointers[i] = ncclGetLsaPointer(window, 0, first + i);
}
