// SPDX-License-Identifier: BSD-3-Clause
// Tensors in the memory of peers. PyTorch's own methods for them cannot be overridden in C++: their
// sizes wrap around, and their tensors do not keep the memory. The package puts these in their
// place in Python.
#pragma once

#include "handle.h"

#include <ATen/core/Tensor.h>

#include <optional>

namespace symmem_torch {

#pragma GCC visibility push(default) // for methods.cpp
/* Null for a handle of another allocator's. The caller holds a reference. */
HandlePtr handle_of(c10d::symmetric_memory::SymmetricMemory &memory);
/* From the begin of the rank's block; the offset counts elements. */
at::Tensor get_buffer(const HandlePtr &handle, int64_t rank, at::IntArrayRef sizes,
                      at::ScalarType dtype, int64_t storage_offset);
/* From where in its block the tensor of the rendezvous is. */
at::Tensor get_remote_tensor(const HandlePtr &handle, int64_t peer, at::IntArrayRef sizes,
                             at::ScalarType dtype);
/* Without sizes all of it; without a dtype words of 32 bits. */
at::Tensor get_signal_pad(const HandlePtr &handle, int64_t rank, at::IntArrayRef sizes,
                          std::optional<at::ScalarType> dtype, int64_t storage_offset);
#pragma GCC visibility pop

} // namespace symmem_torch
