// SPDX-License-Identifier: BSD-3-Clause
#include "fork.h"

#include "allocator.h"
#include "pool.h"

#include <pthread.h>

namespace symmem_torch {
namespace {

uint32_t generation; /* changes only where there is one thread, after a fork */

/* The allocator's lock, which no thread holds for long, so that the child finds its table whole.
 * The child gets new ones in place of locks that are held while ranks wait for each other. */
void before_fork() {
    auto group = World::default_group(); // under PyTorch's lock, so not under the allocator's
    Allocator::instance().lock();
    World::before_fork(std::move(group));
}

void in_parent() {
    World::go_on_in_parent();
    Allocator::instance().unlock();
}

void in_child() {
    generation++;
    World::begin_in_child();
    leave_parents_pool();
    Allocator::instance().unlock();
}

} // namespace

uint32_t fork_generation() {
    return generation;
}

void watch_forks() {
    TORCH_CHECK(pthread_atfork(before_fork, in_parent, in_child) == 0,
                "symmem: no memory to watch forks of this process");
}

void refuse_in_child(const char *what) {
    TORCH_CHECK(false, "symmem: this process is a child of fork, and no rank: ", what,
                " the parent's [NOT_INITIALIZED]. Leave operations on symmetric memory to the "
                "parent; or start this process by \"spawn\" or \"forkserver\" (of a "
                "DataLoader: multiprocessing_context); or fork before init_process_group and call "
                "that in the child.");
}

} // namespace symmem_torch
