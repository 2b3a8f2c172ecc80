// SPDX-License-Identifier: BSD-3-Clause
// PyTorch's symmetric memory as the backend's entries use it. What fails throws, as PyTorch does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace symmem_plugin {

/* The allocator that SYMMEM_TORCH_ALLOCATOR names. */
struct Choice {
    std::string name;
    std::string problem; /* why there is none; empty: there is one */
    bool cpu = true;     /* of CPU tensors; else of CUDA's */
};
const Choice &choice();
const char *torch_version();

/* PyTorch's process group of all ranks, which is the process's: the first instance makes it and the
 * last one ends it. */
void enter_world(int rank, int world_size);
void leave_world();

void *allocate(size_t bytes, int device);
void give_back(void *pointer);

/* A group under a name of its own, through a store of PyTorch's. */
class Group;
std::shared_ptr<Group> open_group(const std::string &name, int rank, int world_size, int device,
                                  uint64_t limit_ms);

/* What PyTorch's rendezvous of one allocation in one group gives. */
class Meeting {
  public:
    virtual ~Meeting() = default;
    virtual std::vector<void *> buffers() = 0;
    virtual void barrier(int channel, size_t timeout_ms) = 0;
    virtual void put_signal(int rank, int channel, size_t timeout_ms) = 0;
    virtual void wait_signal(int rank, int channel, size_t timeout_ms) = 0;
    std::shared_ptr<Group> group;
    void *own = nullptr;
};
/* Collective. limit_ms is for each wait at the store; 0: none. */
std::shared_ptr<Meeting> meet(const std::shared_ptr<Group> &group, void *pointer,
                              uint64_t limit_ms);

/* PyTorch's ops of these names, on its current stream. */
void fill32(void *at, uint32_t value, size_t count, int device);
void write_value32(void *at, uint32_t value, int device);

} // namespace symmem_plugin
