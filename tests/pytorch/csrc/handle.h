// SPDX-License-Identifier: BSD-3-Clause
// symmem's handle as PyTorch's SymmetricMemory.
#pragma once

#include "world.h"

#include <torch/csrc/distributed/c10d/symm_mem/SymmetricMemory.hpp>

namespace symmem_torch {

class Handle : public c10d::symmetric_memory::SymmetricMemory {
  public:
    /* Takes the reference over. `timeout_ms` is for waits that have no limit of their own. */
    Handle(std::shared_ptr<World> world, symmem_handle *handle, std::string group,
           uint32_t timeout_ms);
    ~Handle() override;

    std::vector<void *> get_buffer_ptrs() override;
    std::vector<void *> get_signal_pad_ptrs() override;
    void **get_buffer_ptrs_dev() override;
    void **get_signal_pad_ptrs_dev() override;
    size_t get_buffer_size() override {
        return info_.buffer_size;
    }
    size_t get_offset() override {
        return info_.offset;
    }
    bool has_multicast_support() override {
        return info_.multicast_ptr != nullptr;
    }
    void *get_multicast_ptr() override {
        return info_.multicast_ptr;
    }
    void barrier(int channel, size_t timeout_ms) override;
    void put_signal(int dst_rank, int channel, size_t timeout_ms) override;
    void wait_signal(int src_rank, int channel, size_t timeout_ms) override;
    int get_rank() override {
        return info_.rank;
    }
    int get_world_size() override {
        return info_.world_size;
    }
    c10::Device get_device() override {
        return c10::Device(c10::kCPU);
    }
    const std::vector<int> &get_rank_to_global_rank() override {
        return global_ranks_;
    }
    int *get_rank_to_global_rank_dev() override {
        return global_ranks_.data();
    }
    bool world_within_direct_access() override {
        return info_.world_within_direct_access;
    }

    symmem_context *context() const {
        return world_->context();
    }
    symmem_handle *raw() const {
        return handle_;
    }
    const symmem_handle_info &info() const {
        return info_;
    }
    const std::string &group() const {
        return group_;
    }
    uint32_t timeout_ms() const {
        return timeout_ms_;
    }
    /* A rank of the group, which the caller calls `name`. */
    int32_t rank_of(int64_t rank, const char *name = "rank") const;

  private:
    uint32_t limit(size_t timeout_ms) const;
    void check_channel(int channel) const;

    std::shared_ptr<World> world_;
    symmem_handle *handle_;
    std::string group_;
    uint32_t timeout_ms_;
    symmem_handle_info info_;
    std::vector<int> global_ranks_;
};

using HandlePtr = c10::intrusive_ptr<Handle>;
using Memory = c10::intrusive_ptr<c10d::symmetric_memory::SymmetricMemory>;

/* Throws for a handle of another allocator's. */
Handle &our_handle(c10d::symmetric_memory::SymmetricMemory *memory);

} // namespace symmem_torch
