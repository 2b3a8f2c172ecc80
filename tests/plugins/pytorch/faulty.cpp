// SPDX-License-Identifier: BSD-3-Clause
// Allocators that are wrong in one respect each, around symmem_torch's, to see that the suite finds
// them. Of WRONG_<name of the fault> SYMMEM_TORCH_ALLOCATOR says which is registered.
#include <torch/csrc/distributed/c10d/symm_mem/SymmetricMemory.hpp>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

namespace {

namespace symm = c10d::symmetric_memory;
using Memory = c10::intrusive_ptr<symm::SymmetricMemory>;

enum class Fault { none, barrier, wait, zero, sizes, groups };

class WrongMemory : public symm::SymmetricMemory {
  public:
    WrongMemory(Fault fault, Memory right, Memory signals)
        : fault_(fault), right_(std::move(right)), signals_(std::move(signals)) {}
    std::vector<void *> get_buffer_ptrs() override {
        return right_->get_buffer_ptrs();
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
};

class WrongAllocator : public symm::SymmetricMemoryAllocator {
  public:
    WrongAllocator(Fault fault, std::string name)
        : fault_(fault), name_(std::move(name)), right_(symm::get_allocator(c10::kCPU)) {}
    void *alloc(size_t bytes, int device, const std::optional<std::string> &group) override {
        constexpr size_t step = size_t{1} << 16; /* so that few sizes differ */
        auto rounded = fault_ == Fault::sizes ? (bytes + step - 1) / step * step : bytes;
        auto pointer = right_->alloc(rounded, device, group);
        if (fault_ == Fault::zero) {
            memset(pointer, 0x5a, bytes);
        }
        return pointer;
    }
    void free(void *pointer) override {
        {
            std::lock_guard<std::mutex> lock(mutex_);
            first_.erase(pointer);
        }
        right_->free(pointer);
    }
    size_t get_alloc_size(void *pointer) override {
        return right_->get_alloc_size(pointer);
    }
    Memory rendezvous(void *pointer, const std::optional<std::string> &group) override {
        auto right = right_->rendezvous(pointer, group);
        if (!right) {
            return right;
        }
        std::lock_guard<std::mutex> lock(mutex_);
        auto &first = first_.emplace(pointer, right).first->second;
        return c10::make_intrusive<WrongMemory>(fault_, right,
                                                fault_ == Fault::groups ? first : right);
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
