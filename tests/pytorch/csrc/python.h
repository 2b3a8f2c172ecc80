// SPDX-License-Identifier: BSD-3-Clause
// What the library asks of Python, which the module of methods.cpp answers. A program without
// Python has no such module.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace symmem_torch {

struct Python {
    /* Releases the interpreter's lock if the calling thread has it. Returns what acquire takes, or
     * NULL: nothing was released. */
    void *(*release)();
    void (*acquire)(void *state);
    /* The ranks of the world that the process group has, in its order. Nothing: not known. */
    std::optional<std::vector<int32_t>> (*ranks_of)(const std::string &group);
};

/* NULL: there is none. */
const Python *python();
#pragma GCC visibility push(default) // for methods.cpp
/* Called once, when the module is imported. */
void set_python(const Python *python);
#pragma GCC visibility pop

/* Other threads of Python may run while this is there: the calling one may wait for other ranks. */
class OthersRun {
  public:
    OthersRun() : state_(python() ? python()->release() : nullptr) {}
    OthersRun(const OthersRun &) = delete;
    OthersRun &operator=(const OthersRun &) = delete;
    ~OthersRun() {
        if (state_) {
            python()->acquire(state_);
        }
    }

  private:
    void *state_;
};

} // namespace symmem_torch
