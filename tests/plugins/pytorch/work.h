// SPDX-License-Identifier: BSD-3-Clause
// What an entry's work runs on: for CPU tensors the calling thread, for CUDA's a stream.
#pragma once

#include <memory>
#include <string>

#include <symmem/backend.h>

namespace symmem_plugin {

/* Makes the entry's stream PyTorch's current one for as long as it lives. */
class Work {
  public:
    virtual ~Work() = default;
    virtual void copy(void *dst, const void *src, size_t bytes) = 0;
    /* After what was enqueued: retains the references, or waits for it where there is no stream. */
    virtual void done() = 0;
};

#ifdef SYMMEM_TORCH_CUDA
std::unique_ptr<Work> cuda_work(int device, const symmem_exec *exec);
int cuda_device_count();
void cuda_begin();
void cuda_describe(int device, symmem_device_info *info);
/* Zeroes of new memory are on no stream of PyTorch's: the device's work is over when this returns.
 */
void cuda_settle(int device);
const symmem_stream_ops *cuda_stream_ops();
#endif

} // namespace symmem_plugin
