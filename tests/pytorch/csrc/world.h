// SPDX-License-Identifier: BSD-3-Clause
// symmem's context and groups for PyTorch's process groups.
#pragma once

#include "fork.h"
#include "store.h"

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace symmem_torch {

using ProcessGroupPtr = c10::intrusive_ptr<c10d::ProcessGroup>;
using ProcessGroupRef = c10::weak_intrusive_ptr<c10d::ProcessGroup>;

/*
 * One context, and the process group that it was made for. It lives as long as there is memory of
 * it, which may be longer than the process group: after destroy_process_group and another
 * init_process_group there are two.
 */
class World {
  public:
    /* The one of the default process group that there is now; without one, a world of this process.
     */
    static std::shared_ptr<World> current();
    /* The default process group that there is now, if any. */
    static ProcessGroupRef default_group();
    /* Before a fork, with that group, which the child is not to use; one thread at a time. */
    static void before_fork(ProcessGroupRef group);
    /* In the parent nothing holds that group's memory any more. */
    static void go_on_in_parent();
    /* In the child of a fork there is no current one, whatever the parent's threads were doing. */
    static void begin_in_child();
    /* Gives the current one up if its process group was destroyed; else the next call of current
     * does. Memory of it keeps it. */
    static void release();

    explicit World(const ProcessGroupPtr &group);
    World(const World &) = delete;
    World &operator=(const World &) = delete;
    ~World();

    symmem_context *context() const {
        return context_;
    }
    /* Whether it was made before a fork that this process is the child of. */
    bool is_parents() const {
        return generation_ != fork_generation();
    }
    symmem_pool *pool();
    /* Collective over the group's members the first time. */
    symmem_group *group(const std::string &name, const ProcessGroupPtr &group);

  private:
    struct Group {
        ProcessGroupRef process_group; /* names come back with other members */
        StorePtr store;
        symmem_group *group;
    };
    std::vector<int32_t> world_ranks(const std::string &name, const ProcessGroupPtr &group) const;

    uint32_t generation_ = fork_generation();
    ProcessGroupRef default_group_;
    StorePtr store_;
    symmem_context *context_ = nullptr;
    symmem_pool *pool_ = nullptr;
    int32_t rank_ = 0, world_size_ = 1;
    std::mutex mutex_;
    std::map<std::string, Group> groups_;
    std::vector<StorePtr> old_stores_; /* symmem may still hold them */
};

/* Throws with what to do if there is no such group. */
ProcessGroupPtr find_process_group(const std::string &name);
bool is_same(const ProcessGroupRef &known, const ProcessGroupPtr &group);
/* Returns the limit that the user gave init_process_group or new_group, in milliseconds, for waits
 * without a limit of their own; 0 is none. */
uint32_t timeout_of(const ProcessGroupPtr &group);

} // namespace symmem_torch
