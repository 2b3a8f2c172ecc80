// SPDX-License-Identifier: BSD-3-Clause
#include "handle.h"

#include "error.h"
#include "python.h"

#include <algorithm>

namespace symmem_torch {

Handle::Handle(std::shared_ptr<World> world, symmem_handle *handle, std::string group,
               uint32_t timeout_ms)
    : world_(std::move(world)), handle_(handle), group_(std::move(group)), timeout_ms_(timeout_ms) {
    check(symmem_handle_get_info(handle, &info_));
    global_ranks_.resize(info_.world_size);
    for (int32_t rank = 0; rank < info_.world_size; rank++) {
        check(symmem_handle_global_rank(handle, rank, &global_ranks_[rank]));
    }
}

Handle::~Handle() {
    symmem_handle_release(handle_);
}

std::vector<void *> Handle::get_buffer_ptrs() {
    void *const *pointers;
    check(symmem_handle_buffer_ptrs(handle_, &pointers));
    return {pointers, pointers + info_.world_size};
}

std::vector<void *> Handle::get_signal_pad_ptrs() {
    void *const *pointers;
    check(symmem_handle_signal_pad_ptrs(handle_, &pointers));
    return {pointers, pointers + info_.world_size};
}

void **Handle::get_buffer_ptrs_dev() {
    void *table;
    check(symmem_handle_buffer_ptrs_dev(handle_, &table));
    return static_cast<void **>(table);
}

void **Handle::get_signal_pad_ptrs_dev() {
    void *table;
    check(symmem_handle_signal_pad_ptrs_dev(handle_, &table));
    return static_cast<void **>(table);
}

void Handle::barrier(int channel, size_t timeout_ms) {
    check_channel(channel);
    OthersRun others_run;
    check(symmem_barrier(handle_, channel, limit(timeout_ms), nullptr));
}

void Handle::put_signal(int dst_rank, int channel, size_t timeout_ms) {
    check_channel(channel);
    OthersRun others_run;
    check(symmem_put_signal(handle_, rank_of(dst_rank), channel, limit(timeout_ms), nullptr));
}

void Handle::wait_signal(int src_rank, int channel, size_t timeout_ms) {
    check_channel(channel);
    OthersRun others_run;
    check(symmem_wait_signal(handle_, rank_of(src_rank), channel, limit(timeout_ms), nullptr));
}

uint32_t Handle::limit(size_t timeout_ms) const {
    return timeout_ms == 0
               ? timeout_ms_
               : static_cast<uint32_t>(std::min<size_t>(timeout_ms, SYMMEM_TIMEOUT_DEFAULT - 1));
}

void Handle::check_channel(int channel) const {
    TORCH_CHECK(channel >= 0 && channel < info_.channel_count, "The maximum supported channel is ",
                info_.channel_count - 1, " (got ", channel,
                "): a signal pad of this size has so many for ", info_.world_size,
                " ranks; set_signal_pad_size before the allocation gives more");
}

int32_t Handle::rank_of(int64_t rank, const char *name) const {
    TORCH_CHECK(rank >= 0 && rank < info_.world_size, name, " must be in [0, ", info_.world_size,
                ") (got ", rank,
                "): ranks are those of the group, not of the world [OUT_OF_RANGE]");
    return static_cast<int32_t>(rank);
}

Handle &our_handle(c10d::symmetric_memory::SymmetricMemory *memory) {
    auto handle = dynamic_cast<Handle *>(memory);
    TORCH_CHECK(handle,
                "symmem: this handle is not of memory that symmem allocated, but of another "
                "backend of PyTorch's");
    return *handle;
}

} // namespace symmem_torch
