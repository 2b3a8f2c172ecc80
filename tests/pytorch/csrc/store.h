// SPDX-License-Identifier: BSD-3-Clause
// PyTorch's store as symmem's.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <memory>
#include <string>

#include <symmem/symmem.h>

namespace symmem_torch {

struct StoreCloser {
    void operator()(symmem_store *store) const {
        symmem_store_close(store);
    }
};
using StorePtr = std::unique_ptr<symmem_store, StoreCloser>;

/*
 * All keys begin with `prefix`. The process group's store is not kept alive, so that what listens
 * on its port ends with the group; from then on the calls fail.
 */
StorePtr wrap_store(const c10::intrusive_ptr<c10d::Store> &store, std::string prefix);
/* What the store's exception said at the calling thread's last access; empty if it worked. */
const std::string &what_store_said();

} // namespace symmem_torch
