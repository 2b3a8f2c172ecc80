// SPDX-License-Identifier: BSD-3-Clause
// Allocators that are wrong in one respect each, around symmem_torch's, to see that the suite finds
// them. Of WRONG_<name of the fault> SYMMEM_TORCH_ALLOCATOR says which is registered.
#include <torch/csrc/distributed/c10d/symm_mem/SymmetricMemory.hpp>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>

#include <symmem/memory.h>

namespace {

namespace symm = c10d::symmetric_memory;
using Memory = c10::intrusive_ptr<symm::SymmetricMemory>;

enum class Fault { none, barrier, wait, zero, sizes, groups };

class WrongMemory : public symm::SymmetricMemory {
  public:
    WrongMemory(Fault fault, Memory right, Memory signals, size_t place)
        : fault_(fault), right_(std::move(right)), signals_(std::move(signals)), place_(place) {}
    std::vector<void *> get_buffer_ptrs() override {
        auto pointers = right_->get_buffer_ptrs();
        for (auto &pointer : pointers) {
            pointer = static_cast<char *>(pointer) + place_;
        }
        return pointers;
    }
    std::vector<void *> get_signal_pad_ptrs() override {
        return right_->get_signal_pad_ptrs();
    }
    void **get_buffer_ptrs_dev() override {
        return right_->get_buffer_ptrs_dev();
    }
    void **get_signal_pad_ptrs_dev() override {
        return right_->get_signal_pad_ptrs_dev();
    }
    size_t get_buffer_size() override {
        return right_->get_buffer_size();
    }
    size_t get_offset() override {
        return right_->get_offset();
    }
    bool has_multicast_support() override {
        return right_->has_multicast_support();
    }
    void *get_multicast_ptr() override {
        return right_->get_multicast_ptr();
    }
    void barrier(int channel, size_t timeout_ms) override {
        if (fault_ != Fault::barrier) {
            right_->barrier(channel, timeout_ms);
        }
    }
    void put_signal(int rank, int channel, size_t timeout_ms) override {
        if (fault_ != Fault::wait) {
            signals_->put_signal(rank, channel, timeout_ms);
        }
    }
    void wait_signal(int rank, int channel, size_t timeout_ms) override {
        if (fault_ != Fault::wait) {
            signals_->wait_signal(rank, channel, timeout_ms);
        }
    }
    int get_rank() override {
        return right_->get_rank();
    }
    int get_world_size() override {
        return right_->get_world_size();
    }
    c10::Device get_device() override {
        return right_->get_device();
    }

  private:
    Fault fault_;
    Memory right_, signals_; /* the same, unless groups share signals */
    size_t place_;           /* in this rank's heap, and taken for that in each peer's */
};

/* Allocations one behind the other, as in an engine that has a heap on each rank. */
class Heap {
  public:
    void *add(size_t bytes, const std::function<void *(size_t)> &make) {
        if (sizes_.empty()) {
            base_ = static_cast<char *>(make(size));
            used_ = 0;
        }
        TORCH_CHECK(bytes <= size - used_, "out of memory");
        auto pointer = base_ + used_;
        used_ += (bytes + SYMMEM_ALIGNMENT - 1) / SYMMEM_ALIGNMENT * SYMMEM_ALIGNMENT;
        sizes_[pointer] = bytes;
        return pointer;
    }
    /* Whether it was the last one. */
    bool remove(void *pointer) {
        sizes_.erase(pointer);
        return sizes_.empty();
    }
    size_t bytes_of(void *pointer) const {
        return sizes_.at(pointer);
    }
    char *base() const {
        return base_;
    }

  private:
    static constexpr size_t size = size_t{64} << 20;
    char *base_ = nullptr;
    size_t used_ = 0;
    std::map<void *, size_t> sizes_;
};

class WrongAllocator : public symm::SymmetricMemoryAllocator {
  public:
    WrongAllocator(Fault fault, std::string name)
        : fault_(fault), name_(std::move(name)), right_(symm::get_allocator(c10::kCPU)) {}
    void *alloc(size_t bytes, int device, const std::optional<std::string> &group) override {
        auto make = [&](size_t much) { return right_->alloc(much, device, group); };
        std::lock_guard<std::mutex> lock(mutex_);
        auto pointer = fault_ == Fault::sizes ? heap_.add(bytes, make) : make(bytes);
        if (fault_ == Fault::zero) {
            memset(pointer, 0x5a, bytes);
        }
        return pointer;
    }
    void free(void *pointer) override {
        std::lock_guard<std::mutex> lock(mutex_);
        first_.erase(pointer);
        if (fault_ != Fault::sizes) {
            right_->free(pointer);
        } else if (heap_.remove(pointer)) {
            right_->free(heap_.base());
        }
    }
    size_t get_alloc_size(void *pointer) override {
        std::lock_guard<std::mutex> lock(mutex_);
        return fault_ == Fault::sizes ? heap_.bytes_of(pointer) : right_->get_alloc_size(pointer);
    }
    Memory rendezvous(void *pointer, const std::optional<std::string> &group) override {
        size_t place = fault_ == Fault::sizes ? static_cast<char *>(pointer) - heap_.base() : 0;
        auto right = right_->rendezvous(static_cast<char *>(pointer) - place, group);
        if (!right) {
            return right;
        }
        std::lock_guard<std::mutex> lock(mutex_);
        auto &first = first_.emplace(pointer, right).first->second;
        auto &signals = fault_ == Fault::groups ? first : right;
        return c10::make_intrusive<WrongMemory>(fault_, right, signals, place);
    }
    bool has_multicast_support(int device) override {
        return right_->has_multicast_support(device);
    }
    c10::DeviceType supported_device_type() override {
        return c10::kCPU;
    }
    std::string name() override {
        return name_;
    }

  private:
    Fault fault_;
    std::string name_;
    c10::intrusive_ptr<symm::SymmetricMemoryAllocator> right_;
    std::mutex mutex_;
    Heap heap_;
    std::map<void *, Memory> first_; /* handle of each allocation */
};

const bool registered = [] {
    static const std::pair<std::string, Fault> all[] = {
        {"WRONG_NOTHING", Fault::none}, {"WRONG_BARRIER", Fault::barrier},
        {"WRONG_WAIT", Fault::wait},    {"WRONG_ZERO", Fault::zero},
        {"WRONG_SIZES", Fault::sizes},  {"WRONG_GROUPS", Fault::groups}};
    auto variable = std::getenv("SYMMEM_TORCH_ALLOCATOR");
    const std::string asked = variable ? variable : "";
    for (const auto &[name, fault] : all) {
        if (asked.compare(0, asked.find('@'), name) == 0) {
            symm::register_allocator(c10::kCPU, c10::make_intrusive<WrongAllocator>(fault, name));
        }
    }
    return true;
}();

} // namespace
