// SPDX-License-Identifier: BSD-3-Clause
// Tensors of the CPU in symmem's pool.
#pragma once

namespace symmem_torch {

/* Between the two calls, which may be nested, this thread's CPU tensors are made in the pool. */
void enter_pool();
void leave_pool();
/* In a child of fork: what the thread that forked had entered. */
void leave_parents_pool();

} // namespace symmem_torch
