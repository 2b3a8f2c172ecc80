// SPDX-License-Identifier: BSD-3-Clause
// Operations by multicast, which the emulation has unless TORCH_SYMM_MEM_DISABLE_MULTICAST=1.
#include "ops.h"

#include <ATen/ops/empty_like.h>

namespace symmem_torch {
namespace {

using std::string;
using Tensor = at::Tensor;

c10::intrusive_ptr<Handle> multicast_handle_of(const Tensor &tensor, const string &group,
                                               const char *op) {
    auto handle = handle_of(tensor, group);
    TORCH_CHECK(handle->has_multicast_support(), op, ": multicast support is required");
    return handle;
}

Tensor all_reduce_(Tensor input, const string &op, const string &group) {
    auto reduce = sum_only(op);
    View tensor(input, "input");
    auto handle = multicast_handle_of(input, group, "multimem_all_reduce_");
    check(symmem_multimem_all_reduce(handle->raw(), tensor, reduce, default_channel,
                                     handle->timeout_ms(), nullptr));
    return input;
}

Tensor one_shot_out(const Tensor &input, const string &op, const string &group, Tensor out) {
    check_same_shape(input, out);
    auto reduce = sum_only(op);
    View from(input, "input"), to(out, "output");
    auto handle = multicast_handle_of(input, group, "multimem_one_shot_all_reduce");
    check(symmem_multimem_one_shot_all_reduce_out(handle->raw(), from, reduce, to, default_channel,
                                                  handle->timeout_ms(), nullptr));
    return out;
}

Tensor one_shot(const Tensor &input, const string &op, const string &group) {
    return one_shot_out(input, op, group, at::empty_like(input));
}

Tensor one_shot_reduce_out(const Tensor &input, const string &op, int64_t root, const string &group,
                           Tensor out) {
    auto reduce = sum_only(op);
    View from(input, "input");
    auto handle = multicast_handle_of(input, group, "multimem_one_shot_reduce_out");
    auto receiver = handle->rank_of(root, "root");
    std::optional<View> to; // only the root's is looked at
    if (receiver == handle->info().rank) {
        check_same_shape(input, out);
        to.emplace(out, "output");
    }
    check(symmem_multimem_one_shot_reduce_out(handle->raw(), from, reduce, receiver,
                                              to ? static_cast<const DLTensor *>(*to) : nullptr,
                                              default_channel, handle->timeout_ms(), nullptr));
    return out;
}

Tensor all_gather_out(const Tensor &input, const string &group, Tensor out) {
    View from(input, "input", Elements::bits), to(out, "output", Elements::bits);
    TORCH_CHECK(input.scalar_type() == out.scalar_type(), "output must have input's dtype");
    auto handle = multicast_handle_of(out, group, "multimem_all_gather_out");
    check(symmem_multimem_all_gather_out(handle->raw(), from, to, default_channel,
                                         handle->timeout_ms(), nullptr));
    return out;
}

/* The offset counts from the allocation's begin, wherever in it the tensor is. */
Tensor memcpy_to_multicast_(Tensor out, const Tensor &src, int64_t byte_offset,
                            const string &group) {
    View from(src, "src", Elements::bits);
    TORCH_CHECK(byte_offset >= 0, "byte_offset must be non-negative (got ", byte_offset, ")");
    auto handle = multicast_handle_of(out, group, "memcpy_to_multicast_");
    check(
        symmem_memcpy_to_multicast(handle->raw(), static_cast<size_t>(byte_offset), from, nullptr));
    return out;
}

} // namespace
} // namespace symmem_torch

TORCH_LIBRARY_IMPL(symm_mem, CPU, m) {
    using namespace symmem_torch;
    m.impl("multimem_all_reduce_", kernel<&all_reduce_>());
    m.impl("multimem_one_shot_all_reduce", kernel<&one_shot>());
    m.impl("multimem_one_shot_all_reduce_out", kernel<&one_shot_out>());
    m.impl("multimem_one_shot_reduce_out", kernel<&one_shot_reduce_out>());
    m.impl("multimem_all_gather_out", kernel<&all_gather_out>());
    m.impl("memcpy_to_multicast_", kernel<&memcpy_to_multicast_>());
}
