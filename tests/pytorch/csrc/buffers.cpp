// SPDX-License-Identifier: BSD-3-Clause
#include "buffers.h"

#include "checked.h"

#include <ATen/ops/from_blob.h>

namespace symmem_torch {
namespace {

struct Span {
    void *begin;
    size_t bytes;
};

size_t count_of(at::IntArrayRef sizes) {
    size_t count = 1;
    for (auto size : sizes) {
        count = product(count, not_negative(size, "a size"), "the number of elements");
    }
    return count;
}

void let_go(void *handle) {
    HandlePtr::reclaim(static_cast<Handle *>(handle));
}

/* The tensor keeps the handle, and so the memory, for as long as there is a view of it. */
at::Tensor part_of(const HandlePtr &handle, const char *operation, Span span, size_t first_byte,
                   at::IntArrayRef sizes, at::ScalarType dtype, int64_t storage_offset) {
    TORCH_CHECK(span.begin, "symmem: the memory of that rank is not in the reach of this one");
    TORCH_CHECK(!c10::isQIntType(dtype), "symmem: a tensor of ", dtype,
                " needs a scale; take one of the plain dtype of that size [INVALID_ARGUMENT]");
    auto element = c10::elementSize(dtype);
    auto skipped = not_negative(storage_offset, "storage_offset");
    auto elements = sum(skipped, count_of(sizes), "the number of elements");
    auto end = sum(first_byte, product(elements, element, "the size in bytes"), "the end in bytes");
    TORCH_CHECK(end <= span.bytes, "SymmetricMemory::", operation, ": the requested size (", end,
                " bytes) exceeds the allocated size (", span.bytes, " bytes) [OUT_OF_RANGE]");
    return at::for_blob(static_cast<char *>(span.begin) + first_byte + skipped * element, sizes)
        .context(HandlePtr(handle).release(), &let_go)
        .options(at::TensorOptions().dtype(dtype).device(handle->get_device()))
        .make_tensor();
}

Span buffer(const HandlePtr &handle, int64_t rank) {
    auto of = handle->rank_of(rank);
    return {handle->get_buffer_ptrs()[of], handle->get_buffer_size()};
}

} // namespace

HandlePtr handle_of(c10d::symmetric_memory::SymmetricMemory &memory) {
    auto handle = dynamic_cast<Handle *>(&memory);
    return handle ? HandlePtr::reclaim_copy(handle) : HandlePtr();
}

at::Tensor get_buffer(const HandlePtr &handle, int64_t rank, at::IntArrayRef sizes,
                      at::ScalarType dtype, int64_t storage_offset) {
    return part_of(handle, "get_buffer", buffer(handle, rank), 0, sizes, dtype, storage_offset);
}

at::Tensor get_remote_tensor(const HandlePtr &handle, int64_t peer, at::IntArrayRef sizes,
                             at::ScalarType dtype) {
    return part_of(handle, "get_remote_tensor", buffer(handle, peer), handle->get_offset(), sizes,
                   dtype, 0);
}

at::Tensor get_signal_pad(const HandlePtr &handle, int64_t rank, at::IntArrayRef sizes,
                          std::optional<at::ScalarType> dtype, int64_t storage_offset) {
    auto of = handle->rank_of(rank);
    Span pad{handle->get_signal_pad_ptrs()[of], handle->info().signal_pad_size};
    auto kind = dtype.value_or(at::kUInt32);
    auto whole = static_cast<int64_t>(pad.bytes / c10::elementSize(kind));
    return part_of(handle, "get_signal_pad", pad, 0, sizes.empty() ? at::IntArrayRef(whole) : sizes,
                   kind, storage_offset);
}

} // namespace symmem_torch
