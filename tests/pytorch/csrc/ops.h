// SPDX-License-Identifier: BSD-3-Clause
// What the kernels of torch.ops.symm_mem share: tensors as symmem takes them, and registration.
#pragma once

#include "allocator.h"
#include "checked.h"
#include "error.h"

#include <ATen/core/boxing/KernelFunction.h>
#include <torch/library.h>

#include <optional>
#include <string>

namespace symmem_torch {

/* How symmem sees elements: by their dtype, or as bits, where they are only moved. */
enum class Elements { numbers, bits };

/* A tensor as DLPack's, borrowed: the tensor has to stay. */
class View {
  public:
    /* Throws for a tensor that is not contiguous. */
    View(const at::Tensor &tensor, const char *name, Elements elements = Elements::numbers);
    /* With any strides, of elements to compute with. */
    static View strided(const at::Tensor &tensor, const char *name);
    operator const DLTensor *() const {
        return &tensor_;
    }
    /* The same memory with one dimension of `count` elements. */
    View &flatten(int64_t count);

  private:
    View() = default;
    void borrow(const at::Tensor &tensor, const char *name, Elements elements);

    DLTensor tensor_{};
    int64_t count_ = 0;
};

/* The handle of the tensor's memory on that group, after a rendezvous if there was none. */
c10::intrusive_ptr<Handle> handle_of(const at::Tensor &tensor, const std::string &group);
/* symmem takes splits and results in any memory. On GPUs all of them are symmetric, and what runs
 * here is to run there. Looks at this rank alone, so that none waits for one that is wrong. */
void check_symmetric(const at::Tensor &tensor, const char *name);
/* Where in the handle's block a symmetric tensor is. */
size_t place_of(const at::Tensor &tensor);
symmem_reduce_op sum_only(const std::string &op);
symmem_reduce_op sum_or_avg(const std::string &op);
void check_same_shape(const at::Tensor &input, const at::Tensor &out);

/* What operations of PyTorch's use, which take no channel. */
constexpr int32_t default_channel = 0;

/*
 * A kernel by way of the boxed calling convention. PyTorch compares the C++ signatures of unboxed
 * kernels of one operator, and those of its own change between versions.
 */
template <auto Function> void boxed(const c10::OperatorHandle &op, torch::jit::Stack *stack) {
    using Pointer =
        c10::CompileTimeFunctionPointer<std::remove_pointer_t<decltype(Function)>, Function>;
    using Functor = typename c10::impl::WrapFunctionIntoFunctor<Pointer>::type;
    Functor functor;
    c10::impl::make_boxed_from_unboxed_functor<Functor, false>::call(&functor, op,
                                                                     c10::DispatchKeySet(), stack);
}

template <auto Function> torch::CppFunction kernel() {
    return torch::CppFunction::makeFromBoxedFunction<&boxed<Function>>();
}

} // namespace symmem_torch
