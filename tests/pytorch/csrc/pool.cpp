// SPDX-License-Identifier: BSD-3-Clause
#include "pool.h"

#include "allocator.h"
#include "error.h"

#include <c10/core/CPUAllocator.h>

#include <mutex>

namespace symmem_torch {
namespace {

c10::Allocator *ordinary_allocator; /* PyTorch's own of the CPU, once the pool was entered */
thread_local int pool_depth;
thread_local int parents_depth; /* in a child of fork: with statements whose pool is the parent's */

void *take(size_t bytes) {
    auto world = World::current();
    check(symmem_set_signal_pad_size(world->context(),
                                     c10d::symmetric_memory::get_signal_pad_size()));
    void *pointer = nullptr;
    check(symmem_pool_alloc(world->pool(), bytes, &pointer));
    Allocator::instance().adopt(pointer, std::move(world));
    return pointer;
}

void give_back(void *pointer) {
    auto world = Allocator::instance().forget(pointer);
    if (world && !world->is_parents() && !c10d::symmetric_memory::is_finalizing()) {
        auto status = symmem_pool_free(world->pool(), pointer);
        if (status != SYMMEM_OK && status != SYMMEM_NOT_INITIALIZED) {
            TORCH_WARN(describe(status));
        }
    } else if (!world && pointer && ordinary_allocator) {
        ordinary_allocator->raw_deleter()(pointer);
    }
}

/* In place of the CPU's allocator: the pool, where a thread has entered it. */
class ChoosingAllocator final : public c10::Allocator {
  public:
    c10::DataPtr allocate(size_t bytes) override {
        if (pool_depth == 0 || bytes == 0) {
            return ordinary_allocator->allocate(bytes);
        }
        auto pointer = take(bytes);
        return {pointer, pointer, &give_back, c10::Device(c10::kCPU)};
    }
    c10::DeleterFnPtr raw_deleter() const override {
        return &give_back;
    }
    void copy_data(void *to, const void *from, std::size_t bytes) const override {
        default_copy_data(to, from, bytes);
    }
};

} // namespace

void enter_pool() {
    static std::once_flag once;
    std::call_once(once, [] {
        ordinary_allocator = c10::GetCPUAllocator();
        c10::SetCPUAllocator(new ChoosingAllocator, /*priority=*/100);
    });
    pool_depth++;
}

void leave_pool() {
    auto &depth = pool_depth > 0 ? pool_depth : parents_depth;
    TORCH_CHECK(depth > 0, "symmem: this thread has not entered the pool");
    depth--;
}

void leave_parents_pool() {
    parents_depth += pool_depth;
    pool_depth = 0;
}

} // namespace symmem_torch
