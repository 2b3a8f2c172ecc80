// SPDX-License-Identifier: BSD-3-Clause
// symmem as an allocator of PyTorch's symmetric memory.
#pragma once

#include "handle.h"

#include <unordered_map>

namespace symmem_torch {

class Allocator : public c10d::symmetric_memory::SymmetricMemoryAllocator {
  public:
    /* Process-wide, as PyTorch's registry wants it; never destroyed. */
    static Allocator &instance();

    void *alloc(size_t size, int device, const std::optional<std::string> &group) override;
    void free(void *pointer) override;
    size_t get_alloc_size(void *pointer) override;
    c10::intrusive_ptr<c10d::symmetric_memory::SymmetricMemory>
    rendezvous(void *pointer, const std::optional<std::string> &group) override;
    bool has_multicast_support(int device) override;
    c10::DeviceType supported_device_type() override {
        return c10::DeviceType::CPU;
    }
    std::string name() override {
        return "SYMMEM";
    }
    bool has_allocation(void *pointer) {
        return find_world(pointer) != nullptr;
    }

    /* Around a fork. */
    void lock() {
        mutex_.lock();
    }
    void unlock() {
        mutex_.unlock();
    }

    /* Memory that others allocated in `world`, a pool. */
    void adopt(void *pointer, std::shared_ptr<World> world);
    /* Whose it was; none if it is not known. */
    std::shared_ptr<World> forget(void *pointer);

  private:
    struct Meeting { /* of a block and a group */
        ProcessGroupRef group;
        c10::intrusive_ptr<Handle> handle;
    };
    struct Block {
        std::shared_ptr<World> world;
        std::optional<std::string> default_group;
        std::unordered_map<std::string, Meeting> meetings;
    };

    std::shared_ptr<World> find_world(void *pointer);
    std::string group_name(void *pointer, const std::optional<std::string> &group);
    c10::intrusive_ptr<Handle> known_handle(void *pointer, const std::string &name,
                                            const ProcessGroupPtr &group);
    c10::intrusive_ptr<Handle> meet(void *pointer, const std::string &name,
                                    const ProcessGroupPtr &group);

    std::mutex mutex_; /* never held in a call of symmem's, which has locks around a fork, too */
    std::unordered_map<void *, Block> blocks_;
};

void register_allocator();

} // namespace symmem_torch
