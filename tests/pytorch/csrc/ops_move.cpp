// SPDX-License-Identifier: BSD-3-Clause
// Operations that move elements of any dtype, and fill words.
#include "ops.h"

#include <ATen/ops/empty.h>

#include <numeric>

namespace symmem_torch {
namespace {

using std::string;
using Tensor = at::Tensor;
using Memory = c10::intrusive_ptr<c10d::symmetric_memory::SymmetricMemory>;

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

/* Each rank learns how much comes from whom. */
Tensor exchange_splits(const Tensor &in_splits, const string &group, int64_t world_size) {
    TORCH_CHECK(in_splits.scalar_type() == at::kLong && in_splits.dim() == 1 &&
                    in_splits.numel() == world_size,
                "in_splits must be a flat int64 tensor with an entry for each rank of the group");
    auto received = at::empty({world_size}, in_splits.options());
    return all_to_all(in_splits, received, group);
}

/* Sizes in rows of the first dimension, as elements. */
std::vector<size_t> in_elements(const Tensor &splits, size_t row) {
    std::vector<size_t> sizes;
    for (int64_t rank = 0; rank < splits.numel(); rank++) {
        auto rows = splits.data_ptr<int64_t>()[rank];
        TORCH_CHECK(rows >= 0, "splits must not be negative (got ", rows, ")");
        sizes.push_back(product(static_cast<size_t>(rows), row, "the size of a split"));
    }
    return sizes;
}

size_t total(const std::vector<size_t> &sizes) {
    return std::accumulate(sizes.begin(), sizes.end(), size_t{0}, [](size_t before, size_t size) {
        return sum(before, size, "the size of all splits");
    });
}

void all_to_all_vdev(const Tensor &input, Tensor out, const Tensor &in_splits,
                     Tensor out_splits_offsets, const string &group) {
    auto handle = handle_of(input, group);
    auto ranks = static_cast<int64_t>(handle->info().world_size);
    TORCH_CHECK(out_splits_offsets.scalar_type() == at::kLong &&
                    out_splits_offsets.is_contiguous() &&
                    out_splits_offsets.sizes() == at::IntArrayRef({2, ranks}),
                "out_splits_offsets must be an int64 tensor of shape (2, world size)");
    TORCH_CHECK(input.dim() > 0 && input.scalar_type() == out.scalar_type(),
                "out must have input's dtype, and input a dimension to split");
    View from(input, "input", Elements::bits), to(out, "out", Elements::bits);
    auto received = exchange_splits(in_splits, group, ranks);
    auto row = not_negative(input.stride(0), "a stride");
    auto sent_sizes = in_elements(in_splits, row), received_sizes = in_elements(received, row);
    auto sent = total(sent_sizes), arriving = total(received_sizes);
    TORCH_CHECK(sent <= static_cast<size_t>(input.numel()) &&
                    arriving <= static_cast<size_t>(out.numel()),
                "the splits are larger than the tensors: ", sent, " elements of ", input.numel(),
                " to send, ", arriving, " of ", out.numel(), " to receive");
    check(symmem_all_to_all_out(handle->raw(), from.flatten(static_cast<int64_t>(sent)),
                                sent_sizes.data(), to.flatten(static_cast<int64_t>(arriving)),
                                received_sizes.data(), default_channel, handle->timeout_ms(),
                                nullptr));
    out_splits_offsets.select(0, 0).copy_(received);
    out_splits_offsets.select(0, 1).copy_(received.cumsum(0) - received);
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

/* The data first, and a signal on the default channel, so that who waits for that sees it. */
void put_signal(const Tensor &src, const Memory &memory, int64_t peer) {
    View view(src, "src", Elements::bits);
    auto &handle = our_handle(memory.get());
    auto to = handle.rank_of(peer, "peer");
    check(symmem_put(handle.raw(), to, 0, src.data_ptr(), src.nbytes(), nullptr));
    handle.put_signal(to, default_channel, 0);
}

void wait_signal(const Memory &memory, int64_t peer) {
    auto &handle = our_handle(memory.get());
    handle.wait_signal(handle.rank_of(peer, "peer"), default_channel, 0);
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
    m.impl("all_to_all_vdev", kernel<&all_to_all_vdev>());
    m.impl("nvshmem_put", kernel<&put>());
    m.impl("nvshmem_get", kernel<&get>());
    m.impl("nccl_put", kernel<&put>());
    m.impl("nccl_get", kernel<&get>());
    m.impl("nvshmem_get_out", kernel<&get_out>());
    m.impl("nccl_get_out", kernel<&get_out>());
    m.impl("nccl_put_signal", kernel<&put_signal>());
    m.impl("stream_write_value32_", kernel<&stream_write_value32_>());
    m.impl("memset32_", kernel<&memset32_>());
}

// Without a tensor there is no device to dispatch by.
TORCH_LIBRARY_IMPL(symm_mem, CompositeExplicitAutograd, m) {
    using namespace symmem_torch;
    m.impl("nccl_wait_signal", kernel<&wait_signal>());
}
