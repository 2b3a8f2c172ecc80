// SPDX-License-Identifier: BSD-3-Clause
// Reductions. PyTorch's own checks and what they say come first, symmem's after.
#include "ops.h"

#include <ATen/ops/empty_like.h>

namespace symmem_torch {
namespace {

using std::string;
using Tensor = at::Tensor;

Tensor one_shot_out(const Tensor &input, const string &op, const string &group, Tensor out) {
    check_same_shape(input, out);
    auto reduce = sum_only(op);
    View from(input, "input"), to(out, "output");
    if (input.numel() == 0) {
        return out;
    }
    auto handle = handle_of(input, group);
    check(symmem_one_shot_all_reduce_out(handle->raw(), from, reduce, to, default_channel,
                                         handle->timeout_ms(), nullptr));
    return out;
}

Tensor one_shot(const Tensor &input, const string &op, const string &group) {
    return one_shot_out(input, op, group, at::empty_like(input));
}

Tensor one_shot_copy_out(const Tensor &buffer, const Tensor &input, const string &op,
                         const string &group, Tensor out) {
    TORCH_CHECK(input.numel() <= buffer.numel(),
                "local input size must be smaller than symm buffer size");
    check_same_shape(input, out);
    auto reduce = sum_only(op);
    View way(buffer, "symm_buffer"), from(input, "local_input"), to(out, "output");
    if (input.numel() == 0) {
        return out;
    }
    auto handle = handle_of(buffer, group);
    check(symmem_one_shot_all_reduce_copy_out(handle->raw(), way.flatten(input.numel()), from,
                                              reduce, to, default_channel, handle->timeout_ms(),
                                              nullptr));
    return out;
}

Tensor one_shot_copy(const Tensor &buffer, const Tensor &input, const string &op,
                     const string &group) {
    return one_shot_copy_out(buffer, input, op, group, at::empty_like(input));
}

Tensor two_shot_(Tensor input, const string &op, const string &group) {
    auto reduce = sum_only(op);
    View tensor(input, "input");
    if (input.numel() == 0) {
        return input;
    }
    auto handle = handle_of(input, group);
    check(symmem_two_shot_all_reduce(handle->raw(), tensor, reduce, default_channel,
                                     handle->timeout_ms(), nullptr));
    return input;
}

Tensor two_shot_out(const Tensor &input, const string &op, const string &group, Tensor out) {
    check_same_shape(input, out);
    auto reduce = sum_only(op);
    View from(input, "input"), to(out, "output");
    if (input.numel() == 0) {
        return out;
    }
    auto handle = handle_of(input, group);
    check(symmem_two_shot_all_reduce_out(handle->raw(), from, reduce, to, default_channel,
                                         handle->timeout_ms(), nullptr));
    return out;
}

/* PyTorch's kernels move vectors of 16, 8 or 4 bytes, and a part has to be whole ones. symmem needs
 * no such thing, but what runs here is to run there. */
int64_t vector_bytes(int64_t bytes) {
    return bytes % 16 == 0 ? 16 : bytes % 8 == 0 ? 8 : 4;
}

void check_parts(const Tensor &input, bool split_last_dim, int64_t world_size) {
    auto element = static_cast<int64_t>(input.element_size());
    auto vector = std::min(vector_bytes(input.storage_offset() * element),
                           vector_bytes(input.numel() * element));
    auto unit = world_size * std::max<int64_t>(vector / element, 1);
    TORCH_CHECK(input.numel() % unit == 0,
                "expected number of elements to be divisible by world_size "
                "* alignment: ",
                input.numel(), " by ", unit);
    TORCH_CHECK(!split_last_dim || input.size(-1) % unit == 0,
                "expected last dimension to be divisible by world_size * alignment: ",
                split_last_dim ? input.size(-1) : 0, " by ", unit);
}

Tensor reduce_scatter_out(const Tensor &input, const string &group, bool split_last_dim,
                          Tensor out) {
    View from(input, "input"), to(out, "output");
    auto handle = handle_of(input, group);
    TORCH_CHECK(split_last_dim ? input.dim() == out.dim() && input.dim() > 0
                               : input.dim() == 1 && out.dim() == 1,
                split_last_dim ? "expected output to have as many dimensions as input"
                               : "expected 1D input and 1D output");
    check_parts(input, split_last_dim, handle->info().world_size);
    if (input.numel() == 0) {
        return out;
    }
    check(symmem_reduce_scatter_out(handle->raw(), from, SYMMEM_SUM, split_last_dim, to,
                                    default_channel, handle->timeout_ms(), nullptr));
    return out;
}

} // namespace
} // namespace symmem_torch

TORCH_LIBRARY_IMPL(symm_mem, CPU, m) {
    using namespace symmem_torch;
    m.impl("one_shot_all_reduce", kernel<&one_shot>());
    m.impl("one_shot_all_reduce_out", kernel<&one_shot_out>());
    m.impl("one_shot_all_reduce_copy", kernel<&one_shot_copy>());
    m.impl("one_shot_all_reduce_copy_out", kernel<&one_shot_copy_out>());
    m.impl("two_shot_all_reduce_", kernel<&two_shot_>());
    m.impl("two_shot_all_reduce_out", kernel<&two_shot_out>());
    m.impl("reduce_scatter_out", kernel<&reduce_scatter_out>());
}
