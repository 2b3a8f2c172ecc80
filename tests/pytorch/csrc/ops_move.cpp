// SPDX-License-Identifier: BSD-3-Clause
// Operations that move elements of any dtype, and fill words.
#include "ops.h"

namespace symmem_torch {
namespace {

using std::string;
using Tensor = at::Tensor;

Tensor broadcast(Tensor tensor, int64_t root, const string &group) {
    View view(tensor, "input", Elements::bits);
    auto handle = handle_of(tensor, group);
    check(symmem_broadcast(handle->raw(), view, handle->rank_of(root, "root"), default_channel,
                           handle->timeout_ms(), nullptr));
    return tensor;
}

Tensor all_to_all(const Tensor &input, Tensor out, const string &group) {
    View from(input, "input", Elements::bits), to(out, "out", Elements::bits);
    TORCH_CHECK(input.scalar_type() == out.scalar_type(), "out must have input's dtype");
    auto handle = handle_of(input, group);
    check(symmem_all_to_all_out(handle->raw(), from, nullptr, to, nullptr, default_channel,
                                handle->timeout_ms(), nullptr));
    return out;
}

void put(Tensor tensor, int64_t peer) {
    View view(tensor, "tensor", Elements::bits);
    auto handle = handle_of(tensor, "0");
    check(symmem_put(handle->raw(), handle->rank_of(peer, "peer"), place_of(tensor),
                     tensor.data_ptr(), tensor.nbytes(), nullptr));
}

void get(Tensor tensor, int64_t peer) {
    View view(tensor, "tensor", Elements::bits);
    auto handle = handle_of(tensor, "0");
    check(symmem_get(handle->raw(), handle->rank_of(peer, "peer"), place_of(tensor),
                     tensor.data_ptr(), tensor.nbytes(), nullptr));
}

void get_out(Tensor dst, const Memory &memory, int64_t offset, int64_t size, int64_t peer) {
    View view(dst, "dst", Elements::bits);
    TORCH_CHECK(offset >= 0 && size >= 0 && size <= dst.numel(),
                "offset must be non-negative, and dst have room for size elements");
    auto element = dst.element_size();
    auto place = product(static_cast<size_t>(offset), element, "the offset in bytes");
    auto bytes = product(static_cast<size_t>(size), element, "the size in bytes");
    auto &handle = our_handle(memory.get());
    check(symmem_get(handle.raw(), handle.rank_of(peer, "peer"), place, dst.data_ptr(), bytes,
                     nullptr));
}

void check_words(const Tensor &tensor, int64_t offset, int64_t value) {
    TORCH_CHECK(tensor.dim() == 1 && tensor.is_contiguous() && tensor.scalar_type() == at::kUInt32,
                "input must be a flat, contiguous uint32 tensor");
    TORCH_CHECK(offset >= 0, "offset must be greater than or equal to 0 (got ", offset, ")");
    TORCH_CHECK(value >= 0 && value <= UINT32_MAX,
                "val must be in the range of [0, 4294967295] (uint32_t) (got ", value, ")");
}

Tensor stream_write_value32_(Tensor tensor, int64_t offset, int64_t value) {
    check_words(tensor, offset, value);
    TORCH_CHECK(offset < tensor.numel(), "offset (", offset, ") exceeded the numel of the input (",
                tensor.numel(), ")");
    View view(tensor, "input");
    check(symmem_stream_write_value32(World::current()->context(), view, offset, value, nullptr));
    return tensor;
}

Tensor memset32_(Tensor tensor, int64_t offset, int64_t value, int64_t count) {
    check_words(tensor, offset, value);
    TORCH_CHECK(count > 0, "count must be a positive integer (got ", count, ")");
    TORCH_CHECK(offset <= tensor.numel() - count, "offset + count (", offset, " + ", count,
                ") exceeded the numel of the input (", tensor.numel(), ")");
    View view(tensor, "input");
    check(symmem_memset32(World::current()->context(), view, offset, value, count, nullptr));
    return tensor;
}

} // namespace
} // namespace symmem_torch

TORCH_LIBRARY_IMPL(symm_mem, CPU, m) {
    using namespace symmem_torch;
    m.impl("nvshmem_broadcast", kernel<&broadcast>());
    m.impl("nvshmem_all_to_all", kernel<&all_to_all>());
    m.impl("nvshmem_put", kernel<&put>());
    m.impl("nvshmem_get", kernel<&get>());
    m.impl("nccl_put", kernel<&put>());
    m.impl("nccl_get", kernel<&get>());
    m.impl("nvshmem_get_out", kernel<&get_out>());
    m.impl("nccl_get_out", kernel<&get_out>());
    m.impl("stream_write_value32_", kernel<&stream_write_value32_>());
    m.impl("memset32_", kernel<&memset32_>());
}
