// SPDX-License-Identifier: BSD-3-Clause
// All-to-alls of rows whose splits lie in tensors. symmem checks the splits themselves, on all
// ranks and before anything is written.
#include "ops.h"

namespace symmem_torch {
namespace {

using std::string;
using Tensor = at::Tensor;

/* The arguments that the three forms have in common. */
class Rows {
  public:
    Rows(const Tensor &input, const Tensor &splits, const char *splits_name, const Tensor &out,
         const Tensor &out_splits_offsets, const string &group)
        : from(input, "input", Elements::bits), by(splits, splits_name),
          to(out, "out", Elements::bits), result(out_splits_offsets, "out_splits_offsets") {
        TORCH_CHECK(input.scalar_type() == out.scalar_type(),
                    "out must have the dtype of input: ", out.scalar_type(), " and ",
                    input.scalar_type());
        check_symmetric(splits, splits_name);
        check_symmetric(out, "out");
        check_symmetric(out_splits_offsets, "out_splits_offsets");
        handle = handle_of(input, group);
    }

    View from, by, to, result;
    c10::intrusive_ptr<Handle> handle;
};

void all_to_all_vdev(const Tensor &input, Tensor out, const Tensor &in_splits,
                     Tensor out_splits_offsets, const string &group) {
    Rows rows(input, in_splits, "in_splits", out, out_splits_offsets, group);
    check(symmem_all_to_all_v(rows.handle->raw(), rows.from, rows.by, rows.to, rows.result,
                              default_channel, rows.handle->timeout_ms(), nullptr));
}

void all_to_all_vdev_2d(const Tensor &input, Tensor out, const Tensor &in_splits,
                        Tensor out_splits_offsets, const string &group,
                        std::optional<int64_t> major_align) {
    Rows rows(input, in_splits, "in_splits", out, out_splits_offsets, group);
    check(symmem_all_to_all_v_2d(rows.handle->raw(), rows.from, rows.by, major_align.value_or(1),
                                 rows.to, rows.result, default_channel, rows.handle->timeout_ms(),
                                 nullptr));
}

void all_to_all_vdev_2d_offset(const Tensor &input, Tensor out, const Tensor &in_splits_offsets,
                               Tensor out_splits_offsets, const string &group) {
    Rows rows(input, in_splits_offsets, "in_splits_offsets", out, out_splits_offsets, group);
    check(symmem_all_to_all_v_2d_offset(rows.handle->raw(), rows.from, rows.by, rows.to,
                                        rows.result, default_channel, rows.handle->timeout_ms(),
                                        nullptr));
}

} // namespace
} // namespace symmem_torch

TORCH_LIBRARY_IMPL(symm_mem, CPU, m) {
    using namespace symmem_torch;
    m.impl("all_to_all_vdev", kernel<&all_to_all_vdev>());
    m.impl("all_to_all_vdev_2d", kernel<&all_to_all_vdev_2d>());
    m.impl("all_to_all_vdev_2d_offset", kernel<&all_to_all_vdev_2d_offset>());
}
