// SPDX-License-Identifier: BSD-3-Clause
// Loading this library registers the allocator; torch.ops.symmem has what PyTorch's interface has
// no place for.
#include "ops.h"
#include "pool.h"

#include <torch/version.h>

#if TORCH_VERSION_MAJOR < 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 11)
#error "symmem_torch needs PyTorch 2.11 or later"
#endif

namespace symmem_torch {
namespace {

/* Collective: after a timeout or a lost peer was dealt with. 0: the process group's limit. */
void reset(const Memory &memory, int64_t timeout_ms) {
    auto &handle = our_handle(memory.get());
    auto limit = narrow<uint32_t>(timeout_ms, "timeout_ms", SYMMEM_TIMEOUT_DEFAULT - 1);
    check(symmem_handle_reset(handle.raw(), limit == 0 ? handle.timeout_ms() : limit));
}

std::string group_name(const Memory &memory) {
    return our_handle(memory.get()).group();
}

/* The name of the status that poisoned the handle, "OK" if none did. */
std::string status(const Memory &memory) {
    return symmem_status_name(symmem_handle_status(our_handle(memory.get()).raw(), nullptr));
}

const bool registered = [] {
    register_allocator();
    watch_forks();
    return true;
}();

} // namespace
} // namespace symmem_torch

TORCH_LIBRARY(symmem, m) {
    m.def("reset", &symmem_torch::reset);
    m.def("group_name", &symmem_torch::group_name);
    m.def("status", &symmem_torch::status);
    m.def("release_world", &symmem_torch::World::release);
    m.def("enter_pool", &symmem_torch::enter_pool);
    m.def("leave_pool", &symmem_torch::leave_pool);
}
