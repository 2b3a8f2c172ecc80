// SPDX-License-Identifier: BSD-3-Clause
// Forks of this process. A child has the parent's objects, and must not use what they hold.
#pragma once

#include <cstdint>

namespace symmem_torch {

/* The number of forks between the process that loaded the library and this one. */
uint32_t fork_generation();
/* Once, when the library is loaded. */
void watch_forks();
/* Throws in a child of fork, for `what` that is the parent's. */
[[noreturn]] void refuse_in_child(const char *what);

} // namespace symmem_torch
