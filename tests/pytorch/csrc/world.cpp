// SPDX-License-Identifier: BSD-3-Clause
#include "world.h"

#include "checked.h"
#include "error.h"
#include "python.h"

#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>

#include <algorithm>
#include <numeric>

namespace symmem_torch {
namespace {

/* PyTorch's name of the group of all ranks. */
const char world_name[] = "0";
/* PyTorch's default. */
constexpr std::chrono::milliseconds default_limit = kBackendDefaultTimeout;
/* Larger tensors get a segment of their own. */
constexpr size_t segment_bytes = 2 << 20;

ProcessGroupPtr registered(const std::string &name) {
    try {
        return c10d::resolve_process_group(name);
    } catch (const std::exception &) {
        return {};
    }
}

c10::intrusive_ptr<c10d::Store> store_of(const ProcessGroupPtr &group, const std::string &name) {
    auto store = group->getStore();
    TORCH_CHECK(store, "symmem: process group \"", name,
                "\" has no store, through which its ranks could find each other. Make it by "
                "torch.distributed.init_process_group or new_group.");
    return store;
}

/* What this process has. Never destroyed: tensors may outlive what C++ destroys at the end of a
 * process. A child of fork gets another one, for threads of the parent may be using the parent's.
 */
struct Here {
    std::mutex mutex;
    std::shared_ptr<World> world;
    ProcessGroupRef group{ProcessGroupPtr()};   /* the one that the world was made for */
    ProcessGroupRef parents{ProcessGroupPtr()}; /* the parent's, at the fork */
};
Here *here = new Here;
const Python *the_python;
ProcessGroupRef *group_before_fork = new ProcessGroupRef(ProcessGroupPtr());

/* PyTorch's CPU backend has it, or the only one there is. */
std::chrono::milliseconds limit_of(const ProcessGroupPtr &group) {
    for (auto backend : {+[](c10d::ProcessGroup &of) { return of.getBackend(c10::kCPU); },
                         +[](c10d::ProcessGroup &of) { return of.getDefaultBackend(); }}) {
        try {
            auto found = backend(*group);
            auto options = found ? found->getBackendOptions() : nullptr;
            if (options) {
                return options->timeout;
            }
        } catch (const std::exception &) { // no such backend, or it knows no options
        }
    }
    auto store = group->getStore();
    return store ? store->getTimeout() : default_limit;
}

} // namespace

ProcessGroupPtr find_process_group(const std::string &name) {
    auto group = registered(name);
    TORCH_CHECK(group, "symmem: there is no process group \"", name,
                "\". Call torch.distributed.init_process_group first, and pass a group of "
                "torch.distributed.new_group or its name.");
    return group;
}

bool is_same(const ProcessGroupRef &known, const ProcessGroupPtr &group) {
    return known.lock() == group;
}

uint32_t timeout_of(const ProcessGroupPtr &group) {
    return static_cast<uint32_t>(
        std::clamp<int64_t>(limit_of(group).count(), 1, SYMMEM_TIMEOUT_DEFAULT - 1));
}

std::shared_ptr<World> World::current() {
    std::lock_guard<std::mutex> lock(here->mutex);
    auto group = registered(world_name);
    if (group && is_same(here->parents, group)) {
        refuse_in_child("its process group is");
    }
    if (!here->world || (group && !is_same(here->group, group))) {
        here->world = std::make_shared<World>(group);
        here->group = ProcessGroupRef(group);
    }
    return here->world;
}

ProcessGroupRef World::default_group() {
    return ProcessGroupRef(registered(world_name));
}

void World::before_fork(ProcessGroupRef group) {
    *group_before_fork = std::move(group);
}

void World::go_on_in_parent() {
    *group_before_fork = ProcessGroupRef(ProcessGroupPtr());
}

void World::begin_in_child() {
    here = new Here;
    here->parents = std::move(*group_before_fork);
}

void World::release() {
    std::shared_ptr<World> ended; // destroyed without the lock
    std::lock_guard<std::mutex> lock(here->mutex);
    if (!here->group.lock()) {
        ended.swap(here->world);
        here->group = ProcessGroupRef(ProcessGroupPtr()); // the last to hold the group's memory
    }
}

World::World(const ProcessGroupPtr &group) : default_group_(group) {
    symmem_context_options options;
    symmem_context_options_init(&options);
    options.rank = rank_ = group ? group->getRank() : 0;
    options.world_size = world_size_ = group ? group->getSize() : 1;
    options.local_rank = options.rank;
    // The emulation, unless SYMMEM_BACKEND names another one whose memory the CPU can read.
    options.backend = getenv("SYMMEM_BACKEND") ? nullptr : "shm";
    options.default_timeout_ms =
        group ? timeout_of(group) : static_cast<uint32_t>(default_limit.count());
    if (options.world_size > 1) {
        store_ = wrap_store(store_of(group, world_name), "symmem/");
        options.store = store_.get();
    }
    check(symmem_init(&options, &context_));
}

World::~World() {
    symmem_context_free(context_);
}

symmem_pool *World::pool() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!pool_) {
        check(symmem_pool_create(context_, -1, segment_bytes, &pool_));
    }
    return pool_;
}

