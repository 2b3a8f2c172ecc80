// SPDX-License-Identifier: BSD-3-Clause
#include "ops.h"

namespace symmem_torch {
namespace {

/* Of one's own or of another library's, 0 if there is none. */
uint8_t type_code(const at::Tensor &tensor) {
    switch (tensor.scalar_type()) {
    case at::kByte:
    case at::kUInt16:
    case at::kUInt32:
    case at::kUInt64:
        return kDLUInt;
    case at::kChar:
    case at::kShort:
    case at::kInt:
    case at::kLong:
        return kDLInt;
    case at::kHalf:
    case at::kFloat:
    case at::kDouble:
        return kDLFloat;
    case at::kBFloat16:
        return kDLBfloat;
    default:
        TORCH_CHECK(false, "symmem: cannot compute with elements of ", tensor.scalar_type(),
                    "; such tensors can be gathered, broadcast and copied only");
    }
}

} // namespace

View::View(const at::Tensor &tensor, const char *name, Elements elements) {
    borrow(tensor, name, elements);
    TORCH_CHECK(tensor.is_contiguous(), name, " must be contiguous");
}

View View::strided(const at::Tensor &tensor, const char *name) {
    View view;
    view.borrow(tensor, name, Elements::numbers);
    view.tensor_.strides = const_cast<int64_t *>(tensor.strides().data());
    return view;
}

void View::borrow(const at::Tensor &tensor, const char *name, Elements elements) {
    TORCH_CHECK(tensor.device().is_cpu(), name,
                " must be a CPU tensor, for so is the symmetric memory (got ", tensor.device(),
                ")");
    TORCH_CHECK(tensor.element_size() <= 8, name, " must have elements of 8 bytes at most, not of ",
                tensor.scalar_type());
    tensor_.data = tensor.data_ptr();
    tensor_.device = {static_cast<DLDeviceType>(0),
                      0}; // which device's: symmem knows by the address
    tensor_.ndim = static_cast<int32_t>(tensor.dim());
    tensor_.shape = const_cast<int64_t *>(tensor.sizes().data());
    tensor_.dtype.code =
        elements == Elements::bits ? static_cast<uint8_t>(kDLUInt) : type_code(tensor);
    tensor_.dtype.bits = static_cast<uint8_t>(tensor.element_size() * 8);
    tensor_.dtype.lanes = 1;
}

View &View::flatten(int64_t count) {
    count_ = count;
    tensor_.ndim = 1;
    tensor_.shape = &count_;
    return *this;
}

c10::intrusive_ptr<Handle> handle_of(const at::Tensor &tensor, const std::string &group) {
    TORCH_CHECK(tensor.device().is_cpu(),
                "symmem: a symmetric tensor must be a CPU tensor here (got ", tensor.device(), ")");
    auto memory = Allocator::instance().rendezvous(tensor.storage().mutable_data(), group);
    TORCH_CHECK(memory, "symmem: input must be allocated with empty_strided_p2p(), as "
                        "torch.distributed._symmetric_memory.empty() does");
    // Of its own allocator, so what it is is known.
    return c10::static_intrusive_pointer_cast<Handle>(std::move(memory));
}

void check_symmetric(const at::Tensor &tensor, const char *name) {
    TORCH_CHECK(tensor.device().is_cpu() &&
                    Allocator::instance().has_allocation(tensor.storage().mutable_data()),
                "symmem: ", name, " is not in symmetric memory of the CPU (it is on ",
                tensor.device(), "); torch.distributed._symmetric_memory.empty() makes it there");
}

size_t place_of(const at::Tensor &tensor) {
    return product(not_negative(tensor.storage_offset(), "storage_offset"), tensor.element_size(),
                   "a place");
}

symmem_reduce_op sum_only(const std::string &op) {
    TORCH_CHECK(op == "sum", "only sum is supported for now (got \"", op, "\")");
    return SYMMEM_SUM;
}

symmem_reduce_op sum_or_avg(const std::string &op) {
    TORCH_CHECK(op == "sum" || op == "avg", "reduce_op must be \"sum\" or \"avg\" (got \"", op,
                "\")");
    return op == "sum" ? SYMMEM_SUM : SYMMEM_AVG;
}

void check_same_shape(const at::Tensor &input, const at::Tensor &out) {
    TORCH_CHECK(out.sizes() == input.sizes(), "output size must match input size: ", out.sizes(),
                " and ", input.sizes());
    TORCH_CHECK(out.scalar_type() == input.scalar_type(),
                "output must have input's dtype: ", out.scalar_type(), " and ",
                input.scalar_type());
}

} // namespace symmem_torch
