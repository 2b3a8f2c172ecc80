// SPDX-License-Identifier: BSD-3-Clause
#include "allocator.h"

#include "error.h"
#include "python.h"

#include <algorithm>

namespace symmem_torch {

namespace symm = c10d::symmetric_memory;

Allocator &Allocator::instance() {
    static auto *allocator = c10::make_intrusive<Allocator>().release();
    return *allocator;
}

void *Allocator::alloc(size_t size, int, const std::optional<std::string> &group) {
    auto world = World::current();
    check(symmem_set_signal_pad_size(world->context(), symm::get_signal_pad_size()));
    void *pointer = nullptr;
    check(symmem_alloc(world->context(), std::max<size_t>(size, 1), -1, nullptr, &pointer));
    std::lock_guard<std::mutex> lock(mutex_);
    blocks_[pointer] = Block{std::move(world), group, {}};
    return pointer;
}

void Allocator::free(void *pointer) {
    auto world = forget(pointer);
    if (!world || world->is_parents() || symm::is_finalizing()) {
        return;
    }
    auto status = symmem_free(world->context(), pointer);
    if (status != SYMMEM_OK && status != SYMMEM_NOT_INITIALIZED) {
        TORCH_WARN(describe(status));
    }
}

size_t Allocator::get_alloc_size(void *pointer) {
    auto world = find_world(pointer);
    TORCH_CHECK(world, "symmem: no symmetric memory begins at ", pointer);
    size_t bytes = 0;
    check(symmem_alloc_size(world->context(), pointer, &bytes));
    return bytes;
}

c10::intrusive_ptr<symm::SymmetricMemory>
Allocator::rendezvous(void *pointer, const std::optional<std::string> &group) {
    auto world = find_world(pointer);
    if (!world) {
        return {}; // None in Python: not symmetric memory
    }
    if (world->is_parents()) {
        refuse_in_child("the memory is");
    }
    auto name = group_name(pointer, group);
    auto process_group = find_process_group(name);
    auto known = known_handle(pointer, name, process_group);
    return known ? known : meet(pointer, name, process_group);
}

bool Allocator::has_multicast_support(int device) {
    auto world = World::current();
    int32_t type = 0;
    bool supported = false;
    check(symmem_device_type(world->context(), &type));
    check(symmem_has_multicast_support(world->context(), type, std::max(device, 0), &supported));
    return supported;
}

void Allocator::adopt(void *pointer, std::shared_ptr<World> world) {
    std::lock_guard<std::mutex> lock(mutex_);
    blocks_[pointer] = Block{std::move(world), std::nullopt, {}};
}

std::shared_ptr<World> Allocator::forget(void *pointer) {
    Block block; // handles are released without the lock
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = blocks_.find(pointer);
    if (found != blocks_.end()) {
        block = std::move(found->second);
        blocks_.erase(found);
    }
    return block.world;
}

std::shared_ptr<World> Allocator::find_world(void *pointer) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = blocks_.find(pointer);
    return found == blocks_.end() ? nullptr : found->second.world;
}

std::string Allocator::group_name(void *pointer, const std::optional<std::string> &group) {
    if (group.has_value() && !group->empty()) {
        return *group;
    }
    std::lock_guard<std::mutex> lock(mutex_);
    auto &fallback = blocks_.at(pointer).default_group;
    TORCH_CHECK(fallback.has_value(),
                "symmem: `group_name` is neither specified during allocation nor passed to "
                "rendezvous(). Pass a group, or its name to empty_strided_p2p.");
    return *fallback;
}

c10::intrusive_ptr<Handle> Allocator::known_handle(void *pointer, const std::string &name,
                                                   const ProcessGroupPtr &group) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto &meetings = blocks_.at(pointer).meetings;
    auto known = meetings.find(name);
    return known != meetings.end() && is_same(known->second.group, group) ? known->second.handle
                                                                          : nullptr;
}

/* Without the lock, for other threads' allocations go on while ranks wait for each other. */
c10::intrusive_ptr<Handle> Allocator::meet(void *pointer, const std::string &name,
                                           const ProcessGroupPtr &group) {
    auto world = find_world(pointer);
    TORCH_CHECK(world == World::current(),
                "symmem: this memory was allocated before init_process_group, or under a process "
                "group that was destroyed. Allocate it again.");
    auto timeout_ms = timeout_of(group);
    symmem_handle *raw = nullptr;
    OthersRun others_run;
    check(
        symmem_rendezvous(world->context(), pointer, world->group(name, group), timeout_ms, &raw));
    auto handle = c10::make_intrusive<Handle>(world, raw, name, timeout_ms);
    Meeting meeting{ProcessGroupRef(group),
                    handle}; // then what was there; released without the lock
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = blocks_.find(pointer);
    if (found != blocks_.end()) {
        auto [place, is_new] = found->second.meetings.try_emplace(name, meeting);
        if (!is_new) {
            std::swap(place->second, meeting);
        }
    }
    return handle;
}

void register_allocator() {
    auto allocator =
        c10::intrusive_ptr<symm::SymmetricMemoryAllocator>::reclaim_copy(&Allocator::instance());
    symm::register_availability("SYMMEM", allocator);
    symm::register_allocator(c10::DeviceType::CPU, allocator);
}

} // namespace symmem_torch