symmem_group *World::group(const std::string &name, const ProcessGroupPtr &group) {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        auto known = groups_.find(name);
        if (known != groups_.end() && is_same(known->second.process_group, group)) {
            return known->second.group;
        }
    }
    TORCH_CHECK(group->getSize() <= world_size_, "symmem: process group \"", name, "\" has ",
                group->getSize(), " ranks, and the world of this process ", world_size_,
                ". Call torch.distributed.init_process_group first.");
    auto ranks = world_ranks(name, group); // not under the lock, which other groups' threads want
    std::lock_guard<std::mutex> lock(mutex_);
    auto known = groups_.find(name);
    if (known != groups_.end()) {
        if (is_same(known->second.process_group, group)) {
            return known->second.group;
        }
        check(symmem_group_destroy(known->second.group));
        old_stores_.push_back(std::move(known->second.store));
        groups_.erase(known);
    }
    Group made{ProcessGroupRef(group), nullptr, nullptr};
    if (ranks.size() > 1) {
        made.store = wrap_store(store_of(group, name), "symmem_group/");
    }
    check(symmem_group_create(context_, name.c_str(), ranks.data(),
                              narrow<int32_t>(ranks.size(), "the number of ranks"),
                              made.store.get(), &made.group));
    auto result = made.group;
    groups_.emplace(name, std::move(made));
    return result;
}

/* Only PyTorch's Python side knows which ranks of the world a group has. Without it the members
 * tell each other. Then a member that has ended costs the whole limit, because the others do
 * not know which process it was. */
std::vector<int32_t> World::world_ranks(const std::string &name,
                                        const ProcessGroupPtr &group) const {
    std::vector<int32_t> ranks(group->getSize(), rank_);
    if (is_same(default_group_, group)) {
        std::iota(ranks.begin(), ranks.end(), 0);
    } else if (ranks.size() > 1) {
        auto known = python() ? python()->ranks_of(name) : std::nullopt;
        if (known && known->size() == ranks.size()) {
            return *known;
        }
        auto store = store_of(group, name);
        auto key = [](size_t rank) { return "symmem_rank/" + std::to_string(rank); };
        auto own = std::to_string(rank_);
        auto limit_ms = timeout_of(group);
        store->set(key(group->getRank()), std::vector<uint8_t>(own.begin(), own.end()));
        for (size_t rank = 0; rank < ranks.size(); rank++) {
            store->wait({key(rank)}, std::chrono::milliseconds(limit_ms));
            auto text = store->get(key(rank));
            ranks[rank] = std::stoi(std::string(text.begin(), text.end()));
        }
    }
    return ranks;
}

const Python *python() {
    return the_python;
}

void set_python(const Python *python) {
    the_python = python;
}

} // namespace symmem_torch
